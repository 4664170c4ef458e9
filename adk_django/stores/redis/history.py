"""Transcripts in Redis."""

from collections.abc import Sequence

from adk_django.core import codec
from adk_django.core.checkpoint import (
    HistoryHandle,
)
from adk_django.core.messages import Message
from adk_django.stores.base import HistoryStore
from adk_django.stores.redis import scripts
from adk_django.stores.redis.client import InCache, mapped, text_of, transcript_key
from adk_django.stores.transcripts import read, read_whole, unavailable


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
            raise unavailable(handle)
        return extended

    def fetch(self, handle: HistoryHandle, *, tenant: str) -> tuple[Message, ...]:
        key = transcript_key(handle.tenant, handle.run_id, handle.generation)
        with mapped(self.cache):
            lines = [] if handle.length == 0 else self.client.lrange(key, 0, handle.length - 1)
        return read_whole([text_of(line).partition(" ")[2] for line in lines], handle, tenant=tenant)

    def newest(self, run_id: str, *, tenant: str, limit: int) -> tuple[Message, ...]:
        start = HistoryHandle(tenant, run_id)
        with mapped(self.cache):
            lines = self.client.lrange(transcript_key(tenant, run_id, start.generation), -limit, -1)
        return read([text_of(line).partition(" ")[2] for line in lines], start)
