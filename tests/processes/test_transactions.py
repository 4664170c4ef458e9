"""No transaction is open and no row locked across a model call or a body; and inside a caller's, nothing is driven."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from django.db import DatabaseError, connections, transaction
from django.http import HttpRequest, HttpResponse
from django.test import Client
from django.urls import path

from adk_django import runs
from adk_django.agents import Agent
from adk_django.core.record import RunStatus
from adk_django.exceptions import ConfigurationError
from adk_django.models import Run
from adk_django.providers.base import ModelRequest, ModelResponse
from adk_django.testing import EffectLog, ScriptedProvider
from adk_django.tools import tool
from tests.backends import TENANT, World
from tests.run_definitions import note_on

RUN = "run_1"
IDLE = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in %%'"
SCRIPT = [[(name, {"what": "x"}) for name in ("search", "book", "note")], [("book", {"what": "y"})], "done"]


class Watcher:
    """Looks, from outside, whether the worker holds anything; ``looks`` says when it looked, ``found`` what it saw."""

    def __init__(self, alias: str) -> None:
        self.alias, self.driver = alias, connections[alias]
        self.looks: list[str] = []
        self.found: list[str] = []

    def look(self, where: str) -> None:
        """Look now."""
        self.looks.append(where)
        if self.driver.in_atomic_block:
            self.found.append(f"{where}: the worker is in an atomic block")
        other: Any = connections.create_connection(self.alias)
        with closing(other):
            try:
                self._look_at_postgres(other, where) if other.vendor == "postgresql" else self._look_at_file(other)
            except DatabaseError as error:
                self.found.append(f"{where}: {error}")

    def _look_at_file(self, other: Any) -> None:
        with other.cursor() as cursor:
            cursor.execute("PRAGMA busy_timeout = 0")
            cursor.execute("BEGIN IMMEDIATE")
            cursor.execute("ROLLBACK")

    def _look_at_postgres(self, other: Any, where: str) -> None:
        with other.cursor() as cursor:
            cursor.execute(IDLE, [])
            if (idle := cursor.fetchone()[0]) > 0:
                self.found.append(f"{where}: {idle} idle in transaction")
            for table in ("adk_run_leases", "adk_runs", "adk_checkpoints", "adk_idempotency_keys"):
                cursor.execute(f"SELECT 1 FROM {table} FOR UPDATE NOWAIT")  # noqa: S608  # names above


class WatchedProvider(ScriptedProvider):
    """Looks while the model is asked."""

    def __init__(self, watcher: Watcher) -> None:
        super().__init__(SCRIPT)
        self._watcher = watcher

    def request(self, request: ModelRequest) -> ModelResponse:
        self._watcher.look("model")
        return super().request(request)


def watched(watcher: Watcher, *, asynchronous: bool) -> Agent:
    """Return an agent with a tool of each class, at whose bodies is looked from outside."""

    @tool("read_only")
    def search(what: str) -> str:
        watcher.look("search")
        return what

    def book(what: str) -> str:
        watcher.look("book")
        return what

    async def abook(what: str) -> str:
        await asyncio.to_thread(watcher.look, "book")
        return what

    abook.__name__ = "book"
    tools = [search, tool(abook if asynchronous else book), note_on(watcher.alias)]
    return Agent("watched", tools=tools, provider=WatchedProvider(watcher), revision="1")


@pytest.mark.parametrize("asynchronous", [False, True])
def test_nothing_is_held_while_a_model_or_a_body_is_at_work(alias: str, *, asynchronous: bool) -> None:
    watcher, runner = Watcher(alias), World(alias).runner()
    agent = watched(watcher, asynchronous=asynchronous)
    if asynchronous:
        result = asyncio.run(runner.arun(agent, "go", tenant=TENANT, run_id=RUN))
    else:
        result = runner.run(agent, "go", tenant=TENANT, run_id=RUN)
    assert result.status is RunStatus.COMPLETED
    assert watcher.looks == ["model", "search", "book", "model", "book", "model"]
    assert watcher.found == []


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    log = EffectLog(tmp_path / "effects.log")

    @tool
    def book(what: str) -> str:
        log.append(what)
        return what

    return Agent("booker", tools=[book], provider=ScriptedProvider([[("book", {"what": "x"})], "done"]), revision="1")


def untouched(agent: Agent) -> bool:
    """Return whether neither the model nor a tool was called."""
    provider = agent.provider
    assert isinstance(provider, ScriptedProvider)
    return provider.requests == []


def test_driving_inside_a_transaction_is_refused_before_any_call(alias: str, agent: Agent) -> None:
    runner = World(alias).runner()
    runs.start(agent, "go", tenant=TENANT, run_id=RUN, using=alias)
    attempts: list[Callable[[], Any]] = [
        lambda: runner.run(agent, "go", tenant=TENANT, run_id="run_2"),
        lambda: runner.resume(agent, RUN, tenant=TENANT),
        lambda: runs.resume(RUN, tenant=TENANT, agent=agent, using=alias),
    ]
    for attempt in attempts:
        with transaction.atomic(using=alias), pytest.raises(ConfigurationError, match="transaction.atomic"):
            attempt()
    assert untouched(agent)
    assert list(Run.objects.using(alias).values_list("run_id", "fence")) == [(RUN, 0)]
    assert runner.resume(agent, RUN, tenant=TENANT).status is RunStatus.COMPLETED


def test_a_start_joins_the_transaction(alias: str, agent: Agent) -> None:
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=alias):
        assert runs.start(agent, "go", tenant=TENANT, run_id=RUN, using=alias).created
        raise ZeroDivisionError
    assert not Run.objects.using(alias).exists()
    with transaction.atomic(using=alias):
        assert runs.start(agent, "go", tenant=TENANT, run_id=RUN, using=alias).created
        assert not runs.start(agent, "go", tenant=TENANT, run_id=RUN, using=alias).created
    assert Run.objects.using(alias).get().run_id == RUN


def test_a_transaction_on_another_alias_is_another_matter(alias: str, agent: Agent) -> None:
    other = "postgres" if alias == "default" else "default"
    with pytest.raises(ZeroDivisionError), transaction.atomic(using=other):
        assert World(alias).runner().run(agent, "go", tenant=TENANT, run_id=RUN).status is RunStatus.COMPLETED
        raise ZeroDivisionError
    assert Run.objects.using(alias).get().status == RunStatus.COMPLETED.value


# Views, of which each request is a transaction

doing: list[Callable[[], object]] = []
urlpatterns = [path("", lambda request: act(request))]


def act(request: HttpRequest) -> HttpResponse:
    """Do what the test wants done."""
    doing[0]()
    return HttpResponse()


@pytest.fixture
def request_of(alias: str, monkeypatch: pytest.MonkeyPatch, settings: Any) -> Iterator[Callable[..., HttpResponse]]:
    """Return what makes a request, in a transaction of its own, in which something is done."""
    settings.ROOT_URLCONF = __name__
    monkeypatch.setitem(connections[alias].settings_dict, "ATOMIC_REQUESTS", True)

    def ask(work: Callable[[], object]) -> HttpResponse:
        doing[:] = [work]
        response: Any = Client(raise_request_exception=False).get("/")
        return response

    yield ask
    doing.clear()


def test_a_start_joins_the_transaction_of_its_request(
    alias: str, agent: Agent, request_of: Callable[..., HttpResponse]
) -> None:
    def start_and_fail() -> None:
        assert runs.start(agent, "go", tenant=TENANT, run_id=RUN, using=alias).created
        raise ZeroDivisionError

    assert request_of(start_and_fail).status_code == 500
    assert not Run.objects.using(alias).exists()
    started = request_of(lambda: runs.start(agent, "go", tenant=TENANT, run_id=RUN, using=alias))
    assert started.status_code == 200
    assert Run.objects.using(alias).get().run_id == RUN


def test_driving_in_a_request_that_is_a_transaction_is_refused(
    alias: str, agent: Agent, request_of: Callable[..., HttpResponse]
) -> None:
    def drive() -> None:
        with pytest.raises(ConfigurationError, match="transaction.atomic"):
            World(alias).runner().run(agent, "go", tenant=TENANT, run_id=RUN)

    assert request_of(drive).status_code == 200
    assert untouched(agent)
    assert not Run.objects.using(alias).exists()
