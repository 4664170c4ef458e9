"""What is wrong with the cache alias that runs are kept in, and what its server says of how it keeps them."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from django.conf import settings as django_settings
from django.core.checks import CheckMessage, Error, Warning

from adk_django import conf
from adk_django.checks.database import in_time

PREFIX: Final = "adk_django.stores.redis."


def aliases(settings: conf.Settings) -> list[str]:
    """Return the cache aliases that ``ADK['STORES']`` names for stores in Redis."""
    from adk_django.stores.handler import options_of

    found = [
        options_of(path, options).get("cache", "adk")
        for path, options in settings.stores.values()
        if path.startswith(PREFIX)
    ]
    return sorted({str(alias) for alias in found})


def check_alias(alias: str) -> Iterator[CheckMessage]:
    """Check, without connecting, that an alias of ``CACHES`` is one that runs can be kept in, and theirs alone."""
    from adk_django.stores.redis.client import refusal

    if why := refusal(alias):
        hint = f'"{alias}": {{"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://HOST:6379/1"}} in CACHES'
        yield Error(f"ADK['STORES'] keeps runs in {why}.", hint=hint, id="adk_django.E009")
        return
    caches: Mapping[str, Mapping[str, Any]] = django_settings.CACHES
    place = caches[alias].get("LOCATION")
    others = [name for name, cache in caches.items() if name != alias and place and cache.get("LOCATION") == place]
    if alias == "default" or others:
        shared = "the product's own cache" if alias == "default" else f"CACHES[{others[0]!r}] as well"
        yield Error(
            f"ADK['STORES'] keeps runs in CACHES[{alias!r}], which is {shared}: its clear() deletes them.",
            hint='"adk": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": "redis://HOST:6379/1"} in CACHES: a '
            "database, or better a server, of its own",
            id="adk_django.E010",
        )


def ask(alias: str) -> list[CheckMessage]:
    """Return what the server of an alias says of itself, or a warning that it could not be asked in time."""
    from adk_django.stores.redis.client import refusal

    if refusal(alias):
        return []  # the checks of settings say so
    return in_time(
        lambda: _answers(alias), lambda said: _unread(alias, f"could not be asked how it keeps runs: {said}")
    )


def _unread(alias: str, what: str) -> CheckMessage:
    return Warning(
        f"The Redis of CACHES[{alias!r}] {what}",
        hint="See to it by hand: maxmemory-policy noeviction, and appendonly yes or a save rule.",
        id="adk_django.W016",
    )


def _answers(alias: str) -> Iterator[CheckMessage]:
    from redis.exceptions import ResponseError

    from adk_django.stores.redis.client import mapped, raw_client, text_of

    wanted = ("maxmemory-policy", "appendonly", "save")
    with mapped(alias):
        client = raw_client(alias)
        client.ping()
        try:
            found: dict[str, str] = {}
            for name in wanted:
                found |= {text_of(key): text_of(value) for key, value in client.config_get(name).items()}
        except ResponseError:  # a server that is rented out may not let its settings be read
            found = {}
    if missing := [name for name in wanted if name not in found]:
        yield _unread(alias, f"does not let {', '.join(missing)} be read.")
        return
    if (policy := found["maxmemory-policy"]) != "noeviction":
        yield Warning(
            f"The Redis of CACHES[{alias!r}] has maxmemory-policy {policy}: short of memory it deletes what runs need, "
            f"and they stop.",
            hint="maxmemory-policy noeviction in redis.conf, or CONFIG SET maxmemory-policy noeviction",
            id="adk_django.W014",
        )
    if found["appendonly"] != "yes" and not found["save"]:
        yield Warning(
            f"The Redis of CACHES[{alias!r}] keeps nothing on disk: a restart loses every run that has begun.",
            hint="appendonly yes in redis.conf; appendfsync always loses nothing, everysec a second",
            id="adk_django.W015",
        )
