"""The handler: which stores a run lives in, from ``ADK["STORES"]`` and from the ones a caller brings."""

from collections.abc import Sequence
from typing import Any

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

PROCESS_SPACE = MemorySpace()  # where memory stores that ADK["STORES"] names keep everything, for this process

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

    What is not given is a memory store beside a memory store, else that of ``ADK["STORES"]``. Stores that share one
    database, or one memory, commit together; others one after another, a save of each within ``save_timeout_seconds``
    (that of ``ADK`` where it is None).
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

    return _bundle(
        checkpoints or _configured("checkpoints", alias),
        leases or _configured("leases", alias),
        idempotency or _configured("idempotency", alias),
        history or _configured("history", alias),
        OrmRunStore(using=alias),
        save_timeout_seconds,
    )


def _space_of(stores: Sequence[object]) -> MemorySpace | None:
    return next((store.space for store in stores if isinstance(store, _MEMORY)), None)


def _configured(kind: str, alias: str | None) -> Any:
    path, options = get_settings().stores[kind]
    if alias is not None and path.startswith("adk_django.stores.orm."):
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
        if kinds == shared and len({getattr(store, "using", None) for store in stores}) == 1:
            return orm.OrmStores(checkpoints, leases, idempotency, history, runs)
    seconds = save_timeout_seconds or get_settings().checkpoints.save_timeout_seconds
    return Stores(checkpoints, leases, idempotency, history, runs, save_timeout_seconds=seconds)
