"""What the run's database is told by stores that are not in it: who holds the run, who answered, and that it is due."""

from pathlib import Path
from typing import Any

import pytest

from adk_django import runs
from adk_django.core.effects import Claim, EffectClass, Outcome, OutcomeKind, Slot
from adk_django.core.record import Answer, RunRecord, RunStatus, Writes
from adk_django.exceptions import FenceLostError, LeaseLostError, RunForgottenError, StoreUnavailableError
from adk_django.models import Run, RunEvent, RunLease
from adk_django.stores.bundle import Stores
from adk_django.stores.handler import IN_REDIS
from adk_django.stores.orm.sql import Clock
from adk_django.stores.redis.client import keys_of
from tests.backends import TENANT, World, finish
from tests.run_definitions import SCENARIOS, log_at
from tests.stores.redis_conformance import age_redis, stores_in_redis

RUN = {"tenant": "acme", "run_id": "run_1"}


@pytest.fixture
def stores(alias: str, redis: Any) -> Stores:
    """Return stores in Redis beside rows in each database, with a run."""
    stores = stores_in_redis(alias)
    stores.runs.create(RunRecord(**RUN, agent="booking", input="go", salt="00" * 32))
    return stores


def acquire(stores: Stores, holder: str = "worker-1", **options: Any) -> Any:
    return stores.leases.acquire("run_1", tenant="acme", holder=holder, ttl_seconds=60, **options)


def claimed(stores: Stores, lease: Any) -> Claim:
    sent = Claim(**RUN, slot=Slot(1, 1), key="k", tool="book", effect=EffectClass.EFFECTFUL, token="t")
    (made,) = stores.commit(Writes(claims=(sent,)), lease=lease).claims
    return made


def using(stores: Stores) -> str:
    return str(stores.runs.using)


def test_an_acquisition_raises_the_rows_fence_at_once(stores: Stores) -> None:
    first = acquire(stores)
    age_redis(3_600)
    second = acquire(stores, "worker-2")
    assert Run.objects.using(using(stores)).get(**RUN).fence == second.fence == 2
    with pytest.raises(LeaseLostError) as lost:
        stores.runs.write("run_1", tenant="acme", writes=Writes(status=RunStatus.COMPLETED), fence=first.fence)
    assert (lost.value.holder, lost.value.until, lost.value.fence) == ("worker-2", second.expires_at, 2)
    with pytest.raises(LeaseLostError) as lost:
        stores.commit(Writes(status=RunStatus.COMPLETED), lease=first)
    assert (lost.value.holder, lost.value.fence) == ("worker-2", 2)
    assert stores.runs.get("run_1", tenant="acme").status is RunStatus.ACTIVE


def test_a_fence_that_redis_forgot_is_found_out_by_the_row_and_the_lease_is_given_back(
    stores: Stores, redis: Any
) -> None:
    acquire(stores)
    redis.flushdb()
    with pytest.raises(FenceLostError, match="has seen fence 1"):
        acquire(stores)  # whose caller names no floor
    assert stores.leases.held("run_1", tenant="acme") is None


def test_a_run_that_was_forgotten_in_the_database_is_not_acquired(stores: Stores) -> None:
    Run.objects.using(using(stores)).all().delete()
    RunLease.objects.using(using(stores)).create(**RUN, fence=3, forgotten_at=Clock())
    with pytest.raises(RunForgottenError):
        acquire(stores)
    assert stores.leases.held("run_1", tenant="acme") is None


def test_a_commit_of_a_row_alone_is_refused_once_the_lease_was_given_back(stores: Stores) -> None:
    lease = acquire(stores)
    stores.leases.release(lease)
    with pytest.raises(LeaseLostError):
        stores.commit(Writes(status=RunStatus.COMPLETED), lease=lease)
    assert stores.runs.get("run_1", tenant="acme").status is RunStatus.ACTIVE


