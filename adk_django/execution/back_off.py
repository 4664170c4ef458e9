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
from adk_django.execution.leaseholder import Leaseholder
from adk_django.stores.bundle import Stores

PROVIDER_FAILED = "the model provider failed"
STORE_FAILED = "the store did not answer"
SLICE_FAILED = "the worker failed"
MANY = 60  # doublings, past any longest wait
_FAILED: Mapping[type, str] = {ProviderError: PROVIDER_FAILED, StoreUnavailableError: STORE_FAILED}
_FAULTS = (ProviderError, StoreUnavailableError, ConfigurationError)


def back_off(
    stores: Stores, lease: RunLease, checkpointer: Checkpointer, error: Exception, owed: tuple[Spend, ...]
) -> None:
    """Say when a run whose slice failed is tried again: each time twice as late as before, up to the longest.

    What was spent on answers that are lost goes with it. A refusal is no failure: its row says what is to be done. A
    store that is down cannot be told.
    """
    if isinstance(error, AdkError) and not isinstance(error, _FAULTS):
        return
    for _ in range(2):  # what the slice left idle may have died meanwhile; the next connection is a new one
        with contextlib.suppress(StoreUnavailableError):
            return _try_later(stores, lease, checkpointer, error, owed)


def count_death(stores: Stores, holder: Leaseholder, owed: tuple[Spend, ...]) -> None:
    """Count as a death what ended a slice and is no Exception, such as SystemExit out of a tool.

    It is counted from the last progress on, as an expired lease is, so that a tool that ends each worker at the same
    call is not taken up for ever. A store that is down cannot be told.
    """
    with contextlib.suppress(AdkError):
        lease = holder.lease
        stands = stores.leases.held(lease.run_id, tenant=lease.tenant)
        stores.commit(Writes(deaths=(stands or lease).deaths + 1, spend=owed), lease=lease)


def _try_later(
    stores: Stores, lease: RunLease, checkpointer: Checkpointer, error: Exception, owed: tuple[Spend, ...]
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
