"""The one setting, ``ADK``: its keys, defaults and units. The only reader of django.conf.settings."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Annotated, Any, Final, Literal, get_type_hints

from django.conf import settings
from django.core.signals import setting_changed
from django.dispatch import receiver
from pydantic import Field, TypeAdapter, ValidationError

from adk_django.core.lease import LeasePolicy
from adk_django.exceptions import ConfigurationError

Positive = Annotated[int, Field(gt=0)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]

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

    boundaries: tuple[Literal["after_model_call", "after_tool_result", "before_approval"], ...] = (
        "after_model_call",
        "after_tool_result",
        "before_approval",
    )
    max_bytes: Positive = 1_048_576
    ttl_seconds: Seconds | None = None
    save_timeout_seconds: Seconds = 5


@dataclass(frozen=True)
class Leases:
    """How long a lease lasts, and how much of it may be left before it is renewed."""

    ttl_seconds: Seconds = 60
    renew_within_seconds: Seconds = 20

    def __post_init__(self) -> None:
        LeasePolicy(self.ttl_seconds, self.renew_within_seconds)


@dataclass(frozen=True)
class Tools:
    """Tool bodies:

    Default time limit, grace behind it, how many at once, the largest result, what an unkept one does.
    """

    time_limit_seconds: Seconds = 300
    grace_seconds: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 30
    max_concurrent: Positive = 8
    max_result_bytes: Positive = 262_144
    on_unkept_result: Literal["go_on", "fail_run"] = "go_on"


@dataclass(frozen=True)
class Resume:
    """Carrying on: deaths until quarantine, sweep batches and caps, strictness, back-off (first, longest)."""

    max_deaths: Positive = 5
    batch: Positive = 100
    max_live: Positive | None = None
    max_live_per_tenant: Positive | None = None
    strict: bool = False
    backoff_seconds: tuple[Seconds, Seconds] = (5, 3600)

    def __post_init__(self) -> None:
        first, longest = self.backoff_seconds
        if first > longest:
            raise ValueError(f"backoff_seconds is {[first, longest]!r}: must be [first, longest], the longest not less")


@dataclass(frozen=True)
class Continue:
    """Hand-over to a fresh task: after so many steps of one slice. ``max_history_bytes`` is for engines with a history
    of their own."""

    max_steps: Positive = 50
    max_history_bytes: Positive | None = None


@dataclass(frozen=True)
class Limits:
    """What one run may use, over resumes and continuations: how often it may ask its model."""

    max_turns: Positive = 100


@dataclass(frozen=True)
class Retention:
    """How long what has ended is kept."""

    ended_days: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 30


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
    continue_: Continue = field(default_factory=Continue)
    limits: Limits = field(default_factory=Limits)
    redact: Redact = field(default_factory=Redact)
    retention: Retention = field(default_factory=Retention)
    store_threads: Positive = 8
    celery_queue: Annotated[str, Field(min_length=1)] = "adk"


_STORE_KEYS: Final = ("BACKEND", "OPTIONS")


def known_keys() -> dict[str, tuple[str, ...]]:
    """Return the keys of ``ADK``, each with the keys of its section."""
    hints = get_type_hints(Settings)
    sections = {
        _key(name): tuple(item.name for item in fields(hint)) if is_dataclass(hint) else ()
        for name, hint in hints.items()
    }
    return {**sections, "STORES": tuple(DEFAULT_STORES)}


def _key(name: str) -> str:
    """Return the key of a field; one that would be a word of Python's ends in an underscore."""
    return name.rstrip("_").upper()


def unknown_keys(raw: Mapping[str, Any]) -> list[str]:
    """Return the keys of ``ADK`` that no setting has, dotted."""
    known, unknown = known_keys(), []
    for key, value in raw.items():
        if key not in known:
            unknown.append(str(key))
        elif isinstance(value, Mapping):
            unknown += [f"{key}.{name}" for name in value if name not in known[key]]
            if key == "STORES":
                stores = [(name, item) for name, item in value.items() if isinstance(item, Mapping)]
                unknown += [f"{key}.{name}.{extra}" for name, item in stores for extra in item.keys() - _STORE_KEYS]
    return unknown