@pytest.mark.parametrize("ended", [False, True])
def test_an_answer_wakes_the_run_and_is_in_the_audit(stores: Stores, ended: bool) -> None:
    lease = acquire(stores)
    claimed(stores, lease)
    status = RunStatus.CANCELLED if ended else RunStatus.UNDECIDED
    stores.commit(Writes(status=status), lease=lease)
    told = Outcome.of(OutcomeKind.RETURNED, "seat 12A")
    answer = {"answer": Answer.DONE, "outcome": told, "by": "ann", "reason": "looked it up"}
    stores.idempotency.settle("run_1", Slot(1, 1), tenant="acme", **answer)
    (event,) = RunEvent.objects.using(using(stores)).filter(**RUN)
    assert (event.kind, event.by, event.reason, event.detail) == ("settled", "ann", "looked it up", "done")
    assert (event.turn, event.position) == (1, 1)
    assert (stores.runs.get("run_1", tenant="acme").wake_at is None) is ended


def test_evidence_wakes_the_run_and_is_in_the_audit_once(stores: Stores) -> None:
    claim = claimed(stores, acquire(stores))
    for _ in range(2):
        stores.idempotency.evidence(claim, Outcome.of(OutcomeKind.RETURNED, "seat 12A"))
    (event,) = RunEvent.objects.using(using(stores)).filter(**RUN)
    assert (event.kind, event.by) == ("evidence", "worker-1")
    assert stores.runs.get("run_1", tenant="acme").wake_at is not None


def test_stuck_are_the_runs_that_no_live_lease_in_redis_advances(stores: Stores) -> None:
    for number in range(2, 6):
        stores.runs.create(RunRecord("acme", f"run_{number}", agent="booking", input="go", salt="00" * 32))
    acquire(stores)
    stores.leases.acquire("run_3", tenant="acme", holder="worker-1", ttl_seconds=60)
    found = stores.runs.find(tenant="acme", stuck=True, limit=2)
    found += stores.runs.find(tenant="acme", stuck=True, limit=2, before=found[-1])
    assert [row.run_id for row in found] == ["run_5", "run_4", "run_2"]
    age_redis(3_600)
    assert len(stores.runs.find(tenant="acme", stuck=True)) == 5


def test_a_claim_that_could_not_be_sent_leaves_no_note(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(*args: Any, **kwargs: Any) -> Claim:
        raise StoreUnavailableError

    lease = acquire(stores)
    monkeypatch.setattr(stores.idempotency, "begin", begin)
    with pytest.raises(StoreUnavailableError):
        claimed(stores, lease)
    assert stores.runs.get("run_1", tenant="acme").claimed == {}


def test_a_claim_is_noted_before_it_is_made_and_the_note_of_one_given_back_is_gone(stores: Stores) -> None:
    lease = acquire(stores)
    claim = claimed(stores, lease)
    assert stores.runs.get("run_1", tenant="acme").claimed == {Slot(1, 1): "t"}
    stores.commit(Writes(abandoned=(claim,)), lease=lease)
    assert stores.runs.get("run_1", tenant="acme").claimed == {}
    assert stores.idempotency.look_up("run_1", tenant="acme") == ()


def test_of_a_run_that_is_erased_redis_keeps_the_fence_alone(redis: Any, settings: Any, tmp_path: Path) -> None:
    settings.ADK = {"STORES": {name: {"BACKEND": path} for name, path in IN_REDIS.items()}}
    world = World("redis")
    assert finish(world, SCENARIOS["book_search"], log_at(tmp_path), "erased").status is RunStatus.COMPLETED
    kept = {key.decode() for key in redis.keys("*")}
    assert len(kept) == 3  # the frontier went when the run ended
    assert runs.prune() == ()
    Run.objects.update(updated_at="2020-01-01T00:00:00+00:00")
    assert runs.prune() == ((TENANT, "erased"),)
    assert [key.decode() for key in redis.keys("*")] == [keys_of(TENANT, "erased")[0]]
    with pytest.raises(RunForgottenError):
        finish(world, SCENARIOS["book_search"], log_at(tmp_path), "erased")
