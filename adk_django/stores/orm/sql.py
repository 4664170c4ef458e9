"""The SQL of two databases: their clocks, their values, and how parts become one statement or one transaction.

On PostgreSQL the parts of a write are data-modifying CTEs of one statement. They all see one snapshot and run in no
order of their own, so a part that needs what another did selects from it, and no row is changed by two of them. On
SQLite the same parts run one after another in one transaction, whose first statement is a write: a transaction that
reads first and then wants to write is refused with "database is locked", however long it would have waited.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, NamedTuple

from django.db import connections, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import DateTimeField, Func, Model

from adk_django.exceptions import ConfigurationError
from adk_django.stores.orm.connection import serialized

_SQLITE_INSTANT: Final = "'%%Y-%%m-%%d %%H:%%M:%%f'"
_CLOCKS: Final = {"postgresql": "clock_timestamp()", "sqlite": f"strftime({_SQLITE_INSTANT}, 'now')"}


class Sql(NamedTuple):
    """A piece of SQL and its parameters."""

    text: str
    params: tuple[Any, ...] = ()


AT: Final = Sql("(SELECT at FROM ready)")  # the instant of the write


@dataclass(frozen=True)
class Part:
    """One write. ``after`` names the part without which it is left, ``counted`` asks for its number of rows."""

    name: str
    sql: Sql
    counted: bool = False
    after: str | None = None


class Dialect:
    """How one connection's database writes things.

    Every write is one of rows of the run that ``ready`` names: one row with ``tenant``, ``run_id``, ``at`` (the instant
    of the write) and ``ok`` (whether it may be made at all). The table written to is called ``target``.
    """

    def __init__(self, connection: BaseDatabaseWrapper) -> None:
        self.connection = connection
        self.postgres = connection.vendor == "postgresql"
        self.clock = clock(connection)

    def value(self, model: type[Model], column: str, value: Any) -> Sql:
        """Return ``value`` as an expression of the column's type; a `Sql` is one already."""
        if isinstance(value, Sql):
            return value
        field, placeholder = _column(model, column, self.connection.alias)
        if not (value is None or isinstance(value, int | float)):
            value = field.get_db_prep_save(value, self.connection)
        return Sql(placeholder, (value,))

    def is_(self, model: type[Model], **columns: Any) -> Sql:
        """Return the condition that columns of ``target`` have these values, none of them NULL."""
        values = {column: self.value(model, column, value) for column, value in columns.items()}
        return both(*(Sql(f"target.{column} = {value.text}", value.params) for column, value in values.items()))

    def later(self, seconds: float, at: str = AT.text) -> Sql:
        """Return the instant that many seconds after ``at``."""
        if self.postgres:
            return Sql(f"{at} + %s::float * interval '1s'", (seconds,))
        return Sql(f"strftime({_SQLITE_INSTANT}, {at}, %s)", (f"{seconds:+.3f} seconds",))

    def after(self, name: str) -> str:
        """Return a condition that holds where the named part, a counted one, did something."""
        return f"EXISTS (SELECT FROM {name})" if self.postgres else "1 = 1"

    @property
    def same(self) -> str:
        """The comparison that takes two NULLs for equal."""
        return "IS NOT DISTINCT FROM" if self.postgres else "IS"

    @property
    def greatest(self) -> str:
        """The function that returns the larger of two values."""
        return "greatest" if self.postgres else "max"

    @property
    def least(self) -> str:
        """The function that returns the smaller of two values."""
        return "least" if self.postgres else "min"

    def insert(self, model: type[Model], row: Mapping[str, Any], *when: Sql | str, conflict: Sql | str = "") -> Sql:
        """Return an INSERT of one row of the run, made where every ``when`` holds."""
        values = [self.value(model, column, value) for column, value in row.items()]
        condition, resolution = both("ok", *when), both(conflict)
        text = (
            f"INSERT INTO {model._meta.db_table} AS target (tenant, run_id, {', '.join(map(quoted, row))}) "
            f"SELECT tenant, run_id, {', '.join(value.text for value in values)} FROM ready "
            f"WHERE {condition.text} {resolution.text}"
        )
        given = tuple(item for value in values for item in value.params)
        return Sql(text, given + condition.params + resolution.params)

    def update(self, model: type[Model], changes: Mapping[str, Any], *where: Sql | str) -> Sql:
        """Return an UPDATE of the run's rows where every ``where`` holds."""
        assigned, condition = self.assign(model, changes), both(_OF_RUN, *where)
        text = f"UPDATE {model._meta.db_table} AS target SET {assigned.text} WHERE {condition.text}"
        return Sql(text, assigned.params + condition.params)

    def delete(self, model: type[Model], *where: Sql | str) -> Sql:
        """Return a DELETE of the run's rows where every ``where`` holds."""
        condition = both(_OF_RUN, *where)
        return Sql(f"DELETE FROM {model._meta.db_table} AS target WHERE {condition.text}", condition.params)

    def assign(self, model: type[Model], changes: Mapping[str, Any]) -> Sql:
        """Return the list behind SET."""
        values = {column: self.value(model, column, value) for column, value in changes.items()}
        text = ", ".join(f"{quoted(column)} = {value.text}" for column, value in values.items())
        return Sql(text, tuple(item for value in values.values() for item in value.params))


