"""The suites of run and lease stores, last part: which runs are due, who takes them, and what an operator does."""

# ruff: noqa: S101 (a suite is made of asserts)

from dataclasses import replace
from functools import partial
from typing import Any

from adk_django.core.checkpoint import CHECKPOINT_FORMAT
from adk_django.core.lease import RunLease
from adk_django.core.record import RunStatus, Writes
from adk_django.exceptions import CrowdedError, LeaseLostError, ResumeConflictError, RunForgottenError
from adk_django.stores.runs import Due
from adk_django.testing.conformance.base import (
    FOR_EVER_SECONDS,
    LONG_SECONDS,
    TTL_SECONDS,
    StoreConformance,
    race,
    raises,
)

SWEEPS = 10
AGAIN_SECONDS = 90.0


class DueConformance(StoreConformance):
    """What is promised of taking the runs that are due."""

    def run(self, name: str = "", **changes: Any) -> str:
        """Create a run that is due, of an agent that no other test has; return its id."""
        run_id = f"{self.run_id}{name}"
        due = {"agent": self.agent, "wake_at": self.stores.runs.now(), **changes}
        self.stores.runs.create(replace(self.row(**due), run_id=run_id))
        return run_id

    @property
    def agent(self) -> str:
        """The agent of this test's runs."""
        return f"booking-{self.run_id}"

    def taken(self, **changes: Any) -> list[str]:
        """Take what is due of this test's runs; return their ids."""
        known = {"limit": 100, "definitions": {self.agent: frozenset(["1"])}, "format_version": CHECKPOINT_FORMAT}
        due = Due(**{**known, "again_seconds": AGAIN_SECONDS, **changes})
        return [run_id for _, run_id in self.stores.runs.take_due(due)]

    def held(self, run_id: str, **where: Any) -> RunLease:
        """Acquire a run."""
        given = {"tenant": self.tenant, "holder": "worker-1", "ttl_seconds": TTL_SECONDS, **where}
        return self.stores.leases.acquire(run_id, **given)

    def stopped(self, run_id: str, status: RunStatus, **writes: Any) -> None:
        """Carry a run to a stop and give it back."""
        lease = self.held(run_id)
        row = self.stores.runs.get(run_id, tenant=self.tenant)
        sent = Writes(status=status, wake_seen=None if row is None else row.wake_at, **writes)
        self.stores.runs.write(run_id, tenant=self.tenant, writes=sent, fence=lease.fence)
        self.stores.leases.release(lease)

    def test_a_run_is_taken_once_until_its_wake_up_falls_due_again(self) -> None:
        run_id = self.run()
        before = self.stores.runs.now()
        assert self.taken() == [run_id]
        row = self.stores.runs.get(run_id, tenant=self.tenant)
        assert row is not None and row.wake_at is not None
        assert AGAIN_SECONDS <= (row.wake_at - before).total_seconds() <= 2 * AGAIN_SECONDS
        assert self.taken() == []
        self.age(2 * AGAIN_SECONDS)
        assert self.taken() == [run_id]

    def test_many_sweeps_at_once_take_each_run_once(self) -> None:
        wanted = {self.run(str(number)) for number in range(20)}
        taken = [run_id for some in race(*[partial(self.taken, limit=5)] * SWEEPS) for run_id in some]
        assert len(taken) == len(set(taken))
        assert set(taken) | set(self.taken()) == wanted

    def test_the_longest_due_is_taken_first_and_no_more_than_asked_for(self) -> None:
        first = self.run("first")
        self.age(1)
        second = self.run("second")
        assert self.taken(limit=1) == [first]
        assert self.taken(limit=1) == [second]

    def test_a_run_that_a_live_lease_advances_is_left_to_it(self) -> None:
        lease = self.held(run_id := self.run())
        assert self.taken() == []
        self.stores.leases.release(lease)
        assert self.taken() == [run_id]

    def test_a_run_whose_lease_lapsed_is_due(self) -> None:
        self.held(run_id := self.run())
        self.age(LONG_SECONDS)
        assert self.taken() == [run_id]

    def test_an_active_run_without_a_wake_up_is_due(self) -> None:
        self.stopped(run_id := self.run(), RunStatus.ACTIVE)
        assert self.taken() == [run_id]

    def test_an_active_run_that_is_to_be_tried_later_is_left_until_then(self) -> None:
        later = self.run(wake_at=self.stores.runs.now().replace(year=2999))
        assert self.taken() == []
        assert self.stores.runs.wake(later, tenant=self.tenant) is not None
        assert self.taken() == [later]

    def test_a_run_that_waits_for_people_is_left_until_they_answered(self) -> None:
        for status in (RunStatus.WAITING, RunStatus.UNDECIDED, RunStatus.QUARANTINED):
            self.stopped(run_id := self.run(status.value), status)
            assert self.taken() == [], status
            self.stores.runs.wake(run_id, tenant=self.tenant)
            assert self.taken() == [run_id], status

    def test_a_run_that_ended_is_never_due(self) -> None:
        self.stopped(run_id := self.run(), RunStatus.COMPLETED)
        row = self.stores.runs.wake(run_id, tenant=self.tenant)
        assert row is not None and row.wake_at is None
        assert self.taken() == []

    def test_what_cannot_be_carried_on_here_is_left_to_others(self) -> None:
        unpinned, ours = self.run("unpinned"), self.run("ours", revision="1")
        self.run("other", revision="2")
        self.run("another", agent=f"{self.agent}-other")
        self.run("newer", format_version=CHECKPOINT_FORMAT + 1)
        assert sorted(self.taken()) == sorted([unpinned, ours])
        assert self.taken(definitions={}) == []

    def test_no_more_are_taken_than_may_live(self) -> None:
        self.age(FOR_EVER_SECONDS)  # past what other tests hold
        for number in range(4):
            self.run(str(number))
        self.held(self.run("held"))
        assert len(self.taken(max_live=3)) == 2
        assert self.taken(max_live=1) == []

    def test_no_more_of_a_tenant_are_taken_than_may_live(self) -> None:
        for number in range(3):
            self.run(str(number))
        other = self.run("other", tenant=f"{self.tenant}-other")
        lease = self.held(self.run("held"))
        taken = self.taken(max_live_per_tenant=2)
        assert len(taken) == 2
        assert other in taken
        self.stores.leases.release(lease)

    def test_no_more_leases_live_than_may(self) -> None:
        self.age(FOR_EVER_SECONDS)
        ids = [self.run(str(number)) for number in range(3)]
        other = f"{self.tenant}-other"
        self.run("other", tenant=other)

        def acquire(run_id: str, tenant: str | None = None, **caps: int) -> RunLease:
            limits: dict[str, int | None] = {"max_live": None, "max_live_per_tenant": None, **caps}
            leases = self.stores.leases.within(**limits)
            return leases.acquire(run_id, tenant=tenant or self.tenant, holder="w", ttl_seconds=TTL_SECONDS)

        if self.stores.leases.within(max_live=1, max_live_per_tenant=1) is self.stores.leases:
            return  # it cannot count
        first = acquire(ids[0], max_live=1, max_live_per_tenant=1)
        with raises(CrowdedError):
            acquire(ids[1], max_live=1)
        with raises(CrowdedError):
            acquire(ids[1], max_live_per_tenant=1)
        assert self.stores.leases.held(ids[1], tenant=self.tenant) is None
        with raises(ResumeConflictError):
            acquire(ids[0], max_live=1)  # its own is not in its way
        self.stores.leases.release(acquire("other", other, max_live_per_tenant=1))
        self.stores.leases.release(first)
        acquire(ids[1], max_live=1)
        self.age(LONG_SECONDS)
        acquire(ids[2], max_live=1)  # what has lapsed lives no more

    def test_many_at_once_acquire_as_many_as_may_live(self) -> None:
        leases = self.stores.leases
        capped = leases.within(max_live=None, max_live_per_tenant=2)
        if capped is leases:
            return  # it cannot count
        ids = [self.run(str(number)) for number in range(SWEEPS)]
        for _ in range(5):
            given: dict[str, Any] = {"tenant": self.tenant, "holder": "w", "ttl_seconds": TTL_SECONDS}
            came = race(*(partial(capped.acquire, run_id, **given) for run_id in ids))
            got = [lease for lease in came if isinstance(lease, RunLease)]
            assert (len(got), {type(other) for other in came if other not in got}) == (2, {CrowdedError})
            for lease in got:
                capped.release(lease)

    def test_what_ended_long_ago_is_erased_and_its_id_is_used_up(self) -> None:
        self.age(FOR_EVER_SECONDS)
        while self.stores.runs.prune(seconds=FOR_EVER_SECONDS / 2, limit=100):
            pass  # what other tests left
        old, waits = self.run("old"), self.run("waits")
        self.stopped(old, RunStatus.COMPLETED, output="done")
        self.stopped(waits, RunStatus.WAITING)
        self.age(LONG_SECONDS)
        self.stopped(new := self.run("new"), RunStatus.FAILED)
        assert self.stores.runs.prune(seconds=2 * LONG_SECONDS, limit=100) == ()
        assert self.stores.runs.prune(seconds=LONG_SECONDS / 2, limit=0) == ()
        assert self.stores.runs.prune(seconds=LONG_SECONDS / 2, limit=100) == ((self.tenant, old),)
        assert self.stores.runs.get(old, tenant=self.tenant) is None
        for kept in (waits, new):
            assert self.stores.runs.get(kept, tenant=self.tenant) is not None
        with raises(RunForgottenError):
            self.run("old")

    def test_waking_a_run_that_is_not_there_is_no_error(self) -> None:
        assert self.stores.runs.wake("nobody", tenant=self.tenant) is None
        assert self.stores.runs.request_release("nobody", tenant=self.tenant, by="ann", reason="fixed") is None

    def test_a_release_is_asked_of_a_quarantined_run_and_answered_by_the_next_status(self) -> None:
        run_id = self.run()
        ask = partial(self.stores.runs.request_release, run_id, tenant=self.tenant, by="ann", reason="fixed")
        untouched = ask()
        assert untouched is not None and untouched.release_requested_at is None
        self.stopped(run_id, RunStatus.QUARANTINED, reason="died 5 times")
        asked = ask()
        assert asked is not None and asked.release_requested_at is not None
        assert asked.wake_at is not None
        self.stopped(run_id, RunStatus.ACTIVE)
        row = self.stores.runs.get(run_id, tenant=self.tenant)
        assert row is not None and row.release_requested_at is None


