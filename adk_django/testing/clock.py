"""FakeClock: a clock that moves when it is told to."""

import threading
from datetime import UTC, datetime, timedelta


class FakeClock:
    """A callable that returns an aware UTC instant, the same until `advance` moves it. Hand it to a `MemorySpace`."""

    def __init__(self, start: datetime = datetime(2025, 1, 1, tzinfo=UTC)) -> None:
        self._lock = threading.Lock()
        self._now = start

    def __call__(self) -> datetime:
        """Return the instant it is."""
        return self._now

    def advance(self, seconds: float) -> datetime:
        """Move the clock by ``seconds``, negative ones back, and return the instant it then is."""
        with self._lock:
            self._now += timedelta(seconds=seconds)
            return self._now
