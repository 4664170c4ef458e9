"""The one setting, ``ADK``: its keys, defaults and units. The only reader of django.conf.settings."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any, Final, get_type_hints

from django.conf import settings
from django.core.signals import setting_changed
from django.dispatch import receiver

from adk_django.exceptions import ConfigurationError

DEFAULT_STORES: Final[Mapping[str, str]] = {
    "checkpoints": "adk_django.stores.orm.OrmCheckpointStore",
    "leases": "adk_django.stores.orm.OrmLeaseStore",
    "idempotency": "adk_django.stores.orm.OrmIdempotencyStore",
    "history": "adk_django.stores.orm.OrmHistoryStore",
}


@dataclass(frozen=True)
class Checkpoints:
    """Frontiers:

    Which boundaries are written, the cap of one payload, when one is stale, how long a save may take.
    """

    boundaries: tuple[str, ...] = ("after_model_call", "after_tool_result", "before_approval")
    max_bytes: int = 1_048_576
    ttl_seconds: float | None = None
    save_timeout_seconds: float = 5


@dataclass(frozen=True)
class Leases:
    """How long a lease lasts, and how much of it may be left before it is renewed."""

    ttl_seconds: float = 60
    renew_within_seconds: float = 20


@dataclass(frozen=True)
class Tools:
    """Tool bodies:

    Default time limit, grace behind it, how many at once, the largest result, what an unkept one does.
    """

    time_limit_seconds: float = 300
    grace_seconds: float = 30
    max_concurrent: int = 8
    max_result_bytes: int = 262_144
    on_unkept_result: str = "go_on"


@dataclass(frozen=True)
class Resume:
    """Carrying on: deaths until quarantine, sweep batches and caps, strictness, back-off (first, longest)."""

    max_deaths: int = 5
    batch: int = 100
    max_live: int | None = None
    max_live_per_tenant: int | None = None
    strict: bool = False
    backoff_seconds: tuple[float, float] = (5, 3600)


@dataclass(frozen=True)
class Redact:
    """Masking of what is stored."""

    enabled: bool = True
    personal_data: bool = False
    extra_patterns: tuple[str, ...] = ()


@dataclass(frozen=True)
class Settings:
    """``ADK``, read and frozen. ``stores`` maps each kind of store to its dotted path and options."""

    stores: Mapping[str, tuple[str, Mapping[str, Any]]] = field(
        default_factory=lambda: {name: (path, {}) for name, path in DEFAULT_STORES.items()}
    )
    checkpoints: Checkpoints = field(default_factory=Checkpoints)
    leases: Leases = field(default_factory=Leases)
    tools: Tools = field(default_factory=Tools)
    resume: Resume = field(default_factory=Resume)
    redact: Redact = field(default_factory=Redact)
    store_threads: int = 8


def unknown_keys(raw: Mapping[str, Any]) -> list[str]:
    """Return the keys of ``ADK`` that no setting has, dotted."""
    known = {item.name.upper(): item for item in fields(Settings)}
    unknown = []
    for key, value in raw.items():
        if key not in known:
            unknown.append(key)
        elif key == "STORES":
            unknown += [f"STORES.{name}" for name in value if name not in DEFAULT_STORES]
        elif is_dataclass(section := _section(key)):
            names = {item.name for item in fields(section)}
            unknown += [f"{key}.{name}" for name in value if name not in names]
    return unknown


def _section(key: str) -> Any:
    return get_type_hints(Settings)[key.lower()]


def load(raw: Mapping[str, Any]) -> Settings:
    """Return the settings that ``raw`` writes. Raise ConfigurationError, naming it, for an unknown key."""
    if unknown := unknown_keys(raw):
        raise ConfigurationError(f"ADK has unknown keys: {', '.join(sorted(unknown))}")
    values: dict[str, Any] = {}
    for key, value in raw.items():
        if key == "STORES":
            given = {name: (item["BACKEND"], item.get("OPTIONS", {})) for name, item in value.items()}
            values["stores"] = {name: given.get(name, (path, {})) for name, path in DEFAULT_STORES.items()}
        elif is_dataclass(section := _section(key)):
            frozen = {name: tuple(item) if isinstance(item, list) else item for name, item in value.items()}
            values[key.lower()] = section(**frozen)  # type: ignore[operator]  # a class of ours
        else:
            values[key.lower()] = value
    return Settings(**values)


def raw_settings() -> Mapping[str, Any]:
    """Return ``ADK`` as it is written."""
    raw: Mapping[str, Any] = getattr(settings, "ADK", {})
    return raw


@functools.cache
def get_settings() -> Settings:
    """Return the settings in force."""
    return load(raw_settings())


@receiver(setting_changed)
def _clear(*, setting: str, **kwargs: Any) -> None:
    if setting == "ADK":
        get_settings.cache_clear()
