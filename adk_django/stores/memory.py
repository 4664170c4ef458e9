"""Stores in this process's memory: for tests, and for trying things out. Nothing in them outlives the process.

They keep canonical text, as the durable stores do, so that a value survives or is refused here exactly as there.
"""

import copy
import uuid
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta

from adk_django.core import codec
from adk_django.core.checkpoint import Checkpoint, HistoryHandle, NewerFormatError
from adk_django.core.lease import RunLease
from adk_django.core.messages import Message
from adk_django.core.record import Writes, Written
from adk_django.exceptions import (
    AdkError,
    CheckpointDamagedError,
    CheckpointFormatError,
    CrowdedError,
    FenceLostError,
    HistoryUnavailableError,
    LeaseLostError,
    ResumeConflictError,
    RunConflictError,
    RunForgottenError,
)
from adk_django.stores.base import CheckpointStore, HistoryStore, LeaseStore
from adk_django.stores.bundle import Stores
from adk_django.stores.memory_claims import MemoryIdempotencyStore
from adk_django.stores.memory_runs import MemoryRunStore
from adk_django.stores.memory_space import FrontierRow, InSpace, Line, MemorySpace

__all__ = [
    "MemoryCheckpointStore",
    "MemoryHistoryStore",
    "MemoryIdempotencyStore",
    "MemoryLeaseStore",
    "MemoryRunStore",
    "MemorySpace",
    "MemoryStores",
    "memory_stores",
]


class MemoryCheckpointStore(InSpace, CheckpointStore):
    """Frontiers in memory."""

    def put(self, checkpoint: Checkpoint, *, fence: int) -> None:
        text = checkpoint.encoded
        with self.space.lock:
            run = self.space.check(checkpoint.tenant, checkpoint.run_id, fence)
            old = run.frontier
            if old is not None and (fence, checkpoint.sequence) <= (old.fence, old.sequence):
                if checkpoint.sequence == old.sequence and text == old.text:
                    return
                raise RunConflictError(checkpoint.run_id, "frontier")
            run.frontier = FrontierRow(fence, checkpoint.sequence, text, self.space.now())

    def latest(self, run_id: str, *, tenant: str) -> Checkpoint | None:
        with self.space.lock:
            found = self.space.read(tenant, run_id).frontier
        if found is None:
            return None
        try:
            return Checkpoint.decoded(found.text, fence=found.fence, created_at=found.created_at)
        except NewerFormatError as error:
            raise CheckpointFormatError(error.found, error.supported) from error
        except codec.DecodeError as error:
            raise CheckpointDamagedError(f"the frontier is damaged: {error}") from error

    def forget(self, run_id: str, *, tenant: str, fence: int) -> None:
        with self.space.lock:
            self.space.check(tenant, run_id, fence).frontier = None


class MemoryLeaseStore(InSpace, LeaseStore):
    """Leases in memory."""

    _caps: tuple[int | None, int | None] = (None, None)

    def acquire(self, run_id: str, *, tenant: str, holder: str, ttl_seconds: float, floor: int = 0) -> RunLease:
        with self.space.lock:
            run, now = self.space.read(tenant, run_id), self.space.now()
            self._refuse_crowd(run_id, tenant)
            old, fence = run.lease, run.fence + 1
            if run.forgotten:
                raise RunForgottenError
            died = old is not None and not run.released
            if old is not None and died and old.held_at(now):
                raise ResumeConflictError(run_id=run_id, holder=old.holder, until=old.expires_at, fence=old.fence)
            if fence <= floor:
                raise FenceLostError(f"run {run_id} has seen fence {floor}; the next here is only {fence}", fence=floor)
            deaths = 0 if old is None else old.deaths + died
            until = now + timedelta(seconds=ttl_seconds)
            lease = RunLease(tenant, run_id, holder, uuid.uuid4().hex, fence, now, until, deaths, died)
            run = self.space.written(tenant, run_id)
            run.lease, run.fence, run.released = lease, fence, False
            return lease

    def renew(self, lease: RunLease, *, ttl_seconds: float) -> RunLease:
        with self.space.lock:
            run = self.space.read(lease.tenant, lease.run_id)
            if run.lease is None or not run.holds(lease):
                raise LeaseLostError(f"the lease of run {lease.run_id} was lost", fence=run.fence)
            run.lease = replace(run.lease, expires_at=self.space.now() + timedelta(seconds=ttl_seconds))
            return run.lease

    def release(self, lease: RunLease) -> None:
        with self.space.lock:
            run = self.space.read(lease.tenant, lease.run_id)
            run.released = run.released or run.holds(lease)

    def progressed(self, lease: RunLease, *, deaths: int = 0) -> None:
        with self.space.lock:
            run = self.space.read(lease.tenant, lease.run_id)
            if run.lease is not None and run.holds(lease):
                run.lease = replace(run.lease, deaths=deaths)

    def revoke(self, run_id: str, *, tenant: str, by: str) -> RunLease | None:
        with self.space.lock:
            run, now = self.space.read(tenant, run_id), self.space.now()
            if run.lease is None or run.released:
                return None
            run.fence += 1
            run.lease = replace(
                run.lease, holder=by, token=uuid.uuid4().hex, fence=run.fence, acquired_at=now, expires_at=now
            )
            return run.lease

    def within(self, *, max_live: int | None, max_live_per_tenant: int | None) -> "MemoryLeaseStore":
        capped = copy.copy(self)
        capped._caps = (max_live, max_live_per_tenant)
        return capped

    def _refuse_crowd(self, run_id: str, tenant: str) -> None:
        now = self.space.now()
        leases = (run.lease for run in self.space.every() if run.advances(now) and run.lease is not None)
        live = [item.tenant for item in leases if (item.tenant, item.run_id) != (tenant, run_id)]
        for found, cap in zip((len(live), live.count(tenant)), self._caps, strict=True):
            if cap is not None and found >= cap:
                raise CrowdedError

    def held(self, run_id: str, *, tenant: str) -> RunLease | None:
        with self.space.lock:
            run = self.space.read(tenant, run_id)
            return None if run.released else run.lease


