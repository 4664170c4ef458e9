"""Stores in this process's memory: for tests, and for trying things out. Nothing in them outlives the process.

They keep canonical text, as the durable stores do, so that a value survives or is refused here exactly as there.
"""

import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from adk_django.core import codec
from adk_django.core.checkpoint import Checkpoint, HistoryHandle, NewerFormatError
from adk_django.core.effects import HELD_STATES, Claim, ClaimState, Outcome, Slot
from adk_django.core.lease import RunLease
from adk_django.core.messages import Message, Usage
from adk_django.core.record import Answer, Approval, ApprovalState, RunRecord, RunStatus, Spend, Writes, Written
from adk_django.exceptions import (
    AdkError,
    ApprovalConflictError,
    ApprovalError,
    ApprovalExpiredError,
    CheckpointDamagedError,
    CheckpointFormatError,
    FenceLostError,
    HistoryUnavailableError,
    LeaseLostError,
    ResumeConflictError,
    RunConflictError,
    RunForgottenError,
    SettlementError,
)
from adk_django.stores.base import CheckpointStore, HistoryStore, IdempotencyStore, LeaseStore, RunStore, Stores


@dataclass(frozen=True)
class _Frontier:
    fence: int
    sequence: tuple[int, int]
    text: str
    created_at: datetime


@dataclass(frozen=True)
class _Line:
    """One transcript message, and the rolling digest up to it."""

    text: str
    digest: str


@dataclass(frozen=True)
class _ClaimRow:
    """``claim`` without its outcome and evidence, which are kept as text."""

    claim: Claim
    outcome: str | None = None
    evidence: str | None = None

    def read(self) -> Claim:
        return replace(self.claim, outcome=_decoded(self.outcome), evidence=_decoded(self.evidence))

    def completed(self, outcome: Outcome, text: str, **changes: Any) -> "_ClaimRow":
        return replace(self, outcome=text, claim=replace(self.claim, state=ClaimState.of(outcome), **changes))


@dataclass(frozen=True)
class _ApprovalRow:
    """``approval`` without the arguments, which are kept as text."""

    approval: Approval
    arguments: str
    edited: str

    def read(self) -> Approval:
        return replace(self.approval, arguments=codec.decode(self.arguments), edited=codec.decode(self.edited))


@dataclass
class _Run:
    """All that is kept of one run. ``fence`` is the highest seen here and never goes down."""

    fence: int = 0
    lease: RunLease | None = None
    released: bool = False
    forgotten: bool = False
    record: RunRecord | None = None
    frontier: _Frontier | None = None
    claims: dict[Slot, _ClaimRow] = field(default_factory=dict)
    approvals: dict[Slot, _ApprovalRow] = field(default_factory=dict)
    spends: dict[tuple[int, int], Spend] = field(default_factory=dict)
    transcripts: dict[int, list[_Line]] = field(default_factory=dict)

    def copy(self) -> "_Run":
        return replace(
            self,
            claims=dict(self.claims),
            approvals=dict(self.approvals),
            spends=dict(self.spends),
            transcripts={generation: list(lines) for generation, lines in self.transcripts.items()},
        )

    def holds(self, lease: RunLease) -> bool:
        """Return whether ``lease`` is the one that stands."""
        return self.lease is not None and self.lease.token == lease.token and not self.released

    def wake(self, now: datetime) -> None:
        """Let the row be due at once, unless the run has ended."""
        if self.record is not None and not self.record.status.ended:
            self.record = replace(self.record, wake_at=now)


def _decoded(text: str | None) -> Outcome | None:
    return None if text is None else Outcome.decoded(text)


