"""What one commit brings, as parts: one function for each kind of write, each made under the fence or not at all."""

from collections.abc import Iterator

from adk_django import models
from adk_django.core import codec
from adk_django.core.checkpoint import Checkpoint, CheckpointBoundary, HistoryHandle
from adk_django.core.messages import Message
from adk_django.core.record import Approval, ApprovalState, RunStatus, Spend, Writes
from adk_django.stores.orm.call_parts import (
    ENDED,
    claim_parts,
    excluded,
    in_flight,
    outcome_part,
    settlement_parts,
)
from adk_django.stores.orm.sql import AT, Dialect, Part, Sql

_GRANTED = ApprovalState.GRANTED.value
_RANKS = " ".join(f"WHEN '{boundary.value}' THEN {boundary.rank}" for boundary in CheckpointBoundary)
_ROWS_AT_ONCE = 100  # below the number of parameters any SQLite takes


def stands(dialect: Dialect, writes: Writes) -> Sql:
    """Return the condition, beside ``gate``, that what the delta goes behind is there."""
    handle = writes.extends
    if not writes.delta or handle is None or handle.length == 0:
        return Sql("1 = 1")
    last = dialect.is_(
        models.TranscriptMessage, generation=handle.generation, position=handle.length - 1, digest=handle.digest
    )
    return _exists(models.TranscriptMessage, last)


def rises(dialect: Dialect, writes: Writes) -> Sql:
    """Return the condition, beside ``gate``, that the stored frontier is a lower one, or the same."""
    if writes.frontier is None:
        return Sql("1 = 1")
    text = (
        "(target.fence > gate.fence OR target.fence = gate.fence AND target.digest <> %s "
        f"AND (target.turn, {_rank('target')}) >= (%s, %s))"
    )
    found = _exists(models.Checkpoint, Sql(text, (writes.frontier.digest, *writes.frontier.sequence)))
    return Sql(f"NOT {found.text}", found.params)


def _exists(model: type[models.OfRun], where: Sql) -> Sql:
    text = (
        f"EXISTS (SELECT 1 FROM {model._meta.db_table} AS target "
        f"WHERE target.tenant = gate.tenant AND target.run_id = gate.run_id AND {where.text})"
    )
    return Sql(text, where.params)


def parts_of(dialect: Dialect, writes: Writes, *, gated: bool) -> list[Part]:
    """Return the parts of ``writes``.

    ``gated`` claims also need that nobody cancels and that their approval is granted. Counted are ``frontier``,
    ``claim_N``, ``outcome_N`` and ``settlement_N``, numbered as they stand in ``writes``.
    """
    parts: list[Part] = []
    for number, claim in enumerate(writes.outcomes):
        if claim.outcome is not None:
            parts.append(outcome_part(dialect, claim, claim.outcome, f"outcome_{number}"))
    for number, claim in enumerate(writes.failures):
        noted = dialect.update(models.IdempotencyKey, {"error": claim.error}, *in_flight(dialect, claim))
        parts.append(Part(f"failure_{number}", noted))
    for number, item in enumerate(writes.settlements):
        parts += settlement_parts(dialect, item, f"settlement_{number}")
    for number, claim in enumerate(writes.abandoned):
        parts.append(Part(f"abandoned_{number}", dialect.delete(models.IdempotencyKey, *in_flight(dialect, claim))))
    for number, spend in enumerate(writes.spend):
        parts.append(_spend(dialect, spend, f"spend_{number}"))
    if writes.delta and writes.extends is not None:
        parts += _delta(dialect, writes.extends, writes.delta)
    if writes.frontier is not None and not writes.ends:
        parts.append(_frontier(dialect, writes.frontier))
    for number, request in enumerate(writes.requests):
        parts.append(_request(dialect, request, f"request_{number}"))
    parts.append(_row(dialect, writes))
    for number, claim in enumerate(writes.claims):
        parts += claim_parts(dialect, claim, f"claim_{number}", gated=gated)
    return parts


def _spend(dialect: Dialect, spend: Spend, name: str) -> Part:
    row = {
        "turn": spend.turn,
        "fence": spend.fence,
        "input_tokens": spend.usage.input_tokens,
        "output_tokens": spend.usage.output_tokens,
        "unknown_calls": spend.usage.unknown_calls,
        "cost_micros": spend.cost_micros,
        "spent_at": Sql("at"),
    }
    return Part(name, dialect.insert(models.Spend, row, conflict="ON CONFLICT DO NOTHING"))


