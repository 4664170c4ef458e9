"""How the stores reach Redis: the raw client of a django-redis alias, the keys of a run, and one way to run a script.

The cache API is not used: it pickles, it may swallow what fails, and its ``clear()`` empties a database.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.core.cache import InvalidCacheBackendError
from django.utils.module_loading import import_string
from django_redis import get_redis_connection
from django_redis.cache import RedisCache
from redis.exceptions import NoScriptError, RedisError

from adk_django.core import codec
from adk_django.exceptions import (
    CheckpointDamagedError,
    CheckpointTooLargeError,
    ConfigurationError,
    LeaseLostError,
    StoreUnavailableError,
)

MAX_VALUE_BYTES: Final = 16 * 1024 * 1024
PICKLE: Final = "django_redis.serializers.pickle.PickleSerializer"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_PART: Final = {"lease": 0, "frontier": 1, "claims": 2}


def refusal(alias: str) -> str:
    """Return why ``CACHES`` has no alias of that name that runs can be kept in, empty where it has. Connects to
    nothing."""
    found = settings.CACHES.get(alias)
    if found is None:
        return f"CACHES has no alias {alias!r}"
    try:
        backend = import_string(found.get("BACKEND", ""))
    except ImportError as error:
        return f"CACHES[{alias!r}] cannot be had: {error}"
    if not (isinstance(backend, type) and issubclass(backend, RedisCache)):
        return f"CACHES[{alias!r}]['BACKEND'] is {found['BACKEND']!r}, expected 'django_redis.cache.RedisCache'"
    options = found.get("OPTIONS", {})
    if options.get("IGNORE_EXCEPTIONS", getattr(settings, "DJANGO_REDIS_IGNORE_EXCEPTIONS", False)):
        return f"CACHES[{alias!r}] has IGNORE_EXCEPTIONS on: a server that is down would read as one that is empty"
    if options.get("SERIALIZER") == PICKLE:
        return f"CACHES[{alias!r}] has a pickle serializer: whoever writes to that server would run code here"
    return ""


def raw_client(alias: str) -> Any:
    """Return the raw client of an alias, to the server that is written to.

    Raise ConfigurationError if runs cannot be kept there.
    """
    if why := refusal(alias):
        raise ConfigurationError(why)
    try:
        return get_redis_connection(alias, write=True)
    except (InvalidCacheBackendError, NotImplementedError, TypeError) as error:
        raise ConfigurationError(f"CACHES[{alias!r}] gives no raw client of Redis: {error}") from error


@contextmanager
def mapped(alias: str) -> Iterator[None]:
    """Turn the client's own errors into ours: the server did not answer, or refused."""
    try:
        yield
    except RedisError as error:
        raise StoreUnavailableError(f"the Redis of CACHES[{alias!r}] did not answer: {error}") from error


def keys_of(tenant: str, run_id: str) -> tuple[str, str, str]:
    """Return the keys of a run: lease, frontier and claims.

    All have one hash tag, so they are on one server of a cluster. The parts of the id are hashed with the length of
    the first before it: no tenant can write the name of another's.
    """
    first, second = (part.encode("utf-8", "surrogatepass") for part in (tenant, run_id))
    tag = hashlib.sha256(b"%d:%s%s" % (len(first), first, second)).hexdigest()
    lease, frontier, claims = (f"adk:{{{tag}}}:{part}" for part in _PART)
    return lease, frontier, claims


def transcript_key(tenant: str, run_id: str, generation: int) -> str:
    """Return the key of one generation of a run's conversation."""
    return keys_of(tenant, run_id)[0].removesuffix("lease") + f"transcript:{generation}"


def milliseconds(seconds: float) -> str:
    """Return a duration as the scripts take it."""
    return str(round(seconds * 1000))


def instant(text: str) -> datetime:
    """Return an instant that a script returned."""
    return _EPOCH + timedelta(milliseconds=int(text))


class InCache:
    """A store in the Redis of a django-redis alias, beside the run rows on the database alias ``using``.

    ``using`` None is the alias that the router writes run rows to. ``max_value_bytes`` bounds one frontier and one
    message.
    """

    def __init__(self, cache: str = "adk", *, max_value_bytes: int = MAX_VALUE_BYTES, using: str | None = None) -> None:
        if type(max_value_bytes) is not int or max_value_bytes < 1:
            raise ConfigurationError(f"max_value_bytes is {max_value_bytes!r}: expected a number above 0")
        self.cache, self.max_value_bytes, self.using = cache, max_value_bytes, using

    @property
    def client(self) -> Any:
        """The raw client. Its pool is shared by the process and made anew after a fork."""
        return raw_client(self.cache)

    def call(self, script: str, tenant: str, run_id: str, *arguments: str | int, more: Sequence[str] = ()) -> list[str]:
        """Run a script on the keys of a run and ``more``; return what it answers, as text, its status first.

        Raise CheckpointDamagedError where it found a claim that cannot be read.
        """
        client, keys = self.client, (*keys_of(tenant, run_id), *more)
        sha = hashlib.sha1(script.encode(), usedforsecurity=False).hexdigest()
        with mapped(self.cache):
            try:
                answer = client.evalsha(sha, len(keys), *keys, *arguments)
            except NoScriptError:
                answer = client.eval(script, len(keys), *keys, *arguments)
        said = [text_of(item) for item in answer]
        if said[0] == "damaged":
            raise CheckpointDamagedError(f"the claim of call {said[1]} of run {run_id} cannot be read")
        return said

    def under(
        self, script: str, tenant: str, run_id: str, fence: int, *arguments: str | int, more: Sequence[str] = ()
    ) -> list[str]:
        """Run a script that writes under ``fence``. Raise LeaseLostError if it is no longer the one that stands."""
        said = self.call(script, tenant, run_id, fence, *arguments, more=more)
        if said[0] == "lost":
            raise lost(run_id, fence, said)
        return said

    def refuse_large(self, text: str, what: str) -> None:
        """Raise CheckpointTooLargeError, before the server is asked, if ``text`` is over the cap."""
        if len(text) > self.max_value_bytes:  # canonical JSON is ASCII: a character is a byte
            raise CheckpointTooLargeError(len(text), self.max_value_bytes, what)


def lost(run_id: str, fence: int, said: Sequence[str]) -> LeaseLostError:
    """Return the error of a writer whose lease is gone, saying who has the run."""
    _, standing, holder, until, here = said
    if holder and not here:
        why = "the server restarted meanwhile, and what was written last may be lost"
    else:
        why = f"fence {standing} is held by {named(holder)}" if holder else f"fence {standing} is held by nobody"
    held = bool(holder)
    return LeaseLostError(
        f"fence {fence} of run {run_id} does not stand: {why}",
        holder=named(holder) if held else None,
        until=instant(until) if held else None,
        fence=int(standing),
    )


def named(text: str) -> str:
    """Return a name as it was given. It is stored as its JSON string: any text can be one."""
    return str(codec.decode(text))


def text_of(value: Any) -> str:
    """Return what the client answered as text; nothing is the empty one."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return "" if value is None else str(value)
