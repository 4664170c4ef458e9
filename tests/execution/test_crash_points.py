"""Every crash point of every scenario, one at a time and in pairs, and every theft: no effect is doubled or lost."""

import contextlib
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.db import connections

from adk_django.concurrency import forget_pool
from adk_django.core.messages import Message, ToolCall, ToolResult
from adk_django.core.record import RunStatus
from adk_django.exceptions import IndeterminateToolCallError
from adk_django.testing import Crash, EffectLog
from adk_django.testing.crashes import Crasher, CrashPoint, crash_points
from tests import sampling
from tests.backends import World, finish, slice_of
from tests.run_definitions import SCENARIOS, TRANSACTIONAL, Scenario
from tests.sampling import draw

counter = itertools.count()
MORE = 8  # points that a resume may have which the first slice has not
ONCE = ("book", "mail", "wire", "once", "note")


def fresh_log(tmp_path: Path) -> EffectLog:
    return EffectLog(tmp_path / f"{next(counter)}.log")


def run_id() -> str:
    return f"run_{next(counter)}"


def effects(log: EffectLog, run: str, using: str | None) -> Counter[str]:
    """Return every effect of a run: the lines of its log, and the rows of its transactional tool."""
    notes = 0 if using is None else Group.objects.using(using).filter(name__startswith=f"{run}/").count()
    return Counter(log.lines()) + Counter({"note/row": notes})


def expected(world: World, scenario: Scenario, tmp_path: Path, using: str | None) -> Counter[str]:
    """Return how often each tool's effect happens when nothing goes wrong."""
    log, run = fresh_log(tmp_path), run_id()
    assert finish(world, scenario, log, run, using=using).status is RunStatus.COMPLETED
    return Counter(line.split("/")[0] for line in effects(log, run, using))


def check(made: Counter[str], wanted: Counter[str], where: str) -> None:
    """Assert that each effect is there, and each that must not be repeated is there once for its key."""
    keys = Counter(line.split("/")[0] for line in made)
    doubled = {line: times for line, times in made.items() if times > 1 and line.split("/")[0] in ONCE}
    assert not doubled, f"{where}: made more than once under one key: {doubled}"
    assert keys == wanted, f"{where}: made {keys}, wanted {wanted}"


def points(world: World, scenario: Scenario, tmp_path: Path, using: str | None) -> list[CrashPoint]:
    """Return the crash points of a first slice."""

    def first(crasher: Crasher) -> None:
        slice_of(world, scenario, fresh_log(tmp_path), run_id(), crasher, using=using)

    return crash_points(first)


QUICK = ("effectful", "idempotent", "book_search", "granted", "edited")  # the rest of the long lists is slow


