"""The memory stores, as one bundle that commits whole and as five that commit one after another."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from adk_django.core.checkpoint import Checkpoint, CheckpointBoundary, HistoryHandle
from adk_django.core.codec import EncodeError
from adk_django.core.effects import Claim, EffectClass, Outcome, OutcomeKind, Slot
from adk_django.core.lease import RunLease
from adk_django.core.messages import Message, ToolResult
from adk_django.core.record import RunRecord, RunStatus, Writes, Written
from adk_django.exceptions import LeaseLostError, StoreUnavailableError
from adk_django.stores.bundle import Stores
from adk_django.stores.memory import (
    MemoryCheckpointStore,
    MemoryHistoryStore,
    MemoryIdempotencyStore,
    MemorySpace,
    memory_stores,
)
from adk_django.testing import (
    CheckpointStoreConformance,
    CommitConformance,
    HistoryStoreConformance,
    IdempotencyStoreConformance,
    LeaseStoreConformance,
    RunStoreConformance,
)
from tests.stores.conformance_backends import InMemory, InTurn

RUN = {"tenant": "acme", "run_id": "run-1"}
RETURNED = Outcome.of(OutcomeKind.RETURNED, "A")


class TestMemoryCheckpointStore(InMemory, CheckpointStoreConformance): ...


class TestMemoryLeaseStore(InMemory, LeaseStoreConformance): ...


class TestMemoryIdempotencyStore(InMemory, IdempotencyStoreConformance): ...


class TestMemoryHistoryStore(InMemory, HistoryStoreConformance): ...


class TestMemoryRunStore(InMemory, RunStoreConformance): ...


class TestMemoryStores(InMemory, CommitConformance): ...


class TestStoresInTurn(InTurn, CommitConformance): ...


def frontier(turn: int = 1, **changes: Any) -> Checkpoint:
    given = {**RUN, "agent": "booking", "boundary": CheckpointBoundary.AFTER_MODEL_CALL, "turn": turn}
    return Checkpoint(**{**given, **changes})


def claim(position: int = 1, **changes: Any) -> Claim:
    slot = Slot(1, position)
    given = {**RUN, "slot": slot, "key": f"key-{slot}", "tool": "book", "effect": EffectClass.EFFECTFUL}
    return Claim(**{**given, "token": f"token-{position}", **changes})


def begun(stores: Stores) -> RunLease:
    """Create the run and return its lease."""
    stores.runs.create(RunRecord(**RUN, agent="booking", input="book", salt="00"))
    return stores.leases.acquire("run-1", tenant="acme", holder="worker-1", ttl_seconds=60)


# Stores made apart, each in a space of its own


def test_a_store_of_its_own_takes_any_fence_and_from_then_on_no_lower_one() -> None:
    store = MemoryIdempotencyStore()
    store.begin(claim(), fence=3)
    with pytest.raises(LeaseLostError):
        store.begin(claim(2), fence=2)
    assert store.begin(claim(2), fence=4).token == "token-2"
    assert [found.fence for found in store.look_up("run-1", tenant="acme")] == [3, 4]


@pytest.mark.parametrize("make", [MemoryCheckpointStore, MemoryIdempotencyStore, MemoryHistoryStore])
def test_a_stamped_store_refuses_lower_fences(make: Any) -> None:
    store = make()
    store.stamp("acme", "run-1", 5)
    writes = {
        MemoryCheckpointStore: lambda fence: store.put(frontier(), fence=fence),
        MemoryIdempotencyStore: lambda fence: store.begin(claim(), fence=fence),
        MemoryHistoryStore: lambda fence: store.append(HistoryHandle("acme", "run-1"), (), fence=fence),
    }
    with pytest.raises(LeaseLostError):
        writes[make](4)
    writes[make](5)


def test_a_stamp_is_of_one_run_and_never_goes_down() -> None:
    store = MemoryCheckpointStore()
    store.stamp("acme", "run-1", 5)
    store.stamp("acme", "run-1", 2)
    store.put(replace(frontier(), tenant="other"), fence=1)
    with pytest.raises(LeaseLostError):
        store.put(frontier(), fence=4)


def test_the_next_lease_is_above_what_was_stamped() -> None:
    stores = memory_stores()
    stores.leases.stamp("acme", "run-1", 7)  # type: ignore[attr-defined]
    lease = begun(stores)
    stores.checkpoints.put(frontier(), fence=lease.fence)
    assert lease.fence == 8


def test_stores_without_a_space_have_one_each_by_the_wall_clock() -> None:
    one, two = MemoryCheckpointStore(), MemoryCheckpointStore()
    assert one.space is not two.space
    before = datetime.now(UTC)
    one.put(frontier(), fence=1)
    found = one.latest("run-1", tenant="acme")
    assert found is not None
    assert found.created_at is not None
    assert before <= found.created_at <= datetime.now(UTC)
    assert two.latest("run-1", tenant="acme") is None


def test_a_forgotten_run_takes_no_more_writes_of_its_holder() -> None:
    space = MemorySpace()
    stores = memory_stores(space)
    lease = begun(stores)
    space.forget("acme", "run-1")
    with pytest.raises(LeaseLostError):
        stores.commit(Writes(frontier=frontier(), status=RunStatus.COMPLETED), lease=lease)
    assert stores.runs.get("run-1", tenant="acme") is None


# Text, not live objects


def test_what_was_kept_does_not_change_with_the_object_it_was_made_of() -> None:
    stores = memory_stores()
    lease, value = begun(stores), {"seats": ["12A"]}
    message = Message("tool", (ToolResult("id", "book", value),))
    handle = stores.history.append(HistoryHandle("acme", "run-1"), (message,), fence=lease.fence)
    outcome = Outcome.of(OutcomeKind.RETURNED, value)
    stores.idempotency.record(claim(token=None), outcome, fence=lease.fence)
    stores.checkpoints.put(frontier(messages=(message,)), fence=lease.fence)
    value["seats"].append("12B")
    found = stores.checkpoints.latest("run-1", tenant="acme")
    assert found is not None
    kept = [found.messages[0], stores.history.fetch(handle, tenant="acme")[0]]
    assert [part.content for item in kept for part in item.parts if isinstance(part, ToolResult)] == [
        {"seats": ["12A"]}
    ] * 2
    read = stores.idempotency.look_up("run-1", tenant="acme")[0].outcome
    assert read == Outcome.of(OutcomeKind.RETURNED, {"seats": ["12A"]})


def test_what_cannot_be_kept_is_refused_and_leaves_nothing() -> None:
    stores = memory_stores()
    lease, outcome = begun(stores), Outcome.of(OutcomeKind.RETURNED, object())
    begun_claim = stores.idempotency.begin(claim(), fence=lease.fence)
    with pytest.raises(EncodeError):
        stores.idempotency.record(begun_claim, outcome, fence=lease.fence)
    with pytest.raises(EncodeError):
        stores.idempotency.evidence(begun_claim, outcome)
    assert stores.idempotency.look_up("run-1", tenant="acme") == (begun_claim,)


# Commits


class Failing(MemoryCheckpointStore):
    """A checkpoint store that is down."""

    def put(self, checkpoint: Checkpoint, *, fence: int) -> None:
        raise StoreUnavailableError("down")


def committed(stores: Stores, lease: RunLease) -> Written:
    done = replace(claim(token=None), outcome=RETURNED)
    writes = Writes(frontier=frontier(), outcomes=(done,), claims=(claim(2),), begins=True)
    return stores.commit(writes, lease=lease)


@pytest.mark.parametrize("whole", [True, False])
def test_a_checkpoint_store_that_is_down_stops_no_fact(whole: bool) -> None:
    space = MemorySpace()
    parts = {**vars(memory_stores(space)), "checkpoints": Failing(space)}
    stores = type(memory_stores())(**parts) if whole else Stores(**parts)
    lease = begun(stores)
    written = committed(stores, lease)
    assert written.failed_save == "after_model_call: StoreUnavailableError: down"
    assert isinstance(written.refusal, StoreUnavailableError)
    assert [item.token for item in written.claims] == ["token-2"]
    assert stores.checkpoints.latest("run-1", tenant="acme") is None
    assert [item.outcome for item in stores.idempotency.look_up("run-1", tenant="acme")] == [RETURNED, None]
    row = stores.runs.get("run-1", tenant="acme")
    assert row is not None
    assert (row.failed_save, row.begun_at) == (written.failed_save, written.at)


class Breaking(MemoryIdempotencyStore):
    """A store that breaks when it is asked for a claim, the last thing a commit writes."""

    def begin(self, claim: Claim, *, fence: int) -> Claim:
        raise StoreUnavailableError("down")


def test_a_commit_that_breaks_leaves_nothing_but_the_evidence_of_the_call_that_was_made() -> None:
    space = MemorySpace()
    whole = memory_stores(space)
    lease = begun(whole)
    whole.idempotency.begin(claim(), fence=lease.fence)
    before = whole.runs.get("run-1", tenant="acme")
    stores = replace(whole, idempotency=Breaking(space))
    done = replace(claim(), outcome=RETURNED)
    with pytest.raises(StoreUnavailableError):
        stores.commit(
            Writes(frontier=frontier(), outcomes=(done,), claims=(claim(2),), begins=True, failed_save="x"), lease=lease
        )
    row = stores.runs.get("run-1", tenant="acme")
    assert before is not None
    assert row is not None
    assert replace(row, wake_at=None) == before
    assert stores.checkpoints.latest("run-1", tenant="acme") is None
    (found,) = stores.idempotency.look_up("run-1", tenant="acme")
    assert (found.outcome, found.evidence) == (None, RETURNED)
