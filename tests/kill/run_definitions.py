"""What children run: the suite's scenarios and a few of their own, and what is wrapped around their tools."""

import asyncio
import copy
import functools
import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from django.db import connections

from adk_django.agents import Agent
from adk_django.core.checkpoint import CheckpointPolicy
from adk_django.testing import EffectLog, ScriptedProvider
from adk_django.tools import Tool, ToolContext, tool
from tests.run_definitions import SCENARIOS, TRANSACTIONAL, Scenario

TICKET = "x" * 2_500  # what a seat's ticket takes; fits no frontier of `SMALL`
SMALL = {"max_bytes": 2_000}


class Seats(Scenario):
    """Sells a seat whose ticket is long."""

    def agent(self, log: EffectLog, *, using: str | None = None, asynchronous: bool = False) -> Agent:
        @tool
        def sell(what: str, context: ToolContext) -> str:
            log.append(f"sell/{context.idempotency_key}")
            return TICKET

        provider = ScriptedProvider(self.script)
        provider.requests = self.asked
        return Agent("traveller", tools=[sell], provider=provider, revision="1")


SEATS = Seats([[("sell", {"what": "12A"})], "done"])
SCENES = {**SCENARIOS, **TRANSACTIONAL, "seats": SEATS}


def policy_of(given: dict[str, Any]) -> CheckpointPolicy:
    """Return the policy that a job names."""
    if "boundaries" in given:
        given = {**given, "boundaries": frozenset(given["boundaries"])}
    return CheckpointPolicy(**given)


def using_of(name: str, alias: str) -> str | None:
    """Return the alias on which a scene's transactional tools write, None where it has none."""
    return alias if name in TRANSACTIONAL else None


def around(agent: Agent, before: Callable[[Tool, Any], None], after: Callable[[Tool], None]) -> Agent:
    """Return ``agent`` with something done as each body is entered, handed the key of its call, and as it ends."""
    return replace(agent, tools=[_around(item, before, after) for item in agent.tools], revision="1")


def _around(item: Tool, before: Callable[[Tool, Any], None], after: Callable[[Tool], None]) -> Tool:
    body = item.body

    def key_of(given: dict[str, Any]) -> str | None:
        context = given.get("context")
        return None if context is None else context.idempotency_key

    if inspect.iscoroutinefunction(body):

        @functools.wraps(body)
        async def entered(**given: Any) -> Any:
            await asyncio.to_thread(before, item, key_of(given))
            result = await body(**given)
            await asyncio.to_thread(after, item)
            return result

    else:

        @functools.wraps(body)
        def entered(**given: Any) -> Any:
            before(item, key_of(given))
            result = body(**given)
            after(item)
            return result

    changed = copy.copy(item)  # with the schema it has made already
    changed.__dict__.update(body=entered)
    return changed


def durable(alias: str, run_id: str, item: Tool, key: str | None) -> bool:
    """Return whether the key of a call is in the database, seen by a connection that took no part in writing it.

    In a claim in flight under the fence in force, or, for an idempotent call, in the stored frontier. What is read
    only, or commits together with its outcome, needs none.
    """
    if item.effect.value in ("read_only", "transactional"):
        return True
    other = connections.create_connection(alias)
    try:
        with other.cursor() as cursor:
            cursor.execute(
                "SELECT count(*) FROM adk_idempotency_keys AS claim JOIN adk_run_leases USING (tenant, run_id, fence) "
                "WHERE run_id = %s AND tool = %s AND state = 'in_flight' AND coalesce(%s, key) = key",
                (run_id, item.name, key),
            )
            claimed = cursor.fetchone()[0] == 1
            if claimed or item.effect.value != "idempotent" or key is None:
                return bool(claimed)
            cursor.execute("SELECT payload FROM adk_checkpoints WHERE run_id = %s", (run_id,))
            row = cursor.fetchone()
            return row is not None and f'"{key}"' in row[0]
    finally:
        other.close()
