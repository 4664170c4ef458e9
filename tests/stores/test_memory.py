"""The memory stores, as one bundle that commits whole and as five that commit one after another."""

from functools import cached_property

from adk_django.stores.base import Stores
from adk_django.stores.memory import (
    MemorySpace,
    memory_stores,
)
from adk_django.testing import (
    CheckpointStoreConformance,
    CommitConformance,
    FakeClock,
    HistoryStoreConformance,
    IdempotencyStoreConformance,
    LeaseStoreConformance,
    RunStoreConformance,
    StoreConformance,
)


class InMemory(StoreConformance):
    """Memory stores under a clock that moves when it is told to."""

    @cached_property
    def clock(self) -> FakeClock:
        return FakeClock()

    @cached_property
    def space(self) -> MemorySpace:
        return MemorySpace(now=self.clock)

    def make_stores(self) -> Stores:
        return memory_stores(self.space)

    def age(self, seconds: float) -> None:
        self.clock.advance(seconds)

    def forget_run(self, run_id: str, *, tenant: str) -> None:
        self.space.forget(tenant, run_id)


class InTurn(InMemory):
    """The same stores, whose commit goes store by store."""

    def make_stores(self) -> Stores:
        return Stores(**vars(memory_stores(self.space)))


class TestMemoryCheckpointStore(InMemory, CheckpointStoreConformance): ...


class TestMemoryLeaseStore(InMemory, LeaseStoreConformance): ...


class TestMemoryIdempotencyStore(InMemory, IdempotencyStoreConformance): ...


class TestMemoryHistoryStore(InMemory, HistoryStoreConformance): ...


class TestMemoryRunStore(InMemory, RunStoreConformance): ...


class TestMemoryStores(InMemory, CommitConformance): ...


class TestStoresInTurn(InTurn, CommitConformance): ...
