"""Planning: what carrying a run on would involve, and the summary that says so. Looking changes nothing and asks
nobody."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any

from adk_django.agents import get_agent, is_registered
from adk_django.concurrency import sync_only, twin_of
from adk_django.conf import get_settings
from adk_django.core import codec
from adk_django.core.checkpoint import Checkpoint
from adk_django.core.decide import Probe
from adk_django.core.effects import Claim
from adk_django.core.plan import ResumePlan, Resumption, ToolDisposition, plan
from adk_django.core.record import ApprovalState, RunStatus
from adk_django.exceptions import (
    AgentRevisionError,
    IndeterminateToolCallError,
    ResumeConflictError,
    ResumeError,
    StaleFrontierError,
)
from adk_django.execution.revisions import refuse_revision
from adk_django.operations.display import masked
from adk_django.operations.inspection import Inspection
from adk_django.stores.base import IdempotencyStore


@sync_only
def plan_resume(checkpoint: Checkpoint, idempotency: IdempotencyStore, *, strict: bool = False) -> ResumePlan:
    """Return the disposition of every outstanding call of ``checkpoint``. Decides; does not act.

    Every call is looked up, whatever mark it carries. Records of calls beyond the frontier's turn make the plan
    unsafe.
    """
    claims = idempotency.look_up(checkpoint.run_id, tenant=checkpoint.tenant)
    beyond = sorted(claim.slot for claim in claims if claim.slot.turn > checkpoint.turn)
    obstacles = tuple(f"call {slot} is beyond the frontier: the run has passed it" for slot in beyond)
    found = {claim.slot: claim for claim in claims}
    calls = tuple(replace(call, doubted=call.doubted and call.slot not in found) for call in checkpoint.pending)
    return plan(calls, found, strict=strict, obstacles=obstacles)


aplan_resume = twin_of(plan_resume)


def refuse_if_undecidable(plan: ResumePlan) -> None:
    """Raise IndeterminateToolCallError, naming every call, if nobody can say whether one of them happened."""
    if plan.indeterminate:
        raise IndeterminateToolCallError(plan.indeterminate)


def refuse_resume(
    seen: Inspection, *, accept_revision: str | None = None, accept_stale: bool = False, probes: bool = False
) -> None:
    """Raise what a resume of the run as it is ``seen`` would raise. Changes nothing and asks nobody.

    A call that only its probe could answer is refused, unless ``probes`` says that it will be asked.
    """
    record, lease = seen.record, seen.lease
    if is_registered(record.agent):
        refuse_revision(record, get_agent(record.agent), accept_revision)
    if lease is not None and seen.live:
        raise ResumeConflictError(run_id=record.run_id, holder=lease.holder, until=lease.expires_at, fence=lease.fence)
    if record.cancel_requested_at is not None:
        return  # it would be ended, whatever else there is
    deaths = 0 if lease is None else lease.deaths + 1
    if record.release_requested_at is not None:
        pass  # it would be freed first
    elif record.status is RunStatus.QUARANTINED or deaths >= get_settings().resume.max_deaths:
        raise ResumeError(f"run {record.run_id} is quarantined: {record.reason or f'its worker died {deaths} times'}")
    for error in seen.refusals:
        revised = accept_revision is not None and isinstance(error, AgentRevisionError) and error.found is not None
        if not (revised or (accept_stale and isinstance(error, StaleFrontierError))):
            raise error
    if not (probes and isinstance(seen.first, Probe)):
        refuse_if_undecidable(seen.plan)


def describe(seen: Inspection) -> str:
    """Return the summary that commands and the admin show: three lines that scripts read, then one fact a line."""
    return "\n".join(printable(line) for line in _lines(seen))


def printable(text: str) -> str:
    """Return ``text`` on one line, with whatever a terminal would act on shown as an escape."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _lines(seen: Inspection) -> Iterator[str]:
    record, frontier = seen.record, seen.checkpoint
    waiting = ", ".join(item.request_id for item in seen.waiting_on)
    yield f"run {record.run_id}  tenant {record.tenant}  agent {record.agent}"
    tokens = f"{seen.usage.input_tokens} in, {seen.usage.output_tokens} out"
    yield f"iteration {seen.iterations}  {tokens}  {record.cost_micros} micros"
    yield f"waiting on approval {waiting}" if waiting else "waiting on nothing"
    yield f"status {seen.standing}" + (f": {seen.reason}" if seen.reason else "")
    if seen.next_step:
        yield f"next {seen.next_step}"
    if frontier is not None:
        age = f", {(seen.now - frontier.created_at).total_seconds():.0f} seconds old" if frontier.created_at else ""
        yield f"boundary {frontier.boundary} of turn {frontier.turn}{age}"
    if seen.lease is None:
        yield "lease free"
    else:
        state = "held" if seen.live else "lapsed"
        until = seen.lease.expires_at.isoformat()
        yield f"lease {state} by {seen.lease.holder}, fence {seen.lease.fence}, until {until}"
    for item in seen.plan.resumptions:
        yield f"call {item.call.slot} {item.call.tool}: {disposition(item, seen)}"
        if item.call.held or item.disposition is ToolDisposition.INDETERMINATE:  # what a person is to judge
            yield f"  arguments {codec.encode(masked(item.call.arguments))[:ARGUMENTS_CHARACTERS]}"
    if record.status.ended:
        yield from _made(seen)
    if seen.usage.unknown_calls:
        yield f"{seen.usage.unknown_calls} model calls of unknown cost"
    yield f"format {frontier.format_version if frontier else '-'}  revision {record.revision or 'not pinned'}"
    if record.release_requested_at is not None and not record.status.ended:
        yield "release requested"
    if record.cancel_requested_at is not None and not record.status.ended:
        yield f"cancel requested by {record.cancel_requested_by}: {record.cancel_reason}"
    yield f"last failed save: {record.failed_save or 'none'}"
    if record.output is not None:
        yield f"output {record.output}"


