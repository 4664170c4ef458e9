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
from adk_django.core.checkpoint import Checkpoint
from adk_django.core.record import Writes
from adk_django.fields import instant
from adk_django.stores.orm.call_parts import ENDED
from adk_django.stores.orm.parts import parts_of, rises, stands
from adk_django.stores.orm.sql import Dialect, Part, Sql, run_at_once, run_in_turn

_SEEN = "tenant = %s AND run_id = %s AND fence <= %s"
_HELD = "tenant = %s AND run_id = %s AND fence = %s AND token IS NOT NULL"


@dataclass(frozen=True)
class Scope:
    """Whose writes they are. ``by_row`` compares the fence with the run row's: the leases are in another place."""

    tenant: str
    run_id: str
    fence: int
    by_row: bool = False

    @property
    def params(self) -> tuple[str, str, int]:
        """Its values, for ``tenant``, ``run_id`` and ``fence`` in this order."""
        return self.tenant, self.run_id, self.fence


@dataclass(frozen=True)
class Applied:
    """What a write under the fence came to. ``counts`` are the rows of each counted part.

    ``stands`` and ``rises`` say whether transcript and frontier take what was sent; where one does not, nothing was
    written.
    """

    at: datetime
    cancel_requested_at: datetime | None
    stands: bool
    rises: bool
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def written(self) -> bool:
        """Whether anything was written."""
        return self.stands and self.rises

    def saved(self, alias: str, scope: Scope, frontier: Checkpoint | None) -> bool:
        """Return whether ``frontier``, if there is one, is now the stored one: written here, or before."""
        if frontier is None or self.counts.get("frontier", 1):
            return True
        rows = models.Checkpoint.objects.using(alias).filter(tenant=scope.tenant, run_id=scope.run_id)
        return rows.filter(fence=scope.fence, digest=frontier.digest).exists()


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
    dialect = Dialect(connection)
    parts = parts_of(dialect, writes, gated=gated)
    parts += [Part(f"forget_{model._meta.db_table}", dialect.delete(model)) for model in forgets]
    if dialect.postgres:
        return _at_once(dialect, scope, writes, parts)
    with transaction.atomic(using=connection.alias):
        return _in_turn(dialect, scope, writes, parts)


def _at_once(dialect: Dialect, scope: Scope, writes: Writes, parts: list[Part]) -> Applied | None:
    gate = f"SELECT tenant, run_id, fence, holder FROM adk_run_leases WHERE {_HELD} FOR SHARE"
    if writes.deaths is not None:
        deaths = f"SET deaths = {writes.deaths:d}"
        gate = f"UPDATE adk_run_leases {deaths} WHERE {_HELD} RETURNING tenant, run_id, fence, holder"
    params: tuple[str | int, ...] = scope.params
    if scope.by_row:
        mine = "%s::bigint AS fence, ''::text AS holder"
        gate = f"SELECT tenant, run_id, {mine} FROM adk_runs WHERE {_SEEN} FOR NO KEY UPDATE"
        params = (scope.fence, *params)
    # Read under the row's lock, or a cancel that commits meanwhile would not hold the claim back.
    run = (
        f"SELECT target.cancel_requested_at, target.{ENDED} AS ended "
        "FROM gate JOIN adk_runs AS target USING (tenant, run_id) FOR NO KEY UPDATE OF target"
    )
    behind, above = stands(dialect, writes), rises(dialect, writes)
    ready = (
        f"SELECT *, stands AND rises AS ok FROM (SELECT gate.*, {dialect.clock} AS at, run.cancel_requested_at, "
        f"coalesce(run.ended, false) AS ended, {behind.text} AS stands, {above.text} AS rises "
        "FROM gate LEFT JOIN run ON true) AS found"
    )
    head = [
        Sql(f"gate AS ({gate})", params),
        Sql(f"run AS ({run})"),
        Sql(f"ready AS MATERIALIZED ({ready})", behind.params + above.params),
    ]
    found = run_at_once(dialect, head, parts, columns="at, cancel_requested_at, stands, rises")
    if found is None:
        return None
    names = (part.name for part in parts if part.counted)
    return _applied(dialect, found[:4], dict(zip(names, found[4:], strict=True)))


def _in_turn(dialect: Dialect, scope: Scope, writes: Writes, parts: list[Part]) -> Applied | None:
    deaths = "deaths" if writes.deaths is None else f"{writes.deaths:d}"
    behind, above = stands(dialect, writes), rises(dialect, writes)
    lock = f"UPDATE adk_run_leases SET deaths = {deaths} WHERE {_HELD}"
    gate = f"SELECT tenant, run_id, fence, holder FROM adk_run_leases WHERE {_HELD}"
    if scope.by_row:
        lock = f"UPDATE adk_runs SET fence = fence WHERE {_SEEN}"
        gate = f"SELECT tenant, run_id, fence, '' AS holder FROM adk_runs WHERE {_SEEN}"
    with dialect.connection.cursor() as cursor:
        cursor.execute(lock, scope.params)
        if cursor.rowcount == 0:
            return None
        cursor.execute(
            f"WITH gate AS ({gate}) "
            f"SELECT {dialect.clock}, run.cancel_requested_at, {behind.text}, {above.text}, "
            f"coalesce(run.{ENDED}, 0), holder FROM gate LEFT JOIN adk_runs AS run USING (tenant, run_id)",
            (*scope.params, *behind.params, *above.params),
        )
        at, cancel_requested_at, *facts, ended, holder = cursor.fetchone()
    applied = _applied(dialect, (at, cancel_requested_at, *facts), {})
    if not applied.written:
        return applied
    names = ("tenant", "run_id", "fence", "holder", "at", "cancel_requested_at", "ended", "ok")
    ready = Sql(
        f"ready AS (SELECT {', '.join(f'%s AS {name}' for name in names)})",
        (*scope.params, holder, at, applied.cancel_requested_at and 1, ended, 1),
    )
    return replace(applied, counts=run_in_turn(dialect, ready, parts))


def _applied(dialect: Dialect, row: Sequence[Any], counts: dict[str, int]) -> Applied:
    at = cast("datetime", instant(row[0], dialect.connection))
    return Applied(at, instant(row[1], dialect.connection), bool(row[2]), bool(row[3]), counts)
