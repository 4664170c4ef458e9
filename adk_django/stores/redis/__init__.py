"""Stores in Redis, through the raw client of a django-redis alias, beside the run rows in the product's database."""

from adk_django.stores.redis.bundle import RedisStores
from adk_django.stores.redis.checkpoints import RedisCheckpointStore
from adk_django.stores.redis.claims import RedisIdempotencyStore
from adk_django.stores.redis.history import RedisHistoryStore
from adk_django.stores.redis.leases import RedisLeaseStore

__all__ = [
    "RedisCheckpointStore",
    "RedisHistoryStore",
    "RedisIdempotencyStore",
    "RedisLeaseStore",
    "RedisStores",
]
