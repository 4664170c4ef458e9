"""Planning and inspecting:

What is recorded and what carrying on would involve. Looking changes nothing and asks nobody.
"""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from adk_django.agents import get_agent, is_registered
from adk_django.asynchronous import sync_only, twin_of
from adk_django.checkpointer import Checkpointer
from adk_django.conf import get_settings
from adk_django.core import codec
from adk_django.core.checkpoint import Checkpoint
from adk_django.core.decide import AskModel, Commit, Decision, Dispatch, Probe, Transact, decide
from adk_django.core.lease import RunLease
from adk_django.core.messages import Usage
from adk_django.core.plan import ResumePlan, Resumption, ToolDisposition, plan
from adk_django.core.record import Approval, ApprovalState, RunRecord, RunStatus
from adk_django.exceptions import (
    AdkError,
    AgentRevisionError,
    IndeterminateToolCallError,
    ResumeConflictError,
    ResumeError,
    StaleFrontierError,
)
from adk_django.recorded import Recorded
from adk_django.resumer import not_registered, refuse_revision, setting_of
from adk_django.stores.base import IdempotencyStore
from adk_django.stores.bundle import Stores


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


@dataclass(frozen=True)
class Inspection:
    """All that is recorded of a run, at an instant ``now`` of its store.

    ``refusals`` are the errors that a resume would raise before it acts, the agent's first; the frontier is None
    where there is none or it cannot be read. ``probes`` names the tools that have one. ``first`` is what a slice would
    do first, None where it would be refused or has ended.
    """

    record: RunRecord
    checkpoint: Checkpoint | None
    plan: ResumePlan
    lease: RunLease | None
    approvals: tuple[Approval, ...]
    refusals: tuple[AdkError, ...]
    probes: frozenset[str]
    now: datetime
    first: Decision | None = None

    @property
    def live(self) -> bool:
        """Whether a worker holds the run."""
        return self.lease is not None and self.lease.held_at(self.now)

    @property
    def usage(self) -> Usage:
        """Tokens spent, by the ledger; by the frontier where the ledger has none."""
        if self.record.usage == Usage() and self.checkpoint is not None:
            return self.checkpoint.usage
        return self.record.usage

    @property
    def iterations(self) -> int:
        """Turns answered, by the ledger; by the frontier where the ledger has none."""
        return max(self.record.iterations, self.checkpoint.iterations if self.checkpoint else 0)

    @property
    def waiting_on(self) -> tuple[Approval, ...]:
        """The requests nobody has answered."""
        return tuple(item for item in self.approvals if item.state is ApprovalState.REQUESTED)

    @property
    def ready(self) -> bool:
        """Whether a slice would take a step, and not only later: whatever the row says was said before that."""
        later = self.record.wake_at is not None and self.record.wake_at > self.now
        put_off = later and self.record.status is RunStatus.ACTIVE and bool(self.record.reason)
        return self.first is not None and moves(self.first) and not put_off

    @property
    def standing(self) -> str:
        """Where the run stands: its stored status; or, of one that moves or could, what its lease says of it."""
        stands_still = self.record.status is not RunStatus.ACTIVE and not self.ready
        if stands_still or self.record.status is RunStatus.QUARANTINED:
            return self.record.status.value
        if self.lease is None:
            return "queued"
        return "running" if self.live else "interrupted"

    @property
    def reason(self) -> str:
        """Why the run is not moving, in one line; empty where it moves or has ended without one."""
        if self.record.status.ended or self.live:
            return self.record.reason if self.record.status.ended else ""
        if self.refusals:
            return str(self.refusals[0])
        if self.plan.reasons:
            return self.plan.reasons[0]
        if self.record.reason and not self.ready:
            return self.record.reason
        return "its worker died" if self.standing == "interrupted" else "no worker has taken it up"

    @property
    def next_step(self) -> str:
        """The command that moves the run; empty where it has ended or a worker moves it."""
        run_id, tenant = shlex.quote(self.record.run_id), shlex.quote(self.record.tenant)
        run, status = f"{run_id} --tenant {tenant}", self.record.status
        if status.ended or self.live:
            return ""
        if status is RunStatus.QUARANTINED and self.record.release_requested_at is None:
            return f"adk_release {run} --reason TEXT"
        if self.refusals:
            return _after_refusal(self.refusals[0], run)
        if doubted := self.plan.indeterminate:
            call = doubted[0].call
            how = "--probe" if call.tool in self.probes else "--as completed|never-ran"
            return f"adk_settle {run_id} {call.slot} --tenant {tenant} {how} --reason TEXT"
        if self.waiting_on and not self.ready:
            request = self.waiting_on[0].request_id
            return f"adk_decide {request} --tenant {tenant} --grant|--deny --reason TEXT"
        return f"adk_resume {run}"

    def approval_of(self, item: Resumption) -> Approval | None:
        """Return the request that was made for a call, if any was."""
        return next((request for request in self.approvals if request.slot == item.call.slot), None)