def names(*quick: str) -> list[object]:
    """Return every scenario's name, those that are not ``quick`` marked slow."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in SCENARIOS]


@pytest.fixture(params=["sync", pytest.param("async", marks=pytest.mark.slow)])
def asynchronous(request: pytest.FixtureRequest) -> bool:
    """Return whether the runs of a test are driven on an event loop: each test does both, the second where time is."""
    return bool(request.param == "async")


@pytest.fixture
def memory(asynchronous: bool) -> World:
    return World("memory", asynchronous=asynchronous)


@pytest.fixture
def database(alias: str, asynchronous: bool, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    if asynchronous:  # a new connection for every call would take longer than the calls
        monkeypatch.setitem(connections.settings[alias], "CONN_MAX_AGE", 600)
    yield World(alias, asynchronous=asynchronous)
    forget_pool()


@pytest.fixture(params=SCENARIOS)
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return SCENARIOS[request.param]


@pytest.fixture(params=TRANSACTIONAL)
def transactional(request: pytest.FixtureRequest) -> Scenario:
    return TRANSACTIONAL[request.param]


def every_single_crash(world: World, scenario: Scenario, tmp_path: Path, using: str | None = None) -> None:
    wanted = expected(world, scenario, tmp_path, using)
    listed = points(world, scenario, tmp_path, using)
    assert len(listed) >= 8
    for point in draw(listed, 4):
        log, run = fresh_log(tmp_path), run_id()
        assert slice_of(world, scenario, log, run, Crasher(point), using=using) is None
        assert finish(world, scenario, log, run, using=using).status is RunStatus.COMPLETED
        check(effects(log, run, using), wanted, str(point))


def every_theft(world: World, scenario: Scenario, tmp_path: Path, using: str | None = None) -> None:
    wanted = expected(world, scenario, tmp_path, using)
    for point in draw(points(world, scenario, tmp_path, using), 4):
        log, run = fresh_log(tmp_path), run_id()
        thief = Crasher(point, lambda run=run: world.steal(run), fatal=False)
        slice_of(world, scenario, log, run, thief, using=using)
        assert finish(world, scenario, log, run, using=using).status is RunStatus.COMPLETED
        check(effects(log, run, using), wanted, f"theft {point}")


def every_pair(world: World, scenario: Scenario, tmp_path: Path, using: str | None = None) -> int:
    """Crash a run twice. In memory every pair is tried; elsewhere, where each takes its time, some of them."""
    wanted = expected(world, scenario, tmp_path, using)
    listed = points(world, scenario, tmp_path, using)
    assert len(listed) >= 8
    pairs = 0
    firsts, seconds = (None, None) if world.using is None else (6, 6)
    for first in draw(listed, 2, firsts):
        for index in draw(range(len(listed) + MORE), 4, seconds):
            log, run = fresh_log(tmp_path), run_id()
            slice_of(world, scenario, log, run, Crasher(first), using=using)
            second = Crasher(CrashPoint(index // 2, "before" if index % 2 == 0 else "after"))
            with contextlib.suppress(IndeterminateToolCallError):  # its people go on below
                slice_of(world, scenario, log, run, second, using=using)
            assert finish(world, scenario, log, run, using=using).status is RunStatus.COMPLETED
            check(effects(log, run, using), wanted, f"{first}, then {index}")
            pairs += 1
            if not second.dead:
                break  # the slice ended before this point, and before those that follow
        else:
            assert seconds or sampling.sampling, f"{first}: more points than were tried"
    return pairs


def test_every_single_crash_in_memory(scenario: Scenario, memory: World, tmp_path: Path) -> None:
    every_single_crash(memory, scenario, tmp_path)


def test_every_theft_in_memory(scenario: Scenario, memory: World, tmp_path: Path) -> None:
    every_theft(memory, scenario, tmp_path)


@pytest.mark.parametrize("name", names(*QUICK))
def test_every_pair_of_crashes_in_memory(name: str, memory: World, tmp_path: Path) -> None:
    assert every_pair(memory, SCENARIOS[name], tmp_path) >= (2 if sampling.sampling else 17)


@pytest.mark.parametrize("name", names(*QUICK))
def test_every_single_crash_in_a_database(name: str, database: World, tmp_path: Path) -> None:
    every_single_crash(database, SCENARIOS[name], tmp_path)


@pytest.mark.parametrize("name", names(*QUICK))
def test_every_theft_in_a_database(name: str, database: World, tmp_path: Path) -> None:
    every_theft(database, SCENARIOS[name], tmp_path)


def test_every_single_crash_with_a_transactional_tool(transactional: Scenario, database: World, tmp_path: Path) -> None:
    every_single_crash(database, transactional, tmp_path, using=database.using)


@pytest.fixture
def in_redis(redis: Any, asynchronous: bool) -> World:
    return World("redis", asynchronous=asynchronous)


@pytest.mark.parametrize("name", names("effectful", "granted"))
def test_every_single_crash_in_redis(name: str, in_redis: World, tmp_path: Path) -> None:
    every_single_crash(in_redis, SCENARIOS[name], tmp_path)


@pytest.mark.parametrize("name", names("effectful", "book_search"))
def test_every_theft_in_redis(name: str, in_redis: World, tmp_path: Path) -> None:
    every_theft(in_redis, SCENARIOS[name], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_pair_of_crashes_in_redis(name: str, in_redis: World, tmp_path: Path) -> None:
    assert every_pair(in_redis, SCENARIOS[name], tmp_path) >= 2


@pytest.mark.slow
@pytest.mark.parametrize("name", [*SCENARIOS, *TRANSACTIONAL])
def test_every_pair_of_crashes_in_a_database(name: str, database: World, tmp_path: Path) -> None:
    using = database.using if name in TRANSACTIONAL else None
    assert every_pair(database, {**SCENARIOS, **TRANSACTIONAL}[name], tmp_path, using) >= 2


def well_formed(messages: tuple[Message, ...]) -> bool:
    """Return whether every call has exactly one result, in order, right behind the message that asked."""
    for message, following in itertools.zip_longest(messages, messages[1:]):
        asked = [part.id for part in message.parts if isinstance(part, ToolCall)]
        if asked:
            if following is None or following.role != "tool":
                return False
            if [part.call_id for part in following.parts if isinstance(part, ToolResult)] != asked:
                return False
    return True


def test_the_model_is_given_a_well_formed_conversation_at_every_kill_point(
    scenario: Scenario, memory: World, tmp_path: Path
) -> None:
    world = memory
    scenario.asked.clear()
    drawn = draw(points(world, scenario, tmp_path, None), 4)
    for point in drawn:
        log, run = fresh_log(tmp_path), run_id()
        slice_of(world, scenario, log, run, Crasher(point))
        finish(world, scenario, log, run)
    assert len(scenario.asked) > (len(drawn) if sampling.sampling else 16)
    assert all(well_formed(request.messages) for request in scenario.asked)


def test_a_crash_is_caught_by_no_tool() -> None:
    assert not issubclass(Crash, Exception)
