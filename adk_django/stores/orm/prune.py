"""Erasing runs that ended long ago from the product's database."""

from datetime import datetime

from django.db import transaction

from adk_django import models
from adk_django.stores.orm.sql import Clock

_ROWS = (
    models.Checkpoint,
    models.IdempotencyKey,
    models.TranscriptMessage,
    models.Approval,
    models.RunEvent,
    models.Spend,
)


def prune(alias: str, before: datetime, limit: int) -> list[tuple[str, str]]:
    """Erase at most ``limit`` runs that ended before an instant, oldest first; return the tenant and the id of each.

    Each in a transaction of its own. What stays is its fence, and that its id cannot be used again.
    """
    ended = models.Run.objects.using(alias).filter(status__in=models.ENDED, updated_at__lt=before)
    found = list(ended.order_by("updated_at").values_list("tenant", "run_id")[:limit])
    return [(tenant, run_id) for tenant, run_id in found if forget(alias, tenant, run_id)]


def forget(alias: str, tenant: str, run_id: str) -> bool:
    """Erase a run; return whether it was there. Its id cannot be used again."""
    of_run = {"tenant": tenant, "run_id": run_id}
    forgotten = {"holder": None, "token": None, "acquired_at": None, "expires_at": None, "forgotten_at": Clock()}
    with transaction.atomic(using=alias):
        leases = models.RunLease.objects.using(alias)
        leases.bulk_create([models.RunLease(**of_run, fence=0)], ignore_conflicts=True)
        leases.filter(**of_run).update(**forgotten)
        for model in _ROWS:
            model._base_manager.using(alias).filter(**of_run).delete()
        gone, _ = models.Run._base_manager.using(alias).filter(**of_run).delete()
        return bool(gone)
