"""What one commit brings, as parts: one function for each kind of write, each made under the fence or not at all."""

from collections.abc import Iterator
from dataclasses import dataclass

from adk_django import models
from adk_django.core import codec
from adk_django.core.checkpoint import Checkpoint, CheckpointBoundary, HistoryHandle
from adk_django.core.effects import Claim, ClaimState, Outcome
from adk_django.core.messages import Message
from adk_django.core.record import Answer, Approval, ApprovalState, RunStatus, Settlement, Spend, Writes
from adk_django.stores.orm_rows import claim_row
from adk_django.stores.sql import Dialect, Part, Sql, both

_IN_FLIGHT = ClaimState.IN_FLIGHT.value
_NEVER_RAN = ClaimState.NEVER_RAN.value
_ENDED = ", ".join(f"'{status.value}'" for status in RunStatus if status.ended)
_RANKS = " ".join(f"WHEN '{boundary.value}' THEN {boundary.rank}" for boundary in CheckpointBoundary)
_ROWS_AT_ONCE = 100  # below the number of parameters any SQLite takes

NOT_ENDED = f"target.status NOT IN ({_ENDED})"


@dataclass(frozen=True)
class Scope:
    """Whose writes they are."""

    tenant: str
    run_id: str
    fence: int


def of_run(dialect: Dialect, scope: Scope, model: type[models.OfRun], **columns: object) -> Sql:
    """Return the condition that holds for rows of ``target`` of this run and with these values."""
    wanted = {"tenant": scope.tenant, "run_id": scope.run_id, **columns}
    values = {column: dialect.value(model, column, value) for column, value in wanted.items()}
    return both(*(Sql(f"target.{column} = {value.text}", value.params) for column, value in values.items()))


def of_claim(dialect: Dialect, claim: Claim, **columns: object) -> Sql:
    """Return the condition that holds for the row of a claim's slot, with these values."""
    scope = Scope(claim.tenant, claim.run_id, claim.fence)
    turn, position = claim.slot
    return of_run(dialect, scope, models.IdempotencyKey, turn=turn, position=position, **columns)


def transcript_stands(dialect: Dialect, scope: Scope, writes: Writes) -> Sql:
    """Return the condition that what the delta goes behind is there."""
    handle = writes.extends
    if not writes.delta or handle is None or handle.length == 0:
        return Sql("1 = 1")
    where = of_run(
        dialect,
        scope,
        models.TranscriptMessage,
        generation=handle.generation,
        position=handle.length - 1,
        digest=handle.digest,
    )
    return Sql(f"EXISTS (SELECT 1 FROM adk_transcript_messages AS target WHERE {where.text})", where.params)


def frontier_rises(dialect: Dialect, scope: Scope, writes: Writes) -> Sql:
    """Return the condition that the stored frontier is a lower one, or the same."""
    if writes.frontier is None:
        return Sql("1 = 1")
    turn, rank = writes.frontier.sequence
    where = of_run(dialect, scope, models.Checkpoint)
    place = f"(target.turn, CASE target.boundary {_RANKS} END)"
    text = (
        f"NOT EXISTS (SELECT 1 FROM adk_checkpoints AS target WHERE {where.text} "
        "AND (target.fence > %s OR target.fence = %s "
        f"AND ({place} > (%s, %s) OR {place} = (%s, %s) AND target.digest <> %s)))"
    )
    fence, digest = scope.fence, writes.frontier.digest
    return Sql(text, (*where.params, fence, fence, turn, rank, turn, rank, digest))


def parts_of(dialect: Dialect, scope: Scope, writes: Writes, *, gated: bool) -> list[Part]:
    """Return the parts of ``writes``.

    ``gated`` claims also need that nobody cancels and that their approval is granted.
    Counted are ``claim_N``, ``outcome_N`` and ``settlement_N``, numbered as they stand in ``writes``.
    """
    parts: list[Part] = []
    for number, claim in enumerate(writes.outcomes):
        if claim.outcome is not None:
            parts.append(_outcome(dialect, scope, claim, claim.outcome, f"outcome_{number}"))
    for number, claim in enumerate(writes.failures):
        where = both(of_claim(dialect, claim, token=claim.token, state=_IN_FLIGHT), dialect.open)
        parts.append(
            Part(f"failure_{number}", dialect.update(models.IdempotencyKey, {"error": claim.error}, where=where))
        )
    for number, item in enumerate(writes.settlements):
        parts += _settlement(dialect, scope, item, f"settlement_{number}")
    for number, claim in enumerate(writes.abandoned):
        where = both(of_claim(dialect, claim, token=claim.token, state=_IN_FLIGHT), dialect.open)
        parts.append(Part(f"abandoned_{number}", delete(models.IdempotencyKey, where)))
    for number, spend in enumerate(writes.spend):
        parts.append(_spend(dialect, scope, spend, f"spend_{number}"))
    if writes.delta and writes.extends is not None:
        parts += _delta(dialect, scope, writes.extends, writes.delta)
    if writes.frontier is not None and not writes.ends:
        parts.append(_frontier(dialect, scope, writes.frontier))
    for number, request in enumerate(writes.requests):
        parts.append(_request(dialect, scope, request, f"request_{number}"))
    parts += _row(dialect, scope, writes)
    for number, claim in enumerate(writes.claims):
        parts += _claim(dialect, scope, claim, f"claim_{number}", gated=gated)
    return parts


