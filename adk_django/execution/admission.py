"""Whether a run whose lease is held may be carried on.

What people asked of a run is done here: a cancelled one that cannot be carried on ends, a released one is freed.
"""

from dataclasses import replace

from adk_django.agents import Agent
from adk_django.conf import get_settings
from adk_django.core.effects import EffectClass
from adk_django.core.lease import RunLease
from adk_django.core.record import RunRecord, RunStatus, Writes
from adk_django.exceptions import (
    ConfigurationError,
    ResumeError,
    StaleFrontierError,
)
from adk_django.execution.resumer import ResumedRun
from adk_django.execution.revisions import refuse_revision
from adk_django.stores.bundle import Stores


def admit(agent: Agent, carried: ResumedRun, *, accept: str | None, accept_stale: bool) -> RunRecord:
    """Return the row of a run that may be carried on, or that has ended; raise what speaks against it, if anything
    does."""
    record = carried.stored.record
    if record.status.ended:
        return record
    refuse_revision(record, agent, accept)
    stuck = record.status is RunStatus.QUARANTINED or carried.lease.deaths >= get_settings().resume.max_deaths
    if record.cancel_requested_at is not None and (carried.stored.refusals or stuck):
        return carry_out(carried.stores, carried.lease, record)
    if record.release_requested_at is not None and record.status is RunStatus.QUARANTINED:
        record = carried.stored.record = carry_out(carried.stores, carried.lease, record)
    elif stuck:
        _quarantine(carried, record)
    for error in carried.stored.refusals:
        if not (accept_stale and isinstance(error, StaleFrontierError)):
            carried.store_refusal(error)
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
