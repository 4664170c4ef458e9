"""The suites of stores on the suite's databases."""

import pytest
from django.apps import apps
from django.db import connections

from adk_django import models
from adk_django.fields import InstantField
from adk_django.stores.bundle import Stores
from adk_django.stores.orm import (
    OrmCheckpointStore,
    OrmHistoryStore,
    OrmIdempotencyStore,
    OrmLeaseStore,
    OrmRunStore,
    OrmStores,
)
from adk_django.stores.orm.sql import Clock
from adk_django.testing import StoreConformance


def stores_on(alias: str) -> OrmStores:
    """Return a fresh bundle on a database."""
    return OrmStores(
        OrmCheckpointStore(using=alias),
        OrmLeaseStore(using=alias),
        OrmIdempotencyStore(using=alias),
        OrmHistoryStore(using=alias),
        OrmRunStore(using=alias),
    )


def age(alias: str, seconds: float) -> None:
    """Let so much time pass in a database, by moving every instant in it back."""
    connection = connections[alias]
    with connection.cursor() as cursor:
        for model in apps.get_app_config("adk_django").get_models():
            for field in model._meta.local_fields:
                if not isinstance(field, InstantField):
                    continue
                earlier = f"{field.column} - %s * interval '1 second'"
                passed: float | str = seconds
                if connection.vendor == "sqlite":
                    earlier = f"strftime('%%Y-%%m-%%d %%H:%%M:%%f', {field.column}, %s)"
                    passed = f"{-seconds:+.3f} seconds"
                cursor.execute(f"UPDATE {model._meta.db_table} SET {field.column} = {earlier}", [passed])  # noqa: S608


def forget_run(alias: str, run_id: str, *, tenant: str) -> None:
    """Erase a run; what stays is its fence, and that it was forgotten."""
    of_run = {"tenant": tenant, "run_id": run_id}
    for model in apps.get_app_config("adk_django").get_models():
        if model is not models.RunLease:
            model._base_manager.using(alias).filter(**of_run).delete()
    leases = models.RunLease.objects.using(alias)
    leases.get_or_create(**of_run, defaults={"fence": 0})
    freed = {"holder": None, "token": None, "acquired_at": None, "expires_at": None}
    leases.filter(**of_run).update(**freed, forgotten_at=Clock())


class InDatabase(StoreConformance):
    """ORM stores, on SQLite and on PostgreSQL."""

    @pytest.fixture(autouse=True)
    def _on(self, alias: str) -> None:
        self.alias = alias

    def make_stores(self) -> Stores:
        return stores_on(self.alias)

    def age(self, seconds: float) -> None:
        age(self.alias, seconds)

    def forget_run(self, run_id: str, *, tenant: str) -> None:
        forget_run(self.alias, run_id, tenant=tenant)


class InDatabaseInTurn(InDatabase):
    """The same stores, whose commit goes store by store."""

    def make_stores(self) -> Stores:
        return Stores(**vars(stores_on(self.alias)))