def delete(model: type[models.OfRun], where: Sql) -> Sql:
    """Return a DELETE of the rows where ``where`` holds."""
    return Sql(f"DELETE FROM {model._meta.db_table} AS target WHERE {where.text}", where.params)


def settled(dialect: Dialect, answer: Answer, outcome: str | None, by: str, reason: str, state: ClaimState) -> Sql:
    """Return the list behind SET that answers for a call in flight."""
    changes = {
        "state": state.value,
        "outcome": outcome,
        "settled_at": Sql(dialect.at),
        "settled_by": by,
        "reason": reason,
        "contested": False,
    }
    return dialect.assign(models.IdempotencyKey, changes)


def past_deadline(dialect: Dialect, answer: Answer) -> str:
    """Return the condition that an answer may be given by now: that nothing happened only past the deadline."""
    return f"target.deadline_at <= {dialect.at}" if answer is Answer.NOT_DONE else "1 = 1"


def event(dialect: Dialect, kind: str, *, where: str, name: str, after: str | None = None, **columns: object) -> Part:
    """Return the part that adds one row to the audit."""
    row = {"kind": kind, "at": Sql(dialect.at), "by": "", "reason": "", "detail": "", **columns}
    row = {"turn": None, "position": None, **row}
    return Part(name, dialect.insert(models.RunEvent, row, where=Sql(where), conflict=Sql("")), after=after)


def _outcome(dialect: Dialect, scope: Scope, claim: Claim, outcome: Outcome, name: str) -> Part:
    done = {"state": ClaimState.of(outcome).value, "outcome": outcome.encoded()}
    if claim.token is not None:
        where = both(of_claim(dialect, claim, token=claim.token, state=_IN_FLIGHT), dialect.open)
        return Part(name, dialect.update(models.IdempotencyKey, done, where=where), counted=True)
    row = _claim_row(dialect, scope, claim) | done | {"deadline_at": None, "holder": ""}
    return Part(
        name,
        dialect.insert(models.IdempotencyKey, row, where=Sql(dialect.open), conflict=Sql("ON CONFLICT DO NOTHING")),
        counted=True,
    )


def _claim_row(dialect: Dialect, scope: Scope, claim: Claim) -> dict[str, object]:
    where = of_run(dialect, scope, models.RunLease)
    holder = Sql(f"(SELECT target.holder FROM adk_run_leases AS target WHERE {where.text})", where.params)
    return {
        **claim_row(claim),
        "fence": scope.fence,
        "state": _IN_FLIGHT,
        "outcome": None,
        "begun_at": Sql(dialect.at),
        "deadline_at": dialect.later(claim.limit_seconds),
        "holder": claim.holder or holder,
        "error": "",
        "settled_at": None,
        "settled_by": "",
        "reason": "",
        "late_outcome": None,
        "late_at": None,
        "contested": False,
    }


def _claim(dialect: Dialect, scope: Scope, claim: Claim, name: str, *, gated: bool) -> Iterator[Part]:
    conditions: list[Sql | str] = [dialect.open]
    if gated:
        conditions.append(dialect.uncancelled)
    if gated and claim.request_id is not None:
        where = of_run(
            dialect,
            scope,
            models.Approval,
            request_id=claim.request_id,
            digest=claim.digest,
            state=ApprovalState.GRANTED.value,
        )
        granted = Sql(f"SELECT 1 FROM adk_approvals AS target WHERE {where.text} AND {dialect.open}", where.params)
        if dialect.postgres:
            yield Part(f"{name}_granted", Sql(f"{granted.text} FOR SHARE", granted.params))
            conditions.append(dialect.after(f"{name}_granted"))
        else:
            conditions.append(Sql(f"EXISTS ({granted.text})", granted.params))
    row = _claim_row(dialect, scope, claim)
    conflict = Sql("ON CONFLICT DO NOTHING")  # neither where the slot has a claim nor where another holds the key
    if claim.replaces is not None:
        conditions.append(_key_free(dialect, scope, claim))
        taken = ", ".join(f"{column} = excluded.{column}" for column in row)
        conflict = Sql(
            f"ON CONFLICT (tenant, run_id, turn, position) DO UPDATE SET {taken} "
            f"WHERE target.token = %s AND target.state IN ('{_IN_FLIGHT}', '{_NEVER_RAN}')",
            (claim.replaces,),
        )
    insert = dialect.insert(models.IdempotencyKey, row, where=both(*conditions), conflict=conflict)
    yield Part(name, insert, counted=True)


