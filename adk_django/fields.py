"""Columns that read the same on every database and under every setting, and whose labels are no part of the schema.

Their migrations are those of Django's own fields: nothing in a migration leads back here.
"""

from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils import timezone

from adk_django.core import codec

_QUOTED = ('"', '{"$"')  # how the JSON of a text begins


class _Column:
    """A field that deconstructs as the Django field it extends, without its label."""

    def deconstruct(self) -> Any:
        """Return what a migration needs to know."""
        name, _, args, kwargs = super().deconstruct()  # type: ignore[misc]  # mixed into fields
        kwargs.pop("verbose_name", None)
        base = next(cls for cls in type(self).__mro__ if cls.__module__.startswith("django.db.models"))
        return name, f"django.db.models.{base.__name__}", args, kwargs


class CharField(_Column, models.CharField):  # type: ignore[type-arg]  # generic for type checkers only
    """A short name of ours, or an id."""


class IntegerField(_Column, models.IntegerField):  # type: ignore[type-arg]  # generic for type checkers only
    """A small number."""


class BigIntegerField(_Column, models.BigIntegerField):  # type: ignore[type-arg]  # generic for type checkers only
    """A number that grows for years."""


class FloatField(_Column, models.FloatField):  # type: ignore[type-arg]  # generic for type checkers only
    """A duration in seconds."""


class BooleanField(_Column, models.BooleanField):  # type: ignore[type-arg]  # generic for type checkers only
    """Yes or no."""


class PayloadField(_Column, models.TextField):  # type: ignore[type-arg]  # generic for type checkers only
    """Canonical ASCII JSON, kept byte for byte."""


class TextField(_Column, models.TextField):  # type: ignore[type-arg]  # generic for type checkers only
    """Anybody's text, kept exactly: what a database refuses (NUL, lone surrogates) is stored as its JSON string."""

    def get_prep_value(self, value: Any) -> Any:
        """Return the text as it is stored."""
        value = super().get_prep_value(value)
        return quoted(value) if isinstance(value, str) else value

    def from_db_value(self, value: str | None, expression: Any, connection: BaseDatabaseWrapper) -> str | None:
        """Return the text as it was given."""
        return value if value is None else unquoted(value)


class InstantField(_Column, models.DateTimeField):  # type: ignore[type-arg]  # generic for type checkers only
    """An instant in UTC, aware whatever USE_TZ says.

    SQLite holds it as text of one form, in milliseconds, so that instants compare there and with its clock.
    """

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        """Return the instant as it is stored."""
        if not prepared:
            value = self.get_prep_value(value)
        if not isinstance(value, datetime):
            return value
        if value.tzinfo is None:
            value = timezone.make_aware(value)
        value = value.astimezone(UTC)
        return as_text(value) if connection.vendor == "sqlite" else value

    def from_db_value(self, value: Any, expression: Any, connection: BaseDatabaseWrapper) -> datetime | None:
        """Return the instant, aware and in UTC."""
        return instant(value, connection)


def quoted(text: str) -> str:
    """Return ``text`` in a form that every database takes."""
    if not text.startswith(_QUOTED) and "\0" not in text:
        try:
            text.encode()
        except UnicodeEncodeError:
            pass
        else:
            return text
    return codec.encode(text)


def unquoted(text: str) -> str:
    """Return the text that `quoted` was given. One that was damaged reads as it stands, or its row could not be
    shown."""
    try:
        return str(codec.decode(text)) if text.startswith(_QUOTED) else text
    except codec.DecodeError:
        return text


def as_text(value: datetime) -> str:
    """Return an instant in UTC as SQLite's own ``strftime('%Y-%m-%d %H:%M:%f')`` writes it."""
    return value.strftime("%Y-%m-%d %H:%M:%S.") + f"{value.microsecond // 1000:03d}"


def instant(value: Any, connection: BaseDatabaseWrapper) -> datetime | None:
    """Return a column's instant, aware and in UTC, whatever the connection made of it."""
    if value is None:
        return None
    found: datetime = datetime.fromisoformat(value) if isinstance(value, str) else value
    if connection.vendor == "sqlite":  # the wall clock is UTC, whatever zone USE_TZ attached to it
        return found.replace(tzinfo=UTC)
    if found.tzinfo is None:  # USE_TZ is off: the session's zone, fold and all
        found = found.replace(tzinfo=ZoneInfo(connection.timezone_name))
    return found.astimezone(UTC)
