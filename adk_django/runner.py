"""AgentRunner: runs an agent from its input, or carries a run on. Both are one path."""

import contextlib
import functools
import os
import socket
import uuid
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, cast

from adk_django.agents import Agent
from adk_django.asynchronous import in_pool, in_testcase, off_loop, sync_only
from adk_django.bodies import Bodies
from adk_django.checkpointer import Checkpointer
from adk_django.conf import get_settings
from adk_django.core.checkpoint import CheckpointPolicy, PendingCall
from adk_django.core.codec import digest
from adk_django.core.decide import Stop
from adk_django.core.effects import Claim, EffectClass
from adk_django.core.messages import Usage
from adk_django.core.plan import plan
from adk_django.core.record import RunRecord, RunStatus, Spend, Writes
from adk_django.core.seen import Reply
from adk_django.core.state import RunState
from adk_django.drive import adrive, drive
from adk_django.exceptions import (
    AdkError,
    CheckpointNotFoundError,
    ConfigurationError,
    IndeterminateToolCallError,
    ProviderError,
    ResumeError,
    RunConflictError,
    StaleFrontierError,
    StoreUnavailableError,
)
from adk_django.ports import RunPorts, Watch
from adk_django.providers.base import ModelProvider
from adk_django.resumer import ResumedRun, Resumer, give_back, refuse_revision, setting_of, store_refusal
from adk_django.stores import complete
from adk_django.stores.base import HistoryStore, IdempotencyStore, LeaseStore
from adk_django.stores.bundle import Stores


@dataclass(frozen=True)
class RunResult:
    """How a slice stopped.

    ``status`` is the run's; ``output`` is the final answer's text, None until there is one.
    """

    run_id: str
    status: RunStatus
    reason: str
    output: str | None
    usage: Usage
    iterations: int
    fence: int


def this_worker() -> str:
    """Return a display name for this process."""
    return f"{socket.gethostname()}-{os.getpid()}"


