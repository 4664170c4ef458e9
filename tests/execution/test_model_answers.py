"""What a provider returns: an answer, or what is none and is asked for again later."""

from dataclasses import replace
from typing import Any

import pytest
from django.test import override_settings

from adk_django import agents
from adk_django.agents import Agent
from adk_django.core.messages import BinaryPart, Message, OpaquePart, TextPart, ToolCall, ToolResult, Usage
from adk_django.core.record import RunStatus
from adk_django.exceptions import BudgetExceededError, ConfigurationError, ProviderError
from adk_django.operations.inspection import inspection
from adk_django.providers.base import ModelProvider, ModelRequest, ModelResponse
from tests.backends import TENANT
from tests.fake_tools import calls, usual
from tests.run_fixture import Stage

GOOD = ModelResponse(Message.of("assistant", "done"), Usage(1, 2), 3)


class Returns(ModelProvider):
    """Returns one thing after another, whatever it is."""

    def __init__(self, *returned: Any) -> None:
        self.returned = list(returned)

    def request(self, request: ModelRequest) -> Any:
        return self.returned.pop(0)


def saying(*parts: Any, role: Any = "assistant") -> ModelResponse:
    return replace(GOOD, message=Message(role, parts))


async def late() -> ModelResponse:
    return GOOD


MISFITS: dict[str, tuple[Any, str]] = {
    "None": (None, "returned None: expected a ModelResponse"),
    "a dict": ({"role": "assistant"}, "returned dict: expected a ModelResponse"),
    "a text": ("done", "returned str"),
    "a message": (GOOD.message, "returned Message"),
    "a coroutine": (late, "returned coroutine"),
    "no message": (replace(GOOD, message=None), "a message that is None: expected a Message"),
    "a user's message": (saying(TextPart("done"), role="user"), "role user: expected one of role assistant"),
    "a tool's message": (saying(ToolResult("1", "book", "A"), role="tool"), "role tool"),
    "a message of no role": (saying(TextPart("done"), role=None), "role None"),
    "no parts": (saying(), "a message of no parts: expected"),
    "parts in a list": (replace(GOOD, message=Message("assistant", [TextPart("done")])), "parts that are list"),
    "a text for a part": (saying("done"), "a part that is str: expected TextPart"),
    "a result": (saying(ToolResult("1", "book", "A")), "a part that is ToolResult"),
    "a text that is none": (saying(TextPart(None)), "a TextPart whose text is NoneType: expected str"),
    "a call without a name": (saying(ToolCall("1", None, {})), "a ToolCall whose name is NoneType"),
    "no usage": (replace(GOOD, usage=None), "a usage or cost that is none"),
    "usage in a dict": (replace(GOOD, usage={"input_tokens": 1}), "a usage or cost that is none"),
    "cost in a float": (replace(GOOD, cost_micros=0.5), "a usage or cost that is none"),
    "a reason in a list": (replace(GOOD, finish_reason=["stop"]), "a finish_reason that is list"),
}


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("name", MISFITS)
def test_what_is_no_answer_is_an_error_and_is_asked_for_again_later(
    log: list[str], name: str, asynchronous: bool
) -> None:
    returned, said = MISFITS[name]
    stage = Stage("memory", [])
    stage.agent = stage.agent_with(provider=Returns(returned() if callable(returned) else returned, GOOD))
    stage.runner().create(stage.agent, "go", tenant=TENANT, run_id=stage.run_id, user=None)
    with pytest.raises(ProviderError) as caught:
        stage.aresume() if asynchronous else stage.resume()
    assert said in str(caught.value)
    record = stage.record
    assert (record.status, record.output, stage.lease) == (RunStatus.ACTIVE, None, None)
    assert record.reason.startswith("the model provider failed, next try at ")
    assert said in record.reason
    assert record.wake_at is not None
    assert (record.usage.unknown_calls, record.usage.input_tokens) in ((1, 0), (0, 1)), "what it cost is on the ledger"
    assert stage.resume().output == "done"


