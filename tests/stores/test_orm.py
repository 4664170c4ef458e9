"""The stores in the product's database: what holds on both databases."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections
from django.db.models import F

from adk_django import models
from adk_django.core.checkpoint import Checkpoint, CheckpointBoundary, HistoryHandle
from adk_django.core.effects import Claim, EffectClass, Outcome, OutcomeKind, Slot
from adk_django.core.lease import RunLease
from adk_django.core.messages import Message, Usage
from adk_django.core.record import Approval, RunRecord, RunStatus, Spend, Writes
from adk_django.stores.orm import (
    OrmCheckpointStore,
    OrmHistoryStore,
    OrmIdempotencyStore,
    OrmLeaseStore,
    OrmRunStore,
    OrmStores,
)

RUN = {"tenant": "acme", "run_id": "run-1"}


def stores_on(alias: str) -> OrmStores:
    return OrmStores(
        OrmCheckpointStore(using=alias),
        OrmLeaseStore(using=alias),
        OrmIdempotencyStore(using=alias),
        OrmHistoryStore(using=alias),
        OrmRunStore(using=alias),
    )


@pytest.fixture
def stores(alias: str) -> OrmStores:
    made = stores_on(alias)
    made.runs.create(RunRecord(**RUN, agent="booking", input="book it", salt="00"))
    return made


@pytest.fixture
def lease(stores: OrmStores) -> RunLease:
    return stores.leases.acquire("run-1", tenant="acme", holder="worker-1", ttl_seconds=60)


def frontier(turn: int = 1, **changes: Any) -> Checkpoint:
    given = {**RUN, "agent": "booking", "boundary": CheckpointBoundary.AFTER_MODEL_CALL, "turn": turn}
    return Checkpoint(**{**given, **changes})


def claim(position: int = 1, **changes: Any) -> Claim:
    given = {
        **RUN,
        "slot": Slot(1, position),
        "key": f"key-{position}",
        "tool": "book",
        "effect": EffectClass.EFFECTFUL,
        "token": f"token-{position}",
        "limit_seconds": 30.0,
    }
    return Claim(**{**given, **changes})


def test_everything_of_a_turn_in_one_commit(stores: OrmStores, lease: RunLease) -> None:
    messages = (Message.of("user", "a\x00b"), Message.of("assistant", "\ud83d"))
    handle = HistoryHandle("acme", "run-1")
    outcome = Outcome.of(OutcomeKind.RETURNED, {"seat": "1A"})
    written = stores.commit(
        Writes(
            frontier=frontier(history_handle=handle.extended(messages)),
            delta=messages,
            extends=handle,
            outcomes=(claim(1, token=None, outcome=outcome),),
            claims=(claim(2),),
            spend=(Spend(1, lease.fence, Usage(10, 5), 7),),
            begins=True,
            revision="r1",
        ),
        lease=lease,
    )
    assert [item.slot for item in written.claims] == [Slot(1, 2)]
    first, second = stores.idempotency.look_up("run-1", tenant="acme")
    assert first.outcome == outcome
    assert replace(written.claims[0], replaces=None) == second
    assert second.deadline_at - second.begun_at == timedelta(seconds=30)
    assert second.holder == "worker-1"
    assert written.handle == handle.extended(messages)
    assert stores.history.fetch(written.handle, tenant="acme") == messages
    found = stores.checkpoints.latest("run-1", tenant="acme")
    assert (found.turn, found.fence, found.created_at) == (1, 1, written.at)
    record = stores.runs.get("run-1", tenant="acme")
    assert (record.usage, record.cost_micros, record.begun_at, record.revision) == (Usage(10, 5), 7, written.at, "r1")
    assert record.fence == 1


def test_end(stores: OrmStores, lease: RunLease) -> None:
    stores.commit(Writes(frontier=frontier()), lease=lease)
    stores.commit(Writes(status=RunStatus.COMPLETED, output="do\x00ne"), lease=lease)
    assert stores.checkpoints.latest("run-1", tenant="acme") is None
    assert stores.runs.get("run-1", tenant="acme").output == "do\x00ne"
    stores.leases.release(lease)
    assert stores.leases.held("run-1", tenant="acme") is None
