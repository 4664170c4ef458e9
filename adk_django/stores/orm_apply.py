"""Writes under a fence: the lease row first, everything else only if its fence is the writer's, all or nothing.

On PostgreSQL one statement: ``gate`` locks the lease row and compares, ``run`` locks the run row and reads it as it is
after the wait, ``ready`` tells the time, and every part selects from ``ready``.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, cast

from django.db import transaction
from django.db.backends.base.base import BaseDatabaseWrapper

from adk_django import models
from adk_django.core.record import Writes
from adk_django.fields import instant
from adk_django.stores.orm_parts import Scope, delete, frontier_rises, of_run, parts_of, transcript_stands
from adk_django.stores.sql import Dialect, Part, Sql, both, run, run_each


@dataclass(frozen=True)
class Applied:
    """What a write under the fence came to. ``counts`` are the rows of each counted part."""

    at: datetime
    cancel_requested_at: datetime | None
    transcript_stands: bool = True
    frontier_rises: bool = True
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def written(self) -> bool:
        """Whether anything was written: where the progress is refused nothing is."""
        return self.transcript_stands and self.frontier_rises


def apply(
    connection: BaseDatabaseWrapper,
    scope: Scope,
    writes: Writes,
    *,
    gated: bool = False,
    forgets: Sequence[type[models.OfRun]] = (),
) -> Applied | None:
    """Make ``writes`` under the scope's fence, all or nothing.

    Return None, having written nothing, if the fence is another's.
    """
    if connection.vendor == "postgresql":
        return _apply_at_once(connection, scope, writes, gated, forgets)
    with transaction.atomic(using=connection.alias):
        return _apply_in_turn(connection, scope, writes, gated, forgets)


def _parts(
    dialect: Dialect, scope: Scope, writes: Writes, gated: bool, forgets: Sequence[type[models.OfRun]]
) -> list[Part]:
    parts = parts_of(dialect, scope, writes, gated=gated)
    for model in forgets:
        where = both(of_run(dialect, scope, model), dialect.open)
        parts.append(Part(f"forget_{model._meta.db_table}", delete(model, where)))
    return parts


def _held(dialect: Dialect, scope: Scope) -> Sql:
    return both(of_run(dialect, scope, models.RunLease, fence=scope.fence), "target.token IS NOT NULL")


def _apply_at_once(
    connection: BaseDatabaseWrapper,
    scope: Scope,
    writes: Writes,
    gated: bool,
    forgets: Sequence[type[models.OfRun]],
) -> Applied | None:
    dialect = Dialect(
        connection,
        at="(SELECT at FROM ready)",
        open="(SELECT transcript_stands AND frontier_rises FROM ready)",
        uncancelled="(SELECT cancel_requested_at IS NULL FROM ready)",
    )
    held = _held(dialect, scope)
    gate = f"SELECT 1 AS one FROM adk_run_leases AS target WHERE {held.text} FOR SHARE"
    if writes.resets_deaths:
        gate = f"UPDATE adk_run_leases AS target SET deaths = 0 WHERE {held.text} RETURNING 1 AS one"
    # Read under the row's lock, or a cancel that commits meanwhile would not hold the claim back.
    row = of_run(dialect, scope, models.Run)
    run_row = (
        f"SELECT target.cancel_requested_at FROM adk_runs AS target, gate WHERE {row.text} FOR NO KEY UPDATE OF target"
    )
    stands, rises = transcript_stands(dialect, scope, writes), frontier_rises(dialect, scope, writes)
    ready = (
        f"SELECT {dialect.clock} AS at, run.cancel_requested_at, {stands.text} AS transcript_stands, "
        f"{rises.text} AS frontier_rises FROM gate LEFT JOIN run ON true"
    )
    head = [
        Sql(f"gate AS ({gate})", held.params),
        Sql(f"run AS ({run_row})", row.params),
        Sql(f"ready AS MATERIALIZED ({ready})", stands.params + rises.params),
    ]
    parts = _parts(dialect, scope, writes, gated, forgets)
    columns = "at, cancel_requested_at, transcript_stands, frontier_rises"
    found = run(dialect, parts, head=head, columns=columns, tail="FROM ready")
    if found is None:
        return None
    names = (part.name for part in parts if part.counted)
    return _applied(connection, found[:4], dict(zip(names, found[4:], strict=True)))


def _apply_in_turn(
    connection: BaseDatabaseWrapper,
    scope: Scope,
    writes: Writes,
    gated: bool,
    forgets: Sequence[type[models.OfRun]],
) -> Applied | None:
    dialect = Dialect(connection)
    held = _held(dialect, scope)
    deaths = "0" if writes.resets_deaths else "deaths"
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE adk_run_leases AS target SET deaths = {deaths} WHERE {held.text}", held.params)
        if cursor.rowcount == 0:
            return None
        row = of_run(dialect, scope, models.Run)
        stands, rises = transcript_stands(dialect, scope, writes), frontier_rises(dialect, scope, writes)
        cursor.execute(
            f"SELECT {dialect.clock}, (SELECT cancel_requested_at FROM adk_runs AS target WHERE {row.text}), "
            f"{stands.text}, {rises.text}",
            row.params + stands.params + rises.params,
        )
        found = cursor.fetchone()
    applied = _applied(connection, found, {})
    if not applied.written:
        return applied
    uncancelled = "1 = 1" if found[1] is None else "1 = 0"
    dialect = Dialect(connection, at=f"'{found[0]}'", uncancelled=uncancelled)
    return replace(applied, counts=run_each(dialect, _parts(dialect, scope, writes, gated, forgets)))


def _applied(connection: BaseDatabaseWrapper, row: Sequence[Any], counts: dict[str, int]) -> Applied:
    at = cast("datetime", instant(row[0], connection))
    return Applied(at, instant(row[1], connection), bool(row[2]), bool(row[3]), counts)
