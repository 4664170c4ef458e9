"""Cancelling: a request that the next step sees, that lets no further body in and throws no outcome away."""

import pytest

from adk_django.core.record import RunStatus
from adk_django.exceptions import CheckpointPassedError, ResumeError, RunConflictError
from tests.backends import TENANT
from tests.fake_tools import calls, effect, raises, usual
from tests.run_fixture import Stage


def test_a_run_cancelled_before_it_is_carried_on_asks_no_model_and_makes_no_call(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("book"), "done"], *usual(log))
    stage.die("commit facts")
    stage.cancel()
    asked = len(stage.provider.requests)
    result = stage.resume()
    assert (result.status, result.reason) == (RunStatus.CANCELLED, "cancelled by ann: enough")
    assert (len(stage.provider.requests), log, stage.lease) == (asked, [], None)
    assert stage.stores.checkpoints.latest(stage.run_id, tenant=TENANT) is None
    assert stage.resume().status is RunStatus.CANCELLED


def test_a_cancel_between_two_calls_holds_the_second_back(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("search", "book"), "done"], *usual(log))
    result = stage.disturbed("tool search", stage.cancel)
    assert (result.status, log) == (RunStatus.CANCELLED, ["search search"])
    assert list(stage.claims) == ["1.1"]


def test_a_body_that_is_claimed_is_entered_and_its_outcome_is_kept(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("book", "mail"), "done"], *usual(log))
    result = stage.disturbed("tool book", stage.cancel)
    assert (result.status, log) == (RunStatus.CANCELLED, ["book book"])
    outcome = stage.claim("1.1").outcome
    assert outcome is not None and outcome.value == "book book"
    assert stage.brought == ["after_model_call", "claim 1.1", "outcome 1.1, claim 1.2", "cancelled"]
    assert list(stage.claims) == ["1.1"]  # the second was held back


def test_a_call_in_flight_outlives_the_cancel_and_can_still_be_settled(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("book"), "done"], effect(log, "book", then=raises(OSError("cut"))))
    assert stage.run().status is RunStatus.UNDECIDED
    stage.cancel()
    assert stage.resume().status is RunStatus.CANCELLED
    assert stage.settle("1.1", "seat").outcome is not None


@pytest.mark.parametrize("agent", ["same", "none of its tools"])
def test_a_cancel_ends_a_run_that_cannot_be_carried_on(place: str, log: list[str], agent: str) -> None:
    stage = Stage(place, [calls("book"), calls("book"), "done"], *usual(log))
    stage.die("commit after_model_call", nth=2)
    old = stage.frontier
    stage.die("tool book")
    stage.forge_frontier(old)
    with pytest.raises(CheckpointPassedError):
        stage.resume()
    stage.cancel()
    assert stage.resume(None if agent == "same" else stage.agent_with()).status is RunStatus.CANCELLED


def test_a_cancel_ends_a_quarantined_run(log: list[str]) -> None:
    stage = Stage("memory", [calls("search"), "done"], *usual(log))
    for nth in range(6):
        stage.die("tool search" if nth else "model")
    with pytest.raises(ResumeError, match="quarantined"):
        stage.resume()
    stage.cancel()
    assert stage.resume().status is RunStatus.CANCELLED


def test_an_ended_run_changes_no_more(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("search"), "done"], *usual(log))
    stage.run()
    stage.cancel()
    result = stage.resume()
    assert (result.status, result.output) == (RunStatus.COMPLETED, "done")
    assert (stage.record.status, stage.record.cancel_requested_at) == (RunStatus.COMPLETED, None)
    with pytest.raises(RunConflictError):
        stage.run()
