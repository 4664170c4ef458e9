"""Resumer: the lease first, then what is recorded, then the plan; whoever loses the lease has read nothing."""

import functools
from types import TracebackType
from typing import Self

from adk_django.agents import Agent
from adk_django.concurrency import in_pool, in_testcase, off_loop, sync_only
from adk_django.conf import get_settings
from adk_django.core.checkpoint import Checkpoint
from adk_django.core.ids import require_ids
from adk_django.core.lease import LeasePolicy, RunLease
from adk_django.core.plan import ResumePlan
from adk_django.core.record import RunRecord, RunStatus, Writes
from adk_django.exceptions import (
    AdkError,
    CheckpointDamagedError,
    CheckpointPassedError,
    HistoryUnavailableError,
    MaskedArgumentsError,
    StaleFrontierError,
    kept_error,
)
from adk_django.execution.checkpointer import Checkpointer
from adk_django.execution.leaseholder import Leaseholder
from adk_django.execution.revisions import refuse_format, refuse_revision
from adk_django.execution.stored_run import StoredRun
from adk_django.stores.base import HistoryStore, IdempotencyStore, LeaseStore
from adk_django.stores.bundle import Stores
from adk_django.stores.handler import complete

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

    def __init__(self, holder: Leaseholder, stored: StoredRun, stores: Stores) -> None:
        self.holder, self.stored, self.stores = holder, stored, stores

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The frontier, or None."""
        return self.stored.checkpoint

    @property
    def plan(self) -> ResumePlan:
        """What carrying on would involve."""
        return self.stored.plan

    @property
    def lease(self) -> RunLease:
        """The lease. Raise LeaseLostError if it was given back."""
        return self.holder.lease

    def store_refusal(self, error: AdkError) -> None:
        """Write into the run's row why it stands still, if that is so for every reader."""
        record = self.stored.record
        if isinstance(error, _STORED) and not record.status.ended:
            writes = Writes(status=RunStatus.UNDECIDED, reason=str(error), wake_seen=record.wake_at)
            self.stores.commit(writes, lease=self.lease)

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
        with kept_error(error, "releasing the lease"):
            self.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with kept_error(error, "releasing the lease"):
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
        require_ids(tenant=tenant, run_id=run_id)
        seen = self._stores.runs.get(run_id, tenant=tenant)
        if seen is None:
            return None
        carried = self.take(seen, worker=worker)
        unreadable = (CheckpointDamagedError, HistoryUnavailableError)
        for error in carried.stored.refusals:
            if carried.stored.checkpoint is None or isinstance(error, unreadable):
                with carried:
                    carried.store_refusal(error)
                    raise error
        return carried

    async def aresume(self, run_id: str, *, tenant: str, worker: str) -> ResumedRun | None:
        """Async twin of `resume`. Cancelled meanwhile, it gives the lease back."""
        taking = functools.partial(self.resume, run_id, tenant=tenant, worker=worker)
        return await off_loop(taking, give_back)

    def take(
        self, seen: RunRecord, *, worker: str, agent: Agent | None = None, accept: str | None = None
    ) -> ResumedRun:
        """Return the run whose row was ``seen``, its lease held, with all that speaks against carrying it on."""
        self._stores.refuse_transaction()
        refuse_revision(seen, agent, accept)
        refuse_format(seen)
        run_id, tenant = seen.run_id, seen.tenant
        holder = self.hold(run_id, tenant=tenant, worker=worker, floor=seen.fence)
        try:
            record = self._stores.runs.get(run_id, tenant=tenant) or seen
            refuse_revision(record, agent, accept)
            strict = get_settings().resume.strict
            return ResumedRun(holder, StoredRun(self._stores, record, self._checkpointer, strict=strict), self._stores)
        except BaseException as error:
            with kept_error(error, "releasing the lease"):
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


def claim_resume(leases: LeaseStore, run_id: str, *, tenant: str, holder: str) -> Leaseholder:
    """Hold a run for five minutes, for a loop that is not ours. A context manager; nothing renews it.

    Raise ResumeConflictError if another holds it.
    """
    require_ids(tenant=tenant, run_id=run_id)
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