def _delta(dialect: Dialect, handle: HistoryHandle, messages: tuple[Message, ...]) -> Iterator[Part]:
    rolling, rows = handle.digest, []
    for position, message in enumerate(messages, handle.length):
        rolling = codec.chain(rolling, message.encoded)
        rows.append((position, message.encoded, rolling))
    if dialect.postgres:
        lines = "unnest(%s::integer[], %s::text[], %s::text[]) AS line (column1, column2, column3)"
        yield Part("delta", _lines(dialect, handle, Sql(lines, tuple(map(list, zip(*rows, strict=True))))))
        return
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[start : start + _ROWS_AT_ONCE]
        lines = f"(VALUES {', '.join(['(%s, %s, %s)'] * len(some))}) AS line"
        yield Part(f"delta_{start}", _lines(dialect, handle, Sql(lines, tuple(value for row in some for value in row))))


def _lines(dialect: Dialect, handle: HistoryHandle, lines: Sql) -> Sql:
    generation = dialect.value(models.TranscriptMessage, "generation", handle.generation)
    text = (
        "INSERT INTO adk_transcript_messages AS target "
        "(tenant, run_id, generation, position, fence, payload, digest) "
        f"SELECT tenant, run_id, {generation.text}, column1, fence, column2, column3 FROM ready, {lines.text} WHERE ok "
        "ON CONFLICT (tenant, run_id, generation, position) DO UPDATE "
        "SET payload = excluded.payload, digest = excluded.digest, fence = excluded.fence "
        "WHERE target.fence <= excluded.fence"
    )
    return Sql(text, generation.params + lines.params)


def _frontier(dialect: Dialect, frontier: Checkpoint) -> Part:
    row = {
        "format_version": frontier.format_version,
        "boundary": frontier.boundary.value,
        "turn": frontier.turn,
        "fence": Sql("fence"),
        "size": len(frontier.encoded),
        "digest": frontier.digest,
        "payload": frontier.encoded,
        "created_at": Sql("at"),
    }
    # Compared once more, for whoever writes under the same fence at the same time was not seen by `rises`.
    conflict = (
        f"ON CONFLICT (tenant, run_id) DO UPDATE SET {excluded(row)} "
        f"WHERE (target.fence, target.turn, {_rank('target')}) < (excluded.fence, excluded.turn, {_rank('excluded')})"
    )
    return Part("frontier", dialect.insert(models.Checkpoint, row, conflict=conflict), counted=True)


def _rank(row: str) -> str:
    return f"CASE {row}.boundary {_RANKS} END"


def _request(dialect: Dialect, request: Approval, name: str) -> Part:
    seconds = request.expires_seconds
    row = {
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
        "expires_at": None if seconds is None else dialect.later(seconds, "at"),
        "requested_at": Sql("at"),
        "decided_at": None,
        "decided_by": "",
        "reason": "",
    }
    conflict = (
        f"ON CONFLICT (tenant, run_id, turn, position) DO UPDATE SET {excluded(row)} "
        "WHERE (target.request_id <> excluded.request_id "
        "OR (target.digest <> excluded.digest AND target.edited IS NULL)) "
        f"AND NOT (target.state = '{_GRANTED}' AND target.digest = excluded.digest)"
    )
    return Part(name, dialect.insert(models.Approval, row, "NOT ended", conflict=conflict))


def _row(dialect: Dialect, writes: Writes) -> Part:
    fence = "(SELECT fence FROM ready)"
    changes: dict[str, object] = {"fence": Sql(f"{dialect.greatest}(target.fence, {fence})"), "updated_at": AT}
    moved = [Sql(f"target.fence < {fence}")]
    if writes.begins:
        changes["begun_at"] = Sql(f"coalesce(target.begun_at, {AT.text})")
        moved.append(Sql("target.begun_at IS NULL"))
    for column in ("revision", "format_version", "failed_save"):
        if (value := getattr(writes, column)) is not None:
            changes[column] = value
            new = dialect.value(models.Run, column, value)
            moved.append(Sql(f"NOT (target.{column} {dialect.same} {new.text})", new.params))
    if writes.status is not None:
        seen = dialect.value(models.Run, "wake_at", writes.wake_seen)
        wake = _wake(dialect, writes)
        changes |= {
            "status": writes.status.value,
            "reason": writes.reason,
            "output": writes.output,
            "wake_at": Sql(
                f"CASE WHEN target.wake_at {dialect.same} {seen.text} THEN {wake.text} ELSE target.wake_at END",
                seen.params + wake.params,
            ),
        }
        if writes.status is not RunStatus.QUARANTINED:
            changes["release_requested_at"] = None
        moved = [Sql("1 = 1")]
    changed = Sql(f"({' OR '.join(item.text for item in moved)})", tuple(v for item in moved for v in item.params))
    return Part("run_row", dialect.update(models.Run, changes, f"NOT target.{ENDED}", changed))


def _wake(dialect: Dialect, writes: Writes) -> Sql:
    wake_at = dialect.value(models.Run, "wake_at", writes.wake_at)
    if writes.window_seconds is None:
        return wake_at
    window = dialect.later(writes.window_seconds)
    if writes.wake_at is None:
        return window
    return Sql(f"{dialect.least}({wake_at.text}, {window.text})", wake_at.params + window.params)
