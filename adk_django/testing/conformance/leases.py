"""The suite of a lease store: who acquires, who is refused, and what is counted."""

# ruff: noqa: S101 (a suite is made of asserts)

import asyncio
from dataclasses import replace
from typing import Any

from adk_django.core.lease import RunLease
from adk_django.exceptions import FenceLostError, LeaseLostError, ResumeConflictError, RunForgottenError
from adk_django.testing.conformance.base import LONG_SECONDS, RACERS, TTL_SECONDS, race, raises
from adk_django.testing.conformance.due import OperatorConformance
from adk_django.testing.conformance.renewals import TTLS, RenewalConformance, named


class LeaseStoreConformance(OperatorConformance, RenewalConformance):
    """What a lease store promises."""

    def test_a_lease_names_run_holder_token_and_fence(self) -> None:
        lease = self.acquire("worker-7")
        assert (lease.tenant, lease.run_id, lease.holder) == (self.tenant, self.run_id, "worker-7")
        assert lease.token
        assert lease.fence > 0
        assert (lease.deaths, lease.took_over) == (0, False)

    def test_a_lease_lasts_its_ttl_from_the_acquisition_by_the_stores_clock(self) -> None:
        for ttl_seconds in TTLS:
            self.stores.leases.release(self.acquire())
            self.age(LONG_SECONDS)
            before = self.stores.runs.now()
            lease = self.acquire(ttl_seconds=ttl_seconds)
            after = self.stores.runs.now()
            assert before <= lease.acquired_at <= after
            assert abs((lease.expires_at - lease.acquired_at).total_seconds() - ttl_seconds) < 0.01
            assert lease.held_at(after)
            self.assert_lasts(lease, ttl_seconds)

    def test_a_live_lease_refuses_everyone_and_says_who_holds_it_until_when(self) -> None:
        lease = self.acquire("worker-1")
        self.age(TTL_SECONDS / 2)
        standing = self.held()
        assert standing is not None
        error = self.refused()
        assert (error.holder, error.until, error.fence) == ("worker-1", standing.expires_at, lease.fence)
        assert "worker-1" in str(error)

    def test_a_live_lease_refuses_its_own_holders_name(self) -> None:
        self.acquire("cli")
        self.refused("cli")

    def test_every_acquisition_has_a_token_of_its_own_and_a_higher_fence(self) -> None:
        leases = []
        for _ in range(3):
            leases.append(self.acquire("cli"))
            self.stores.leases.release(leases[-1])
        assert len({lease.token for lease in leases}) == 3
        assert leases[0].fence < leases[1].fence < leases[2].fence

    def test_the_fence_rises_over_an_expiry(self) -> None:
        first = self.acquire()
        self.age(LONG_SECONDS)
        second = self.acquire("worker-2")
        assert second.fence > first.fence
        assert second.superseded_by(first) is False
        assert first.superseded_by(second) is True

    def test_the_fence_rises_over_the_forgetting_of_all_that_was_kept(self) -> None:
        first = self.lease()
        stores, where = self.stores, {"tenant": self.tenant, "fence": first.fence}
        stores.checkpoints.put(self.frontier(), fence=first.fence)
        stores.idempotency.begin(self.claim(), fence=first.fence)
        stores.checkpoints.forget(self.run_id, **where)  # type: ignore[arg-type]  # each of its own type
        stores.idempotency.forget(self.run_id, **where)  # type: ignore[arg-type]  # the same
        stores.leases.release(first)
        assert self.acquire().fence > first.fence

    def test_an_expired_lease_that_was_not_released_is_a_death(self) -> None:
        self.acquire()
        for deaths in (1, 2, 3):
            self.age(LONG_SECONDS)
            lease = self.acquire(f"worker-{deaths}")
            assert (lease.deaths, lease.took_over) == (deaths, True)

    def test_a_released_lease_is_no_death(self) -> None:
        self.stores.leases.release(self.acquire())
        self.age(LONG_SECONDS)
        lease = self.acquire()
        assert (lease.deaths, lease.took_over) == (0, False)

    def test_a_lease_released_after_it_expired_is_no_death(self) -> None:
        lease = self.acquire()
        self.age(LONG_SECONDS)
        self.stores.leases.release(lease)
        again = self.acquire()
        assert (again.deaths, again.took_over) == (0, False)

    def test_a_release_counts_no_deaths_away(self) -> None:
        self.acquire()
        self.age(LONG_SECONDS)
        self.stores.leases.release(self.acquire())
        lease = self.acquire()
        assert (lease.deaths, lease.took_over) == (1, False)

    def test_a_fence_that_would_not_be_above_the_floor_is_refused(self) -> None:
        first = self.acquire()
        self.stores.leases.release(first)
        with raises(FenceLostError):
            self.acquire(floor=first.fence + 100)
        assert self.held() is None
        assert self.acquire(floor=first.fence).fence > first.fence

    def test_a_forgotten_run_is_not_acquired(self) -> None:
        self.stores.leases.release(self.lease())
        self.forget_run(self.run_id, tenant=self.tenant)
        with raises(RunForgottenError):
            self.acquire()

    def test_of_workers_that_acquire_at_once_one_wins_and_the_others_are_told(self) -> None:
        results = race(*(lambda index=index: self.acquire(f"worker-{index}") for index in range(RACERS)))
        (winner,) = (result for result in results if isinstance(result, RunLease))
        losers = [result for result in results if isinstance(result, ResumeConflictError)]
        assert len(losers) == RACERS - 1
        assert {error.holder for error in losers} == {winner.holder}

    def test_of_workers_that_take_over_at_once_one_wins_and_it_is_one_death(self) -> None:
        first = self.acquire()
        self.age(LONG_SECONDS)
        results = race(*(lambda index=index: self.acquire(f"worker-{index}") for index in range(RACERS)))
        (winner,) = (result for result in results if isinstance(result, RunLease))
        assert (winner.deaths, winner.took_over) == (1, True)
        assert winner.fence > first.fence
        assert sum(isinstance(result, ResumeConflictError) for result in results) == RACERS - 1

    def test_after_a_release_the_next_acquires_at_once(self) -> None:
        self.stores.leases.release(self.acquire())
        assert self.held() is None
        assert self.acquire("worker-2").holder == "worker-2"

    def test_releasing_what_has_moved_on_leaves_it_alone(self) -> None:
        lease = self.acquire("cli")
        self.age(LONG_SECONDS)
        second = self.acquire("cli")
        self.stores.leases.release(lease)
        assert self.stands(second)
        self.refused()

    def test_releasing_twice_or_with_a_guessed_token_is_no_error_and_frees_nothing(self) -> None:
        lease = self.acquire()
        self.stores.leases.release(lease)
        self.stores.leases.release(lease)
        second = self.acquire("worker-2")
        self.stores.leases.release(lease)
        self.stores.leases.release(replace(second, token="guessed"))  # noqa: S106
        assert self.stands(second)

    def test_progress_counts_deaths_from_zero_again(self) -> None:
        self.acquire()
        self.age(LONG_SECONDS)
        lease = self.acquire()
        self.stores.leases.progressed(lease)
        held = self.held()
        assert held is not None
        assert held.deaths == 0
        self.age(LONG_SECONDS)
        assert self.acquire().deaths == 1

    def test_progress_of_what_has_moved_on_changes_nothing(self) -> None:
        lease = self.acquire()
        self.age(LONG_SECONDS)
        second = self.acquire("worker-2")
        self.stores.leases.progressed(lease)
        held = self.held()
        assert held is not None
        assert (held.token, held.deaths) == (second.token, 1)

    def test_held_is_what_stands_unreleased_expired_or_not(self) -> None:
        assert self.held() is None
        lease = self.acquire()
        assert self.stands(lease)
        self.age(LONG_SECONDS)
        expired = self.held()
        assert expired is not None
        assert expired.token == lease.token
        assert not expired.held_at(self.stores.runs.now())

    def test_many_are_held_as_each_is(self) -> None:
        lease, other = self.acquire(), f"{self.run_id}-other"
        second = self.stores.leases.acquire(other, tenant=self.tenant, holder="worker-2", ttl_seconds=TTL_SECONDS)
        released = self.stores.leases.acquire(f"{other}-2", tenant=self.tenant, holder="w", ttl_seconds=TTL_SECONDS)
        self.stores.leases.release(released)
        asked = [(self.tenant, run_id) for run_id in (self.run_id, other, f"{other}-2", f"{other}-3")]
        found = self.stores.leases.held_of([*asked, (f"{self.tenant}-other", self.run_id)])
        assert {run: named(held) for run, held in found.items()} == {
            (self.tenant, self.run_id): named(lease),
            (self.tenant, other): named(second),
        }
        assert self.stores.leases.held_of([]) == {}

    def test_looking_who_holds_a_run_changes_nothing(self) -> None:
        lease = self.acquire()
        self.age(LONG_SECONDS)
        assert self.held() == self.held()
        self.stores.leases.renew(lease, ttl_seconds=TTL_SECONDS)
        self.refused()

    def test_the_same_run_id_of_another_tenant_is_another_run(self) -> None:
        lease, other = self.acquire(), f"{self.tenant}-other"
        assert self.stores.leases.held(self.run_id, tenant=other) is None
        with raises(LeaseLostError):
            self.stores.leases.renew(replace(lease, tenant=other), ttl_seconds=TTL_SECONDS)
        self.stores.leases.release(replace(lease, tenant=other))
        self.stores.leases.progressed(replace(lease, tenant=other))
        assert self.acquire(tenant=other).fence > 0
        assert self.stands(lease)

    def test_async_twins_do_the_same(self) -> None:
        store = self.stores.leases
        where: dict[str, Any] = {"tenant": self.tenant}

        async def walk() -> list[RunLease | None]:
            lease = await store.aacquire(self.run_id, holder="worker-1", ttl_seconds=TTL_SECONDS, **where)
            with raises(ResumeConflictError):
                await store.aacquire(self.run_id, holder="worker-1", ttl_seconds=TTL_SECONDS, **where)
            renewed = await store.arenew(lease, ttl_seconds=2 * TTL_SECONDS)
            await store.aprogressed(lease)
            held = await store.aheld(self.run_id, **where)
            await store.arelease(lease)
            return [renewed, held, await store.aheld(self.run_id, **where)]

        renewed, held, released = asyncio.run(walk())
        assert held is not None
        assert renewed is not None
        assert named(renewed) == named(held)
        assert released is None
