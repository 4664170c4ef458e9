"""Transcripts in this process's memory."""

from collections.abc import Sequence

from adk_django.core import codec
from adk_django.core.checkpoint import HistoryHandle
from adk_django.core.messages import Message
from adk_django.stores.base import HistoryStore
from adk_django.stores.memory.space import InSpace, Line
from adk_django.stores.transcripts import read, read_whole, unavailable


class MemoryHistoryStore(InSpace, HistoryStore):
    """Conversations in memory."""

    def append(self, handle: HistoryHandle, messages: Sequence[Message], *, fence: int) -> HistoryHandle:
        extended, rolling, added = handle.extended(tuple(messages)), handle.digest, []
        for message in messages:
            rolling = codec.chain(rolling, message.encoded)
            added.append(Line(message.encoded, rolling))
        with self.space.lock:
            run = self.space.check(handle.tenant, handle.run_id, fence)
            lines = run.transcripts.get(handle.generation, [])
            there = lines[handle.length - 1].digest if 0 < handle.length <= len(lines) else ""
            if there != handle.digest:
                raise unavailable(handle)
            run.transcripts[handle.generation] = lines[: handle.length] + added
        return extended

    def fetch(self, handle: HistoryHandle, *, tenant: str) -> tuple[Message, ...]:
        with self.space.lock:
            lines = self.space.read(handle.tenant, handle.run_id).transcripts.get(handle.generation, [])
            texts = [line.text for line in lines[: handle.length]]
        return read_whole(texts, handle, tenant=tenant)

    def newest(self, run_id: str, *, tenant: str, limit: int) -> tuple[Message, ...]:
        start = HistoryHandle(tenant, run_id)
        with self.space.lock:
            lines = self.space.read(tenant, run_id).transcripts.get(start.generation, [])
            texts = [line.text for line in lines[-limit:]]
        return read(texts, start)
