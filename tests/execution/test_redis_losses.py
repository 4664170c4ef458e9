"""What a Redis that forgets costs: at worst a stop and an operator, never a second effect."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django_redis import get_redis_connection

from adk_django.core.record import RunStatus
from adk_django.exceptions import (
    CheckpointDamagedError,
    CheckpointPassedError,
    FenceLostError,
    HistoryUnavailableError,
    IndeterminateToolCallError,
    LeaseLostError,
    StoreUnavailableError,
)
from adk_django.models import Run
from adk_django.stores.redis.client import keys_of
from adk_django.testing import Crash, EffectLog
from adk_django.testing.crashes import Crasher, CrashPoint, crash_points
from tests import sampling
from tests.backends import TENANT, World, finish, slice_of
from tests.execution.test_crash_points import ONCE, fresh_log, run_id
from tests.fake_tools import DiesAt
from tests.run_definitions import Scenario, calls
from tests.sampling import draw
from tests.servers import RedisServer

SCENARIO = Scenario([calls("book", "mail"), calls("touch"), "done"])
STOPS = (CheckpointDamagedError, CheckpointPassedError, HistoryUnavailableError)


class Striker(Crasher):
    """Does something at one point, and something at an earlier one; the run is not dead of it."""

    def __init__(
        self, at: CrashPoint, strike: Callable[[], Any], before: CrashPoint | None = None, prepare: Any = None
    ):
        super().__init__(at, strike, fatal=False)
        self.before, self.prepare = before, prepare

    def _hit(self, index: int, when: Any) -> None:
        if self.before is not None and (self.before.index, self.before.when) == (index, when):
            self.prepare()
        super()._hit(index, when)


def points(world: World, tmp_path: Path) -> list[CrashPoint]:
    """Return the points of a whole run."""

    def first(crasher: Crasher) -> None:
        slice_of(world, SCENARIO, fresh_log(tmp_path), run_id(), crasher)

    return crash_points(first)


def carried_on(world: World, log: EffectLog, run: str, crasher: Crasher) -> str:
    """Carry a run on, struck, and then as its people would; return what it came to. No effect is made twice."""
    came = "completed"
    try:
        slice_of(world, SCENARIO, log, run, crasher)
    except StoreUnavailableError:
        came = "interrupted"
    for _ in range(3):
        try:
            Run.objects.filter(run_id=run).update(wake_at=None)
            assert finish(world, SCENARIO, log, run).status is RunStatus.COMPLETED
            break
        except FenceLostError:
            came = "fence lost"
            world.stores().leases.stamp(TENANT, run, Run.objects.get(run_id=run).fence)
        except STOPS as error:
            came = error.code
            break
    else:
        raise AssertionError(f"{run} was neither carried on nor stopped")
    made = Counter(log.lines())
    doubled = {line: times for line, times in made.items() if times > 1 and line.split("/")[0] in ONCE}
    assert not doubled, f"{crasher._point}: {doubled}"
    if came not in [error.code for error in STOPS]:
        assert {line.split("/")[0] for line in made} == {"book", "mail", "touch"}
    return came


@pytest.fixture
def world(redis: Any) -> World:
    return World("redis")


LOSSES: dict[str, Callable[[Any, str], Any]] = {
    "the lease key deleted": lambda redis, run: redis.delete(keys_of(TENANT, run)[0]),
    "the frontier evicted": lambda redis, run: redis.delete(keys_of(TENANT, run)[1]),
    "the claims evicted": lambda redis, run: redis.delete(keys_of(TENANT, run)[2]),
    "everything flushed": lambda redis, run: redis.flushdb(),
}

LOST = "checkpoint-damaged"  # begun, and no frontier: for a person to cancel
CAME = {
    ("the lease key deleted", False): {"fence lost"},
    ("the lease key deleted", True): {"fence lost"},
    ("the frontier evicted", False): {"completed"},
    ("the frontier evicted", True): {"completed", LOST},
    ("the claims evicted", False): {"completed"},
    ("the claims evicted", True): {"completed"},  # what was claimed is put to a person
    ("everything flushed", False): {"fence lost", LOST},
    ("everything flushed", True): {"fence lost", LOST},
}


@pytest.mark.parametrize("dies", [False, True], ids=["under a worker", "as its worker dies"])
@pytest.mark.parametrize("loss", LOSSES)
def test_whatever_is_deleted_at_any_point_no_effect_is_made_twice(
    loss: str, dies: bool, world: World, redis: Any, tmp_path: Path
) -> None:
    came: Counter[str] = Counter()
    for point in points(world, tmp_path):
        run = run_id()

        def strike(run: str = run) -> None:
            LOSSES[loss](redis, run)
            if dies:
                raise Crash

        came[carried_on(world, fresh_log(tmp_path), run, Striker(point, strike))] += 1
    assert set(came) == CAME[loss, dies]


def test_a_worker_whose_lease_key_was_deleted_in_a_body_stops_and_the_next_is_told(
    world: World, redis: Any, tmp_path: Path
) -> None:
    log, run = fresh_log(tmp_path), run_id()
    (book,) = (point for point in points(world, tmp_path) if str(point).endswith("tool book") and point.when == "after")
    assert slice_of(world, SCENARIO, log, run, Striker(book, lambda: redis.delete(keys_of(TENANT, run)[0]))) is None
    with pytest.raises(FenceLostError, match="has seen fence 1.*adk_release"):
        finish(world, SCENARIO, log, run)
    world.stores().leases.stamp(TENANT, run, 1)
    assert finish(world, SCENARIO, log, run).status is RunStatus.COMPLETED  # by the evidence the worker left
    assert len(log.lines()) == 3


def test_a_call_whose_claim_was_evicted_is_put_to_a_person(world: World, redis: Any, tmp_path: Path) -> None:
    log, run = fresh_log(tmp_path), run_id()
    (book,) = (point for point in points(world, tmp_path) if str(point).endswith("tool book") and point.when == "after")
    slice_of(world, SCENARIO, log, run, Crasher(book))
    redis.delete(keys_of(TENANT, run)[2])
    with pytest.raises(IndeterminateToolCallError, match="1.1 book"):
        slice_of(world, SCENARIO, log, run, Crasher())
    assert len(log.lines()) == 1
    assert finish(world, SCENARIO, log, run).status is RunStatus.COMPLETED
    assert len(log.lines()) == 3


def test_a_frontier_of_a_turn_before_the_newest_claim_is_refused(world: World, redis: Any, tmp_path: Path) -> None:
    scenario, log, run = Scenario([calls("book"), calls("book"), "done"]), fresh_log(tmp_path), run_id()
    agent = scenario.agent(log)
    crasher = DiesAt("tool book", "before", 2)
    frontier = keys_of(TENANT, run)[1]
    runner = world.runner(crasher)
    runner.create(agent, "go", tenant=TENANT, run_id=run, user=None)
    old = DiesAt("model", "before", 2, lambda: redis.copy(frontier, "old"))
    runner = world.runner(crasher)
    with pytest.raises(Crash):
        runner.resume(crasher.agent(old.agent(agent)), run, tenant=TENANT)
    world.age(run)
    redis.copy("old", frontier, replace=True)
    redis.delete(keys_of(TENANT, run)[2])
    with pytest.raises(CheckpointPassedError, match=r"2\.1"):
        slice_of(world, scenario, log, run, Crasher())
    assert len(log.lines()) == 1


# The server restarts


@pytest.fixture
def server(tmp_path_factory: pytest.TempPathFactory, settings: Any, redis: Any) -> Any:
    """Return a server of the test's own, behind the cache alias `adk`."""
    with RedisServer(tmp_path_factory.mktemp("own-redis")) as own:
        settings.CACHES = {**settings.CACHES, "adk": {**settings.CACHES["adk"], "LOCATION": own.url}}
        yield own