EMPTY: dict[str, ModelResponse] = {
    "a text of none": saying(TextPart("")),
    "blanks": saying(TextPart(" \n")),
    "only its own": saying(OpaquePart({"reasoning": "secret"})),
    "a picture": saying(BinaryPart(b"1", "image/png")),
}


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("reason", [None, "length"])
@pytest.mark.parametrize("name", EMPTY)
def test_an_answer_without_text_and_calls_ends_the_run_and_says_so(
    name: str, reason: str | None, asynchronous: bool
) -> None:
    stage = Stage("memory", [])
    stage.agent = stage.agent_with(provider=Returns(replace(EMPTY[name], finish_reason=reason)))
    result = stage.arun() if asynchronous else stage.run()
    because = "" if reason is None else " (finish reason: length)"
    said = f"the model's last answer has no text and asks for no call{because}"
    assert (result.status, result.reason) == (RunStatus.COMPLETED, said)
    assert stage.record.reason == said


def test_an_answer_with_text_says_nothing_of_why_it_ended() -> None:
    stage = Stage("memory", [])
    stage.agent = stage.agent_with(provider=Returns(replace(GOOD, finish_reason="stop")))
    assert stage.run().reason == ""


# A model that asks for ever


@pytest.mark.parametrize("by", ["setting", "agent", "default"])
@pytest.mark.parametrize("asynchronous", [False, True])
def test_a_run_asks_its_model_only_so_often(log: list[str], by: str, asynchronous: bool) -> None:
    limit = {"setting": 3, "agent": 4, "default": 100}[by]
    script = [*(calls("search") for _ in range(limit)), "done"]
    stage = Stage("memory", script, *usual(log), max_turns=4 if by == "agent" else None)
    with override_settings(ADK={"LIMITS": {"max_turns": 3}} if by == "setting" else {}):
        result = stage.arun() if asynchronous else stage.run()
    assert (result.status, result.iterations, len(log)) == (RunStatus.UNDECIDED, limit, limit)
    assert f"it has had {limit} turns and may have {limit}: raise ADK['LIMITS']['max_turns']" in result.reason
    assert (stage.record.reason, stage.record.wake_at, stage.lease) == (result.reason, None, None)


def test_the_limit_counts_over_resumes_and_lets_go_once_it_is_raised(
    place: str, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage(place, [calls("search"), calls("search"), calls("search"), "done"], *usual(log), max_turns=2)
    stage.die("tool search")
    stage.die("tool search", nth=2)
    assert stage.resume().status is RunStatus.UNDECIDED
    asked = len(stage.provider.requests)
    for resume in (stage.resume, stage.aresume) if place == "memory" else (stage.resume,):
        with pytest.raises(BudgetExceededError, match="it has had 2 turns and may have 2") as caught:
            resume()
        assert caught.value.code == "budget-exceeded"
    assert (len(stage.provider.requests), len(log)) == (asked, 2)
    monkeypatch.setattr(agents, "_registry", {"booking": stage.agent})
    seen = inspection(stage.stores, stage.record, stage.runner().checkpointer, strict=False)
    assert [error.code for error in seen.refusals] == ["budget-exceeded"]
    assert (seen.standing, seen.reason) == ("undecided", stage.record.reason)
    assert seen.next_step == f"adk_resume {stage.run_id} --tenant {TENANT}, once the limit is raised"
    assert stage.resume(stage.agent_with(*usual(log), max_turns=4)).status is RunStatus.COMPLETED
    assert len(log) == 3


def test_an_answer_in_the_last_turn_ends_the_run(log: list[str]) -> None:
    assert Stage("memory", [calls("search"), "done"], *usual(log), max_turns=2).run().status is RunStatus.COMPLETED


@pytest.mark.parametrize("bad", [0, -1, 1.5, True, "3"])
def test_a_limit_that_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(ConfigurationError, match="max_turns"):
        Agent("plain", max_turns=bad)
