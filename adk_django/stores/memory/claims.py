"""Claims in this process's memory."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from adk_django.core.effects import HELD_STATES, Claim, ClaimState, Outcome, Slot
from adk_django.core.record import Answer
from adk_django.exceptions import (
    CallNotFoundError,
    LeaseLostError,
    RunConflictError,
    SettlementError,
)
from adk_django.stores.base import IdempotencyStore
from adk_django.stores.memory.space import ClaimRow, InSpace, RunRows
from adk_django.stores.settlements import moved_on, tell_contradiction, was_settled_before


class MemoryIdempotencyStore(InSpace, IdempotencyStore):
    """Claims in memory."""

    def begin(self, claim: Claim, *, fence: int) -> Claim:
        with self.space.lock:
            run, now = self.space.check(claim.tenant, claim.run_id, fence), self.space.now()
            old = run.claims.get(claim.slot)
            if old is not None:
                found = old.read()
                if found.token == claim.token or not claim.takes_over(found):
                    return found
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
            run.claims[claim.slot] = ClaimRow(fresh)
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
                    row = ClaimRow(replace(held, fence=fence, begun_at=now), text)
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
            if row is None or claim.token is None:
                return None
            ours = row.claim.token == claim.token
            contradicts = not ours and was_settled_before(claim)
            if ours and row.evidence is None and (row.outcome is None or row.claim.settled_at is not None):
                kept = replace(row.claim, evidence_at=now)
                contradicts = kept.state is ClaimState.NEVER_RAN
                if contradicts:
                    kept = replace(kept, state=ClaimState.IN_FLIGHT, contested=True)
                run.claims[claim.slot] = row = replace(row, claim=kept, evidence=text)
                run.wake(now)
        if contradicts:
            tell_contradiction(claim)
        return row.read() if ours else None

    def settle(
        self,
        run_id: str,
        slot: Slot,
        *,
        tenant: str,
        answer: Answer,
        outcome: Outcome | None,
        by: str,
        reason: str,
        attempt: int | None = None,
    ) -> Claim:
        text = None if outcome is None else outcome.encoded()
        with self.space.lock:
            run, now = self.space.read(tenant, run_id), self.space.now()
            row = run.claims.get(slot)
            if row is None:
                raise CallNotFoundError(f"run {run_id} has no call {slot} on record")
            if answer is Answer.UNKNOWN or (answer is Answer.DONE) != (outcome is not None):
                raise SettlementError(f"call {slot} is settled as done, with its outcome, or as not done")
            claim = row.claim
            if attempt not in (None, claim.attempt):
                raise moved_on(claim)
            if claim.state is not ClaimState.IN_FLIGHT:
                if claim.settled_at is not None and row.outcome == text:
                    return row.read()
                by_whom = f"settled by {claim.settled_by}" if claim.settled_at else "completed"
                raise SettlementError(f"call {slot} was {by_whom} before, as {claim.state.value}")
            told: dict[str, Any] = {"settled_at": now, "settled_by": by, "reason": reason, "contested": False}
            if outcome is not None and text is not None:
                row = row.completed(outcome, text, **told)
            else:
                if row.read().settles_by_evidence:
                    raise SettlementError(f"call {slot} has its late outcome on record: it will settle the call")
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
        replaces=None,
        replaces_state=None,
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


def _holds_key(run: RunRows, claim: Claim) -> ClaimRow | None:
    for row in run.claims.values():
        if row.claim.key == claim.key and row.claim.slot != claim.slot and row.claim.state in HELD_STATES:
            return row
    return None


def _in_flight(run: RunRows, claim: Claim) -> ClaimRow | None:
    """Return the claim in flight under the token of ``claim``, or None."""
    row = run.claims.get(claim.slot)
    if row is None or claim.token is None or row.claim.token != claim.token:
        return None
    return row if row.claim.state is ClaimState.IN_FLIGHT else None
