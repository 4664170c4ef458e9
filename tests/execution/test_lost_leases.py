"""Nothing is begun under a lease that is known to be lost, or that was not confirmed for as long as it lasts."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connections

from adk_django.core.decide import AskModel, Decision, Dispatch, Probe, Transact
from adk_django.core.state import RunState
from adk_django.exceptions import AdkError, LeaseLostError, StoreUnavailableError
from adk_django.execution import leaseholder
from adk_django.execution.leaseholder import Leaseholder
from adk_django.execution.resumer import ResumedRun
from adk_django.providers.base import ModelProvider, ModelRequest, ModelResponse
from adk_django.testing import ScriptedProvider
from adk_django.testing.scripted import Script
from adk_django.tools import Tool, not_done, tool
from tests.backends import TENANT
from tests.fake_tools import broken, calls, effect, raises
from tests.run_fixture import Stage

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")


class Later:
    """A monotonic clock that can be moved ahead."""

    ahead = 0.0

    def monotonic(self) -> float:
        return time.monotonic() + self.ahead


class Asked(ModelProvider):
    """A scripted model that says in ``log`` that it is asked."""

    def __init__(self, script: Script, log: list[str]) -> None:
        self._script, self._log = ScriptedProvider(script), log

    def request(self, request: ModelRequest) -> ModelResponse:
        self._log.append("model")
        return self._script.request(request)


Lose = Callable[[], None]


def async_tool(log: list[str], name: str) -> Tool:
    async def body(what: str = "") -> str:
        log.append(f"{name} {what}")
        return name

    body.__name__ = name
    return tool("read_only")(body)


def noting(log: list[str], lose: Lose) -> list[Tool]:
    def note(what: str = "") -> str:
        log.append("note")
        Group.objects.using("postgres").create(name="noted")
        return "noted"

    return [tool("transactional", using="postgres")(note)]


def doubted(log: list[str], lose: Lose) -> list[Tool]:
    def probe(context: Any, **arguments: Any) -> Any:
        log.append("probe")
        return not_done

    return [effect(log, "book", probe=probe)]


def twice(log: list[str], lose: Lose) -> list[Tool]:
    """Return a tool whose first call loses the lease."""
    return [effect(log, "search", "read_only", lambda context: lose() if log.count("search a") == 1 else "found")]


# What is about to be begun; the script; its tools; the decision before which the lease is lost, None for in a body;
# what has begun by then.
THINGS: dict[str, tuple[Script, Callable[[list[str], Lose], list[Tool]], type[Decision] | None, list[str]]] = {
    "model": (["done"], lambda log, lose: [], AskModel, []),
    "read-only tool": ([calls("search")], lambda log, lose: [effect(log, "search", "read_only")], Dispatch, ["model"]),
    "idempotent tool": ([calls("touch")], lambda log, lose: [effect(log, "touch", "idempotent")], Dispatch, ["model"]),
    "effectful tool": ([calls("book")], lambda log, lose: [effect(log, "book")], Dispatch, ["model"]),
    "async tool": ([calls("look")], lambda log, lose: [async_tool(log, "look")], Dispatch, ["model"]),
    "transactional tool": ([calls("note")], noting, Transact, ["model"]),
    "next tool of a turn": (
        [[("search", {"what": name}) for name in "ab"]],
        twice,
        None,
        ["model", "search a"],
    ),
    "probe": ([calls("book")], doubted, Probe, ["model"]),
}


class Loss:
    """Loses a run's lease, in one of two ways, once: before a decision is carried out, or when it is called."""

    def __init__(self, stage: Stage, way: str, clock: Later, kind: type[Decision] | None) -> None:
        self.stage, self.way, self.clock, self.kind = stage, way, clock, kind
        self.carried: ResumedRun | None = None

    def __call__(self) -> None:
        thread = threading.Thread(target=self._lose)  # not this one's, which may be a loop's
        thread.start()
        thread.join()

    def _lose(self) -> None:
        assert self.carried is not None
        holder: Leaseholder = self.carried.holder
        if self.way == "lost":
            self.stage.world.steal(self.stage.run_id)
            with contextlib.suppress(LeaseLostError):
                holder.renew()  # as the keeper does, which finds out
        else:
            holder.leases = broken("leases", **dict.fromkeys(("renew", "renew_at_once"), raises(DOWN)))(
                self.stage.stores
            ).leases
            self.clock.ahead += holder.policy.ttl_seconds + 1
        connections.close_all()

    def watch(self, run: RunState, decision: Decision) -> None:
        if self.kind is not None and isinstance(decision, self.kind):
            self.kind = None
            self()


DOWN = StoreUnavailableError("down")


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("way", ["lost", "unconfirmed"])
@pytest.mark.parametrize("thing", THINGS)
def test_nothing_is_begun_without_the_lease(
    thing: str, way: str, asynchronous: bool, log: list[str], monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.ADK = {"TOOLS": {"max_concurrent": 1}}  # one body at a time, on a loop too
    script, tools_of, kind, begun = THINGS[thing]
    monkeypatch.setattr(leaseholder, "time", clock := Later())
    stage = Stage("postgres" if thing == "transactional tool" else "memory", [])
    loss = Loss(stage, way, clock, kind)
    stage.agent = stage.agent_with(*tools_of(log, loss), provider=Asked([*script, "done"], log))
    if thing == "probe":
        stage.die("tool book")
    runner = stage.runner()
    runner.create(stage.agent, "go", tenant=TENANT, run_id=stage.run_id, user=None)
    loss.carried = runner.take(runner.stored(stage.run_id, tenant=TENANT), stage.agent)
    given: dict[str, Any] = {"tenant": TENANT, "carried": loss.carried, "watch": loss.watch}
    wanted: type[AdkError] = LeaseLostError if way == "lost" else StoreUnavailableError
    with pytest.raises(wanted):
        if asynchronous:
            asyncio.run(runner.aresume(stage.agent, stage.run_id, **given))
        else:
            runner.resume(stage.agent, stage.run_id, **given)
    assert log == begun
    assert not Group.objects.using("postgres").exists()
