"""The stores in the product's database pass the suites that every store has to pass, on both databases."""

from adk_django.testing import (
    CheckpointStoreConformance,
    CommitConformance,
    HistoryStoreConformance,
    IdempotencyStoreConformance,
    LeaseStoreConformance,
    RunStoreConformance,
)
from tests.stores.orm_conformance import InDatabase, InDatabaseInTurn


class TestOrmCheckpointStore(InDatabase, CheckpointStoreConformance): ...


class TestOrmLeaseStore(InDatabase, LeaseStoreConformance): ...


class TestOrmIdempotencyStore(InDatabase, IdempotencyStoreConformance): ...


class TestOrmHistoryStore(InDatabase, HistoryStoreConformance): ...


class TestOrmRunStore(InDatabase, RunStoreConformance): ...


class TestOrmStores(InDatabase, CommitConformance): ...


class TestOrmStoresInTurn(InDatabaseInTurn, CommitConformance): ...
