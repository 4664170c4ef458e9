"""Stores in the product's own database, PostgreSQL or SQLite, through Django's connections."""

from collections.abc import Sequence

from django.db import connections

from adk_django import models
from adk_django.core import codec
from adk_django.core.checkpoint import Checkpoint, HistoryHandle
from adk_django.core.codec import DecodeError
from adk_django.core.lease import RunLease
from adk_django.core.messages import Message
from adk_django.core.record import Writes, Written
from adk_django.exceptions import RunConflictError
from adk_django.stores.base import CheckpointStore, HistoryStore
from adk_django.stores.bundle import Stores
from adk_django.stores.orm_apply import Scope, apply
from adk_django.stores.orm_base import OnAlias, lost
from adk_django.stores.orm_claims import OrmIdempotencyStore
from adk_django.stores.orm_commit import commit
from adk_django.stores.orm_leases import OrmLeaseStore
from adk_django.stores.orm_rows import checkpoint_of, unavailable
from adk_django.stores.orm_runs import OrmRunStore
from adk_django.stores.orm_schema import require_schema
from adk_django.stores.sql import alias_for, mapped, refuse_transaction

__all__ = [
    "OrmCheckpointStore",
    "OrmHistoryStore",
    "OrmIdempotencyStore",
    "OrmLeaseStore",
    "OrmRunStore",
    "OrmStores",
]


class OrmCheckpointStore(OnAlias, CheckpointStore):
    """Frontiers in ``adk_checkpoints``."""

    model = models.Checkpoint

    def put(self, checkpoint: Checkpoint, *, fence: int) -> None:
        scope = Scope(checkpoint.tenant, checkpoint.run_id, fence)
        with mapped(self.alias):
            applied = apply(connections[self.alias], scope, Writes(frontier=checkpoint))
            if applied is None:
                raise lost(self.alias, scope)
            if applied.written and applied.saved(self.alias, scope, checkpoint):
                return
        raise RunConflictError(checkpoint.run_id, "frontier")

    def latest(self, run_id: str, *, tenant: str) -> Checkpoint | None:
        with mapped(self.alias):
            row = models.Checkpoint.objects.using(self.alias).filter(tenant=tenant, run_id=run_id).first()
        return None if row is None else checkpoint_of(row)

    def forget(self, run_id: str, *, tenant: str, fence: int) -> None:
        scope = Scope(tenant, run_id, fence)
        with mapped(self.alias):
            if apply(connections[self.alias], scope, Writes(), forgets=(models.Checkpoint,)) is None:
                raise lost(self.alias, scope)

    def verify(self) -> None:
        """Compare the database's schema with the one this version expects.

        Raise ConfigurationError, naming what is missing.
        """
        with mapped(self.alias):
            require_schema(self.alias)


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


class OrmStores(Stores):
    """ORM stores on one alias: a commit is one statement on PostgreSQL, one transaction on SQLite."""

    @property
    def alias(self) -> str:
        """The alias that all five are on."""
        return alias_for(models.Run, getattr(self.runs, "using", None))

    @property
    def joins(self) -> frozenset[str]:
        return frozenset((self.alias,))

    def refuse_transaction(self) -> None:
        refuse_transaction(self.alias)

    def commit(self, writes: Writes, *, lease: RunLease, joined: bool = False) -> Written:
        """Write all of ``writes`` under the lease's fence; return what stands.

        ``joined`` makes it the last statement of the transaction that is open on this alias.
        """
        return commit(self.alias, writes, lease, joined=joined)
