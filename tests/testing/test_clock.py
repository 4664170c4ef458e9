"""FakeClock: it moves when it is told to."""

from datetime import UTC, datetime, timedelta

from adk_django.testing import FakeClock


def test_a_clock_stands_until_it_is_moved() -> None:
    clock = FakeClock(datetime(2025, 3, 1, tzinfo=UTC))
    assert clock() == clock() == datetime(2025, 3, 1, tzinfo=UTC)
    assert clock.advance(1.5) == clock() == datetime(2025, 3, 1, 0, 0, 1, 500_000, tzinfo=UTC)
    assert clock.advance(-60) == datetime(2025, 3, 1, tzinfo=UTC) - timedelta(seconds=58.5)


def test_a_clock_is_aware_by_default() -> None:
    assert FakeClock()().utcoffset() == timedelta(0)
