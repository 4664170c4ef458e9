"""Celery's tasks, called as a worker calls them: what they report, and what they never say."""

import asyncio
from typing import Any

import pytest

from adk_django import agents, models, runs, tasks
from adk_django.concurrency import forget_pool
from adk_django.core.record import RunStatus
from adk_django.exceptions import StoreUnavailableError
from adk_django.execution import handover, ports
from tests.backends import TENANT
from tests.celery_apps import celery_app
from tests.fake_tools import calls, raises, usual
from tests.run_fixture import Stage

SECRET = "canary-4711"


@pytest.fixture
def stage(log: list[str], transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Return a stage on the alias that tasks look at, whose agent is registered."""
    made = Stage("default", [calls("book"), "done"], *usual(log))
    monkeypatch.setattr(agents, "_registry", {"booking": made.agent})
    runs.start("booking", SECRET, tenant=TENANT, run_id=made.run_id)
    return made


def resumed(stage: Stage) -> Any:
    """Call the task as it is called by a worker."""
    return tasks.resume_run(TENANT, stage.run_id)


def test_a_task_carries_its_run_on_and_says_how_it_stopped(stage: Stage, log: list[str]) -> None:
    assert resumed(stage) == "completed"
    assert resumed(stage) == "left"  # it has ended
    assert log == ["book book"]


def test_a_run_that_another_worker_holds_is_left(stage: Stage, log: list[str]) -> None:
    stage.acquired()
    assert resumed(stage) == "resume-conflict"
    assert log == []


def test_an_error_nobody_foresaw_says_where_it_was_raised_and_not_what_it_holds(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(ports.RunPorts, "tools", raises(ZeroDivisionError(SECRET)))
    with caplog.at_level("DEBUG"):
        assert resumed(stage) == "fault"
    assert "ZeroDivisionError" in caplog.text
    assert "fake_tools.py" in caplog.text
    assert SECRET not in caplog.text
    assert stage.record.reason.startswith("the worker failed, next try at ")


def test_a_worker_that_leaves_begins_nothing_and_asks_another(stage: Stage, log: list[str]) -> None:
    handover.leave()
    try:
        with celery_app("memory://") as app:
            assert resumed(stage) == "left"
            with app.connection_for_read() as connection:
                queue = connection.SimpleQueue("adk")
                assert tuple(queue.get_nowait().payload[0]) == (TENANT, stage.run_id)
                queue.close()
    finally:
        handover.stay()
    assert (log, stage.lease) == ([], None)


def test_a_sweep_and_a_prune_say_how_many(stage: Stage) -> None:
    with celery_app("memory://") as app:
        assert tasks.sweep() == 1
        with app.connection_for_read() as connection:
            connection.default_channel.queue_purge("adk")
    assert asyncio.run(runs.asweep()).taken == ()
    resumed(stage)
    assert tasks.prune() == 0
    models.Run.objects.update(updated_at="2020-01-01T00:00:00+00:00")
    assert tasks.prune() == 1
    assert asyncio.run(runs.aprune()) == ()
    assert stage.stores.runs.get(stage.run_id, tenant=TENANT) is None
    forget_pool()


@pytest.mark.parametrize("task", ["sweep", "prune"])
def test_a_store_that_is_down_fails_no_beat(task: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runs, task, raises(StoreUnavailableError(SECRET)))
    assert getattr(tasks, task)() == 0


def test_a_configuration_that_does_not_fit_is_tried_again_later(stage: Stage) -> None:
    agents._registry["booking"] = stage.agent_with(*stage.agent.tools, provider=None)
    assert resumed(stage) == "configuration"
    assert stage.record.status is RunStatus.ACTIVE
