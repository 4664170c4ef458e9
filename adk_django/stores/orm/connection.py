"""How a connection is chosen, refreshed and asked, and what its errors are turned into."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from django.db import DatabaseError, InterfaceError, OperationalError, connections, router, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.models import Model

from adk_django.exceptions import ConfigurationError, StoreUnavailableError

R = TypeVar("R")

IDLE_SECONDS: Final = 10

_used: WeakKeyDictionary[BaseDatabaseWrapper, float] = WeakKeyDictionary()

ATTEMPTS: Final = 20  # of one statement: each time it is refused, another was made

_UNDONE: Final = ("40001", "40P01")  # serialization failure, deadlock: nothing of the statement stands

_UNDEFINED: Final = ("42P01", "42703")  # undefined table, undefined column


def alias_for(model: type[Model], using: str | None) -> str:
    """Return the alias to write to, and to read what must not lag."""
    return using or router.db_for_write(model)


@contextmanager
def mapped(alias: str) -> Iterator[None]:
    """Turn the database's own errors into ours: it did not answer, or it has no such table."""
    refresh(connections[alias])
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


def serialized(connection: BaseDatabaseWrapper, send: Callable[[], R]) -> R:
    """Return what ``send``, one statement, comes to; send it again where others were in its way.

    Where the product asks for REPEATABLE READ or more, a statement that waited for another's row is refused. In
    autocommit nothing of it stands; in a transaction all of that has to be made again, by whoever opened it.
    """
    for left in reversed(range(ATTEMPTS)):
        try:
            return send()
        except OperationalError as error:
            if not left or connection.in_atomic_block or sqlstate(error) not in _UNDONE:
                raise
    raise AssertionError("a last attempt returns or raises")


def sqlstate(error: BaseException) -> str | None:
    """Return PostgreSQL's code for an error, None where there is none."""
    return getattr(error.__cause__, "sqlstate", None)


def refresh(connection: BaseDatabaseWrapper) -> None:
    """Let go of a connection that broke, or passed its age, while nothing was asked of it for a while.

    Between statements that follow each other it would cost a health check each. An age of 0 means the length of a
    request, not of a statement: such a connection goes only after an error.
    """
    now = time.monotonic()
    idle, _used[connection] = now - _used.get(connection, -IDLE_SECONDS), now
    aged = idle >= IDLE_SECONDS and connection.settings_dict["CONN_MAX_AGE"] != 0
    if not connection.in_atomic_block and (aged or connection.errors_occurred):
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
                "of effects that stay: leave the block; runs.start joins it, and a worker drives the run later"
            ) from None
    if not connection.get_autocommit():
        raise ConfigurationError(
            f'database {alias!r} is not in autocommit: take "AUTOCOMMIT": False out of DATABASES[{alias!r}]'
        )
