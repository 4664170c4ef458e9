"""What repeating a call would do, and the durable record that it was about to be made.

A call is known by its slot (turn, position), never by the provider's call id. Its key is minted once, when the answer
that asks for it is observed, and is stored and read back, never computed again: a key computed from masked or
re-validated arguments would be another key.
"""

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple

from adk_django.core import codec


class EffectClass(StrEnum):
    """What a second attempt at a call would do."""

    READ_ONLY = "read_only"  # changes nothing
    IDEMPOTENT = "idempotent"  # lands on the same state, or honours the key it is handed
    EFFECTFUL = "effectful"  # is a second effect
    TRANSACTIONAL = "transactional"  # cannot happen: rows and outcome are one commit

    def at_least(self, other: "EffectClass") -> "EffectClass":
        """Return the class that promises no more than either of the two."""
        if self is other:
            return self
        promises = (EffectClass.READ_ONLY, EffectClass.IDEMPOTENT)
        return EffectClass.IDEMPOTENT if self in promises and other in promises else EffectClass.EFFECTFUL


class Slot(NamedTuple):
    """The identity of a call within its run, written ``TURN.POSITION``, both counted from 1."""

    turn: int
    position: int

    def __str__(self) -> str:
        return f"{self.turn}.{self.position}"

    @classmethod
    def parse(cls, text: str) -> "Slot":
        """Return the slot that ``text`` writes. Raise ValueError if it is not ``TURN.POSITION``."""
        turn, dot, position = text.partition(".")
        if not (dot and turn.isascii() and turn.isdigit() and position.isascii() and position.isdigit()):
            raise ValueError(f"{text!r} is not a call: expected TURN.POSITION, such as 1.1, as adk_inspect prints it")
        return cls(int(turn), int(position))


class OutcomeKind(StrEnum):
    """How an outcome came about. All but the first three never entered the body."""

    RETURNED = "returned"
    FAILED = "failed"  # the body of a call that may be repeated raised
    UNKEPT = "unkept"  # the body returned what cannot be stored
    REFUSED = "refused"  # the tool said that nothing was done
    INVALID = "invalid"  # the arguments, or the tool's name, were refused before the call
    DENIED = "denied"  # a person said no, or nobody could be asked
    NOT_MADE = "not_made"  # it stood behind a call that was denied or changed
    COPIED = "copied"  # a twin's outcome


_ERRORS = frozenset(OutcomeKind) - {OutcomeKind.RETURNED, OutcomeKind.UNKEPT, OutcomeKind.COPIED}