def test_a_restart_without_persistence_makes_no_effect_twice(server: RedisServer, tmp_path: Path) -> None:
    world, came = World("redis"), Counter()
    for point in points(world, tmp_path):
        striker = Striker(point, lambda: server.restart(empty=True))
        came[carried_on(world, fresh_log(tmp_path), run_id(), striker)] += 1
    assert came[LOST] > 0


def restarts(server: RedisServer, tmp_path: Path, pairs: Callable[[int, int], bool]) -> Counter[str]:
    world, came = World("redis"), Counter()
    listed = list(enumerate(points(world, tmp_path)))
    both = [(saved, struck) for first, saved in listed for last, struck in listed if pairs(first, last)]
    for saved, struck in draw(both, 12, 60):
        client = get_redis_connection("adk")
        striker = Striker(struck, server.restart, saved, client.save)
        came[carried_on(world, fresh_log(tmp_path), run_id(), striker)] += 1
    return came


def test_a_restart_from_a_file_a_few_steps_old_makes_no_effect_twice(server: RedisServer, tmp_path: Path) -> None:
    assert len(restarts(server, tmp_path, lambda first, last: last - first == 3)) > 1


@pytest.mark.slow
def test_a_restart_from_a_file_of_any_age_makes_no_effect_twice(server: RedisServer, tmp_path: Path) -> None:
    assert len(restarts(server, tmp_path, lambda first, last: first <= last)) > 1 or sampling.sampling


def test_after_a_restart_a_call_that_was_not_claimed_is_unknown(server: RedisServer, tmp_path: Path) -> None:
    world, log, run = World("redis"), fresh_log(tmp_path), run_id()
    saved = next(
        point for point in points(world, tmp_path) if "after_model_call" in str(point) and point.when == "after"
    )
    slice_of(world, SCENARIO, log, run, Crasher(saved))
    get_redis_connection("adk").save()
    server.restart()
    with pytest.raises(IndeterminateToolCallError, match="1.1 book.*1.2 mail"):
        slice_of(world, SCENARIO, log, run, Crasher())
    assert log.lines() == []
    assert finish(world, SCENARIO, log, run).status is RunStatus.COMPLETED


def test_a_worker_that_outlived_a_restart_writes_nothing(server: RedisServer) -> None:
    stores = World("redis").stores()
    lease = stores.leases.acquire("run_1", tenant=TENANT, holder="worker-1", ttl_seconds=60)
    get_redis_connection("adk").save()
    server.restart()
    with pytest.raises(LeaseLostError, match="restarted"):
        stores.leases.renew(lease, ttl_seconds=60)
    with pytest.raises(LeaseLostError, match="restarted"):
        stores.checkpoints.forget("run_1", tenant=TENANT, fence=lease.fence)
    stores.leases.release(lease)
    assert stores.leases.acquire("run_1", tenant=TENANT, holder="worker-2", ttl_seconds=60).fence == 2
