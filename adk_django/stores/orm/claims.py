"""Claims in the product's database."""

from collections.abc import Sequence
from dataclasses import replace

from django.db import connections

from adk_django import models
from adk_django.core.effects import HELD_STATES, Claim, ClaimState, Outcome, Slot
from adk_django.core.record import Answer, Writes
from adk_django.exceptions import CallNotFoundError, RunConflictError, SettlementError
from adk_django.stores.base import IdempotencyStore
from adk_django.stores.orm.base import OnAlias, lost
from adk_django.stores.orm.call_parts import acceptable, of_slot, settled, told, woken
from adk_django.stores.orm.connection import mapped
from adk_django.stores.orm.fenced_write import Applied, Scope, apply
from adk_django.stores.orm.rows import claim_of, same
from adk_django.stores.orm.sql import AT, Clock, Dialect, Part, Sql, run_joined
from adk_django.stores.settlements import moved_on, tell_contradiction, was_settled_before

_OPEN_TO_EVIDENCE = (
    "target.late_outcome IS NULL AND (target.state IN ('in_flight', 'never_ran') OR target.settled_at IS NOT NULL)"
)


class OrmIdempotencyStore(OnAlias, IdempotencyStore):
    """Claims in ``adk_idempotency_keys``."""

    model = models.IdempotencyKey

    def begin(self, claim: Claim, *, fence: int) -> Claim:
        with mapped(self.alias):
            applied = self._apply(claim, fence, Writes(claims=(claim,)))
            if applied.counts["claim_0"]:
                (found,) = self._rows(claim.run_id, claim.tenant, turn=claim.slot.turn, position=claim.slot.position)
                return found
            rows = self._rows(claim.run_id, claim.tenant)
        mine = [found for found in rows if found.slot == claim.slot]
        others = [found for found in rows if found.slot != claim.slot and found.key == claim.key]
        holds = [found for found in others if found.state in HELD_STATES]
        return (holds if holds and all(map(claim.takes_over, mine)) else mine)[0]

    def look_up(self, run_id: str, *, tenant: str, keys: Sequence[str] | None = None) -> tuple[Claim, ...]:
        with mapped(self.alias):
            return self._rows(run_id, tenant, **({} if keys is None else {"key__in": list(keys)}))

    def record(self, claim: Claim, outcome: Outcome, *, fence: int) -> Claim:
        done = replace(claim, outcome=outcome)
        with mapped(self.alias):
            scope = Scope(claim.tenant, claim.run_id, fence)
            applied = apply(connections[self.alias], scope, Writes(outcomes=(done,)))
            if applied is None:
                self.evidence(claim, outcome)
                raise lost(self.alias, scope)
            found = self._of_slot(claim)
            if found is not None and found.token == claim.token and same(found.outcome, outcome):
                return found
            self.evidence(claim, outcome)
        raise RunConflictError(claim.run_id, f"outcome of call {claim.slot}")

    def abandon(self, claim: Claim, *, fence: int) -> None:
        with mapped(self.alias):
            self._apply(claim, fence, Writes(abandoned=(claim,)))

    def note_error(self, claim: Claim, *, fence: int) -> None:
        with mapped(self.alias):
            self._apply(claim, fence, Writes(failures=(claim,)))

    def evidence(self, claim: Claim, outcome: Outcome) -> Claim | None:
        if claim.token is None:
            return None
        with mapped(self.alias):
            kept = self._keep(claim, outcome)
            found = self._of_slot(claim)
            if found is not None and found.token != claim.token and not kept:
                self._tell(claim)
        if found is None:
            return None
        if found.token != claim.token:
            if was_settled_before(claim):
                tell_contradiction(claim)
            return None
        if kept and found.contested:
            tell_contradiction(claim)
        return found

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
        if answer is Answer.UNKNOWN or (answer is Answer.DONE) != (outcome is not None):
            raise SettlementError(f"call {slot} is settled as done, with its outcome, or as not done")
        with mapped(self.alias):
            won = self._settle(run_id, slot, tenant, answer, outcome, by, reason, attempt)
            rows = self._rows(run_id, tenant, turn=slot.turn, position=slot.position)
        if not rows:
            raise CallNotFoundError(f"run {run_id} has no call {slot} on record")
        (found,) = rows
        if not won and attempt not in (None, found.attempt):
            raise moved_on(found)
        if won or (found.settled_at and found.state is not ClaimState.IN_FLIGHT and same(found.outcome, outcome)):
            return found
        if found.settles_by_evidence:
            raise SettlementError(f"call {slot} has its late outcome on record: it will settle the call")
        if found.state is ClaimState.IN_FLIGHT and found.deadline_at is not None:
            instant = found.deadline_at.isoformat()
            raise SettlementError(f"call {slot} may still be made: not done is accepted from {instant}")
        by_whom = f"settled by {found.settled_by}" if found.settled_at else "completed"
        raise SettlementError(f"call {slot} was {by_whom} before, as {found.state.value}")

    def forget(self, run_id: str, *, tenant: str, fence: int) -> None:
        with mapped(self.alias):
            scope = Scope(tenant, run_id, fence)
            if apply(connections[self.alias], scope, Writes(), forgets=(models.IdempotencyKey,)) is None:
                raise lost(self.alias, scope)

    def _apply(self, claim: Claim, fence: int, writes: Writes) -> Applied:
        scope = Scope(claim.tenant, claim.run_id, fence)
        applied = apply(connections[self.alias], scope, writes)
        if applied is None:
            raise lost(self.alias, scope)
        return applied

    def _rows(self, run_id: str, tenant: str, **wanted: object) -> tuple[Claim, ...]:
        rows = models.IdempotencyKey.objects.using(self.alias).filter(tenant=tenant, run_id=run_id, **wanted)
        return tuple(claim_of(row) for row in rows.order_by("turn", "position"))

    def _of_slot(self, claim: Claim) -> Claim | None:
        turn, position = claim.slot
        return next(iter(self._rows(claim.run_id, claim.tenant, turn=turn, position=position)), None)

    def _keep(self, claim: Claim, outcome: Outcome) -> bool:
        """Keep evidence under the token of its claim, once; return whether it was kept now."""
        dialect, turn, position = Dialect(connections[self.alias]), *claim.slot
        contradicts = f"target.state = '{ClaimState.NEVER_RAN.value}'"
        changes = {
            "late_outcome": outcome.encoded(),
            "late_at": AT,
            "contested": Sql(contradicts),
            "state": Sql(f"CASE WHEN {contradicts} THEN '{ClaimState.IN_FLIGHT.value}' ELSE target.state END"),
        }
        token = Sql("target.token = %s", (claim.token,))
        where = (of_slot(dialect, claim), token, _OPEN_TO_EVIDENCE)
        parts = [
            Part("kept", dialect.update(models.IdempotencyKey, changes, *where), counted=True),
            woken(dialect, after="kept"),
            told(dialect, "evidence", after="kept", turn=turn, position=position, by=claim.holder),
        ]
        return bool(run_joined(dialect, claim.tenant, claim.run_id, parts))

    def _tell(self, claim: Claim) -> None:
        """Add evidence of an earlier attempt to the audit; it changes nothing else."""
        models.RunEvent.objects.using(self.alias).create(
            tenant=claim.tenant,
            run_id=claim.run_id,
            kind="evidence",
            at=Clock(),
            by=claim.holder,
            turn=claim.slot.turn,
            position=claim.slot.position,
            detail="of an earlier attempt",
        )

    def _settle(
        self,
        run_id: str,
        slot: Slot,
        tenant: str,
        answer: Answer,
        outcome: Outcome | None,
        by: str,
        reason: str,
        attempt: int | None,
    ) -> bool:
        dialect, (turn, position) = Dialect(connections[self.alias]), slot
        looked_at = {} if attempt is None else {"attempt": attempt}
        where = (
            dialect.is_(
                models.IdempotencyKey, turn=turn, position=position, state=ClaimState.IN_FLIGHT.value, **looked_at
            ),
            acceptable(answer),
        )
        answered = dialect.update(models.IdempotencyKey, settled(answer, outcome, by, reason), *where)
        told_by = {"by": by, "reason": reason, "detail": answer.value}
        parts = [
            Part("answered", answered, counted=True),
            woken(dialect, after="answered"),
            told(dialect, "settled", after="answered", turn=turn, position=position, **told_by),
        ]
        return bool(run_joined(dialect, tenant, run_id, parts))
