"""Claims in Redis. Who waits for an answer is woken, and the audit told, in the run's database."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import connections

from adk_django import models
from adk_django.core import codec
from adk_django.core.effects import HELD_STATES, Claim, ClaimState, EffectClass, Outcome, Slot
from adk_django.core.record import Answer
from adk_django.exceptions import (
    CallNotFoundError,
    CheckpointDamagedError,
    LeaseLostError,
    RunConflictError,
    SettlementError,
)
from adk_django.stores.base import IdempotencyStore, readable
from adk_django.stores.orm import connection, sql
from adk_django.stores.orm.call_parts import woken
from adk_django.stores.redis import claim_scripts as scripts
from adk_django.stores.redis.client import InCache, instant, keys_of, mapped, milliseconds, text_of
from adk_django.stores.settlements import moved_on, tell_contradiction, was_settled_before

_NULL = "null"
_PLAIN = ("key", "tool", "guaranteed", "digest", "token", "request_id", "attempt", "limit_seconds", "error", "holder")


class RedisIdempotencyStore(InCache, IdempotencyStore):
    """Claims in Redis: those of a run are one hash, with a field for each slot and for each key that is held."""

    def begin(self, claim: Claim, *, fence: int) -> Claim:
        may_replace = "1" if claim.may_replace else ""
        replaces = codec.encode(claim.replaces)
        state = codec.encode(None if claim.replaces_state is None else claim.replaces_state.value)
        asked = (str(claim.slot), milliseconds(claim.limit_seconds), replaces, state, may_replace, _sent(claim))
        _, slot, text = self.under(scripts.BEGIN, claim.tenant, claim.run_id, fence, *asked)
        return _read(claim.tenant, claim.run_id, slot, text)

    def look_up(self, run_id: str, *, tenant: str, keys: Sequence[str] | None = None) -> tuple[Claim, ...]:
        with mapped(self.cache):
            found = self.client.hgetall(keys_of(tenant, run_id)[2])
        rows = {text_of(name): text_of(value) for name, value in found.items()}
        claims = [_read(tenant, run_id, slot, text) for slot, text in rows.items() if not slot.startswith("key ")]
        wanted = (claim for claim in claims if keys is None or claim.key in keys)
        return tuple(sorted(wanted, key=lambda claim: claim.slot))

    def record(self, claim: Claim, outcome: Outcome, *, fence: int) -> Claim:
        tenant, run_id = claim.tenant, claim.run_id
        asked = (str(claim.slot), *_outcome(outcome), _sent(claim))
        try:
            said = self.under(scripts.RECORD, tenant, run_id, fence, *asked)
        except LeaseLostError:
            self.evidence(claim, outcome)
            raise
        if said[0] == "conflict":
            self.evidence(claim, outcome)
            raise RunConflictError(run_id, f"outcome of call {claim.slot}")
        return _read(tenant, run_id, *said[1:])

    def abandon(self, claim: Claim, *, fence: int) -> None:
        token = codec.encode(claim.token)
        self.under(scripts.ABANDON, claim.tenant, claim.run_id, fence, str(claim.slot), token)

    def note_error(self, claim: Claim, *, fence: int) -> None:
        asked = str(claim.slot), codec.encode(claim.token), codec.encode(claim.error)
        self.under(scripts.NOTE_ERROR, claim.tenant, claim.run_id, fence, *asked)

    def evidence(self, claim: Claim, outcome: Outcome) -> Claim | None:
        if claim.token is None:
            return None
        asked = str(claim.slot), codec.encode(claim.token), outcome.encoded()
        status, *said = self.call(scripts.EVIDENCE, claim.tenant, claim.run_id, *asked)
        if status == "none":
            return None
        if status == "other":
            self._tell(claim, "evidence", by=claim.holder, detail="of an earlier attempt", wakes=False)
            if was_settled_before(claim):
                tell_contradiction(claim)
            return None
        found = _read(claim.tenant, claim.run_id, *said)
        if status == "kept":
            self._tell(claim, "evidence", by=claim.holder)
            if found.contested:
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
        asked = (str(slot), *_outcome(outcome), codec.encode(by), codec.encode(reason), codec.encode(attempt))
        status, *said = self.call(scripts.SETTLE, tenant, run_id, *asked)
        if status == "none":
            raise CallNotFoundError(f"run {run_id} has no call {slot} on record")
        found = _read(tenant, run_id, *said)
        match status:
            case "moved":
                raise moved_on(found)
            case "late":
                raise SettlementError(f"call {slot} has its late outcome on record: it will settle the call")
            case "early" if found.deadline_at is not None:
                instant_ = found.deadline_at.isoformat()
                raise SettlementError(f"call {slot} may still be made: not done is accepted from {instant_}")
            case "before":
                by_whom = f"settled by {found.settled_by}" if found.settled_at else "completed"
                raise SettlementError(f"call {slot} was {by_whom} before, as {found.state.value}")
        self._tell(found, "settled", by=by, reason=reason, detail=answer.value)
        return found

    def forget(self, run_id: str, *, tenant: str, fence: int) -> None:
        self.under(scripts.FORGET_CLAIMS, tenant, run_id, fence)

    def _tell(self, claim: Claim, kind: str, *, wakes: bool = True, **columns: object) -> None:
        """Add to the run's audit, and wake it. After the answer: told twice where somebody had to answer twice."""
        alias, (turn, position) = connection.alias_for(models.Run, self.using), claim.slot
        with connection.mapped(alias):
            dialect = sql.Dialect(connections[alias])
            row = {"kind": kind, "at": sql.Sql("at"), "reason": "", "turn": turn, "position": position, "detail": ""}
            parts = [sql.Part("told", dialect.insert(models.RunEvent, row | columns), counted=True)]
            if wakes:
                parts.append(woken(dialect, after="told"))
            sql.run_joined(dialect, claim.tenant, claim.run_id, parts)


