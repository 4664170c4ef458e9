"""One slice of a run: what begins it, what may interrupt it, and what it leaves behind."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.test import override_settings

from adk_django.core.messages import BinaryPart, Message, OpaquePart, TextPart, ToolCall, Usage
from adk_django.core.record import RunStatus
from adk_django.exceptions import (
    CheckpointNotFoundError,
    ConfigurationError,
    ProviderError,
    ResumeError,
    RunConflictError,
    StoreUnavailableError,
)
from adk_django.execution import ports
from adk_django.providers.base import ModelProvider, ModelRequest, ModelResponse
from tests.backends import TENANT
from tests.fake_tools import broken, calls, effect, raises, usual
from tests.run_fixture import Stage


class Fails(ModelProvider):
    """A provider that fails until it is told otherwise."""

    def __init__(self, error: BaseException) -> None:
        self.error: BaseException | None = error

    def request(self, request: ModelRequest) -> ModelResponse:
        if self.error is not None:
            raise self.error
        return ModelResponse(Message.of("assistant", "done"))


def waited(stage: Stage) -> float:
    record = stage.record
    assert record.wake_at is not None and record.updated_at is not None
    seconds: timedelta = record.wake_at - record.updated_at
    return seconds.total_seconds()


def test_a_provider_that_fails_is_tried_again_ever_later_and_the_run_stays_active(place: str) -> None:
    stage = Stage(place, ["done"])
    agent = stage.agent_with(provider=Fails(ConnectionError("reset")))
    stage.runner().create(agent, "go", tenant=TENANT, run_id=stage.run_id, user=None)
    waits = []
    with override_settings(ADK={"RESUME": {"backoff_seconds": [5, 30]}}):
        for _ in range(4):
            with pytest.raises(ProviderError, match="ConnectionError: reset"):
                stage.resume(agent)
            waits.append(waited(stage))
            assert (stage.record.status, stage.lease) == (RunStatus.ACTIVE, None)
            often = f" {len(waits)} times" if waits[1:] else ""
            assert stage.record.reason.startswith(f"the model provider failed{often}, next try at ")
    assert waits == pytest.approx([5, 10, 20, 30], rel=0.1)


def test_after_an_answer_a_failing_provider_is_tried_again_soon(log: list[str]) -> None:
    stage = Stage("memory", [calls("search")], *usual(log))
    failing = stage.agent_with(provider=Fails(ConnectionError("reset")))
    stage.runner().create(stage.agent, "go", tenant=TENANT, run_id=stage.run_id, user=None)
    for _ in range(3):
        with pytest.raises(ProviderError):
            stage.resume(failing)
    stage.die("commit after_tool_result", "after")
    assert (stage.record.reason, stage.record.wake_at) == ("", None)
    with pytest.raises(ProviderError):
        stage.resume()  # past the end of its script
    assert waited(stage) == pytest.approx(5, rel=0.1)


def test_a_store_that_fails_in_the_middle_is_tried_again_later(log: list[str]) -> None:
    stage = Stage("memory", [calls("book"), "done"], *usual(log))
    stage.wrap = broken("idempotency", begin=raises(StoreUnavailableError("down")))
    with pytest.raises(StoreUnavailableError):
        stage.run()
    assert (stage.record.status, waited(stage)) == (RunStatus.ACTIVE, 5)
    assert stage.record.reason.startswith("the store did not answer, next try at ")


@pytest.mark.parametrize("kind", ["read_only", "idempotent", "effectful"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_interruption_out_of_a_tool_ends_the_slice_and_not_the_run(
    log: list[str], kind: str, error: type[BaseException], asynchronous: bool
) -> None:
    def then(context: Any) -> str:
        if len(log) == 1:
            raise error
        return "made"

    stage = Stage("memory", [calls("act"), "done"], effect(log, "act", kind, then))
    with pytest.raises(error):
        stage.arun() if asynchronous else stage.run()
    assert (stage.record.status, stage.lease) == (RunStatus.ACTIVE, None)
    if kind == "effectful":
        stage.age()
        stage.settle("1.1", happened=False)
    assert stage.resume().status is RunStatus.COMPLETED
    assert stage.record.fence == 2


def test_the_same_poison_is_taken_up_only_so_often(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("touch"), "done"], *usual(log))
    with override_settings(ADK={"RESUME": {"max_deaths": 3}}):
        for _ in range(3):
            stage.die("tool touch")
        with pytest.raises(ResumeError, match="died 3 times"):
            stage.resume()
        assert (stage.record.status, stage.lease) == (RunStatus.QUARANTINED, None)
        with pytest.raises(ResumeError, match="quarantined"):
            stage.resume()
    assert log == []


class Foreign(BaseException):
    """Neither an error nor an exit."""


@pytest.mark.django_db(transaction=True, databases="__all__")
@pytest.mark.parametrize("backend", ["memory", "default", "postgres", "redis"])
@pytest.mark.parametrize("where", ["read_only", "idempotent", "model"])
@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, Foreign])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_what_ends_every_worker_is_taken_up_only_so_often(
    backend: str, log: list[str], where: str, error: type[BaseException], asynchronous: bool, redis: Any
) -> None:
    def end(context: Any = None) -> None:
        raise error

    kind = "read_only" if where == "model" else where
    stage = Stage(backend, [calls("search"), calls("act"), "done"], *usual(log), effect(log, "act", kind, end))
    if where == "model":
        stage.agent = stage.agent_with(provider=Fails(error()))
    stage.runner().create(stage.agent, "go", tenant=TENANT, run_id=stage.run_id, user=None)
    with override_settings(ADK={"RESUME": {"max_deaths": 3}}):
        for _ in range(3):
            with pytest.raises(error):
                stage.aresume() if asynchronous else stage.resume()
            assert (stage.record.status, stage.lease) == (RunStatus.ACTIVE, None)
        with pytest.raises(ResumeError, match="died 3 times"):
            stage.resume()
    assert (stage.record.status, stage.lease) == (RunStatus.QUARANTINED, None)
    assert log.count("act act") == (0 if where == "model" else 3)
    assert log.count("search search") == (0 if where == "model" else 1)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_worker_that_is_ended_after_progress_counts_from_zero(log: list[str], asynchronous: bool) -> None:
    def end(context: Any) -> str:
        if len(log) % 2:  # every call ends one worker, and is made by the next
            raise SystemExit
        return "made"

    script = [calls("act") for _ in range(4)]
    stage = Stage("memory", [*script, "done"], effect(log, "act", "idempotent", end))
    stage.runner().create(stage.agent, "go", tenant=TENANT, run_id=stage.run_id, user=None)
    with override_settings(ADK={"RESUME": {"max_deaths": 2}}):
        for _ in range(4):
            with pytest.raises(SystemExit):
                stage.aresume() if asynchronous else stage.resume()
        assert stage.resume().status is RunStatus.COMPLETED


def test_a_call_that_is_claimed_again_and_again_is_no_progress(log: list[str]) -> None:
    stage = Stage("memory", [calls("touch"), "done"], *usual(log))
    with override_settings(ADK={"RESUME": {"max_deaths": 3, "strict": True}}):
        for _ in range(3):
            stage.die("tool touch")
            stage.settle("1.1", happened=False)
        with pytest.raises(ResumeError, match="died 3 times"):
            stage.resume()


def test_progress_counts_deaths_from_zero_again(log: list[str]) -> None:
    stage = Stage("memory", [calls("search"), calls("search"), "done"], *usual(log))
    with override_settings(ADK={"RESUME": {"max_deaths": 3}}):
        stage.die("tool search")
        stage.die("tool search")
        stage.die("tool search", nth=2)  # a turn further
        stage.die("tool search")
        assert stage.resume().status is RunStatus.COMPLETED


@pytest.mark.parametrize(
    "message",
    [
        Message("assistant", (TextPart("", {"signature": "\ud83d"}), OpaquePart({"b": None, "a": 1}))),
        Message("assistant", (ToolCall("", "search", {"what": 1e100}, {"z": 0}), BinaryPart(b"\xff", "image/png"))),
        Message("assistant", (TextPart("one"), TextPart("two")), {"id": "msg", "null": None}),
    ],
)
def test_whatever_a_provider_adds_is_sent_back_as_it_came(log: list[str], message: Message) -> None:
    more = Message("assistant", (*message.parts, ToolCall("dup", "search", {"what": "x"})), message.extra)
    stage = Stage("memory", [calls("search"), "done"], *usual(log))
    asked: list[ModelRequest] = []

    class Answers(ModelProvider):
        def request(self, request: ModelRequest) -> ModelResponse:
            asked.append(request)
            return ModelResponse(more if len(request.messages) == 1 else Message.of("assistant", "done"), Usage(1, 1))

    stage.agent = stage.agent_with(*usual(log), provider=Answers())
    stage.die("commit after_model_call", "after")
    assert stage.resume().status is RunStatus.COMPLETED
    assert asked[-1].messages[1].encoded == more.encoded


def test_an_answer_that_cannot_be_kept_never_enters_the_conversation(log: list[str]) -> None:
    class Answers(ModelProvider):
        def request(self, request: ModelRequest) -> ModelResponse:
            return ModelResponse(Message("assistant", (OpaquePart({"lock": threading.Lock()}),)))

    stage = Stage("memory", [])
    stage.agent = stage.agent_with(provider=Answers())
    with pytest.raises(ProviderError, match="cannot be kept"):
        stage.run()
    assert stage.record.begun_at is None


def test_an_id_is_begun_once_and_another_run_under_it_is_refused(place: str) -> None:
    stage = Stage(place, ["done", "done"])
    stage.run()
    with pytest.raises(RunConflictError):
        stage.run()
    assert len(stage.provider.requests) == 1
    with pytest.raises(CheckpointNotFoundError):
        stage.runner().resume(stage.agent, stage.run_id, tenant="other")
    ids = {stage.runner().run(stage.agent, "go", tenant=TENANT).run_id for _ in range(2)}
    assert len(ids) == 2


def test_twenty_starts_at_once_begin_one_run(log: list[str]) -> None:
    stage = Stage("memory", [calls("book"), "done"], *usual(log))
    barrier, came = threading.Barrier(20), []

    def start() -> None:
        barrier.wait()
        try:
            came.append(stage.run().status)
        except RunConflictError as error:
            came.append(error.code)

    threads = [threading.Thread(target=start) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(came) == [RunStatus.COMPLETED] + ["run-conflict"] * 19
    assert log == ["book book"]


def test_an_agent_without_a_provider_says_so_and_keeps_no_lease() -> None:
    stage = Stage("memory", [])
    stage.agent = stage.agent_with(provider=None)
    with pytest.raises(ConfigurationError, match="has no provider"):
        stage.run()
    assert stage.lease is None


def test_a_result_says_how_the_slice_stopped(log: list[str]) -> None:
    stage = Stage("memory", [calls("search"), "done"], *usual(log))
    result = stage.run()
    assert (result.run_id, result.status, result.reason, result.output) == (stage.run_id, "completed", "", "done")
    assert (result.usage, result.iterations, result.fence) == (Usage(20, 10), 2, 1)
    assert (stage.record.output, stage.record.usage, stage.record.cost_micros) == ("done", Usage(20, 10), 200)


def test_what_a_lost_answer_cost_is_kept_where_the_store_did_not_take_the_answer(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("book"), "done"], effect(log, "book"))
    with pytest.raises(StoreUnavailableError):
        stage.disturbed("commit", raises(StoreUnavailableError("down")))
    assert (stage.lease, stage.record.begun_at, stage.record.status) == (None, None, RunStatus.ACTIVE)
    assert stage.record.usage == Usage(10, 5)
    assert stage.resume().status is RunStatus.COMPLETED
    assert (stage.record.usage, stage.record.cost_micros, stage.record.iterations) == (Usage(30, 15), 300, 2)
    assert log == ["book book"]


def test_what_an_answer_cost_that_cannot_be_kept_is_kept(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls(("book", {"what": lambda: None})), "done"], effect(log, "book"))
    with pytest.raises(ProviderError, match="cannot be kept"):
        stage.run()
    assert (stage.record.usage, stage.record.cost_micros) == (Usage(10, 5), 100)


def test_a_worker_that_fails_as_nobody_foresaw_is_tried_again_later(
    place: str, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(place, [calls("search"), "done"], *usual(log))
    with monkeypatch.context() as broken:
        broken.setattr(ports.RunPorts, "tools", raises(ZeroDivisionError("a secret")))
        with pytest.raises(ZeroDivisionError):
            stage.run()
    assert (stage.record.status, stage.lease) == (RunStatus.ACTIVE, None)
    assert stage.record.reason.startswith("the worker failed, next try at ")
    assert stage.record.reason.endswith(": ZeroDivisionError")
    assert stage.record.wake_at is not None
    assert stage.resume().status is RunStatus.COMPLETED
