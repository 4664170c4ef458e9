"""What comes before a slice, and behind one that failed: whether its run may be carried on, and when it is tried again.

What people asked of a run is done here, under its lease: a cancelled one that cannot be carried on ends, a released one
is freed.
"""

import contextlib
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

from adk_django.agents import Agent
from adk_django.checkpointer import Checkpointer
from adk_django.conf import get_settings
from adk_django.core.effects import EffectClass
from adk_django.core.lease import RunLease
from adk_django.core.record import RunRecord, RunStatus, Spend, Writes
from adk_django.exceptions import (
    AdkError,
    ConfigurationError,
    ProviderError,
    ResumeError,
    StaleFrontierError,
    StoreUnavailableError,
)
from adk_django.resumer import ResumedRun, refuse_revision, store_refusal
from adk_django.stores.bundle import Stores

PROVIDER_FAILED = "the model provider failed"
STORE_FAILED = "the store did not answer"
SLICE_FAILED = "the worker failed"
MANY = 60  # doublings, past any longest wait
_FAILED: Mapping[type, str] = {ProviderError: PROVIDER_FAILED, StoreUnavailableError: STORE_FAILED}
_FAULTS = (ProviderError, StoreUnavailableError, ConfigurationError)


def admit(
    agent: Agent, carried: ResumedRun, run_id: str, tenant: str, accept: str | None, accept_stale: bool
) -> RunRecord:
    """Return the row of a run that may be carried on, or that has ended; raise what speaks against it, if anything
    does."""
    record = carried.recorded.record
    if (record.run_id, record.tenant) != (run_id, tenant):
        raise ValueError(f"what is carried is run {record.run_id} of tenant {record.tenant}, not {run_id}")
    if record.status.ended:
        return record
    refuse_revision(record, agent, accept)
    stuck = record.status is RunStatus.QUARANTINED or carried.lease.deaths >= get_settings().resume.max_deaths
    if record.cancel_requested_at is not None and (carried.recorded.refusals or stuck):
        return carry_out(carried.stores, carried.lease, record)
    if record.release_requested_at is not None and record.status is RunStatus.QUARANTINED:
        record = carried.recorded.record = carry_out(carried.stores, carried.lease, record)
    elif stuck:
        _quarantine(carried, record)
    for error in carried.recorded.refusals:
        if not (accept_stale and isinstance(error, StaleFrontierError)):
            store_refusal(carried, error)
            raise error
    return record


def asked(record: RunRecord) -> bool:
    """Return whether people asked something of a run that a holder has yet to do: to end it, or to free it."""
    released = record.release_requested_at is not None and record.status is RunStatus.QUARANTINED
    return not record.status.ended and (record.cancel_requested_at is not None or released)


def carry_out(stores: Stores, lease: RunLease, record: RunRecord) -> RunRecord:
    """Do what people asked of a run: end it, or give it one more round; return its row as it is then."""
    if record.cancel_requested_at is not None:
        writes = Writes(status=RunStatus.CANCELLED, reason=record.cancellation)
    else:
        deaths = get_settings().resume.max_deaths - 1
        writes = Writes(status=RunStatus.ACTIVE, wake_seen=record.wake_at, deaths=deaths)
    written = stores.commit(writes, lease=lease)
    freed = replace(record, status=RunStatus.ACTIVE, reason="", release_requested_at=None, wake_at=None)
    if not writes.ends:
        return freed if written.cancel_requested_at is None else replace(freed, cancel_requested_at=written.at)
    return replace(record, status=RunStatus.CANCELLED, reason=writes.reason)


def _quarantine(carried: ResumedRun, record: RunRecord) -> None:
    new = record.status is not RunStatus.QUARANTINED
    reason = f"its worker died {carried.lease.deaths} times without progress" if new else record.reason
    if new or record.wake_at is not None:  # what woke it is answered: no sweep takes it until it is released
        writes = Writes(status=RunStatus.QUARANTINED, reason=reason, wake_seen=record.wake_at)
        carried.stores.commit(writes, lease=carried.lease)
    raise ResumeError(f"run {record.run_id} is quarantined: {reason}")


def refuse_stores(agent: Agent, stores: Stores) -> None:
    """Raise ConfigurationError if a tool of ``agent`` needs a transaction that ``stores`` cannot take part in."""
    for tool in agent.tools:
        if tool.effect is EffectClass.TRANSACTIONAL and tool.using not in stores.joins:
            raise ConfigurationError(
                f"tool {tool.name} is transactional on {tool.using!r}, where the run's stores are not: "
                f"expected the ORM stores on that alias"
            )


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
