"""What a run does next, case by case: the order in which things are looked at, and what each commit brings."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from adk_django.core.checkpoint import CheckpointBoundary, HistoryHandle, PendingCall
from adk_django.core.decide import AskModel, Commit, Decision, Dispatch, Probe, Stop, Transact, decide
from adk_django.core.effects import ClaimState, EffectClass, Outcome, OutcomeKind, Slot, arguments_digest
from adk_django.core.messages import Message, ToolCall, Usage
from adk_django.core.observations import Answered, Attempted, Failure, NotEntered, Probed, Reply
from adk_django.core.record import Answer, ApprovalState, RunRecord, RunStatus, Spend, Writes, Written
from adk_django.core.run_facts import Setting
from adk_django.core.state import RunState

AT = datetime(2025, 1, 1, tzinfo=UTC)
RECORD = RunRecord("acme", "run_1", "booking", "go", "00" * 32, begun_at=AT)
TOOLS = {kind.value: kind for kind in EffectClass}
RETURNED = Outcome.of(OutcomeKind.RETURNED, "made")


def run(*kinds: str, saved: tuple[int, int] = (1, 0), **changes: Any) -> RunState:
    """Return a run whose first turn asked for one call of each of these classes; ``held_`` before one holds it."""
    pending = []
    for position, kind in enumerate(kinds, 1):
        name = kind.removeprefix("held_")
        arguments = {"what": position}
        call = PendingCall(Slot(1, position), f"id{position}", name, arguments, f"k{position}", effect=TOOLS[name])
        pending.append(replace(call, held=kind != name, digest=arguments_digest(arguments)))
    asked = tuple(ToolCall(call.provider_id, call.tool, call.arguments) for call in pending)
    messages = Message.of("user", "go"), Message("assistant", asked)
    setting = Setting(fence=3, tools=TOOLS, probes=frozenset(["effectful"]))
    state = RunState(RECORD, setting, messages, HistoryHandle("acme", "run_1").extended(messages), saved)
    return replace(state, turn=1, open=True, pending=tuple(pending), **changes)


def commit(state: RunState) -> Writes:
    decision = decide(state)
    assert isinstance(decision, Commit), decision
    return decision.writes


def claimed(state: RunState) -> RunState:
    """Return the state after its next commit, whose claims stand."""
    writes = commit(state)
    stand = tuple(replace(claim, begun_at=AT, deadline_at=AT + timedelta(seconds=330)) for claim in writes.claims)
    return state.committed(writes, Written(claims=stand, at=AT))


def flying(made: RunState, position: int = 1, **changes: Any) -> RunState:
    """Return the state with one call in flight under a worker that is gone."""
    claim = replace(made.claim_of(made.calls()[position - 1]), fence=1, token="old", deadline_at=AT)
    return replace(made, claims={**made.claims, claim.slot: replace(claim, **changes)})


def observed(state: RunState, result: Any, position: int = 1) -> RunState:
    return state.observe(Attempted({Slot(1, position): result}))


@pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELLED])
def test_an_ended_run_does_nothing_whatever_else_is_known_of_it(status: RunStatus) -> None:
    ended = replace(RECORD, status=status, reason="so", cancel_requested_at=AT)
    assert decide(replace(flying(run("effectful")), record=ended)) == Stop(status, "so")


def test_a_claim_of_this_slice_is_entered_before_a_cancel_is_looked_at() -> None:
    state = claimed(run("effectful", "effectful"))
    cancelled = replace(state, record=replace(state.record, cancel_requested_at=AT))
    assert decide(cancelled) == Dispatch(cancelled.pending[:1])
    after = commit(observed(cancelled, RETURNED))
    assert (after.status, [claim.slot for claim in after.outcomes]) == (RunStatus.CANCELLED, [Slot(1, 1)])
    assert after.claims == ()


def test_a_claim_that_was_not_entered_is_given_back_before_anything_else() -> None:
    state = observed(claimed(run("effectful")), NotEntered())
    writes = commit(replace(state, record=replace(state.record, cancel_requested_at=AT)))
    assert [claim.slot for claim in writes.abandoned] == [Slot(1, 1)]
    assert writes.status is None
    again = state.committed(commit(state), Written(at=AT))
    first, second = state.claims[Slot(1, 1)], commit(again).claims[0]
    assert (second.attempt, second.replaces) == (2, None)
    assert second.token != first.token  # what the first may still bring is not the second's


@pytest.mark.parametrize(
    ("kinds", "decided"),
    [
        (["read_only", "read_only", "effectful"], [1, 2]),
        (["read_only", "idempotent", "read_only"], [1, 2, 3]),
        (["read_only", "transactional", "read_only"], [1]),
        (["held_effectful", "read_only", "effectful", "read_only"], [2, 4]),
        (["idempotent", "held_read_only", "idempotent", "read_only"], [1, 4]),
    ],
)
def test_neighbours_that_need_no_claim_are_made_together(kinds: list[str], decided: list[int]) -> None:
    decision = decide(run(*kinds))
    assert isinstance(decision, Dispatch)
    assert [call.slot.position for call in decision.calls] == decided


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (run("effectful"), "claim"),
        (run("idempotent"), "dispatch"),
        (run("idempotent", saved=(0, 0), tried=frozenset([(1, 0)])), "claim"),
        (run("read_only", saved=(0, 0), tried=frozenset([(1, 0)])), "dispatch"),
        (run("transactional"), "transact"),
        (run("idempotent", setting=Setting(3, tools=TOOLS, strict=True)), "claim"),
        (run("read_only", setting=Setting(3, tools=TOOLS, strict=True)), "claim"),
        (run("transactional", setting=Setting(3, tools=TOOLS, strict=True)), "transact"),
    ],
)
def test_what_needs_a_claim_gets_one_before_its_body(state: RunState, kind: str) -> None:
    decision: Decision = decide(state)
    if kind == "claim":
        assert isinstance(decision, Commit)
        assert [(claim.slot, claim.fence, claim.attempt) for claim in decision.writes.claims] == [(Slot(1, 1), 3, 1)]
    else:
        assert isinstance(decision, Dispatch if kind == "dispatch" else Transact)


def test_a_call_nobody_can_speak_for_stops_everything_behind_and_before_it() -> None:
    state = flying(run("read_only", "effectful", "read_only", setting=Setting(3, tools=TOOLS)), 2)
    writes = commit(state)
    assert (writes.status, writes.claims) == (RunStatus.UNDECIDED, ())
    assert writes.reason == "nobody can say whether call 1.2 (effectful) happened: adk_settle"
    after = state.committed(writes, Written(at=AT))
    assert decide(after) == Stop(RunStatus.UNDECIDED, writes.reason)


def test_evidence_is_taken_before_a_probe_and_a_probe_before_a_stop() -> None:
    with_evidence = flying(run("effectful"), evidence=RETURNED)
    (settled,) = commit(with_evidence).settlements
    assert (settled.answer, settled.outcome, settled.by) == (Answer.DONE, RETURNED, "evidence")
    without = flying(run("effectful"))
    assert decide(without) == Probe((without.claims[Slot(1, 1)],))
    contested = flying(run("effectful"), evidence=RETURNED, contested=True)
    assert commit(contested).status is RunStatus.UNDECIDED


@pytest.mark.parametrize(
    ("reply", "comes"),
    [
        (Reply(Answer.DONE, RETURNED, early=True), "settled"),
        (Reply(Answer.DONE, RETURNED), "settled"),
        (Reply(Answer.NOT_DONE, early=True), RunStatus.ACTIVE),
        (Reply(Answer.NOT_DONE), "settled"),
        (Reply(Answer.UNKNOWN, early=True), RunStatus.ACTIVE),
        (Reply(Answer.UNKNOWN), RunStatus.UNDECIDED),
    ],
)
def test_what_a_probe_said_counts_by_when_it_was_asked(reply: Reply, comes: Any) -> None:
    state = flying(run("effectful")).observe(Probed({Slot(1, 1): reply}))
    writes = commit(state)
    if comes == "settled":
        assert [item.answer for item in writes.settlements] == [reply.answer]
    else:
        assert (writes.settlements, writes.status) == ((), comes)
        assert writes.wake_at == (AT if comes is RunStatus.ACTIVE else None)
    assert decide(state.committed(writes, Written(at=AT))) != Probe((state.claims[Slot(1, 1)],))


def test_a_raise_out_of_an_effect_is_written_before_its_probe_is_asked() -> None:
    state = observed(claimed(run("effectful")), Failure("OSError: cut"))
    writes = commit(state)
    assert [claim.error for claim in writes.failures] == ["OSError: cut"]
    assert isinstance(decide(state.committed(writes, Written(at=AT))), Probe)


def test_a_wait_brings_frontier_and_every_request_together_and_a_refused_one_nobody() -> None:
    state = run("held_effectful", "held_effectful", "effectful")
    writes = commit(state)
    assert writes.frontier is not None
    assert writes.frontier.boundary is CheckpointBoundary.BEFORE_APPROVAL
    assert [request.slot.position for request in writes.requests] == [1, 2]
    assert writes.frontier.pending_approval == writes.requests[0].request_id
    assert (writes.status, writes.claims) == (RunStatus.WAITING, ())
    refused = state.committed(writes, Written(failed_save="too large", at=AT))
    assert refused.record.status is RunStatus.ACTIVE
    told = [refused.outcome_of(call) for call in refused.calls()]
    assert [item.value for item in told if item] == ["could not be put to a person: too large"] * 2 + [
        "not made: call 1.1 was denied"
    ]


def test_a_request_cannot_be_guessed_and_is_the_same_when_it_is_asked_again() -> None:
    state = run("held_effectful")
    one, two = (state.request_of(state.pending[0]).request_id for _ in range(2))
    other = replace(state, record=replace(RECORD, salt="01" * 32))
    assert one == two != other.request_of(state.pending[0]).request_id
    changed = replace(state.pending[0], digest="0" * 64)
    assert state.request_of(changed).request_id != one


@pytest.mark.parametrize("state", [ApprovalState.GRANTED, ApprovalState.REQUESTED, ApprovalState.DENIED])
def test_a_grant_counts_for_exactly_its_arguments(state: ApprovalState) -> None:
    asked = run("held_effectful")
    approval = replace(asked.request_of(asked.pending[0]), state=state)
    for digest, grants in ((approval.digest, state is ApprovalState.GRANTED), ("0" * 64, False)):
        given = replace(asked, approvals={Slot(1, 1): replace(approval, digest=digest)})
        assert given.granted(given.pending[0]) is grants


def test_the_first_commit_after_an_answer_begins_the_run_whatever_it_saves() -> None:
    fresh = replace(run(), record=replace(RECORD, begun_at=None), open=False, turn=0, saved=(0, 0), pending=())
    assert isinstance(decide(fresh), AskModel)
    call = run("effectful").pending
    answered = fresh.observe(Answered(Message("assistant", ()), call, Usage(10, 5), 100))
    writes = commit(answered)
    assert writes.begins
    assert writes.spend == (Spend(1, 3, Usage(10, 5), 100),)
    assert writes.frontier is not None and writes.frontier.usage == Usage(10, 5)
    assert commit(answered.committed(writes, Written(failed_save="no", at=AT))).begins is False


def test_a_take_over_whose_next_step_is_to_ask_pays_for_the_answer_that_died() -> None:
    fresh = replace(run(), open=False, turn=1, pending=(), took_over=True)
    writes = commit(fresh)
    assert writes.spend == (Spend(2, 2, Usage(unknown_calls=1)),)
    after = fresh.committed(writes, Written(at=AT))
    assert after.usage == Usage(unknown_calls=1)
    assert isinstance(decide(after), AskModel)
    assert not isinstance(decide(replace(run("read_only"), took_over=True)), Commit)


@pytest.mark.parametrize("died", [False, True])
def test_only_what_is_new_resets_deaths(died: bool) -> None:
    assert commit(run("effectful", died=died)).deaths == (0 if died else None)
    again = flying(run("effectful", died=died), state=ClaimState.NEVER_RAN)
    writes = commit(again)
    assert [claim.attempt for claim in writes.claims] == [2]
    assert writes.deaths is None
    assert commit(observed(claimed(again), RETURNED)).deaths == (0 if died else None)
    undecided = flying(run("effectful", died=died, setting=Setting(3, tools=TOOLS)))
    assert commit(undecided).deaths is None


def test_progress_leaves_no_old_reason_behind() -> None:
    late = replace(RECORD, reason="the model provider failed, next try at ...", wake_at=AT)
    writes = commit(replace(run("effectful"), record=late))
    assert (writes.status, writes.reason, writes.wake_at, writes.wake_seen) == (RunStatus.ACTIVE, "", None, AT)


def test_a_claim_has_its_own_token_for_every_attempt_and_worker() -> None:
    state = run("effectful")
    tokens = {
        commit(state).claims[0].token,
        commit(flying(state, state=ClaimState.NEVER_RAN)).claims[0].token,
        commit(replace(state, setting=replace(state.setting, fence=4))).claims[0].token,
        commit(replace(state, record=replace(RECORD, salt="01" * 32))).claims[0].token,
    }
    assert len(tokens) == 4


def test_what_only_reads_is_made_behind_a_denial_as_well() -> None:
    asked = run("held_effectful", "effectful", "read_only")
    denied = replace(asked.request_of(asked.pending[0]), state=ApprovalState.DENIED)
    assert decide(replace(asked, approvals={Slot(1, 1): denied})) == Dispatch(asked.pending[2:])
