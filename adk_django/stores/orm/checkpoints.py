"""Frontiers in the product's database."""

from django.db import connections

from adk_django import models
from adk_django.core.checkpoint import Checkpoint
from adk_django.core.record import Writes
from adk_django.exceptions import RunConflictError
from adk_django.stores.base import CheckpointStore
from adk_django.stores.orm.base import OnAlias, lost
from adk_django.stores.orm.connection import mapped
from adk_django.stores.orm.fenced_write import Scope, apply
from adk_django.stores.orm.rows import checkpoint_of
from adk_django.stores.orm.schema import require_schema


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
