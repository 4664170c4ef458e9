"""The SQL of two databases: their clocks, their values, and how parts become one statement or one transaction.

On PostgreSQL the parts of a write are data-modifying CTEs of one statement. They all see one snapshot and run in no
order of their own, so a part that needs what another did selects from it, and no row is changed by two of them. On
SQLite the same parts run one after another in one transaction, whose first statement is a write: a transaction that
reads first and then wants to write is refused with "database is locked", however long it would have waited.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from django.db import DatabaseError, InterfaceError, OperationalError, connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import DateTimeField, Func, Model

from adk_django.exceptions import ConfigurationError, StoreUnavailableError

_SQLITE_INSTANT: Final = "'%%Y-%%m-%%d %%H:%%M:%%f'"
_CLOCKS: Final = {"postgresql": "clock_timestamp()", "sqlite": f"strftime({_SQLITE_INSTANT}, 'now')"}
_UNDEFINED: Final = ("42P01", "42703")  # undefined table, undefined column


class Sql(NamedTuple):
    """A piece of SQL and its parameters."""

    text: str
    params: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Part:
    """One write of a statement. ``after`` names the part without which it is left, ``counted`` asks for its rows."""

    name: str
    sql: Sql
    counted: bool = False
    after: str | None = None


class Dialect:
    """How one connection's database writes things.

    ``at`` is the instant of the write, ``open`` a condition that holds where the write may be made at all,
    ``uncancelled`` one that holds where nobody asked to cancel.
    """

    def __init__(
        self, connection: BaseDatabaseWrapper, *, at: str | None = None, open: str = "1 = 1", uncancelled: str = "1 = 1"
    ) -> None:
        self.connection = connection
        self.postgres = connection.vendor == "postgresql"
        self.clock = clock(connection)
        self.at = at or self.clock
        self.open, self.uncancelled = open, uncancelled

    def value(self, model: type[Model], column: str, value: Any) -> Sql:
        """Return ``value`` as an expression of the column's type; a `Sql` is one already."""
        if isinstance(value, Sql):
            return value
        field: Any = model._meta.get_field(column)
        prepared = field.get_db_prep_save(value, self.connection)
        return Sql(self._typed(field), (prepared,))

    def _typed(self, field: Any) -> str:
        # Without a length: a cast to varchar(n) cuts, where the column itself would refuse.
        return f"%s::{re.sub(r'[(].*[)]', '', field.db_type(self.connection))}" if self.postgres else "%s"

    def later(self, seconds: float) -> Sql:
        """Return the instant that many seconds after ``at``."""
        if self.postgres:
            return Sql(f"{self.at} + %s::double precision * interval '1 second'", (seconds,))
        return Sql(f"strftime({_SQLITE_INSTANT}, {self.at}, %s)", (f"{seconds:+.3f} seconds",))

    def after(self, name: str) -> str:
        """Return a condition that holds where the named part did something."""
        return f"EXISTS (SELECT FROM {name})" if self.postgres else "1 = 1"

    @property
    def same(self) -> str:
        """The comparison that takes two NULLs for equal."""
        return "IS NOT DISTINCT FROM" if self.postgres else "IS"

    @property
    def greatest(self) -> str:
        """The function that returns the larger of two values."""
        return "greatest" if self.postgres else "max"

    def insert(self, model: type[Model], row: Mapping[str, Any], *, where: Sql, conflict: Sql) -> Sql:
        """Return an INSERT of one row, made where ``where`` holds; ``conflict`` calls the row in its way ``target``."""
        values = [self.value(model, column, value) for column, value in row.items()]
        text = (
            f"INSERT INTO {model._meta.db_table} AS target ({', '.join(map(quoted, row))}) "
            f"SELECT {', '.join(value.text for value in values)} WHERE {where.text} {conflict.text}"
        )
        return Sql(text, (*(item for value in values for item in value.params), *where.params, *conflict.params))

    def update(self, model: type[Model], changes: Mapping[str, Any], *, where: Sql) -> Sql:
        """Return an UPDATE of the rows where ``where`` holds; the table is called ``target`` in it."""
        assigned = self.assign(model, changes)
        text = f"UPDATE {model._meta.db_table} AS target SET {assigned.text} WHERE {where.text}"
        return Sql(text, assigned.params + where.params)

    def assign(self, model: type[Model], changes: Mapping[str, Any]) -> Sql:
        """Return the list behind SET."""
        values = {column: self.value(model, column, value) for column, value in changes.items()}
        text = ", ".join(f"{quoted(column)} = {value.text}" for column, value in values.items())
        return Sql(text, tuple(item for value in values.values() for item in value.params))


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


