"""The one door for views, tasks, commands and the admin.

Here are `start`, `resume`, `sweep`, `inspect` and `list_runs`; what people say of runs (`decide`, `settle`, `cancel`,
`release`, ...) comes from `adk_django.answers`. What only writes a row and asks for a wake-up joins the caller's
transaction. What drives a run refuses one. Every function takes ``using``, the alias of the run's database.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from adk_django.agents import Agent, get_agent
from adk_django.concurrency import in_pool, sync_only, twin_of
from adk_django.conf import get_settings
from adk_django.core.decide import Probe
from adk_django.core.ids import require_ids
from adk_django.core.messages import Message
from adk_django.core.record import RunRecord, RunStatus
from adk_django.exceptions import ResumeError, RunConflictError
from adk_django.execution.new_run import new_record
from adk_django.execution.ports import Watch
from adk_django.execution.runner import AgentRunner, RunResult, result_of
from adk_django.operations import display, wakeups
from adk_django.operations.decisions import (
    aapply_requests,
    acancel,
    adecide,
    apply_requests,
    aprobe,
    arelease,
    asettle,
    cancel,
    decide,
    probe,
    release,
    settle,
)
from adk_django.operations.inspection import Inspection, inspection, moves
from adk_django.operations.planning import refuse_resume
from adk_django.operations.sweeping import Swept, aprune, asweep, carry_on, prune, sweep

__all__ = [
    "StartedRun",
    "Swept",
    "acancel",
    "adecide",
    "aapply_requests",
    "ainspect",
    "alist_runs",
    "amessages",
    "aprobe",
    "aprune",
    "arelease",
    "aresume",
    "asettle",
    "astandings",
    "astart",
    "asweep",
    "cancel",
    "carry_on",
    "decide",
    "apply_requests",
    "inspect",
    "list_runs",
    "messages",
    "probe",
    "prune",
    "release",
    "resume",
    "settle",
    "standings",
    "start",
    "sweep",
]


@dataclass(frozen=True)
class StartedRun:
    """The run under an id, and whether this call created it."""

    record: RunRecord
    created: bool

    @property
    def run_id(self) -> str:
        """The run's id."""
        return self.record.run_id

    @property
    def status(self) -> RunStatus:
        """The run's stored status."""
        return self.record.status

    @property
    def output(self) -> str | None:
        """The final answer's text, None until there is one."""
        return self.record.output


def _agent(agent: Agent | str) -> Agent:
    if not isinstance(agent, str):
        return agent
    require_ids(agent=agent)
    return get_agent(agent)


@sync_only
def start(
    agent: Agent | str,
    input: str,
    *,
    tenant: str,
    run_id: str | None = None,
    user: str | None = None,
    enqueue: bool = True,
    using: str | None = None,
) -> StartedRun:
    """Get or create the run under ``run_id`` (a new UUID where none is given). It is driven later, by a worker.

    Joins the caller's transaction. ``enqueue=False`` wakes no worker: for a caller that drives the run here and now.
    The same id, agent, user and input is the existing run, ended or not. Raise RunConflictError, naming the field, for
    anything else, and RunForgottenError for an id that was forgotten.
    """
    definition = _agent(agent)
    runner = AgentRunner(using=using)
    record, created = runner.create(definition, input, tenant=tenant, run_id=run_id, user=user, due=enqueue)
    if not created:
        mask = runner.checkpointer.mask
        asked = new_record(definition, input, tenant=tenant, run_id=record.run_id, user=user, mask=mask)
        for field in ("agent", "user", "input_digest"):
            if getattr(record, field) != getattr(asked, field):
                raise RunConflictError(record.run_id, field.removesuffix("_digest"))
    if enqueue and not record.status.ended and _is_due(runner, record):
        wakeups.wake(runner.stores, tenant, record.run_id)
    return StartedRun(record, created)


