"""RunState: the fold of what is recorded of a run and of what this slice observed. Holds no rule; `decide` does."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from adk_django.core.checkpoint import Checkpoint, CheckpointBoundary, HistoryHandle, PendingCall
from adk_django.core.effects import (
    Claim,
    ClaimState,
    EffectClass,
    Outcome,
    OutcomeKind,
    Slot,
    arguments_digest,
    derive,
    idempotency_key,
)
from adk_django.core.messages import Message, ToolResult, Usage
from adk_django.core.plan import owner_of
from adk_django.core.record import Answer, Approval, ApprovalState, RunRecord, RunStatus, Spend, Writes, Written


@dataclass(frozen=True)
class Answered:
    """The model's answer: its message, one pending call for each it asked for, and what it cost."""

    message: Message
    pending: tuple[PendingCall, ...]
    usage: Usage
    cost_micros: int = 0


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


@dataclass(frozen=True)
class RunState:
    """Everything `decide` looks at.

    Recorded: ``record``, ``messages``, ``handle`` (what of them the transcript holds), ``saved`` (the sequence of the
    stored frontier, (0, 0) for none), ``turn``, ``open`` (an answer is there and its turn not closed), ``pending``,
    ``claims``, ``approvals``. Journal of this slice: ``fresh`` (claimed here, not entered), ``outcomes`` and
    ``failures`` (observed, not committed), ``abandoned``, ``replies``, ``spend``, ``tried`` (boundaries sent, saved
    or not), ``unaskable`` (why no person could be asked), ``took_over`` (a death came before, and nothing was done
    yet), ``died`` (deaths to be reset by the next progress).
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
    replies: Mapping[Slot, Reply] = field(default_factory=dict)
    spend: tuple[Spend, ...] = ()
    tried: frozenset[tuple[int, int]] = frozenset()
    unaskable: str = ""
    took_over: bool = False
    died: bool = False

    # What of a call is known

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
        attempt = 1 if prior is None else prior.attempt + 1
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
        """Return the calls that a frontier of others marks as dispatched without a key: they are never entered."""
        foreign = (call for call in self.pending if call.dispatched and (call.key is None or call.effect is None))
        return {call.slot for call in foreign if call.slot not in self.claims}

    # What a commit would bring

    def conversation(self) -> tuple[Message, ...]:
        """Return the messages for the model; a turn whose calls are all answered is closed by their results."""
        if not (self.open and self.pending):
            return self.messages
        results = []
        for call in self.calls():
            outcome = self.outcome_of(call)
            if outcome is None:
                return self.messages
            content = outcome.value
            if self.edited(call):
                content = {"arguments_changed_by_approver": call.arguments, "result": outcome.value}
            extra = {} if outcome.twin_of is None else {"copy_of_call": str(outcome.twin_of)}
            results.append(ToolResult(call.provider_id, call.tool, content, outcome.is_error, extra))
        return (*self.messages, Message("tool", tuple(results)))

    def facts(self) -> dict[Slot, Claim]:
        """Return the outcomes that no commit has brought yet."""
        facts = dict(self.outcomes)
        for call in self.calls():
            if call.slot not in self.claims and call.slot not in facts:
                outcome = self.outcome_of(call)
                if outcome is not None:
                    facts[call.slot] = self._unclaimed(call, outcome)
        return facts

    def _unclaimed(self, call: PendingCall, outcome: Outcome) -> Claim:
        claim = self.claim_of(replace(call, held=False))
        return replace(claim, token=None, outcome=outcome, state=ClaimState.of(outcome), limit_seconds=0.0)

    def frontier(self, boundary: CheckpointBoundary, requests: tuple[Approval, ...]) -> Checkpoint:
        """Return the frontier at ``boundary``; its handle is set when its delta is encoded."""
        closed = boundary is CheckpointBoundary.AFTER_TOOL_RESULT
        waiting = boundary is CheckpointBoundary.BEFORE_APPROVAL
        grants = [item.request_id for item in self.approvals.values() if item.state is ApprovalState.GRANTED]
        return Checkpoint(
            run_id=self.record.run_id,
            tenant=self.record.tenant,
            agent=self.record.agent,
            boundary=boundary,
            turn=self.turn,
            model=self.setting.model,
            history_handle=self.handle,
            pending=() if closed else self.pending,
            usage=self.usage,
            cost_micros=self.cost_micros,
            iterations=self.turn,
            revision=self.setting.revision,
            prompt_version=self.setting.prompt_version,
            pending_approval=requests[0].request_id if waiting and requests else None,
            grant_id=grants[-1] if grants else None,
            scopes=self.record.scopes,
            user=self.record.user,
            parent=self.record.parent,
            guards=self.setting.guards,
        )

    def writes(self, boundary: CheckpointBoundary | None = None, **brings: Any) -> Writes:
        """Return a commit of every fact not yet committed, of the frontier at ``boundary``, and of what else it
        ``brings``."""
        sent = Writes(**brings)
        frontier: Checkpoint | None = None
        delta: tuple[Message, ...] = ()
        if boundary is not None and (self.turn, boundary.rank) > self.saved:
            frontier = self.frontier(boundary, sent.requests)
        if frontier is not None or sent.ends:
            closed = boundary is CheckpointBoundary.AFTER_TOOL_RESULT
            delta = (self.conversation() if closed or sent.ends else self.messages)[self.handle.length :]
        facts = self.facts()
        moved = bool(frontier or facts or self.failures or sent.claims or sent.settlements)
        stood_still = self.record.status is not RunStatus.ACTIVE or bool(self.record.reason)
        if moved and sent.status is None and stood_still:
            sent = replace(sent, status=RunStatus.ACTIVE)
        return replace(
            sent,
            frontier=frontier,
            delta=delta,
            extends=self.handle if delta else None,
            outcomes=tuple(facts[slot] for slot in sorted(facts)),
            failures=tuple(self.failures[slot] for slot in sorted(self.failures)),
            abandoned=tuple(self.claims[slot] for slot in sorted(self.abandoned)),
            spend=self.spend + sent.spend,
            begins=self.turn > 0 and self.record.begun_at is None,
            revision=self.setting.revision,
            wake_seen=self.record.wake_at,
            resets_deaths=self.died and bool(frontier or facts or any(claim.replaces is None for claim in sent.claims)),
        )

    # What happened

    def observe(self, seen: Answered | Attempted | Probed) -> "RunState":
        """Return the state after ``seen``, nothing of which is committed yet."""
        match seen:
            case Answered():
                return self._answered(seen)
            case Probed():
                return replace(self, replies={**self.replies, **seen.replies}, took_over=False)
        outcomes, failures, abandoned = dict(self.outcomes), dict(self.failures), set(self.abandoned)
        calls = {call.slot: call for call in self.calls()}
        for slot, result in seen.results.items():
            claim = self.claims.get(slot)
            match result:
                case Outcome() if claim is None:
                    outcomes[slot] = self._unclaimed(calls[slot], result)
                case Outcome() if claim is not None:
                    outcomes[slot] = replace(claim, outcome=result, state=ClaimState.of(result))
                case Failure() if claim is not None:
                    failures[slot] = replace(claim, error=result.error)
                case NotEntered():
                    abandoned.update({slot} if claim else ())
        return replace(
            self,
            outcomes=outcomes,
            failures=failures,
            abandoned=frozenset(abandoned),
            fresh=self.fresh - seen.results.keys(),
            took_over=False,
        )

    def _answered(self, seen: Answered) -> "RunState":
        return replace(
            self,
            messages=(*self.conversation(), seen.message),
            outcomes=self.facts(),
            turn=self.turn + 1,
            open=True,
            pending=seen.pending,
            usage=self.usage + seen.usage,
            cost_micros=self.cost_micros + seen.cost_micros,
            spend=(*self.spend, Spend(self.turn + 1, self.setting.fence, seen.usage, seen.cost_micros)),
            unaskable="",
            took_over=False,
        )

    def committed(self, writes: Writes, written: Written) -> "RunState":
        """Return the state after a commit. Where its frontier was refused the facts stand all the same."""
        claims, approvals = dict(self.claims), dict(self.approvals)
        claims.update({claim.slot: claim for claim in (*writes.outcomes, *writes.failures)})
        for item in writes.settlements:
            now = ClaimState.NEVER_RAN if item.outcome is None else ClaimState.of(item.outcome)
            claims[item.claim.slot] = replace(item.claim, state=now, outcome=item.outcome, settled_by=item.by)
        for claim in writes.abandoned:
            claims.pop(claim.slot, None)
        if written.standing is not None:
            claims = dict(written.standing)
        claims.update({claim.slot: claim for claim in written.claims})
        if not written.failed_save:
            asked = (request if written.at is None else request.asked_at(written.at) for request in writes.requests)
            approvals.update({request.slot: request for request in asked})
        record = replace(
            self.record,
            begun_at=self.record.begun_at or (written.at if writes.begins else None),
            cancel_requested_at=written.cancel_requested_at,
        )
        if written.cancelled is not None:
            record = replace(
                record,
                cancel_requested_by=written.cancelled.cancel_requested_by,
                cancel_reason=written.cancelled.cancel_reason,
            )
        if writes.status is not None and not (written.failed_save and writes.status is RunStatus.WAITING):
            record = replace(record, status=writes.status, reason=writes.reason, output=writes.output)
            record = replace(record, wake_at=writes.wake_at if written.at is None else writes.wakes_at(written.at))
        state = replace(
            self,
            record=record,
            claims=claims,
            approvals=approvals if written.approvals is None else dict(written.approvals),
            handle=written.handle or self.handle,
            outcomes={},
            failures={},
            abandoned=frozenset(),
            fresh=self.fresh | {claim.slot for claim in written.claims if claim.slot not in self._entered_by_others()},
            replies={slot: reply for slot, reply in self.replies.items() if slot not in _settled(writes)},
            spend=(),
            usage=self.usage + Usage(unknown_calls=sum(item.usage.unknown_calls for item in writes.spend)),
            took_over=False,
            died=self.died and not writes.resets_deaths,
        )
        if writes.frontier is None:
            return replace(state, unaskable=written.failed_save if writes.requests else self.unaskable)
        return state._passed(writes.frontier, writes, written)

    def _passed(self, frontier: Checkpoint, writes: Writes, written: Written) -> "RunState":
        state = replace(self, tried=self.tried | {frontier.sequence})
        if not written.failed_save:
            state = replace(state, saved=frontier.sequence)
        elif frontier.boundary is CheckpointBoundary.BEFORE_APPROVAL:
            state = replace(state, unaskable=written.failed_save)
        if frontier.boundary is CheckpointBoundary.AFTER_TOOL_RESULT:
            state = replace(state, messages=state.conversation(), open=False, pending=())
        return state


def _settled(writes: Writes) -> set[Slot]:
    return {item.claim.slot for item in writes.settlements}
