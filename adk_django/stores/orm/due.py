"""Taking the runs that are due, in one statement of the product's database."""

import json
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from adk_django import models
from adk_django.stores.orm.connection import serialized
from adk_django.stores.orm.sql import Dialect, Sql, both
from adk_django.stores.runs import Due

_OPEN = ", ".join(f"'{status}'" for status in models.OPEN)
_NOW = "(SELECT at FROM now)"  # one instant, which an index can be searched by: the clock itself is another each time
_LIVE = f"FROM adk_run_leases AS lease WHERE lease.token IS NOT NULL AND lease.expires_at > {_NOW}"
_SINCE = "coalesce(target.wake_at, target.updated_at)"
# Why a run is due, and since when: each of these is a search in an index of its own.
_WOKEN = (f"target.status IN ({_OPEN}) AND target.wake_at <= {_NOW}", "target.wake_at")
_UNWOKEN = ("target.status = 'active' AND target.wake_at IS NULL", "target.updated_at")


def take_due(connection: BaseDatabaseWrapper, due: Due) -> list[tuple[str, str]]:
    """Take the runs that are due: move their ``wake_at`` on; return the tenant and the id of each.

    Rows that another sweep is at are left to it.
    """
    dialect = Dialect(connection)
    kept, skipping = ("MATERIALIZED ", "FOR NO KEY UPDATE OF target SKIP LOCKED") if dialect.postgres else ("", "")
    room, later, fits = _room(dialect, due), _later(dialect, due.again_seconds), both(*_fitting(dialect, due))
    if due.max_live_per_tenant is not None:
        fits = both(fits, _within(fits, due.max_live_per_tenant))
    arms = [
        Sql(
            f"{name} AS {kept}(SELECT target.id, {since} AS since FROM adk_runs AS target "
            f"WHERE {why} AND {fits.text} ORDER BY {since} LIMIT %s {skipping})",
            (*fits.params, due.limit),
        )
        for name, (why, since) in (("woken", _WOKEN), ("unwoken", _UNWOKEN))
    ]
    text = (
        f"WITH now AS {kept}(SELECT {dialect.clock} AS at), {', '.join(arm.text for arm in arms)}, "
        "taken AS (SELECT id FROM (SELECT id, since FROM woken UNION ALL SELECT id, since FROM unwoken) AS found "
        f"ORDER BY since LIMIT {room.text}) "
        f"UPDATE adk_runs SET wake_at = {later.text} WHERE id IN (SELECT id FROM taken) RETURNING tenant, run_id"
    )

    def send() -> list[tuple[str, str]]:
        with connection.cursor() as cursor:
            cursor.execute(text, (*(value for arm in arms for value in arm.params), *room.params, *later.params))
            return [(tenant, run_id) for tenant, run_id in cursor.fetchall()]

    return serialized(connection, send)


def _fitting(dialect: Dialect, due: Due) -> list[Sql]:
    """Return the conditions that ``target`` can be carried on by whom ``due`` describes, or is to be cancelled, which
    anybody can do; and that nobody is at it."""
    here = Sql("target.cancel_requested_at IS NOT NULL")
    read = Sql("(target.format_version IS NULL OR target.format_version <= %s)", (due.format_version,))
    for agent, revisions in due.definitions.items():
        known = _texts(dialect, [dialect.value(models.Run, "revision", item).params[0] for item in sorted(revisions)])
        fits = Sql(f"(target.revision IS NULL OR target.revision {known.text})", known.params)
        mine = both(dialect.is_(models.Run, agent=agent), fits, read)
        here = Sql(f"{here.text} OR ({mine.text})", here.params + mine.params)
    return [
        Sql(f"NOT EXISTS (SELECT 1 {_LIVE} AND lease.tenant = target.tenant AND lease.run_id = target.run_id)"),
        Sql(f"({here.text})", here.params),
    ]


def _texts(dialect: Dialect, texts: list[str]) -> Sql:
    """Return the condition of being one of ``texts``, any number of them."""
    if dialect.postgres:
        return Sql("= ANY(%s::text[])", (texts,))
    return Sql("IN (SELECT value FROM json_each(%s))", (json.dumps(texts),))


def _within(fits: Sql, cap: int) -> Sql:
    """Return the condition that with one live lease for each that is taken, ``target``'s tenant stays at ``cap``."""
    text = (
        "target.id IN (SELECT id FROM (SELECT target.id, target.tenant, "
        f"row_number() OVER (PARTITION BY target.tenant ORDER BY {_SINCE}) AS nth FROM adk_runs AS target "
        f"WHERE (({_WOKEN[0]}) OR ({_UNWOKEN[0]})) AND {fits.text}) AS numbered "
        "LEFT JOIN (SELECT lease.tenant AS of_tenant, count(*) AS leases "
        f"{_LIVE} GROUP BY lease.tenant) AS live ON live.of_tenant = numbered.tenant "
        "WHERE nth <= %s - coalesce(leases, 0))"
    )
    return Sql(text, (*fits.params, cap))


def _room(dialect: Dialect, due: Due) -> Sql:
    if due.max_live is None:
        return Sql("%s", (due.limit,))
    cast = "::bigint" if dialect.postgres else ""
    room = f"{dialect.least}(%s{cast}, %s{cast} - (SELECT count(*) {_LIVE}))"
    return Sql(f"{dialect.greatest}(0, {room})", (due.limit, due.max_live))


def _later(dialect: Dialect, seconds: float) -> Sql:
    """Return the instant ``seconds`` from now, and up to half as much again, another one for each row."""
    if dialect.postgres:
        text = f"{_NOW} + %s::float * (1 + random() / 2) * interval '1s'"
        return Sql(text, (seconds,))
    spread: Any = "%s * (1 + abs(random() %% 1000) / 2000.0)"
    return Sql(f"strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', ({spread}) || ' seconds')", (seconds,))
