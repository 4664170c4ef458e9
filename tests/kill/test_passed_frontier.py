"""A seat is sold, and its ticket fits no frontier: the sale is kept, and the seat is not sold again."""

import signal
from pathlib import Path

import pytest

from adk_django.core.record import RunStatus
from adk_django.exceptions import CheckpointPassedError
from adk_django.testing import EffectLog
from adk_django.testing.crashes import Crasher
from tests.backends import TENANT, World, slice_of
from tests.execution.test_crash_points import fresh_log, points, run_id
from tests.kill.child_processes import Nursery
from tests.kill.run_definitions import SEATS, SMALL, TICKET, policy_of


def tickets(world: World, run: str) -> list[object]:
    """Return the outcomes that are kept of a run's calls."""
    claims = world.stores().idempotency.look_up(run, tenant=TENANT)
    return [claim.outcome.value for claim in claims if claim.outcome is not None]


def test_the_run_goes_on_past_the_frontier_that_did_not_fit(nursery: Nursery, alias: str, tmp_path: Path) -> None:
    world, log = World(alias, policy_of(SMALL)), EffectLog(tmp_path / "effects.log")
    child = nursery.spawn("drive", run="run_1", scene="seats", log=str(log.path), policy=SMALL)
    result = child.said("result")
    assert (result["status"], result["output"]) == ("completed", "done")
    assert tickets(world, "run_1") == [TICKET]
    assert len(log.lines()) == 1


def test_a_kill_behind_it_stops_the_run_for_people(nursery: Nursery, alias: str, tmp_path: Path) -> None:
    world = World(alias, policy_of(SMALL))
    listed = points(world, SEATS, tmp_path, None)
    # The commit behind the sale brings its outcome and, refused for its size, no frontier: the next would be the end.
    sold = next(point.index for point in listed if point.effect == "tool sell")
    behind = [point for point in listed if (sold + 1, "after") == (point.index, point.when) or point.index > sold + 1]
    assert [point.effect for point in behind[::2]] == ["commit facts", "model", "commit completed"]
    for point in behind[:-1]:
        log, run = fresh_log(tmp_path), run_id()
        at = (point.index, point.when)
        child = nursery.spawn("drive", run=run, scene="seats", log=str(log.path), policy=SMALL, point=at)
        assert child.wait() == -signal.SIGKILL
        world.age(run)
        assert tickets(world, run) == [TICKET]
        for _ in range(2):
            with pytest.raises(CheckpointPassedError, match="past its frontier"):
                slice_of(world, SEATS, log, run, Crasher())
        record = world.stores().runs.get(run, tenant=TENANT)
        assert record is not None
        assert record.status is RunStatus.UNDECIDED
        assert "past its frontier" in record.reason
        assert f"over the cap of {SMALL['max_bytes']}" in record.failed_save
        assert len(log.lines()) == 1
