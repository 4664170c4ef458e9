"""The database goes away: between statements, while a tool runs, and before or after it has done what it was told."""

import functools
import itertools
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from django.db import connections

from adk_django.core.effects import ClaimState
from adk_django.core.record import RunStatus
from adk_django.exceptions import StoreUnavailableError
from adk_django.execution.runner import RunResult
from adk_django.models import IdempotencyKey
from adk_django.testing import EffectLog
from adk_django.testing.crashes import Crasher
from tests.backends import World, finish, slice_of
from tests.execution.test_crash_points import check, effects, expected, fresh_log, points, run_id
from tests.kill.child_processes import Nursery
from tests.kill.postgres_proxy import Proxy
from tests.kill.run_definitions import SCENES, using_of

pytestmark = pytest.mark.parametrize("alias", ["postgres"], indirect=True)
OTHERS = "FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> %s"


def ask(alias: str, sql: str, *given: Any) -> list[Any]:
    """Return the rows of a query on this thread's connection."""
    with connections[alias].cursor() as cursor:
        cursor.execute(sql, given)
        return list(cursor.fetchall())


def terminate(alias: str, backend: int) -> None:
    """Terminate a connection, by way of another."""
    other: Any = connections.create_connection(alias)
    with closing(other), other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", [backend])


def terminate_others(alias: str) -> int:
    """Terminate every connection to the database but this thread's; return how many there were."""
    ((own,),) = ask(alias, "SELECT pg_backend_pid()")
    return len(ask(alias, f"SELECT pg_terminate_backend(pid, 10000) {OTHERS}", own))


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_outcome_is_stored_once_where_the_connection_died_while_the_tool_ran(
    nursery: Nursery, alias: str, tmp_path: Path, *, asynchronous: bool
) -> None:
    log, gate = EffectLog(tmp_path / "effects.log"), nursery.gate(tmp_path / "gate")
    hold = {"tool": "book", "when": "after", "gate": gate.path}
    given = {"run": "run_1", "scene": "effectful", "log": str(log.path), "hold": hold}
    child = nursery.spawn("drive", asynchronous=asynchronous, **given)
    child.said("entered")
    assert terminate_others(alias) >= 1
    gate.open()
    result = child.said("result")
    assert (result["status"], result["fence"]) == ("completed", 1)
    assert child.wait() == 0
    claim = IdempotencyKey.objects.using(alias).get()
    assert (claim.state, claim.attempt, claim.late_outcome) == (ClaimState.DONE.value, 1, None)
    assert len(log.lines()) == 1


def test_a_commit_that_dies_waiting_is_made_by_the_next_connection(
    nursery: Nursery, alias: str, tmp_path: Path
) -> None:
    log, gate = EffectLog(tmp_path / "effects.log"), nursery.gate(tmp_path / "gate")
    hold = {"tool": "book", "when": "after", "gate": gate.path}
    child = nursery.spawn("drive", run="run_1", scene="effectful", log=str(log.path), hold=hold)
    child.said("entered")
    locker: Any = connections.create_connection(alias)
    with closing(locker), locker.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("SELECT 1 FROM adk_runs WHERE run_id = 'run_1' FOR UPDATE")
        gate.open()
        while not (waiting := ask(alias, f"SELECT pid {OTHERS} AND wait_event_type = 'Lock'", 0)):
            pass
        ask(alias, "SELECT pg_terminate_backend(%s, 10000)", waiting[0][0])
        assert IdempotencyKey.objects.using(alias).get().state == ClaimState.IN_FLIGHT.value
    assert child.said("result")["status"] == "completed"
    claim = IdempotencyKey.objects.using(alias).get()
    assert (claim.state, claim.attempt, claim.late_outcome) == (ClaimState.DONE.value, 1, None)
    assert len(log.lines()) == 1


@pytest.mark.parametrize("name", ["book_search", "search_book_note"])
def test_a_connection_that_dies_at_any_point_costs_nothing(name: str, alias: str, tmp_path: Path) -> None:
    world, scene, using = World(alias), SCENES[name], using_of(name, alias)
    wanted = expected(world, scene, tmp_path, using)
    listed = points(world, scene, tmp_path, using)
    log = fresh_log(tmp_path)
    for point in listed:
        run = run_id()
        log.path = tmp_path / f"{run}.log"
        driver = connections[alias]
        driver.ensure_connection()
        strike = functools.partial(terminate, alias, driver.connection.info.backend_pid)
        try:
            result = slice_of(world, scene, log, run, Crasher(point, strike, fatal=False), using=using)
        except StoreUnavailableError:
            assert name == "search_book_note", f"{point}: only a transaction is not sent again"
            result = finish(world, scene, log, run, using=using)
        assert result is not None
        assert result.status is RunStatus.COMPLETED
        check(effects(log, run, using), wanted, str(point))


@contextmanager
def through(alias: str, marker: bytes, nth: int, when: Literal["before", "after"]) -> Iterator[Proxy]:
    """Let this thread work through a wire that breaks at a statement."""
    connections[alias].close()
    settings = connections[alias].settings_dict
    proxy = Proxy(settings["HOST"], str(settings["PORT"]), marker, nth, when)
    kept = {key: settings[key] for key in ("HOST", "PORT", "OPTIONS")}
    settings.update(HOST="127.0.0.1", PORT=str(proxy.port), OPTIONS={**kept["OPTIONS"], "sslmode": "disable"})
    try:
        yield proxy
    finally:
        connections[alias].close()
        settings.update(kept)
        proxy.close()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", ["granted", "book_search", "search_book_note"])
def test_a_commit_whose_answer_never_came_is_made_once(
    name: str, when: Literal["before", "after"], alias: str, tmp_path: Path
) -> None:
    world, scene, using = World(alias), SCENES[name], using_of(name, alias)
    wanted = expected(world, scene, tmp_path, using)
    log = fresh_log(tmp_path)
    for nth in itertools.count():
        run = run_id()
        log.path = tmp_path / f"{run}.log"
        result: RunResult | None = None
        with through(alias, b"WITH gate AS", nth, when) as proxy:
            try:
                result = slice_of(world, scene, log, run, Crasher(), using=using)
            except StoreUnavailableError:
                assert name == "search_book_note", "only a transaction may not be sent again"
        if result is None or result.status is RunStatus.WAITING:
            result = finish(world, scene, log, run, using=using)
        assert result.status is RunStatus.COMPLETED
        check(effects(log, run, using), wanted, f"commit {nth}, {when}")
        if not proxy.broke:
            break
    assert nth >= {"granted": 2}.get(name, 4)


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_transaction_whose_commit_was_not_answered_is_there_once_or_made_again(
    when: Literal["before", "after"], alias: str, tmp_path: Path
) -> None:
    world, scene, log, run = World(alias), SCENES["transactional"], EffectLog(tmp_path / "effects.log"), run_id()
    with through(alias, b"COMMIT", 0, when) as proxy, pytest.raises(StoreUnavailableError):
        slice_of(world, scene, log, run, Crasher(), using=alias)
    assert proxy.broke
    made = effects(log, run, alias)["note/row"]
    assert made == (1 if when == "after" else 0)
    assert finish(world, scene, log, run, using=alias).status is RunStatus.COMPLETED
    assert effects(log, run, alias)["note/row"] == 1
