"""Frontiers in this process's memory."""

from adk_django.core import codec
from adk_django.core.checkpoint import Checkpoint, NewerFormatError
from adk_django.exceptions import (
    CheckpointDamagedError,
    CheckpointFormatError,
    RunConflictError,
)
from adk_django.stores.base import CheckpointStore
from adk_django.stores.memory.space import FrontierRow, InSpace


class MemoryCheckpointStore(InSpace, CheckpointStore):
    """Frontiers in memory."""

    def put(self, checkpoint: Checkpoint, *, fence: int) -> None:
        text = checkpoint.encoded
        with self.space.lock:
            run = self.space.check(checkpoint.tenant, checkpoint.run_id, fence)
            old = run.frontier
            if old is not None and (fence, checkpoint.sequence) <= (old.fence, old.sequence):
                if checkpoint.sequence == old.sequence and text == old.text:
                    return
                raise RunConflictError(checkpoint.run_id, "frontier")
            run.frontier = FrontierRow(fence, checkpoint.sequence, text, self.space.now())

    def latest(self, run_id: str, *, tenant: str) -> Checkpoint | None:
        with self.space.lock:
            found = self.space.read(tenant, run_id).frontier
        if found is None:
            return None
        try:
            return Checkpoint.decoded(found.text, fence=found.fence, created_at=found.created_at)
        except NewerFormatError as error:
            raise CheckpointFormatError(error.found, error.supported) from error
        except codec.DecodeError as error:
            raise CheckpointDamagedError(f"the frontier is damaged: {error}") from error

    def forget(self, run_id: str, *, tenant: str, fence: int) -> None:
        with self.space.lock:
            self.space.check(tenant, run_id, fence).frontier = None
