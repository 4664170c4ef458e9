"""Places that the suites of stores run on."""

from functools import cached_property

from adk_django.stores.bundle import Stores
from adk_django.stores.memory import MemorySpace, memory_stores
from adk_django.testing import FakeClock, StoreConformance


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
