"""Transcripts in this process's memory."""

from collections.abc import Sequence

from adk_django.core import codec
from adk_django.core.checkpoint import HistoryHandle
from adk_django.core.messages import Message
from adk_django.exceptions import (
    HistoryUnavailableError,
)
from adk_django.stores.base import HistoryStore
from adk_django.stores.memory.space import InSpace, Line


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
                raise _unavailable(handle)
            run.transcripts[handle.generation] = lines[: handle.length] + added
        return extended

    def fetch(self, handle: HistoryHandle, *, tenant: str) -> tuple[Message, ...]:
        with self.space.lock:
            lines = self.space.read(handle.tenant, handle.run_id).transcripts.get(handle.generation, [])
            texts = [line.text for line in lines[: handle.length]]
        rolling = ""
        for text in texts:
            rolling = codec.chain(rolling, text)
        if tenant != handle.tenant or len(texts) != handle.length or rolling != handle.digest:
            raise _unavailable(handle)
        try:
            return tuple(Message.from_data(codec.decode(text)) for text in texts)
        except codec.DecodeError as error:
            raise _unavailable(handle) from error


def _unavailable(handle: HistoryHandle) -> HistoryUnavailableError:
    message = f"the {handle.length} messages of run {handle.run_id} are not there whole"
    return HistoryUnavailableError(message, handle=handle)
