"""Whether runs that are under way live in the stores that ``ADK['STORES']`` names, or in others that it named before.

A run that has begun has a frontier, unless its last save failed. Where the row is here and the frontier is not, workers
take it for lost and refuse to carry the run on.
"""

from collections.abc import Iterator
from typing import Any, Final

from django.core.checks import CheckMessage, Warning
from django.core.exceptions import ImproperlyConfigured
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionDoesNotExist

from adk_django.checks.database import in_time, is_made, own_connection

READ: Final = 1_000  # runs under way whose frontiers are looked for in Redis, the newest
_UNDER_WAY: Final = (
    "FROM adk_runs AS run WHERE run.begun_at IS NOT NULL AND run.failed_save = '' "
    "AND run.status IN ('active', 'waiting', 'undecided', 'quarantined')"
)
_FRONTIER: Final = (
    "EXISTS (SELECT 1 FROM adk_checkpoints AS frontier WHERE frontier.tenant = run.tenant "
    "AND frontier.run_id = run.run_id)"
)


def ask_where_runs_are(alias: str, kind: str, caches: list[str]) -> list[CheckMessage]:
    """Return a warning if runs under way, whose rows are on ``alias``, are not in stores of ``kind``: "orm", "memory",
    or "redis" in one of ``caches``. Where the database cannot be asked other checks say so."""
    try:
        connection = connections[alias]
    except (ConnectionDoesNotExist, ImproperlyConfigured):
        return []

    def asking() -> Iterator[CheckMessage]:
        with own_connection(connection) as own:
            if is_made(own) and "adk_runs" in own.introspection.table_names():
                yield from _elsewhere(own, alias, kind, caches)

    return in_time(asking, lambda said: None)


def _elsewhere(connection: BaseDatabaseWrapper, alias: str, kind: str, caches: list[str]) -> Iterator[CheckMessage]:
    missing = {
        "orm": lambda: _count(connection, f"AND NOT {_FRONTIER}"),
        "redis": lambda: _count(connection, f"AND {_FRONTIER}") or _not_in_redis(connection, caches),
        "memory": lambda: _count(connection, ""),
    }
    number = missing[kind]() if kind in missing else 0
    if number:
        runs = "1 run is" if number == 1 else f"{number} runs are"
        yield Warning(
            f"{runs} under way on the database {alias!r} and not in the stores that ADK['STORES'] names: workers take "
            f"the frontiers for lost and refuse to carry on.",
            hint="Name the stores that these runs began in until they have ended (adk_inspect --stuck lists them), or "
            "cancel them: adk_cancel.",
            id="adk_django.W018",
        )


def _count(connection: BaseDatabaseWrapper, more: str) -> int:
    return int(_rows(connection, f"SELECT count(*) {_UNDER_WAY} {more}")[0][0])


def _not_in_redis(connection: BaseDatabaseWrapper, caches: list[str]) -> int:
    from adk_django.stores.redis.client import keys_of, mapped, raw_client

    newest = _rows(connection, f"SELECT run.tenant, run.run_id {_UNDER_WAY} ORDER BY run.id DESC LIMIT {READ}")
    (cache,) = caches
    with mapped(cache):
        pipeline = raw_client(cache).pipeline(transaction=False)
        for tenant, run_id in newest:
            pipeline.exists(keys_of(tenant, run_id)[1])
        return sum(not there for there in pipeline.execute())


def _rows(connection: BaseDatabaseWrapper, question: str) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(question)
        return list(cursor.fetchall())
