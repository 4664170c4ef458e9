"""Workers whose wall clock is an hour off, either way: the store's clock decides, and nothing changes."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from adk_django.core.record import RunStatus
from adk_django.exceptions import ResumeConflictError
from adk_django.models import Checkpoint, IdempotencyKey, Run, RunLease, Spend
from adk_django.testing import EffectLog
from tests.backends import TENANT, World, finish
from tests.kill.child_processes import Child, Nursery
from tests.kill.run_definitions import SCENES

RUN = "run_off"
HOUR = 3_600.0
SCENE = "effectful"


@pytest.fixture(params=[-HOUR, HOUR])
def wrong_by(request: pytest.FixtureRequest) -> float:
    seconds: float = request.param
    return seconds


def worker(nursery: Nursery, log: EffectLog, **how: Any) -> Child:
    """Start a worker on the run."""
    return nursery.spawn("drive", run=RUN, scene=SCENE, log=str(log.path), **how)


def test_what_it_writes_is_dated_by_the_store_and_its_lease_refuses_others(
    wrong_by: float, nursery: Nursery, alias: str, tmp_path: Path
) -> None:
    world, log, gate = World(alias), EffectLog(tmp_path / "effects.log"), nursery.gate(tmp_path / "gate")
    hold = {"tool": "book", "when": "after", "gate": gate.path}
    before = world.stores().runs.now()
    child = worker(nursery, log, hold=hold, clock_wrong_by=wrong_by)
    child.said("entered")
    now = world.stores().runs.now()

    lease = RunLease.objects.using(alias).get(run_id=RUN)
    claim = IdempotencyKey.objects.using(alias).get(run_id=RUN)
    record = Run.objects.using(alias).get(run_id=RUN)
    written = [lease.acquired_at, claim.begun_at, record.begun_at, record.created_at]
    written.append(Checkpoint.objects.using(alias).get(run_id=RUN).created_at)
    written.append(Spend.objects.using(alias).get(run_id=RUN).spent_at)
    assert [instant for instant in written if instant is None or not before <= instant <= now] == []
    assert lease.expires_at - lease.acquired_at == timedelta(seconds=60)
    assert claim.deadline_at - claim.begun_at == timedelta(seconds=330)
    with pytest.raises(ResumeConflictError):
        world.runner().resume(SCENES[SCENE].agent(log), RUN, tenant=TENANT)

    child.kill()
    world.age(RUN)
    assert finish(world, SCENES[SCENE], log, RUN).status is RunStatus.COMPLETED
    assert len(log.lines()) == 1


def test_it_neither_steals_a_live_lease_nor_leaves_a_lapsed_one(
    wrong_by: float, nursery: Nursery, alias: str, tmp_path: Path
) -> None:
    log, gate = EffectLog(tmp_path / "effects.log"), nursery.gate(tmp_path / "gate")
    hold = {"tool": "book", "when": "before", "gate": gate.path}
    first = worker(nursery, log, hold=hold)
    first.said("entered")
    refused = worker(nursery, log, clock_wrong_by=wrong_by)
    assert refused.said("raised")["code"] == "resume-conflict"
    first.kill()

    lease = RunLease.objects.using(alias).get(run_id=RUN)
    assert lease.expires_at is not None
    lease.expires_at -= timedelta(seconds=60)  # a minute: less than the clock is wrong by
    lease.save()
    took_over = worker(nursery, log, clock_wrong_by=wrong_by)
    assert took_over.said("raised")["code"] == "indeterminate-call"
    lease.refresh_from_db()
    assert (lease.fence, lease.deaths) == (2, 1)
    assert log.lines() == []
