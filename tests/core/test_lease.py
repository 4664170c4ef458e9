"""Leases are compared by number and judged by the store's instants; policies that switch safety off are refused."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from adk_django.core.lease import DEFAULT_LEASE, LeasePolicy, RunLease

NOW = datetime(2025, 1, 1, tzinfo=UTC)
LEASE = RunLease("acme", "run_1", "w", "token", 7, NOW, NOW + timedelta(seconds=60))


def test_the_number_decides_who_was_superseded_and_the_time_does_not() -> None:
    later = replace(LEASE, fence=8, token="other", expires_at=NOW - timedelta(days=1))
    assert LEASE.superseded_by(later)
    assert not later.superseded_by(LEASE)
    assert not LEASE.superseded_by(replace(LEASE, token="other"))
    assert not LEASE.superseded_by(replace(later, run_id="run_2"))
    assert not LEASE.superseded_by(replace(later, tenant="other"))


def test_a_lease_is_held_until_the_instant_it_expires() -> None:
    assert LEASE.held_at(LEASE.expires_at - timedelta(microseconds=1))
    assert not LEASE.held_at(LEASE.expires_at)


@pytest.mark.parametrize("name", ["ttl_seconds", "renew_within_seconds"])
@pytest.mark.parametrize("value", [0, -1, None, True, "60", 0.001, float("nan")])
def test_a_policy_that_keeps_nothing_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"LeasePolicy.{name} is"):
        LeasePolicy(**{"ttl_seconds": 60, "renew_within_seconds": 20, name: value})


@pytest.mark.parametrize(("ttl", "within"), [(60, 60), (60, 61), (86_401, 20), (float("inf"), 20)])
def test_a_margin_as_long_as_the_lease_or_a_lease_longer_than_a_day_is_refused(ttl: float, within: float) -> None:
    with pytest.raises(ValueError, match="expected"):
        LeasePolicy(ttl, within)


def test_the_default_lasts_a_minute_and_is_renewed_in_its_last_third() -> None:
    assert (DEFAULT_LEASE.ttl_seconds, DEFAULT_LEASE.renew_within_seconds) == (60, 20)
    assert LeasePolicy(86_400, 1)