def _key_free(dialect: Dialect, scope: Scope, claim: Claim) -> Sql:
    # Whoever held the fence before has committed before this snapshot was taken, so no other holder can come to light.
    where = of_run(dialect, scope, models.IdempotencyKey, key=claim.key)
    text = (
        f"NOT EXISTS (SELECT 1 FROM adk_idempotency_keys AS target WHERE {where.text} "
        f"AND (target.turn, target.position) <> (%s, %s) AND target.state IN ('{_IN_FLIGHT}', 'done', '{_NEVER_RAN}'))"
    )
    return Sql(text, (*where.params, *claim.slot))


def _settlement(dialect: Dialect, scope: Scope, item: Settlement, name: str) -> Iterator[Part]:
    claim, outcome = item.claim, item.outcome
    state = ClaimState.NEVER_RAN if outcome is None else ClaimState.of(outcome)
    changes = settled(dialect, item.answer, None if outcome is None else outcome.encoded(), item.by, item.reason, state)
    where = both(
        of_claim(dialect, claim, token=claim.token, state=_IN_FLIGHT),
        past_deadline(dialect, item.answer),
        dialect.open,
    )
    text = f"UPDATE adk_idempotency_keys AS target SET {changes.text} WHERE {where.text}"
    yield Part(name, Sql(text, changes.params + where.params), counted=True)
    yield event(
        dialect,
        "settled",
        name=f"{name}_event",
        where=dialect.after(name),
        after=name,
        tenant=scope.tenant,
        run_id=scope.run_id,
        turn=claim.slot.turn,
        position=claim.slot.position,
        by=item.by,
        reason=item.reason,
        detail=item.answer.value,
    )


def _spend(dialect: Dialect, scope: Scope, spend: Spend, name: str) -> Part:
    row = {
        "tenant": scope.tenant,
        "run_id": scope.run_id,
        "turn": spend.turn,
        "fence": spend.fence,
        "input_tokens": spend.usage.input_tokens,
        "output_tokens": spend.usage.output_tokens,
        "unknown_calls": spend.usage.unknown_calls,
        "cost_micros": spend.cost_micros,
        "spent_at": Sql(dialect.at),
    }
    conflict = Sql("ON CONFLICT (tenant, run_id, turn, fence) DO NOTHING")
    return Part(name, dialect.insert(models.Spend, row, where=Sql(dialect.open), conflict=conflict))


def _delta(dialect: Dialect, scope: Scope, handle: HistoryHandle, messages: tuple[Message, ...]) -> Iterator[Part]:
    rolling, rows = handle.digest, []
    for position, message in enumerate(messages, handle.length):
        rolling = codec.chain(rolling, message.encoded)
        rows.append((position, message.encoded, rolling))
    if dialect.postgres:
        source = Sql("unnest(%s::integer[], %s::text[], %s::text[])", tuple(map(list, zip(*rows, strict=True))))
        yield Part("delta", _lines(dialect, scope, handle, source))
        return
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[start : start + _ROWS_AT_ONCE]
        values = Sql(", ".join(["(%s, %s, %s)"] * len(some)), tuple(value for row in some for value in row))
        source = Sql(f"(VALUES {values.text})", values.params)
        yield Part(f"delta_{start}", _lines(dialect, scope, handle, source))


