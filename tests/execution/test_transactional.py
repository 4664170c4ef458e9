"""Transactional tools: rows of the product and the record of the call are one commit, or nothing."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import IntegrityError, transaction

from adk_django.core.effects import ClaimState, OutcomeKind
from adk_django.core.record import RunStatus
from adk_django.exceptions import ConfigurationError, LeaseLostError
from adk_django.tools import Tool, ToolContext, tool
from tests.fake_tools import calls, usual
from tests.run_fixture import Stage

TWICE = "the same name"


@pytest.fixture(params=["default", "postgres"])
def place(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def note(place: str, then: Callable[[], Any] = lambda: None, **options: Any) -> Tool:
    def note(what: str, context: ToolContext) -> str:
        Group.objects.using(place).create(name=what)
        then()
        return f"note {what} {context.idempotency_key[:2]}{context.attempt}"

    return tool("transactional", using=place, **options)(note)


def rows(place: str) -> list[str]:
    return sorted(Group.objects.using(place).values_list("name", flat=True))


def test_rows_and_outcome_are_one_commit_and_there_is_no_claim_before_it(place: str, log: list[str]) -> None:
    stage = Stage(
        place, [calls("note"), calls("search", "book", "note2"), "done"], note(place), *usual(log), _second(place)
    )
    assert stage.run().status is RunStatus.COMPLETED
    assert stage.brought == [
        "after_model_call",
        "after_tool_result, outcome 1.1",
        "after_model_call",
        "outcome 2.1, claim 2.2",
        "outcome 2.2",
        "after_tool_result, outcome 2.3",
        "completed",
    ]
    assert rows(place) == ["note", "note2"]
    assert stage.claim("1.1").token is None


def _second(place: str) -> Tool:
    def note2(what: str) -> str:
        Group.objects.using(place).create(name=what)
        return what

    return tool("transactional", using=place)(note2)


def test_one_that_is_not_the_last_takes_the_next_claim_along(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("note", "book"), "done"], note(place), *usual(log))
    assert stage.run().status is RunStatus.COMPLETED
    assert stage.brought[1:3] == ["outcome 1.1, claim 1.2", "after_tool_result, outcome 1.2"]


@pytest.mark.parametrize("at", ["tool note", "commit after_tool_result"])
def test_a_crash_inside_leaves_neither_row_nor_record(place: str, log: list[str], at: str) -> None:
    stage = Stage(place, [calls("note"), "done"], note(place))
    stage.die(at)
    assert (rows(place), stage.claims) == ([], {})
    assert stage.resume().status is RunStatus.COMPLETED
    assert rows(place) == ["note"]


def test_a_body_that_raises_is_rolled_back_and_told(place: str, log: list[str]) -> None:
    def fail() -> None:
        raise ValueError("no")

    stage = Stage(place, [calls("note"), "done"], note(place, fail))
    assert stage.run().status is RunStatus.COMPLETED
    assert (rows(place), stage.results) == ([], ["ValueError: no"])
    assert stage.claim("1.1").state is ClaimState.FAILED


def test_a_fence_that_was_lost_inside_rolls_back(place: str, log: list[str]) -> None:
    stages: list[Stage] = []
    stages.append(Stage(place, [calls("note"), "done"], note(place, lambda: stages[0].world.steal(stages[0].run_id))))
    stage = stages[0]
    with pytest.raises(LeaseLostError):
        stage.run()
    assert (rows(place), stage.claims) == ([], {})


def test_a_transaction_the_body_broke_is_an_error_and_not_tried_for_ever(place: str, log: list[str]) -> None:
    Group.objects.using(place).create(name=TWICE)

    def breaks() -> None:
        try:
            with transaction.atomic(using=place, savepoint=False):
                Group.objects.using(place).create(name=TWICE)
        except IntegrityError:
            return

    stage = Stage(place, [calls("note"), "done"], note(place, breaks))
    assert stage.run().status is RunStatus.COMPLETED
    outcome = stage.claim("1.1").outcome
    assert outcome is not None and outcome.kind is OutcomeKind.FAILED
    assert rows(place) == [TWICE]


def test_an_interruption_rolls_back_and_the_call_never_ran(place: str, log: list[str]) -> None:
    def interrupt() -> None:
        if len(rows(place)) == 1 and not log:
            log.append("interrupted")
            raise KeyboardInterrupt

    stage = Stage(place, [calls("note"), "done"], note(place, interrupt))
    with pytest.raises(KeyboardInterrupt):
        stage.run()
    assert (rows(place), stage.lease) == ([], None)
    assert stage.resume().status is RunStatus.COMPLETED
    assert rows(place) == ["note"]


def test_one_that_must_be_approved_waits_and_is_made_once(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("note"), "done"], note(place, requires_approval=True))
    assert stage.run().status is RunStatus.WAITING
    assert rows(place) == []
    stage.decide("1.1")
    stage.die("commit after_tool_result", "after")
    assert stage.resume().status is RunStatus.COMPLETED
    assert rows(place) == ["note"]


def test_strictness_claims_none_of_them(place: str, log: list[str], settings: Any) -> None:
    settings.ADK = {"RESUME": {"strict": True}}
    stage = Stage(place, [calls("note", "search"), "done"], note(place), *usual(log))
    assert stage.run().status is RunStatus.COMPLETED
    assert stage.brought == [
        "after_model_call",
        "outcome 1.1, claim 1.2",
        "after_tool_result, outcome 1.2",
        "completed",
    ]


def test_it_needs_the_stores_of_its_own_database(place: str, log: list[str]) -> None:
    stage = Stage("memory", [calls("note"), "done"], note(place))
    with pytest.raises(ConfigurationError, match="transactional on"):
        stage.run()
    assert (rows(place), stage.lease) == ([], None)
