"""What people say of runs: approvals, settlements, cancels, releases. Each is written once and wakes the run.

Everything here writes a row, joins the caller's transaction and drives nothing; a holder turns it into progress. Only
`apply_requests`, for callers without a transaction, takes the lease. `adk_django.runs` is the door to all of it.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from django.db import transaction

from adk_django.agents import get_agent
from adk_django.concurrency import sync_only, twin_of
from adk_django.conf import get_settings
from adk_django.core.effects import Claim, Outcome, OutcomeKind, Slot, arguments_digest
from adk_django.core.ids import require_ids
from adk_django.core.masking.redactor import contains_mask
from adk_django.core.observations import Reply
from adk_django.core.record import Answer, Approval, RunRecord
from adk_django.exceptions import (
    ApprovalError,
    CallNotFoundError,
    CheckpointNotFoundError,
    RequestNotFoundError,
    SettlementError,
)
from adk_django.execution import admission
from adk_django.execution.revisions import agent_of
from adk_django.execution.runner import AgentRunner
from adk_django.operations.inspection import inspection
from adk_django.operations.wakeups import wake
from adk_django.stores.bundle import Stores
from adk_django.tools import ArgumentsRefusedError

ANSWERS: Mapping[str, Answer] = {
    "completed": Answer.DONE,
    "never_ran": Answer.NOT_DONE,
    "never-ran": Answer.NOT_DONE,
}


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
    require_ids(tenant=tenant, request_id=request_id)
    runner = AgentRunner(using=using)
    request = runner.stores.runs.request(request_id, tenant=tenant)
    if request is None:
        raise RequestNotFoundError(f"there is no request {request_id} of tenant {tenant}")
    edited, digest = None, None
    if arguments is not None:
        if not grant:
            raise ApprovalError("a denial takes no arguments: grant with them, or deny without")
        tool = get_agent(runner.stored(request.run_id, tenant=tenant).agent).by_name.get(request.tool)
        if tool is None:
            raise ApprovalError(f"there is no tool {request.tool} any more: grant as asked, or deny")
        try:
            edited = tool.normalised(arguments)
        except ArgumentsRefusedError as error:
            raise ApprovalError(f"the arguments do not fit tool {request.tool}: {error}") from error
        if contains_mask(edited):
            raise ApprovalError(f"an argument of call {request.slot} holds a mask: give its value, or grant as asked")
        digest = arguments_digest(edited)
    decided = runner.stores.runs.decide(
        request_id, tenant=tenant, grant=grant, by=by, reason=reason, edited=edited, digest=digest
    )
    wake(runner.stores, tenant, decided.run_id)
    return decided


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
    attempt: int | None = None,
    using: str | None = None,
) -> Claim:
    """Answer, once and on the record, whether an indeterminate call happened; the run is woken.

    ``answer`` is "completed", with the ``outcome`` the model is told, or "never_ran". Raise SettlementError if the call
    is not in doubt, was answered otherwise, may still happen (never_ran before its deadline, naming the instant), or is
    no longer at ``attempt``, the one that the person looked at; CheckpointNotFoundError if there is no such run;
    ValueError for another answer or a ``call`` that is no slot.
    """
    if answer not in ANSWERS:
        raise ValueError(f"answer {answer!r}: expected 'completed' or 'never_ran'")
    slot = call if isinstance(call, Slot) else Slot.parse(call)
    runner = AgentRunner(using=using)
    runner.stored(run_id, tenant=tenant)
    told: Outcome | None = None
    if ANSWERS[answer] is Answer.DONE:
        value = "completed; what it returned is not known" if outcome is None else outcome
        told = Outcome.of(OutcomeKind.RETURNED, runner.checkpointer.mask(value))
    claim = runner.stores.idempotency.settle(
        run_id,
        slot,
        tenant=tenant,
        answer=ANSWERS[answer],
        outcome=told,
        by=by,
        reason=runner.checkpointer.mask(reason),
        attempt=attempt,
    )
    wake(runner.stores, tenant, run_id)
    return claim


@sync_only
def probe(
    run_id: str, call: str | Slot, *, tenant: str, by: str, reason: str = "", using: str | None = None
) -> tuple[Reply, Claim]:
    """Ask the call's own probe on a person's request, and settle the call by what it says; return both.

    A probe that says ``unknown``, or ``not_done`` before the deadline, settles nothing. Raise SettlementError if the
    call is not in doubt, its tool has no probe, or another attempt began while it was asked.
    """
    slot = call if isinstance(call, Slot) else Slot.parse(call)
    runner = AgentRunner(using=using)
    record = runner.stored(run_id, tenant=tenant)
    agent = agent_of(record)
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
        attempt=doubted.claim.attempt,
    )
    wake(runner.stores, tenant, run_id)
    return reply, claim


@sync_only
def cancel(run_id: str, *, tenant: str, by: str, reason: str, using: str | None = None) -> RunRecord:
    """Ask that a run be cancelled, and wake it; return its row. What is in flight keeps its claim and can still be
    settled.

    The next slice ends it before any model or tool call. Raise CheckpointNotFoundError if there is no such run.
    """
    require_ids(tenant=tenant, run_id=run_id)
    stores = AgentRunner(using=using).stores
    record = stores.runs.request_cancel(run_id, tenant=tenant, by=by, reason=reason)
    if record is None:
        raise CheckpointNotFoundError(f"there is no run {run_id} of tenant {tenant}")
    wake(stores, tenant, run_id)
    return record


@sync_only
def release(
    run_id: str, *, tenant: str, by: str, reason: str, lease: bool = False, using: str | None = None
) -> RunRecord:
    """Ask that a quarantined run be given one more round, and wake it; return its row.

    ``lease`` takes the lease away from whoever holds the run, too: for a holder that will never lapse. What that one
    still does can only be evidence. Raise CheckpointNotFoundError if there is no such run.
    """
    require_ids(tenant=tenant, run_id=run_id)
    runner = AgentRunner(using=using)
    stores, alias = runner.stores, getattr(runner.stores.runs, "alias", None)
    with contextlib.nullcontext() if alias is None else transaction.atomic(using=alias):
        # The lease's row before the run's, as every commit takes them.
        taken = stores.leases.revoke(run_id, tenant=tenant, by=by) if lease else None
        if lease and taken is None:
            _catch_up(stores, run_id, tenant)
        record = stores.runs.request_release(run_id, tenant=tenant, by=by, reason=reason)
        if record is None:
            raise CheckpointNotFoundError(f"there is no run {run_id} of tenant {tenant}")
        if taken is not None:
            detail = f"fence {taken.fence}"
            stores.runs.tell(run_id, tenant=tenant, kind="lease_revoked", by=by, reason=reason, detail=detail)
            record = stores.runs.wake(run_id, tenant=tenant) or record
        wake(stores, tenant, run_id)
    return record


def _catch_up(stores: Stores, run_id: str, tenant: str) -> None:
    """Let a lease store that forgot the run's fence go on above it."""
    stamp, record = getattr(stores.leases, "stamp", None), stores.runs.get(run_id, tenant=tenant)
    if stamp is not None and record is not None:
        stamp(tenant, run_id, record.fence)


@sync_only
def apply_requests(run_id: str, *, tenant: str, worker: str | None = None, using: str | None = None) -> RunRecord:
    """Do at once, under its lease, what was asked of a run: end a cancelled one, free a released one; return its row.

    Where nothing was asked, or a worker did it already, nothing is done. Needs neither agent nor provider. Raise
    ResumeConflictError if a worker holds the run: that worker does it.
    """
    runner = AgentRunner(using=using)
    record = runner.stored(run_id, tenant=tenant)
    runner.stores.refuse_transaction()
    if not admission.asked(record):
        return record
    with runner.hold(run_id, tenant=tenant, worker=worker, floor=record.fence) as holder:
        record = runner.stored(run_id, tenant=tenant)  # again, under the lease: a worker may have been first
        if admission.asked(record):
            record = admission.carry_out(runner.stores, holder.lease, record)
    if not record.status.ended:
        wake(runner.stores, tenant, run_id)
    return runner.stored(run_id, tenant=tenant)


adecide = twin_of(decide)
asettle = twin_of(settle)
aprobe = twin_of(probe)
acancel = twin_of(cancel)
arelease = twin_of(release)
aapply_requests = twin_of(apply_requests)
