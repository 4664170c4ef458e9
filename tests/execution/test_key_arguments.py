"""Calls that their key arguments make one effect: once per run for these values, and a copy for whoever asks again."""

from collections.abc import Callable
from typing import Any

import pytest

from adk_django.core.effects import ClaimState
from adk_django.core.record import RunStatus
from adk_django.exceptions import IndeterminateToolCallError
from adk_django.testing import Crash
from adk_django.tools import Tool, ToolRefused, tool
from tests.fake_tools import calls, effect
from tests.run_fixture import Stage

X, Y = ("once", {"what": "x"}), ("once", {"what": "y"})


def once(log: list[str], kind: str = "effectful", then: Callable[..., Any] | None = None, **options: Any) -> Tool:
    return effect(log, "once", kind, then, key_arguments=("what",), **options)


@pytest.mark.parametrize("kind", ["effectful", "idempotent", "read_only"])
def test_a_twin_in_the_same_turn_or_a_later_one_gets_a_copy_and_says_so(place: str, log: list[str], kind: str) -> None:
    stage = Stage(place, [calls(X, X, Y), calls(X), "done"], once(log, kind))
    assert stage.run().status is RunStatus.COMPLETED
    assert sorted(log) == ["once x", "once y"]
    assert stage.results == ["once x"]
    copies = {call: claim for call, claim in stage.claims.items() if claim.state is ClaimState.COPIED}
    assert {call: str(claim.outcome.twin_of) for call, claim in copies.items() if claim.outcome} == {
        "1.2": "1.1",
        "2.1": "1.1",
    }
    (part,) = stage.provider.requests[-1].messages[-1].parts
    assert part.extra == {"copy_of_call": "1.1"}


def test_two_places_of_one_turn_are_two_effects_without_key_arguments_and_one_with(log: list[str]) -> None:
    stage = Stage("memory", [calls(X, X), "done"], effect(log, "once"))
    stage.run()
    twins = Stage("memory", [calls(X, X), "done"], once(log))
    twins.run()
    assert log == ["once x"] * 3


@pytest.mark.parametrize("answer", ["seat", None])
def test_a_twin_shares_the_doubt_of_its_owner_and_its_answer(place: str, log: list[str], answer: str | None) -> None:
    stage = Stage(place, [calls(X, X), "done"], once(log))
    stage.die("tool once")
    with pytest.raises(IndeterminateToolCallError) as refusal:
        stage.resume()
    assert [(str(item.call.slot), item.twin_of and str(item.twin_of)) for item in refusal.value.calls] == [
        ("1.1", None),
        ("1.2", "1.1"),
    ]
    stage.settle("1.1", answer, happened=answer is not None)
    assert stage.resume().status is RunStatus.COMPLETED
    assert (log, stage.results) == (([], ["seat"] * 2) if answer else (["once x"], ["once x"] * 2))


def test_an_error_is_copied_to_a_twin_of_its_turn_and_frees_the_key_for_later_ones(log: list[str]) -> None:
    answers = iter([ToolRefused("sold out"), None])

    def then(context: Any) -> str:
        if (error := next(answers)) is not None:
            raise error
        return "seat"

    stage = Stage("memory", [calls(X, X), calls(X), "done"], once(log, then=then))
    assert stage.run().status is RunStatus.COMPLETED
    first = stage.provider.requests[1].messages[-1].parts
    assert [(part.content, part.is_error) for part in first] == [("sold out", True)] * 2  # type: ignore[union-attr]
    assert (log, stage.results) == (["once x"] * 2, ["seat"])


def test_a_key_argument_that_was_not_given_guarantees_nothing_whatever_the_class(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls(("once", {}), ("once", {})), "done"], once(log, "idempotent"))
    stage.die("tool once", "after")
    assert not stage.claim("1.1").guaranteed
    with pytest.raises(IndeterminateToolCallError):
        stage.resume()
    stage.settle("1.1", "seat")
    assert stage.resume().status is RunStatus.COMPLETED
    assert log == ["once "] * 2  # the second is an effect of its own


def test_a_key_is_read_back_and_never_made_again_from_masked_values(log: list[str]) -> None:
    secret = {"what": "Bearer " + "sk-live-" + "a1B2c3D4e5F6g7H8"}
    stage = Stage("memory", [calls(("once", secret)), calls(("once", secret)), "done"], once(log))
    stage.die("commit after_model_call", "after", nth=2)
    assert "a1B2" not in stage.frontier.encoded
    assert stage.resume().status is RunStatus.COMPLETED
    assert len(log) == 1


def test_no_two_runs_and_no_two_tenants_share_a_key(log: list[str]) -> None:
    first, second = (Stage("memory", [calls(X), "done"], once(log)) for _ in range(2))
    second.world, second.run_id = first.world, first.run_id
    first.run()
    second.runner().run(second.agent, "go", tenant="other", run_id=second.run_id)
    assert log == ["once x"] * 2
    (other,) = second.stores.idempotency.look_up(second.run_id, tenant="other")
    assert other.key != first.claim("1.1").key


def test_a_twin_of_an_idempotent_call_is_not_made_beside_it(log: list[str]) -> None:
    stage = Stage("memory", [calls(X, X, Y), "done"], once(log, "idempotent"))
    assert stage.arun().status is RunStatus.COMPLETED
    assert sorted(log) == ["once x", "once y"]


def test_a_refusal_after_a_crash_in_the_middle_is_no_second_effect(log: list[str]) -> None:
    @tool(key_arguments=("what",))
    def once(what: str) -> str:
        log.append(what)
        if len(log) == 1:
            raise Crash
        return what

    stage = Stage("memory", [calls(X, X), "done"], once)
    with pytest.raises(Crash):
        stage.run()
    with pytest.raises(IndeterminateToolCallError):
        stage.resume()
    assert log == ["x"]
