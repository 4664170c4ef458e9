"""Slices that end before their run stands still: long ones, and those of a worker that leaves."""

import asyncio
from typing import Any

import pytest

from adk_django.concurrency import forget_pool
from adk_django.core.record import RunStatus
from adk_django.execution import handover
from tests.backends import TENANT
from tests.fake_tools import calls, effect, usual
from tests.run_fixture import Stage


def slices(stage: Stage, leave: Any) -> int:
    """Carry a run to its end, slice by slice; return how many there were."""
    stage.runner().create(stage.agent, "go", tenant=TENANT, run_id=stage.run_id, user=None)
    for number in range(1, 50):
        result = stage.resume(leave=leave())
        if not result.handed_over:
            assert result.status is RunStatus.COMPLETED
            return number
        assert (result.status, stage.lease, stage.record.status) == (RunStatus.ACTIVE, None, RunStatus.ACTIVE)
    raise AssertionError("no end")


def test_a_long_run_is_handed_over_and_commits_the_same(place: str, log: list[str], settings: Any) -> None:
    script = [calls("book", "search"), calls("touch", "mail"), "done"]
    whole = Stage(place, script, *usual(log))
    assert slices(whole, lambda: None) == 1
    settings.ADK = {"CONTINUE": {"max_steps": 1}}
    parts = Stage(place, script, *usual(log))
    assert slices(parts, handover.HandOver) > 3
    # A call that was claimed when the slice was to end is given back, and claimed again by the next one.
    again = parts.brought.index("abandoned 2.2")
    assert parts.brought[again + 1] == "claim 2.2"
    assert parts.brought[:again] + parts.brought[again + 2 :] == whole.brought
    assert log[: len(log) // 2] == log[len(log) // 2 :]


def test_a_slice_is_handed_over_once_half_its_time_is_gone(
    place: str, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(handover.time, "monotonic", lambda: now[0])
    passes = effect(log, "book", then=lambda context: now.__setitem__(0, now[0] + 31.0))
    stage = Stage(place, [calls("book"), calls("book"), "done"], passes)
    assert slices(stage, lambda: handover.HandOver(60.0)) == 3
    assert log == ["book book", "book book"]


def test_a_worker_that_leaves_ends_its_slices_behind_the_next_commit(place: str, log: list[str]) -> None:
    leaves = effect(log, "book", then=lambda context: handover.leave())
    stage = Stage(place, [calls("book", "search"), "done"], leaves, *usual(log)[:1])
    handover.stay()
    try:
        stage.runner().create(stage.agent, "go", tenant=TENANT, run_id=stage.run_id, user=None)
        assert stage.resume(leave=handover.HandOver()).handed_over
        assert (log, stage.brought[-1]) == (["book book"], "outcome 1.1")
    finally:
        handover.stay()
    assert stage.resume(leave=handover.HandOver()).status is RunStatus.COMPLETED
    assert log == ["book book", "search search"]


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("kind", ["effectful", "transactional"])
def test_a_worker_that_leaves_begins_no_other_call_of_the_turn(
    alias: str, log: list[str], kind: str, asynchronous: bool
) -> None:
    options = {"using": alias} if kind == "transactional" else {}
    leaves = effect(log, "book", kind, then=lambda context: handover.leave(), **options)
    stage = Stage(alias, [calls("book", "book", "book"), "done"], leaves)
    stage.runner().create(stage.agent, "go", tenant=TENANT, run_id=stage.run_id, user=None)
    ends = []
    for _ in range(3):
        handover.stay()
        leave, runner = handover.HandOver(), stage.runner()
        try:
            if asynchronous:
                result = asyncio.run(runner.aresume(stage.agent, stage.run_id, tenant=TENANT, leave=leave))
            else:
                result = runner.resume(stage.agent, stage.run_id, tenant=TENANT, leave=leave)
            ends.append((result.handed_over, len(log)))
        finally:
            handover.stay()
    assert ends == [(True, 1), (True, 2), (True, 3)]
    assert stage.resume().status is RunStatus.COMPLETED
    assert len(log) == 3
    forget_pool()
