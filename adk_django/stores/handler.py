"""The handler: which stores a run lives in, from ``ADK["STORES"]`` and from the ones a caller brings."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from django.db import connections
from django.utils.module_loading import import_string

from adk_django.conf import get_settings
from adk_django.exceptions import ConfigurationError
from adk_django.stores.base import CheckpointStore, HistoryStore, IdempotencyStore, LeaseStore
from adk_django.stores.bundle import Stores
from adk_django.stores.memory import (
    MemoryCheckpointStore,
    MemoryHistoryStore,
    MemoryIdempotencyStore,
    MemoryLeaseStore,
    MemoryRunStore,
    MemorySpace,
    MemoryStores,
)
from adk_django.stores.runs import RunStore

if TYPE_CHECKING:
    from adk_django.stores.redis.client import InCache

PROCESS_SPACE = MemorySpace()  # where memory stores that ADK["STORES"] names keep everything, for this process

_REDIS: Final = "adk_django.stores.redis"
IN_REDIS: Final = {
    "checkpoints": "adk_django.stores.redis.RedisCheckpointStore",
    "leases": "adk_django.stores.redis.RedisLeaseStore",
    "idempotency": "adk_django.stores.redis.RedisIdempotencyStore",
    "history": "adk_django.stores.redis.RedisHistoryStore",
}

_MEMORY = (MemoryCheckpointStore, MemoryLeaseStore, MemoryIdempotencyStore, MemoryHistoryStore)


def complete(
    *,
    checkpoints: CheckpointStore | None = None,
    leases: LeaseStore | None = None,
    idempotency: IdempotencyStore | None = None,
    history: HistoryStore | None = None,
    using: str | None = None,
    save_timeout_seconds: float | None = None,
) -> Stores:
    """Return a whole set of stores around those that are given.

    What is not given is a memory store beside a memory store, one in the same Redis beside one in Redis, else that of
    ``ADK["STORES"]``. Stores that share one database, or one memory, commit together; others one after another, a save
    of each within ``save_timeout_seconds`` (that of ``ADK`` where it is None).
    """
    if using is not None and using not in connections:
        raise ConfigurationError(f"there is no database {using!r}: DATABASES has {', '.join(sorted(connections))}")
    brought = [store for store in (checkpoints, leases, idempotency, history) if store is not None]
    alias = using or next((found for store in brought if (found := getattr(store, "using", None))), None)
    space = _space_of(brought)
    if space is None and checkpoints is None:
        checkpoints = _configured("checkpoints", alias)
        space = _space_of([checkpoints])
    if space is not None:
        return _bundle(
            checkpoints or MemoryCheckpointStore(space),
            leases or MemoryLeaseStore(space),
            idempotency or MemoryIdempotencyStore(space),
            history or MemoryHistoryStore(space),
            MemoryRunStore(space),
            save_timeout_seconds,
        )
    from adk_django.stores.orm import OrmRunStore  # its models need the app registry, the memory stores do not

    beside = _in_redis(brought)
    leases = leases or _configured("leases", alias, beside)
    return _bundle(
        checkpoints or _configured("checkpoints", alias, beside),
        leases,
        idempotency or _configured("idempotency", alias, beside),
        history or _configured("history", alias, beside),
        OrmRunStore(using=alias, leases=leases if _in_redis([leases]) else None),
        save_timeout_seconds,
    )


def _space_of(stores: Sequence[object]) -> MemorySpace | None:
    return next((store.space for store in stores if isinstance(store, _MEMORY)), None)


def _in_redis(stores: Sequence[object]) -> "InCache | None":
    """Return the first of the stores that is in Redis. Without one its client need not be installed."""
    if not any(base.__module__.startswith(_REDIS) for store in stores for base in type(store).__mro__):
        return None
    from adk_django.stores.redis.client import InCache

    return next((store for store in stores if isinstance(store, InCache)), None)


def options_of(path: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a store's ``OPTIONS`` as the keywords it is made with; of stores in Redis in lower case: CACHE is
    ``cache``."""
    return {key.lower() if path.startswith(_REDIS) else key: value for key, value in options.items()}


def _configured(kind: str, alias: str | None, beside: "InCache | None" = None) -> Any:
    path, given = get_settings().stores[kind]
    if beside is not None and not path.startswith(_REDIS):
        path, given = IN_REDIS[kind], {}
    options = options_of(path, given)
    if beside is not None:
        options |= {"cache": beside.cache, "max_value_bytes": beside.max_value_bytes, "using": beside.using or alias}
    elif alias is not None and path.startswith((_REDIS, "adk_django.stores.orm.")):
        options = {"using": alias, **options}
    elif path.startswith("adk_django.stores.memory."):
        options = {"space": PROCESS_SPACE, **options}
    try:
        return import_string(path)(**options)
    except (ImportError, TypeError) as error:
        raise ConfigurationError(f"ADK['STORES'][{kind!r}] cannot be made from {path!r}: {error}") from error


def _bundle(
    checkpoints: CheckpointStore,
    leases: LeaseStore,
    idempotency: IdempotencyStore,
    history: HistoryStore,
    runs: RunStore,
    save_timeout_seconds: float | None,
) -> Stores:
    stores = (checkpoints, leases, idempotency, history, runs)
    kinds: set[type] = {type(store) for store in stores}
    memory: set[type] = {*_MEMORY, MemoryRunStore}
    if kinds == memory and len({id(getattr(store, "space", None)) for store in stores}) == 1:
        return MemoryStores(checkpoints, leases, idempotency, history, runs)
    if not isinstance(runs, MemoryRunStore):
        from adk_django.stores import orm

        shared: set[type] = {
            orm.OrmCheckpointStore,
            orm.OrmLeaseStore,
            orm.OrmIdempotencyStore,
            orm.OrmHistoryStore,
            orm.OrmRunStore,
        }
        if _in_redis(stores):
            from adk_django.stores.redis.bundle import RedisStores
            from adk_django.stores.redis.client import InCache

            apart = all(isinstance(store, InCache) for store in stores[:-1])
            seconds = save_timeout_seconds or get_settings().checkpoints.save_timeout_seconds
            if apart and len({getattr(store, "cache", None) for store in stores[:-1]}) == 1:
                return RedisStores(checkpoints, leases, idempotency, history, runs, save_timeout_seconds=seconds)
        if kinds == shared and len({getattr(store, "using", None) for store in stores}) == 1:
            return orm.OrmStores(checkpoints, leases, idempotency, history, runs)
    seconds = save_timeout_seconds or get_settings().checkpoints.save_timeout_seconds
    return Stores(checkpoints, leases, idempotency, history, runs, save_timeout_seconds=seconds)
