"""What children do. Each job is handed names and numbers, and tells what the suite is to know of it."""

import asyncio
import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from django.test import override_settings

from adk_django import runs
from adk_django.agents import Agent
from adk_django.exceptions import AdkError, RunLeaseError
from adk_django.execution.runner import AgentRunner, RunResult
from adk_django.testing import EffectLog
from adk_django.testing.crashes import Crasher, CrashPoint, kill
from adk_django.tools import Tool
from tests.backends import TENANT, World
from tests.kill.run_definitions import SCENES, around, durable, policy_of, using_of
from tests.kill.wrong_clock import shift
from tests.run_definitions import make_tools

ALIAS = "default"  # in a child: the database that the test is about
LOG = EffectLog(os.devnull)  # each child sets its path; the tools that write it are made before the fork


def say(event: str, *, pid: int | None = None, **facts: Any) -> None:
    """Tell the suite something. A line this short is written whole, whoever else writes."""
    line = json.dumps({"pid": pid or os.getpid(), "event": event, **facts}) + "\n"
    os.write(1, line.encode())


def wait_at(gate: str) -> None:
    """Wait until the suite opens a gate, or dies."""
    with open(gate) as file:
        fcntl.flock(file, fcntl.LOCK_SH)


def drive(
    run: str,
    scene: str,
    log: str,
    *,
    point: tuple[int, str] | None = None,
    policy: dict[str, Any] | None = None,
    asynchronous: bool = False,
    begin_at: str | None = None,
    hold: dict[str, str] | None = None,
    adk: dict[str, Any] | None = None,
    clock_wrong_by: float = 0.0,
) -> None:
    """Drive one slice of a run, created where it is new; say ``result`` or ``raised``.

    It kills itself at ``point``. With ``begin_at`` it says ``ready`` and waits at that gate before it takes the lease.
    ``hold`` names a ``tool``, a ``gate``, and whether the body waits there ``before`` or ``after`` its effect; it says
    ``entered`` as it comes there. ``adk`` are settings in force.
    """
    if clock_wrong_by:
        shift(clock_wrong_by)
    LOG.path = Path(log)
    entered = EffectLog(LOG.path.with_suffix(".entered"))
    crasher = Crasher(None if point is None else CrashPoint(*point), kill)
    world = World(ALIAS, None if policy is None else policy_of(policy))
    agent = around(
        SCENES[scene].agent(LOG, using=using_of(scene, ALIAS), asynchronous=asynchronous),
        _on_the_way_in(run, entered, hold),
        _on_the_way_out(hold),
    )
    with override_settings(ADK=adk or {}):
        runner = world.runner(crasher)
        runner.create(agent, "go", tenant=TENANT, run_id=run, user=None)
        if begin_at is not None:
            say("ready")
            wait_at(begin_at)
        tell(lambda: _resume(runner, crasher.agent(agent), run, asynchronous=asynchronous))


def start_and_resume(run: str, log: str, begin_at: str) -> None:
    """Start a run as many others do at one instant, and carry it on; say ``started``, then as `drive`."""
    LOG.path = Path(log)
    agent = SCENES["effectful"].agent(LOG)
    say("ready")
    wait_at(begin_at)
    say("started", created=runs.start(agent, "go", tenant=TENANT, run_id=run).created)
    tell(lambda: runs.resume(run, tenant=TENANT, agent=agent))


def hammer(name: str, log: str, seconds: float, begin_at: str) -> None:
    """Start and carry on one run after another, for so long; say how many in ``hammered``."""
    LOG.path = Path(log)
    agent, until, done = SCENES["two_turns"].agent(LOG), time.monotonic() + seconds, 0
    say("ready")
    wait_at(begin_at)
    while time.monotonic() < until:
        run = f"{name}_{done}"
        runs.start(agent, "go", tenant=TENANT, run_id=run)
        assert runs.resume(run, tenant=TENANT, agent=agent).output == "done"
        done += 1
    say("hammered", runs=done)


def prepare() -> None:
    """Make what every child of the nursery needs; called before it forks any."""
    for using in (None, ALIAS):
        for asynchronous in (False, True):
            for item in make_tools(LOG, using=using, asynchronous=asynchronous).values():
                _ = item.schema


def tell(work: Callable[[], RunResult]) -> None:
    """Do the work and say what came of it."""
    try:
        result = work()
    except AdkError as error:
        facts = {"holder": error.holder, "until": str(error.until)} if isinstance(error, RunLeaseError) else {}
        say("raised", code=error.code, text=str(error), **facts)
    else:
        say("result", status=result.status.value, reason=result.reason, output=result.output, fence=result.fence)


def _resume(runner: AgentRunner, agent: Agent, run: str, *, asynchronous: bool) -> RunResult:
    if asynchronous:
        return asyncio.run(runner.aresume(agent, run, tenant=TENANT))
    return runner.resume(agent, run, tenant=TENANT)


def _on_the_way_in(run: str, entered: EffectLog, hold: dict[str, str] | None) -> Callable[[Tool, str | None], None]:
    def look(item: Tool, key: str | None) -> None:
        entered.append(f"{item.name} {'durable' if durable(ALIAS, run, item, key) else 'early'}")
        if hold is not None and hold["tool"] == item.name and hold["when"] == "before":
            say("entered", tool=item.name)
            wait_at(hold["gate"])

    return look


def _on_the_way_out(hold: dict[str, str] | None) -> Callable[[Tool], None]:
    def leave(item: Tool) -> None:
        if hold is not None and hold["tool"] == item.name and hold["when"] == "after":
            say("entered", tool=item.name)
            wait_at(hold["gate"])

    return leave


JOBS: dict[str, Callable[..., None]] = {"drive": drive, "start_and_resume": start_and_resume, "hammer": hammer}
