"""Saves that fail: the run goes on, everybody can see it, and no frontier that the run has passed is resumed from."""

import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from adk_django import signals
from adk_django.core.checkpoint import CheckpointPolicy
from adk_django.core.messages import Usage
from adk_django.core.record import RunStatus
from adk_django.exceptions import (
    CheckpointPassedError,
    CheckpointTooLargeError,
    IndeterminateToolCallError,
    StoreUnavailableError,
)
from adk_django.execution import ports
from adk_django.execution.leaseholder import Leaseholder
from adk_django.stores.bundle import Stores
from tests.backends import TENANT
from tests.fake_tools import broken, calls, effect, raises, usual
from tests.run_fixture import Stage

BIG = ("search", {"what": "x" * 5_000})
CAP = CheckpointPolicy(max_bytes=5_000)


def failing(times: int = 1_000, error: Exception | None = None, skip: int = 0) -> Callable[[Stores], Stores]:
    """Return what makes the checkpoint store refuse ``times`` writes after ``skip`` good ones."""
    left = [skip, times]

    def put(real: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        if left[0] > 0:
            left[0] -= 1
        elif left[1] > 0:
            left[1] -= 1
            raise error or StoreUnavailableError("down")
        return real(*args, **kwargs)

    return broken("checkpoints", put=put)


def test_a_run_over_the_cap_completes_and_is_not_resumed_from_the_frontier_it_has_passed(
    place: str, log: list[str]
) -> None:
    script = [calls("book"), calls("mail"), calls(BIG), calls("touch"), "done"]
    assert Stage(place, script, *usual(log), policy=CAP).run().status is RunStatus.COMPLETED
    made, log[:] = list(log), []
    stage = Stage(place, script, *usual(log), policy=CAP)
    stage.die("tool touch")
    turn = stage.frontier.turn
    with pytest.raises(CheckpointPassedError, match="after_model_call"):
        stage.resume()
    assert (turn, stage.frontier.turn) == (2, 2)
    assert stage.record.status is RunStatus.UNDECIDED
    assert log == made[:-1]
    assert stage.lease is None


def test_records_of_a_later_turn_tell_that_the_frontier_was_passed(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("book"), calls("book"), "done"], *usual(log))
    stage.die("commit after_model_call", nth=2)
    old = stage.frontier
    stage.die("tool book")
    stage.forge_frontier(old)
    with pytest.raises(CheckpointPassedError, match=r"2\.1"):
        stage.resume()
    assert log == ["book book"]


def test_a_failed_save_is_seen_by_everybody(log: list[str], caplog: pytest.LogCaptureFixture) -> None:
    heard: list[dict[str, Any]] = []

    def hear(**kwargs: Any) -> None:
        heard.append(kwargs)

    stage = Stage("memory", [calls(BIG), "done"], *usual(log), policy=CAP)
    signals.save_failed.connect(hear)
    try:
        runner = stage.runner()
        with caplog.at_level(logging.WARNING, "adk_django"):
            runner.run(stage.agent, "go", tenant=TENANT, run_id=stage.run_id)
    finally:
        signals.save_failed.disconnect(hear)
    assert [item["boundary"] for item in heard] == ["after_model_call", "after_tool_result", "end"]
    assert all((item["tenant"], item["run_id"]) == (TENANT, stage.run_id) for item in heard)
    assert "over the cap of 5000" in heard[0]["error"]
    assert isinstance(runner.checkpointer.last_error, CheckpointTooLargeError)
    assert runner.checkpointer.error_for(stage.run_id, tenant=TENANT).startswith("end: the transcript delta has")
    assert caplog.text.count("a save failed") == 3


def test_the_end_is_recorded_even_where_its_text_is_over_the_cap(place: str, log: list[str]) -> None:
    stage = Stage(place, ["x" * 6_000], *usual(log), policy=CAP)
    assert stage.run().status is RunStatus.COMPLETED
    assert (stage.record.output, stage.brought) == ("x" * 6_000, ["completed"])
    assert (stage.record.usage, stage.record.failed_save[:3]) == (Usage(10, 5), "end")


def test_a_later_save_that_succeeds_makes_the_run_resumable_and_whole_again(log: list[str]) -> None:
    stage = Stage("memory", [calls("search"), calls("book"), "done"], *usual(log), wrap=failing(2))
    stage.die("tool book")
    assert (stage.record.failed_save, stage.frontier.turn) == ("", 2)
    stage.wrap = lambda stores: stores
    stage.settle("2.1", "seat")
    assert stage.resume().status is RunStatus.COMPLETED
    assert len(stage.provider.requests[-1].messages) == 5


@pytest.mark.parametrize("error", [StoreUnavailableError("down"), OSError("disk full"), ValueError("no")])
def test_no_error_of_a_checkpoint_store_fails_the_run(log: list[str], error: Exception) -> None:
    stage = Stage("memory", [calls("book", "touch"), "done"], *usual(log), wrap=failing(error=error))
    assert stage.run().status is RunStatus.COMPLETED
    assert log == ["book book", "touch touch"]
    assert str(error) in stage.record.failed_save


