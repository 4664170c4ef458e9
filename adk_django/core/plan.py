"""What carrying a run on would involve: one disposition per outstanding call. It decides; it does not act."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from adk_django.core.checkpoint import PendingCall
from adk_django.core.effects import HELD_STATES, Claim, ClaimState, EffectClass, Outcome, Slot

_REPEATABLE = (EffectClass.READ_ONLY, EffectClass.IDEMPOTENT)


class ToolDisposition(StrEnum):
    """What the record says of one outstanding call."""

    COMPLETED = "completed"  # it has an outcome: replayed
    NEVER_RAN = "never_ran"  # nothing holds the key: made for the first time
    REPEATABLE = "repeatable"  # in flight, of a class that may be made again with the same key
    INDETERMINATE = "indeterminate"  # nobody can say: nothing is done


@dataclass(frozen=True)
class Resumption:
    """One outstanding call and what carrying on would do with it. ``twin_of`` names the slot that owns its key."""

    call: PendingCall
    disposition: ToolDisposition
    outcome: Outcome | None = None
    claim: Claim | None = None
    twin_of: Slot | None = None

    @property
    def description(self) -> str:
        """The slot and tool, the key, when the call was claimed and by whom."""
        claim = self.claim
        if claim is None:
            return f"{self.call.slot} {self.call.tool} (no key)"
        since = claim.begun_at.isoformat() if claim.begun_at else "an unknown instant"
        holder = claim.holder or "unknown"
        return f"{self.call.slot} {self.call.tool} (key {claim.key}, in flight since {since}, by {holder})"


@dataclass(frozen=True)
class ResumePlan:
    """The dispositions of a frontier's calls, and every reason not to carry on, one line each."""

    resumptions: tuple[Resumption, ...] = ()
    obstacles: tuple[str, ...] = ()

    def _where(self, disposition: ToolDisposition) -> tuple[Resumption, ...]:
        return tuple(item for item in self.resumptions if item.disposition is disposition)

    @property
    def completed(self) -> tuple[Resumption, ...]:
        """Calls whose recorded outcome is replayed."""
        return self._where(ToolDisposition.COMPLETED)

    @property
    def to_dispatch(self) -> tuple[Resumption, ...]:
        """Calls that will be made: those that never ran, then those that may be repeated."""
        return self._where(ToolDisposition.NEVER_RAN) + self._where(ToolDisposition.REPEATABLE)

    @property
    def indeterminate(self) -> tuple[Resumption, ...]:
        """Calls of which nobody can say whether they happened."""
        return self._where(ToolDisposition.INDETERMINATE)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why the run must not be carried on, one line each; empty where it may."""
        unknown = tuple(f"call {item.call.slot} ({item.call.tool}) is indeterminate" for item in self.indeterminate)
        return unknown + self.obstacles

    @property
    def safe(self) -> bool:
        """Whether the run may be carried on. The only place that says so."""
        return not self.reasons


def owner_of(call: PendingCall, claims: Mapping[Slot, Claim]) -> Claim | None:
    """Return the claim of another slot that owns this call's key, or None.

    An outcome that is an error frees the key for calls of later turns; a twin in the same turn still gets a copy of
    it.
    """
    for claim in claims.values():
        if not call.guaranteed or claim.key != call.key or claim.slot == call.slot:
            continue
        same_turn_before = claim.slot.turn == call.slot.turn and claim.slot.position < call.slot.position
        if claim.state in HELD_STATES or (claim.state is ClaimState.FAILED and same_turn_before):
            return claim
    return None


def resumption(call: PendingCall, claims: Mapping[Slot, Claim], *, strict: bool) -> Resumption:
    """Return what the claims of a run say of one outstanding call. Whatever mark the call carries is no answer."""
    claim = claims.get(call.slot)
    if claim is None and call.result is not None:
        return Resumption(call, ToolDisposition.COMPLETED, call.result)
    twin_of = None
    if claim is None and (owner := owner_of(call, claims)) is not None:
        claim, twin_of = owner, owner.slot
    lost = claim is None or (claim.state is ClaimState.NEVER_RAN and twin_of is None)
    if lost and call.doubted and not _may_be_repeated(call, strict=strict):
        return Resumption(call, ToolDisposition.INDETERMINATE)
    if claim is None:
        foreign = call.dispatched and (call.key is None or call.effect is None)
        return Resumption(call, ToolDisposition.INDETERMINATE if foreign else ToolDisposition.NEVER_RAN)
    outcome = claim.evidence if claim.settles_by_evidence else claim.outcome
    if outcome is not None:
        copy = outcome if twin_of is None else outcome.copied(twin_of)
        return Resumption(call, ToolDisposition.COMPLETED, copy, claim, twin_of)
    if claim.state is ClaimState.NEVER_RAN:
        return Resumption(call, ToolDisposition.NEVER_RAN, None, claim, twin_of)
    repeatable = claim.effect in _REPEATABLE and call.effect in (*_REPEATABLE, None)
    if repeatable and claim.guaranteed and not strict:
        return Resumption(call, ToolDisposition.REPEATABLE, None, claim, twin_of)
    return Resumption(call, ToolDisposition.INDETERMINATE, None, claim, twin_of)


def _may_be_repeated(call: PendingCall, *, strict: bool) -> bool:
    return call.effect in _REPEATABLE and call.key is not None and call.guaranteed and not strict


def plan(
    calls: Iterable[PendingCall], claims: Mapping[Slot, Claim], *, strict: bool, obstacles: tuple[str, ...] = ()
) -> ResumePlan:
    """Return the plan for ``calls``: a pure function of what is recorded."""
    return ResumePlan(tuple(resumption(call, claims, strict=strict) for call in calls), obstacles)
