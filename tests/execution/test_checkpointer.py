"""The checkpointer: masks before it sizes, refuses what is too large and never what is a fact."""

from dataclasses import replace
from typing import Any

import pytest

from adk_django import signals
from adk_django.core.checkpoint import Checkpoint, CheckpointBoundary, CheckpointPolicy, HistoryHandle, PendingCall
from adk_django.core.effects import Claim, EffectClass, Outcome, OutcomeKind, Slot
from adk_django.core.messages import BinaryPart, Message, OpaquePart, TextPart, ToolCall, ToolResult
from adk_django.core.record import Approval, RunStatus, Writes
from adk_django.exceptions import CheckpointTooLargeError, ConfigurationError
from adk_django.execution.checkpointer import Checkpointer
from adk_django.stores.memory import MemoryCheckpointStore
from tests.backends import TENANT
from tests.fake_tools import calls, effect, raises, usual
from tests.run_fixture import Stage

SECRET = "Bearer " + "sk-live-" + "a1B2c3D4e5F6g7H8"
SLOT = Slot(1, 1)
CLAIM = Claim(TENANT, "run_1", SLOT, "key", "book", EffectClass.EFFECTFUL, token="t")


def writes(text: str) -> Writes:
    """Return a commit that holds ``text`` wherever one can."""
    handle = HistoryHandle(TENANT, "run_1")
    call = PendingCall(SLOT, "id", "book", {"token": text}, result=Outcome.of(OutcomeKind.INVALID, text))
    frontier = Checkpoint(
        "run_1", TENANT, "booking", CheckpointBoundary.BEFORE_APPROVAL, 1, history_handle=handle, pending=(call,)
    )
    parts = (
        TextPart(text, {"note": text}),
        ToolCall("id", "book", {"what": [text]}, {"note": text}),
        ToolResult("id", "book", {"what": text}),
        OpaquePart({"what": text}),
    )
    return Writes(
        frontier=frontier,
        delta=(Message("assistant", parts, {"note": text}),),
        extends=handle,
        outcomes=(replace(CLAIM, outcome=Outcome.of(OutcomeKind.RETURNED, {"what": text})),),
        failures=(replace(CLAIM, error=text),),
        requests=(Approval(TENANT, "run_1", "req-1", SLOT, "book", "d", {"what": text}),),
        status=RunStatus.WAITING,
        reason=text,
        output=text,
    )


def prepared(sent: Writes, **options: Any) -> Writes:
    checkpointer = Checkpointer(MemoryCheckpointStore(), options.pop("policy", None), **options)
    return checkpointer.prepare(sent, tenant=TENANT, run_id="run_1")


def test_a_secret_is_masked_wherever_a_commit_holds_text() -> None:
    sent = prepared(writes(SECRET))
    assert "a1B2c3D4" in repr(writes(SECRET))
    assert "a1B2c3D4" not in repr(sent)
    assert sent.frontier is not None and sent.delta and sent.requests and not sent.failed_save


def test_patterns_of_the_product_come_on_top_and_trusted_stores_need_no_masking() -> None:
    assert "EMP-1234" not in repr(prepared(writes("EMP-1234"), extra_patterns=(r"EMP-\d+",)))
    assert "a1B2c3D4" in repr(prepared(writes(SECRET), redact=False))


@pytest.mark.parametrize("pattern", ["(", "a**", ""])
def test_a_pattern_that_cannot_work_is_refused_at_construction(pattern: str) -> None:
    with pytest.raises(ConfigurationError, match="extra_patterns"):
        Checkpointer(MemoryCheckpointStore(), extra_patterns=(pattern,))


def test_bytes_are_left_alone() -> None:
    message = Message("user", (BinaryPart(SECRET.encode(), "image/png"),))
    sent = prepared(replace(writes("x"), delta=(message,)))
    assert sent.delta == (message,)


def test_masking_comes_before_sizing() -> None:
    cap = CheckpointPolicy(max_bytes=5_000)
    assert prepared(writes("X" * 9_000), policy=cap).frontier is None
    assert prepared(writes("X" * 9_000), policy=cap, extra_patterns=("X+",)).frontier is not None


