"""Stores in the product's own database, PostgreSQL or SQLite, through Django's connections."""

from adk_django.stores.orm.bundle import OrmStores
from adk_django.stores.orm.checkpoints import OrmCheckpointStore
from adk_django.stores.orm.claims import OrmIdempotencyStore
from adk_django.stores.orm.history import OrmHistoryStore
from adk_django.stores.orm.leases import OrmLeaseStore
from adk_django.stores.orm.runs import OrmRunStore

__all__ = [
    "OrmCheckpointStore",
    "OrmHistoryStore",
    "OrmIdempotencyStore",
    "OrmLeaseStore",
    "OrmRunStore",
    "OrmStores",
]
