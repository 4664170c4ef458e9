"""What workers run. Their tools append a line per effect outside every store, and wait at the gates that a test made."""

import uuid
from pathlib import Path
from typing import Any

from django.contrib.auth.models import Group

from adk_django.agents import Agent
from adk_django.providers.base import ModelRequest, ModelResponse
from adk_django.testing import EffectLog, ScriptedProvider
from adk_django.testing.scripted import Script
from adk_django.tools import Tool, ToolContext, done, not_done, tool
from tests.workers.saying import pass_gate

CANARY = "canary-bird-3f1c"  # no secret's shape: nothing masks it
LARGE = 1_000_000


def calls(*names: str) -> list[tuple[str, dict[str, Any]]]:
    """Return a turn that asks for these tools."""
    return [(name, {"what": f"{name} {index}"}) for index, name in enumerate(names)]


SCRIPTS: dict[str, Script] = {
    "books": [calls("book"), "done"],
    "touches": [calls("touch"), "done"],
    "travels": [calls("search", "touch"), calls("book"), calls("note"), calls("touch", "book"), "done"],
    "sings": [[("sing", {"what": CANARY})], [("fail", {"what": CANARY})], "done"],
    "grows": [*([("grow", {"what": CANARY})] for _ in range(10)), calls("book"), "done"],
    "stumbles": [[("trip", {"what": CANARY})], "done"],
    "moody": [],
}


class Moody(ScriptedProvider):
    """Fails, and says a secret."""

    def request(self, request: ModelRequest) -> ModelResponse:
        """Fail."""
        raise RuntimeError(f"no answer to {CANARY}")


def agents(folder: Path, *, using: str) -> list[Agent]:
    """Return one agent for each script. ``using`` is the alias on which transactional tools write."""
    tools = _tools(folder, using)
    made = []
    for name, script in SCRIPTS.items():
        provider = Moody(script) if name == "moody" else ScriptedProvider(script)
        made.append(Agent(name, tools=tools, provider=provider, revision="1"))
    return made


def gate_of(folder: Path, name: str, when: str) -> Path:
    """Return the gate at which a tool waits ``before`` or ``after`` its effect."""
    return folder / f"{name}-{when}.gate"


def _tools(folder: Path, using: str) -> list[Tool]:
    log = EffectLog(folder / "effects.log")

    def effect(name: str, context: ToolContext) -> None:
        pass_gate(gate_of(folder, name, "before"), tool=name, run=context.run_id)
        log.append(f"{name}/{context.run_id}/{context.idempotency_key}")
        pass_gate(gate_of(folder, name, "after"), tool=name, run=context.run_id)

    def booked(context: ToolContext, what: str) -> Any:
        line = f"book/{context.run_id}/{context.idempotency_key}"
        return done(f"booked {what}") if log.count(line) else not_done

    @tool("effectful", probe=booked)
    def book(what: str, context: ToolContext) -> str:
        effect("book", context)
        return f"booked {what}"

    @tool("idempotent")
    def touch(what: str, context: ToolContext) -> str:
        effect("touch", context)
        return f"touched {what}"

    @tool("read_only")
    def search(what: str, context: ToolContext) -> str:
        effect("search", context)
        return f"found {what}"

    @tool("transactional", using=using)
    def note(what: str, context: ToolContext) -> str:
        Group.objects.using(using).create(name=f"{context.run_id}/{uuid.uuid4()}")
        effect("note", context)
        return f"noted {what}"

    @tool("idempotent")
    def sing(what: str, context: ToolContext) -> str:
        effect("sing", context)
        return f"sang {CANARY}"

    @tool("read_only")
    def fail(what: str) -> str:
        raise ValueError(f"no {CANARY} here")

    @tool("effectful")
    def trip(what: str) -> str:
        raise ValueError(f"no {CANARY} here")

    @tool("read_only")
    def grow(what: str) -> str:
        return CANARY + "x" * LARGE

    return [book, touch, search, note, sing, fail, trip, grow]
