"""What a turn commits, and where a crash leaves its calls: no effect is doubled, lost or hidden from the record."""

import itertools
from dataclasses import replace

import pytest

from adk_django.core.checkpoint import CheckpointBoundary
from adk_django.core.effects import EffectClass, Outcome, OutcomeKind
from adk_django.core.messages import Usage
from adk_django.core.record import RunStatus
from adk_django.exceptions import IndeterminateToolCallError
from adk_django.tools import ToolContext
from tests.fake_tools import calls, effect, raises, usual
from tests.run_fixture import Stage

KINDS = ("read_only", "idempotent", "effectful")


def test_knowing_that_an_effect_happened_costs_one_commit_and_nothing_else_does(place: str, log: list[str]) -> None:
    for kind in KINDS:
        stage = Stage(place, [calls("act"), "done"], effect(log, "act", kind))
        assert stage.run().status is RunStatus.COMPLETED
        claim = ["claim 1.1"] if kind == "effectful" else []
        assert stage.brought == ["after_model_call", *claim, "after_tool_result, outcome 1.1", "completed"]


def test_an_outcome_of_an_effect_is_never_kept_in_memory_across_another_body(log: list[str]) -> None:
    stage = Stage("memory", [calls("book", "search", "mail", "touch"), "done"], *usual(log))
    assert stage.run().status is RunStatus.COMPLETED
    assert stage.brought == [
        "after_model_call",
        "claim 1.1",
        "outcome 1.1",
        "outcome 1.2, claim 1.3",
        "outcome 1.3",
        "after_tool_result, outcome 1.4",
        "completed",
    ]


def test_the_frontier_after_a_model_call_holds_the_answer_and_every_call_it_asked_for(
    place: str, log: list[str]
) -> None:
    stage = Stage(place, [calls("book", "search"), "done"], *usual(log))
    stage.die("commit facts")
    frontier = stage.frontier
    assert frontier.boundary is CheckpointBoundary.AFTER_MODEL_CALL
    assert [(str(call.slot), call.tool, call.effect, call.dispatched) for call in frontier.pending] == [
        ("1.1", "book", EffectClass.EFFECTFUL, False),
        ("1.2", "search", EffectClass.READ_ONLY, False),
    ]
    assert all(call.key for call in frontier.pending)
    assert frontier.usage == Usage(input_tokens=10, output_tokens=5)
    assert stage.record.usage == Usage(input_tokens=10, output_tokens=5)
    assert stage.record.begun_at is not None
    assert log == []


def test_a_model_that_answered_is_not_asked_again_and_the_keys_stay(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("book", "search"), "done"], *usual(log))
    stage.die("commit after_model_call", "after")
    keys = [call.key for call in stage.frontier.pending]
    assert stage.resume().status is RunStatus.COMPLETED
    assert len(stage.provider.requests) == 2  # one a turn
    assert sorted(log) == ["book book", "search search"]
    assert [claim.key for claim in stage.claims.values()] == keys


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_around_an_effect_is_indeterminate_and_makes_it_no_second_time(
    place: str, log: list[str], when: str
) -> None:
    stage = Stage(place, [calls("book"), "done"], *usual(log))
    stage.die("tool book", when)
    made = list(log)
    with pytest.raises(IndeterminateToolCallError) as refusal:
        stage.resume()
    claim = stage.claim("1.1")
    assert [str(item.call.slot) for item in refusal.value.calls] == ["1.1"]
    assert not refusal.value.retryable
    for part in ("1.1", "book", claim.key, claim.holder):
        assert part in str(refusal.value)
    assert log == made
    assert (stage.record.status, stage.lease) == (RunStatus.UNDECIDED, None)
    assert "adk_settle" in stage.record.reason


def test_a_tool_that_declares_nothing_is_not_repeated(log: list[str]) -> None:
    stage = Stage("memory", [calls("plain"), "done"], effect(log, "plain"))
    stage.die("tool plain", "after")
    with pytest.raises(IndeterminateToolCallError):
        stage.resume()
    assert log == ["plain plain"]


@pytest.mark.parametrize("kind", ["read_only", "idempotent"])
def test_a_call_that_may_be_repeated_is_made_again_under_its_key(log: list[str], kind: str) -> None:
    keys: list[str] = []
    stage = Stage(
        "memory", [calls("act"), "done"], effect(log, "act", kind, lambda given: keys.append(given.idempotency_key))
    )
    stage.die("tool act", "after")
    assert stage.resume().status is RunStatus.COMPLETED
    assert log == ["act act"] * 2
    assert len(set(keys)) == 1


