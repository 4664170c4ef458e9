"""Random walks through `decide`: whatever models, tools, people, stores and crashes do, its laws hold at every step."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest

from adk_django.core.checkpoint import Checkpoint, CheckpointBoundary, HistoryHandle, PendingCall
from adk_django.core.decide import AskModel, Commit, Decision, Dispatch, Probe, Stop, Transact, decide
from adk_django.core.effects import (
    Claim,
    ClaimState,
    EffectClass,
    Outcome,
    OutcomeKind,
    Slot,
    arguments_digest,
    idempotency_key,
)
from adk_django.core.messages import Message, ToolCall, ToolResult, Usage
from adk_django.core.observations import Answered, Attempted, Failure, NotEntered, Probed, Reply
from adk_django.core.plan import owner_of
from adk_django.core.record import Answer, Approval, ApprovalState, RunRecord, RunStatus, Writes, Written
from adk_django.core.run_facts import Setting
from adk_django.core.state import RunState

AT = datetime(2025, 1, 1, tzinfo=UTC)
KINDS = {kind.value: kind for kind in EffectClass}
SAFE = (EffectClass.READ_ONLY, EffectClass.IDEMPOTENT)


class Walk:
    """A run whose store, model, tools and people are played by chance. What is recorded outlives its crashes."""

    def __init__(self, chance: Random) -> None:
        self.chance = chance
        self.record = RunRecord("acme", "run_1", "booking", "go", "00" * 32)
        boundaries = [item for item in CheckpointBoundary if chance.random() < 0.7]
        self.setting = Setting(
            fence=1,
            boundaries=frozenset(boundaries),
            tools=KINDS,
            probes=frozenset(["effectful"]),
            strict=chance.random() < 0.2,
        )
        self.frontier: Checkpoint | None = None
        self.transcript: tuple[Message, ...] = (Message.of("user", "go"),)
        self.passed = False
        self.claims: dict[Slot, Claim] = {}
        self.approvals: dict[Slot, Approval] = {}
        self.entered: set[str | None] = set()
        self.state = self.recorded()

    def likely(self, probability: float) -> bool:
        return self.chance.random() < probability

    def recorded(self) -> RunState:
        """Return the state that the next slice starts from."""
        self.setting = replace(self.setting, fence=self.setting.fence + 1)
        frontier = self.frontier
        start = RunState(
            self.record,
            self.setting,
            self.transcript,
            HistoryHandle("acme", "run_1"),
            claims=dict(self.claims),
            approvals=dict(self.approvals),
            took_over=self.likely(0.5),
            died=self.likely(0.5),
        )
        if frontier is None or frontier.history_handle is None:
            return replace(start, messages=self.transcript[:1])
        return replace(
            start,
            messages=self.transcript[: frontier.history_handle.length],
            handle=frontier.history_handle,
            saved=frontier.sequence,
            turn=frontier.turn,
            pending=frontier.pending,
            open=frontier.boundary is not CheckpointBoundary.AFTER_TOOL_RESULT,
        )

    def step(self) -> Decision:
        """Take one step, checking that it may be taken."""
        decision = decide(self.state)
        match decision:
            case AskModel(messages):
                assert not self.uncommitted() and well_formed(messages)
                self.state = self.state.observe(self.answer())
            case Dispatch(calls):
                assert len(calls) == 1 or not any(self.state.claims.get(call.slot) for call in calls)
                self.state = self.state.observe(Attempted({call.slot: self.enter(call) for call in calls}))
            case Transact(call):
                assert not self.uncommitted()
                self.state = self.state.observe(Attempted({call.slot: outcome(call)}))
                following = decide(self.state)
                assert isinstance(following, Commit)
                assert call.slot in {claim.slot for claim in following.writes.outcomes}
            case Probe(claims):
                assert not self.uncommitted() and all(claim.tool in self.setting.probes for claim in claims)
                self.state = self.state.observe(Probed({claim.slot: self.reply() for claim in claims}))
            case Commit(writes):
                self.state = self.state.committed(writes, self.commit(writes))
        return decision

    def uncommitted(self) -> bool:
        """Return whether what a claim came to is kept in memory alone."""
        return bool(self.state.failures) or any(claim.token for claim in self.state.outcomes.values())

    def answer(self) -> Answered:
        turn = self.state.turn + 1
        if turn > 3:
            return Answered(Message.of("assistant", "done"), (), Usage(1, 1))
        asked, pending = [], []
        for position in range(1, self.chance.randint(1, 4) + 1):
            kind, what = self.chance.choice([*KINDS, "gone"]), self.chance.choice("ab")
            asked.append(ToolCall(f"id{position}", kind, {"what": what}))
            pending.append(self.pending(Slot(turn, position), f"id{position}", kind, what))
        return Answered(Message("assistant", tuple(asked)), tuple(pending), Usage(1, 1))

    def pending(self, slot: Slot, provider_id: str, kind: str, what: str) -> PendingCall:
        arguments = {"what": what}
        if kind == "gone":
            return PendingCall(slot, provider_id, kind, arguments, result=Outcome.of(OutcomeKind.INVALID, "unknown"))
        named = ("what",) if self.likely(0.3) else ()
        key, guaranteed = idempotency_key(self.record.salt, kind, slot, arguments, named)
        held, digest = self.likely(0.25), arguments_digest(arguments)
        return PendingCall(slot, provider_id, kind, arguments, key, guaranteed, KINDS[kind], held, digest, named)

    def enter(self, call: PendingCall) -> Outcome | Failure | NotEntered:
        """Enter a body: only with its intent on record."""
        claim = self.claims.get(call.slot)
        if call.effect is not EffectClass.READ_ONLY or self.setting.strict:
            if claim is None:
                assert call.effect is EffectClass.IDEMPOTENT and not self.setting.strict and not call.held
                assert self.frontier is not None and self.frontier.turn == call.slot.turn
                assert call.key in {item.key for item in self.frontier.pending} and call.guaranteed
            else:
                assert claim.state is ClaimState.IN_FLIGHT and claim.fence == self.setting.fence
                assert claim.token not in self.entered, "one claim, two bodies"
        assert not call.held or self.granted(call)
        assert owner_of(call, self.claims) is None or claim is not None, "a twin was made"
        if claim is not None and self.likely(0.1):
            return NotEntered()
        self.entered.add(None if claim is None else claim.token)
        if call.effect is EffectClass.EFFECTFUL and self.likely(0.2):
            return Failure("OSError: cut")
        return outcome(call, OutcomeKind.FAILED if self.likely(0.2) else OutcomeKind.RETURNED)

    def granted(self, call: PendingCall) -> bool:
        approval = self.approvals.get(call.slot)
        return approval is not None and approval.state is ApprovalState.GRANTED and approval.digest == call.digest

    def reply(self) -> Reply:
        answer = self.chance.choice(list(Answer))
        told = Outcome.of(OutcomeKind.RETURNED, "probed") if answer is Answer.DONE else None
        return Reply(answer, told, early=self.likely(0.3))

    def commit(self, writes: Writes) -> Written:
        """Write as a store does: facts always, progress unless refused, claims unless something holds them back."""
        facts = (writes.claims, writes.outcomes, writes.failures, writes.abandoned, writes.settlements, writes.spend)
        assert any((*facts, writes.frontier, writes.requests, writes.status)), "a commit of nothing"
        refused = bool(writes.frontier or writes.delta) and self.likely(0.03)
        for claim in writes.outcomes:
            standing = self.claims.get(claim.slot)
            assert claim.token is None or (standing is not None and standing.token == claim.token)
            assert standing is None or standing.state is ClaimState.IN_FLIGHT, "an outcome is written once"
            self.claims[claim.slot] = claim
        for claim in writes.failures:
            self.claims[claim.slot] = claim
        for item in writes.settlements:
            state = ClaimState.NEVER_RAN if item.outcome is None else ClaimState.of(item.outcome)
            self.claims[item.claim.slot] = replace(self.claims[item.claim.slot], state=state, outcome=item.outcome)
        for claim in writes.abandoned:
            assert claim.token not in self.entered, "a body that was entered is not abandoned"
            del self.claims[claim.slot]
        handle = None
        if not refused:
            if writes.delta and writes.extends is not None:
                self.transcript = self.transcript[: writes.extends.length] + writes.delta
                handle = writes.extends.extended(writes.delta)
            if writes.frontier is not None:
                self.frontier = replace(writes.frontier, history_handle=handle or writes.frontier.history_handle)
            self.approvals.update({item.slot: item for item in writes.requests})
        self.passed = (self.passed or refused) and (refused or writes.frontier is None)
        if writes.status is not None and not (refused and writes.status is RunStatus.WAITING):
            self.record = replace(self.record, status=writes.status, reason=writes.reason, wake_at=writes.wake_at)
        if writes.begins:
            self.record = replace(self.record, begun_at=AT)
        if self.likely(0.01):
            self.record = replace(self.record, cancel_requested_at=AT)
        ours = tuple(self.claimed(claim) for claim in writes.claims if self.may(claim))
        held_back = len(ours) < len(writes.claims)
        return Written(
            claims=ours,
            handle=handle,
            at=AT,
            cancel_requested_at=self.record.cancel_requested_at,
            failed_save="refused" if refused else "",
            standing=dict(self.claims) if held_back else None,
            approvals=dict(self.approvals) if held_back else None,
        )

    def may(self, claim: Claim) -> bool:
        if self.record.cancel_requested_at is not None:
            return False
        approved = {item.request_id: item for item in self.approvals.values()}
        if claim.request_id is None:
            return True
        found = approved.get(claim.request_id)
        return found is not None and found.state is ApprovalState.GRANTED and found.digest == claim.digest

    def claimed(self, claim: Claim) -> Claim:
        old = self.claims.get(claim.slot)
        assert old is None or (old.token == claim.replaces and old.outcome is None)
        assert old is None or old.state is ClaimState.NEVER_RAN or old.effect in SAFE, "a doubtful call was made again"
        self.claims[claim.slot] = replace(claim, begun_at=AT, deadline_at=AT)
        return self.claims[claim.slot]

    def people(self) -> None:
        """Answer what somebody is waited for."""
        for slot, approval in self.approvals.items():
            if approval.state is ApprovalState.REQUESTED and self.likely(0.6):
                state = self.chance.choice([ApprovalState.GRANTED, ApprovalState.DENIED, ApprovalState.EXPIRED])
                edited: Any = {"what": "edited"} if state is ApprovalState.GRANTED and self.likely(0.3) else None
                digest = approval.digest if edited is None else arguments_digest(edited)
                self.approvals[slot] = replace(approval, state=state, edited=edited, digest=digest)
        for slot, claim in self.claims.items():
            if claim.state is ClaimState.IN_FLIGHT:
                told = Outcome.of(OutcomeKind.RETURNED, "settled") if self.likely(0.5) else None
                state_ = ClaimState.NEVER_RAN if told is None else ClaimState.DONE
                self.claims[slot] = replace(claim, state=state_, outcome=told)


def outcome(call: PendingCall, kind: OutcomeKind = OutcomeKind.RETURNED) -> Outcome:
    return Outcome.of(kind, f"{call.slot}")


def well_formed(messages: tuple[Message, ...]) -> bool:
    """Return whether every call has exactly one result, in order, right behind the message that asked."""
    for message, following in itertools.zip_longest(messages, messages[1:]):
        asked = [part.id for part in message.tool_calls]
        if asked and following is None:
            return False
        told = [part.call_id for part in following.parts if isinstance(part, ToolResult)] if following else []
        if asked != told:
            return False
    return True


@pytest.mark.parametrize("block", range(5))
def test_the_laws_hold_on_every_walk(block: int) -> None:
    for seed in range(block * 60, block * 60 + 60):
        to_its_end(Walk(Random(seed)))  # noqa: S311  # chance, not a secret


def to_its_end(walk: Walk) -> None:
    """Walk through slices, crashes and people's answers until the run has ended, or may not be carried on."""
    for _ in range(40):
        for _ in range(200):
            decision = walk.step()
            if isinstance(decision, Stop) or walk.likely(0.03):
                break
        else:
            raise AssertionError("a slice that does not end")
        if walk.record.status.ended:
            break
        if walk.passed:
            return  # refused from here on
        if isinstance(decision, Stop):
            assert not walk.uncommitted() and not walk.state.fresh
            walk.people()
        walk.state = walk.recorded()
    else:
        raise AssertionError("a run that does not end")
