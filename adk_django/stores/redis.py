"""Stores in Redis, through the raw client of a django-redis alias, beside the run rows in the product's database."""

from collections.abc import Sequence

from adk_django.core import codec
from adk_django.core.checkpoint import (
    CHECKPOINT_FORMAT,
    Checkpoint,
    HistoryHandle,
    NewerFormatError,
)
from adk_django.core.codec import DecodeError
from adk_django.core.messages import Message
from adk_django.exceptions import (
    CheckpointDamagedError,
    CheckpointFormatError,
    HistoryUnavailableError,
    RunConflictError,
)
from adk_django.stores import redis_scripts as scripts
from adk_django.stores.base import CheckpointStore, HistoryStore
from adk_django.stores.redis_bundle import RedisStores
from adk_django.stores.redis_claims import RedisIdempotencyStore
from adk_django.stores.redis_client import InCache, instant, mapped, text_of, transcript_key
from adk_django.stores.redis_leases import RedisLeaseStore

__all__ = [
    "RedisCheckpointStore",
    "RedisHistoryStore",
    "RedisIdempotencyStore",
    "RedisLeaseStore",
    "RedisStores",
]


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


class RedisHistoryStore(InCache, HistoryStore):
    """Conversations in Redis, one list a generation."""

    def append(self, handle: HistoryHandle, messages: Sequence[Message], *, fence: int) -> HistoryHandle:
        extended, rolling, lines = handle.extended(tuple(messages)), handle.digest, []
        for message in messages:
            self.refuse_large(message.encoded, "a message")
            rolling = codec.chain(rolling, message.encoded)
            lines.append(f"{rolling} {message.encoded}")
        where = {"more": (transcript_key(handle.tenant, handle.run_id, handle.generation),)}
        said = self.under(
            scripts.APPEND, handle.tenant, handle.run_id, fence, handle.length, handle.digest, *lines, **where
        )
        if said[0] == "unavailable":
            raise _unavailable(handle)
        return extended

    def fetch(self, handle: HistoryHandle, *, tenant: str) -> tuple[Message, ...]:
        key = transcript_key(handle.tenant, handle.run_id, handle.generation)
        with mapped(self.cache):
            lines = [] if handle.length == 0 else self.client.lrange(key, 0, handle.length - 1)
        texts, rolling = [text_of(line).partition(" ")[2] for line in lines], ""
        for text in texts:
            rolling = codec.chain(rolling, text)
        if tenant != handle.tenant or len(texts) != handle.length or rolling != handle.digest:
            raise _unavailable(handle)
        try:
            return tuple(Message.from_data(codec.decode(text)) for text in texts)
        except DecodeError as error:
            raise _unavailable(handle) from error


def _unavailable(handle: HistoryHandle) -> HistoryUnavailableError:
    message = f"the {handle.length} messages of run {handle.run_id} are not there whole"
    return HistoryUnavailableError(message, handle=handle)
