"""Stores in this process's memory: for tests, and for trying things out. Nothing in them outlives the process.

They keep encoded text, as the durable stores do, so that a value survives or is refused here exactly as there.
"""

from adk_django.stores.memory.bundle import MemoryStores, memory_stores
from adk_django.stores.memory.checkpoints import MemoryCheckpointStore
from adk_django.stores.memory.claims import MemoryIdempotencyStore
from adk_django.stores.memory.history import MemoryHistoryStore
from adk_django.stores.memory.leases import MemoryLeaseStore
from adk_django.stores.memory.runs import MemoryRunStore
from adk_django.stores.memory.space import MemorySpace

__all__ = [
    "MemoryCheckpointStore",
    "MemoryHistoryStore",
    "MemoryIdempotencyStore",
    "MemoryLeaseStore",
    "MemoryRunStore",
    "MemorySpace",
    "MemoryStores",
    "memory_stores",
]