class OperatorConformance(StoreConformance):
    """What is promised of taking a lease away, and of giving a run another round."""

    def test_a_revoked_lease_is_neither_renewed_nor_written_under(self) -> None:
        lease = self.lease()
        now = self.stores.leases.revoke(self.run_id, tenant=self.tenant, by="ann")
        assert now is not None
        assert (now.holder, now.fence) == ("ann", lease.fence + 1)
        with raises(LeaseLostError):
            self.stores.leases.renew(lease, ttl_seconds=TTL_SECONDS)
        with raises(LeaseLostError):
            self.stores.checkpoints.put(self.frontier(), fence=lease.fence)
        self.stores.leases.release(lease)
        held = self.stores.leases.held(self.run_id, tenant=self.tenant)
        assert held is not None and held.token == now.token

    def test_a_revoked_lease_is_taken_at_once_and_counts_as_a_death(self) -> None:
        self.lease()
        now = self.stores.leases.revoke(self.run_id, tenant=self.tenant, by="ann")
        lease = self.lease("worker-2")
        assert now is not None and lease.fence > now.fence
        assert (lease.deaths, lease.took_over) == (1, True)

    def test_there_is_nothing_to_revoke_where_nobody_holds_the_run(self) -> None:
        assert self.stores.leases.revoke(self.run_id, tenant=self.tenant, by="ann") is None
        self.stores.leases.release(self.lease())
        assert self.stores.leases.revoke(self.run_id, tenant=self.tenant, by="ann") is None
        assert self.stores.leases.held(self.run_id, tenant=self.tenant) is None

    def test_progress_may_count_deaths_from_a_number(self) -> None:
        lease = self.lease()
        self.stores.leases.progressed(lease, deaths=4)
        assert self.take_over().deaths == 5
