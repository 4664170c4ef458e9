"""Leases whose rows somebody has locked: not now is no loss, and one of them delays no other."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections, transaction

from adk_django.concurrency import in_thread
from adk_django.core.lease import LeasePolicy, RunLease
from adk_django.exceptions import LeaseLostError, StoreUnavailableError
from adk_django.execution import leaseholder
from adk_django.execution.leaseholder import Leaseholder
from adk_django.stores.orm import OrmLeaseStore
from tests.stores.orm_conformance import age

pytestmark = pytest.mark.parametrize("alias", ["postgres"], indirect=True)
SHORT = LeasePolicy(ttl_seconds=60.0, renew_within_seconds=59.99)


class Told(OrmLeaseStore):
    """Tells of every renewal of a run, made or not."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.told: dict[tuple[str, bool], threading.Semaphore] = {}

    def renew_at_once(self, lease: RunLease, *, ttl_seconds: float) -> RunLease:
        made = False
        try:
            renewed = super().renew_at_once(lease, ttl_seconds=ttl_seconds)
            made = True
        finally:
            self.of(lease.run_id, made=made).release()
        return renewed

    def of(self, run_id: str, *, made: bool) -> threading.Semaphore:
        return self.told.setdefault((run_id, made), threading.Semaphore(0))

    def wait(self, run_id: str, times: int, *, made: bool) -> None:
        for _ in range(times):
            assert self.of(run_id, made=made).acquire(timeout=10), f"{run_id} was not told"


@contextmanager
def locked(run_id: str) -> Iterator[None]:
    with transaction.atomic("postgres"), connections["postgres"].cursor() as cursor:
        cursor.execute("SELECT 1 FROM adk_run_leases WHERE run_id = %s FOR UPDATE", [run_id])
        yield


def elsewhere(call: Callable[[], Any]) -> Any:
    """Make a call on a thread and a connection of its own."""
    return in_thread(call).wait(30)


def acquired(store: OrmLeaseStore, run_id: str) -> RunLease:
    return store.acquire(run_id, tenant="acme", holder="w", ttl_seconds=60)


def test_a_lease_whose_row_is_locked_is_not_renewed_now_and_not_lost(alias: str) -> None:
    store = OrmLeaseStore(using=alias)
    one, two = acquired(store, "run-1"), acquired(store, "run-2")
    with locked("run-1"):
        with pytest.raises(StoreUnavailableError, match="not now"):
            elsewhere(lambda: store.renew_at_once(one, ttl_seconds=90))
        other = elsewhere(lambda: store.renew_at_once(two, ttl_seconds=90))
    assert other.expires_at - two.expires_at > timedelta(seconds=29)
    assert store.held("run-1", tenant="acme") == one
    assert store.renew_at_once(one, ttl_seconds=90).expires_at > one.expires_at


def test_a_lease_that_is_being_taken_over_is_lost_once_that_is_committed(alias: str) -> None:
    store = OrmLeaseStore(using=alias)
    lease = acquired(store, "run-1")
    age(alias, 3_600)
    with transaction.atomic(alias):
        acquired(store, "run-1")
        with pytest.raises(StoreUnavailableError, match="not now"):
            elsewhere(lambda: store.renew_at_once(lease, ttl_seconds=90))
    with pytest.raises(LeaseLostError):
        store.renew_at_once(lease, ttl_seconds=90)


def test_the_keeper_keeps_other_leases_while_the_row_of_one_is_locked(
    alias: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaseholder, "RETRY_SECONDS", 0.01)
    store = Told(using=alias)
    one, two = (Leaseholder(store, run_id, tenant="acme", holder="w", policy=SHORT) for run_id in ("run-1", "run-2"))
    with one, two:
        with locked("run-1"):
            store.wait("run-1", 2, made=False)
            store.wait("run-2", 2, made=True)
        store.wait("run-1", 1, made=True)
        one.check()
        two.check()
