"""A worker for the demo to kill: it carries a run to an exact point, says so in a file, and stays there."""

from __future__ import annotations

import functools
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandParser

from adk_django.agents import get_agent
from adk_django.core.decide import Commit, Decision, Dispatch
from adk_django.runs import resume, start

if TYPE_CHECKING:
    from adk_django.agents import Agent
    from adk_django.core.state import RunState

POLL_SECONDS = 0.05


class Command(BaseCommand):
    """Start a run and hold it at a point."""

    help = "Be a worker that the demo kills: carry a run to a point, write the file DEMO_MARKER names, and stay there."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("agent")
        parser.add_argument("prompt")
        parser.add_argument("--tenant", required=True)
        parser.add_argument("--run-id", required=True)
        parser.add_argument("--hold", choices=("answered", "recorded", "inside"), required=True)

    def handle(self, *args: Any, **options: Any) -> None:
        hold = Hold(options["hold"], Path(os.environ["DEMO_MARKER"]), int(os.environ["DEMO_PARENT"]))
        run = start(options["agent"], options["prompt"], tenant=options["tenant"], run_id=options["run_id"])
        agent = hold.agent(get_agent(options["agent"]))
        resume(run.run_id, tenant=options["tenant"], agent=agent, watch=hold.watch)


class Hold:
    """Hold a run at ``point``, one of:

    * ``answered``: the answer that asks for the booking is committed, and its claim would be next;
    * ``recorded``: the booking's outcome is committed, and another call of the same turn would be made next;
    * ``inside``: the itinerary's row is inserted, and neither it nor the call's outcome is committed.
    """

    def __init__(self, point: str, marker: Path, parent: int) -> None:
        self._point, self._marker, self._parent = point, marker, parent

    def watch(self, run: RunState, decision: Decision) -> None:
        """See what the run is about to do, before it does it."""
        match decision:
            case Commit(writes) if self._point == "answered" and writes.claims:
                self._stay()
            case Dispatch() if self._point == "recorded" and any(
                claim.outcome is not None and claim.slot.turn == run.turn for claim in run.claims.values()
            ):
                self._stay()

    def agent(self, agent: Agent) -> Agent:
        """Return the agent, of the same revision, whose transactional tools stay in their transaction."""
        if self._point != "inside":
            return agent
        tools = [replace(tool, body=self._staying(tool.body)) if tool.using else tool for tool in agent.tools]
        return replace(agent, tools=tools, revision=agent.pinned_revision)

    def _staying(self, body: Any) -> Any:
        @functools.wraps(body)
        def entered(**arguments: Any) -> Any:
            body(**arguments)
            self._stay()

        return entered

    def _stay(self) -> None:
        """Stay until killed, and no longer than whoever waits to do it."""
        self._marker.touch()
        while os.getppid() == self._parent:
            time.sleep(POLL_SECONDS)
        os._exit(1)