@dataclass(frozen=True)
class Outcome:
    """What a call came to, as the model is told it. ``value`` is whatever the codec keeps exactly."""

    kind: OutcomeKind
    value: Any
    is_error: bool = False
    twin_of: Slot | None = None

    @classmethod
    def of(cls, kind: OutcomeKind, value: Any) -> "Outcome":
        """Return an outcome that is an error where its kind is one."""
        return cls(kind, value, kind in _ERRORS)

    def copied(self, owner: Slot) -> "Outcome":
        """Return this outcome as a twin of ``owner`` gets it."""
        return Outcome(OutcomeKind.COPIED, self.value, self.is_error, owner)

    def encoded(self) -> str:
        """Return the text that it is stored as. Raise `EncodeError` if the value cannot be kept exactly."""
        twin = None if self.twin_of is None else str(self.twin_of)
        return codec.encode({"kind": self.kind.value, "value": self.value, "is_error": self.is_error, "twin_of": twin})

    @classmethod
    def decoded(cls, text: str) -> "Outcome":
        """Return the outcome that ``text`` holds. Raise `DecodeError` if it holds none."""
        data = codec.decode(text)
        try:
            twin = data["twin_of"]
            return cls(
                OutcomeKind(data["kind"]),
                data["value"],
                data["is_error"],
                None if twin is None else Slot.parse(twin),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise codec.DecodeError("$", f"not an outcome: {type(error).__name__}") from error


class ClaimState(StrEnum):
    """Where a claim stands. The first three hold the key against every other slot of the run."""

    IN_FLIGHT = "in_flight"  # about to be made, or made: nobody has said
    DONE = "done"  # has an outcome that is no error
    NEVER_RAN = "never_ran"  # settled so; may be claimed again under the same key
    FAILED = "failed"  # has an outcome that is an error
    COPIED = "copied"  # holds a copy of the outcome of another slot with the same key

    @classmethod
    def of(cls, outcome: Outcome) -> "ClaimState":
        """Return the state of a claim that has ``outcome``."""
        if outcome.kind is OutcomeKind.COPIED:
            return cls.COPIED
        return cls.FAILED if outcome.is_error else cls.DONE


HELD_STATES = (ClaimState.IN_FLIGHT, ClaimState.DONE, ClaimState.NEVER_RAN)


@dataclass(frozen=True)
class Claim:
    """The durable record of one call: first that it is about to be made, then what it returned.

    ``digest`` is that of the exact arguments. ``token`` is the claimer's own; None where the outcome was written
    without a claim. ``replaces`` is the token of the earlier claim of this slot that this one takes over (settled
    never-ran, or repeatable), and ``replaces_state`` the state in which that was read. ``deadline_at`` is ``begun_at``
    plus ``limit_seconds`` by the store's clock.
    ``evidence`` is an outcome that came too late; ``contested`` says that it contradicts what the call was settled
    as.
    """

    tenant: str
    run_id: str
    slot: Slot
    key: str
    tool: str
    effect: EffectClass
    guaranteed: bool = True
    digest: str = ""
    token: str | None = None
    replaces: str | None = None
    replaces_state: ClaimState | None = None
    request_id: str | None = None
    fence: int = 0
    attempt: int = 1
    limit_seconds: float = 0.0
    state: ClaimState = ClaimState.IN_FLIGHT
    begun_at: datetime | None = None
    deadline_at: datetime | None = None
    outcome: Outcome | None = None
    error: str = ""
    holder: str = ""
    settled_at: datetime | None = None
    settled_by: str = ""
    reason: str = ""
    evidence: Outcome | None = None
    evidence_at: datetime | None = None
    contested: bool = False

    @property
    def settles_by_evidence(self) -> bool:
        """Whether what arrived late answers the question."""
        return self.state is ClaimState.IN_FLIGHT and self.evidence is not None and not self.contested

    @property
    def may_replace(self) -> bool:
        """Whether this claim may take over one that stands as it was read: what is repeatable in flight, an effectful
        call only where it never ran."""
        repeatable = self.replaces_state is ClaimState.IN_FLIGHT and self.effect is not EffectClass.EFFECTFUL
        return self.replaces is not None and (repeatable or self.replaces_state is ClaimState.NEVER_RAN)

    def takes_over(self, found: "Claim") -> bool:
        """Return whether this claim may stand in place of ``found``: it is as it was read, and nothing came since."""
        as_read = (found.token, found.state) == (self.replaces, self.replaces_state) and not found.contested
        return self.may_replace and as_read and not found.settles_by_evidence


def idempotency_key(
    salt: str, tool: str, slot: Slot, arguments: Mapping[str, Any], key_arguments: Sequence[str] = ()
) -> tuple[str, bool]:
    """Return the key of a call and whether it is guaranteed to name the effect.

    HMAC-SHA256 under the run's ``salt`` (hex) of the typed canonical form of (tool, slot, arguments), or with
    ``key_arguments`` of (tool, those arguments). Where a named argument is absent, or a value has no canonical form,
    the key is the slot's own and is not guaranteed. Never raises for what the arguments hold.
    """
    try:
        if key_arguments:
            named = {name: arguments[name] for name in key_arguments}
            form = codec.typed_form(["arguments", tool, named])
        else:
            form = codec.typed_form(["slot", tool, list(slot), dict(arguments)])
    except (KeyError, codec.EncodeError):
        return derive(salt, "unguaranteed", tool, str(slot)), False
    return derive(salt, form), True


def arguments_digest(arguments: Any) -> str:
    """Return the digest that binds an approval to exactly these arguments. Raise `EncodeError` if they cannot be
    kept."""
    return codec.digest(codec.canonical(arguments))


def derive(salt: str, *parts: str) -> str:
    """Return a hex HMAC-SHA256 of ``parts`` under the run's salt: the source of keys, tokens and request ids."""
    message = codec.encode(list(parts)).encode("ascii")
    return hmac.new(bytes.fromhex(salt), message, hashlib.sha256).hexdigest()
