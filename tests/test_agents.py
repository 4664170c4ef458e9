"""Agents: a name is one definition, and a changed definition is another revision."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from adk_django import agents
from adk_django.agents import Agent, get_agent, is_registered, register
from adk_django.exceptions import ConfigurationError
from adk_django.testing import ScriptedProvider
from adk_django.tools import tool


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(agents, "_registry", {})
    yield


@tool("read_only")
def search(what: str) -> None: ...


@tool
def book(what: str) -> None: ...


def test_a_computed_revision_changes_with_whatever_changes_what_a_run_would_do() -> None:
    plain = Agent("a", instructions="be kind", tools=[search, book], provider=ScriptedProvider([], model="m1"))

    @tool("idempotent")
    def book_(what: str) -> None: ...

    book_.body.__name__ = "book"

    @tool
    def wider(what: str, more: int = 0) -> None: ...

    wider.body.__name__ = "book"
    changed = [
        replace(plain, instructions="be rude"),
        replace(plain, tools=[search]),
        replace(plain, tools=[search, book_]),
        replace(plain, tools=[search, wider]),
        replace(plain, provider=ScriptedProvider([], model="m2")),
    ]
    revisions = {agent.pinned_revision for agent in (plain, *changed)}
    assert len(revisions) == 6
    assert replace(plain, tools=[book, search], name="b").pinned_revision == plain.pinned_revision
    assert replace(plain, revision="7").pinned_revision == "7"


def test_only_declared_revisions_and_names_are_carried() -> None:
    agent = Agent("a", revision="2", accepts=("1",), aliases=("old",))
    assert [agent.carries(revision) for revision in (None, "2", "1", "3")] == [True, True, True, False]
    assert [agent.answers_to(name) for name in ("a", "old", "other")] == [True, True, False]


def test_two_agents_of_one_name_are_an_error_at_start() -> None:
    first = register(Agent("a", aliases=("old",)))
    assert register(first) is first
    for second in (Agent("a"), Agent("old"), Agent("b", aliases=("a",))):
        with pytest.raises(ConfigurationError, match="two agents are named"):
            register(second)
    assert (get_agent("old"), is_registered("a"), is_registered("c")) == (first, True, False)


def test_an_unknown_agent_is_answered_with_those_there_are() -> None:
    register(Agent("seats"))
    with pytest.raises(ConfigurationError, match="'flights'; registered: seats"):
        get_agent("flights")


def test_two_tools_of_one_name_are_an_error() -> None:
    with pytest.raises(ConfigurationError, match="two tools of one name"):
        Agent("a", tools=[book, book])