def _made(seen: Inspection) -> Iterator[str]:
    """Yield what an ended run did: a line for each of its newest calls."""
    if len(seen.claims) > CALLS:
        yield f"calls {len(seen.claims)}, of which the last {CALLS} are shown"
    for claim in seen.claims[-CALLS:]:
        facts: list[Any] = [claim.state.value]
        if claim.outcome is not None:
            facts.append(f"{claim.outcome.kind} {codec.encode(masked(claim.outcome.value))[:ARGUMENTS_CHARACTERS]}")
        facts += [f"error {claim.error}"] if claim.error else []
        facts += [f"attempt {claim.attempt}"] if claim.attempt > 1 else []
        yield f"call {claim.slot} {claim.tool}: {', '.join([*facts, *_answers(claim)])}"


def _answers(claim: Claim) -> Iterator[str]:
    """Yield what was said of a call besides its outcome."""
    if claim.contested:
        yield "its late outcome contradicts how it was settled"
    if claim.evidence is not None:
        yield f"evidence of {_at(claim.evidence_at)}"
    if claim.settled_by:
        yield f"settled by {claim.settled_by}: {claim.reason}"


def disposition(item: Resumption, seen: Inspection) -> str:
    """Return one call's disposition with its evidence, in one line."""
    claim, request = item.claim, seen.approval_of(item)
    facts: list[Any] = [item.disposition.value]
    if item.call.held and (request is None or request.state is ApprovalState.REQUESTED):
        facts.append("held for approval")
    elif request is not None:
        why = f": {request.reason}" if request.reason else ""
        changed = ", with other arguments" if request.edited is not None else ""
        facts.append(f"{request.state} by {request.decided_by or 'nobody'}{changed}{why}")
    if claim is None:
        return ", ".join(facts)
    if item.twin_of is not None:
        facts.append(f"twin of call {item.twin_of}")
    if item.disposition is ToolDisposition.INDETERMINATE:
        facts.append(f"in flight since {_at(claim.begun_at)} by {claim.holder or 'unknown'}, attempt {claim.attempt}")
        facts += [f"key {claim.key}", f"deadline {_at(claim.deadline_at)}"]
        facts += [f"error {claim.error}"] if claim.error else []
        facts += ["probe available"] if item.call.tool in seen.probes and not claim.contested else []
    return ", ".join([*facts, *_answers(claim)])


ARGUMENTS_CHARACTERS = 2_000
CALLS = 100  # shown of a run that has ended, the newest


def _at(instant: datetime | None) -> str:
    return "an unknown instant" if instant is None else instant.isoformat(timespec="seconds")