@pytest.mark.parametrize("part", ["frontier", "delta"])
@pytest.mark.parametrize(("over", "refused"), [(0, False), (1, True)])
def test_the_cap_is_exact_and_bounds_frontier_and_delta_each(part: str, over: int, refused: bool) -> None:
    some = replace(writes("x"), delta=()) if part == "frontier" else replace(writes("x"), frontier=None)
    sent = prepared(some)
    size = len(sent.frontier.encoded) if sent.frontier else sum(len(message.encoded) for message in sent.delta)
    cut = prepared(some, policy=CheckpointPolicy(max_bytes=size - over))
    assert bool(cut.failed_save) is refused


def test_what_is_a_fact_goes_out_where_progress_is_refused() -> None:
    heard: list[Any] = []

    def hear(**kwargs: Any) -> None:
        heard.append((kwargs["run_id"], kwargs["boundary"]))

    signals.save_failed.connect(hear)
    checkpointer = Checkpointer(MemoryCheckpointStore(), CheckpointPolicy(max_bytes=10))
    sent = checkpointer.prepare(writes("x"), tenant=TENANT, run_id="run_1")
    signals.save_failed.disconnect(hear)
    assert (sent.frontier, sent.delta, sent.requests, sent.status) == (None, (), (), RunStatus.ACTIVE)
    assert sent.outcomes and sent.failures
    assert sent.failed_save is not None and sent.failed_save.startswith("before_approval: ")
    assert isinstance(checkpointer.last_error, CheckpointTooLargeError)
    assert (checkpointer.last_error.cap, heard) == (10, [("run_1", "before_approval")])


def test_a_receiver_that_raises_stops_no_run(log: list[str]) -> None:
    hear = raises(ValueError("receiver"))
    for signal in (signals.save_failed, signals.run_stopped):
        signal.connect(hear)
    try:
        stage = Stage("memory", [calls("search"), "done"], *usual(log), policy=CheckpointPolicy(max_bytes=10))
        assert stage.run().status is RunStatus.COMPLETED
    finally:
        for signal in (signals.save_failed, signals.run_stopped):
            signal.disconnect(hear)


def test_a_value_that_cannot_be_kept_refuses_the_save_and_not_the_run() -> None:
    broken = replace(writes("x"), delta=(Message("user", (OpaquePart({"lock": object()}),)),))
    sent = prepared(broken)
    assert sent.frontier is None
    assert "$.parts[0].data.lock: object cannot be kept" in (sent.failed_save or "")


def test_no_secret_is_in_clear_in_any_row_of_a_run(place: str, log: list[str]) -> None:
    given = ("wire", {"what": SECRET})
    fails = effect(log, "mail", then=raises(OSError(SECRET)))
    stage = Stage(
        place,
        [[given, ("search", {"what": SECRET}), ("mail", {"what": "x"})], SECRET],
        fails,
        *usual(log)[:3],
        usual(log)[4],
    )
    stage.runner().run(stage.agent, f"use {SECRET}", tenant=TENANT, run_id=stage.run_id)
    stage.decide("1.1", grant=False)
    stage.resume()
    assert "a1B2c3D4" not in stage.everything()


def test_the_live_run_goes_on_with_what_really_came_back(log: list[str]) -> None:
    stage = Stage("memory", [calls("search"), "done"], effect(log, "search", "read_only", lambda context: SECRET))
    stage.run()
    assert stage.results == [SECRET]
    stored = stage.claim("1.1").outcome
    assert stored is not None and stored.value != SECRET


def test_the_newest_frontier_and_the_note_are_asked_of_the_store(log: list[str]) -> None:
    stage = Stage("memory", [calls("book"), "done"], *usual(log))
    stage.die("tool book")
    checkpointer = stage.runner().checkpointer
    assert checkpointer.latest(stage.run_id, tenant=TENANT) == stage.frontier
    assert checkpointer.latest(stage.run_id, tenant="other") is None
    assert checkpointer.error_for(stage.run_id, tenant=TENANT) == ""
