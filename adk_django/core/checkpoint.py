"""The frontier of a run: what it takes for another worker to go on.

A checkpoint is written at three boundaries only. Anywhere else the frontier moves, and what was written would
describe a state the run was never in.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from typing import Any, Final

from adk_django.core import codec
from adk_django.core.effects import EffectClass, Outcome, Slot
from adk_django.core.messages import Message, Usage

CHECKPOINT_FORMAT: Final = 1


class NewerFormatError(ValueError):
    """The payload was written by a newer version. ``found`` and ``supported`` are format numbers."""

    def __init__(self, found: int) -> None:
        super().__init__(f"checkpoint format {found} is newer than {CHECKPOINT_FORMAT}")
        self.found, self.supported = found, CHECKPOINT_FORMAT


class CheckpointBoundary(StrEnum):
    """Where a frontier may be taken, in the order of a turn."""

    AFTER_MODEL_CALL = "after_model_call"
    BEFORE_APPROVAL = "before_approval"
    AFTER_TOOL_RESULT = "after_tool_result"

    @property
    def rank(self) -> int:
        """The boundary's place within its turn."""
        return list(CheckpointBoundary).index(self)


@dataclass(frozen=True)
class CheckpointPolicy:
    """Which boundaries are written. Fewer cost less and repeat more on resume.

    A policy skips only what may be repeated: ``before_approval``, and ``after_model_call`` of a turn with a call that
    is not read-only, are written whatever it says. ``max_bytes`` bounds one frontier and one transcript delta, each.
    ``ttl_seconds`` is the age past which a frontier is stale (None: never). ``save_timeout_seconds`` bounds one save.
    """

    boundaries: frozenset[CheckpointBoundary] = frozenset(CheckpointBoundary)
    max_bytes: int = 1_048_576
    ttl_seconds: float | None = None
    save_timeout_seconds: float = 5

    def __post_init__(self) -> None:
        object.__setattr__(self, "boundaries", frozenset(CheckpointBoundary(item) for item in self.boundaries))
        for name in ("max_bytes", "save_timeout_seconds", "ttl_seconds"):
            value = getattr(self, name)
            if value is None and name == "ttl_seconds":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
                raise ValueError(f"CheckpointPolicy.{name} is {value!r}: expected a number above 0")


