"""Crash a run at every point where it touches the outside, in place of naming a few.

A `Crasher` wraps the three things a run does: it asks a provider, enters tool bodies, and commits. Each is an
effect, and each effect has a point before it and one after it. `crash_points` lists them by running a scenario once,
undisturbed. What happens at a point is up to the caller: `Crash` is raised, a real SIGKILL is sent, or the lease is
stolen.

A simulated crash is not a kill: an exception runs ``finally``. After it struck, a Crasher therefore lets its run
neither commit nor release, as a dead process would not. Keep tests that kill a real process beside those that use
this.
"""

import copy
import functools
import inspect
import os
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn

from adk_django.agents import Agent
from adk_django.concurrency import off_loop
from adk_django.core.lease import RunLease
from adk_django.core.record import Writes, Written
from adk_django.providers.base import ModelProvider, ModelRequest, ModelResponse
from adk_django.stores.bundle import Stores
from adk_django.tools import Tool

When = Literal["before", "after"]


class Crash(BaseException):  # noqa: N818  # no error: nothing may catch it
    """The process died here."""


@dataclass(frozen=True)
class CrashPoint:
    """Before or after the ``index``-th effect of a scenario. ``effect`` says what it is, for people."""

    index: int
    when: When
    effect: str = ""

    def __str__(self) -> str:
        return f"{self.when} {self.index} {self.effect}"


def crash() -> NoReturn:
    """Die in process."""
    raise Crash


def kill() -> None:
    """Die for real: this process gets SIGKILL."""
    os.kill(os.getpid(), signal.SIGKILL)


class Crasher:
    """Wraps what a run touches, and strikes at ``point``; with None it only counts. ``effects`` lists what was done.

    ``fatal`` says that the run is dead once it was struck; a theft of the lease is not.
    """

    def __init__(
        self, point: CrashPoint | None = None, strike: Callable[[], None] = crash, *, fatal: bool = True
    ) -> None:
        self._point, self._strike, self._fatal = point, strike, fatal
        self._lock = threading.Lock()
        self.effects: list[str] = []
        self.dead = False

    def agent(self, agent: Agent) -> Agent:
        """Return ``agent`` with every tool body, probe and its provider wrapped; its revision stays."""
        provider = None if agent.provider is None else _CrashingProvider(self, agent.provider)
        tools = [self._tool(tool) for tool in agent.tools]
        return replace(agent, tools=tools, provider=provider, revision=agent.pinned_revision)

    def stores(self, stores: Stores) -> Stores:
        """Return ``stores`` with their commit wrapped, and with a lease that a dead run does not release."""
        crasher, kind = self, type(stores)

        class Crashing(kind):  # type: ignore[misc, valid-type]  # the same stores, struck
            def commit(self, writes: Writes, *, lease: RunLease, joined: bool = False) -> Written:
                name = "commit " + (writes.boundary_name or (writes.status or "facts"))
                call = functools.partial(kind.commit, self, writes, lease=lease, joined=joined)
                written: Written = crasher.effect(name, call)
                return written

        def release(self: Any, lease: RunLease) -> None:
            if not crasher.dead:
                type(stores.leases).release(self, lease)

        leases = copy.copy(stores.leases)
        leases.__class__ = type("Dying", (type(leases),), {"release": release})
        return Crashing(**{**vars(stores), "leases": leases})

    def effect(self, name: str, call: Callable[[], Any]) -> Any:
        """Do one effect, struck before or after where that is the point."""
        index = self._enter(name)
        try:
            result = call()
        except Exception:
            self._hit(index, "after")  # what it did is done, whatever it says of it
            raise
        self._hit(index, "after")
        return result

    def _enter(self, name: str) -> int:
        with self._lock:
            index = len(self.effects)
            self.effects.append(name)
        if self.dead:
            raise Crash
        self._hit(index, "before")
        return index

    def _hit(self, index: int, when: When) -> None:
        point = self._point
        if point is not None and (point.index, point.when) == (index, when):
            self.dead = self._fatal
            self._strike()

    def _tool(self, tool: Tool) -> Tool:
        probe = None if tool.probe is None else self._wrapped(f"probe {tool.name}", tool.probe)
        wrapped = copy.copy(tool)  # with the schema it has made already
        wrapped.__dict__.update(body=self._wrapped(f"tool {tool.name}", tool.body), probe=probe)
        return wrapped

    def _wrapped(self, name: str, body: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(body):

            @functools.wraps(body)
            async def acall(*args: Any, **kwargs: Any) -> Any:
                index = await off_loop(functools.partial(self._enter, name))  # a strike may do I/O
                try:
                    result = await body(*args, **kwargs)
                except Exception:
                    await off_loop(functools.partial(self._hit, index, "after"))
                    raise
                await off_loop(functools.partial(self._hit, index, "after"))
                return result

            return acall

        @functools.wraps(body)
        def call(*args: Any, **kwargs: Any) -> Any:
            return self.effect(name, functools.partial(body, *args, **kwargs))

        return call


class _CrashingProvider(ModelProvider):
    def __init__(self, crasher: Crasher, provider: ModelProvider) -> None:
        self._crasher, self._provider = crasher, provider
        self.model = provider.model

    def request(self, request: ModelRequest) -> ModelResponse:
        answer: ModelResponse = self._crasher.effect("model", functools.partial(self._provider.request, request))
        return answer


def crash_points(scenario: Callable[[Crasher], Any]) -> list[CrashPoint]:
    """Run ``scenario`` once with a Crasher that only counts; return the points before and after each of its effects."""
    counting = Crasher()
    scenario(counting)
    return [
        CrashPoint(index, when, effect) for index, effect in enumerate(counting.effects) for when in ("before", "after")
    ]
