"""Outcomes that come too late: kept beside the claim, believed where nobody has answered, and never written over."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from adk_django import signals
from adk_django.core.effects import ClaimState, Outcome, OutcomeKind
from adk_django.core.record import RunStatus
from adk_django.exceptions import IndeterminateToolCallError, LeaseLostError, SettlementError
from adk_django.tools import ToolContext, done, not_done
from tests.backends import TENANT
from tests.fake_tools import calls, effect
from tests.run_fixture import Stage

SEAT = Outcome.of(OutcomeKind.RETURNED, "seat 12A")


def late(place: str, log: list[str], meanwhile: Callable[[Stage], Any], **options: Any) -> Stage:
    """Run an effect whose worker is superseded in the middle of it; return the stage once that worker is gone."""
    stages: list[Stage] = []

    def then(context: ToolContext) -> str:
        if len(log) == 1:
            stages[0].world.steal(stages[0].run_id)
            meanwhile(stages[0])
        return f"seat {context.attempt}"

    stages.append(Stage(place, [calls("book"), "done"], effect(log, "book", then=then, **options)))
    with pytest.raises(LeaseLostError):
        stages[0].run()
    return stages[0]


@pytest.fixture
def contradicted() -> Iterator[list[str]]:
    heard: list[str] = []

    def hear(call: str, **kwargs: Any) -> None:
        heard.append(call)

    signals.evidence_contradicts.connect(hear)
    yield heard
    signals.evidence_contradicts.disconnect(hear)


def test_a_late_outcome_of_a_call_in_flight_settles_it(place: str, log: list[str], contradicted: list[str]) -> None:
    stage = late(place, log, lambda stage: None)
    claim = stage.claim("1.1")
    assert (claim.state, claim.outcome) == (ClaimState.IN_FLIGHT, None)
    assert claim.evidence is not None and claim.evidence_at is not None
    assert stage.resume().status is RunStatus.COMPLETED
    assert (log, stage.results, stage.claim("1.1").settled_by) == (["book book"], ["seat 1"], "evidence")
    assert contradicted == []


def test_a_late_outcome_voids_a_settlement_as_never_ran_and_a_person_answers_once_more(
    place: str, log: list[str], contradicted: list[str]
) -> None:
    asked: list[str] = []

    def probe(context: ToolContext, what: str) -> Any:
        asked.append(what)
        return not_done

    stage = late(place, log, lambda stage: stage.settle("1.1", happened=False), probe=probe)
    claim = stage.claim("1.1")
    assert (claim.state, claim.contested) == (ClaimState.IN_FLIGHT, True)
    assert claim.evidence is not None
    with pytest.raises(IndeterminateToolCallError):
        stage.resume()
    assert (asked, contradicted, log) == ([], ["1.1"], ["book book"])
    stage.settle("1.1", "seat 12A")
    assert stage.resume().status is RunStatus.COMPLETED
    assert (log, stage.results) == (["book book"], ["seat 12A"])


def test_a_late_outcome_of_a_call_made_again_is_told_and_changes_nothing(
    place: str, log: list[str], contradicted: list[str]
) -> None:
    def meanwhile(stage: Stage) -> None:
        stage.settle("1.1", happened=False)
        assert stage.resume().status is RunStatus.COMPLETED

    stage = late(place, log, meanwhile)
    claim = stage.claim("1.1")
    assert (claim.state, claim.attempt, claim.evidence) == (ClaimState.DONE, 2, None)
    assert claim.outcome is not None and claim.outcome.value == "seat 2"
    assert (contradicted, stage.record.status) == (["1.1"], RunStatus.COMPLETED)


def test_a_late_outcome_that_comes_between_reading_and_claiming_again_holds_the_claim_back(
    place: str, log: list[str], contradicted: list[str]
) -> None:
    stage = Stage(place, [calls("book"), "done"], effect(log, "book"))
    stage.die("tool book", "after")
    first = stage.claim("1.1")
    stage.settle("1.1", happened=False)
    with pytest.raises(IndeterminateToolCallError):
        stage.disturbed("commit", lambda: stage.stores.idempotency.evidence(first, SEAT))
    claim = stage.claim("1.1")
    assert (log, contradicted, stage.record.status) == (["book book"], ["1.1"], RunStatus.UNDECIDED)
    assert (claim.token, claim.contested, claim.evidence) == (first.token, True, SEAT)


def test_a_late_outcome_of_a_call_settled_completed_is_kept_and_changes_nothing(
    place: str, log: list[str], contradicted: list[str]
) -> None:
    stage = late(place, log, lambda stage: stage.settle("1.1", "seat 12A"))
    claim = stage.claim("1.1")
    assert claim.outcome is not None and claim.evidence is not None
    assert (claim.state, claim.outcome.value, claim.evidence.value) == (ClaimState.DONE, "seat 12A", "seat 1")
    assert stage.resume().status is RunStatus.COMPLETED
    assert (stage.results, contradicted) == (["seat 12A"], [])


def test_an_outcome_that_came_with_a_refused_claim_is_kept_and_that_claim_is_not(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("book", "mail"), "done"], effect(log, "book"), effect(log, "mail"))
    with pytest.raises(LeaseLostError):
        stage.disturbed("commit facts", lambda: stage.world.steal(stage.run_id), nth=2)
    evidence = stage.claim("1.1").evidence
    assert (list(stage.claims), evidence and evidence.value) == (["1.1"], "book book")
    assert stage.resume().status is RunStatus.COMPLETED
    assert log == ["book book", "mail mail"]


def test_an_answer_is_given_once_and_not_before_the_call_can_no_longer_be_made(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("book"), "done"], effect(log, "book"))
    deadline = _in_flight(stage)
    with pytest.raises(SettlementError) as refusal:
        stage.settle("1.1", happened=False)
    assert deadline[:19] in str(refusal.value)
    stage.age(331)
    stage.settle("1.1", happened=False)
    stage.settle("1.1", happened=False)
    with pytest.raises(SettlementError):
        stage.settle("1.1", "seat")
    with pytest.raises(SettlementError):
        stage.settle("1.2", "seat")


def _in_flight(stage: Stage) -> str:
    """Leave call 1.1 in flight under a dead worker, with all its time left; return its deadline."""
    stage.die("tool book", ages=False)
    claim = stage.claim("1.1")
    assert claim.begun_at is not None and claim.deadline_at is not None
    assert (claim.deadline_at - claim.begun_at).total_seconds() == pytest.approx(330)
    return claim.deadline_at.isoformat()


def test_a_probe_is_believed_about_what_was_done_and_before_the_deadline_about_nothing_else(
    place: str, log: list[str]
) -> None:
    answers = iter([not_done, not_done, not_done])

    def probe(context: ToolContext, what: str) -> Any:
        return next(answers)

    stage = Stage(place, [calls("book"), "done"], effect(log, "book", probe=probe))
    _in_flight(stage)
    stage.age(61)  # past the lease, before the deadline
    with pytest.raises(IndeterminateToolCallError):
        stage.resume()
    assert (stage.record.status, stage.record.wake_at) == (RunStatus.ACTIVE, stage.claim("1.1").deadline_at)
    assert stage.record.reason.startswith("probe again at ")
    stage.age(300)
    assert stage.resume().status is RunStatus.COMPLETED
    assert (log, stage.claim("1.1").attempt) == (["book book"], 2)


def test_a_probe_is_not_believed_against_an_outcome_that_came_while_it_was_asked(place: str, log: list[str]) -> None:
    stages: list[Stage] = []

    def probe(context: ToolContext, what: str) -> Any:
        stages[0].stores.idempotency.evidence(stages[0].claim("1.1"), SEAT)
        return not_done

    stages.append(Stage(place, [calls("book"), "done"], effect(log, "book", probe=probe)))
    stages[0].die("tool book", "after")
    assert stages[0].resume().status is RunStatus.COMPLETED
    assert (log, stages[0].results, stages[0].claim("1.1").settled_by) == (["book book"], ["seat 12A"], "evidence")


@pytest.mark.parametrize("broken", [lambda *given, **kwargs: 1 / 0, lambda *given, **kwargs: "perhaps"])
def test_a_probe_that_fails_or_babbles_says_nothing(log: list[str], broken: Callable[..., Any]) -> None:
    stage = Stage("memory", [calls("book"), "done"], effect(log, "book", probe=broken))
    stage.die("tool book")
    with pytest.raises(IndeterminateToolCallError):
        stage.resume()
    assert (stage.record.status, log) == (RunStatus.UNDECIDED, [])


def test_a_probe_is_asked_once_a_slice_and_only_after_what_is_known_is_written(place: str, log: list[str]) -> None:
    asked: list[tuple[str, str]] = []
    stages: list[Stage] = []

    def probe(context: ToolContext, what: str) -> Any:
        asked.append((context.idempotency_key, str(stages[0].claim("1.1").outcome and "known")))
        return done({"seat": "12A"})

    def cut(context: ToolContext) -> None:
        raise OSError("cut")

    tools = effect(log, "mail"), effect(log, "book", then=cut, probe=probe)
    stages.append(Stage(place, [calls("mail", "book"), "done"], *tools))
    assert stages[0].run().status is RunStatus.COMPLETED
    assert asked == [(stages[0].claim("1.2").key, "known")]
    assert stages[0].results == ["mail mail", {"seat": "12A"}]
    assert (log, stages[0].claim("1.2").settled_by) == (["mail mail", "book book"], "probe")
    assert stages[0].brought[2:5] == ["outcome 1.1, claim 1.2", "error 1.2", "settled 1.2 by probe"]


def _join(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name.startswith(name):
            thread.join(5)


def test_what_a_body_left_at_its_limit_still_returns_settles_the_call(log: list[str]) -> None:
    go = threading.Event()
    secret = "Bearer " + "sk-live-" + "a1B2c3D4e5F6g7H8"

    def slow(context: ToolContext) -> str:
        go.wait(5)
        return secret

    stage = Stage("memory", [calls("book"), "done"], effect(log, "book", then=slow, time_limit_seconds=0.02))
    assert stage.run().status is RunStatus.UNDECIDED
    assert stage.claim("1.1").error.startswith("TimeoutError")
    go.set()
    _join("adk-work")
    evidence = stage.claim("1.1").evidence
    assert evidence is not None and "a1B2" not in evidence.value
    assert stage.record.wake_at is not None
    assert stage.resume().status is RunStatus.COMPLETED
    assert log == ["book book"]


def test_what_a_body_still_returns_after_its_loop_was_cancelled_is_kept(log: list[str]) -> None:
    entered, go = threading.Event(), threading.Event()

    def slow(context: ToolContext) -> str:
        entered.set()
        go.wait(5)
        return "seat"

    stage = Stage("memory", [calls("book"), "done"], effect(log, "book", then=slow))

    async def interrupted() -> None:
        task = asyncio.ensure_future(stage.runner().arun(stage.agent, "go", tenant=TENANT, run_id=stage.run_id))
        await asyncio.to_thread(entered.wait, 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(interrupted())
    assert (stage.lease, stage.record.status) == (None, RunStatus.ACTIVE)
    go.set()
    _join("adk-work")
    assert stage.resume().status is RunStatus.COMPLETED
    assert (log, stage.results) == (["book book"], ["seat"])
