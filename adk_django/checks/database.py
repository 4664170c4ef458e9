"""What a database says of how it keeps commits. Asked on a connection of its own, for two seconds at most."""

import contextlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final

from django.core.checks import CheckMessage, Warning
from django.core.exceptions import ImproperlyConfigured
from django.db import Error as DatabaseError
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.connection import ConnectionDoesNotExist

from adk_django.concurrency import Left, in_thread
from adk_django.exceptions import AdkError

SECONDS: Final = 2.0  # that a check waits for a server
BUSY_MILLISECONDS: Final = 5_000
_OFF, _NORMAL = 0, 1  # of SQLite's synchronous


def ask(alias: str) -> list[CheckMessage]:
    """Return what the database of ``alias`` says of itself, or a warning that it did not answer in time."""
    try:
        connection = connections[alias]
    except (ConnectionDoesNotExist, ImproperlyConfigured):
        return []  # the checks of settings say so
    question = {"postgresql": _postgresql, "sqlite": _sqlite}.get(connection.vendor)
    if question is None:
        return []

    def asking() -> Iterator[CheckMessage]:
        with own_connection(connection) as own:
            yield from question(alias, own)

    def unanswered(said: str) -> CheckMessage:
        return Warning(
            f"The database {alias!r} could not be asked how it keeps commits: {said}",
            hint=f"Once it answers: python manage.py check --tag adk_django --database {alias}",
            id="adk_django.W006",
        )

    return in_time(asking, unanswered)


def in_time(
    asking: Callable[[], Iterable[CheckMessage]], unanswered: Callable[[str], CheckMessage | None]
) -> list[CheckMessage]:
    """Return what ``asking`` a server comes to, or what ``unanswered`` makes of why nothing came of it, if anything.

    On a thread, because a server can fall silent at any point; on a daemon one, because it may be so for ever.
    """
    try:
        return in_thread(lambda: list(asking())).wait(SECONDS)
    except Left:
        found = unanswered(f"no answer within {SECONDS:g} seconds")
    except (DatabaseError, AdkError, OSError) as error:
        found = unanswered(str(error).strip())
    return [] if found is None else [found]


def is_made(connection: BaseDatabaseWrapper) -> bool:
    """Return whether there is a database to ask: a file of SQLite that is in memory, or not made yet, would be made."""
    return connection.vendor != "sqlite" or Path(connection.settings_dict["NAME"]).exists()


@contextlib.contextmanager
def own_connection(connection: BaseDatabaseWrapper) -> Iterator[BaseDatabaseWrapper]:
    """Yield a connection of this thread's own to the same database."""
    own = connection.copy()
    if own.vendor == "postgresql":
        own.settings_dict["OPTIONS"].pop("pool", None)
        own.settings_dict["OPTIONS"]["connect_timeout"] = int(SECONDS)
    try:
        yield own
    finally:
        own.close()


def _postgresql(alias: str, connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    if _answer(connection, "SHOW synchronous_commit") == "off":
        yield Warning(
            f"The database {alias!r} has synchronous_commit = off: a crash of the server takes back commits it "
            f"confirmed, and a call that was made may then read as never made.",
            hint=f'DATABASES[{alias!r}][\'OPTIONS\']: {{"options": "-c synchronous_commit=on"}}',
            id="adk_django.W010",
        )


def _sqlite(alias: str, connection: BaseDatabaseWrapper) -> Iterator[CheckMessage]:
    if not is_made(connection):
        return
    where = f"DATABASES[{alias!r}]['OPTIONS']"
    journal = _answer(connection, "PRAGMA journal_mode")
    if journal != "wal":
        yield Warning(
            f"The database {alias!r} has journal_mode={journal}: reading holds up the workers that write.",
            hint=f'{where}: {{"init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL"}}',
            id="adk_django.W007",
        )
    busy = _answer(connection, "PRAGMA busy_timeout")
    if busy < BUSY_MILLISECONDS:
        yield Warning(
            f"The database {alias!r} has a busy timeout of {busy} milliseconds: a worker that finds it locked for "
            f"longer stops.",
            hint=f'{where}: {{"timeout": 20}}',
            id="adk_django.W008",
        )
    synchronous = _answer(connection, "PRAGMA synchronous")
    if synchronous == _OFF or (synchronous == _NORMAL and journal == "wal"):
        yield Warning(
            f"The database {alias!r} has synchronous={'NORMAL' if synchronous else 'OFF'}: a power cut takes back the "
            f"last commits, and a call that was made may then read as never made.",
            hint=f'{where}: {{"init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL"}}',
            id="adk_django.W009",
        )


def _answer(connection: BaseDatabaseWrapper, question: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(question)
        return cursor.fetchone()[0]
