"""Transcripts in the product's database."""

from collections import deque
from collections.abc import Sequence

from django.db import connections

from adk_django import models
from adk_django.core import codec
from adk_django.core.checkpoint import HistoryHandle
from adk_django.core.messages import Message
from adk_django.core.record import Writes
from adk_django.stores.base import HistoryStore
from adk_django.stores.orm.base import OnAlias, lost
from adk_django.stores.orm.connection import mapped
from adk_django.stores.orm.fenced_write import Scope, apply
from adk_django.stores.transcripts import read, read_whole, unavailable


class OrmHistoryStore(OnAlias, HistoryStore):
    """Conversations in ``adk_transcript_messages``."""

    model = models.TranscriptMessage

    def append(self, handle: HistoryHandle, messages: Sequence[Message], *, fence: int) -> HistoryHandle:
        scope, delta = Scope(handle.tenant, handle.run_id, fence), tuple(messages)
        with mapped(self.alias):
            applied = apply(connections[self.alias], scope, Writes(delta=delta, extends=handle))
            if applied is None:
                raise lost(self.alias, scope)
        if not applied.written:
            raise unavailable(handle)
        return handle.extended(delta)

    def fetch(self, handle: HistoryHandle, *, tenant: str) -> tuple[Message, ...]:
        with mapped(self.alias):
            rows = models.TranscriptMessage.objects.using(self.alias).filter(
                tenant=tenant, run_id=handle.run_id, generation=handle.generation, position__lt=handle.length
            )
            texts = list(rows.order_by("position").values_list("payload", flat=True))
        return read_whole(texts, handle, tenant=tenant)

    def newest(self, run_id: str, *, tenant: str, limit: int) -> tuple[Message, ...]:
        start, rolling = HistoryHandle(tenant, run_id), ""
        newest: deque[str] = deque(maxlen=limit)
        with mapped(self.alias):
            rows = models.TranscriptMessage.objects.using(self.alias).filter(
                tenant=tenant, run_id=run_id, generation=start.generation
            )
            for text, digest in rows.order_by("position").values_list("payload", "digest").iterator():
                rolling = codec.chain(rolling, text)
                if rolling != digest:  # it follows a message that was replaced: an orphan tail
                    break
                newest.append(text)
        return read(newest, start)