class MemoryHistoryStore(InSpace, HistoryStore):
    """Conversations in memory."""

    def append(self, handle: HistoryHandle, messages: Sequence[Message], *, fence: int) -> HistoryHandle:
        extended, rolling, added = handle.extended(tuple(messages)), handle.digest, []
        for message in messages:
            rolling = codec.chain(rolling, message.encoded)
            added.append(Line(message.encoded, rolling))
        with self.space.lock:
            run = self.space.check(handle.tenant, handle.run_id, fence)
            lines = run.transcripts.get(handle.generation, [])
            there = lines[handle.length - 1].digest if 0 < handle.length <= len(lines) else ""
            if there != handle.digest:
                raise _unavailable(handle)
            run.transcripts[handle.generation] = lines[: handle.length] + added
        return extended

    def fetch(self, handle: HistoryHandle, *, tenant: str) -> tuple[Message, ...]:
        with self.space.lock:
            lines = self.space.read(handle.tenant, handle.run_id).transcripts.get(handle.generation, [])
            texts = [line.text for line in lines[: handle.length]]
        rolling = ""
        for text in texts:
            rolling = codec.chain(rolling, text)
        if tenant != handle.tenant or len(texts) != handle.length or rolling != handle.digest:
            raise _unavailable(handle)
        try:
            return tuple(Message.from_data(codec.decode(text)) for text in texts)
        except codec.DecodeError as error:
            raise _unavailable(handle) from error


def _unavailable(handle: HistoryHandle) -> HistoryUnavailableError:
    message = f"the {handle.length} messages of run {handle.run_id} are not there whole"
    return HistoryUnavailableError(message, handle=handle)


class MemoryStores(Stores):
    """Memory stores in one space: a commit is all or nothing."""

    def commit(self, writes: Writes, *, lease: RunLease, joined: bool = False) -> Written:
        space: MemorySpace = self.runs.space  # type: ignore[attr-defined]  # all five are memory stores
        try:
            with space.whole(lease.tenant, lease.run_id):
                space.check(
                    lease.tenant, lease.run_id, lease.fence
                )  # first, or evidence would be kept, undone and kept
                return super().commit(writes, lease=lease, joined=joined)
        except AdkError:
            for claim in writes.outcomes:
                if claim.token is not None and claim.outcome is not None:
                    with suppress(codec.EncodeError):  # what cannot be kept as an outcome can be no evidence
                        self.idempotency.evidence(claim, claim.outcome)
            raise


def memory_stores(space: MemorySpace | None = None) -> MemoryStores:
    """Return all five memory stores, in one space."""
    space = MemorySpace() if space is None else space
    return MemoryStores(
        MemoryCheckpointStore(space),
        MemoryLeaseStore(space),
        MemoryIdempotencyStore(space),
        MemoryHistoryStore(space),
        MemoryRunStore(space),
    )
