"""The suite of an idempotency store, first part: claims and looking them up."""

# ruff: noqa: S101, S105, S106 (a suite is made of asserts, and its tokens are no secrets)

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from adk_django.core.effects import Claim, ClaimState, EffectClass, Outcome, OutcomeKind, Slot
from adk_django.core.lease import RunLease
from adk_django.core.record import Answer
from adk_django.testing.conformance.base import (
    FOR_EVER_SECONDS,
    LIMIT_SECONDS,
    LONG_SECONDS,
    ONE,
    RACERS,
    THREE,
    TWO,
    FencedConformance,
    race,
    returned,
)

IN_FLIGHT, NEVER_RAN = ClaimState.IN_FLIGHT, ClaimState.NEVER_RAN


class ClaimConformance(FencedConformance):
    """What is promised of claims."""

    def begin(self, lease: RunLease, *args: Any, **changes: Any) -> Claim:
        """Make a claim under ``lease``."""
        return self.stores.idempotency.begin(self.claim(*args, **changes), fence=lease.fence)

    def record(self, lease: RunLease, claim: Claim, outcome: Outcome) -> Claim:
        """Record an outcome under ``lease``."""
        return self.stores.idempotency.record(claim, outcome, fence=lease.fence)

    def stands(self, slot: Slot = ONE) -> Claim:
        """Return the claim of a slot, which is there."""
        claim = self.found(slot)
        assert claim is not None
        return claim

    def settle(self, answer: Answer, outcome: Outcome | None = None, *, slot: Slot = ONE, **given: Any) -> Claim:
        """Settle a call."""
        given = {"by": "ann", "reason": "looked it up"} | given
        return self.stores.idempotency.settle(
            self.run_id, slot, tenant=self.tenant, answer=answer, outcome=outcome, **given
        )

    def reclaim(self, lease: RunLease, state: ClaimState | None, **changes: Any) -> Claim:
        """Claim a call once more, in place of a claim that was read in ``state``."""
        again = {"token": "token-2", "replaces": "token-1", "replaces_state": state, "attempt": 2}
        return self.begin(lease, **{**again, **changes})

    def never_ran(self, lease: RunLease, **changes: Any) -> Claim:
        """Make a claim and settle it as never ran."""
        self.begin(lease, **changes)
        self.age(LONG_SECONDS)
        return self.settle(Answer.NOT_DONE)

    def fenced_writes(self, lease: RunLease) -> Mapping[str, Callable[[int], Any]]:
        store, mine = self.stores.idempotency, self.begin(lease)
        return {
            "begin": lambda fence: store.begin(self.claim(TWO, "token-2"), fence=fence),
            "record of a row done at once": lambda fence: store.record(
                self.claim(THREE, None), returned(), fence=fence
            ),
            "note_error": lambda fence: store.note_error(replace(mine, error="oops"), fence=fence),
            "abandon": lambda fence: store.abandon(mine, fence=fence),
            "forget": lambda fence: store.forget(self.run_id, tenant=self.tenant, fence=fence),
        }

    # Claims

    def test_a_claim_is_in_flight_with_its_instants_by_the_stores_clock(self) -> None:
        lease, before = self.lease(), self.stores.runs.now()
        claim = self.begin(lease, limit_seconds=90.5)
        assert claim.begun_at is not None
        assert before <= claim.begun_at <= self.stores.runs.now()
        assert claim.deadline_at is not None
        assert abs(claim.deadline_at - claim.begun_at - timedelta(seconds=90.5)) < timedelta(milliseconds=10)
        assert (claim.state, claim.token, claim.fence) == (ClaimState.IN_FLIGHT, "token-1", lease.fence)
        assert self.stands() == claim

    def test_all_that_is_said_of_a_claim_comes_back(self) -> None:
        given = {
            "key": "k" * 64,
            "tool": "book_flight",
            "effect": EffectClass.IDEMPOTENT,
            "guaranteed": False,
            "digest": "d" * 64,
            "request_id": "req-9",
            "attempt": 3,
        }
        self.begin(self.lease(), **given)
        stands = self.stands()
        assert {name: getattr(stands, name) for name in given} == given

    def test_the_same_token_again_is_a_quiet_success_and_moves_no_instant(self) -> None:
        lease = self.lease()
        first = self.begin(lease)
        assert self.begin(lease) == first
        self.age(1)
        before = self.stands()
        assert self.begin(lease) == before

    def test_a_slot_that_is_claimed_is_not_claimed_by_another_token(self) -> None:
        lease = self.lease()
        first = self.begin(lease)
        for effect in (EffectClass.IDEMPOTENT, EffectClass.EFFECTFUL):
            for replaces in (None, "guessed"):
                assert self.reclaim(lease, IN_FLIGHT, effect=effect, replaces=replaces).token == "token-1"
        assert self.stands() == first

    def test_a_claim_in_flight_that_may_be_repeated_is_taken_over_by_whoever_names_its_token(self) -> None:
        self.begin(self.lease(), effect=EffectClass.IDEMPOTENT)
        second = self.take_over()
        claim = self.reclaim(second, IN_FLIGHT, effect=EffectClass.IDEMPOTENT)
        assert (claim.token, claim.attempt, claim.fence) == ("token-2", 2, second.fence)
        assert claim.begun_at is not None
        assert claim.begun_at >= second.acquired_at
        assert self.stands() == claim

    def test_an_effectful_claim_in_flight_is_never_taken_over(self) -> None:
        self.begin(self.lease())
        second = self.take_over()
        before = self.stands()
        assert self.reclaim(second, IN_FLIGHT) == before
        assert self.stands() == before

    def test_a_claim_is_taken_over_only_in_the_state_in_which_it_was_read(self) -> None:
        lease = self.lease()
        settled = self.never_ran(lease, effect=EffectClass.IDEMPOTENT)
        for state in (IN_FLIGHT, None):
            assert self.reclaim(lease, state, effect=EffectClass.IDEMPOTENT) == settled
        assert self.stands() == settled

    def test_a_claim_whose_settlement_was_contested_since_is_not_taken_over(self) -> None:
        lease = self.lease()
        settled = self.never_ran(lease)
        contested = self.stores.idempotency.evidence(settled, returned("late"))
        for effect, state in ((EffectClass.EFFECTFUL, NEVER_RAN), (EffectClass.IDEMPOTENT, IN_FLIGHT)):
            assert self.reclaim(lease, state, effect=effect) == contested
        assert self.stands() == contested

    def test_a_claim_in_flight_whose_late_outcome_came_since_is_not_taken_over(self) -> None:
        first = self.begin(self.lease(), effect=EffectClass.IDEMPOTENT)
        second = self.take_over()
        late = self.stores.idempotency.evidence(first, returned("late"))
        assert self.reclaim(second, IN_FLIGHT, effect=EffectClass.IDEMPOTENT) == late
        assert self.stands() == late

    def test_a_claim_settled_never_ran_is_taken_over_and_nothing_of_the_old_one_is_left(self) -> None:
        lease = self.lease()
        first = self.begin(lease)
        self.stores.idempotency.note_error(replace(first, error="ConnectionError"), fence=lease.fence)
        self.age(LONG_SECONDS)
        self.settle(Answer.NOT_DONE)
        self.stores.idempotency.evidence(first, returned("late"))
        self.settle(Answer.NOT_DONE, by="bob")
        claim = self.reclaim(lease, NEVER_RAN)
        assert (claim.token, claim.state, claim.contested) == ("token-2", ClaimState.IN_FLIGHT, False)
        assert (claim.outcome, claim.evidence, claim.evidence_at, claim.error) == (None, None, None, "")
        assert (claim.settled_at, claim.settled_by, claim.reason) == (None, "", "")
        assert self.stands() == claim

    def test_a_claim_settled_never_ran_is_not_taken_over_by_whoever_does_not_name_its_token(self) -> None:
        lease = self.lease()
        settled = self.never_ran(lease)
        for replaces in (None, "guessed"):
            assert self.reclaim(lease, NEVER_RAN, replaces=replaces).state is NEVER_RAN
        assert self.stands() == settled

    def test_a_claim_with_an_outcome_is_not_taken_over(self) -> None:
        lease = self.lease()
        for slot, outcome in ((ONE, returned()), (TWO, Outcome.of(OutcomeKind.FAILED, "no"))):
            done = self.record(lease, self.begin(lease, slot), outcome)
            for state in (IN_FLIGHT, NEVER_RAN, done.state):
                assert self.reclaim(lease, state, slot=slot, effect=EffectClass.IDEMPOTENT) == done
            assert self.stands(slot) == done

    def test_a_row_that_was_done_at_once_is_not_claimed(self) -> None:
        lease = self.lease()
        done = self.record(lease, self.claim(token=None), returned())
        assert self.begin(lease, token="token-2", replaces=None) == done

    def test_neither_age_nor_expiry_nor_a_take_over_frees_a_claim(self) -> None:
        self.begin(self.lease())
        self.age(FOR_EVER_SECONDS)
        second = self.take_over()
        self.stores.leases.release(second)
        third = self.lease("worker-3")
        assert self.begin(third, token="token-3").token == "token-1"
        assert (self.stands().state, self.stands().token) == (ClaimState.IN_FLIGHT, "token-1")

    def test_a_key_that_another_slot_holds_in_flight_returns_that_claim(self) -> None:
        lease = self.lease()
        owner = self.begin(lease, key="once")
        assert self.begin(lease, TWO, "token-2", key="once") == owner
        assert self.found(TWO) is None

    def test_a_key_that_another_slot_holds_with_its_outcome_or_settled_never_ran_returns_that_claim(self) -> None:
        lease = self.lease()
        done = self.record(lease, self.begin(lease, key="done"), returned())
        assert self.begin(lease, TWO, "token-2", key="done") == done
        self.begin(lease, THREE, "token-3", key="never")
        self.age(LONG_SECONDS)
        never = self.settle(Answer.NOT_DONE, slot=THREE)
        assert self.begin(lease, TWO, "token-2", key="never") == never
        assert self.found(TWO) is None

    def test_an_outcome_that_is_an_error_frees_its_key_and_a_copy_holds_none(self) -> None:
        lease = self.lease()
        self.record(lease, self.begin(lease, key="failed"), Outcome.of(OutcomeKind.FAILED, "no"))
        assert self.begin(lease, TWO, "token-2", key="failed").token == "token-2"
        self.record(lease, self.claim(THREE, None, key="copied"), returned().copied(TWO))
        assert self.begin(lease, Slot(1, 4), "token-4", key="copied").token == "token-4"

    def test_of_claims_made_at_once_one_wins(self) -> None:
        lease = self.lease()
        results = race(*(lambda index=index: self.begin(lease, token=f"token-{index}") for index in range(RACERS)))
        assert {claim.token for claim in results} == {self.stands().token}

    def test_of_slots_that_claim_one_key_at_once_one_wins(self) -> None:
        lease = self.lease()
        slots = [Slot(1, position) for position in range(1, RACERS + 1)]
        results = race(*(lambda slot=slot: self.begin(lease, slot, f"token-{slot}", key="once") for slot in slots))
        (owner,) = self.stores.idempotency.look_up(self.run_id, tenant=self.tenant)
        assert {claim.token for claim in results} == {owner.token}

    # Looking up

    def test_claims_are_found_by_slot_or_by_key(self) -> None:
        lease, store = self.lease(), self.stores.idempotency
        for slot in (Slot(10, 1), Slot(2, 10), Slot(2, 9), ONE):
            self.begin(lease, slot, f"token-{slot}")
        claims = store.look_up(self.run_id, tenant=self.tenant)
        assert [claim.slot for claim in claims] == [(1, 1), (2, 9), (2, 10), (10, 1)]
        some = store.look_up(self.run_id, tenant=self.tenant, keys=["key-2.9", "key-1.1", "unknown"])
        assert [claim.slot for claim in some] == [(1, 1), (2, 9)]
        assert store.look_up(self.run_id, tenant=self.tenant, keys=[]) == ()

    def test_looking_up_changes_nothing(self) -> None:
        lease = self.lease()
        self.begin(lease)
        before = self.dump()
        for keys in (None, ["key-1.1"], ["key-1.2"]):
            self.stores.idempotency.look_up(self.run_id, tenant=self.tenant, keys=keys)
        assert self.dump() == before
        assert self.begin(lease, TWO, "token-2").token == "token-2"

    def test_another_tenants_claims_are_never_found(self) -> None:
        lease, store, other = self.lease(), self.stores.idempotency, f"{self.tenant}-other"
        mine = self.begin(lease)
        assert store.look_up(self.run_id, tenant=other) == ()
        assert store.look_up(self.run_id, tenant=other, keys=[mine.key]) == ()
        theirs = self.stores.leases.acquire(self.run_id, tenant=other, holder="w", ttl_seconds=60)
        assert store.begin(self.claim(token="token-2", tenant=other), fence=theirs.fence).token == "token-2"
        assert store.evidence(self.claim(tenant=other), returned()) is None
        store.forget(self.run_id, tenant=other, fence=theirs.fence)
        assert self.stands() == mine

    def test_async_twins_of_claims_do_the_same(self) -> None:
        store, fence = self.stores.idempotency, {"fence": self.lease().fence}

        async def walk() -> None:
            claim = await store.abegin(self.claim(limit_seconds=LIMIT_SECONDS), **fence)
            assert (await store.abegin(self.claim(token="token-2"), **fence)).token == "token-1"
            await store.anote_error(replace(claim, error="oops"), **fence)
            assert (await store.alook_up(self.run_id, tenant=self.tenant))[0].error == "oops"
            assert (await store.arecord(claim, returned("A"), **fence)).outcome == returned("A")
            second = await store.abegin(self.claim(TWO, "token-2"), **fence)
            await store.aabandon(second, **fence)
            assert (await store.abegin(self.claim(TWO, "token-3"), **fence)).token == "token-3"
            await store.aforget(self.run_id, tenant=self.tenant, **fence)

        asyncio.run(walk())
        assert self.found() is None
