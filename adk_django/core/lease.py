"""Who may advance a run, and for how long.

The store's clock decides expiry; the fence decides who may write. An expired lease that nobody took over or released
is still its holder's.
"""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

CLOCK_GRAIN_SECONDS: Final = 0.001  # the coarsest store clock: milliseconds
DAY_SECONDS: Final = 86_400


@dataclass(frozen=True)
class RunLease:
    """One acquisition. ``holder`` is for show; ``token`` is the identity; ``fence`` rises with every acquisition.

    ``deaths`` counts acquisitions since the last progress that found an expired lease; ``took_over`` says that this
    was one of them. ``acquired_at`` and ``expires_at`` are instants of the store.
    """

    tenant: str
    run_id: str
    holder: str
    token: str
    fence: int
    acquired_at: datetime
    expires_at: datetime
    deaths: int = 0
    took_over: bool = False

    def superseded_by(self, other: "RunLease") -> bool:
        """Return whether ``other`` is a later acquisition of the same run: decided by the number, not by the time."""
        return (self.tenant, self.run_id) == (other.tenant, other.run_id) and other.fence > self.fence

    def held_at(self, now: datetime) -> bool:
        """Return whether the lease has not expired at ``now``, an instant of the store that granted it."""
        return now < self.expires_at


@dataclass(frozen=True)
class LeasePolicy:
    """How long a lease lasts, and how much of it may be left before it is renewed.

    Raise ValueError for unsafe values.
    """

    ttl_seconds: float = 60
    renew_within_seconds: float = 20

    def __post_init__(self) -> None:
        for name in ("ttl_seconds", "renew_within_seconds"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > CLOCK_GRAIN_SECONDS:
                raise ValueError(f"LeasePolicy.{name} is {value!r}: expected seconds above {CLOCK_GRAIN_SECONDS}")
        if self.ttl_seconds > DAY_SECONDS:
            raise ValueError(
                f"LeasePolicy.ttl_seconds is {self.ttl_seconds!r}: "
                f"expected at most {DAY_SECONDS}, or a run whose worker died waits longer than a day"
            )
        if self.renew_within_seconds >= self.ttl_seconds:
            raise ValueError(
                f"LeasePolicy.renew_within_seconds is {self.renew_within_seconds!r}: "
                f"expected less than ttl_seconds ({self.ttl_seconds!r})"
            )


DEFAULT_LEASE: Final = LeasePolicy()
