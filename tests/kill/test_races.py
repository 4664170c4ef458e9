"""Processes that want one run, or one file, at one instant."""

import contextlib
import selectors
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from adk_django import runs
from adk_django.core.record import RunStatus
from adk_django.exceptions import RunConflictError
from adk_django.models import IdempotencyKey, Run, RunLease, Spend
from adk_django.testing import EffectLog
from tests.backends import TENANT
from tests.kill.child_processes import Nursery
from tests.kill.run_definitions import SCENES
from tests.servers import PROJECT_DIR, child_env


def race(nursery: Nursery, alias: str, folder: Path) -> None:
    """Let two workers resume one run at one instant: one works, the other is told who does, and until when."""
    run, log = f"run_{folder.name}", EffectLog(folder / "effects.log")
    begin, inside = nursery.gate(folder / "begin"), nursery.gate(folder / "inside")
    hold = {"tool": "book", "when": "after", "gate": inside.path}
    given = {"run": run, "scene": "effectful", "log": str(log.path), "begin_at": begin.path, "hold": hold}
    racers = [nursery.spawn("drive", **given) for _ in range(2)]
    for racer in racers:
        racer.said("ready")
    begin.open()
    # The winner is inside its tool until the loser has been answered.
    told = {line["event"]: (line, racer) for racer in racers for line in [racer.next()]}
    assert set(told) == {"entered", "raised"}
    (_, winner), (lost, _) = told["entered"], told["raised"]
    lease = RunLease.objects.using(alias).get(run_id=run)
    assert (lost["code"], lost["holder"], lost["until"]) == ("resume-conflict", lease.holder, str(lease.expires_at))
    assert lease.holder is not None
    assert lease.holder.endswith(f"-{winner.pid}")
    assert lease.holder in lost["text"]
    assert lease.expires_at is not None
    assert lease.expires_at.isoformat() in lost["text"]
    inside.open()
    assert winner.said("result")["status"] == "completed"
    assert [racer.wait() for racer in racers] == [0, 0]
    assert len(log.lines()) == 1
    assert IdempotencyKey.objects.using(alias).get(run_id=run).attempt == 1
    lease.refresh_from_db()
    assert (lease.fence, lease.deaths, lease.token) == (1, 0, None)


@pytest.mark.parametrize("rounds", [10, pytest.param(50, marks=pytest.mark.slow)])
def test_one_of_two_resumes_works_and_the_other_is_told_who_does(
    rounds: int, nursery: Nursery, alias: str, tmp_path: Path
) -> None:
    for number in range(rounds):
        folder = tmp_path / str(number)
        folder.mkdir()
        race(nursery, alias, folder)


def test_one_of_two_commands_works_and_the_other_exits_3(nursery: Nursery, alias: str, tmp_path: Path) -> None:
    log, gate = EffectLog(tmp_path / "effects.log"), nursery.gate(tmp_path / "gate")
    runs.start(SCENES["effectful"].agent(log), "go", tenant=TENANT, run_id="run_raced", using=alias)
    env = child_env(alias) | {"DJANGO_SETTINGS_MODULE": "tests.kill.settings"}
    env |= {"KILL_LOG": str(log.path), "KILL_GATE": gate.path}
    argv = [sys.executable, "manage.py", "adk_resume", "run_raced", "--tenant", TENANT]
    with contextlib.ExitStack() as ends:
        both = [ends.enter_context(_command(argv, env)) for _ in range(2)]
        with selectors.DefaultSelector() as selector:
            for process in both:
                assert process.stderr is not None
                selector.register(process.stderr, selectors.EVENT_READ, process)
            # The winner is inside its tool: the first to end, and so to close its standard error, has lost.
            ((key, _),) = selector.select(timeout=120)
        loser: subprocess.Popen[str] = key.data
        (winner,) = (process for process in both if process is not loser)
        _, refusal = loser.communicate(timeout=120)
        lease = RunLease.objects.using(alias).get(run_id="run_raced")
        gate.open()
        told, nothing = winner.communicate(timeout=120)
    assert (loser.returncode, winner.returncode) == (3, 0)
    assert lease.holder is not None
    assert lease.expires_at is not None
    assert f"held by {lease.holder} until {lease.expires_at.isoformat()}" in refusal
    assert lease.holder.endswith(f"-{winner.pid}")
    assert nothing == ""
    assert "held with fence 1" in told
    assert "stopped: completed" in told
    assert len(log.lines()) == 1


@contextlib.contextmanager
def _command(argv: list[str], env: dict[str, str]) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        argv,
        cwd=PROJECT_DIR,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_twenty_starts_of_one_id_are_one_run_that_begins_once(nursery: Nursery, alias: str, tmp_path: Path) -> None:
    begin, log = nursery.gate(tmp_path / "begin"), EffectLog(tmp_path / "effects.log")
    given = {"run": "run_once", "log": str(log.path), "begin_at": begin.path}
    children = [nursery.spawn("start_and_resume", **given) for _ in range(20)]
    for child in children:
        child.said("ready")
    begin.open()
    started = [child.said("started") for child in children]
    ends = [child.next() for child in children]
    assert [child.wait() for child in children] == [0] * 20

    assert sum(line["created"] for line in started) == 1
    assert {line.get("code", line.get("status")) for line in ends} <= {"resume-conflict", "completed"}
    assert len(log.lines()) == 1
    record = Run.objects.using(alias).get()
    assert (record.status, record.output) == (RunStatus.COMPLETED.value, "done")
    ledger = Spend.objects.using(alias).order_by("turn").values_list("turn", "fence")
    assert [turn for turn, _ in ledger] == [1, 2]
    assert len({fence for _, fence in ledger}) == 1

    with pytest.raises(RunConflictError, match="input") as refused:
        runs.start(SCENES["effectful"].agent(log), "a secret", tenant=TENANT, run_id="run_once", using=alias)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("alias", ["default"], indirect=True)
@pytest.mark.parametrize(("workers", "seconds"), [(2, 1), (8, 5), pytest.param(8, 30, marks=pytest.mark.slow)])
def test_workers_on_one_sqlite_file_never_find_it_locked(
    workers: int, seconds: float, nursery: Nursery, alias: str, tmp_path: Path
) -> None:
    begin, log = nursery.gate(tmp_path / "begin"), EffectLog(tmp_path / "effects.log")
    given = {"log": str(log.path), "seconds": seconds, "begin_at": begin.path}
    children = [nursery.spawn("hammer", name=f"run_{number}", **given) for number in range(workers)]
    for child in children:
        child.said("ready")
    begin.open()
    done = [child.said("hammered")["runs"] for child in children]
    assert all(done), f"somebody never got through: {done}"
    assert Run.objects.filter(status=RunStatus.COMPLETED.value).count() == sum(done) == Run.objects.count()
    lines = log.lines()
    assert len(lines) == len(set(lines)) == 4 * sum(done)
