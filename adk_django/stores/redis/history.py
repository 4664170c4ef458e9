"""Transcripts in Redis."""

from collections.abc import Sequence

from adk_django.core import codec
from adk_django.core.checkpoint import (
    HistoryHandle,
)
from adk_django.core.codec import DecodeError
from adk_django.core.messages import Message
from adk_django.exceptions import (
    HistoryUnavailableError,
)
from adk_django.stores.base import HistoryStore
from adk_django.stores.redis import scripts
from adk_django.stores.redis.client import InCache, mapped, text_of, transcript_key


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
