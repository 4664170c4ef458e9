"""The suites of stores find faults: each fault planted here makes the test fail that is there for it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from adk_django.core.effects import ClaimState
from adk_django.exceptions import ResumeConflictError
from adk_django.stores.bundle import Stores
from adk_django.stores.memory import (
    MemoryCheckpointStore,
    MemoryHistoryStore,
    MemoryIdempotencyStore,
    MemoryLeaseStore,
    MemoryRunStore,
    MemorySpace,
    memory_stores,
)
from adk_django.stores.memory.space import RunRows
from adk_django.testing import (
    CheckpointStoreConformance,
    CommitConformance,
    HistoryStoreConformance,
    IdempotencyStoreConformance,
    LeaseStoreConformance,
    RunStoreConformance,
    StoreConformance,
)
from adk_django.testing.conformance.base import TTL_SECONDS
from tests.stores.conformance_backends import InMemory

# Leases


class ReleaseResetsTheFence(MemoryLeaseStore):
    def release(self, lease: Any) -> None:
        run = self.space.read(lease.tenant, lease.run_id)
        if run.holds(lease):
            run.lease, run.fence = None, 0


class RenewsWhatWasReleased(MemoryLeaseStore):
    def renew(self, lease: Any, *, ttl_seconds: float) -> Any:
        run = self.space.read(lease.tenant, lease.run_id)
        if run.lease is not None and run.lease.token == lease.token:
            run.released = False
        return super().renew(lease, ttl_seconds=ttl_seconds)


class TheNameIsTheIdentity(MemoryLeaseStore):
    def acquire(self, run_id: str, *, tenant: str, holder: str, ttl_seconds: float, floor: int = 0) -> Any:
        held = self.held(run_id, tenant=tenant)
        if held is not None and held.holder == holder:
            return self.renew(held, ttl_seconds=ttl_seconds)
        return super().acquire(run_id, tenant=tenant, holder=holder, ttl_seconds=ttl_seconds, floor=floor)

    def renew(self, lease: Any, *, ttl_seconds: float) -> Any:
        run = self.space.read(lease.tenant, lease.run_id)
        if run.lease is not None and run.lease.holder == lease.holder:
            lease = run.lease
        return super().renew(lease, ttl_seconds=ttl_seconds)


class AnyoneReleases(MemoryLeaseStore):
    def release(self, lease: Any) -> None:
        self.space.read(lease.tenant, lease.run_id).released = True


class CountsFromWhenItWasMade(MemoryLeaseStore):
    """As a store does whose clock stands still in a transaction."""

    def __init__(self, space: MemorySpace | None = None) -> None:
        super().__init__(space)
        self.made_at = self.space.now()

    def acquire(self, run_id: str, *, tenant: str, holder: str, ttl_seconds: float, floor: int = 0) -> Any:
        lease = super().acquire(run_id, tenant=tenant, holder=holder, ttl_seconds=ttl_seconds, floor=floor)
        stale = replace(lease, acquired_at=self.made_at, expires_at=self.made_at + timedelta(seconds=ttl_seconds))
        self.space.written(tenant, run_id).lease = stale
        return stale


class AsksTheWorkersClock(MemoryLeaseStore):
    def acquire(self, run_id: str, *, tenant: str, holder: str, ttl_seconds: float, floor: int = 0) -> Any:
        held, now = self.held(run_id, tenant=tenant), datetime.now(UTC)
        if held is not None and not held.held_at(now):
            self.release(held)
        return super().acquire(run_id, tenant=tenant, holder=holder, ttl_seconds=ttl_seconds, floor=floor)


class LookingFreesTheExpired(MemoryLeaseStore):
    def held(self, run_id: str, *, tenant: str) -> Any:
        held = super().held(run_id, tenant=tenant)
        if held is not None and not held.held_at(self.space.now()):
            self.release(held)
        return held


class AnExpiredLeaseIsLost(MemoryLeaseStore):
    def renew(self, lease: Any, *, ttl_seconds: float) -> Any:
        held = self.held(lease.run_id, tenant=lease.tenant)
        if held is not None and not held.held_at(self.space.now()):
            self.release(held)
        return super().renew(lease, ttl_seconds=ttl_seconds)


class RenewsForTwiceAsLong(MemoryLeaseStore):
    def renew(self, lease: Any, *, ttl_seconds: float) -> Any:
        return super().renew(lease, ttl_seconds=2 * ttl_seconds)


class RenewsForTwiceAsLongInSecret(MemoryLeaseStore):
    def renew(self, lease: Any, *, ttl_seconds: float) -> Any:
        super().renew(lease, ttl_seconds=2 * ttl_seconds)
        return replace(lease, expires_at=self.space.now() + timedelta(seconds=ttl_seconds))


class LastsForTwiceAsLong(MemoryLeaseStore):
    def acquire(self, run_id: str, *, ttl_seconds: float, **given: Any) -> Any:
        return super().acquire(run_id, ttl_seconds=2 * ttl_seconds, **given)


class LastsForItsOwnTime(MemoryLeaseStore):
    def acquire(self, run_id: str, *, ttl_seconds: float, **given: Any) -> Any:
        return super().acquire(run_id, ttl_seconds=TTL_SECONDS, **given)


class LosersAreToldNothing(MemoryLeaseStore):
    def acquire(self, run_id: str, *, tenant: str, holder: str, ttl_seconds: float, floor: int = 0) -> Any:
        try:
            return super().acquire(run_id, tenant=tenant, holder=holder, ttl_seconds=ttl_seconds, floor=floor)
        except ResumeConflictError as error:
            raise ResumeConflictError(
                run_id=run_id, holder="somebody", until=self.space.now(), fence=error.fence
            ) from error


# Frontiers


class UnfencedPut(MemoryCheckpointStore):
    def put(self, checkpoint: Any, *, fence: int) -> None:
        super().put(checkpoint, fence=self.space.read(checkpoint.tenant, checkpoint.run_id).fence)


class UnfencedForget(MemoryCheckpointStore):
    def forget(self, run_id: str, *, tenant: str, fence: int) -> None:
        super().forget(run_id, tenant=tenant, fence=self.space.read(tenant, run_id).fence)


class TheLastFrontierWins(MemoryCheckpointStore):
    def put(self, checkpoint: Any, *, fence: int) -> None:
        with self.space.lock:
            self.space.check(checkpoint.tenant, checkpoint.run_id, fence).frontier = None
            super().put(checkpoint, fence=fence)


# Claims


class ExpiredClaimsReadAsFree(MemoryIdempotencyStore):
    def look_up(self, run_id: str, *, tenant: str, keys: Any = None) -> Any:
        now, claims = self.space.now(), super().look_up(run_id, tenant=tenant, keys=keys)
        return tuple(item for item in claims if item.outcome or not item.deadline_at or item.deadline_at > now)


class ThePlannerWrites(MemoryIdempotencyStore):
    """As a store does whose look-up is get-or-create."""

    def look_up(self, run_id: str, *, tenant: str, keys: Any = None) -> Any:
        found = super().look_up(run_id, tenant=tenant, keys=keys)
        rows = self.space.read(tenant, run_id).claims
        for row in list(rows.values()) if keys is not None and len(found) < len(keys) else ():
            position = len(rows) + 1
            slot = row.claim.slot._replace(position=position)
            rows[slot] = replace(row, claim=replace(row.claim, slot=slot, key=f"key-{slot}"))
        return found


class OutcomesAreOverwritten(MemoryIdempotencyStore):
    def record(self, claim: Any, outcome: Any, *, fence: int) -> Any:
        with self.space.lock:
            rows = self.space.check(claim.tenant, claim.run_id, fence).claims
            row = rows.get(claim.slot)
            if row is not None and row.claim.token == claim.token:
                rows[claim.slot] = row.completed(outcome, outcome.encoded())
            return super().record(claim, outcome, fence=fence)


class EvidenceSettlesWhatItContests(MemoryIdempotencyStore):
    def evidence(self, claim: Any, outcome: Any) -> Any:
        found = super().evidence(claim, outcome)
        if found is None or not found.contested:
            return found
        rows = self.space.read(claim.tenant, claim.run_id).claims
        rows[claim.slot] = rows[claim.slot].completed(outcome, outcome.encoded())
        return rows[claim.slot].read()


class AnyoneAbandons(MemoryIdempotencyStore):
    def abandon(self, claim: Any, *, fence: int) -> None:
        row = self.space.read(claim.tenant, claim.run_id).claims.get(claim.slot)
        super().abandon(claim if row is None else replace(claim, token=row.claim.token), fence=fence)


class SettledBeforeTheDeadline(MemoryIdempotencyStore):
    def settle(self, run_id: str, slot: Any, *, tenant: str, **given: Any) -> Any:
        rows = self.space.read(tenant, run_id).claims
        if slot in rows:
            rows[slot] = replace(rows[slot], claim=replace(rows[slot].claim, deadline_at=self.space.now()))
        return super().settle(run_id, slot, tenant=tenant, **given)


class SettledTwice(MemoryIdempotencyStore):
    def settle(self, run_id: str, slot: Any, *, tenant: str, **given: Any) -> Any:
        row = self.space.read(tenant, run_id).claims.get(slot)
        if row is not None and row.claim.settled_at is not None:
            again = replace(row.claim, state=ClaimState.IN_FLIGHT)
            self.space.written(tenant, run_id).claims[slot] = replace(row, claim=again, outcome=None)
        return super().settle(run_id, slot, tenant=tenant, **given)


class UnfencedBegin(MemoryIdempotencyStore):
    def begin(self, claim: Any, *, fence: int) -> Any:
        return super().begin(claim, fence=self.space.read(claim.tenant, claim.run_id).fence)


class KeysAreNotHeld(MemoryIdempotencyStore):
    def begin(self, claim: Any, *, fence: int) -> Any:
        found = super().begin(claim, fence=fence)
        return found if found.slot == claim.slot else super().begin(replace(claim, key=f"{claim.slot}"), fence=fence)


# Conversations


class UnfencedAppend(MemoryHistoryStore):
    def append(self, handle: Any, messages: Any, *, fence: int) -> Any:
        return super().append(handle, messages, fence=self.space.read(handle.tenant, handle.run_id).fence)


class OrphanTailsStay(MemoryHistoryStore):
    def append(self, handle: Any, messages: Any, *, fence: int) -> Any:
        lines = self.space.read(handle.tenant, handle.run_id).transcripts.get(handle.generation, [])
        tail = lines[handle.length :]
        extended = super().append(handle, messages, fence=fence)
        after = self.space.read(handle.tenant, handle.run_id).transcripts[handle.generation]
        after[handle.length :] = tail + after[handle.length :]
        return extended


class ShorterWillDo(MemoryHistoryStore):
    def fetch(self, handle: Any, *, tenant: str) -> Any:
        lines = self.space.read(tenant, handle.run_id).transcripts.get(handle.generation, [])
        if 0 < len(lines) < handle.length:
            handle = replace(handle, length=len(lines), digest=lines[-1].digest)
        return super().fetch(handle, tenant=tenant)


# Rows


class NothingIsHeldBack(MemoryRunStore):
    def gate(self, claim: Any, *, fence: int) -> bool:
        return True


class TheLastAnswerWins(MemoryRunStore):
    def decide(self, request_id: str, *, tenant: str, **given: Any) -> Any:
        with self.space.lock:
            run, row = self._request(request_id, tenant)
            if run is not None and row is not None:
                asked = replace(row.approval, state=type(row.approval.state).REQUESTED)
                run.approvals[asked.slot] = replace(row, approval=asked)
            return super().decide(request_id, tenant=tenant, **given)


class WakeUpsAreOverwritten(MemoryRunStore):
    def write(self, run_id: str, *, tenant: str, writes: Any, fence: int) -> Any:
        row = self.get(run_id, tenant=tenant)
        seen = None if row is None else row.wake_at
        return super().write(run_id, tenant=tenant, writes=replace(writes, wake_seen=seen), fence=fence)


class EndedRunsGoOn(MemoryRunStore):
    def write(self, run_id: str, *, tenant: str, writes: Any, fence: int) -> Any:
        run = self.space.read(tenant, run_id)
        if run.record is not None and run.record.status.ended:
            run.record = replace(run.record, status=type(run.record.status).ACTIVE)
        return super().write(run_id, tenant=tenant, writes=writes, fence=fence)


class SpendsAddUp(MemoryRunStore):
    def write(self, run_id: str, *, tenant: str, writes: Any, fence: int) -> Any:
        taken = len(self.space.read(tenant, run_id).spends)
        spends = tuple(replace(item, turn=item.turn + taken) for item in writes.spend)
        return super().write(run_id, tenant=tenant, writes=replace(writes, spend=spends), fence=fence)


class TwoStartsTwoRuns(MemoryRunStore):
    def create(self, record: Any) -> Any:
        row, _ = super().create(record)
        return row, True


# Everything


class TenantsAreOne(MemorySpace):
    def read(self, tenant: str, run_id: str) -> RunRows:
        return super().read("", run_id)

    def written(self, tenant: str, run_id: str) -> RunRows:
        return super().written("", run_id)


KINDS = {
    MemoryCheckpointStore: ("checkpoints", CheckpointStoreConformance),
    MemoryLeaseStore: ("leases", LeaseStoreConformance),
    MemoryIdempotencyStore: ("idempotency", IdempotencyStoreConformance),
    MemoryHistoryStore: ("history", HistoryStoreConformance),
    MemoryRunStore: ("runs", RunStoreConformance),
}

FAULTS: dict[type[Any], str] = {
    ReleaseResetsTheFence: "test_every_acquisition_has_a_token_of_its_own_and_a_higher_fence",
    RenewsWhatWasReleased: "test_a_released_lease_is_not_renewed",
    TheNameIsTheIdentity: "test_a_live_lease_refuses_its_own_holders_name",
    AnyoneReleases: "test_releasing_what_has_moved_on_leaves_it_alone",
    CountsFromWhenItWasMade: "test_a_lease_lasts_its_ttl_from_the_acquisition_by_the_stores_clock",
    AsksTheWorkersClock: "test_a_live_lease_refuses_everyone_and_says_who_holds_it_until_when",
    LookingFreesTheExpired: "test_looking_who_holds_a_run_changes_nothing",
    AnExpiredLeaseIsLost: "test_an_expired_lease_that_nobody_took_over_is_renewed",
    RenewsForTwiceAsLong: "test_a_renewed_lease_lasts_as_long_as_was_asked_from_then_on",
    RenewsForTwiceAsLongInSecret: "test_a_renewed_lease_lasts_as_long_as_was_asked_from_then_on",
    LastsForTwiceAsLong: "test_a_lease_lasts_its_ttl_from_the_acquisition_by_the_stores_clock",
    LastsForItsOwnTime: "test_a_lease_lasts_its_ttl_from_the_acquisition_by_the_stores_clock",
    LosersAreToldNothing: "test_a_live_lease_refuses_everyone_and_says_who_holds_it_until_when",
    UnfencedPut: "test_a_superseded_holder_writes_nothing",
    UnfencedForget: "test_a_superseded_holder_writes_nothing",
    TheLastFrontierWins: "test_another_frontier_of_the_same_sequence_is_refused_and_the_first_stays",
    ExpiredClaimsReadAsFree: "test_neither_age_nor_expiry_nor_a_take_over_frees_a_claim",
    ThePlannerWrites: "test_looking_up_changes_nothing",
    OutcomesAreOverwritten: "test_another_outcome_is_refused_and_the_first_stays",
    EvidenceSettlesWhatItContests: "test_evidence_voids_a_settlement_as_never_ran_and_settles_nothing_by_itself",
    AnyoneAbandons: "test_only_the_token_abandons",
    SettledBeforeTheDeadline: "test_not_done_is_refused_before_the_deadline_naming_the_instant",
    SettledTwice: "test_another_answer_is_refused_and_says_who_answered_first",
    UnfencedBegin: "test_a_superseded_holder_writes_nothing",
    KeysAreNotHeld: "test_a_key_that_another_slot_holds_in_flight_returns_that_claim",
    UnfencedAppend: "test_a_superseded_holder_writes_nothing",
    OrphanTailsStay: "test_what_lies_behind_the_handle_is_an_orphan_tail_and_is_replaced",
    ShorterWillDo: "test_a_conversation_that_is_shorter_than_its_handle_is_unavailable",
    NothingIsHeldBack: "test_a_claim_may_not_be_made_once_a_cancel_is_requested",
    TheLastAnswerWins: "test_another_answer_is_a_conflict_that_names_who_answered_first_and_when",
    WakeUpsAreOverwritten: "test_a_wake_up_that_somebody_asked_for_meanwhile_stays",
    EndedRunsGoOn: "test_a_row_that_has_ended_changes_no_more",
    SpendsAddUp: "test_the_same_spend_again_counts_once",
    TwoStartsTwoRuns: "test_of_starts_at_once_one_creates",
}


def failing(suite: type[StoreConformance], broken: Callable[[MemorySpace], Stores]) -> set[str]:
    """Run every test of ``suite`` on the stores that ``broken`` makes, and return those that fail."""
    tested: Any = type("Broken", (InMemory, suite), {"make_stores": lambda self: broken(self.space)})
    failed = set()
    for name in dir(tested):
        if name.startswith("test_"):
            try:
                getattr(tested(), name)()
            except Exception:  # noqa: BLE001  # however a broken store makes a test fail
                failed.add(name)
    return failed


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_the_suite_finds(fault: type[Any]) -> None:
    slot, suite = KINDS[fault.__mro__[1]]
    assert FAULTS[fault] in failing(suite, lambda space: replace(memory_stores(space), **{slot: fault(space)}))


@pytest.mark.parametrize(
    ("suite", "name"),
    [
        (CheckpointStoreConformance, "test_another_tenants_frontier_is_never_found"),
        (LeaseStoreConformance, "test_the_same_run_id_of_another_tenant_is_another_run"),
        (IdempotencyStoreConformance, "test_another_tenants_claims_are_never_found"),
        (HistoryStoreConformance, "test_another_tenants_conversation_is_never_found"),
        (RunStoreConformance, "test_another_tenants_row_is_never_found"),
        (CommitConformance, "test_another_tenants_run_is_not_touched"),
    ],
)
def test_every_suite_finds_that_tenants_are_one(suite: type[StoreConformance], name: str) -> None:
    assert name in failing(suite, lambda space: memory_stores(TenantsAreOne(space.now)))


def test_the_suite_of_commits_finds_that_nothing_is_held_back() -> None:
    failed = failing(CommitConformance, lambda space: replace(memory_stores(space), runs=NothingIsHeldBack(space)))
    assert "test_a_requested_cancel_holds_back_claims_and_nothing_else" in failed
    assert "test_an_approval_that_is_not_granted_for_its_digest_holds_back_its_claim" in failed


@pytest.mark.parametrize("suite", [suite for _, suite in KINDS.values()])
def test_sound_stores_pass(suite: type[StoreConformance]) -> None:
    assert failing(suite, memory_stores) == set()
