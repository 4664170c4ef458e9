"""What workers run. Their tools append a line per effect outside every store, and wait at the gates of a test."""

import os
import random
import time
import uuid
from pathlib import Path
from typing import Any

from django.contrib.auth.models import Group

from adk_django.agents import Agent
from adk_django.providers.base import ModelRequest, ModelResponse
from adk_django.testing import EffectLog, ScriptedProvider
from adk_django.testing.scripted import Script
from adk_django.tools import Tool, ToolContext, done, not_done, tool
from tests.workers.pipes import pass_gate

CANARY = "canary-bird-3f1c"  # no secret's shape: nothing masks it
LARGE = 1_000_000


def calls(*names: str) -> list[tuple[str, dict[str, Any]]]:
    """Return a turn that asks for these tools."""
    return [(name, {"what": f"{name} {index}"}) for index, name in enumerate(names)]


ROAMS: Script = [
    calls("search", "book"),
    calls("touch"),
    calls("note", "mail"),
    calls("book", "touch", "mail"),
    calls("note", "mail"),
    "done",
]
SCRIPTS: dict[str, Script] = {
    "books": [calls("book"), "done"],
    "touches": [calls("touch"), "done"],
    "travels": [calls("search", "touch"), calls("book"), calls("note"), calls("touch", "book"), "done"],
    "sings": [[("sing", {"what": CANARY})], [("fail", {"what": CANARY})], "done"],
    "grows": [*([("grow", {"what": CANARY})] for _ in range(10)), calls("book"), "done"],
    "stumbles": [[("trip", {"what": CANARY})], "done"],
    "moody": [],
    "quits": [[("quit", {"what": CANARY})], "done"],
    "roams": ROAMS,
}


class Moody(ScriptedProvider):
    """Fails, and says a secret."""

    def request(self, request: ModelRequest) -> ModelResponse:
        """Fail."""
        raise RuntimeError(f"no answer to {CANARY}")


def script_of(name: str, *, using: str | None) -> Script:
    """Return a script. Where ``using`` is None there are no transactional tools, and mail goes out in their place."""
    if using is not None:
        return SCRIPTS[name]
    return [
        turn if isinstance(turn, str) else [("mail" if tool == "note" else tool, given) for tool, given in turn]
        for turn in SCRIPTS[name]
    ]


def agents(folder: Path, *, using: str | None) -> list[Agent]:
    """Return one agent for each script. ``using`` is the alias on which transactional tools write, None for none."""
    plain, roaming = _tools(Traces(folder), using), _tools(Roaming(folder), using)
    made = []
    for name in SCRIPTS:
        script = script_of(name, using=using)
        tools = roaming if name == "roams" else plain
        provider = Moody(script) if name == "moody" else ScriptedProvider(script)
        made.append(Agent(name, tools=tools, provider=provider, revision="1"))
    return made


def gate_of(folder: Path, name: str, when: str) -> Path:
    """Return the gate at which a tool waits ``before`` or ``after`` its effect."""
    return folder / f"{name}-{when}.gate"


def line_of(name: str, context: ToolContext) -> str:
    """Return the line of an effect."""
    return f"{name}/{context.run_id}/{context.idempotency_key}"


class Traces:
    """What tools leave behind: a line per effect. They wait at gates before and after."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.log = folder, EffectLog(folder / "effects.log")

    def effect(self, name: str, context: ToolContext) -> None:
        """Leave a line."""
        told = {"tool": name, "run": context.run_id}
        pass_gate(gate_of(self.folder, name, "before"), **told)
        self.log.append(line_of(name, context))
        pass_gate(gate_of(self.folder, name, "after"), **told)


class Roaming(Traces):
    """The traces of chaos: who entered a body and when is a line as well, and every body takes a moment."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._entered = EffectLog(folder / "entered.log")

    def effect(self, name: str, context: ToolContext) -> None:
        """Come in, take a moment, leave a line, take another."""
        line = line_of(name, context)
        self._entered.append(f"{line}/{os.getpid()}/{time.monotonic()}")
        time.sleep(random.uniform(0.0, 0.3))
        self.log.append(line)
        time.sleep(random.uniform(0.0, 0.3))


def _tools(traces: Traces, using: str | None) -> list[Tool]:
    def booked(context: ToolContext, what: str) -> Any:
        return done(f"booked {what}") if traces.log.count(line_of("book", context)) else not_done

    @tool("effectful", probe=booked)
    def book(what: str, context: ToolContext) -> str:
        traces.effect("book", context)
        return f"booked {what}"

    @tool("effectful")
    def mail(what: str, context: ToolContext) -> str:
        traces.effect("mail", context)
        return f"mailed {what}"

    @tool("idempotent")
    def touch(what: str, context: ToolContext) -> str:
        traces.effect("touch", context)
        return f"touched {what}"

    @tool("read_only")
    def search(what: str, context: ToolContext) -> str:
        traces.effect("search", context)
        return f"found {what}"

    def note(what: str, context: ToolContext) -> str:
        Group.objects.using(using).create(name=f"{context.run_id}/{uuid.uuid4()}")
        traces.effect("note", context)
        return f"noted {what}"

    @tool("idempotent")
    def sing(what: str, context: ToolContext) -> str:
        traces.effect("sing", context)
        return f"sang {CANARY}"

    @tool("read_only")
    def fail(what: str) -> str:
        raise ValueError(f"no {CANARY} here")

    @tool("idempotent")
    def quit(what: str) -> str:
        raise SystemExit(CANARY)

    @tool("effectful")
    def trip(what: str) -> str:
        raise ValueError(f"no {CANARY} here")

    @tool("read_only")
    def grow(what: str) -> str:
        return CANARY + "x" * LARGE

    noting = [] if using is None else [tool("transactional", using=using)(note)]
    return [book, mail, touch, search, *noting, sing, fail, quit, trip, grow]
