"""What the stores in the product's database share."""

from django.db.models import Model

from adk_django import models
from adk_django.exceptions import LeaseLostError
from adk_django.stores.orm.connection import alias_for
from adk_django.stores.orm.fenced_write import Scope


class OnAlias:
    """A store on one database alias. Without ``using`` it is the one that the router writes the store's model to."""

    model: type[Model]

    def __init__(self, *, using: str | None = None) -> None:
        self.using = using

    @property
    def alias(self) -> str:
        """The alias of this call: the router is asked each time."""
        return alias_for(self.model, self.using)


def lost(alias: str, scope: Scope) -> LeaseLostError:
    """Return the error of a writer whose fence is no longer the one that stands, saying who has the run."""
    row = models.RunLease.objects.using(alias).filter(tenant=scope.tenant, run_id=scope.run_id).first()
    if row is None:
        return LeaseLostError(f"run {scope.run_id} has no lease")
    by = "nobody: it was released" if row.holder is None else row.holder
    message = f"fence {scope.fence} of run {scope.run_id} does not stand: fence {row.fence} is held by {by}"
    return LeaseLostError(message, holder=row.holder, until=row.expires_at, fence=row.fence)
