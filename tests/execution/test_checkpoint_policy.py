"""Which boundaries are written, and what strictness asks for: a policy skips only what may be repeated."""

from typing import Any

import pytest
from django.test import override_settings

from adk_django.core.checkpoint import CheckpointBoundary, CheckpointPolicy
from adk_django.core.record import RunStatus
from adk_django.exceptions import IndeterminateToolCallError
from tests.fake_tools import calls, effect, usual
from tests.run_fixture import Stage

NONE = CheckpointPolicy(boundaries=frozenset())
STRICT = {"RESUME": {"strict": True}}


def test_only_turns_that_read_are_left_out_and_their_results_come_with_the_next_save(
    place: str, log: list[str]
) -> None:
    script = [calls("search"), calls("search", "book"), calls("search"), calls("touch"), "done"]
    stage = Stage(place, script, *usual(log), policy=NONE)
    assert stage.run().status is RunStatus.COMPLETED
    assert stage.brought == [
        "after_model_call, outcome 1.1",
        "outcome 2.1, claim 2.2",
        "outcome 2.2",
        "after_model_call, outcome 3.1",
        "outcome 4.1, completed",
    ]


@pytest.mark.parametrize("boundaries", [[], ["after_model_call"], ["after_tool_result"], ["before_approval"]])
@pytest.mark.parametrize("at", ["tool search", "tool touch", "tool book", "model"])
def test_no_policy_doubles_or_loses_an_effect_wherever_it_dies(log: list[str], boundaries: list[str], at: str) -> None:
    script = [calls("search"), calls("book"), calls("search"), calls("touch", "mail"), calls("search"), "done"]
    policy = CheckpointPolicy(boundaries=frozenset(map(CheckpointBoundary, boundaries)))
    for nth in range(1, 10):
        del log[:]
        stage = Stage("memory", script, *usual(log), policy=policy)
        try:
            stage.die(at, "after", nth)
        except AssertionError:
            assert nth > 1
            break
        for call, claim in stage.claims.items():
            if claim.state == "in_flight":
                stage.settle(call, "by hand")
        assert stage.resume().status is RunStatus.COMPLETED
        assert (log.count("book book"), log.count("mail mail")) == (1, 1)
        assert log.count("touch touch") >= 1


def test_a_first_turn_that_only_reads_and_is_not_saved_has_not_begun(log: list[str]) -> None:
    stage = Stage("memory", [calls("search"), "done"], *usual(log), policy=NONE)
    stage.die("tool search", "after")
    assert (stage.record.begun_at, stage.commits) == (None, [])
    assert stage.resume().status is RunStatus.COMPLETED
    assert log == ["search search"] * 2


@pytest.mark.parametrize("tool", ["search", "touch"])
def test_strictness_claims_every_call_and_repeats_none(place: str, log: list[str], tool: str) -> None:
    stage = Stage(place, [calls(tool), calls("book"), "done"], *usual(log), policy=NONE)
    with override_settings(ADK=STRICT):
        stage.die(f"tool {tool}", "after")
        assert stage.brought == ["after_model_call", "claim 1.1"]
        with pytest.raises(IndeterminateToolCallError):
            stage.resume()
        stage.settle("1.1", "seen")
        assert stage.resume().status is RunStatus.COMPLETED
    assert log == [f"{tool} {tool}", "book book"]


def test_what_strictness_claimed_is_repeated_once_it_is_off(log: list[str]) -> None:
    stage = Stage("memory", [calls("search"), "done"], *usual(log))
    with override_settings(ADK=STRICT):
        stage.die("tool search", "after")
    assert stage.resume().status is RunStatus.COMPLETED
    assert (log, stage.claim("1.1").attempt) == (["search search"] * 2, 2)


def test_a_result_that_cannot_be_kept_fails_the_run_where_that_is_asked_for(log: list[str]) -> None:
    def odd(context: Any) -> Any:
        return object()

    stage = Stage("memory", [calls("book"), "done"], effect(log, "book", then=odd))
    with override_settings(ADK={"TOOLS": {"on_unkept_result": "fail_run"}}):
        assert stage.run().status is RunStatus.FAILED
    assert (stage.claim("1.1").state, stage.record.status) == ("done", RunStatus.FAILED)
    assert stage.record.reason == "the result of call 1.1 was not kept"
