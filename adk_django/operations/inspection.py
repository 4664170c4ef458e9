"""Inspecting: all that is recorded of a run, why it stands where it does, and what moves it. Changes nothing."""

import shlex
from dataclasses import dataclass, replace
from datetime import datetime

from adk_django.agents import get_agent, is_registered
from adk_django.core.checkpoint import Checkpoint
from adk_django.core.decide import AskModel, Commit, Decision, Dispatch, Transact, decide, over_budget
from adk_django.core.effects import Claim
from adk_django.core.lease import RunLease
from adk_django.core.messages import Usage
from adk_django.core.plan import ResumePlan, Resumption
from adk_django.core.record import Approval, ApprovalState, RunRecord, RunStatus
from adk_django.exceptions import (
    AdkError,
    AgentRevisionError,
    BudgetExceededError,
)
from adk_django.execution.checkpointer import Checkpointer
from adk_django.execution.revisions import not_registered, refuse_revision
from adk_django.execution.stored_run import StoredRun
from adk_django.stores.bundle import Stores


@dataclass(frozen=True)
class Inspection:
    """All that is recorded of a run, at an instant ``now`` of its store.

    ``refusals`` are the errors that a resume would raise before it acts, the agent's first; the frontier is None
    where there is none or it cannot be read. ``probes`` names the tools that have one. ``first`` is what a slice would
    do first, None where it would be refused or has ended. ``claims`` are the records of all calls, in the order asked.
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
    claims: tuple[Claim, ...] = ()

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
        return standing_of(self.record, self.lease, self.now, ready=self.ready)

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


def standing_of(record: RunRecord, lease: RunLease | None, now: datetime, *, ready: bool) -> str:
    """Return where a run stands: its stored status; or, where it is active or ``ready``, what its lease says of it."""
    stands_still = record.status is not RunStatus.ACTIVE and not ready
    if record.status.ended or stands_still or record.status is RunStatus.QUARANTINED:
        return record.status.value
    if lease is None:
        return "queued"
    return "running" if lease.held_at(now) else "interrupted"


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
        case _ if error.code == "budget-exceeded":
            return f"adk_resume {run}, once the limit is raised"
    return f"adk_cancel {run} --reason TEXT"


def inspection(stores: Stores, record: RunRecord, checkpointer: Checkpointer, *, strict: bool) -> Inspection:
    """Read all that is recorded of ``record``'s run. Writes nothing."""
    stored = StoredRun(stores, record, checkpointer, strict=strict)
    refusals: list[AdkError] = list(stored.refusals)
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
        state = stored.state(agent, next_lease)
        first = decide(state)
        if state.over_budget:
            refusals.append(BudgetExceededError(over_budget(state)))
    return Inspection(
        record=record,
        checkpoint=stored.checkpoint,
        plan=replace(stored.plan, obstacles=tuple(str(error) for error in refusals)),
        lease=stores.leases.held(record.run_id, tenant=record.tenant),
        approvals=tuple(stored.approvals.values()),
        refusals=tuple(refusals),
        probes=frozenset(tool.name for tool in agent.tools if tool.probe is not None) if agent else frozenset(),
        now=now,
        first=first,
        claims=tuple(stored.claims[slot] for slot in sorted(stored.claims)),
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
