"""Resumer: the lease first, then what is recorded, then the plan; whoever loses the lease has read nothing."""

import functools
from types import TracebackType
from typing import Self

from adk_django.agents import Agent, get_agent, is_registered
from adk_django.asynchronous import in_pool, in_testcase, off_loop, sync_only
from adk_django.checkpointer import Checkpointer
from adk_django.conf import get_settings
from adk_django.core.checkpoint import Checkpoint
from adk_django.core.known import Setting
from adk_django.core.lease import LeasePolicy, RunLease
from adk_django.core.plan import ResumePlan
from adk_django.core.record import RunRecord, RunStatus, Writes
from adk_django.exceptions import (
    AdkError,
    AgentRevisionError,
    CheckpointDamagedError,
    CheckpointPassedError,
    HistoryUnavailableError,
    MaskedArgumentsError,
    StaleFrontierError,
)
from adk_django.leases import Leaseholder
from adk_django.recorded import Recorded
from adk_django.stores import complete
from adk_django.stores.base import HistoryStore, IdempotencyStore, LeaseStore
from adk_django.stores.bundle import Stores

CLAIM_SECONDS = 300

# Refusals that the run itself carries, whoever reads it: they are stored, so that the row says why it stands still.
_STORED = (
    CheckpointPassedError,
    CheckpointDamagedError,
    HistoryUnavailableError,
    MaskedArgumentsError,
    StaleFrontierError,
)


class ResumedRun:
    """A run whose lease is held and whose plan is made: what `AgentRunner.resume` goes on with.

    ``checkpoint`` is None where the run has not begun. A context manager, sync and async, that releases the lease.
    """

    def __init__(self, holder: Leaseholder, recorded: Recorded, stores: Stores) -> None:
        self.holder, self.recorded, self.stores = holder, recorded, stores

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The frontier, or None."""
        return self.recorded.checkpoint

    @property
    def plan(self) -> ResumePlan:
        """What carrying on would involve."""
        return self.recorded.plan

    @property
    def lease(self) -> RunLease:
        """The lease. Raise LeaseLostError if it was given back."""
        return self.holder.lease

    def release(self) -> None:
        """Give the lease back."""
        self.holder.release()

    async def arelease(self) -> None:
        """Async twin of `release`."""
        await in_pool(self.release)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.arelease()


class Resumer:
    """Takes runs over: lease, frontier, transcript, plan, in this order."""

    def __init__(
        self,
        *,
        checkpoints: Checkpointer,
        leases: LeaseStore | None = None,
        history: HistoryStore | None = None,
        idempotency: IdempotencyStore | None = None,
        policy: LeasePolicy | None = None,
    ) -> None:
        self._checkpointer = checkpoints
        self._stores = complete(checkpoints=checkpoints.store, leases=leases, history=history, idempotency=idempotency)
        self._policy = policy

    @sync_only
    def resume(self, run_id: str, *, tenant: str, worker: str) -> ResumedRun | None:
        """Return the run with its lease held, or None if there is no such run.

        Raise ResumeConflictError if another worker holds it; AgentRevisionError if the registered agent cannot carry
        it on; HistoryUnavailableError, CheckpointFormatError or CheckpointDamagedError if it cannot be read. Every
        refusal gives the lease back.
        """
        carried = self.take(run_id, tenant=tenant, worker=worker)
        if carried is None:
            return None
        unreadable = (CheckpointDamagedError, HistoryUnavailableError)
        for error in carried.recorded.refusals:
            if carried.recorded.checkpoint is None or isinstance(error, unreadable):
                with carried:
                    store_refusal(carried, error)
                raise error
        return carried

    async def aresume(self, run_id: str, *, tenant: str, worker: str) -> ResumedRun | None:
        """Async twin of `resume`. Cancelled meanwhile, it gives the lease back."""
        taking = functools.partial(self.resume, run_id, tenant=tenant, worker=worker)
        return await off_loop(taking, give_back)

    def take(
        self, run_id: str, *, tenant: str, worker: str, agent: Agent | None = None, accept: str | None = None
    ) -> ResumedRun | None:
        """Return the run with its lease held and everything about it that speaks against carrying it on."""
        stores, settings = self._stores, get_settings()
        stores.refuse_transaction()
        hint = stores.runs.get(run_id, tenant=tenant)
        if hint is None:
            return None
        refuse_revision(hint, agent, accept)
        holder = self.hold(run_id, tenant=tenant, worker=worker, floor=hint.fence)
        try:
            record = stores.runs.get(run_id, tenant=tenant) or hint
            refuse_revision(record, agent, accept)
            return ResumedRun(
                holder, Recorded(stores, record, self._checkpointer, strict=settings.resume.strict), stores
            )
        except BaseException:
            holder.release()
            raise

    def hold(self, run_id: str, *, tenant: str, worker: str, floor: int) -> Leaseholder:
        """Return the run's lease, acquired. Raise ResumeConflictError if another worker holds it."""
        leases = get_settings().leases
        holder = Leaseholder(
            self._stores.leases,
            run_id,
            tenant=tenant,
            holder=worker,
            policy=self._policy or LeasePolicy(leases.ttl_seconds, leases.renew_within_seconds),
            floor=floor,
            background=not in_testcase(),
        )
        holder.acquire()
        return holder


