"""Tools: what they declare is held to, what they are sent is checked before it is kept, what they raise is believed."""

import asyncio
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation

from adk_django.core.effects import EffectClass, OutcomeKind
from adk_django.core.messages import Message, ToolCall
from adk_django.core.record import RunStatus
from adk_django.exceptions import ConfigurationError
from adk_django.providers.base import ModelProvider, ModelRequest, ModelResponse
from adk_django.tools import ArgumentsRefusedError, Tool, ToolContext, ToolRefused, tool, unknown
from tests.fake_tools import calls, effect, raises, usual
from tests.run_fixture import Stage

SECRET = "Bearer " + "sk-live-" + "a1B2c3D4e5F6g7H8"


class Says(ModelProvider):
    """Answers with these messages, one after the other."""

    def __init__(self, *messages: Message) -> None:
        self.left = list(messages)
        self.requests: list[ModelRequest] = []

    def request(self, request: ModelRequest) -> ModelResponse:
        self.requests.append(request)
        return ModelResponse(self.left.pop(0))


class Unreadable(Exception):  # noqa: N818  # a name for a test
    def __str__(self) -> str:
        raise RuntimeError("no text")

    def __reduce__(self) -> Any:
        raise TypeError("no pickle")


@dataclass
class Seat:
    row: int
    price: Decimal = Decimal("1.10")


def outcome(stage: Stage, call: str = "1.1") -> Any:
    found = stage.claim(call).outcome
    assert found is not None
    return found


def test_a_function_is_a_tool_of_the_most_careful_class_unless_it_says_otherwise() -> None:
    @tool
    def plain(a: int) -> None:
        """Do something."""

    @tool()
    def called(a: int) -> None: ...

    @tool("read_only")
    def read(a: int, b: str = "x", context: ToolContext | None = None) -> None: ...

    assert (plain.effect, called.effect, read.effect) == ("effectful", "effectful", EffectClass.READ_ONLY)
    assert (plain.name, plain.schema.description) == ("plain", "Do something.")
    assert set(read.schema.parameters["properties"]) == {"a", "b"}
    assert read.schema.parameters["required"] == ["a"]


async def _body(a: int) -> None: ...


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"effect": "harmless"}, "expected one of"),
        ({"effect": "transactional"}, "using='an alias'"),
        ({"effect": "transactional", "using": "default", "body": _body}, "a sync function"),
        ({"using": "default"}, "using= is for transactional"),
        ({"key_arguments": ("b",)}, "none of its parameters"),
        ({"time_limit_seconds": 0}, "no time limit"),
        ({"expires_seconds": -1}, "no time limit"),
        ({"effect": "read_only", "probe": lambda context, a: unknown}, "takes no probe"),
        ({"body": lambda *args: None}, "name each argument"),
    ],
)
def test_what_does_not_fit_together_is_refused_when_it_is_declared(options: dict[str, Any], said: str) -> None:
    def body(a: int) -> None: ...

    function, kind = options.pop("body", body), options.pop("effect", "effectful")
    with pytest.raises(ConfigurationError, match=said):
        tool(kind, **options)(function)


def test_arguments_are_checked_before_anything_is_claimed_and_no_value_is_told(log: list[str]) -> None:
    def book(seat: int, day: date) -> None:
        log.append("entered")

    bad = [
        {"seat": SECRET, "day": "2025-01-01"},
        {"seat": 1},
        {"seat": 1, "day": "2025-01-01", "x": 2},
        "{not json",
        "[1]",
    ]
    asked = Message("assistant", tuple(ToolCall("id", "book", arguments) for arguments in bad))
    stage = Stage("memory", [])
    stage.agent = stage.agent_with(tool(book), provider=Says(asked, Message.of("assistant", "done")))
    assert stage.run().status is RunStatus.COMPLETED
    assert (log, [outcome(stage, f"1.{n}").kind for n in range(1, 6)]) == ([], [OutcomeKind.INVALID] * 5)
    told = [outcome(stage, f"1.{n}").value for n in range(1, 6)]
    assert "a1B2" not in str(told)
    assert told[1:3] == ["day: missing", "x: extra forbidden"]
    assert not [item for item in stage.brought if "claim" in item]


def test_arguments_reach_the_body_in_its_own_types_and_are_stored_as_they_are(log: list[str]) -> None:
    got: list[Any] = []

    @tool
    def book(seat: Seat, day: date, copy: float = 1.0) -> None:
        got.append((seat, day, copy))

    given = {"seat": {"row": 12}, "day": "2025-01-02", "copy": 1}
    stage = Stage("memory", [[("book", given)], "done"], book)
    stage.die("commit facts")
    assert stage.resume().status is RunStatus.COMPLETED
    assert got == [(Seat(12), date(2025, 1, 2), 1.0)]
    assert isinstance(got[0][2], float)


