"""What becomes of a run whose slice failed: when it is tried again, and what counts as a death of its worker."""

import contextlib
import re
from collections.abc import Mapping
from datetime import timedelta

from adk_django.conf import get_settings
from adk_django.core.lease import RunLease
from adk_django.core.record import RunRecord, RunStatus, Spend, Writes
from adk_django.exceptions import (
    AdkError,
    ConfigurationError,
    ProviderError,
    StoreUnavailableError,
)
from adk_django.execution.checkpointer import Checkpointer
from adk_django.stores.bundle import Stores

PROVIDER_FAILED = "the model provider failed"
STORE_FAILED = "the store did not answer"
SLICE_FAILED = "the worker failed"
MANY = 60  # doublings, past any longest wait
_FAILED: Mapping[type, str] = {ProviderError: PROVIDER_FAILED, StoreUnavailableError: STORE_FAILED}
_FAULTS = (ProviderError, StoreUnavailableError, ConfigurationError)


def record_failure(
    stores: Stores, lease: RunLease, checkpointer: Checkpointer, error: BaseException, owed: tuple[Spend, ...]
) -> None:
    """Write into a run's row what ended its slice before its time, and what was spent on answers that are lost.

    After an error the run is tried again, each time twice as late as before, up to the longest wait. A refusal is no
    failure: its row says what is to be done. What is no Exception, such as SystemExit out of a tool, is a death, so
    that a tool which ends each worker at the same call is not taken up for ever. A store that is down cannot be told.
    """
    if isinstance(error, AdkError) and not isinstance(error, _FAULTS):
        return
    act = _try_later if isinstance(error, Exception) else _count_death
    for _ in range(2):  # what the slice left idle may have died meanwhile; the next connection is a new one
        with contextlib.suppress(StoreUnavailableError):
            return act(stores, lease, checkpointer, error, owed)


def _count_death(
    stores: Stores, lease: RunLease, checkpointer: Checkpointer, error: BaseException, owed: tuple[Spend, ...]
) -> None:
    stands = stores.leases.held(lease.run_id, tenant=lease.tenant)  # its count begins anew with each progress
    stores.commit(Writes(deaths=(stands or lease).deaths + 1, spend=owed), lease=lease)


def _try_later(
    stores: Stores, lease: RunLease, checkpointer: Checkpointer, error: BaseException, owed: tuple[Spend, ...]
) -> None:
    first, longest = get_settings().resume.backoff_seconds
    now, record = stores.runs.now(), stores.runs.get(lease.run_id, tenant=lease.tenant)
    failed, why = SLICE_FAILED, type(error).__name__  # of an error nobody foresaw no more: its text may hold anything
    if isinstance(error, AdkError):
        failed, why = _FAILED.get(type(error), SLICE_FAILED), str(error)
    times = _times(record, failed)
    wait = min(first * 2.0 ** min(times, MANY), longest)
    again, often = now + timedelta(seconds=wait), f" {times + 1} times" if times else ""
    reason = checkpointer.mask(f"{failed}{often}, next try at {again.isoformat(timespec='seconds')}: {why}")
    seen = None if record is None else record.wake_at
    writes = Writes(status=RunStatus.ACTIVE, reason=reason, wake_at=again, wake_seen=seen, spend=owed)
    stores.commit(writes, lease=lease)


def _times(record: RunRecord | None, failed: str) -> int:
    """Return how often in a row the run ``failed`` so, by what its row says: sweeps move its ``wake_at``."""
    said = re.match(f"{re.escape(failed)}(?: ([0-9]+) times)?, next try at ", "" if record is None else record.reason)
    return 0 if said is None else int(said[1] or 1)