def refuse_revision(record: RunRecord, agent: Agent | None, accept: str | None = None) -> None:
    """Raise AgentRevisionError if ``agent``, or the one registered under the run's name, cannot carry the run on.

    ``accept`` names the revision this process has, on an operator's word; any other is refused.
    """
    if record.status.ended:
        return
    if agent is None:
        if not is_registered(record.agent):
            return
        agent = get_agent(record.agent)
    pinned, found = record.revision, agent.pinned_revision
    if not agent.answers_to(record.agent):
        message = f"run {record.run_id} is agent {record.agent!r}'s; this is {agent.name!r}"
        raise AgentRevisionError(message, pinned=pinned, found=found)
    if accept is not None and accept != found:
        message = f"this process has revision {found!r} of agent {agent.name}, not {accept!r}"
        raise AgentRevisionError(message, pinned=pinned, found=found)
    if accept is None and not agent.carries(pinned):
        message = (
            f"run {record.run_id} is pinned to revision {pinned!r} of agent {agent.name}; this process has {found!r}: "
            f"adk_resume --accept-revision {found}"
        )
        raise AgentRevisionError(message, pinned=pinned, found=found)


def not_registered(record: RunRecord) -> AgentRevisionError:
    """Return the refusal of a run whose agent this process does not have."""
    message = f"agent {record.agent!r} of run {record.run_id} is not registered: no worker here can carry it on"
    return AgentRevisionError(message, pinned=record.revision, found=None)


def store_refusal(carried: ResumedRun, error: AdkError) -> None:
    """Let the row say why the run stands still, where that is so for every reader."""
    record = carried.recorded.record
    if isinstance(error, _STORED) and not record.status.ended:
        writes = Writes(status=RunStatus.UNDECIDED, reason=str(error), wake_seen=record.wake_at)
        carried.stores.commit(writes, lease=carried.lease)


def setting_of(agent: Agent, lease: RunLease, checkpointer: Checkpointer) -> Setting:
    """Return what is fixed for a slice of ``agent`` under ``lease``."""
    settings = get_settings()
    return Setting(
        fence=lease.fence,
        boundaries=checkpointer.policy.boundaries,
        tools={tool.name: tool.effect for tool in agent.tools},
        expires={tool.name: tool.expires_seconds for tool in agent.tools},
        probes=frozenset(tool.name for tool in agent.tools if tool.probe is not None),
        strict=settings.resume.strict,
        fails_on_unkept=settings.tools.on_unkept_result == "fail_run",
        grace_seconds=settings.tools.grace_seconds,
        time_limit_seconds=settings.tools.time_limit_seconds,
        revision=agent.pinned_revision,
        model=agent.provider.model if agent.provider else "",
        prompt_version=agent.prompt_version,
    )


def claim_resume(leases: LeaseStore, run_id: str, *, tenant: str, holder: str) -> Leaseholder:
    """Hold a run for five minutes, for a loop that is not ours. A context manager; nothing renews it.

    Raise ResumeConflictError if another holds it.
    """
    policy = LeasePolicy(CLAIM_SECONDS, CLAIM_SECONDS / 2)
    claim = Leaseholder(leases, run_id, tenant=tenant, holder=holder, policy=policy, background=False)
    claim.acquire()
    return claim


async def aclaim_resume(leases: LeaseStore, run_id: str, *, tenant: str, holder: str) -> Leaseholder:
    """Async twin of `claim_resume`. Cancelled meanwhile, it gives the lease back."""
    claiming = functools.partial(claim_resume, leases, run_id, tenant=tenant, holder=holder)
    return await off_loop(claiming, give_back)


def give_back(taken: ResumedRun | Leaseholder | None) -> None:
    """Release what was acquired for a task that is gone."""
    if taken is not None:
        taken.release()
