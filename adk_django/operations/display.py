"""What people are shown of a run's conversation, its calls and where many runs stand: masked, whatever is stored."""

import functools
from collections.abc import Sequence
from typing import Any

from adk_django.conf import get_settings
from adk_django.core.masking.redactor import Redactor
from adk_django.core.messages import Message
from adk_django.core.record import RunRecord
from adk_django.operations.inspection import standing_of
from adk_django.stores.bundle import Stores


@functools.cache
def _redactor(extra_patterns: tuple[str, ...], personal_data: bool) -> Redactor:
    return Redactor(extra_patterns, personal_data)


def masked(value: Any) -> Any:
    """Return ``value`` as people are shown it. ``REDACT["enabled"]`` says what is stored, not what is shown."""
    redact = get_settings().redact
    return _redactor(redact.extra_patterns, redact.personal_data).redact(value)


def conversation(stores: Stores, record: RunRecord, *, limit: int) -> tuple[Message, ...]:
    """Return the newest messages of a run, at most ``limit``, oldest first and masked. Write nothing.

    Raise CheckpointDamagedError, CheckpointFormatError or HistoryUnavailableError if they cannot be read.
    """
    frontier = stores.checkpoints.latest(record.run_id, tenant=record.tenant)
    if frontier is None:
        kept = stores.history.newest(record.run_id, tenant=record.tenant, limit=limit)
        messages: Sequence[Message] = kept or (Message.of("user", record.input),)
    elif frontier.history_handle is None:
        messages = frontier.messages
    else:
        messages = stores.history.fetch(frontier.history_handle, tenant=record.tenant)
    return tuple(Message.from_data(masked(message.to_data())) for message in messages[-limit:])


def standings(stores: Stores, records: Sequence[RunRecord]) -> tuple[str, ...]:
    """Return where each run stands: what its row says, and of one that moves or could, what its lease says."""
    leases = stores.leases.held_of([(record.tenant, record.run_id) for record in records])
    now = stores.runs.now()
    return tuple(
        standing_of(record, leases.get((record.tenant, record.run_id)), now, ready=_is_due(record, now))
        for record in records
    )


def _is_due(record: RunRecord, now: Any) -> bool:
    return record.wake_at is not None and record.wake_at <= now