def test_arguments_that_hold_a_mask_are_not_made(log: list[str]) -> None:
    stage = Stage("memory", [], *usual(log))
    masked = stage.runner().checkpointer.mask(SECRET)
    assert "a1B2" not in masked
    stage.provider.script = [[("book", {"what": masked}), ("touch", {"what": {"deep": [masked]}})], "done"]
    assert stage.run().status is RunStatus.COMPLETED
    assert log == []
    assert [outcome(stage, call).kind for call in ("1.1", "1.2")] == [OutcomeKind.INVALID] * 2
    assert stage.results[0].startswith("an argument holds a mask")


@pytest.mark.parametrize("kind", ["read_only", "idempotent"])
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no"), "ValueError: no"),
        (Unreadable(), "Unreadable: (its text cannot be read)"),
        (ExceptionGroup("many", [ValueError("a"), OSError("b")]), "ExceptionGroup: many (2 sub-exceptions)"),
        (SynchronousOnlyOperation("no ORM here"), "SynchronousOnlyOperation: no ORM here"),
        (ValueError("x" * 5_000), "ValueError: " + "x" * 1_988),
    ],
)
def test_an_error_of_what_may_be_repeated_is_told_to_the_model(
    log: list[str], kind: str, error: Exception, said: str
) -> None:
    stage = Stage("memory", [calls("act"), "done"], effect(log, "act", kind, raises(error)))
    assert stage.run().status is RunStatus.COMPLETED
    assert (stage.results, outcome(stage).is_error) == ([said], True)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_error_of_an_effect_is_no_outcome_unless_it_says_that_nothing_was_done(
    log: list[str], asynchronous: bool
) -> None:
    class SoldOut(Exception):  # noqa: N818  # a name for a test
        pass

    errors = {"a": ToolRefused("none left"), "b": SoldOut("gone"), "c": Unreadable(), "d": OSError(SECRET)}

    def book(what: str) -> None:
        raise errors[what]

    async def abook(what: str) -> None:
        raise errors[what]

    abook.__name__ = "book"
    body = abook if asynchronous else book
    turn = [("book", {"what": what}) for what in errors]
    stage = Stage("memory", [turn, "done"], tool(never_happened=(SoldOut,))(body))
    run, resume = (stage.arun, stage.aresume) if asynchronous else (stage.run, stage.resume)
    assert run().status is RunStatus.UNDECIDED
    assert [outcome(stage, call).value for call in ("1.1", "1.2")] == ["none left", "gone"]
    assert stage.claim("1.3").error == "Unreadable: (its text cannot be read)"
    stage.settle("1.3", "seat")
    assert resume().status is RunStatus.UNDECIDED
    assert "a1B2" not in stage.claim("1.4").error
    assert stage.claim("1.4").error.startswith("OSError: ")


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("kind", ["idempotent", "effectful"])
def test_a_body_is_left_at_its_limit(log: list[str], kind: str, asynchronous: bool) -> None:
    never = asyncio.Event()

    async def act(what: str) -> None:
        log.append(what)
        await never.wait()

    stage = Stage("memory", [calls("act"), "done"], tool(kind, time_limit_seconds=0.02)(act))
    result = stage.arun() if asynchronous else stage.run()
    assert log == ["act"]
    if kind == "idempotent":
        assert result.status is RunStatus.COMPLETED and stage.results[0].startswith("TimeoutError")
    else:
        assert result.status is RunStatus.UNDECIDED and stage.claim("1.1").error.startswith("TimeoutError")


def test_a_body_is_handed_what_identifies_its_attempt(log: list[str]) -> None:
    seen: list[ToolContext] = []
    tools = [effect(log, name, kind, seen.append) for name, kind in (("a", "read_only"), ("b", "effectful"))]
    stage = Stage("memory", [calls("a", "b"), "done"], *tools)
    assert stage.run(user="7").status is RunStatus.COMPLETED
    first, second = seen
    assert (first.attempt, first.deadline, second.attempt) == (None, None, 1)
    assert second.deadline == stage.claim("1.2").deadline_at
    for context, call in ((first, "1.1"), (second, "1.2")):
        assert context.idempotency_key == stage.claim(call).key
        assert (context.run_id, context.tenant, context.user, context.fence) == (stage.run_id, "acme", "7", 1)


def test_a_refusal_of_arguments_names_no_value() -> None:
    @tool
    def book(seat: int) -> None: ...

    with pytest.raises(ArgumentsRefusedError) as refusal:
        book.normalised({"seat": SECRET})
    assert SECRET not in str(refusal.value) and "seat" in str(refusal.value)
    assert isinstance(book, Tool)