def load(raw: Any) -> Settings:
    """Return the settings that ``raw`` writes.

    Raise ConfigurationError for unknown keys, and for the first value that does not fit, naming key, value and what
    fits.
    """
    if isinstance(raw, Mapping) and (unknown := unknown_keys(raw)):
        raise ConfigurationError(f"ADK has unknown keys: {', '.join(sorted(unknown))}")
    settings, faults = read(raw)
    if faults:
        raise faults[0]
    return settings


def read(raw: Any) -> tuple[Settings, list[ConfigurationError]]:
    """Return the settings that ``raw`` writes, and an error for each value that does not fit.

    A default stands in for such a value. Unknown keys are left out: `unknown_keys` names them.
    """
    if not isinstance(raw, Mapping):
        return Settings(), [misfit("ADK", raw, "must be a dictionary")]
    values: dict[str, Any] = {}
    faults: list[ConfigurationError] = []
    for name, hint in get_type_hints(Settings, include_extras=True).items():
        key = _key(name)
        if key not in raw:
            continue
        where, value = f"ADK[{key!r}]", raw[key]
        if (key == "STORES" or is_dataclass(hint)) and not isinstance(value, Mapping):
            faults.append(misfit(where, value, "must be a dictionary"))
        elif key == "STORES":
            values[name] = _stores(where, value, faults)
        elif is_dataclass(hint):
            values[name] = _section(hint, where, value, faults)
        else:
            values |= _kept({name: value}, {name: hint}, {name: where}, faults)
    return Settings(**values), faults


def _kept(
    given: Mapping[str, Any], hints: Mapping[str, Any], places: Mapping[str, str], faults: list[ConfigurationError]
) -> dict[str, Any]:
    """Return those of the values that fit; add an error for each of the others to ``faults``."""
    kept = {}
    for name in hints:
        if name not in given:
            continue
        try:
            kept[name] = _fitting(hints[name], places[name], given[name])
        except ConfigurationError as error:
            faults.append(error)
    return kept


def _section(section: Any, where: str, given: Mapping[str, Any], faults: list[ConfigurationError]) -> Any:
    hints = get_type_hints(section, include_extras=True)
    kept = _kept(given, hints, {name: f"{where}[{name!r}]" for name in hints}, faults)
    try:
        return section(**kept)
    except ValueError as error:
        fault = ConfigurationError(f"{where}: {error}")
        fault.__cause__ = error
        faults.append(fault)
        return section()


def _stores(where: str, given: Mapping[str, Any], faults: list[ConfigurationError]) -> dict[str, Any]:
    stores: dict[str, Any] = {}
    for name, path in DEFAULT_STORES.items():
        stores[name] = (path, {})
        if name in given:
            try:
                stores[name] = _store(f"{where}[{name!r}]", given[name])
            except ConfigurationError as error:
                faults.append(error)
    return stores


def _fitting(hint: Any, where: str, value: Any) -> Any:
    """Return ``value`` as it is kept: a list as a tuple, all else as it is. Raise ConfigurationError if it does not
    fit."""
    frozen = tuple(value) if isinstance(value, list) else value
    try:
        TypeAdapter(hint).validate_python(frozen, strict=True)
    except ValidationError as error:
        wanted = error.errors(include_url=False)[0]["msg"]
        raise misfit(where, value, wanted.replace("Input should be", "must be").replace("tuple", "list")) from error
    return frozen


def _store(where: str, item: Any) -> tuple[str, Mapping[str, Any]]:
    if not isinstance(item, Mapping) or not isinstance(item.get("BACKEND"), str):
        raise misfit(where, item, "must be {'BACKEND': a dotted path, 'OPTIONS': {...}}")
    options = item.get("OPTIONS", {})
    if not isinstance(options, Mapping):
        raise misfit(f"{where}['OPTIONS']", options, "must be a dictionary")
    return item["BACKEND"], options


def misfit(where: str, value: Any, wanted: str) -> ConfigurationError:
    """Return the error of a value that does not fit."""
    return ConfigurationError(f"{where} is {value!r}: {wanted}")


def raw_settings() -> Any:
    """Return ``ADK`` as it is written."""
    return getattr(settings, "ADK", {})


@functools.cache
def get_settings() -> Settings:
    """Return the settings in force."""
    return load(raw_settings())


@receiver(setting_changed)
def _clear(*, setting: str, **kwargs: Any) -> None:
    if setting == "ADK":
        get_settings.cache_clear()
