"""When a slice ends before its run stands still, so that a fresh one goes on: its task is long, or its worker leaves.

A child of a prefork worker is never told of a warm shutdown: its parent is. So the flag that says so is shared memory,
made before the parent forks.
"""

import mmap
import time
from typing import Any, Final

from adk_django.conf import get_settings
from adk_django.core.continuation import ContinuationPolicy
from adk_django.core.state import RunState

PART: Final = 0.5  # of a limit that a slice may have used when it takes its next step

_leaving = mmap.mmap(-1, 1)  # anonymous and shared: one page, the same in every child forked from here on


def leave() -> None:
    """Let every slice of this worker, its children's included, end behind its next commit."""
    _leaving[0] = 1


def stay() -> None:
    """Take `leave` back: a worker starts."""
    _leaving[0] = 0


def leaving() -> bool:
    """Return whether this worker is to leave."""
    return bool(_leaving[0])


class HandOver:
    """Says of one slice when it ends. ``limit_seconds`` is how long its task may take at all, None for any time."""

    def __init__(self, limit_seconds: float | None = None) -> None:
        given = get_settings().continue_
        self._policy = ContinuationPolicy(given.max_steps)
        self._until = None if limit_seconds is None else time.monotonic() + PART * limit_seconds

    def __call__(self, run: RunState) -> bool:
        """Return whether the slice ends here."""
        late = self._until is not None and time.monotonic() >= self._until
        return leaving() or late or self._policy.due(run.journal)


# What transports take for lost, and deliver again, where nothing is said; RabbitMQ closes the channel.
_UNACKNOWLEDGED: Final = {"redis": 3_600, "sqs": 1_800, "amqp": 1_800}


def limit_of(task: Any, transport: str = "") -> float | None:
    """Return how many seconds ``task`` may take before it is killed, or before a broker delivers it again; None for any
    time. ``transport`` is the broker's kind."""
    conf, request = task.app.conf, task.request
    given = [*(getattr(request, "timelimit", None) or ()), task.time_limit, task.soft_time_limit]
    given += [conf.task_time_limit, conf.task_soft_time_limit]
    unacknowledged = (conf.broker_transport_options or {}).get("visibility_timeout")
    given.append(unacknowledged or _UNACKNOWLEDGED.get(transport or _transport(task.app)))
    return min((float(limit) for limit in given if limit), default=None)


def _transport(app: Any) -> str:
    try:
        return str(app.connection_for_write().transport.driver_type)
    except (ImportError, KeyError):  # one that is not known here, or whose client is not installed
        return ""
