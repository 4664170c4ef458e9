"""The two loops: they commit the same, open no transaction around what they do, and leave nothing behind."""

import asyncio
import itertools
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections, transaction

from adk_django import concurrency, runs
from adk_django.concurrency import forget_pool
from adk_django.core.effects import arguments_digest
from adk_django.core.record import ApprovalState, RunStatus, Writes, Written
from adk_django.exceptions import ConfigurationError
from adk_django.execution.resumer import Resumer, claim_resume
from adk_django.execution.runner import AgentRunner
from adk_django.operations.planning import plan_resume
from adk_django.testing import EffectLog, ScriptedProvider
from adk_django.tools import ToolContext, tool
from tests.backends import TENANT, World
from tests.fake_tools import calls, effect, kept, usual
from tests.run_definitions import SCENARIOS, Scenario
from tests.run_fixture import Stage


def commits_of(scenario: Scenario, path: Path, *, asynchronous: bool) -> list[Writes]:
    """Return what every commit of a scenario brings, its people's answers included."""
    world = World("memory")
    commits: list[tuple[Writes, Written]] = []
    agent = scenario.agent(EffectLog(path), asynchronous=asynchronous)

    def runner() -> AgentRunner:
        made = world.runner()
        made.stores = kept(made.stores, commits)
        return made

    def carry(verb: str, *args: Any) -> RunStatus:
        if asynchronous:
            return asyncio.run(getattr(runner(), f"a{verb}")(agent, *args, tenant=TENANT, **ids)).status
        return getattr(runner(), verb)(agent, *args, tenant=TENANT, **ids).status

    ids = {"run_id": "run_1"}
    status = carry("run", "go")
    while status is RunStatus.WAITING:
        store = world.stores().runs
        asked = [item for item in store.approvals("run_1", tenant=TENANT) if item.state is ApprovalState.REQUESTED]
        said = (scenario.decisions or {})[str(asked[0].slot)]
        edited = said if isinstance(said, dict) else None
        digest = None if edited is None else arguments_digest(edited)
        store.decide(
            asked[0].request_id, tenant=TENANT, grant=said != "deny", by="a", reason="", edited=edited, digest=digest
        )
        status = carry("resume")
    assert status is RunStatus.COMPLETED
    return [writes for writes, _ in commits]


def in_order(log: EffectLog) -> list[list[str]]:
    """Return the effects of a run; neighbours that may be in progress together, and end in any order, are one item."""
    together = itertools.groupby(log.lines(), lambda line: line.split("/")[0] in ("search", "touch"))
    return [item for alike, lines in together for item in ([sorted(lines)] if alike else [[line] for line in lines])]


@pytest.mark.parametrize("name", SCENARIOS)
def test_both_loops_leave_the_same_sequence_of_commits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "urandom", lambda size: b"\x01" * size)  # one salt, so one set of keys
    sync = commits_of(SCENARIOS[name], tmp_path / "sync", asynchronous=False)
    assert commits_of(SCENARIOS[name], tmp_path / "async", asynchronous=True) == sync
    assert in_order(EffectLog(tmp_path / "async")) == in_order(EffectLog(tmp_path / "sync"))


def test_neighbours_that_may_be_repeated_are_in_progress_together_and_effects_are_alone() -> None:
    inside: list[str] = []
    barriers: list[asyncio.Barrier] = []

    @tool("read_only")
    async def look(what: str) -> None:
        barriers[:] = barriers or [asyncio.Barrier(3)]
        await asyncio.wait_for(barriers[0].wait(), 10)  # alone it would wait in vain

    @tool
    async def book(what: str) -> list[str]:
        inside.append(what)
        await asyncio.sleep(0)
        inside.remove(what)
        return list(inside)

    turn = calls("look", "look", "look", ("book", {"what": "a"}), ("book", {"what": "b"}))
    stage = Stage("memory", [turn, "done"], look, book)
    assert stage.arun().status is RunStatus.COMPLETED
    assert stage.results == [None, None, None, [], []]


