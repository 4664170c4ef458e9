"""Frontiers in Redis."""

from adk_django.core import codec
from adk_django.core.checkpoint import (
    CHECKPOINT_FORMAT,
    Checkpoint,
    NewerFormatError,
)
from adk_django.core.codec import DecodeError
from adk_django.exceptions import (
    CheckpointDamagedError,
    CheckpointFormatError,
    RunConflictError,
)
from adk_django.stores.base import CheckpointStore
from adk_django.stores.redis import scripts
from adk_django.stores.redis.client import InCache, instant


class RedisCheckpointStore(InCache, CheckpointStore):
    """Frontiers in Redis, one key a run."""

    def put(self, checkpoint: Checkpoint, *, fence: int) -> None:
        text = checkpoint.encoded
        self.refuse_large(text, "the frontier")
        turn, rank = checkpoint.sequence
        asked = (turn, rank, checkpoint.digest, checkpoint.format_version, text)
        if self.under(scripts.PUT, checkpoint.tenant, checkpoint.run_id, fence, *asked)[0] == "conflict":
            raise RunConflictError(checkpoint.run_id, "frontier")

    def latest(self, run_id: str, *, tenant: str) -> Checkpoint | None:
        """Return the run's frontier, as the contract says.

        Where it was written before the server was last started, its calls are ``doubted``: what was claimed since may
        be lost.
        """
        status, *said = self.call(scripts.LATEST, tenant, run_id)
        if status == "none":
            return None
        fence, turn, rank, digest, version, text, created_at, here = said
        where = f"the frontier of run {run_id}"
        if not version.isdigit() or codec.digest(text) != digest:
            raise CheckpointDamagedError(f"{where} is not what was written: its digest is another")
        if int(version) > CHECKPOINT_FORMAT:
            raise CheckpointFormatError(int(version), CHECKPOINT_FORMAT)
        try:
            found = Checkpoint.decoded(text, fence=int(fence), created_at=instant(created_at))
        except NewerFormatError as error:
            raise CheckpointFormatError(error.found, error.supported) from error
        except (DecodeError, ValueError) as error:
            raise CheckpointDamagedError(f"{where} cannot be read: {error}") from error
        place = found.tenant, found.run_id, *map(str, found.sequence)
        if place != (tenant, run_id, turn, rank):
            raise CheckpointDamagedError(f"{where} belongs to another run or place")
        return found if here else found.doubting()

    def forget(self, run_id: str, *, tenant: str, fence: int) -> None:
        self.under(scripts.FORGET_FRONTIER, tenant, run_id, fence)
