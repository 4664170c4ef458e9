"""AgentRunner: runs an agent from its input, or carries a run on. Both are one path."""

import functools
import os
import socket
from dataclasses import dataclass, replace
from typing import cast

from adk_django.agents import Agent
from adk_django.concurrency import in_pool, in_testcase, off_loop, sync_only
from adk_django.conf import get_settings
from adk_django.core.checkpoint import PendingCall
from adk_django.core.decide import Stop
from adk_django.core.effects import Claim
from adk_django.core.ids import require_ids
from adk_django.core.messages import Usage
from adk_django.core.observations import Reply
from adk_django.core.plan import plan
from adk_django.core.record import RunRecord, RunStatus
from adk_django.core.state import RunState
from adk_django.exceptions import (
    BudgetExceededError,
    CheckpointNotFoundError,
    ConfigurationError,
    IndeterminateToolCallError,
    RunConflictError,
    kept_error,
)
from adk_django.execution.admission import admit, refuse_stores
from adk_django.execution.back_off import record_failure
from adk_django.execution.checkpointer import Checkpointer, default_checkpointer
from adk_django.execution.leaseholder import Leaseholder
from adk_django.execution.loop import HANDED_OVER, adrive, drive
from adk_django.execution.new_run import new_record
from adk_django.execution.ports import Leave, RunPorts, Watch
from adk_django.execution.resumer import ResumedRun, Resumer, give_back
from adk_django.execution.revisions import agent_of
from adk_django.execution.tool_calls import Bodies
from adk_django.providers.base import ModelProvider
from adk_django.stores.base import HistoryStore, IdempotencyStore, LeaseStore
from adk_django.stores.handler import complete


@dataclass(frozen=True)
class RunResult:
    """How a slice stopped.

    ``status`` is the run's; ``output`` is the final answer's text, None until there is one. ``handed_over`` says that
    the slice ended before its run stood still: a fresh one goes on at once.
    """

    run_id: str
    status: RunStatus
    reason: str
    output: str | None
    usage: Usage
    iterations: int
    fence: int
    handed_over: bool = False


def this_worker() -> str:
    """Return a display name for this process."""
    return f"{socket.gethostname()}-{os.getpid()}"