class MemorySpace:
    """What memory stores that belong together share: one lock, one clock and the rows of every run.

    ``now`` is the clock: a callable that returns an aware instant.
    """

    def __init__(self, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self.lock = threading.RLock()
        self.now = now
        self._runs: dict[tuple[str, str], _Run] = {}

    def read(self, tenant: str, run_id: str) -> _Run:
        """Return the rows of a run, to be looked at only. Call it under the lock."""
        return self._runs.get((tenant, run_id)) or _Run()

    def written(self, tenant: str, run_id: str) -> _Run:
        """Return the rows of a run, to be changed. Call it under the lock."""
        return self._runs.setdefault((tenant, run_id), _Run())

    def every(self) -> list[_Run]:
        """Return the rows of all runs, to be looked at only. Call it under the lock."""
        return list(self._runs.values())

    def check(self, tenant: str, run_id: str, fence: int) -> _Run:
        """Return the rows of a run to be changed under ``fence``, which is remembered.

        Where the run has a lease here the fence must be its own, and not released; else no higher one may have been
        seen. Raise LeaseLostError otherwise. Call it under the lock.
        """
        run = self.written(tenant, run_id)
        lease = run.lease
        if fence < run.fence or (lease is not None and (run.released or fence != lease.fence)):
            holder, until = (None, None) if lease is None else (lease.holder, lease.expires_at)
            message = f"fence {fence} of run {run_id} is no longer the one that stands: {run.fence}"
            raise LeaseLostError(message, holder=holder, until=until, fence=run.fence)
        run.fence = fence
        return run

    def stamp(self, tenant: str, run_id: str, fence: int) -> None:
        """Refuse fences lower than ``fence`` for this run from now on."""
        with self.lock:
            run = self.written(tenant, run_id)
            run.fence = max(run.fence, fence)

    def forget(self, tenant: str, run_id: str) -> None:
        """Erase a run; what stays is its fence, and that its id cannot be used again."""
        with self.lock:
            self._runs[tenant, run_id] = _Run(fence=self.read(tenant, run_id).fence, forgotten=True)

    @contextmanager
    def whole(self, tenant: str, run_id: str) -> Iterator[None]:
        """Undo, where the body raises, everything it wrote of the run."""
        with self.lock:
            before = self.written(tenant, run_id).copy()
            try:
                yield
            except BaseException:
                self._runs[tenant, run_id] = before
                raise


class _InSpace:
    """A store in a `MemorySpace`: its own, or one that it shares."""

    def __init__(self, space: MemorySpace | None = None) -> None:
        self.space = MemorySpace() if space is None else space

    def stamp(self, tenant: str, run_id: str, fence: int) -> None:
        """Refuse fences lower than ``fence`` for this run from now on."""
        self.space.stamp(tenant, run_id, fence)


class MemoryCheckpointStore(_InSpace, CheckpointStore):
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
            run.frontier = _Frontier(fence, checkpoint.sequence, text, self.space.now())

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


class MemoryLeaseStore(_InSpace, LeaseStore):
    """Leases in memory."""

    def acquire(self, run_id: str, *, tenant: str, holder: str, ttl_seconds: float, floor: int = 0) -> RunLease:
        with self.space.lock:
            run, now = self.space.read(tenant, run_id), self.space.now()
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

    def progressed(self, lease: RunLease) -> None:
        with self.space.lock:
            run = self.space.read(lease.tenant, lease.run_id)
            if run.lease is not None and run.holds(lease):
                run.lease = replace(run.lease, deaths=0)

    def held(self, run_id: str, *, tenant: str) -> RunLease | None:
        with self.space.lock:
            run = self.space.read(tenant, run_id)
            return None if run.released else run.lease


class MemoryIdempotencyStore(_InSpace, IdempotencyStore):
    """Claims in memory."""

    def begin(self, claim: Claim, *, fence: int) -> Claim:
        with self.space.lock:
            run, now = self.space.check(claim.tenant, claim.run_id, fence), self.space.now()
            old = run.claims.get(claim.slot)
            if old is not None:
                free = old.claim.state in (ClaimState.IN_FLIGHT, ClaimState.NEVER_RAN)
                if not free or old.claim.token in (None, claim.token) or old.claim.token != claim.replaces:
                    return old.read()
            if (other := _holds_key(run, claim)) is not None:
                return other.read()
            fresh = replace(
                _bare(claim),
                fence=fence,
                state=ClaimState.IN_FLIGHT,
                begun_at=now,
                deadline_at=now + timedelta(seconds=claim.limit_seconds),
                holder=claim.holder or ("" if run.lease is None else run.lease.holder),
            )
            run.claims[claim.slot] = _ClaimRow(fresh)
            return fresh

    def look_up(self, run_id: str, *, tenant: str, keys: Sequence[str] | None = None) -> tuple[Claim, ...]:
        with self.space.lock:
            claims = dict(self.space.read(tenant, run_id).claims)
        return tuple(row.read() for _, row in sorted(claims.items()) if keys is None or row.claim.key in keys)

    def record(self, claim: Claim, outcome: Outcome, *, fence: int) -> Claim:
        text = outcome.encoded()
        with self.space.lock:
            try:
                run, now = self.space.check(claim.tenant, claim.run_id, fence), self.space.now()
            except LeaseLostError:
                if claim.token is not None:
                    self.evidence(claim, outcome)
                raise
            row = run.claims.get(claim.slot)
            if row is None and claim.token is None:
                held = replace(_bare(claim), state=ClaimState.of(outcome))
                if held.state not in HELD_STATES or _holds_key(run, claim) is None:
                    row = _ClaimRow(replace(held, fence=fence, begun_at=now), text)
                    run.claims[claim.slot] = row
                    return row.read()
            elif row is not None and row.claim.token == claim.token:
                if row.claim.state is ClaimState.IN_FLIGHT:
                    run.claims[claim.slot] = row = row.completed(outcome, text)
                if row.outcome == text:
                    return row.read()
                if row.claim.settled_at is not None:
                    self.evidence(claim, outcome)
            raise RunConflictError(claim.run_id, f"outcome of call {claim.slot}")

    def abandon(self, claim: Claim, *, fence: int) -> None:
        with self.space.lock:
            run = self.space.check(claim.tenant, claim.run_id, fence)
            if _in_flight(run, claim) is not None:
                del run.claims[claim.slot]

    def note_error(self, claim: Claim, *, fence: int) -> None:
        with self.space.lock:
            run = self.space.check(claim.tenant, claim.run_id, fence)
            if (row := _in_flight(run, claim)) is not None:
                run.claims[claim.slot] = replace(row, claim=replace(row.claim, error=claim.error))

    def evidence(self, claim: Claim, outcome: Outcome) -> Claim | None:
        text = outcome.encoded()
        with self.space.lock:
            run, now = self.space.read(claim.tenant, claim.run_id), self.space.now()
            row = run.claims.get(claim.slot)
            if row is None or claim.token is None or row.claim.token != claim.token:
                return None
            if row.evidence is None and (row.outcome is None or row.claim.settled_at is not None):
                kept = replace(row.claim, evidence_at=now)
                if kept.state is ClaimState.NEVER_RAN:
                    kept = replace(kept, state=ClaimState.IN_FLIGHT, contested=True)
                run.claims[claim.slot] = row = replace(row, claim=kept, evidence=text)
                run.wake(now)
            return row.read()

    def settle(
        self, run_id: str, slot: Slot, *, tenant: str, answer: Answer, outcome: Outcome | None, by: str, reason: str
    ) -> Claim:
        text = None if outcome is None else outcome.encoded()
        with self.space.lock:
            run, now = self.space.read(tenant, run_id), self.space.now()
            row = run.claims.get(slot)
            if row is None:
                raise SettlementError(f"run {run_id} has no call {slot} on record")
            if answer is Answer.UNKNOWN or (answer is Answer.DONE) != (outcome is not None):
                raise SettlementError(f"call {slot} is settled as done, with its outcome, or as not done")
            claim = row.claim
            if claim.state is not ClaimState.IN_FLIGHT:
                if claim.settled_at is not None and row.outcome == text:
                    return row.read()
                by_whom = f"settled by {claim.settled_by}" if claim.settled_at else "completed"
                raise SettlementError(f"call {slot} was {by_whom} before, as {claim.state.value}")
            told: dict[str, Any] = {"settled_at": now, "settled_by": by, "reason": reason, "contested": False}
            if outcome is not None and text is not None:
                row = row.completed(outcome, text, **told)
            else:
                if claim.deadline_at is not None and now < claim.deadline_at:
                    instant = claim.deadline_at.isoformat()
                    raise SettlementError(f"call {slot} may still be made: not done is accepted from {instant}")
                row = replace(row, claim=replace(claim, state=ClaimState.NEVER_RAN, **told))
            run.claims[slot] = row
            run.wake(now)
            return row.read()

    def forget(self, run_id: str, *, tenant: str, fence: int) -> None:
        with self.space.lock:
            self.space.check(tenant, run_id, fence).claims.clear()


def _bare(claim: Claim) -> Claim:
    """Return what the claimer says of ``claim``, without what the store adds to it later."""
    return replace(
        claim,
        outcome=None,
        error="",
        begun_at=None,
        deadline_at=None,
        settled_at=None,
        settled_by="",
        reason="",
        evidence=None,
        evidence_at=None,
        contested=False,
    )


def _holds_key(run: _Run, claim: Claim) -> _ClaimRow | None:
    for row in run.claims.values():
        if row.claim.key == claim.key and row.claim.slot != claim.slot and row.claim.state in HELD_STATES:
            return row
    return None


def _in_flight(run: _Run, claim: Claim) -> _ClaimRow | None:
    """Return the claim in flight under the token of ``claim``, or None."""
    row = run.claims.get(claim.slot)
    if row is None or claim.token is None or row.claim.token != claim.token:
        return None
    return row if row.claim.state is ClaimState.IN_FLIGHT else None


class MemoryHistoryStore(_InSpace, HistoryStore):
    """Conversations in memory."""

    def append(self, handle: HistoryHandle, messages: Sequence[Message], *, fence: int) -> HistoryHandle:
        extended, rolling, added = handle.extended(tuple(messages)), handle.digest, []
        for message in messages:
            rolling = codec.chain(rolling, message.encoded)
            added.append(_Line(message.encoded, rolling))
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


class MemoryRunStore(_InSpace, RunStore):
    """Run rows in memory."""

    def create(self, record: RunRecord) -> tuple[RunRecord, bool]:
        with self.space.lock:
            run, now = self.space.read(record.tenant, record.run_id), self.space.now()
            if run.forgotten:
                raise RunForgottenError
            if run.record is not None:
                return _summed(run, run.record), False
            made = replace(record, created_at=now, updated_at=now, usage=Usage(), cost_micros=0)
            self.space.written(record.tenant, record.run_id).record = made
            return made, True

    def get(self, run_id: str, *, tenant: str) -> RunRecord | None:
        with self.space.lock:
            run = self.space.read(tenant, run_id)
            return None if run.record is None else _summed(run, run.record)

    def write(self, run_id: str, *, tenant: str, writes: Writes, fence: int) -> Written:
        with self.space.lock:
            run, now = self.space.check(tenant, run_id, fence), self.space.now()
            row = run.record
            if row is None:
                raise LeaseLostError(f"there is no run {run_id} of tenant {tenant}", fence=fence)
            for spend in writes.spend:
                run.spends.setdefault((spend.turn, spend.fence), spend)
            if not row.status.ended:
                for request in writes.requests:
                    _ask(run, request, now)
                run.record = _changed(row, writes, fence, now)
            return Written(cancel_requested_at=row.cancel_requested_at, at=now)

    def gate(self, claim: Claim) -> bool:
        with self.space.lock:
            run = self.space.read(claim.tenant, claim.run_id)
            if run.record is not None and run.record.cancel_requested_at is not None:
                return False
            if claim.request_id is None:
                return True
            asked = [row.approval for row in run.approvals.values() if row.approval.request_id == claim.request_id]
            return any(item.state is ApprovalState.GRANTED and item.digest == claim.digest for item in asked)

    def approvals(self, run_id: str, *, tenant: str) -> tuple[Approval, ...]:
        with self.space.lock:
            return tuple(row.read() for _, row in sorted(self.space.read(tenant, run_id).approvals.items()))

    def decide(
        self,
        request_id: str,
        *,
        tenant: str,
        grant: bool,
        by: str,
        reason: str,
        edited: Any = None,
        digest: str | None = None,
    ) -> Approval:
        state = ApprovalState.GRANTED if grant else ApprovalState.DENIED
        text = codec.encode(edited)
        with self.space.lock:
            run, row = self._request(request_id, tenant)
            now = self.space.now()
            if run is None or row is None:
                raise ApprovalError(f"there is no request {request_id} of tenant {tenant}")
            asked = row.approval
            if asked.state in (ApprovalState.GRANTED, ApprovalState.DENIED):
                if (asked.state, row.edited) == (state, text):
                    return row.read()
                at = "" if asked.decided_at is None else asked.decided_at.isoformat()
                raise ApprovalConflictError(f"{request_id} was {asked.state.value} by {asked.decided_by} at {at}")
            if asked.state is ApprovalState.EXPIRED or (asked.expires_at is not None and now >= asked.expires_at):
                raise ApprovalExpiredError(f"request {request_id} expired at {asked.expires_at}")
            asked = replace(asked, state=state, decided_at=now, decided_by=by, reason=reason)
            asked = replace(asked, digest=asked.digest if digest is None else digest)
            run.approvals[asked.slot] = row = _ApprovalRow(asked, row.arguments, text)
            run.wake(now)
            return row.read()

    def request(self, request_id: str, *, tenant: str) -> Approval | None:
        with self.space.lock:
            _, row = self._request(request_id, tenant)
            return None if row is None else row.read()

    def _request(self, request_id: str, tenant: str) -> tuple[_Run | None, _ApprovalRow | None]:
        for run in self.space.every():
            for row in run.approvals.values():
                if (row.approval.tenant, row.approval.request_id) == (tenant, request_id):
                    return run, row
        return None, None

    def request_cancel(self, run_id: str, *, tenant: str, by: str, reason: str) -> RunRecord | None:
        with self.space.lock:
            run, now = self.space.read(tenant, run_id), self.space.now()
            if run.record is None:
                return None
            if not run.record.status.ended and run.record.cancel_requested_at is None:
                asked = {"cancel_requested_at": now, "cancel_requested_by": by, "cancel_reason": reason}
                run.record = replace(run.record, **asked)  # type: ignore[arg-type]  # the fields of a row
            run.wake(now)
            return _summed(run, run.record)

    def find(
        self,
        *,
        tenant: str | None = None,
        status: RunStatus | None = None,
        agent: str | None = None,
        stuck: bool = False,
        limit: int = 100,
        before: RunRecord | None = None,
    ) -> tuple[RunRecord, ...]:
        with self.space.lock:
            now = self.space.now()
            rows = [
                _summed(run, row)
                for run in self.space.every()
                if (row := run.record) is not None
                and tenant in (None, row.tenant)
                and status in (None, row.status)
                and agent in (None, row.agent)
                and not (stuck and (row.status.ended or _advances(run, now)))
                and (before is None or _place(row) < _place(before))
            ]
        return tuple(sorted(rows, key=_place, reverse=True)[:limit])

    def now(self) -> datetime:
        return self.space.now()


def _place(row: RunRecord) -> tuple[datetime | None, str, str]:
    return row.created_at, row.tenant, row.run_id


def _advances(run: _Run, now: datetime) -> bool:
    return run.lease is not None and not run.released and run.lease.held_at(now)


def _summed(run: _Run, row: RunRecord) -> RunRecord:
    usage, cost = Usage(), 0
    for spend in run.spends.values():
        usage, cost = usage + spend.usage, cost + spend.cost_micros
    return replace(row, usage=usage, cost_micros=cost)


def _changed(row: RunRecord, writes: Writes, fence: int, now: datetime) -> RunRecord:
    row = replace(row, fence=fence, updated_at=now)
    if writes.begins and row.begun_at is None:
        row = replace(row, begun_at=now)
    if writes.failed_save is not None:
        row = replace(row, failed_save=writes.failed_save)
    if writes.revision is not None:
        row = replace(row, revision=writes.revision)
    if writes.status is not None:
        row = replace(row, status=writes.status, reason=writes.reason, output=writes.output)
        if row.wake_at == writes.wake_seen:
            row = replace(row, wake_at=writes.wake_at)
    return row


def _ask(run: _Run, request: Approval, now: datetime) -> None:
    old = run.approvals.get(request.slot)
    if old is not None:
        granted = old.approval.state is ApprovalState.GRANTED and old.approval.digest == request.digest
        if granted or old.approval.request_id == request.request_id:
            return
    seconds = request.expires_seconds
    until = None if seconds is None else now + timedelta(seconds=seconds)
    asked = replace(request, requested_at=now, expires_at=until, arguments=None, edited=None)
    texts = codec.encode(request.arguments), codec.encode(request.edited)
    run.approvals[request.slot] = _ApprovalRow(asked, *texts)


class MemoryStores(Stores):
    """Memory stores in one space: a commit is all or nothing."""

    def commit(self, writes: Writes, *, lease: RunLease, joined: bool = False) -> Written:
        space: MemorySpace = self.runs.space  # type: ignore[attr-defined]  # all five are memory stores
        try:
            with space.whole(lease.tenant, lease.run_id):
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
