"""What is known of a run and of each of its calls. Nothing here changes anything."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from adk_django.core.checkpoint import CheckpointBoundary, HistoryHandle, PendingCall
from adk_django.core.effects import (
    Claim,
    EffectClass,
    Outcome,
    OutcomeKind,
    Slot,
    arguments_digest,
    derive,
    idempotency_key,
)
from adk_django.core.messages import Message, Usage
from adk_django.core.observations import Reply
from adk_django.core.plan import owner_of
from adk_django.core.record import Approval, ApprovalState, RunRecord, Spend


@dataclass(frozen=True)
class Setting:
    """What is fixed for a slice: the definition that carries the run, the policy, and the lease's fence."""

    fence: int
    boundaries: frozenset[CheckpointBoundary] = frozenset(CheckpointBoundary)
    tools: Mapping[str, EffectClass] = field(default_factory=dict)
    probes: frozenset[str] = frozenset()
    strict: bool = False
    fails_on_unkept: bool = False
    grace_seconds: float = 30.0
    time_limit_seconds: float = 300.0
    expires: Mapping[str, float | None] = field(default_factory=dict)
    revision: str | None = None
    model: str = ""
    prompt_version: str | None = None
    guards: tuple[str, ...] = ()
    max_turns: int = 100


@dataclass(frozen=True)
class Known:
    """Everything `decide` looks at, and what follows from it for one call.

    Recorded: ``record``, ``messages``, ``handle`` (what of them the transcript holds), ``saved`` (the sequence of the
    stored frontier, (0, 0) for none), ``turn``, ``open`` (an answer is there and its turn not closed), ``pending``,
    ``claims``, ``approvals``. Journal of this slice: ``fresh`` (claimed here, not entered), ``outcomes`` and
    ``failures`` (observed, not committed), ``abandoned``, ``given_back`` (the last attempt of a call whose claim was
    abandoned: no token serves twice), ``replies``, ``spend``, ``tried`` (boundaries sent, saved or not), ``unaskable``
    (why no person could be asked), ``took_over`` (a death came before, and nothing was done yet), ``died`` (deaths to
    be reset by the next progress), ``journal`` (how many observations there were), ``finish_reason`` (why the model
    stopped, if this slice asked it).
    """

    record: RunRecord
    setting: Setting
    messages: tuple[Message, ...]
    handle: HistoryHandle
    saved: tuple[int, int] = (0, 0)
    turn: int = 0
    open: bool = False
    pending: tuple[PendingCall, ...] = ()
    claims: Mapping[Slot, Claim] = field(default_factory=dict)
    approvals: Mapping[Slot, Approval] = field(default_factory=dict)
    usage: Usage = field(default_factory=Usage)
    cost_micros: int = 0
    fresh: frozenset[Slot] = frozenset()
    outcomes: Mapping[Slot, Claim] = field(default_factory=dict)
    failures: Mapping[Slot, Claim] = field(default_factory=dict)
    abandoned: frozenset[Slot] = frozenset()
    given_back: Mapping[Slot, int] = field(default_factory=dict)
    replies: Mapping[Slot, Reply] = field(default_factory=dict)
    spend: tuple[Spend, ...] = ()
    tried: frozenset[tuple[int, int]] = frozenset()
    unaskable: str = ""
    took_over: bool = False
    died: bool = False
    journal: int = 0
    finish_reason: str | None = None

    @property
    def over_budget(self) -> bool:
        """Whether the run has had as many turns as it may, and would ask its model once more."""
        return not self.open and self.turn >= self.setting.max_turns

    def calls(self) -> tuple[PendingCall, ...]:
        """Return the turn's calls as they may be made: with an approver's arguments where he changed them."""
        return tuple(self._approved(call) for call in self.pending)

    def _approved(self, call: PendingCall) -> PendingCall:
        approval = self.approvals.get(call.slot)
        if approval is None or approval.edited is None or approval.state is not ApprovalState.GRANTED:
            return call
        arguments = approval.edited
        key, guaranteed = idempotency_key(self.record.salt, call.tool, call.slot, arguments, call.key_arguments)
        return replace(call, arguments=arguments, digest=arguments_digest(arguments), key=key, guaranteed=guaranteed)

    def granted(self, call: PendingCall) -> bool:
        """Return whether a person approved this call with exactly these arguments."""
        approval = self.approvals.get(call.slot)
        return approval is not None and approval.state is ApprovalState.GRANTED and approval.digest == call.digest

    def denied(self, call: PendingCall) -> bool:
        """Return whether a held call will not be made: denied, expired, or nobody could be asked."""
        approval = self.approvals.get(call.slot)
        if approval is not None and approval.state in (ApprovalState.DENIED, ApprovalState.EXPIRED):
            return True
        return call.held and bool(self.unaskable) and not self.granted(call)

    def undecided(self, call: PendingCall) -> bool:
        """Return whether a call is held and nobody has decided it."""
        return call.held and not self.granted(call) and not self.denied(call)

    def edited(self, call: PendingCall) -> bool:
        """Return whether the approver changed the arguments."""
        return self.granted(call) and self.approvals[call.slot].edited is not None

    def outcome_of(self, call: PendingCall) -> Outcome | None:
        """Return what a call of this turn came to, recorded, observed or following from decisions; None if nothing
        did."""
        known = {**self.claims, **self.outcomes}
        claim = known.get(call.slot)
        if claim is not None:
            return claim.outcome
        if call.result is not None:
            return call.result
        if self.denied(call):
            return Outcome.of(OutcomeKind.DENIED, self._denial(call))
        if call.tool not in self.setting.tools:
            return Outcome.of(OutcomeKind.INVALID, f"unknown tool {call.tool!r}")
        if (after := self._not_made_after(call)) is not None:
            return Outcome.of(OutcomeKind.NOT_MADE, f"not made: {after}")
        owner = owner_of(call, known)
        if owner is not None and owner.outcome is not None:
            return owner.outcome.copied(owner.slot)
        return None

    def _denial(self, call: PendingCall) -> str:
        approval = self.approvals.get(call.slot)
        if approval is None or approval.state is ApprovalState.REQUESTED:
            return f"could not be put to a person: {self.unaskable}"
        if approval.state is ApprovalState.EXPIRED:
            return "denied: nobody decided in time"
        return f"denied: {approval.reason}" if approval.reason else "denied"

    def _not_made_after(self, call: PendingCall) -> str | None:
        if call.held or call.effect is EffectClass.READ_ONLY:
            return None
        for earlier in self.calls():
            if earlier.slot >= call.slot:
                return None
            if self.denied(earlier):
                return f"call {earlier.slot} was denied"
            if self.edited(earlier):
                return f"call {earlier.slot} was changed"
        return None

    def claim_of(self, call: PendingCall) -> Claim:
        """Return the claim this slice makes, or records an outcome under, for ``call``."""
        salt, prior = self.record.salt, self.claims.get(call.slot)
        attempt = 1 + (self.given_back.get(call.slot, 0) if prior is None else prior.attempt)
        key, guaranteed = call.key, call.guaranteed
        if key is None:
            key, guaranteed = derive(salt, "unguaranteed", call.tool, str(call.slot)), False
        limit = call.time_limit_seconds or self.setting.time_limit_seconds
        return Claim(
            tenant=self.record.tenant,
            run_id=self.record.run_id,
            slot=call.slot,
            key=key,
            tool=call.tool,
            effect=call.effect or EffectClass.EFFECTFUL,
            guaranteed=guaranteed,
            digest=call.digest,
            token=derive(salt, "claim", str(call.slot), str(self.setting.fence), str(attempt)),
            replaces=None if prior is None else prior.token,
            replaces_state=None if prior is None else prior.state,
            request_id=self.approvals[call.slot].request_id if call.held else None,
            fence=self.setting.fence,
            attempt=attempt,
            limit_seconds=limit + self.setting.grace_seconds,
        )

    def request_of(self, call: PendingCall) -> Approval:
        """Return the request that puts ``call`` to a person. Its id cannot be guessed and is the same when asked
        again."""
        salt = self.record.salt
        return Approval(
            tenant=self.record.tenant,
            run_id=self.record.run_id,
            request_id="req-" + derive(salt, "approval", str(call.slot), call.digest)[:24],
            slot=call.slot,
            tool=call.tool,
            digest=call.digest,
            arguments=call.arguments,
            expires_seconds=self.setting.expires.get(call.tool),
        )

    def _entered_by_others(self) -> set[Slot]:
        """Return the calls that others may have entered and of which no claim is left: one that is made for them now
        is there to be settled, and they are never entered under it."""
        foreign = (call for call in self.pending if call.dispatched and (call.key is None or call.effect is None))
        doubted = {call.slot for call in self.pending if call.doubted}
        return doubted | {call.slot for call in foreign if call.slot not in self.claims}