@dataclass(frozen=True)
class PendingCall:
    """One call of the turn the frontier stands in.

    ``key`` and ``effect`` are None only in a frontier written by others: such a call is effectful, and where it is
    marked ``dispatched`` it is indeterminate unless its slot has an outcome. ``held`` says that a person must approve
    it. ``result`` is set where the call was refused before it could be made. ``digest`` is that of the exact
    arguments. ``doubted`` is said by who reads it, and never stored: a claim of it may have been made and lost, so
    that none on record is no answer.
    """

    slot: Slot
    provider_id: str
    tool: str
    arguments: Any
    key: str | None = None
    guaranteed: bool = True
    effect: EffectClass | None = None
    held: bool = False
    digest: str = ""
    key_arguments: tuple[str, ...] = ()
    time_limit_seconds: float | None = None
    result: Outcome | None = None
    dispatched: bool = False
    doubted: bool = False

    def to_data(self) -> dict[str, Any]:
        """Return this call as data for the codec."""
        stored = {name: value for name, value in vars(self).items() if name != "doubted"}
        return {
            **stored,
            "slot": list(self.slot),
            "effect": None if self.effect is None else self.effect.value,
            "key_arguments": list(self.key_arguments),
            "result": None if self.result is None else self.result.encoded(),
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> "PendingCall":
        """Return the call that ``data`` holds. Raise KeyError, TypeError or ValueError if it holds none."""
        effect, result = data.get("effect"), data.get("result")
        turn, position = data["slot"]
        codec.require({"turn": turn, "position": position}, int)
        codec.require({name: data[name] for name in ("provider_id", "tool")}, str)
        codec.require({"key": data.get("key")}, str, type(None))
        changed = {
            "slot": Slot(turn, position),
            "effect": None if effect is None else EffectClass(effect),
            "key_arguments": tuple(data.get("key_arguments", ())),
            "result": None if result is None else Outcome.decoded(result),
        }
        return cls(**{**data, **changed})


@dataclass(frozen=True)
class HistoryHandle:
    """A pointer to a conversation stored out of line. Its length is the truth: what lies behind it was never saved.

    ``digest`` is the rolling digest over the texts of the first ``length`` messages.
    """

    tenant: str
    run_id: str
    generation: int = 1
    length: int = 0
    digest: str = ""

    def extended(self, messages: tuple[Message, ...]) -> "HistoryHandle":
        """Return the handle of this conversation with ``messages`` added."""
        rolling = self.digest
        for message in messages:
            rolling = codec.chain(rolling, message.encoded)
        return replace(self, length=self.length + len(messages), digest=rolling)


@dataclass(frozen=True)
class Checkpoint:
    """How far a run has got.

    ``messages`` is the conversation in line, used only where there is no ``history_handle``. ``usage`` and
    ``cost_micros`` (millionths of the ledger's currency) are for reporting, not the authority on what may be spent.
    ``fence`` and ``created_at`` are the store's columns: they are no part of the payload and its digest.
    """

    run_id: str
    tenant: str
    agent: str
    boundary: CheckpointBoundary
    turn: int
    model: str = ""
    messages: tuple[Message, ...] = ()
    history_handle: HistoryHandle | None = None
    pending: tuple[PendingCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    cost_micros: int = 0
    iterations: int = 0
    revision: str | None = None
    prompt_version: str | None = None
    pending_approval: str | None = None
    grant_id: str | None = None
    scopes: tuple[str, ...] = ()
    user: str | None = None
    parent: str | None = None
    guards: tuple[str, ...] = ()
    format_version: int = CHECKPOINT_FORMAT
    fence: int = 0
    created_at: datetime | None = None

    @property
    def sequence(self) -> tuple[int, int]:
        """(turn, rank of the boundary): rises with every frontier of a run."""
        return self.turn, self.boundary.rank

    @cached_property
    def encoded(self) -> str:
        """The text that the payload is stored as. Raise `EncodeError` if a value in it cannot be kept exactly."""
        handle = self.history_handle
        data = {name: getattr(self, name) for names in _PLAIN.values() for name in names}
        data |= {
            "boundary": self.boundary.value,
            "messages": [message.to_data() for message in self.messages],
            "history_handle": None if handle is None else dict(vars(handle)),
            "pending": [call.to_data() for call in self.pending],
            "usage": dict(vars(self.usage)),
            **{name: list(getattr(self, name)) for name in _LISTS},
        }
        return codec.encode({"format": self.format_version, "frontier": data})

    def doubting(self) -> "Checkpoint":
        """Return this frontier as a store gives it that may have forgotten claims made since: every call is
        ``doubted``."""
        return replace(self, pending=tuple(replace(call, doubted=True) for call in self.pending))

    @property
    def digest(self) -> str:
        """The digest of the payload, by which two writes of one sequence are compared."""
        return codec.digest(self.encoded)

    @classmethod
    def decoded(cls, text: str, *, fence: int = 0, created_at: datetime | None = None) -> "Checkpoint":
        """Return the frontier that ``text`` holds.

        Raise `NewerFormatError`, before the body is looked at, if a newer version wrote it; `DecodeError` if it is
        damaged.
        """
        envelope = codec.decode(text)
        version = envelope.get("format") if isinstance(envelope, dict) else None
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise codec.DecodeError("$.format", f"no format number, found {type(version).__name__}")
        if version > CHECKPOINT_FORMAT:
            raise NewerFormatError(version)
        try:
            data = dict(envelope["frontier"])
            for kinds, names in _PLAIN.items():
                codec.require({name: data[name] for name in names}, *kinds)
            codec.require(data["usage"], int)
            handle = data["history_handle"]
            if handle is not None:
                codec.require({name: handle[name] for name in ("generation", "length")}, int)
                codec.require({name: handle[name] for name in ("tenant", "run_id", "digest")}, str)
            data |= {
                "boundary": CheckpointBoundary(data["boundary"]),
                "messages": tuple(Message.from_data(item) for item in data["messages"]),
                "history_handle": None if handle is None else HistoryHandle(**handle),
                "pending": tuple(PendingCall.from_data(item) for item in data["pending"]),
                "usage": Usage(**data["usage"]),
                **{name: tuple(data[name]) for name in _LISTS},
            }
            return cls(**data, format_version=version, fence=fence, created_at=created_at)
        except codec.DecodeError:
            raise
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise codec.DecodeError("$.frontier", f"not a frontier: {type(error).__name__} {error}") from error


_LISTS: Final = ("scopes", "guards")
_PLAIN: Final[dict[tuple[type, ...], tuple[str, ...]]] = {
    (str,): ("run_id", "tenant", "agent", "model"),
    (int,): ("turn", "cost_micros", "iterations"),
    (str, type(None)): ("revision", "prompt_version", "pending_approval", "grant_id", "user", "parent"),
}
