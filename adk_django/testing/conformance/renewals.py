"""The suite of a lease store, second part: renewing a lease, and for how long it then lasts."""

# ruff: noqa: S101 (a suite is made of asserts)

import time
from dataclasses import replace

from adk_django.core.lease import RunLease
from adk_django.exceptions import LeaseLostError, ResumeConflictError
from adk_django.testing.conformance.base import LONG_SECONDS, TTL_SECONDS, StoreConformance, raises

TTLS = (7.5, TTL_SECONDS, 3_600.0)  # of leases whose expiry is compared with what was asked
NEAR_SECONDS = 5.0  # before and after an expiry, with time for slow stores


def named(lease: RunLease) -> tuple[object, ...]:
    """Return what tells a lease from any other, until when it lasts included."""
    return lease.tenant, lease.run_id, lease.holder, lease.token, lease.fence, lease.expires_at


class RenewalConformance(StoreConformance):
    """What is promised of renewals."""

    def acquire(
        self, holder: str = "worker-1", *, tenant: str | None = None, floor: int = 0, ttl_seconds: float = TTL_SECONDS
    ) -> RunLease:
        """Acquire the run."""
        given = {"tenant": tenant or self.tenant, "holder": holder, "ttl_seconds": ttl_seconds, "floor": floor}
        return self.stores.leases.acquire(self.run_id, **given)  # type: ignore[arg-type]  # each of its own type

    def held(self) -> RunLease | None:
        """Return the lease that stands."""
        return self.stores.leases.held(self.run_id, tenant=self.tenant)

    def stands(self, lease: RunLease) -> bool:
        """Return whether ``lease`` is the one that stands."""
        held = self.held()
        return held is not None and named(held) == named(lease)

    def refused(self, holder: str = "worker-9") -> ResumeConflictError:
        """Fail unless ``holder`` is refused."""
        with raises(ResumeConflictError) as caught:
            self.acquire(holder)
        return caught.error

    def assert_lasts(self, lease: RunLease, ttl_seconds: float) -> None:
        """Fail unless the lease, just confirmed, stands for so long and no longer."""
        assert self.stands(lease)
        self.age(ttl_seconds - NEAR_SECONDS)
        self.refused()
        self.age(2 * NEAR_SECONDS)
        self.stores.leases.release(self.acquire("worker-8"))

    def test_a_renewed_lease_lasts_as_long_as_was_asked_from_then_on(self) -> None:
        for renew in (self.stores.leases.renew, self.stores.leases.renew_at_once):
            for ttl_seconds in TTLS:
                begun = time.monotonic()
                lease = self.acquire()
                renewed = renew(lease, ttl_seconds=ttl_seconds)
                elapsed = time.monotonic() - begun
                late = (renewed.expires_at - lease.acquired_at).total_seconds() - ttl_seconds
                assert -0.01 < late < elapsed + 0.01
                self.assert_lasts(renewed, ttl_seconds)

    def test_renewal_moves_the_expiry_and_keeps_fence_token_and_deaths(self) -> None:
        self.acquire()
        self.age(LONG_SECONDS)
        lease = self.acquire("worker-2")
        self.age(TTL_SECONDS - 1)
        before = self.held()
        renewed = self.stores.leases.renew(lease, ttl_seconds=TTL_SECONDS)
        assert before is not None
        assert renewed.expires_at > before.expires_at
        assert (renewed.fence, renewed.token, renewed.deaths) == (lease.fence, lease.token, 1)
        assert self.stands(renewed)
        self.age(TTL_SECONDS - 1)
        self.refused()

    def test_a_renewed_lease_is_renewed_and_released_by_any_of_its_copies(self) -> None:
        lease = self.acquire()
        renewed = self.stores.leases.renew(lease, ttl_seconds=TTL_SECONDS)
        self.stores.leases.renew_at_once(lease, ttl_seconds=TTL_SECONDS)
        self.stores.leases.renew(renewed, ttl_seconds=TTL_SECONDS)
        self.stores.leases.release(lease)
        assert self.held() is None

    def test_an_expired_lease_that_nobody_took_over_is_renewed(self) -> None:
        lease = self.acquire()
        for renew in (self.stores.leases.renew, self.stores.leases.renew_at_once):
            self.age(LONG_SECONDS)
            renewed = renew(lease, ttl_seconds=TTL_SECONDS)
            assert renewed.held_at(self.stores.runs.now())
            assert self.stands(renewed)
            self.refused()

    def test_a_lease_that_another_acquired_is_not_renewed(self) -> None:
        lease = self.acquire("cli")
        self.age(LONG_SECONDS)
        second = self.acquire("cli")
        for renew in (self.stores.leases.renew, self.stores.leases.renew_at_once):
            with raises(LeaseLostError):
                renew(lease, ttl_seconds=TTL_SECONDS)
        assert self.stands(second)

    def test_a_released_lease_is_not_renewed(self) -> None:
        lease = self.acquire()
        self.stores.leases.release(lease)
        for renew in (self.stores.leases.renew, self.stores.leases.renew_at_once):
            with raises(LeaseLostError):
                renew(lease, ttl_seconds=TTL_SECONDS)
        assert self.held() is None

    def test_only_the_token_renews(self) -> None:
        lease = self.acquire("cli")
        for forged in (replace(lease, token="guessed"), replace(lease, token="")):  # noqa: S106
            with raises(LeaseLostError):
                self.stores.leases.renew(forged, ttl_seconds=TTL_SECONDS)
            with raises(LeaseLostError):
                self.stores.leases.renew_at_once(forged, ttl_seconds=TTL_SECONDS)
        assert self.stands(lease)
