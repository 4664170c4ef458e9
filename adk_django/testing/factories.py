"""Rows for suites, on factory-boy: runs in whatever state a test needs, as the stores would have written them.

Needs the extra ``testing``; nothing else of this package imports it. ``RunFactory()`` is a run nobody has taken up;
``CheckpointFactory(run_id=...)``, ``RunLeaseFactory(...)``, ``IdempotencyKeyFactory(...)`` and ``ApprovalFactory(...)``
add what a worker or a person would have left.
"""

import secrets
from datetime import timedelta
from typing import Any

import factory
from django.utils import timezone
from factory.django import DjangoModelFactory

from adk_django import models
from adk_django.core import codec
from adk_django.core.checkpoint import Checkpoint, CheckpointBoundary, HistoryHandle, PendingCall
from adk_django.core.effects import ClaimState, EffectClass, Slot, arguments_digest, derive, idempotency_key
from adk_django.core.messages import Message, ToolCall
from adk_django.core.record import ApprovalState, RunStatus

SALT = "00" * 32
LEASE = timedelta(seconds=60)


class _OfRun(DjangoModelFactory):
    class Meta:
        abstract = True

    tenant = "acme"
    run_id = factory.Sequence(lambda number: f"run_{number}")


class RunFactory(_OfRun):
    """A run that was started and that no worker has taken up."""

    class Meta:
        model = models.Run

    agent = "booking"
    status = RunStatus.ACTIVE.value
    input = "Book the flight"
    input_digest = factory.LazyAttribute(lambda run: codec.digest(run.input))
    salt = SALT
    created_at = factory.LazyFunction(timezone.now)
    updated_at = factory.LazyAttribute(lambda run: run.created_at)
    wake_at = factory.LazyAttribute(lambda run: run.created_at)


class CheckpointFactory(_OfRun):
    """A frontier after a model call that asked for one effectful call, ``tool`` with ``arguments``, in line."""

    class Meta:
        model = models.Checkpoint

    class Params:
        tool = "book_flight"
        arguments = factory.LazyFunction(lambda: {"flight": "AD101"})
        frontier = factory.LazyAttribute(lambda row: _frontier(row))

    boundary = CheckpointBoundary.AFTER_MODEL_CALL.value
    turn = 1
    fence = 1
    format_version = factory.LazyAttribute(lambda row: row.frontier.format_version)
    payload = factory.LazyAttribute(lambda row: row.frontier.encoded)
    size = factory.LazyAttribute(lambda row: len(row.payload))
    digest = factory.LazyAttribute(lambda row: row.frontier.digest)
    created_at = factory.LazyFunction(timezone.now)


def _frontier(row: Any) -> Checkpoint:
    slot = Slot(row.turn, 1)
    key, guaranteed = idempotency_key(SALT, row.tool, slot, row.arguments)
    call = PendingCall(
        slot=slot,
        provider_id="call_1",
        tool=row.tool,
        arguments=row.arguments,
        key=key,
        guaranteed=guaranteed,
        effect=EffectClass.EFFECTFUL,
        digest=arguments_digest(row.arguments),
    )
    asked = Message("assistant", (ToolCall("call_1", row.tool, row.arguments),))
    return Checkpoint(
        run_id=row.run_id,
        tenant=row.tenant,
        agent="booking",
        boundary=CheckpointBoundary(row.boundary),
        turn=row.turn,
        iterations=row.turn,
        messages=(Message.of("user", "Book the flight"), asked),
        pending=(call,),
    )


class RunLeaseFactory(_OfRun):
    """A lease that a worker holds for another minute; ``dead=True`` is one whose worker died a minute ago."""

    class Meta:
        model = models.RunLease

    class Params:
        dead = False

    holder = "worker-1"
    token = factory.LazyFunction(lambda: secrets.token_hex(16))
    fence = 1
    acquired_at = factory.LazyFunction(lambda: timezone.now() - 2 * LEASE)
    expires_at = factory.LazyAttribute(lambda row: timezone.now() + (-LEASE if row.dead else LEASE))


class IdempotencyKeyFactory(_OfRun):
    """A claim in flight for call 1.1 of the same tool and arguments as `CheckpointFactory`'s, past its deadline."""

    class Meta:
        model = models.IdempotencyKey

    class Params:
        arguments = factory.LazyFunction(lambda: {"flight": "AD101"})

    turn = 1
    position = 1
    tool = "book_flight"
    key = factory.LazyAttribute(
        lambda row: idempotency_key(SALT, row.tool, Slot(row.turn, row.position), row.arguments)[0]
    )
    effect = EffectClass.EFFECTFUL.value
    digest = factory.LazyAttribute(lambda row: arguments_digest(row.arguments))
    state = ClaimState.IN_FLIGHT.value
    token = factory.LazyAttribute(lambda row: derive(SALT, "claim", f"{row.turn}.{row.position}", "1", "1"))
    fence = 1
    holder = "worker-1"
    limit_seconds = 330.0
    begun_at = factory.LazyFunction(lambda: timezone.now() - timedelta(hours=1))
    deadline_at = factory.LazyAttribute(lambda row: row.begun_at + timedelta(seconds=row.limit_seconds))


class ApprovalFactory(_OfRun):
    """A request, not answered, for call 1.1."""

    class Meta:
        model = models.Approval

    class Params:
        call_arguments = factory.LazyFunction(lambda: {"flight": "AD101"})

    request_id = factory.Sequence(lambda number: f"req-{number}")
    turn = 1
    position = 1
    tool = "book_flight"
    digest = factory.LazyAttribute(lambda row: arguments_digest(row.call_arguments))
    arguments = factory.LazyAttribute(lambda row: codec.encode(row.call_arguments))
    state = ApprovalState.REQUESTED.value
    requested_at = factory.LazyFunction(timezone.now)


class TranscriptMessageFactory(_OfRun):
    """One message of a conversation, at its start. `handle_of` makes the handle of rows made one behind another."""

    class Meta:
        model = models.TranscriptMessage

    class Params:
        message = factory.LazyFunction(lambda: Message.of("user", "Book the flight"))
        before = ""

    position = 0
    fence = 1
    payload = factory.LazyAttribute(lambda row: row.message.encoded)
    digest = factory.LazyAttribute(lambda row: codec.chain(row.before, row.payload))


def handle_of(last: models.TranscriptMessage) -> HistoryHandle:
    """Return the handle of the conversation that ends with ``last``."""
    return HistoryHandle(last.tenant, last.run_id, last.generation, last.position + 1, last.digest)
