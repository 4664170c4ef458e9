"""Agents, one for each way in which a command can end."""

import os
import signal
import threading
from datetime import timedelta

from adk_django.agents import Agent
from adk_django.providers.base import ModelProvider, ModelRequest, ModelResponse
from adk_django.testing import ScriptedProvider
from adk_django.tools import ProbeAnswer, ToolContext, done, tool, unknown

ESCAPE = "\x1b[31mred\x1b[0m\x00\u202e"  # what a terminal would act on


@tool("read_only")
def look(what: str) -> str:
    """Look something up."""
    return f"saw {what}"


@tool(requires_approval=True)
def wire(amount: int) -> str:
    """Send money."""
    return f"wired {amount}"


@tool
def vanish(what: str) -> str:
    """Nobody knows what became of it."""
    raise RuntimeError(f"gone {ESCAPE}")


def knocked(context: ToolContext, what: str) -> ProbeAnswer:
    """Say that it happened, unless TEST_PROBE has it know nothing."""
    return unknown if os.environ.get("TEST_PROBE") == "unknown" else done(f"{what} answered")


@tool(probe=knocked)
def knock(what: str) -> str:
    """Fail here; the probe knows better."""
    raise RuntimeError("no answer")


@tool
def rob(context: ToolContext) -> str:
    """Have another worker take the run over meanwhile."""
    from adk_django.models import RunLease
    from adk_django.stores.orm import OrmLeaseStore

    lease = RunLease.objects.get(run_id=context.run_id)
    RunLease.objects.filter(pk=lease.pk).update(expires_at=lease.acquired_at - timedelta(hours=1))
    OrmLeaseStore().acquire(context.run_id, tenant=context.tenant, holder="thief", ttl_seconds=60)
    return "robbed"


@tool
def interrupt() -> str:
    """Be interrupted by Ctrl-C."""
    os.kill(os.getpid(), signal.SIGINT)
    threading.Event().wait(0.2)
    return "interrupted"


class Faulty(ModelProvider):
    """A model that cannot be asked."""

    def request(self, request: ModelRequest) -> ModelResponse:
        """Fail."""
        raise ConnectionError("the model is away")


def _agent(name: str, *script: object, **options: object) -> Agent:
    tools = (look, wire, vanish, knock, rob, interrupt)
    provider = ScriptedProvider(script)
    return Agent(name, tools=tools, revision="1", **{"provider": provider, **options})


AGENTS = {
    agent.name: agent
    for agent in (
        _agent("clerk", [("look", {"what": "a"})], f"done {ESCAPE}\nreally"),
        _agent("waiter", [("wire", {"amount": 5})], "wired"),
        _agent("doubter", [("vanish", {"what": "a"})], "done"),
        _agent("knocker", [("knock", {"what": "a"})], "done"),
        _agent("victim", [("rob", {})], "done"),
        _agent("stopped", [("interrupt", {})], "done"),
        _agent("faulty", provider=Faulty()),
        _agent("spinner", *([("look", {"what": "a"})] for _ in range(3)), "done", max_turns=2),
    )
}
