"""Checkpointer: what a commit looks like once it is masked, encoded and sized."""

import logging
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from adk_django import signals
from adk_django.concurrency import sync_only, twin
from adk_django.conf import get_settings
from adk_django.core.checkpoint import Checkpoint, CheckpointPolicy, PendingCall
from adk_django.core.codec import EncodeError
from adk_django.core.effects import Claim, Outcome
from adk_django.core.masking.redactor import Redactor
from adk_django.core.messages import Message, OpaquePart, Part, TextPart, ToolCall, ToolResult
from adk_django.core.record import Writes
from adk_django.exceptions import AdkError, CheckpointError, CheckpointTooLargeError, ConfigurationError
from adk_django.stores.base import CheckpointStore
from adk_django.stores.bundle import Stores
from adk_django.stores.handler import complete

logger = logging.getLogger(__name__)


class UnencodableError(CheckpointError):
    """A value cannot be kept exactly."""

    code = "checkpoint-unencodable"


class Checkpointer:
    """Masks before it sizes, so that every store inherits it, and refuses over the cap rather than truncates.

    ``extra_patterns`` are regular expressions on top of the built-in ones; ``redact=False`` is for stores that are
    trusted already. ``last_error`` is the newest save of this process that failed. Raise ConfigurationError for a
    pattern that does not compile.
    """

    def __init__(
        self,
        store: CheckpointStore,
        policy: CheckpointPolicy | None = None,
        *,
        redact: bool = True,
        extra_patterns: Sequence[str] = (),
        personal_data: bool = False,
    ) -> None:
        self.store = store
        self.policy = policy or CheckpointPolicy()
        self.last_error: AdkError | None = None
        try:
            self._redactor = Redactor(tuple(extra_patterns), personal_data=personal_data) if redact else None
        except ValueError as error:
            raise ConfigurationError(f"Checkpointer(extra_patterns=...): {error}") from error

    @sync_only
    def latest(self, run_id: str, *, tenant: str) -> Checkpoint | None:
        """Return the frontier of a run, as `CheckpointStore.latest` does."""
        return self.store.latest(run_id, tenant=tenant)

    alatest = twin(latest)

    @sync_only
    def error_for(self, run_id: str, *, tenant: str) -> str:
        """Return the note of the run's newest failed save that was not made good, or the empty text. Durable."""
        record = complete(checkpoints=self.store).runs.get(run_id, tenant=tenant)
        return "" if record is None else record.failed_save

    aerror_for = twin(error_for)

    def mask(self, value: Any) -> Any:
        """Return ``value`` as it is stored and shown."""
        return value if self._redactor is None else self._redactor.redact(value)

    def prepare(self, writes: Writes, *, tenant: str, run_id: str) -> Writes:
        """Return the commit as it goes out: masked, encoded and sized.

        Where a frontier, delta or request cannot be stored the commit goes out without them and with a note; facts go
        out always.
        """
        facts = replace(
            writes,
            outcomes=tuple(self._masked_claim(claim) for claim in writes.outcomes),
            failures=tuple(self._masked_claim(claim) for claim in writes.failures),
            settlements=tuple(replace(item, outcome=self._masked_outcome(item.outcome)) for item in writes.settlements),
            output=self.mask(writes.output),
            reason=self.mask(writes.reason),
        )
        try:
            return self._progress(facts)
        except CheckpointError as error:
            return self.refused(facts, error, tenant=tenant, run_id=run_id)

    def refused(self, writes: Writes, error: AdkError, *, tenant: str, run_id: str) -> Writes:
        """Return ``writes`` without its progress, after the failure was kept, logged and signalled."""
        boundary = writes.boundary_name or "end"
        self.report(f"{boundary}: {error}", error, boundary=boundary, tenant=tenant, run_id=run_id)
        return writes.without_progress(f"{boundary}: {error}")

    def report(self, note: str, error: AdkError, *, boundary: str, tenant: str, run_id: str) -> None:
        """Make a failed save known: ``last_error``, a log line, a signal."""
        self.last_error = error
        logger.warning("a save failed: %s", note, extra={"tenant": tenant, "run_id": run_id, "boundary": boundary})
        signals.save_failed.send_robust(
            sender=type(self), tenant=tenant, run_id=run_id, boundary=boundary, error=str(error)
        )

    def _progress(self, writes: Writes) -> Writes:
        delta = tuple(self._masked_message(message) for message in writes.delta)
        frontier = writes.frontier
        requests = tuple(replace(item, arguments=self.mask(item.arguments)) for item in writes.requests)
        try:
            self._size(sum(len(message.encoded) for message in delta), "the transcript delta")
            if frontier is not None:
                handle = frontier.history_handle
                if handle is not None:
                    frontier = replace(frontier, history_handle=handle.extended(delta))
                pending = tuple(self._masked_call(call) for call in frontier.pending)
                frontier = replace(frontier, pending=pending)
                self._size(len(frontier.encoded), "the frontier")
        except EncodeError as error:
            raise UnencodableError(f"a value cannot be kept: {error}") from error
        good = writes.failed_save if frontier is None else ""  # this save brings all that was owed
        return replace(writes, frontier=frontier, delta=delta, requests=requests, failed_save=good)

    def _size(self, size: int, what: str) -> None:
        if size > self.policy.max_bytes:
            raise CheckpointTooLargeError(size, self.policy.max_bytes, what)

    def _masked_message(self, message: Message) -> Message:
        if self._redactor is None:
            return message
        return Message(message.role, tuple(self._masked_part(part) for part in message.parts), self.mask(message.extra))

    def _masked_part(self, part: Part) -> Part:
        match part:
            case TextPart():
                return TextPart(self.mask(part.text), self.mask(part.extra))
            case ToolCall():
                return replace(part, arguments=self.mask(part.arguments), extra=self.mask(part.extra))
            case ToolResult():
                return replace(part, content=self.mask(part.content), extra=self.mask(part.extra))
            case OpaquePart():
                return OpaquePart(self.mask(part.data))
        return part

    def _masked_call(self, call: PendingCall) -> PendingCall:
        if self._redactor is None:
            return call
        return replace(call, arguments=self.mask(call.arguments), result=self._masked_outcome(call.result))

    def _masked_claim(self, claim: Claim) -> Claim:
        if self._redactor is None:
            return claim
        return replace(claim, outcome=self._masked_outcome(claim.outcome), error=self.mask(claim.error))

    def _masked_outcome(self, outcome: Outcome | None) -> Outcome | None:
        return None if outcome is None else replace(outcome, value=self.mask(outcome.value))


def default_checkpointer(stores: Stores) -> Checkpointer:
    """Return the Checkpointer that ``ADK`` describes, on ``stores``."""
    settings = get_settings()
    given = settings.checkpoints
    policy = CheckpointPolicy(
        boundaries=frozenset(given.boundaries),  # type: ignore[arg-type]  # the policy makes them boundaries
        max_bytes=given.max_bytes,
        ttl_seconds=given.ttl_seconds,
        save_timeout_seconds=given.save_timeout_seconds,
    )
    return Checkpointer(
        stores.checkpoints,
        policy,
        redact=settings.redact.enabled,
        extra_patterns=settings.redact.extra_patterns,
        personal_data=settings.redact.personal_data,
    )