_OF_RUN: Final = "(target.tenant, target.run_id) = (SELECT tenant, run_id FROM ready WHERE ok)"


@cache
def _column(model: type[Model], column: str, alias: str) -> tuple[Any, str]:
    """Return a column's field and its placeholder."""
    field: Any = model._meta.get_field(column)
    connection = connections[alias]
    if connection.vendor != "postgresql":
        return field, "%s"
    # Without a length: a cast to varchar(n) cuts, where the column itself would refuse.
    return field, f"%s::{re.sub('[(].*[)]', '', field.db_type(connection))}"


class Clock(Func):
    """The store's clock, in a query."""

    output_field = DateTimeField()

    def as_sql(self, compiler: Any, connection: BaseDatabaseWrapper, *args: Any, **context: Any) -> Any:
        """Return the clock of the connection's database."""
        return clock(connection), []


def clock(connection: BaseDatabaseWrapper) -> str:
    """Return the expression of the database's clock. Raise ConfigurationError if it is none of the two supported."""
    try:
        return _CLOCKS[connection.vendor]
    except KeyError:
        raise ConfigurationError(
            f"database {connection.alias!r} is {connection.vendor}: adk_django works on postgresql and sqlite"
        ) from None


def quoted(column: str) -> str:
    """Return a column's name as it is written where it may be a word of SQL's own."""
    return f'"{column}"'


def both(*conditions: Sql | str) -> Sql:
    """Return the conjunction of conditions."""
    pieces = [Sql(item) if isinstance(item, str) else item for item in conditions]
    return Sql(" AND ".join(item.text for item in pieces), tuple(value for item in pieces for value in item.params))


def run_at_once(dialect: Dialect, head: Sequence[Sql], parts: Sequence[Part], columns: str = "at") -> Any:
    """Execute parts as one statement; return ``columns`` of ``ready``, then the counts, None if it has no row.

    ``head`` are the CTEs before the parts; the last is ``ready``.
    """
    ctes = [*head, *(_cte(part) for part in parts)]
    counts = [f"(SELECT count(*) FROM {part.name})" for part in parts if part.counted]
    text = f"WITH {', '.join(item.text for item in ctes)} SELECT {', '.join([columns, *counts])} FROM ready"

    def send() -> Any:
        with dialect.connection.cursor() as cursor:
            cursor.execute(text, [value for item in ctes for value in item.params])
            return cursor.fetchone()

    return serialized(dialect.connection, send)


def _cte(part: Part) -> Sql:
    returning = " RETURNING 1" if part.counted else ""
    return Sql(f"{part.name} AS ({part.sql.text}{returning})", part.sql.params)


def run_in_turn(dialect: Dialect, ready: Sql, parts: Sequence[Part]) -> dict[str, int]:
    """Execute parts one after another, except those behind one that touched no row; return the rows of each counted.

    ``ready`` is the CTE of that name, put before each of them.
    """
    counts: dict[str, int] = {}
    with dialect.connection.cursor() as cursor:
        for part in parts:
            if part.after is not None and not counts.get(part.after):
                continue
            cursor.execute(f"WITH {ready.text} {part.sql.text}", (*ready.params, *part.sql.params))
            if part.counted:  # not by rowcount, which is kept for statements that begin with the verb
                cursor.execute("SELECT changes()")
                counts[part.name] = cursor.fetchone()[0]
    return counts


def run_joined(dialect: Dialect, tenant: str, run_id: str | Sql, parts: Sequence[Part]) -> int:
    """Execute parts that need no fence, in the caller's transaction if there is one; return the rows of the first.

    The run's row is locked before any other, as a commit does it, or the two could wait for each other.
    """
    if not dialect.postgres:
        with transaction.atomic(using=dialect.connection.alias):
            return run_in_turn(dialect, ready_now(dialect, tenant, run_id), parts)[parts[0].name]
    asked = ready_now(dialect, tenant, run_id, name="asked")
    head = [
        asked,
        Sql("run AS (SELECT 1 FROM asked JOIN adk_runs AS target USING (tenant, run_id) FOR NO KEY UPDATE OF target)"),
        Sql(
            f"ready AS MATERIALIZED (SELECT tenant, run_id, {dialect.clock} AS at, ok "
            "FROM asked, (SELECT count(*) FROM run) AS locked)"
        ),
    ]
    count: int = run_at_once(dialect, head, parts)[1]
    return count


def ready_now(dialect: Dialect, tenant: str, run_id: str | Sql, *, name: str = "ready") -> Sql:
    """Return the CTE that names a run and tells the time, the same all over the statement."""
    placeholder, yes, kept = ("%s::varchar", "true", "MATERIALIZED ") if dialect.postgres else ("%s", "1", "")
    which = run_id if isinstance(run_id, Sql) else Sql(placeholder, (run_id,))
    text = (
        f"{name} AS {kept}(SELECT {placeholder} AS tenant, {which.text} AS run_id, {dialect.clock} AS at, {yes} AS ok)"
    )
    return Sql(text, (tenant, *which.params))