def alias_for(model: type[Model], using: str | None) -> str:
    """Return the alias to write to, and to read what must not lag."""
    return using or router.db_for_write(model)


def run(dialect: Dialect, parts: Sequence[Part], *, head: Sequence[Sql] = (), tail: str = "", columns: str = "") -> Any:
    """Execute parts as one statement on PostgreSQL; return its row: ``columns``, then the counts.

    ``head`` are CTEs before them, ``tail`` is where the row comes from: if it has none, nothing is returned.
    """
    ctes = [*head, *(_cte(part) for part in parts)]
    counts = [f"(SELECT count(*) FROM {part.name})" for part in parts if part.counted]
    text = f"WITH {', '.join(item.text for item in ctes)} SELECT {', '.join(filter(None, [columns, *counts]))} {tail}"
    with dialect.connection.cursor() as cursor:
        cursor.execute(text, [value for item in ctes for value in item.params])
        return cursor.fetchone()


def _cte(part: Part) -> Sql:
    returning = " RETURNING 1" if part.counted else ""
    return Sql(f"{part.name} AS ({part.sql.text}{returning})", part.sql.params)


def run_each(dialect: Dialect, parts: Sequence[Part]) -> dict[str, int]:
    """Execute parts one after another, except those behind one that touched no row; return the rows of each."""
    counts: dict[str, int] = {}
    with dialect.connection.cursor() as cursor:
        for part in parts:
            if part.after is not None and not counts.get(part.after):
                continue
            cursor.execute(part.sql.text, part.sql.params)
            counts[part.name] = cursor.rowcount
    return counts


def run_joined(dialect: Dialect, parts: Sequence[Part], *, head: Sequence[Sql] = ()) -> dict[str, int]:
    """Execute parts that need no fence, in the caller's transaction if there is one; return the rows of the counted."""
    if not dialect.postgres:
        with transaction.atomic(using=dialect.connection.alias):
            return run_each(dialect, parts)
    row = run(dialect, parts, head=head)
    return dict(zip((part.name for part in parts if part.counted), row, strict=True))


@contextmanager
def mapped(alias: str) -> Iterator[None]:
    """Turn the database's own errors into ours: it did not answer, or it has no such table."""
    try:
        yield
    except DatabaseError as error:
        if _undefined(error):
            raise ConfigurationError(
                f"database {alias!r} lacks what this version expects ({str(error).strip()}): "
                f"python manage.py migrate --database={alias}"
            ) from error
        if isinstance(error, OperationalError):
            raise StoreUnavailableError(f"database {alias!r} did not answer: {error}") from error
        raise
    except InterfaceError as error:
        raise StoreUnavailableError(f"database {alias!r} did not answer: {error}") from error


def _undefined(error: DatabaseError) -> bool:
    return sqlstate(error) in _UNDEFINED or str(error).startswith(("no such table", "no such column"))


def sqlstate(error: BaseException) -> str | None:
    """Return PostgreSQL's code for an error, None where there is none."""
    return getattr(error.__cause__, "sqlstate", None)


def refresh(connection: BaseDatabaseWrapper) -> None:
    """Let go of a connection that broke, or is past its age, while nothing was asked of it."""
    if not connection.in_atomic_block:
        connection.close_if_unusable_or_obsolete()


def refuse_transaction(alias: str) -> None:
    """Raise ConfigurationError inside a caller's transaction, which a TestCase's is not."""
    connection = connections[alias]
    if connection.in_atomic_block:
        try:
            with transaction.atomic(using=alias, durable=True):
                return
        except RuntimeError:
            raise ConfigurationError(
                f"a run cannot be driven inside transaction.atomic on {alias!r}, whose roll-back would undo the record "
                "of effects that stay: leave the block, or use runs.start or runs.resume(enqueue=True), which join it"
            ) from None
    if not connection.get_autocommit():
        raise ConfigurationError(
            f'database {alias!r} is not in autocommit: take "AUTOCOMMIT": False out of DATABASES[{alias!r}]'
        )
