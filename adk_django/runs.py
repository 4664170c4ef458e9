"""The one door for views, tasks, commands and the admin: start, resume, inspect, list, decide, settle, cancel.

What only writes a row and asks for a wake-up (`start`, `decide`, `settle`, `cancel`) joins the caller's transaction.
What drives a run (`resume`) refuses one. Every function takes ``using``, the alias of the run's database.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from adk_django.agents import Agent, get_agent, is_registered
from adk_django.asynchronous import in_pool, sync_only, twin_of
from adk_django.conf import get_settings
from adk_django.core.effects import Claim, Outcome, OutcomeKind, Slot, arguments_digest
from adk_django.core.record import Answer, Approval, RunRecord, RunStatus, Writes
from adk_django.core.redaction import contains_mask
from adk_django.core.seen import Reply
from adk_django.exceptions import (
    ApprovalError,
    CallNotFoundError,
    CheckpointNotFoundError,
    ConfigurationError,
    RequestNotFoundError,
    RunConflictError,
    SettlementError,
)
from adk_django.planning import Inspection, inspection
from adk_django.ports import Watch
from adk_django.resumer import Resumer, not_registered
from adk_django.runner import AgentRunner, RunResult, this_worker
from adk_django.tools import ArgumentsRefusedError

ANSWERS: Mapping[str, Answer] = {
    "completed": Answer.DONE,
    "never_ran": Answer.NOT_DONE,
    "never-ran": Answer.NOT_DONE,
}


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
    return get_agent(agent) if isinstance(agent, str) else agent


@sync_only
def start(
    agent: Agent | str,
    input: str,
    *,
    tenant: str,
    run_id: str | None = None,
    user: str | None = None,
    using: str | None = None,
) -> StartedRun:
    """Get or create the run under ``run_id`` (a new UUID where none is given). It is driven later, by a worker.

    Joins the caller's transaction. The same id, agent, user and input is the existing run, ended or not. Raise
    RunConflictError, naming the field, for anything else, and RunForgottenError for an id that was forgotten.
    """
    definition = _agent(agent)
    runner = AgentRunner(using=using)
    record, created = runner.create(definition, input, tenant=tenant, run_id=run_id, user=user, due=True)
    if not created:
        asked = runner.record_of(definition, input, tenant=tenant, run_id=record.run_id, user=user)
        for field in ("agent", "user", "input_digest"):
            if getattr(record, field) != getattr(asked, field):
                raise RunConflictError(record.run_id, field.removesuffix("_digest"))
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
    using: str | None = None,
) -> RunResult:
    """Take the lease and carry the run on to its next stop, here and now, as `AgentRunner.resume` does.

    ``agent`` defaults to the one registered under the run's name. Raise CheckpointNotFoundError if there is no such
    run, AgentRevisionError if its agent is not registered here.
    """
    runner = AgentRunner(using=using)
    if agent is None:
        agent = _agent_of(_record(runner, run_id, tenant))
    return runner.resume(
        _agent(agent),
        run_id,
        tenant=tenant,
        worker=worker,
        watch=watch,
        accept_revision=accept_revision,
        accept_stale=accept_stale,
    )


def _agent_of(record: RunRecord) -> Agent:
    if not is_registered(record.agent):
        raise not_registered(record)
    return get_agent(record.agent)


def _record(runner: AgentRunner, run_id: str, tenant: str) -> RunRecord:
    record = runner.stores.runs.get(run_id, tenant=tenant)
    if record is None:
        raise CheckpointNotFoundError(f"there is no run {run_id} of tenant {tenant}")
    return record


@sync_only
def inspect(run_id: str, *, tenant: str, using: str | None = None) -> Inspection | None:
    """Return all that is recorded of a run and what carrying it on would involve, or None. Writes nothing, asks no
    probe."""
    runner = AgentRunner(using=using)
    record = runner.stores.runs.get(run_id, tenant=tenant)
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
    wanted = None if status is None else RunStatus(status)
    runs = AgentRunner(using=using).stores.runs
    return runs.find(tenant=tenant, status=wanted, agent=agent, stuck=stuck, limit=limit, before=before)


@sync_only
def decide(
    request_id: str,
    *,
    tenant: str,
    grant: bool,
    by: str,
    reason: str = "",
    arguments: Mapping[str, Any] | None = None,
    using: str | None = None,
) -> Approval:
    """Answer a request for approval, once; the run is woken. ``arguments`` are the approver's own, granted in place
    of those shown.

    The same answer again is a quiet success. Raise ApprovalConflictError for another one, ApprovalExpiredError for a
    late one, ApprovalError for an unknown request or arguments that do not fit the tool.
    """
    runner = AgentRunner(using=using)
    request = runner.stores.runs.request(request_id, tenant=tenant)
    if request is None:
        raise RequestNotFoundError(f"there is no request {request_id} of tenant {tenant}")
    edited, digest = None, None
    if arguments is not None:
        if not grant:
            raise ApprovalError("a denial takes no arguments: grant with them, or deny without")
        tool = get_agent(_record(runner, request.run_id, tenant).agent).by_name[request.tool]
        try:
            edited = tool.normalised(arguments)
        except ArgumentsRefusedError as error:
            raise ApprovalError(f"the arguments do not fit tool {request.tool}: {error}") from error
        if contains_mask(edited):
            raise ApprovalError(f"an argument of call {request.slot} holds a mask: give its value, or grant as asked")
        digest = arguments_digest(edited)
    return runner.stores.runs.decide(
        request_id, tenant=tenant, grant=grant, by=by, reason=reason, edited=edited, digest=digest
    )


@sync_only
def settle(
    run_id: str,
    call: str | Slot,
    *,
    tenant: str,
    answer: str,
    outcome: Any = None,
    by: str,
    reason: str,
    using: str | None = None,
) -> Claim:
    """Answer, once and on the record, whether an indeterminate call happened; the run is woken.

    ``answer`` is "completed", with the ``outcome`` the model is told, or "never_ran". Raise SettlementError if the call
    is not in doubt, was answered otherwise, or may still happen (never_ran before its deadline, naming the instant);
    CheckpointNotFoundError if there is no such run; ValueError for another answer or a ``call`` that is no slot.
    """
    if answer not in ANSWERS:
        raise ValueError(f"answer {answer!r}: expected 'completed' or 'never_ran'")
    slot = call if isinstance(call, Slot) else Slot.parse(call)
    runner = AgentRunner(using=using)
    _record(runner, run_id, tenant)
    told: Outcome | None = None
    if ANSWERS[answer] is Answer.DONE:
        value = "completed; what it returned is not known" if outcome is None else outcome
        told = Outcome.of(OutcomeKind.RETURNED, runner.checkpointer.mask(value))
    return runner.stores.idempotency.settle(
        run_id,
        slot,
        tenant=tenant,
        answer=ANSWERS[answer],
        outcome=told,
        by=by,
        reason=runner.checkpointer.mask(reason),
    )


@sync_only
def probe(
    run_id: str, call: str | Slot, *, tenant: str, by: str, reason: str = "", using: str | None = None
) -> tuple[Reply, Claim]:
    """Ask the call's own probe on a person's request, and settle the call by what it says; return both.

    A probe that says ``unknown``, or ``not_done`` before the deadline, settles nothing. Raise SettlementError if the
    call is not in doubt or its tool has no probe.
    """
    slot = call if isinstance(call, Slot) else Slot.parse(call)
    runner = AgentRunner(using=using)
    record = _record(runner, run_id, tenant)
    agent = get_agent(record.agent)
    seen = inspection(runner.stores, record, runner.checkpointer, strict=get_settings().resume.strict)
    doubted = next((item for item in seen.plan.indeterminate if item.call.slot == slot), None)
    if doubted is None or doubted.claim is None:
        claims = runner.stores.idempotency.look_up(run_id, tenant=tenant)
        if all(item.call.slot != slot for item in seen.plan.resumptions) and all(c.slot != slot for c in claims):
            raise CallNotFoundError(f"run {run_id} has no call {slot} on record")
        raise SettlementError(f"call {slot} of run {run_id} is not in doubt: adk_inspect {run_id} --tenant {tenant}")
    tool = agent.by_name.get(doubted.call.tool)
    if tool is None or tool.probe is None:
        raise SettlementError(f"tool {doubted.call.tool} has no probe: settle call {slot} with --as")
    reply = runner.ask(agent, record, doubted.call, doubted.claim)
    if reply.answer is Answer.UNKNOWN or (reply.answer is Answer.NOT_DONE and reply.early):
        return reply, doubted.claim
    mask = runner.checkpointer.mask
    said = f"the probe of {tool.name} said {reply.answer.value}"
    claim = runner.stores.idempotency.settle(
        run_id,
        slot,
        tenant=tenant,
        answer=reply.answer,
        outcome=None if reply.outcome is None else replace(reply.outcome, value=mask(reply.outcome.value)),
        by=by,
        reason=f"{said}: {reason}" if reason else said,
    )
    return reply, claim


@sync_only
def cancel(run_id: str, *, tenant: str, by: str, reason: str, using: str | None = None) -> RunRecord:
    """Ask that a run be cancelled, and wake it; return its row. What is in flight keeps its claim and can still be
    settled.

    The next slice ends it before any model or tool call. Raise CheckpointNotFoundError if there is no such run.
    """
    record = AgentRunner(using=using).stores.runs.request_cancel(run_id, tenant=tenant, by=by, reason=reason)
    if record is None:
        raise CheckpointNotFoundError(f"there is no run {run_id} of tenant {tenant}")
    return record


@sync_only
def end_cancelled(run_id: str, *, tenant: str, worker: str | None = None, using: str | None = None) -> RunRecord:
    """End a run whose cancel was requested, at once, under its lease; return its row.

    Needs neither agent nor provider. Raise ResumeConflictError if a worker holds the run: that worker ends it.
    """
    runner = AgentRunner(using=using)
    record = _record(runner, run_id, tenant)
    if record.status.ended:
        return record
    if record.cancel_requested_at is None:
        raise ConfigurationError(f"no cancel of run {run_id} was requested: runs.cancel asks for it")
    carried = Resumer(
        checkpoints=runner.checkpointer,
        leases=runner.stores.leases,
        history=runner.stores.history,
        idempotency=runner.stores.idempotency,
    ).hold(run_id, tenant=tenant, worker=worker or this_worker(), floor=record.fence)
    with carried as holder:
        by = f" by {record.cancel_requested_by}" if record.cancel_requested_by else ""
        reason = f"cancelled{by}: {record.cancel_reason}".removesuffix(": ")
        runner.stores.commit(Writes(status=RunStatus.CANCELLED, reason=reason), lease=holder.lease)
    return _record(runner, run_id, tenant)


async def aresume(run_id: str, *, tenant: str, agent: Agent | str | None = None, **options: Any) -> RunResult:
    """Async twin of `resume`: on the loop, so that async tools and providers share it."""
    using = options.pop("using", None)
    runner = await in_pool(AgentRunner, using=using)
    if agent is None:
        agent = _agent_of(await in_pool(_record, runner, run_id, tenant))
    return await runner.aresume(_agent(agent), run_id, tenant=tenant, **options)


astart = twin_of(start)
ainspect = twin_of(inspect)
alist_runs = twin_of(list_runs)
adecide = twin_of(decide)
asettle = twin_of(settle)
aprobe = twin_of(probe)
acancel = twin_of(cancel)
aend_cancelled = twin_of(end_cancelled)