def _outcome(outcome: Outcome | None) -> tuple[str, str, str]:
    """Return an outcome, the state of a call that has it, and whether that state holds the key, for a script."""
    state = ClaimState.NEVER_RAN if outcome is None else ClaimState.of(outcome)
    text = _NULL if outcome is None else outcome.encoded()
    return text, codec.encode(state.value), "1" if state in HELD_STATES else ""


def _sent(claim: Claim) -> str:
    """Return what the claimer says of ``claim``, as its row: what is added later is not there yet."""
    row = {name: codec.encode(getattr(claim, name)) for name in _PLAIN}
    row |= {"effect": codec.encode(claim.effect.value), "state": codec.encode(ClaimState.IN_FLIGHT.value)}
    row |= {"error": '""', "settled_by": '""', "reason": '""', "contested": "false", "fence": "0"}
    later = ("begun_at", "deadline_at", "outcome", "settled_at", "evidence", "evidence_at")
    return json.dumps(row | dict.fromkeys(later, _NULL))


def _read(tenant: str, run_id: str, slot: str, text: str) -> Claim:
    """Return the claim of a field. Raise CheckpointDamagedError if it cannot be read."""
    where = f"the claim of call {slot} of run {run_id}"
    try:
        row: Mapping[str, str] = json.loads(text)
        with readable(where):
            plain: dict[str, Any] = {name: codec.decode(row[name]) for name in _PLAIN}
            plain |= {name: codec.decode(row[name]) for name in ("settled_by", "reason", "contested")}
            return Claim(
                tenant=tenant,
                run_id=run_id,
                slot=Slot.parse(slot),
                effect=EffectClass(codec.decode(row["effect"])),
                state=ClaimState(codec.decode(row["state"])),
                fence=int(row["fence"]),
                **{name: _instant(row[name]) for name in ("begun_at", "deadline_at", "settled_at", "evidence_at")},
                **{name: _kept(row[name]) for name in ("outcome", "evidence")},
                **plain,
            )
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointDamagedError(f"{where} cannot be read: {type(error).__name__}") from error


def _instant(text: str) -> Any:
    return None if text == _NULL else instant(text)


def _kept(text: str) -> Any:
    return None if text == _NULL else Outcome.decoded(text)
