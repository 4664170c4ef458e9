"""The commit of runs whose stores share one memory."""

from contextlib import suppress

from adk_django.core import codec
from adk_django.core.lease import RunLease
from adk_django.core.record import Writes, Written
from adk_django.exceptions import (
    AdkError,
)
from adk_django.stores.bundle import Stores
from adk_django.stores.memory.checkpoints import MemoryCheckpointStore
from adk_django.stores.memory.claims import MemoryIdempotencyStore
from adk_django.stores.memory.history import MemoryHistoryStore
from adk_django.stores.memory.leases import MemoryLeaseStore
from adk_django.stores.memory.runs import MemoryRunStore
from adk_django.stores.memory.space import MemorySpace


class MemoryStores(Stores):
    """Memory stores in one space: a commit is all or nothing."""

    def commit(self, writes: Writes, *, lease: RunLease, joined: bool = False) -> Written:
        space: MemorySpace = self.runs.space  # type: ignore[attr-defined]  # all five are memory stores
        try:
            with space.whole(lease.tenant, lease.run_id):
                space.check(
                    lease.tenant, lease.run_id, lease.fence
                )  # first, or evidence would be kept, undone and kept
                return super().commit(writes, lease=lease, joined=joined)
        except AdkError:
            for claim in writes.outcomes:
                if claim.token is not None and claim.outcome is not None:
                    with suppress(codec.EncodeError):  # what cannot be kept as an outcome can be no evidence
                        self.idempotency.evidence(claim, claim.outcome)
            raise


def memory_stores(space: MemorySpace | None = None) -> MemoryStores:
    """Return all five memory stores, in one space."""
    space = MemorySpace() if space is None else space
    return MemoryStores(
        MemoryCheckpointStore(space),
        MemoryLeaseStore(space),
        MemoryIdempotencyStore(space),
        MemoryHistoryStore(space),
        MemoryRunStore(space),
    )
