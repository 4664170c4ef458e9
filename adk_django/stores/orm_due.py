"""Taking the runs that are due, in one statement of the product's database."""

import json
from typing import Any

from django.db.backends.base.base import BaseDatabaseWrapper

from adk_django import models
from adk_django.core.record import RunStatus
from adk_django.stores.runs import Due
from adk_django.stores.sql import Dialect, Sql, both

_OPEN = ", ".join(f"'{status}'" for status in models.OPEN)
_SINCE = "coalesce(target.wake_at, target.updated_at)"


def take_due(connection: BaseDatabaseWrapper, due: Due) -> list[tuple[str, str]]:
    """Take the runs that are due: move their ``wake_at`` on; return the tenant and the id of each.

    Rows that another sweep is at are left to it.
    """
    dialect = Dialect(connection)
    ripe = both(*_ripe(dialect, due))
    if due.max_live_per_tenant is not None:
        ripe = both(ripe, _within(dialect, ripe, due.max_live_per_tenant))
    room = _room(dialect, due)
    kept, skipping = ("MATERIALIZED ", "FOR NO KEY UPDATE SKIP LOCKED") if dialect.postgres else ("", "")
    later = _later(dialect, due.again_seconds)
    text = (
        f"WITH taken AS {kept}(SELECT target.id FROM adk_runs AS target WHERE {ripe.text} "
        f"ORDER BY {_SINCE} LIMIT {room.text} {skipping}) "
        f"UPDATE adk_runs SET wake_at = {later.text} WHERE id IN (SELECT id FROM taken) RETURNING tenant, run_id"
    )
    with connection.cursor() as cursor:
        cursor.execute(text, (*ripe.params, *room.params, *later.params))
        return [(tenant, run_id) for tenant, run_id in cursor.fetchall()]


def _ripe(dialect: Dialect, due: Due) -> list[Sql]:
    """Return the conditions that ``target`` is due and can be carried on by whom ``due`` describes."""
    here = Sql("false" if dialect.postgres else "0")
    for agent, revisions in due.definitions.items():
        known = _texts(dialect, sorted(revisions))
        fits = Sql(f"(target.revision IS NULL OR target.revision {known.text})", known.params)
        either = Sql("target.agent = %s", (agent,))
        mine = both(either, fits)
        here = Sql(f"{here.text} OR ({mine.text})", here.params + mine.params)
    return [
        Sql(
            f"target.status IN ({_OPEN}) AND (target.wake_at <= {dialect.clock} "
            f"OR (target.wake_at IS NULL AND target.status = '{RunStatus.ACTIVE.value}'))"
        ),
        Sql(f"NOT EXISTS ({_live(dialect)} AND lease.tenant = target.tenant AND lease.run_id = target.run_id)"),
        Sql(
            "NOT EXISTS (SELECT 1 FROM adk_checkpoints AS frontier WHERE frontier.tenant = target.tenant "
            "AND frontier.run_id = target.run_id AND frontier.format_version > %s)",
            (due.format_version,),
        ),
        Sql(f"({here.text})", here.params),
    ]


def _texts(dialect: Dialect, texts: list[str]) -> Sql:
    """Return the condition of being one of ``texts``, any number of them."""
    if dialect.postgres:
        return Sql("= ANY(%s::text[])", (texts,))
    return Sql("IN (SELECT value FROM json_each(%s))", (json.dumps(texts),))


def _live(dialect: Dialect) -> str:
    """Return the query for leases that live, open at its end for one more condition."""
    return f"SELECT 1 FROM adk_run_leases AS lease WHERE lease.token IS NOT NULL AND lease.expires_at > {dialect.clock}"


def _within(dialect: Dialect, ripe: Sql, cap: int) -> Sql:
    """Return the condition that with one live lease for each that is taken, ``target``'s tenant stays at ``cap``."""
    live = _live(dialect).replace("SELECT 1", "SELECT count(*)", 1)
    text = (
        "target.id IN (SELECT id FROM (SELECT target.id, target.tenant, "
        f"row_number() OVER (PARTITION BY target.tenant ORDER BY {_SINCE}) AS nth FROM adk_runs AS target "
        f"WHERE {ripe.text}) AS numbered WHERE nth <= %s - ({live} AND lease.tenant = numbered.tenant))"
    )
    return Sql(text, (*ripe.params, cap))


def _room(dialect: Dialect, due: Due) -> Sql:
    if due.max_live is None:
        return Sql("%s", (due.limit,))
    live = _live(dialect).replace("SELECT 1", "SELECT count(*)", 1)
    cast = "::bigint" if dialect.postgres else ""
    room = f"{dialect.least}(%s{cast}, %s{cast} - ({live}))"
    return Sql(f"{dialect.greatest}(0, {room})", (due.limit, due.max_live))


def _later(dialect: Dialect, seconds: float) -> Sql:
    """Return the instant ``seconds`` from now, and up to half as much again, another one for each row."""
    if dialect.postgres:
        text = f"{dialect.clock} + %s::float * (1 + random() / 2) * interval '1s'"
        return Sql(text, (seconds,))
    spread: Any = "%s * (1 + abs(random() %% 1000) / 2000.0)"
    return Sql(f"strftime('%%Y-%%m-%%d %%H:%%M:%%f', 'now', ({spread}) || ' seconds')", (seconds,))
