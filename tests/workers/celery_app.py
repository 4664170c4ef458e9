"""The Celery app of the suite's workers. What a worker and its children do is said on the pipe of WORKERS_SAYS."""

import os
import signal
import threading
import time
from typing import Any

from celery import Celery
from celery.signals import (
    task_postrun,
    task_prerun,
    task_unknown,
    worker_init,
    worker_process_init,
    worker_ready,
    worker_shutting_down,
)

from tests.workers.pipes import say

BEAT_SECONDS = 0.25
STALL_SECONDS = 1.0  # far less than any lease of these tests lasts

app = Celery("tests.workers")
app.config_from_object("django.conf:settings", namespace="CELERY")
app.autodiscover_tasks()


@worker_ready.connect
def _ready(**kwargs: Any) -> None:
    # Connected last, so that it is said when everybody else has been told.
    worker_shutting_down.connect(_leaving, weak=False)
    say("ready")


@worker_init.connect
def _begin(**kwargs: Any) -> None:
    """Mind the suite; open what children are forked with, where WORKERS_CONNECT asks for it."""
    threading.Thread(target=_end_with_suite, daemon=True).start()
    _say_takeovers()
    if "WORKERS_CONNECT" in os.environ:
        from django.db import connection

        connection.ensure_connection()
        app.connection_for_write().ensure_connection()


def _say_takeovers() -> None:
    """Say each lease that is acquired here and whose holder had died."""
    from adk_django.execution.leaseholder import Leaseholder

    acquire = Leaseholder.acquire

    def acquired(holder: Leaseholder) -> Any:
        lease = acquire(holder)
        if lease.took_over:
            say("took_over", run=lease.run_id, fence=lease.fence)
        return lease

    Leaseholder.acquire = acquired  # type: ignore[method-assign]  # in this process, for as long as it lives


@worker_process_init.connect
def _say_stalls(**kwargs: Any) -> None:
    """Say each time at which this process was not let run for a second, for whatever reason."""

    def beat() -> None:
        before = time.monotonic()
        while True:
            time.sleep(BEAT_SECONDS)
            now = time.monotonic()
            if now - before > BEAT_SECONDS + STALL_SECONDS:
                say("stalled", since=before, until=now)
            before = now

    threading.Thread(target=beat, daemon=True).start()


def _leaving(**kwargs: Any) -> None:
    say("leaving")


def _end_with_suite() -> None:
    """Kill this worker and its children when its standard input closes, however the suite died."""
    while os.read(0, 1):  # past Python's buffers, whose locks a fork would keep
        pass
    os.killpg(0, signal.SIGKILL)


@task_prerun.connect
def _begun(args: Any, **kwargs: Any) -> None:
    say("begun", run=args[1] if len(args) == 2 else None)


@task_postrun.connect
def _done(args: Any, retval: Any, **kwargs: Any) -> None:
    say("done", run=args[1] if len(args) == 2 else None, came=str(retval))


@task_unknown.connect
def _unknown(name: str, **kwargs: Any) -> None:
    say("unknown", name=name)