def default_checkpointer(stores: Stores) -> Checkpointer:
    """Return the Checkpointer that ``ADK`` describes, on ``stores``."""
    settings = get_settings()
    given = settings.checkpoints
    policy = CheckpointPolicy(
        boundaries=frozenset(given.boundaries),  # type: ignore[arg-type]  # the policy makes them boundaries
        max_bytes=given.max_bytes,
        ttl_seconds=given.ttl_seconds,
        save_timeout_seconds=given.save_timeout_seconds,
    )
    return Checkpointer(
        stores.checkpoints,
        policy,
        redact=settings.redact.enabled,
        extra_patterns=settings.redact.extra_patterns,
        personal_data=settings.redact.personal_data,
    )


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
        self.stores.refuse_transaction()
        record, created = self.create(agent, input, tenant=tenant, run_id=run_id, user=user)
        if not created:
            raise RunConflictError(record.run_id, "start")
        return self.resume(agent, record.run_id, tenant=tenant)

    async def arun(
        self, agent: Agent, input: str, *, tenant: str, run_id: str | None = None, user: str | None = None
    ) -> RunResult:
        """Async twin of `run`."""
        await in_pool(self.stores.refuse_transaction)
        record, created = await in_pool(self.create, agent, input, tenant=tenant, run_id=run_id, user=user)
        if not created:
            raise RunConflictError(record.run_id, "start")
        return await self.aresume(agent, record.run_id, tenant=tenant)

    def create(
        self, agent: Agent, input: str, *, tenant: str, run_id: str | None, user: str | None, due: bool = False
    ) -> tuple[RunRecord, bool]:
        """Get or create the row of a run; return it and whether it is new. Joins the caller's transaction.

        ``due`` asks for a worker: the run is to be woken at once.
        """
        record = self.record_of(agent, input, tenant=tenant, run_id=run_id, user=user)
        if due:
            record = replace(record, wake_at=self.stores.runs.now())
        return self.stores.runs.create(record)

    def record_of(self, agent: Agent, input: str, *, tenant: str, run_id: str | None, user: str | None) -> RunRecord:
        """Return the row of a new run: its text masked, its digest of the real one. Raise ValueError for bad input."""
        texts: dict[str, Any] = {"tenant": tenant, "run_id": run_id, "user": user, "input": input}
        for what, given in texts.items():
            if given is None and what in ("run_id", "user"):
                continue
            if not isinstance(given, str) or (not given and what != "input"):
                raise ValueError(f"{what} is {type(given).__name__} {'' if given else 'and empty'}: expected a text")
            if what in ("tenant", "run_id") and len(given) > ID_CHARACTERS:
                raise ValueError(f"{what} has {len(given)} characters: expected at most {ID_CHARACTERS}")
        return RunRecord(
            tenant=tenant,
            run_id=str(uuid.uuid4()) if run_id is None else run_id,
            agent=agent.name,
            input=self.checkpointer.mask(input),
            input_digest=digest(input),
            salt=os.urandom(32).hex(),
            user=user,
        )

    @sync_only
    def resume(
        self,
        agent: Agent,
        run_id: str,
        *,
        tenant: str,
        carried: ResumedRun | None = None,
        worker: str | None = None,
        watch: Watch | None = None,
        accept_revision: str | None = None,
        accept_stale: bool = False,
    ) -> RunResult:
        """Carry a run on to its next stop and release it.

        Raise CheckpointNotFoundError if there is no such run, and the refusal of the plan if it could not take one
        step; a run that took one returns how it stopped. Waiting is returned, never raised.
        """
        if carried is None:
            carried = self._take(self._in_force(agent), run_id, tenant, worker, accept_revision)
        with carried:
            agent = self._in_force(agent)
            if (ended := self._refused(agent, carried, run_id, tenant, accept_revision, accept_stale)) is not None:
                return ended
            state, ports = self._begin(agent, carried, watch)
            try:
                state, stop = drive(state, ports)
            except (ProviderError, StoreUnavailableError) as error:
                self._back_off(carried, error, ports.owed)
                raise
            return self._result(state, stop, moved=ports.moved)

    async def aresume(
        self,
        agent: Agent,
        run_id: str,
        *,
        tenant: str,
        carried: ResumedRun | None = None,
        worker: str | None = None,
        watch: Watch | None = None,
        accept_revision: str | None = None,
        accept_stale: bool = False,
    ) -> RunResult:
        """Async twin of `resume`."""
        if carried is None:
            taking = functools.partial(self._take, self._in_force(agent), run_id, tenant, worker, accept_revision)
            carried = await off_loop(taking, give_back)
        async with carried:
            agent = self._in_force(agent)
            checks = (agent, carried, run_id, tenant, accept_revision, accept_stale)
            if (ended := await in_pool(self._refused, *checks)) is not None:
                return ended
            state, ports = self._begin(agent, carried, watch)
            try:
                state, stop = await adrive(state, ports)
            except (ProviderError, StoreUnavailableError) as error:
                await in_pool(self._back_off, carried, error, ports.owed)
                raise
            return self._result(state, stop, moved=ports.moved)

    def ask(self, agent: Agent, record: RunRecord, call: PendingCall, claim: Claim) -> Reply:
        """Ask the probe of one call, on a person's request; changes nothing."""
        bodies = Bodies(agent, self.stores, get_settings().tools, self.checkpointer.mask, inline=in_testcase())
        return bodies.probe(bodies.context_of(record, call, claim), call, claim)

    def _take(self, agent: Agent, run_id: str, tenant: str, worker: str | None, accept: str | None) -> ResumedRun:
        resumer = Resumer(
            checkpoints=self.checkpointer,
            leases=self.stores.leases,
            history=self.stores.history,
            idempotency=self.stores.idempotency,
        )
        carried = resumer.take(run_id, tenant=tenant, worker=worker or this_worker(), agent=agent, accept=accept)
        if carried is None:
            raise CheckpointNotFoundError(f"there is no run {run_id} of tenant {tenant}")
        return carried

    def _refused(
        self, agent: Agent, carried: ResumedRun, run_id: str, tenant: str, accept: str | None, accept_stale: bool
    ) -> RunResult | None:
        """Return how a run ended, if it has; raise what speaks against carrying it on, if anything does.

        A cancel ends a run that cannot be carried on, too.
        """
        record, deaths, cap = carried.recorded.record, carried.lease.deaths, get_settings().resume.max_deaths
        if (record.run_id, record.tenant) != (run_id, tenant):
            raise ValueError(f"what is carried is run {record.run_id} of tenant {record.tenant}, not {run_id}")
        if record.status.ended:
            return self._ended(record, carried.lease.fence)
        refuse_revision(record, agent, accept)
        if record.cancel_requested_at is not None and (
            carried.recorded.refusals or record.status is RunStatus.QUARANTINED or deaths >= cap
        ):
            writes = Writes(status=RunStatus.CANCELLED, reason=record.cancellation)
            carried.stores.commit(writes, lease=carried.lease)
            return self._ended(replace(record, status=RunStatus.CANCELLED, reason=writes.reason), carried.lease.fence)
        if record.status is not RunStatus.QUARANTINED and deaths >= cap:
            reason = f"its worker died {deaths} times without progress"
            carried.stores.commit(Writes(status=RunStatus.QUARANTINED, reason=reason), lease=carried.lease)
            raise ResumeError(f"run {record.run_id} is quarantined: {reason}")
        if record.status is RunStatus.QUARANTINED:
            raise ResumeError(f"run {record.run_id} is quarantined: {record.reason}")
        for error in carried.recorded.refusals:
            if not (accept_stale and isinstance(error, StaleFrontierError)):
                store_refusal(carried, error)
                raise error
        self._refuse_stores(agent)
        return None

    def _refuse_stores(self, agent: Agent) -> None:
        for tool in agent.tools:
            if tool.effect is EffectClass.TRANSACTIONAL and tool.using not in self.stores.joins:
                raise ConfigurationError(
                    f"tool {tool.name} is transactional on {tool.using!r}, where the run's stores are not: "
                    f"expected the ORM stores on that alias"
                )

    def _in_force(self, agent: Agent) -> Agent:
        """Return ``agent`` with the provider that this runner asks: its model is part of the revision."""
        if self._provider is not None:
            return replace(agent, provider=self._provider)
        if agent.provider is None:
            raise ConfigurationError(
                f"agent {agent.name} has no provider: Agent(provider=...) or AgentRunner(provider=...)"
            )
        return agent

    def _begin(self, agent: Agent, carried: ResumedRun, watch: Watch | None) -> tuple[RunState, RunPorts]:
        ports = RunPorts(
            agent=agent,
            provider=cast(ModelProvider, agent.provider),  # in force, it has one
            stores=self.stores,
            holder=carried.holder,
            checkpointer=self.checkpointer,
            settings=get_settings().tools,
            inline=not carried.holder.background,
            watch=watch,
        )
        return carried.recorded.state(carried.lease, setting_of(agent, carried.lease, self.checkpointer)), ports

    def _back_off(self, carried: ResumedRun, error: AdkError, owed: tuple[Spend, ...]) -> None:
        """Say when the run is tried again: each time twice as late as before, up to the longest. What was spent on
        answers that are lost goes with it. A store that is down cannot be told."""
        for _ in range(2):  # what the slice left idle may have died meanwhile; the next connection is a new one
            with contextlib.suppress(StoreUnavailableError):
                return self._try_later(carried, error, owed)

    def _try_later(self, carried: ResumedRun, error: AdkError, owed: tuple[Spend, ...]) -> None:
        first, longest = get_settings().resume.backoff_seconds
        now = self.stores.runs.now()
        record = self.stores.runs.get(carried.lease.run_id, tenant=carried.lease.tenant)
        failed = PROVIDER_FAILED if isinstance(error, ProviderError) else STORE_FAILED
        wait = first
        if record is not None and record.reason.startswith(failed) and record.wake_at and record.updated_at:
            before = (record.wake_at - record.updated_at).total_seconds()
            wait = min(max(first, 2 * before), longest)
        again = now + timedelta(seconds=wait)
        reason = f"{failed}, next try at {again.isoformat(timespec='seconds')}: {error}"
        seen = None if record is None else record.wake_at
        reason = self.checkpointer.mask(reason)
        writes = Writes(status=RunStatus.ACTIVE, reason=reason, wake_at=again, wake_seen=seen, spend=owed)
        self.stores.commit(writes, lease=carried.lease)

    def _result(self, state: RunState, stop: Stop, *, moved: bool) -> RunResult:
        if not moved and stop.status in (RunStatus.UNDECIDED, RunStatus.ACTIVE):
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
        )

    @staticmethod
    def _ended(record: RunRecord, fence: int) -> RunResult:
        return RunResult(
            record.run_id, record.status, record.reason, record.output, record.usage, record.iterations, fence
        )


ID_CHARACTERS = 255
PROVIDER_FAILED = "the model provider failed"
STORE_FAILED = "the store did not answer"
