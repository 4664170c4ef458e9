"""What memory stores share: the rows of every run, under one lock and one clock."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from adk_django.core import codec
from adk_django.core.effects import Claim, ClaimState, Outcome, Slot
from adk_django.core.lease import RunLease
from adk_django.core.record import Approval, RunRecord, Spend
from adk_django.exceptions import LeaseLostError
from adk_django.stores.base import readable


@dataclass(frozen=True)
class FrontierRow:
    """A frontier as text, and what the store adds to it."""

    fence: int
    sequence: tuple[int, int]
    text: str
    created_at: datetime


@dataclass(frozen=True)
class Line:
    """One transcript message, and the rolling digest up to it."""

    text: str
    digest: str


@dataclass(frozen=True)
class ClaimRow:
    """``claim`` without its outcome and evidence, which are kept as text."""

    claim: Claim
    outcome: str | None = None
    evidence: str | None = None

    def read(self) -> Claim:
        """Return the claim. Raise CheckpointDamagedError if an outcome cannot be read."""
        with readable(f"an outcome of call {self.claim.slot} of run {self.claim.run_id}"):
            return replace(self.claim, outcome=_decoded(self.outcome), evidence=_decoded(self.evidence))

    def completed(self, outcome: Outcome, text: str, **changes: Any) -> "ClaimRow":
        return replace(self, outcome=text, claim=replace(self.claim, state=ClaimState.of(outcome), **changes))


@dataclass(frozen=True)
class ApprovalRow:
    """``approval`` without the arguments, which are kept as text."""

    approval: Approval
    arguments: str
    edited: str

    def read(self) -> Approval:
        """Return the request. Raise CheckpointDamagedError if its arguments cannot be read."""
        with readable(f"request {self.approval.request_id} of run {self.approval.run_id}"):
            return replace(self.approval, arguments=codec.decode(self.arguments), edited=codec.decode(self.edited))


@dataclass
class RunRows:
    """All that is kept of one run. ``fence`` is the highest seen here and never goes down."""

    fence: int = 0
    lease: RunLease | None = None
    released: bool = False
    forgotten: bool = False
    record: RunRecord | None = None
    frontier: FrontierRow | None = None
    claims: dict[Slot, ClaimRow] = field(default_factory=dict)
    approvals: dict[Slot, ApprovalRow] = field(default_factory=dict)
    spends: dict[tuple[int, int], Spend] = field(default_factory=dict)
    transcripts: dict[int, list[Line]] = field(default_factory=dict)

    def copy(self) -> "RunRows":
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

    def advances(self, now: datetime) -> bool:
        """Return whether a live lease advances the run."""
        return self.lease is not None and not self.released and self.lease.held_at(now)

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
        self._runs: dict[tuple[str, str], RunRows] = {}

    def read(self, tenant: str, run_id: str) -> RunRows:
        """Return the rows of a run, to be looked at only. Call it under the lock."""
        return self._runs.get((tenant, run_id)) or RunRows()

    def written(self, tenant: str, run_id: str) -> RunRows:
        """Return the rows of a run, to be changed. Call it under the lock."""
        return self._runs.setdefault((tenant, run_id), RunRows())

    def every(self) -> list[RunRows]:
        """Return the rows of all runs, to be looked at only. Call it under the lock."""
        return list(self._runs.values())

    def check(self, tenant: str, run_id: str, fence: int) -> RunRows:
        """Return the rows of a run to be changed under ``fence``, which is remembered.

        Where the run has a lease here the fence must be its own, and not released; else no higher one may have been
        seen. Raise LeaseLostError otherwise, and for a run that was forgotten. Call it under the lock.
        """
        run = self.written(tenant, run_id)
        lease = run.lease
        if run.forgotten or fence < run.fence or (lease is not None and (run.released or fence != lease.fence)):
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
            self._runs[tenant, run_id] = RunRows(fence=self.read(tenant, run_id).fence, forgotten=True)

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


class InSpace:
    """A store in a `MemorySpace`: its own, or one that it shares."""

    def __init__(self, space: MemorySpace | None = None) -> None:
        self.space = MemorySpace() if space is None else space

    def stamp(self, tenant: str, run_id: str, fence: int) -> None:
        """Refuse fences lower than ``fence`` for this run from now on."""
        self.space.stamp(tenant, run_id, fence)