@sync_only
def resume(
    run_id: str,
    *,
    tenant: str,
    agent: Agent | str | None = None,
    worker: str | None = None,
    watch: Watch | None = None,
    accept_revision: str | None = None,
    accept_stale: bool = False,
    enqueue: bool = False,
    using: str | None = None,
) -> RunResult:
    """Take the lease and carry the run on to its next stop, here and now, as `AgentRunner.resume` does.

    ``agent`` defaults to the one registered under the run's name. ``enqueue`` hands the run to a worker in place of
    driving it here: it becomes due and a wake-up goes out; joins the caller's transaction. Raise
    CheckpointNotFoundError if there is no such run, AgentRevisionError if its agent is not registered here; ValueError
    for ``enqueue`` with what no wake-up carries.
    """
    runner = AgentRunner(using=using)
    if enqueue:
        if agent is not None or worker is not None or watch is not None or accept_revision or accept_stale:
            raise ValueError("enqueue=True takes the run alone: a worker carries it on with what it has")
        return _enqueue(runner, run_id, tenant)
    return runner.resume(
        None if agent is None else _agent(agent),
        run_id,
        tenant=tenant,
        worker=worker,
        watch=watch,
        accept_revision=accept_revision,
        accept_stale=accept_stale,
    )


def _is_due(runner: AgentRunner, record: RunRecord) -> bool:
    return record.wake_at is not None and record.wake_at <= runner.stores.runs.now()


def _enqueue(runner: AgentRunner, run_id: str, tenant: str) -> RunResult:
    record = runner.stored(run_id, tenant=tenant)
    if not record.status.ended:
        seen = inspection(runner.stores, record, runner.checkpointer, strict=get_settings().resume.strict)
        refuse_resume(seen, probes=True)
        if seen.first is not None and not (moves(seen.first) or isinstance(seen.first, Probe)):
            raise ResumeError(f"run {run_id} is {seen.standing}: {seen.reason}")
        record = runner.stores.runs.wake(run_id, tenant=tenant) or record
        wakeups.wake(runner.stores, tenant, run_id)
    return result_of(record, record.fence)


@sync_only
def inspect(run_id: str, *, tenant: str, using: str | None = None) -> Inspection | None:
    """Return all that is recorded of a run and what carrying it on would involve, or None. Writes nothing, asks no
    probe."""
    runner = AgentRunner(using=using)
    record = runner.find(run_id, tenant=tenant)
    if record is None:
        return None
    return inspection(runner.stores, record, runner.checkpointer, strict=get_settings().resume.strict)


@sync_only
def list_runs(
    *,
    tenant: str | None = None,
    status: RunStatus | str | None = None,
    agent: str | None = None,
    stuck: bool = False,
    limit: int = 100,
    before: RunRecord | None = None,
    using: str | None = None,
) -> Sequence[RunRecord]:
    """Return run rows, newest first; ``stuck`` are those that are not ended and that no live lease advances.

    A page ends after ``limit`` rows; the next begins ``before`` its last. Raise ValueError for an unknown status.
    """
    if status is not None and status not in set(RunStatus):
        raise ValueError(f"status {status!r}: expected one of {', '.join(RunStatus)}")
    wanted, given = None if status is None else RunStatus(status), {"tenant": tenant, "agent": agent}
    require_ids(**{field: text for field, text in given.items() if text is not None})
    runs = AgentRunner(using=using).stores.runs
    return runs.find(tenant=tenant, status=wanted, agent=agent, stuck=stuck, limit=limit, before=before)


@sync_only
def standings(records: Sequence[RunRecord], *, using: str | None = None) -> tuple[str, ...]:
    """Return where each run stands, as `Inspection.standing` does for one: its stored status, or, of one that moves or
    could, ``running``, ``interrupted`` (its worker died) or ``queued``."""
    return display.standings(AgentRunner(using=using).stores, records)


@sync_only
def messages(run_id: str, *, tenant: str, limit: int = 100, using: str | None = None) -> tuple[Message, ...]:
    """Return the newest messages of a run, oldest first and masked, for people to read.

    Raise CheckpointNotFoundError if there is no such run, and HistoryUnavailableError, CheckpointFormatError or
    CheckpointDamagedError if they cannot be read.
    """
    if limit < 1:
        raise ValueError(f"limit is {limit}: expected at least 1")
    runner = AgentRunner(using=using)
    return display.conversation(runner.stores, runner.stored(run_id, tenant=tenant), limit=limit)


async def aresume(run_id: str, *, tenant: str, agent: Agent | str | None = None, **options: Any) -> RunResult:
    """Async twin of `resume`: on the loop, so that async tools and providers share it."""
    using = options.pop("using", None)
    runner = await in_pool(AgentRunner, using=using)
    definition = None if agent is None else _agent(agent)
    return await runner.aresume(definition, run_id, tenant=tenant, **options)


astart = twin_of(start)
ainspect = twin_of(inspect)
alist_runs = twin_of(list_runs)
astandings = twin_of(standings)
amessages = twin_of(messages)
