"""What a slice saw of the outside, nothing of which is committed yet."""

from collections.abc import Mapping
from dataclasses import dataclass

from adk_django.core.checkpoint import PendingCall
from adk_django.core.effects import Outcome, Slot
from adk_django.core.messages import Message, Usage
from adk_django.core.record import Answer


@dataclass(frozen=True)
class Answered:
    """The model's answer: its message, one pending call for each it asked for, what it cost, and why it stopped."""

    message: Message
    pending: tuple[PendingCall, ...]
    usage: Usage
    cost_micros: int = 0
    finish_reason: str | None = None


@dataclass(frozen=True)
class Failure:
    """The body of an effectful call raised: nobody can say what it did. ``error`` is its type and masked text."""

    error: str


@dataclass(frozen=True)
class NotEntered:
    """The body was not entered: its claim is given back."""


@dataclass(frozen=True)
class Attempted:
    """What making calls came to."""

    results: Mapping[Slot, Outcome | Failure | NotEntered]


@dataclass(frozen=True)
class Reply:
    """A probe's answer.

    ``early`` says that it was asked before the call's deadline, when only `Answer.DONE` counts.
    """

    answer: Answer
    outcome: Outcome | None = None
    early: bool = False


@dataclass(frozen=True)
class Probed:
    """What probes said."""

    replies: Mapping[Slot, Reply]
