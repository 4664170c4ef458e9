"""System checks: what is wrong with the settings and the agents, found at start.

They connect to nothing, but for what `adk_django.checks.database` asks the database of the runs: for
``check --deploy``, and for the aliases of ``check --database``.
"""

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured
from django.db import connections, router
from django.utils.connection import ConnectionDoesNotExist
from django.utils.module_loading import import_string

from adk_django import agents, conf
from adk_django.checks import redis as redis_checks
from adk_django.checks.database import ask
from adk_django.checks.stores import ask_where_runs_are
from adk_django.core.effects import EffectClass
from adk_django.core.masking.redactor import Redactor
from adk_django.exceptions import ConfigurationError
from adk_django.execution.leaseholder import RETRY_SECONDS
from adk_django.tools import Tool

TAG: Final = "adk_django"
VENDORS: Final = ("postgresql", "sqlite")
CHANGING: Final = frozenset(
    ("book", "buy", "cancel", "charge", "create", "delete", "insert", "order", "pay", "post", "refund", "remove")
    + ("send", "transfer", "update", "write")
)


@register(TAG)
def check_settings(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check ``ADK``: its keys and values, its stores, and the database the runs are in."""
    raw = conf.raw_settings()
    unknown = conf.unknown_keys(raw) if isinstance(raw, Mapping) else []
    settings, faults = conf.read(raw)  # where a value does not fit its default is checked in its place
    hint = "Correct the value, or leave the key out: each has a default."
    return [
        *(_unknown(key) for key in sorted(unknown)),
        *(Error(str(error), hint=hint, id="adk_django.E002") for error in faults),
        *_redaction(settings),
        *_leases(settings),
        *_stores(settings),
    ]


@register(TAG)
def check_agents(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check what the registered agents declare of their tools."""
    found: list[CheckMessage] = []
    owners: dict[Tool, str] = {}
    for agent in agents.registered():
        for tool in agent.tools:
            owners.setdefault(tool, agent.name)
    joins = _joins() if any(tool.effect is EffectClass.TRANSACTIONAL for tool in owners) else None
    for tool, name in owners.items():
        found += _tool(f"Tool {tool.name} of agent {name}", tool, joins)
    return found


@register(TAG, deploy=True)
def check_deployment(app_configs: Any = None, **kwargs: Any) -> list[CheckMessage]:
    """Check what a developer's machine may do and a deployment may not, and ask the database of the runs."""
    try:
        settings = conf.load(conf.raw_settings())
    except ConfigurationError:
        return []  # `check_settings` says so
    memory = [name for name, (path, _) in settings.stores.items() if _kind(path) == "memory"]
    found: list[CheckMessage] = []
    if memory:
        message = f"ADK['STORES'] keeps {', '.join(memory)} in memory: with the process, every run is lost."
        hint = f"Leave ADK['STORES'] out, or name {conf.DEFAULT_STORES[memory[0]]!r} and its siblings."
        found.append(Warning(message, hint=hint, id="adk_django.W005"))
    alias, asked = _alias(settings), kwargs.get("databases") or ()
    if alias is None:
        return [*found, *_runs_on(set(connections) - {*asked}, settings)]
    if alias in asked:  # `check_servers` asks
        return found
    return [*found, *ask(alias), *_in_redis(settings), *_runs_on({alias}, settings)]


@register(TAG, Tags.database)
def check_servers(app_configs: Any = None, databases: Sequence[str] | None = None, **kwargs: Any) -> list[CheckMessage]:
    """Ask the database of the runs, where it is one of ``databases``, how it keeps what was committed."""
    try:
        settings = conf.load(conf.raw_settings())
    except ConfigurationError:
        return []  # `check_settings` says so
    alias, asked = _alias(settings), databases or ()
    if alias is None:
        return _runs_on({*asked}, settings)
    if alias not in asked:
        return []
    return [*ask(alias), *_in_redis(settings), *_runs_on({alias}, settings)]


def _runs_on(aliases: set[str], settings: conf.Settings) -> list[CheckMessage]:
    """Look on databases for runs under way that are not in the stores of the settings."""
    kinds, caches = {_kind(path) for path, _ in settings.stores.values()}, redis_checks.aliases(settings)
    if len(kinds) != 1 or len(caches) > 1:
        return []  # the checks of settings say what is wrong with them
    (kind,) = kinds
    return [message for alias in sorted(aliases) for message in ask_where_runs_are(alias, kind, caches)]


def _in_redis(settings: conf.Settings) -> list[CheckMessage]:
    return [message for alias in redis_checks.aliases(settings) for message in redis_checks.ask(alias)]


def _unknown(key: str) -> CheckMessage:
    known = [name for top, names in conf.known_keys().items() for name in (top, *(f"{top}.{sub}" for sub in names))]
    close = difflib.get_close_matches(key.upper(), [name.upper() for name in known], n=1)
    meant = next((name for name in known if close and name.upper() == close[0]), None)
    hint = f"Write {meant}." if meant else f"Remove it. ADK has {', '.join(conf.known_keys())}."
    return Error(f"ADK has no key {key}.", hint=hint, id="adk_django.E001")


def _redaction(settings: conf.Settings) -> Iterator[CheckMessage]:
    for pattern in settings.redact.extra_patterns:
        try:
            Redactor((pattern,))
        except ValueError as error:
            hint = 'Write a regular expression that matches some text, such as r"order-[0-9]+".'
            yield Error(f"ADK['REDACT']['extra_patterns'] has {pattern!r}: {error}", hint=hint, id="adk_django.E003")


def _leases(settings: conf.Settings) -> Iterator[CheckMessage]:
    left = settings.leases.renew_within_seconds
    if left < 2 * RETRY_SECONDS:
        yield Warning(
            f"ADK['LEASES']['renew_within_seconds'] is {left:g}: a lease whose renewal fails once lapses, because the "
            f"next attempt comes {RETRY_SECONDS:g} seconds later.",
            hint='"LEASES": {"ttl_seconds": 60, "renew_within_seconds": 20}',
            id="adk_django.W001",
        )


# Stores, and the database they are in


def _stores(settings: conf.Settings) -> Iterator[CheckMessage]:
    from adk_django.stores.handler import options_of

    kinds: dict[str, str] = {}
    for name, (path, options) in settings.stores.items():
        try:
            backend = import_string(path)
            if _kind(path) in ("orm", "redis"):  # what others do when they are made is not known: they may connect
                backend(**options_of(path, options))
        except Exception as error:  # whatever the backend's own code raises, it cannot be had
            yield Error(
                f"ADK['STORES'][{name!r}] cannot be made from {path!r}: {type(error).__name__}: {error}",
                hint=f'"{name}": {{"BACKEND": "{conf.DEFAULT_STORES[name]}"}}',
                id="adk_django.E004",
            )
            continue
        kinds[name] = _kind(path)
        if kinds[name] in ("orm", "redis"):
            kinds[name] += f" on {_place_of(path, options)}"
        elif kinds[name] == "other" and hasattr(backend, "stamp"):
            kinds[name] = "stamped"
    found = set(kinds.values()) - {"stamped"}
    if len(kinds) == len(settings.stores) and (len(found) > 1 or "other" in found):
        mixture = ", ".join(f"{name} is {settings.stores[name][0]!r}" for name in kinds)
        yield Error(
            f"ADK['STORES'] is a mixture that nothing keeps together: {mixture}.",
            hint="Take all from adk_django.stores.orm on one alias, or all from adk_django.stores.redis on one cache, "
            "or all from adk_django.stores.memory, or stores with stamp(tenant, run_id, fence).",
            id="adk_django.E005",
        )
    for alias in redis_checks.aliases(settings):
        yield from redis_checks.check_alias(alias)
    if "memory" not in found:
        yield from _database(settings)
    capped = settings.resume.max_live or settings.resume.max_live_per_tenant
    if capped and kinds.get("leases", "").startswith("redis"):
        yield Warning(
            "ADK['RESUME'] caps how many runs live at once, and leases in Redis are not counted: the caps do nothing.",
            hint="Leave max_live and max_live_per_tenant out, or take all stores from adk_django.stores.orm.",
            id="adk_django.W017",
        )


def _kind(path: str) -> str:
    module = path.rpartition(".")[0]
    ours = {f"adk_django.stores.{name}": name for name in ("orm", "memory", "redis")}
    return ours.get(module, "other")


def _place_of(path: str, options: Mapping[str, Any]) -> str:
    """Return what has to be the same of all stores of a kind: their database, and in Redis their cache too."""
    from adk_django.stores.handler import options_of

    given = options_of(path, options)
    return f"{given.get('cache', 'adk')} beside {_alias_of(given)}" if _kind(path) == "redis" else _alias_of(given)


def _alias_of(options: Mapping[str, Any]) -> str:
    from adk_django.models import Run  # the registry is not ready when this module is imported

    alias: str = options.get("using") or router.db_for_write(Run)
    return alias


def _alias(settings: conf.Settings) -> str | None:
    """Return the alias of the run rows, None where they are in memory."""
    from adk_django.stores.handler import options_of

    if any(_kind(path) == "memory" for path, _ in settings.stores.values()):
        return None
    given = [options_of(path, item) for path, item in settings.stores.values() if _kind(path) in ("orm", "redis")]
    return _alias_of(given[0] if given else {})


def _database(settings: conf.Settings) -> Iterator[CheckMessage]:
    alias = str(_alias(settings))
    try:
        connection = connections[alias]
    except (ConnectionDoesNotExist, ImproperlyConfigured) as error:
        hint = 'Name an alias of DATABASES: "OPTIONS": {"using": "default"}.'
        yield Error(f"ADK['STORES'] is on the alias {alias!r}: {error}", hint=hint, id="adk_django.E006")
        return
    if connection.vendor not in VENDORS:
        yield Error(
            f"DATABASES[{alias!r}]['ENGINE'] is {connection.settings_dict['ENGINE']!r} ({connection.vendor}): runs are "
            f"kept in {' or '.join(VENDORS)} only.",
            hint='"ENGINE": "django.db.backends.postgresql", or route adk_django to another alias by DATABASE_ROUTERS.',
            id="adk_django.E006",
        )
    if not connection.settings_dict["AUTOCOMMIT"]:
        yield Error(
            f"DATABASES[{alias!r}]['AUTOCOMMIT'] is False: a commit of a run would be none.",
            hint="Remove AUTOCOMMIT.",
            id="adk_django.E007",
        )


# Tools


def _joins() -> frozenset[str] | None:
    from adk_django.stores.handler import complete

    try:
        return complete().joins
    except ConfigurationError:
        return None  # `check_settings` says why


def _tool(what: str, tool: Tool, joins: frozenset[str] | None) -> Iterator[CheckMessage]:
    match tool.effect:
        case EffectClass.TRANSACTIONAL if joins is not None and tool.using not in joins:
            places = ", ".join(map(repr, sorted(joins))) or "no database"
            yield Error(
                f"{what} is transactional on {tool.using!r}, but runs are in {places}: its rows and its outcome cannot "
                f"be one commit.",
                hint=f'@tool("transactional", using={min(joins, default="default")!r}), with the ORM stores there',
                id="adk_django.E008",
            )
        case EffectClass.EFFECTFUL if tool.probe is None:
            yield Warning(
                f"{what} is effectful and has no probe: a call that is in flight when its worker dies needs a person.",
                hint="@tool(probe=...), or SILENCED_SYSTEM_CHECKS = ['adk_django.W002']",
                id="adk_django.W002",
            )
        case EffectClass.READ_ONLY if tool.name.split("_")[0].lower() in CHANGING:
            yield Warning(
                f"{what} is read_only, but its name says that it changes something: it is made again unasked.",
                hint="@tool(probe=...), or SILENCED_SYSTEM_CHECKS = ['adk_django.W003']",
                id="adk_django.W003",
            )
        case EffectClass.IDEMPOTENT if not tool.takes_context:
            yield Warning(
                f"{what} is idempotent, but its body takes no context: it cannot pass the key on.",
                hint=f"def {tool.name}(..., context: ToolContext), and send context.idempotency_key; or, where a "
                "repetition lands on the same state, SILENCED_SYSTEM_CHECKS = ['adk_django.W004']",
                id="adk_django.W004",
            )
