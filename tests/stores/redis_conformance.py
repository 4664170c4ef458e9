"""The suites of stores on the suite's Redis, beside run rows on one of its databases."""

import json
from typing import Any

import pytest
from django_redis import get_redis_connection

from adk_django.stores.bundle import Stores
from adk_django.stores.handler import complete
from adk_django.stores.redis import RedisCheckpointStore
from adk_django.stores.redis.client import keys_of
from adk_django.testing import StoreConformance
from tests.stores.orm_conformance import age as age_database
from tests.stores.orm_conformance import forget_run

_INSTANTS = {
    "lease": ("acquired_at", "expires_at"),
    "frontier": ("created_at",),
}
_OF_CLAIM = ("begun_at", "deadline_at", "settled_at", "evidence_at")


def client() -> Any:
    """Return a raw client of the suite's Redis."""
    return get_redis_connection("adk")


def stores_in_redis(using: str) -> Stores:
    """Return a fresh bundle."""
    return complete(checkpoints=RedisCheckpointStore(using=using), using=using)


def age_redis(seconds: float, *names: str) -> None:
    """Let so much time pass in Redis, by moving every instant in it back: in the keys ``names``, or in all."""
    redis, passed = client(), round(seconds * 1000)
    for name in names or [key.decode() for key in redis.scan_iter("adk:*")]:
        part = name.rpartition(":")[2]
        for field in _INSTANTS.get(part, ()):
            if value := redis.hget(name, field):
                redis.hset(name, field, int(value) - passed)
        if part == "claims":
            for slot, text in redis.hgetall(name).items():
                if not slot.startswith(b"key "):
                    redis.hset(name, slot, json.dumps(_earlier(json.loads(text), passed)))


def _earlier(row: dict[str, str], passed: int) -> dict[str, str]:
    moved = {name: str(int(row[name]) - passed) for name in _OF_CLAIM if row[name] != "null"}
    return row | moved


class InRedis(StoreConformance):
    """Redis stores, beside run rows on SQLite: its clock has the grain of theirs."""

    using = "default"

    @pytest.fixture(autouse=True)
    def _on(self, redis_url: str, django_db_blocker: Any, transactional_db: None) -> None:
        client().flushdb()

    def make_stores(self) -> Stores:
        return stores_in_redis(self.using)

    def age(self, seconds: float) -> None:
        age_redis(seconds)
        age_database(self.using, seconds)

    def forget_run(self, run_id: str, *, tenant: str) -> None:
        forget_run(self.using, run_id, tenant=tenant)
        client().delete(*keys_of(tenant, run_id))