class AgentRunner:
    """Runs agents under leases.

    Each store that is not given is the one beside those that are, else that of ``ADK``.
    """

    def __init__(
        self,
        *,
        provider: ModelProvider | None = None,
        checkpoints: Checkpointer | None = None,
        idempotency: IdempotencyStore | None = None,
        leases: LeaseStore | None = None,
        history: HistoryStore | None = None,
        using: str | None = None,
    ) -> None:
        self._provider = provider
        self.stores = complete(
            checkpoints=None if checkpoints is None else checkpoints.store,
            leases=leases,
            idempotency=idempotency,
            history=history,
            using=using,
            save_timeout_seconds=None if checkpoints is None else checkpoints.policy.save_timeout_seconds,
        )
        self.checkpointer = checkpoints or default_checkpointer(self.stores)

    @sync_only
    def run(
        self, agent: Agent, input: str, *, tenant: str, run_id: str | None = None, user: str | None = None
    ) -> RunResult:
        """Create the run and carry it to its first stop. Raise RunConflictError if the id is taken."""
        record = self._new(agent, input, tenant, run_id, user)
        self.stores.refuse_transaction()
        record, created = self.stores.runs.create(record)
        if not created:
            raise RunConflictError(record.run_id, "start")
        return self.resume(agent, record.run_id, tenant=tenant)

    async def arun(
        self, agent: Agent, input: str, *, tenant: str, run_id: str | None = None, user: str | None = None
    ) -> RunResult:
        """Async twin of `run`."""
        record = self._new(agent, input, tenant, run_id, user)
        await in_pool(self.stores.refuse_transaction)
        record, created = await in_pool(self.stores.runs.create, record)
        if not created:
            raise RunConflictError(record.run_id, "start")
        return await self.aresume(agent, record.run_id, tenant=tenant)

    def create(
        self, agent: Agent, input: str, *, tenant: str, run_id: str | None, user: str | None, due: bool = False
    ) -> tuple[RunRecord, bool]:
        """Get or create the row of a run; return it and whether it is new. Joins the caller's transaction.

        ``due`` asks for a worker: the run is to be woken at once.
        """
        record = self._new(agent, input, tenant, run_id, user)
        if due:
            record = replace(record, wake_at=self.stores.runs.now())
        return self.stores.runs.create(record)

    def _new(self, agent: Agent, input: str, tenant: str, run_id: str | None, user: str | None) -> RunRecord:
        return new_record(agent, input, tenant=tenant, run_id=run_id, user=user, mask=self.checkpointer.mask)

    @sync_only
    def resume(
        self,
        agent: Agent | None,
        run_id: str,
        *,
        tenant: str,
        carried: ResumedRun | None = None,
        worker: str | None = None,
        watch: Watch | None = None,
        leave: Leave | None = None,
        accept_revision: str | None = None,
        accept_stale: bool = False,
    ) -> RunResult:
        """Carry a run on to its next stop and release it. ``agent`` None is the one registered under the run's name.

        Raise CheckpointNotFoundError if there is no such run, and the refusal of the plan if it could not take one
        step; a run that took one returns how it stopped. Waiting is returned, never raised.
        """
        if carried is None:
            carried = self.take(self.stored(run_id, tenant=tenant), agent, worker=worker, accept=accept_revision)
        with carried:
            agent = self.with_provider(agent or agent_of(carried.stored.record))
            _refuse_other(carried, run_id, tenant)
            ports: RunPorts | None = None
            try:
                record = admit(agent, carried, accept=accept_revision, accept_stale=accept_stale)
                if record.status.ended:
                    return result_of(record, carried.lease.fence)
                ports = self._ports(agent, carried, watch, leave)
                state, stop = drive(carried.stored.state(agent, carried.lease), ports)
            except BaseException as error:
                owed = ports.owed if ports else ()
                with kept_error(error, "recording why the slice ended"):
                    record_failure(self.stores, carried.lease, self.checkpointer, error, owed)
                raise
            return self._result(state, stop, moved=ports.moved)

    async def aresume(
        self,
        agent: Agent | None,
        run_id: str,
        *,
        tenant: str,
        carried: ResumedRun | None = None,
        worker: str | None = None,
        watch: Watch | None = None,
        leave: Leave | None = None,
        accept_revision: str | None = None,
        accept_stale: bool = False,
    ) -> RunResult:
        """Async twin of `resume`."""
        if carried is None:
            seen = await in_pool(self.stored, run_id, tenant=tenant)
            taking = functools.partial(self.take, seen, agent, worker=worker, accept=accept_revision)
            carried = await off_loop(taking, give_back)
        async with carried:
            agent = self.with_provider(agent or agent_of(carried.stored.record))
            _refuse_other(carried, run_id, tenant)
            ports: RunPorts | None = None
            try:
                record = await in_pool(admit, agent, carried, accept=accept_revision, accept_stale=accept_stale)
                if record.status.ended:
                    return result_of(record, carried.lease.fence)
                ports = self._ports(agent, carried, watch, leave)
                state, stop = await adrive(carried.stored.state(agent, carried.lease), ports)
            except BaseException as error:
                owed = ports.owed if ports else ()
                with kept_error(error, "recording why the slice ended"):
                    await in_pool(record_failure, self.stores, carried.lease, self.checkpointer, error, owed)
                raise
            return self._result(state, stop, moved=ports.moved)

    def ask(self, agent: Agent, record: RunRecord, call: PendingCall, claim: Claim) -> Reply:
        """Ask the probe of one call, on a person's request; changes nothing."""
        bodies = Bodies(agent, self.stores, get_settings().tools, self.checkpointer.mask, inline=in_testcase())
        return bodies.probe(bodies.context_of(record, call, claim), call, claim)

    def find(self, run_id: str, *, tenant: str) -> RunRecord | None:
        """Return the row of a run, or None. Raise ValueError for what names no run."""
        require_ids(tenant=tenant, run_id=run_id)
        return self.stores.runs.get(run_id, tenant=tenant)

    def stored(self, run_id: str, *, tenant: str) -> RunRecord:
        """Return the row of a run. Raise CheckpointNotFoundError if there is none."""
        record = self.find(run_id, tenant=tenant)
        if record is None:
            raise CheckpointNotFoundError(f"there is no run {run_id} of tenant {tenant}")
        return record

    def take(
        self, seen: RunRecord, agent: Agent | None, *, worker: str | None = None, accept: str | None = None
    ) -> ResumedRun:
        """Take the lease of the run whose row was ``seen``, and read what is recorded of it.

        Raise AgentRevisionError, before the lease is asked for, if ``agent`` cannot carry it on.
        """
        agent = self.with_provider(agent or agent_of(seen))
        return self._resumer().take(seen, worker=worker or this_worker(), agent=agent, accept=accept)

    def hold(self, run_id: str, *, tenant: str, worker: str | None, floor: int) -> Leaseholder:
        """Return the run's lease, acquired, without reading what is recorded of it."""
        return self._resumer().hold(run_id, tenant=tenant, worker=worker or this_worker(), floor=floor)

    def _resumer(self) -> Resumer:
        return Resumer(
            checkpoints=self.checkpointer,
            leases=self.stores.leases,
            history=self.stores.history,
            idempotency=self.stores.idempotency,
        )

    def with_provider(self, agent: Agent) -> Agent:
        """Return ``agent`` with the provider that this runner asks: its model is part of the revision."""
        if self._provider is not None:
            return replace(agent, provider=self._provider)
        if agent.provider is None:
            raise ConfigurationError(
                f"agent {agent.name} has no provider: Agent(provider=...) or AgentRunner(provider=...)"
            )
        return agent

    def _ports(self, agent: Agent, carried: ResumedRun, watch: Watch | None, leave: Leave | None) -> RunPorts:
        refuse_stores(agent, self.stores)
        return RunPorts(
            agent=agent,
            provider=cast(ModelProvider, agent.provider),  # `with_provider` refused an agent without one
            stores=self.stores,
            holder=carried.holder,
            checkpointer=self.checkpointer,
            settings=get_settings().tools,
            inline=not carried.holder.background,
            watch=watch,
            leave=leave,
        )

    def _result(self, state: RunState, stop: Stop, *, moved: bool) -> RunResult:
        if stop is not HANDED_OVER and not moved and stop.status in (RunStatus.UNDECIDED, RunStatus.ACTIVE):
            if state.over_budget:
                raise BudgetExceededError(stop.reason)
            unknown = plan(state.calls(), state.claims, strict=state.setting.strict).indeterminate
            raise IndeterminateToolCallError(unknown)
        return RunResult(
            run_id=state.record.run_id,
            status=stop.status,
            reason=stop.reason,
            output=state.record.output,
            usage=state.usage,
            iterations=state.turn,
            fence=state.setting.fence,
            handed_over=stop is HANDED_OVER,
        )


def _refuse_other(carried: ResumedRun, run_id: str, tenant: str) -> None:
    record = carried.stored.record
    if (record.run_id, record.tenant) != (run_id, tenant):
        raise ValueError(f"what is carried is run {record.run_id} of tenant {record.tenant}, not {run_id}")


def result_of(record: RunRecord, fence: int) -> RunResult:
    """Return how a run stands by its row."""
    return RunResult(record.run_id, record.status, record.reason, record.output, record.usage, record.iterations, fence)
