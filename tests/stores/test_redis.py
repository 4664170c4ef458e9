"""The stores in Redis pass the suites that every store has to pass."""

from adk_django.testing import (
    CheckpointStoreConformance,
    CommitConformance,
    HistoryStoreConformance,
    IdempotencyStoreConformance,
    LeaseStoreConformance,
)
from tests.stores.redis_conformance import InRedis


class TestRedisCheckpointStore(InRedis, CheckpointStoreConformance): ...


class TestRedisLeaseStore(InRedis, LeaseStoreConformance): ...


class TestRedisIdempotencyStore(InRedis, IdempotencyStoreConformance): ...


class TestRedisHistoryStore(InRedis, HistoryStoreConformance): ...


class TestRedisStores(InRedis, CommitConformance): ...