def test_an_idempotent_call_is_claimed_where_its_frontier_could_not_be_saved(log: list[str]) -> None:
    stage = Stage("memory", [calls("touch"), "done"], *usual(log), wrap=failing(1))
    assert stage.run().status is RunStatus.COMPLETED
    assert stage.brought == ["failed", "claim 1.1", "after_tool_result, outcome 1.1", "completed"]


def test_a_run_whose_first_frontier_was_refused_has_begun_all_the_same(log: list[str]) -> None:
    stage = Stage("memory", [calls("book"), "done"], *usual(log), wrap=failing(1))
    stage.die("tool book")
    assert stage.record.begun_at is not None
    stage.wrap = lambda stores: stores
    with pytest.raises(CheckpointPassedError):
        stage.resume()
    assert len(stage.provider.requests) == 1


def test_a_save_that_takes_too_long_counts_as_failed(log: list[str]) -> None:
    never = threading.Event()
    sleeps = broken("checkpoints", put=lambda *args, **kwargs: never.wait())

    def wrap(stores: Stores) -> Stores:
        return replace(sleeps(stores), save_timeout_seconds=0.02)

    stage = Stage("memory", [calls("book"), "done"], *usual(log), wrap=wrap)
    assert stage.run().status is RunStatus.COMPLETED
    assert "took longer" in stage.record.failed_save
    never.set()


def test_nobody_is_asked_where_the_store_is_down_and_the_run_goes_on_later(log: list[str]) -> None:
    stage = Stage("memory", [calls("search", "wire"), "done"], *usual(log), wrap=failing(skip=1))
    with pytest.raises(StoreUnavailableError):
        stage.run()
    assert stage.stores.runs.approvals(stage.run_id, tenant=TENANT) == ()
    assert (stage.record.status, stage.record.failed_save, stage.lease) == (RunStatus.ACTIVE, "", None)
    assert "next try at" in stage.record.reason
    stage.wrap = lambda stores: stores
    assert stage.claim("1.1").outcome is not None
    assert stage.resume().status is RunStatus.WAITING
    assert log == ["search search"]


def test_a_claim_that_cannot_be_written_is_no_save_and_enters_nothing(log: list[str]) -> None:
    down = broken("idempotency", begin=raises(StoreUnavailableError("down")))
    stage = Stage("memory", [calls("book"), "done"], *usual(log), wrap=down)
    with pytest.raises(StoreUnavailableError):
        stage.run()
    assert (log, stage.record.status, stage.lease) == ([], RunStatus.ACTIVE, None)
    stage.wrap = lambda stores: stores
    assert stage.resume().status is RunStatus.COMPLETED
    assert log == ["book book"]


def test_what_cannot_be_kept_as_a_result_is_told_and_counts_as_made(log: list[str]) -> None:
    stage = Stage(
        "memory", [calls("book"), "done"], effect(log, "book", then=lambda context: [{"lock": threading.Lock()}])
    )
    assert stage.run().status is RunStatus.COMPLETED
    (told,) = stage.results
    assert told.startswith(
        "the call was made and returned, but its result could not be kept: _thread.lock at $.value[0].lock"
    )
    assert stage.claim("1.1").state == "done"
    big = Stage("memory", [calls("book"), "done"], effect(log, "book", then=lambda context: "x" * 300_000))
    assert big.run().status is RunStatus.COMPLETED
    assert "over the cap of 262144" in big.results[0]


def test_lone_surrogates_and_nul_travel_through_every_save(place: str, log: list[str]) -> None:
    text = "a\u0000b \ud83d c \ude00"
    stage = Stage(place, [calls(("wire", {"what": text}), ("book", {"what": text})), text], *usual(log))
    assert stage.run().status is RunStatus.WAITING
    stage.decide("1.1")
    stage.die("commit after_tool_result", "after")
    assert stage.resume().status is RunStatus.COMPLETED
    assert stage.results == [f"wire {text}", f"book {text}"]
    assert stage.record.output == text
    fails = Stage(place, [calls("book"), "done"], effect(log, "book", then=raises(ValueError(text))))
    assert fails.run().status is RunStatus.UNDECIDED
    assert fails.claim("1.1").error == f"ValueError: {text}"


def test_an_outcome_is_written_again_and_again_until_the_store_takes_it(
    log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "RETRY_SECONDS", 0)
    left = [StoreUnavailableError("down")] * 3

    def record(real: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if left:
            raise left.pop()
        return real(*args, **kwargs)

    stage = Stage("memory", [calls("book"), "done"], *usual(log), wrap=broken("idempotency", record=record))
    assert stage.run().status is RunStatus.COMPLETED
    assert (log, left) == (["book book"], [])


def test_an_outcome_that_no_store_took_until_the_lease_ended_leaves_its_call_in_doubt(
    log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ports, "RETRY_SECONDS", 0)
    tries: list[int] = []
    monkeypatch.setattr(Leaseholder, "late", property(lambda holder: len(tries) > 3))

    def record(real: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        tries.append(1)
        raise StoreUnavailableError("down")

    stage = Stage("memory", [calls("book"), "done"], *usual(log), wrap=broken("idempotency", record=record))
    with pytest.raises(StoreUnavailableError):
        stage.run()
    assert (len(tries), stage.lease, stage.record.status) == (4, None, RunStatus.ACTIVE)
    stage.wrap = lambda stores: stores
    with pytest.raises(IndeterminateToolCallError):
        stage.resume()
    assert log == ["book book"]
