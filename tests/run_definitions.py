"""Runs that the suite crashes, kills and steals: their tools append a line per effect to a file outside every store."""

import functools
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.contrib.auth.models import Group

from adk_django.agents import Agent
from adk_django.providers.base import ModelRequest
from adk_django.testing import EffectLog, ScriptedProvider
from adk_django.testing.scripted import Script
from adk_django.tools import Tool, ToolContext, ToolRefused, tool


@functools.cache
def note_on(using: str) -> Tool:
    """Return a transactional tool: its effect is a row of the product, named for its run."""

    def note(what: str, context: ToolContext) -> str:
        """Write a row."""
        Group.objects.using(using).create(name=f"{context.run_id}/{uuid.uuid4()}")
        return f"note {what}"

    return tool("transactional", using=using)(note)


@functools.lru_cache(maxsize=8)
def make_tools(log: EffectLog, *, using: str | None = None, asynchronous: bool = False) -> dict[str, Tool]:
    """Return one tool of each class by name; each logs ``name/key`` once its effect is there."""

    def logs(name: str, effect: str, **options: Any) -> Tool:
        def body(what: str, context: ToolContext) -> str:
            log.append(f"{name}/{context.idempotency_key}")
            return f"{name} {what}"

        async def abody(what: str, context: ToolContext) -> str:
            return body(what, context)

        chosen: Callable[..., Any] = abody if asynchronous and effect != "transactional" else body
        chosen.__name__ = name
        return tool(effect, **options)(chosen)

    def refuse(what: str) -> str:
        """Say that nothing was done."""
        raise ToolRefused(f"no {what} here")

    made = [
        logs("search", "read_only"),
        logs("touch", "idempotent"),
        logs("book", "effectful"),
        logs("mail", "effectful"),
        logs("wire", "effectful", requires_approval=True),
        logs("once", "effectful", key_arguments=("what",)),
        tool(refuse),
    ]
    if using is not None:
        made.append(note_on(using))
    return {item.name: item for item in made}


@dataclass(frozen=True)
class Scenario:
    """A script and the decisions people take on its held calls, by slot: "grant", "deny", or arguments to edit in.

    ``asked`` keeps every question that any process of the suite put to the model.
    """

    script: Script
    decisions: dict[str, Any] | None = None
    asked: list[ModelRequest] = field(default_factory=list)

    def agent(self, log: EffectLog, *, using: str | None = None, asynchronous: bool = False) -> Agent:
        """Return an agent that runs the script."""
        tools = make_tools(log, using=using, asynchronous=asynchronous)
        provider = ScriptedProvider(self.script)
        provider.requests = self.asked
        return Agent("traveller", tools=list(tools.values()), provider=provider, revision="1")


def calls(*names: str) -> list[tuple[str, dict[str, Any]]]:
    """Return a turn that asks for these tools."""
    return [(name, {"what": f"{name} {index}"}) for index, name in enumerate(names)]


SCENARIOS = {
    "effectful": Scenario([calls("book"), "done"]),
    "idempotent": Scenario([calls("touch"), "done"]),
    "read_only": Scenario([calls("search"), "done"]),
    "book_search": Scenario([calls("book", "search"), "done"]),
    "two_turns": Scenario([calls("search", "touch"), calls("book", "touch"), "done"]),
    "refused": Scenario([calls("refuse", "book"), "done"]),
    "twins": Scenario([[("once", {"what": "x"}), ("once", {"what": "x"})], [("once", {"what": "x"})], "done"]),
    "granted": Scenario([calls("wire", "mail", "search"), "done"], {"1.1": "grant"}),
    "denied": Scenario([calls("wire", "mail", "search"), "done"], {"1.1": "deny"}),
    "edited": Scenario([calls("wire", "mail", "search"), "done"], {"1.1": {"what": "less"}}),
    "two_held": Scenario([calls("book", "wire", "mail", "wire"), "done"], {"1.2": "deny", "1.4": "grant"}),
}

TRANSACTIONAL = {
    "transactional": Scenario([calls("note"), "done"]),
    "search_book_note": Scenario([calls("search", "book", "note"), "done"]),
    "note_book": Scenario([calls("note", "book"), "done"]),
}


def log_at(path: Path) -> EffectLog:
    """Return the log in ``path``."""
    return EffectLog(path / "effects.log")