def test_a_recorded_outcome_is_replayed_as_it_was(place: str, log: list[str]) -> None:
    value = {"seat": ("12A", 1.0, b"\xff"), "note": "a\u0000b \ud83d"}
    stage = Stage(place, [calls("book"), "done"], effect(log, "book", then=lambda given: value))
    stage.die("commit after_tool_result", "after")
    assert stage.resume().status is RunStatus.COMPLETED
    assert (log, stage.results) == (["book book"], [value])


def test_a_model_call_that_died_with_its_worker_is_not_free(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("search"), "done"], *usual(log))
    stage.die("model")
    assert stage.record.begun_at is None
    stage.die("model", nth=2)
    assert stage.resume().status is RunStatus.COMPLETED
    assert stage.record.usage == Usage(input_tokens=20, output_tokens=10, unknown_calls=2)
    assert stage.record.cost_micros == 200


@pytest.mark.parametrize("answered", list(itertools.product([False, True], repeat=3)))
def test_exactly_the_calls_without_an_outcome_are_made(log: list[str], answered: tuple[bool, ...]) -> None:
    stage = Stage("memory", [calls("book", "mail", "pay"), "done"], effect(log, "pay"), *usual(log))
    stage.die("commit after_model_call", "after")
    stores, lease = stage.stores, stage.acquired()
    state = stage.state(lease)
    for call, known in zip(state.pending, answered, strict=True):
        if known:
            row = replace(state.claim_of(call), token=None)
            told = Outcome.of(OutcomeKind.RETURNED, f"{call.tool} before")
            stores.idempotency.record(row, told, fence=lease.fence)
    stores.leases.release(lease)
    assert stage.resume().status is RunStatus.COMPLETED
    names = ("book", "mail", "pay")
    assert log == [f"{name} {name}" for name, known in zip(names, answered, strict=True) if not known]
    told_by = [f"{name} {'before' if known else name}" for name, known in zip(names, answered, strict=True)]
    assert stage.results == told_by


def test_two_identical_calls_of_one_turn_are_two_effects_across_a_crash(log: list[str]) -> None:
    stage = Stage("memory", [calls("book", "book"), "done"], *usual(log))
    stage.die("tool book", nth=2)
    stage.settle("1.2", happened=False)
    assert stage.resume().status is RunStatus.COMPLETED
    assert log == ["book book"] * 2
    assert len({claim.key for claim in stage.claims.values()}) == 2


def test_the_same_call_in_a_later_turn_is_another_effect(log: list[str]) -> None:
    stage = Stage("memory", [calls("book"), calls("book"), "done"], *usual(log))
    assert stage.run().status is RunStatus.COMPLETED
    assert log == ["book book"] * 2


def test_a_body_that_raised_leaves_its_call_unknown_in_the_slice_that_made_it(place: str, log: list[str]) -> None:
    fails, mail = effect(log, "book", then=raises(OSError("cut"))), effect(log, "mail")
    stage = Stage(place, [calls("book", "mail"), "done"], fails, mail)
    result = stage.run()
    assert (result.status, log) == (RunStatus.UNDECIDED, ["book book"])
    assert stage.claim("1.1").error == "OSError: cut"
    assert stage.claim("1.1").outcome is None
    stage.settle("1.1", "seat 12A")
    assert stage.resume().status is RunStatus.COMPLETED
    assert (log, stage.results) == (["book book", "mail mail"], ["seat 12A", "mail mail"])


def test_a_call_that_never_ran_is_made_again_under_the_same_key_as_the_next_attempt(log: list[str]) -> None:
    seen: list[ToolContext] = []
    stage = Stage("memory", [calls("book"), "done"], effect(log, "book", then=seen.append))
    stage.die("tool book")
    first = stage.claim("1.1")
    stage.settle("1.1", happened=False)
    assert stage.resume().status is RunStatus.COMPLETED
    again = stage.claim("1.1")
    assert (again.key, again.attempt, first.attempt) == (first.key, 2, 1)
    assert again.token != first.token
    assert (seen[0].idempotency_key, seen[0].attempt, seen[0].deadline) == (first.key, 2, again.deadline_at)
    assert seen[0].fence == again.fence


def test_a_tool_that_is_gone_is_answered_and_a_call_of_it_in_flight_is_not_forgotten(log: list[str]) -> None:
    stage = Stage("memory", [calls("nothing", "search"), "done"], *usual(log))
    assert stage.run().status is RunStatus.COMPLETED
    assert stage.results == ["unknown tool 'nothing'", "search search"]
    gone = Stage("memory", [calls("book"), "done"], *usual(log))
    gone.die("tool book")
    with pytest.raises(IndeterminateToolCallError):
        gone.resume(gone.agent_with(effect(log, "search", "read_only")))
