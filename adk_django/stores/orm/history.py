"""Transcripts in the product's database."""

from collections.abc import Sequence

from django.db import connections

from adk_django import models
from adk_django.core import codec
from adk_django.core.checkpoint import HistoryHandle
from adk_django.core.codec import DecodeError
from adk_django.core.messages import Message
from adk_django.core.record import Writes
from adk_django.stores.base import HistoryStore
from adk_django.stores.orm.base import OnAlias, lost
from adk_django.stores.orm.connection import mapped
from adk_django.stores.orm.fenced_write import Scope, apply
from adk_django.stores.orm.rows import unavailable


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
        rolling = ""
        for text in texts:
            rolling = codec.chain(rolling, text)
        if tenant != handle.tenant or len(texts) != handle.length or rolling != handle.digest:
            raise unavailable(handle)
        try:
            return tuple(Message.from_data(codec.decode(text)) for text in texts)
        except DecodeError as error:
            raise unavailable(handle) from error
