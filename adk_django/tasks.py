"""Celery's door: a task parses, calls `adk_django.runs`, reports. It carries ids and nothing else of a run.

No task retries, counts down or waits: a run's row says when it is due, and `sweep` is called often.
"""

import logging
import os
import traceback
from collections.abc import Callable
from typing import Any

from celery import Task, shared_task
from celery.signals import worker_init, worker_shutting_down

from adk_django import runs
from adk_django.exceptions import AdkError, RunLeaseError
from adk_django.execution import handover
from adk_django.execution.tool_calls import Interrupt
from adk_django.operations import wakeups

logger = logging.getLogger(__name__)


@shared_task(name=wakeups.TASK, bind=True, acks_late=True, ignore_result=True)
def resume_run(self: Task[Any, Any], tenant: str, run_id: str) -> str:
    """Carry a run on to its next stop, or until this task has to hand it over; return how it stopped.

    A run that another worker holds, that has ended, or that this worker cannot carry on is left as it is.
    """
    ids = {"tenant": tenant, "run_id": run_id}
    if handover.leaving():  # another worker has more time for it
        wakeups.send([(tenant, run_id)])
        return "left"
    limit = handover.limit_of(self)
    worker = f"{self.request.hostname or 'celery'}:{os.getpid()}"
    try:
        result = runs.carry_on(run_id, tenant=tenant, worker=worker, leave=handover.HandOver(limit))
    except RunLeaseError as error:  # somebody else's now: nothing to report
        logger.debug("run not carried on: %s", error.code, extra=ids)
        return error.code
    except AdkError as error:  # its row says why, in words that may hold what a log line must not
        logger.info("run not carried on: %s", error.code, extra=ids)
        return error.code
    except Interrupt:  # its lease is given back; a call it was at is as unknown as after a death
        logger.warning("slice ended by its soft time limit", extra=ids)
        return "time-limit"
    except Exception as error:  # noqa: BLE001  # its text may hold anything: where it was raised, not what it said
        frames = "".join(traceback.format_tb(error.__traceback__))
        logger.error("run not carried on: %s\n%s", type(error).__name__, frames, extra=ids)
        return "fault"
    if result is None:
        return "left"
    if result.handed_over:
        wakeups.send([(tenant, run_id)])
    return result.status.value


@shared_task(name="adk_django.sweep", ignore_result=True)
def sweep() -> int:
    """Wake a worker for each run that is due; return how many wake-ups went out."""
    return _done(lambda: runs.sweep().sent)


@shared_task(name="adk_django.prune", ignore_result=True)
def prune() -> int:
    """Erase a batch of the runs that ended longer ago than they are kept; return how many."""
    return _done(lambda: len(runs.prune()))


def _done(work: Callable[[], int]) -> int:
    """Return how much was done; none where it failed: the code of that is logged, and the next beat tries again."""
    try:
        return work()
    except AdkError as error:
        logger.warning("nothing done: %s", error.code)
        return 0


@worker_init.connect
def _stay(**kwargs: Any) -> None:
    handover.stay()


@worker_shutting_down.connect
def _leave(**kwargs: Any) -> None:
    handover.leave()
