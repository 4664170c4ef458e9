"""The stores a run lives in, as one, and their commit."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace

from adk_django.concurrency import Left, in_testcase, in_thread
from adk_django.core.checkpoint import HistoryHandle
from adk_django.core.effects import Claim, Slot
from adk_django.core.lease import RunLease
from adk_django.core.record import Approval, Writes, Written
from adk_django.exceptions import (
    AdkError,
    CheckpointError,
    RunConflictError,
    RunLeaseError,
    SettlementError,
    StoreUnavailableError,
)
from adk_django.stores.base import CheckpointStore, HistoryStore, IdempotencyStore, LeaseStore
from adk_django.stores.runs import RunStore


@dataclass(frozen=True)
class Stores:
    """The stores a run lives in, and its commit.

    This commit goes store by store, in an order each prefix of which a resume understands; stores that share a
    database override it with one statement.
    """

    checkpoints: CheckpointStore
    leases: LeaseStore
    idempotency: IdempotencyStore
    history: HistoryStore
    runs: RunStore
    save_timeout_seconds: float | None = None

    @property
    def joins(self) -> frozenset[str]:
        """The database aliases in whose transactions this commit can take part: where transactional tools may
        write."""
        return frozenset()

    def refuse_transaction(self) -> None:
        """Raise ConfigurationError inside a caller's transaction on the run's database:

        A roll-back would undo what is recorded of effects that stay.
        """

    def erased(self, tenant: str, run_id: str) -> None:
        """Let go of what is kept elsewhere of a run whose rows were erased. What stays is its fence."""

    def commit(self, writes: Writes, *, lease: RunLease, joined: bool = False) -> Written:
        """Write all of ``writes`` under the lease's fence; return what stands.

        ``writes`` comes masked and sized. Facts first, progress next, claims last: a body is entered only after
        everything before it is durable. In full: what is given back, outcomes of claims, spend, transcript, frontier,
        other outcomes, then the run row (``begun_at``, requests, status), for each claim its note in the row and the
        claim, and what is forgotten. A frontier or delta that its store refuses is left out, with its requests, and
        noted. ``joined`` is for stores that share the database of a transactional tool, whose transaction it then
        ends in. Raise StoreUnavailableError where a store that is down keeps people from being asked, or has lost
        claims.
        """
        fence, tenant, run_id = lease.fence, lease.tenant, lease.run_id
        second = self._facts(writes, fence)
        if writes.spend:
            self.runs.write(run_id, tenant=tenant, writes=Writes(spend=writes.spend), fence=fence)
        asks, (writes, handle, refusal) = bool(writes.requests), self._progress(writes, fence)
        # Not before the frontier of their turn: records of calls beyond it would say that the run has passed it.
        second = self._outcomes((claim for claim in writes.outcomes if claim.token is None), fence) or second
        rest = replace(writes, spend=())
        if asks and refusal is not None and not isinstance(refusal, CheckpointError | RunConflictError):
            facts = replace(rest, failed_save=None)  # the frontier that stands is not passed: nothing was asked
            self.runs.write(run_id, tenant=tenant, writes=facts, fence=fence)
            raise StoreUnavailableError(f"nobody could be asked: {refusal}") from refusal
        row = self.runs.write(run_id, tenant=tenant, writes=rest, fence=fence)
        ours = tuple(claim for sent in writes.claims if (claim := self._begun(sent, fence)) is not None)
        if writes.deaths is not None:
            self.leases.progressed(lease, deaths=writes.deaths)
        if writes.ends:
            self.checkpoints.forget(run_id, tenant=tenant, fence=fence)
        if second or len(ours) < len(writes.claims):
            row = replace(row, standing=self._standing(lease), approvals=self._asked(lease))
        return replace(row, claims=ours, handle=handle, failed_save=writes.failed_save or "", refusal=refusal)

    def _begun(self, claim: Claim, fence: int) -> Claim | None:
        """Make a claim, noted in the run row before; return it as it stands, None where it was held back."""
        if not self.runs.gate(claim, fence=fence):
            return None
        try:
            found = self.idempotency.begin(claim, fence=fence)
        except AdkError:  # whether it arrived or not, its body is not entered
            with suppress(AdkError):
                self.runs.ungate(claim, fence=fence)
            raise
        if found.token == claim.token:
            return found
        self.runs.ungate(claim, fence=fence)
        return None

    def _standing(self, lease: RunLease) -> dict[Slot, Claim]:
        """Return the claims that stand. Raise StoreUnavailableError if one that was made is not among them: what a
        store has forgotten must not read as never made."""
        tenant, run_id = lease.tenant, lease.run_id
        found = {claim.slot: claim for claim in self.idempotency.look_up(run_id, tenant=tenant)}
        record = self.runs.get(run_id, tenant=tenant)
        gone = [] if record is None else [str(slot) for slot in record.claimed if record.lost(slot, found.get(slot))]
        if gone:
            raise StoreUnavailableError(f"the claims of calls {', '.join(gone)} of run {run_id} are lost")
        return found

    def _asked(self, lease: RunLease) -> dict[Slot, Approval]:
        return {item.slot: item for item in self.runs.approvals(lease.run_id, tenant=lease.tenant)}

    def _facts(self, writes: Writes, fence: int) -> bool:
        """Write what is known of calls; return whether somebody else's answer came first."""
        for claim in writes.abandoned:
            self.runs.ungate(claim, fence=fence)
            self.idempotency.abandon(claim, fence=fence)
        second = self._outcomes((claim for claim in writes.outcomes if claim.token is not None), fence)
        for claim in writes.failures:
            self.idempotency.note_error(claim, fence=fence)
        for item in writes.settlements:
            claim = item.claim
            try:
                self.idempotency.settle(
                    claim.run_id,
                    claim.slot,
                    tenant=claim.tenant,
                    answer=item.answer,
                    outcome=item.outcome,
                    by=item.by,
                    reason=item.reason,
                    attempt=claim.attempt,
                )
            except SettlementError:
                second = True
        return second

    def _outcomes(self, claims: Iterable[Claim], fence: int) -> bool:
        """Record outcomes; return whether somebody else's answer came first."""
        second = False
        for claim in claims:
            if claim.outcome is None:
                continue
            try:
                self.idempotency.record(claim, claim.outcome, fence=fence)
            except RunConflictError:
                second = True
        return second

    def _progress(self, writes: Writes, fence: int) -> tuple[Writes, HistoryHandle | None, Exception | None]:
        """Write transcript and frontier;

        Where a store refuses, return the commit without them, noted, and the refusal.
        """

        def save() -> HistoryHandle | None:
            handle = None
            if writes.delta and writes.extends is not None:
                handle = self.history.append(writes.extends, writes.delta, fence=fence)
            if writes.frontier is not None:
                self.checkpoints.put(writes.frontier, fence=fence)
            return handle

        if not writes.delta and writes.frontier is None:
            return writes, None, None
        try:
            here = self.save_timeout_seconds is None or in_testcase()
            handle = save() if here else in_thread(save).wait(self.save_timeout_seconds)
        except RunLeaseError:
            raise
        except Left:
            refusal: Exception = StoreUnavailableError(f"the save took longer than {self.save_timeout_seconds} seconds")
        except Exception as error:  # noqa: BLE001  # whatever a store raises, a failed save never fails the run
            refusal = error
        else:
            return (writes if writes.frontier is None else replace(writes, failed_save="")), handle, None
        note = f"{writes.boundary_name or 'end'}: {type(refusal).__name__}: {refusal}"
        return writes.without_progress(note), None, refusal
