"""A real process is killed at every point where its run touches the outside; no effect is doubled, lost or guessed."""

import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from adk_django.core.effects import ClaimState, EffectClass
from adk_django.core.record import RunStatus
from adk_django.exceptions import CheckpointPassedError, IndeterminateToolCallError
from adk_django.testing import EffectLog
from adk_django.testing.crashes import Crasher, CrashPoint
from tests.backends import TENANT, World, finish, slice_of
from tests.execution.test_crash_points import check, effects, expected, fresh_log, points, run_id, well_formed
from tests.kill.child_processes import Nursery
from tests.kill.run_definitions import SCENES, policy_of, using_of
from tests.sampling import draw

SKIPPED = {"boundaries": ["before_approval"]}
REFUSED = {"max_bytes": 60}  # no frontier and no delta fits


def quick_and_slow(*quick: str) -> list[Any]:
    """Return every scene, all but the quick ones marked as slow."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.slow) for name in SCENES]


def killed(
    world: World, name: str, nursery: Nursery, tmp_path: Path, listed: Sequence[CrashPoint], **how: Any
) -> Iterator[tuple[CrashPoint, EffectLog, str]]:
    """Kill a child at each point of a scene's first slice; yield point, log and run, with the lease lapsed."""
    places = []
    for point in listed:
        run = run_id()
        path = tmp_path / f"{run}.log"
        given = {"run": run, "scene": name, "log": str(path), "point": (point.index, point.when), **how}
        places.append((point, run, path, nursery.spawn("drive", **given)))
    log = fresh_log(tmp_path)  # one for all, so that the tools that write it are made once
    for point, run, log.path, child in places:
        assert child.wait() == -signal.SIGKILL, f"{point} was not reached"
        world.age(run)
        nothing_was_early(log, str(point))
        yield point, log, run


def nothing_was_early(log: EffectLog, where: str) -> None:
    """Assert that each body found the key of its call in the database when it was entered."""
    entered = EffectLog(log.path.with_suffix(".entered")).lines()
    assert not [line for line in entered if line.endswith("early")], f"{where}: {entered}"
    assert len(entered) >= len(log.lines())


def nothing_is_guessed(world: World, name: str, log: EffectLog, run: str) -> None:
    """Assert that an effect is there once at most, and that the next slice refuses exactly the calls in doubt."""
    lines = [line for line in log.lines() if line.split("/")[0] not in ("search", "touch")]
    assert len(lines) == len(set(lines))
    claims = world.stores().idempotency.look_up(run, tenant=TENANT)
    doubted = [
        claim.slot for claim in claims if claim.state is ClaimState.IN_FLIGHT and claim.effect is EffectClass.EFFECTFUL
    ]
    if doubted:
        with pytest.raises(IndeterminateToolCallError) as refused:
            slice_of(world, SCENES[name], log, run, Crasher(), using=using_of(name, world.place))
        owners = {item.twin_of or item.call.slot for item in refused.value.calls}  # a twin is in doubt with its owner
        assert owners == set(doubted)


def every_kill(
    world: World, name: str, nursery: Nursery, tmp_path: Path, *, asynchronous: bool = False, policy: Any = None
) -> None:
    """Kill a scene at every point, and carry each of its runs to the end here."""
    scene, using = SCENES[name], using_of(name, world.place)
    wanted = expected(world, scene, tmp_path, using)
    listed = points(world, scene, tmp_path, using)
    assert len(listed) >= 8
    scene.asked.clear()
    drawn = draw(listed, 4)
    for point, log, run in killed(world, name, nursery, tmp_path, drawn, asynchronous=asynchronous, policy=policy):
        nothing_is_guessed(world, name, log, run)
        assert finish(world, scene, log, run, using=using).status is RunStatus.COMPLETED
        check(effects(log, run, using), wanted, str(point))
    assert scene.asked
    assert all(well_formed(request.messages) for request in scene.asked)


@pytest.mark.parametrize("name", quick_and_slow("effectful", "granted", "search_book_note"))
def test_a_kill_at_every_point(name: str, alias: str, nursery: Nursery, tmp_path: Path) -> None:
    every_kill(World(alias), name, nursery, tmp_path)


@pytest.mark.parametrize("name", quick_and_slow("book_search"))
def test_a_kill_at_every_point_on_a_loop(name: str, alias: str, nursery: Nursery, tmp_path: Path) -> None:
    every_kill(World(alias), name, nursery, tmp_path, asynchronous=True)


@pytest.mark.parametrize("name", quick_and_slow("effectful"))
def test_a_kill_at_every_point_where_boundaries_are_skipped(
    name: str, alias: str, nursery: Nursery, tmp_path: Path
) -> None:
    every_kill(World(alias, policy_of(SKIPPED)), name, nursery, tmp_path, policy=SKIPPED)


@pytest.mark.parametrize("name", quick_and_slow("effectful"))
def test_a_kill_at_every_point_where_no_frontier_is_saved(
    name: str, alias: str, nursery: Nursery, tmp_path: Path
) -> None:
    """What was committed once is known to be passed: nothing is made again, and nothing more is made."""
    world, scene, using = World(alias, policy_of(REFUSED)), SCENES[name], using_of(name, alias)
    wanted = expected(world, scene, tmp_path, using)
    listed = points(world, scene, tmp_path, using)
    drawn, stopped = draw(listed, 4), 0
    for point, log, run in killed(world, name, nursery, tmp_path, drawn, policy=REFUSED):
        record = world.stores().runs.get(run, tenant=TENANT)
        made = effects(log, run, using)
        if record is None or record.status.ended or not record.failed_save:
            assert finish(world, scene, log, run, using=using).status is RunStatus.COMPLETED
            check(effects(log, run, using), wanted, str(point))
            continue
        for _ in range(2):
            with pytest.raises(CheckpointPassedError):
                slice_of(world, scene, log, run, Crasher(), using=using)
            stands = world.stores().runs.get(run, tenant=TENANT)
            assert stands is not None
            assert stands.status is RunStatus.UNDECIDED
        assert effects(log, run, using) == made, f"{point}: made {made}, then more"
        assert max(made.values(), default=0) <= 1, f"{point}: made {made}"
        stopped += 1
    assert stopped > len(listed) / 2 or len(drawn) < len(listed)