def _lines(dialect: Dialect, scope: Scope, handle: HistoryHandle, source: Sql) -> Sql:
    names = "line" if not dialect.postgres else "line (column1, column2, column3)"
    fixed = {"tenant": scope.tenant, "run_id": scope.run_id, "generation": handle.generation, "fence": scope.fence}
    values = [dialect.value(models.TranscriptMessage, column, value) for column, value in fixed.items()]
    text = (
        f"INSERT INTO adk_transcript_messages AS target ({', '.join(fixed)}, position, payload, digest) "
        f"SELECT {', '.join(value.text for value in values)}, line.column1, line.column2, line.column3 "
        f"FROM {source.text} AS {names} WHERE {dialect.open} "
        "ON CONFLICT (tenant, run_id, generation, position) DO UPDATE "
        "SET payload = excluded.payload, digest = excluded.digest, fence = excluded.fence "
        "WHERE target.fence <= excluded.fence"
    )
    return Sql(text, (*(item for value in values for item in value.params), *source.params))


def _frontier(dialect: Dialect, scope: Scope, frontier: Checkpoint) -> Part:
    row = {
        "tenant": scope.tenant,
        "run_id": scope.run_id,
        "format_version": frontier.format_version,
        "boundary": frontier.boundary.value,
        "turn": frontier.turn,
        "fence": scope.fence,
        "size": len(frontier.encoded),
        "digest": frontier.digest,
        "payload": frontier.encoded,
        "created_at": Sql(dialect.at),
    }
    newer = ", ".join(f"{column} = excluded.{column}" for column in row)
    conflict = Sql(
        f"ON CONFLICT (tenant, run_id) DO UPDATE SET {newer} "
        "WHERE NOT (target.fence = excluded.fence AND target.digest = excluded.digest)"
    )
    return Part("frontier", dialect.insert(models.Checkpoint, row, where=Sql(dialect.open), conflict=conflict))


def _request(dialect: Dialect, scope: Scope, request: Approval, name: str) -> Part:
    seconds = request.expires_seconds
    row = {
        "tenant": scope.tenant,
        "run_id": scope.run_id,
        "request_id": request.request_id,
        "turn": request.slot.turn,
        "position": request.slot.position,
        "tool": request.tool,
        "digest": request.digest,
        "arguments": codec.encode(request.arguments),
        "summary": request.summary,
        "state": ApprovalState.REQUESTED.value,
        "edited": None,
        "expires_seconds": seconds,
        "expires_at": None if seconds is None else dialect.later(seconds),
        "requested_at": Sql(dialect.at),
        "decided_at": None,
        "decided_by": "",
        "reason": "",
    }
    asked = ", ".join(f"{column} = excluded.{column}" for column in row)
    conflict = Sql(
        f"ON CONFLICT (tenant, run_id, turn, position) DO UPDATE SET {asked} "
        f"WHERE target.request_id <> excluded.request_id "
        f"AND NOT (target.state = '{ApprovalState.GRANTED.value}' AND target.digest = excluded.digest)"
    )
    where = of_run(dialect, scope, models.Run)
    ended = Sql(f"NOT EXISTS (SELECT 1 FROM adk_runs AS target WHERE {where.text} AND NOT {NOT_ENDED})", where.params)
    return Part(name, dialect.insert(models.Approval, row, where=both(dialect.open, ended), conflict=conflict))


def _row(dialect: Dialect, scope: Scope, writes: Writes) -> Iterator[Part]:
    changes: dict[str, object] = {
        "fence": Sql(f"{dialect.greatest}(target.fence, %s)", (scope.fence,)),
        "updated_at": Sql(dialect.at),
    }
    moved = [Sql("target.fence < %s", (scope.fence,))]
    if writes.begins:
        changes["begun_at"] = Sql(f"coalesce(target.begun_at, {dialect.at})")
        moved.append(Sql("target.begun_at IS NULL"))
    for column in ("revision", "failed_save"):
        if (value := getattr(writes, column)) is not None:
            changes[column] = value
            new = dialect.value(models.Run, column, value)
            moved.append(Sql(f"NOT (target.{column} {dialect.same} {new.text})", new.params))
    if writes.status is not None:
        seen = dialect.value(models.Run, "wake_at", writes.wake_seen)
        wake = dialect.value(models.Run, "wake_at", writes.wake_at)
        changes |= {
            "status": writes.status.value,
            "reason": writes.reason,
            "output": writes.output,
            "wake_at": Sql(
                f"CASE WHEN target.wake_at {dialect.same} {seen.text} THEN {wake.text} ELSE target.wake_at END",
                seen.params + wake.params,
            ),
        }
        moved = [Sql("1 = 1")]
    changed = Sql(
        f"({' OR '.join(item.text for item in moved)})", tuple(value for item in moved for value in item.params)
    )
    where = both(of_run(dialect, scope, models.Run), NOT_ENDED, changed, dialect.open)
    yield Part("run_row", dialect.update(models.Run, changes, where=where))
