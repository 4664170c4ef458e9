"""System checks of Celery's settings. They look at the current app and connect to nothing."""

from collections.abc import Iterator
from typing import Any, Final

from django.core.checks import CheckMessage, Warning, register

from adk_django import agents, conf, tasks
from adk_django.checks.settings import TAG
from adk_django.exceptions import ConfigurationError
from adk_django.execution.handover import PART, limit_of
from adk_django.operations import wakeups

SWEEP: Final = "adk_django.sweep"


@register(TAG)
def check_tasks(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check how long a task may take, and when it is acknowledged, where a broker is configured."""
    try:
        settings = conf.load(conf.raw_settings())
    except ConfigurationError:
        return []  # `checks.check_settings` says so
    return [*_limits(settings), *_acknowledged()] if wakeups.configured() else []


@register(TAG, deploy=True)
def check_sweep(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check that something sweeps. A schedule that is kept in a database is not looked at."""
    app = wakeups.product_app()
    if not wakeups.configured() or "Database" in str(app.conf.beat_scheduler):
        return []
    entries = [entry for entry in (app.conf.beat_schedule or {}).values() if entry.get("task") == SWEEP]
    queue = conf.get_settings().celery_queue
    queues = {(entry.get("options") or {}).get("queue", app.conf.task_default_queue) for entry in entries}
    if queue in queues or (entries and app.conf.task_routes):  # where routes lead is not looked at
        return []
    found = f"sends sweeps to the queue {queues.pop()!r}, not to {queue!r}" if entries else "does not sweep"
    options = f'"options": {{"queue": "{queue}"}}'
    return [
        Warning(
            f"Celery's beat_schedule {found}: a run whose worker died waits until somebody looks.",
            hint=f'CELERY_BEAT_SCHEDULE = {{"adk": {{"task": "{SWEEP}", "schedule": 10, {options}}}}}, or run '
            f"python manage.py adk_sweep --loop 10 and silence this check.",
            id="adk_django.W013",
        )
    ]


def _limits(settings: conf.Settings) -> Iterator[CheckMessage]:
    limit, tools = limit_of(tasks.resume_run), settings.tools
    longest = max(
        (tool.time_limit_seconds or tools.time_limit_seconds for agent in agents.registered() for tool in agent.tools),
        default=tools.time_limit_seconds,
    )
    if limit is not None and limit * (1 - PART) < longest + tools.grace_seconds:
        enough = round((longest + tools.grace_seconds) / (1 - PART))
        yield Warning(
            f"A task may take {limit:g} seconds before Celery ends it or the broker delivers it again. A slice begins "
            f"no call after {PART * limit:g} of them, and a call may take {longest + tools.grace_seconds:g}.",
            hint=f"Raise CELERY_TASK_TIME_LIMIT and CELERY_BROKER_TRANSPORT_OPTIONS['visibility_timeout'] to {enough}, "
            f"or lower the time limits of the tools.",
            id="adk_django.W011",
        )


def _acknowledged() -> Iterator[CheckMessage]:
    annotations = wakeups.product_app().conf.task_annotations
    for name in (wakeups.TASK, "*") if isinstance(annotations, dict) else ():
        if annotations.get(name, {}).get("acks_late") is False:
            yield Warning(
                f"CELERY_TASK_ANNOTATIONS[{name!r}] has acks_late off: a wake-up is gone when its worker dies, and its "
                f"run waits for a sweep.",
                hint=f'CELERY_TASK_ANNOTATIONS = {{"{wakeups.TASK}": {{"acks_late": True}}}}',
                id="adk_django.W012",
            )