@pytest.mark.parametrize(
    ("call", "twin"),
    [
        (lambda runner: runner.run(None, "go", tenant=TENANT), "AgentRunner.arun"),
        (lambda runner: runner.resume(None, "run_1", tenant=TENANT), "AgentRunner.aresume"),
        (lambda runner: Resumer(checkpoints=runner.checkpointer).resume("run_1", tenant=TENANT, worker="w"), "aresume"),
        (lambda runner: runner.checkpointer.latest("run_1", tenant=TENANT), "Checkpointer.alatest"),
        (lambda runner: runner.stores.leases.held("run_1", tenant=TENANT), "aheld"),
        (lambda runner: claim_resume(runner.stores.leases, "run_1", tenant=TENANT, holder="w"), "aacquire"),
        (lambda runner: plan_resume(None, runner.stores.idempotency), "aplan_resume"),
        (lambda runner: runs.start("booking", "go", tenant=TENANT), "astart"),
        (lambda runner: runs.settle("run_1", "1.1", tenant=TENANT, answer="completed", by="a", reason=""), "asettle"),
    ],
)
def test_a_sync_form_on_a_running_loop_names_its_twin(call: Callable[[Any], Any], twin: str) -> None:
    runner = Stage("memory", []).runner()

    async def on_loop() -> None:
        call(runner)

    with pytest.raises(SynchronousOnlyOperation, match=twin):
        asyncio.run(on_loop())


def test_django_allow_async_unsafe_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    stage = Stage("memory", ["done"])

    async def on_loop() -> RunStatus:
        return stage.run().status

    assert asyncio.run(on_loop()) is RunStatus.COMPLETED


def test_a_run_in_a_testcase_leaves_no_thread_and_no_connection(place: str, log: list[str]) -> None:
    before = set(threading.enumerate())
    others: list[set[str]] = []

    def then(context: ToolContext) -> None:
        others.append({thread.name for thread in set(threading.enumerate()) - before})

    stage = Stage(place, [calls("book"), "done"], effect(log, "book", then=then, time_limit_seconds=60))
    assert stage.run().status is RunStatus.COMPLETED
    if place != "memory":
        assert others == [set()]
    assert not {thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("adk")}


def test_no_transaction_is_open_across_a_model_call_or_a_body(alias: str, log: list[str]) -> None:
    open_blocks: list[bool] = []

    def look(*given: Any) -> str:
        open_blocks.append(connections[alias].in_atomic_block)
        return "made"

    class Looks(ScriptedProvider):
        def request(self, request: Any) -> Any:
            look()
            return super().request(request)

    stage = Stage(
        alias,
        [calls("book", "search"), "done"],
        effect(log, "book", then=look),
        effect(log, "search", "read_only", look),
    )
    stage.agent = stage.agent_with(*stage.agent.tools, provider=Looks(stage.provider.script))
    assert stage.run().status is RunStatus.COMPLETED
    stage.run_id = "another"
    assert stage.arun().status is RunStatus.COMPLETED
    assert open_blocks == [False] * 8
    forget_pool()


def test_a_run_is_not_driven_inside_a_transaction_of_its_caller(alias: str, log: list[str]) -> None:
    stage = Stage(alias, [calls("book"), "done"], *usual(log))
    stage.die("model")
    asked = len(stage.provider.requests)
    for act in (stage.run, stage.resume):
        with pytest.raises(ConfigurationError, match="transaction"), transaction.atomic(using=alias):
            act()
    assert (len(stage.provider.requests), log) == (asked, [])
    assert stage.resume().status is RunStatus.COMPLETED
    with transaction.atomic(using=alias):
        record, created = stage.runner().create(stage.agent, "go", tenant=TENANT, run_id="joined", user=None)
        transaction.set_rollback(True, using=alias)
    assert created and record.run_id == "joined"
    assert stage.stores.runs.get("joined", tenant=TENANT) is None


def test_a_pool_that_is_forgotten_leaves_no_connection(alias: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(connections.settings[alias], "CONN_MAX_AGE", None)
    forget_pool()
    asyncio.run(World(alias).stores().runs.anow())
    (kept,) = concurrency._pooled
    assert kept.connection is not None
    forget_pool()
    assert kept.connection is None
