"""The parts that write what is known of calls, and what people and probes answer for them."""

from collections.abc import Iterator, Mapping

from adk_django import models
from adk_django.core.effects import Claim, ClaimState, Outcome
from adk_django.core.record import Answer, ApprovalState, RunStatus, Settlement
from adk_django.stores.orm.rows import claim_row
from adk_django.stores.orm.sql import AT, Dialect, Part, Sql, quoted

_IN_FLIGHT = ClaimState.IN_FLIGHT.value
_NEVER_RAN = ClaimState.NEVER_RAN.value
_GRANTED = ApprovalState.GRANTED.value

ENDED = "status IN ({})".format(", ".join(f"'{status.value}'" for status in RunStatus if status.ended))


def of_slot(dialect: Dialect, claim: Claim) -> Sql:
    """Return the condition that a row is that of the claim's slot."""
    return dialect.is_(models.IdempotencyKey, turn=claim.slot.turn, position=claim.slot.position)


def in_flight(dialect: Dialect, claim: Claim) -> tuple[Sql | str, ...]:
    """Return the conditions that a row is that claim, in flight under its token."""
    token = Sql("target.token = %s", (claim.token,))
    return of_slot(dialect, claim), token, f"target.state = '{_IN_FLIGHT}'"


def settled(answer: Answer, outcome: Outcome | None, by: str, reason: str) -> dict[str, object]:
    """Return the changes that answer for a call in flight."""
    state = ClaimState.NEVER_RAN if outcome is None else ClaimState.of(outcome)
    return {
        "state": state.value,
        "outcome": None if outcome is None else outcome.encoded(),
        "settled_at": AT,
        "settled_by": by,
        "reason": reason,
        "contested": False,
    }


def acceptable(answer: Answer) -> str:
    """Return the condition that an answer may be given by now: that nothing happened only past the deadline, and where
    no late outcome says otherwise."""
    if answer is not Answer.NOT_DONE:
        return "1 = 1"
    return f"target.deadline_at <= {AT.text} AND (target.late_outcome IS NULL OR target.contested)"


def told(dialect: Dialect, kind: str, *, after: str, **columns: object) -> Part:
    """Return the part that adds to the audit what ``after`` did."""
    row = {"kind": kind, "at": Sql("at"), "by": "", "reason": "", "turn": None, "position": None, "detail": ""}
    return Part(f"{after}_told", dialect.insert(models.RunEvent, row | columns, dialect.after(after)), after=after)


def woken(dialect: Dialect, *, after: str) -> Part:
    """Return the part that lets the run be due at once, unless it has ended."""
    wake = dialect.update(models.Run, {"wake_at": AT}, f"NOT target.{ENDED}", dialect.after(after))
    return Part(f"{after}_woken", wake, after=after)


def outcome_part(dialect: Dialect, claim: Claim, outcome: Outcome, name: str) -> Part:
    done = {"state": ClaimState.of(outcome).value, "outcome": outcome.encoded()}
    if claim.token is not None:
        return Part(name, dialect.update(models.IdempotencyKey, done, *in_flight(dialect, claim)), counted=True)
    row = _claim_row(dialect, claim) | done | {"deadline_at": None, "holder": ""}
    return Part(name, dialect.insert(models.IdempotencyKey, row, conflict="ON CONFLICT DO NOTHING"), counted=True)


def claim_parts(dialect: Dialect, claim: Claim, name: str, *, gated: bool) -> Iterator[Part]:
    when: list[Sql | str] = ["cancel_requested_at IS NULL"] if gated else []
    if gated and claim.request_id is not None:
        asked = dialect.is_(models.Approval, request_id=claim.request_id, digest=claim.digest, state=_GRANTED)
        granted = Sql(
            "SELECT 1 FROM ready JOIN adk_approvals AS target USING (tenant, run_id) WHERE ok AND " + asked.text,
            asked.params,
        )
        if dialect.postgres:
            yield Part(f"{name}_granted", Sql(f"{granted.text} FOR SHARE OF target", granted.params))
            when.append(dialect.after(f"{name}_granted"))
        else:
            when.append(Sql(f"EXISTS ({granted.text})", granted.params))
    row = _claim_row(dialect, claim)
    conflict = Sql("ON CONFLICT DO NOTHING")  # neither where the slot has a claim nor where another holds the key
    if claim.may_replace and claim.replaces_state is not None:
        when.append(_key_free(dialect, claim))
        late = " AND target.late_outcome IS NULL" if claim.replaces_state is ClaimState.IN_FLIGHT else ""
        conflict = Sql(
            f"ON CONFLICT (tenant, run_id, turn, position) DO UPDATE SET {excluded(row)} "
            f"WHERE target.token = %s AND target.state = %s AND NOT target.contested{late}",
            (claim.replaces, claim.replaces_state.value),
        )
    yield Part(name, dialect.insert(models.IdempotencyKey, row, *when, conflict=conflict), counted=True)


def settlement_parts(dialect: Dialect, item: Settlement, name: str) -> Iterator[Part]:
    changes = settled(item.answer, item.outcome, item.by, item.reason)
    where = (*in_flight(dialect, item.claim), acceptable(item.answer))
    yield Part(name, dialect.update(models.IdempotencyKey, changes, *where), counted=True)
    turn, position = item.claim.slot
    told_by = {"by": item.by, "reason": item.reason, "detail": item.answer.value}
    yield told(dialect, "settled", after=name, turn=turn, position=position, **told_by)


def excluded(row: Mapping[str, object]) -> str:
    return ", ".join(f"{quoted(column)} = excluded.{quoted(column)}" for column in row)


def _claim_row(dialect: Dialect, claim: Claim) -> dict[str, object]:
    return {
        **claim_row(claim),
        "fence": Sql("fence"),
        "state": _IN_FLIGHT,
        "outcome": None,
        "begun_at": Sql("at"),
        "deadline_at": dialect.later(claim.limit_seconds, "at"),
        "holder": claim.holder or Sql("holder"),
        "error": "",
        "settled_at": None,
        "settled_by": "",
        "reason": "",
        "late_outcome": None,
        "late_at": None,
        "contested": False,
    }


def _key_free(dialect: Dialect, claim: Claim) -> Sql:
    # Whoever held the fence before has committed before this snapshot was taken: no other holder can come to light.
    key = dialect.is_(models.IdempotencyKey, key=claim.key)
    text = (
        f"NOT EXISTS (SELECT 1 FROM ready JOIN adk_idempotency_keys AS target USING (tenant, run_id) WHERE {key.text} "
        f"AND (target.turn, target.position) <> (%s, %s) AND target.state IN ('{_IN_FLIGHT}', 'done', '{_NEVER_RAN}'))"
    )
    return Sql(text, (*key.params, *claim.slot))