def _after_refusal(error: AdkError, run: str) -> str:
    match error:
        case AgentRevisionError(found=str(found)):
            return f"adk_resume {run} --accept-revision {found}"
        case AgentRevisionError():
            return "a worker that has this agent"
        case _ if error.code == "stale-frontier":
            return f"adk_resume {run} --accept-stale"
        case _ if error.code == "checkpoint-format":
            return "a worker on the newer version"
    return f"adk_cancel {run} --reason TEXT"


def inspection(stores: Stores, record: RunRecord, checkpointer: Checkpointer, *, strict: bool) -> Inspection:
    """Read all that is recorded of ``record``'s run. Writes nothing."""
    recorded = Recorded(stores, record, checkpointer, strict=strict)
    refusals: list[AdkError] = list(recorded.refusals)
    agent = get_agent(record.agent) if is_registered(record.agent) else None
    if agent is None and not record.status.ended:
        refusals.insert(0, not_registered(record))
    try:
        refuse_revision(record, agent)
    except AgentRevisionError as error:
        refusals.insert(0, error)
    now, first = stores.runs.now(), None
    if agent is not None and not refusals and not record.status.ended:
        next_lease = RunLease(record.tenant, record.run_id, "", "", record.fence + 1, now, now)
        first = decide(recorded.state(next_lease, setting_of(agent, next_lease, checkpointer)))
    return Inspection(
        record=record,
        checkpoint=recorded.checkpoint,
        plan=replace(recorded.plan, obstacles=tuple(str(error) for error in refusals)),
        lease=stores.leases.held(record.run_id, tenant=record.tenant),
        approvals=tuple(recorded.approvals.values()),
        refusals=tuple(refusals),
        probes=frozenset(tool.name for tool in agent.tools if tool.probe is not None) if agent else frozenset(),
        now=now,
        first=first,
    )


def moves(decision: Decision) -> bool:
    """Return whether a slice that does this takes a step: a probe alone, or saying why it stops, is none."""
    match decision:
        case AskModel() | Dispatch() | Transact():
            return True
        case Commit(writes):
            facts = writes.claims or writes.outcomes or writes.settlements
            return bool(facts or writes.frontier or writes.ends)
    return False


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
            yield f"  arguments {codec.encode(item.call.arguments)[:ARGUMENTS_CHARACTERS]}"
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
        facts.append(f"deadline {_at(claim.deadline_at)}")
        facts += [f"error {claim.error}"] if claim.error else []
        facts += ["probe available"] if item.call.tool in seen.probes and not claim.contested else []
    if claim.contested:
        facts.append("its late outcome contradicts how it was settled")
    if claim.evidence is not None:
        facts.append(f"evidence of {_at(claim.evidence_at)}")
    if claim.settled_by:
        facts.append(f"settled by {claim.settled_by}: {claim.reason}")
    return ", ".join(facts)


ARGUMENTS_CHARACTERS = 2_000


def _at(instant: datetime | None) -> str:
    return "an unknown instant" if instant is None else instant.isoformat(timespec="seconds")
