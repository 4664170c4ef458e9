"""What the chaos does, and how it is judged. Imported where Django is set up on databases of its own."""

import contextlib
import heapq
import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from celery import current_app
from django.contrib.auth.models import Group
from django.db import OperationalError, connection

from adk_django import runs
from adk_django.core.record import RunStatus
from adk_django.exceptions import AdkError, SettlementError
from adk_django.models import IdempotencyKey, Run
from adk_django.operations import wakeups
from adk_django.testing import EffectLog
from tests.backends import TENANT
from tests.servers import LastingPostgres, RedisServer
from tests.workers.agents import USING
from tests.workers.run_definitions import script_of
from tests.workers.worker_processes import Worker

WORKERS = 3
CHILDREN = 4
CALM_SECONDS = 150
STOPPED_SECONDS = (3.5, 4.5)  # longer than a lease, and shorter than any call may take
ONCE = ("book", "mail")  # their effects are lines; a transactional tool's are rows
SLOW_SECONDS = 1.0
NEAR_SECONDS = 15  # longer than a call may take, and shorter than two of them


@dataclass
class Verdict:
    """What came of it. ``faults`` are sentences, none where all is well."""

    takeovers: int = 0
    undecided: int = 0
    doubled: int = 0
    lost: int = 0
    faults: list[str] = field(default_factory=list)


class Storm:
    """Workers, runs, and what is done to them."""

    def __init__(
        self, folder: Path, postgres: LastingPostgres, broker: RedisServer, dice: random.Random, number: int
    ) -> None:
        self.folder, self._postgres, self._redis, self._dice = folder, postgres, broker, dice
        self.ids = [f"run_{index}" for index in range(number)]
        self.injuries: list[str] = []
        self.verdicts = Verdict()
        self._hurt: dict[int, str] = {}  # what was done to a process
        self._outages: list[float] = []
        self._workers: list[Worker] = []
        self._graves: list[Worker] = []
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._undecided: set[str] = set()
        self._takeovers: set[tuple[str, int]] = set()
        self._stalls: list[tuple[int, float]] = []  # which process was not let run, and until when

    # Chaos

    def rage(self, seconds: float) -> None:
        """Start all runs, one after another, and hurt whoever carries them on, for so long."""
        for _ in range(WORKERS):
            self._hire()
        for worker in self._workers:
            worker.ready()
        begun, waiting = time.monotonic(), list(reversed(self.ids))
        pace = seconds * 0.8 / len(self.ids)
        harms = [*[self._child] * 5, self._parent, self._parent, self._stop, self._stop]
        harms += [self._purge, self._double, self._double, self._terminate, self._restart, self._forget]
        next_start = next_harm = next_sweep = begun
        while (now := time.monotonic()) < begun + seconds:
            if waiting and now >= next_start:
                self._try(lambda: runs.start("roams", "go", tenant=TENANT, run_id=waiting[-1]) and waiting.pop())
                next_start += pace
            if now >= next_harm:
                self._dice.choice(harms)()
                next_harm = now + self._dice.uniform(0.2, 0.9)
            if now >= next_sweep:
                self._sweep()
                next_sweep = now + 0.5
            while self._later and self._later[0][0] <= now:
                heapq.heappop(self._later)[2]()
            self._listen()
            time.sleep(0.02)
        for run_id in waiting:
            self._patiently(lambda run_id=run_id: runs.start("roams", "go", tenant=TENANT, run_id=run_id))

    def _sweep(self) -> None:
        """Sweep; a database that took longer for it than a worker may take to renew its lease was away."""
        begun = time.monotonic()
        self._try(runs.sweep)
        if time.monotonic() > begun + SLOW_SECONDS:
            self._outages += [begun, time.monotonic()]

    def _listen(self) -> None:
        """Read what workers say, the dead ones too: a pipe that nobody reads stops who writes to it."""
        for worker in self._workers + self._graves:
            self._takeovers |= {(said["run"], said["fence"]) for said in worker.so_far("took_over")}
            self._stalls += [(said["pid"], said["until"]) for said in worker.so_far("stalled")]
            worker.forget_said()

    def _hire(self) -> None:
        log = self.folder / f"worker-{len(self._workers) + len(self._graves)}.log"
        self._workers.append(Worker(os.environ, log, concurrency=CHILDREN))

    def _harmed(self, kind: str, *pids: int) -> None:
        self.injuries.append(kind)
        for pid in pids:
            self._hurt[pid] = kind

    def _child(self) -> None:
        children = [pid for worker in self._workers for pid in children_of(worker.pid)]
        if children:
            pid = self._dice.choice(children)
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                self._harmed("child", pid)

    def _parent(self) -> None:
        worker = self._workers.pop(0)
        children = children_of(worker.pid)
        if self._dice.random() < 0.5:
            worker.kill()
        else:  # some of its children die of it, in the middle of a call; others finish what they are at
            worker.signal(signal.SIGKILL)
            worker.process.wait()
        self._harmed("parent", worker.pid, *children)
        self._graves.append(worker)
        self._hire()

    def _stop(self) -> None:
        worker = self._dice.choice(self._workers)
        pids = children_of(worker.pid)
        pids = pids if self._dice.random() < 0.3 else pids[:1]
        pids = [pid for pid in pids if pid not in self._hurt]  # once: twice would be longer than a call may take
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
        if pids:
            self._harmed("stop", *pids)
            at = time.monotonic() + self._dice.uniform(*STOPPED_SECONDS)
            heapq.heappush(self._later, (at, next(self._order), lambda: go_on(pids)))

    def _purge(self) -> None:
        with current_app.connection_for_write() as broker:
            broker.default_channel.client.delete("adk")
        self.injuries.append("purge")

    def _double(self) -> None:
        ids = self._dice.sample(self.ids, 5)
        wakeups.send([(TENANT, run_id) for run_id in ids for _ in range(2)])
        self.injuries.append("double")

    def _terminate(self) -> None:
        def terminate() -> None:
            with connection.cursor() as cursor:
                cursor.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend' AND random() < 0.7"
                )

        self._outage("terminate", terminate)

    def _restart(self) -> None:
        if self.injuries.count("restart") < 8:
            self._outage("restart", lambda: self._postgres.restart(self._dice.choice(["fast", "immediate"])))

    def _forget(self) -> None:
        if self.injuries.count("forget") < 8:
            self._redis.restart(empty=True)
            self.injuries.append("forget")

    def _outage(self, kind: str, work: Callable[[], None]) -> None:
        self._outages.append(time.monotonic())
        self._try(work)
        self._outages.append(time.monotonic())
        self.injuries.append(kind)

    def _try(self, work: Callable[[], Any]) -> bool:
        try:
            work()
        except (AdkError, OperationalError):
            connection.close_if_unusable_or_obsolete()
            return False
        return True

    def _patiently(self, work: Callable[[], Any]) -> None:
        until = time.monotonic() + 30
        while not self._try(work):
            assert time.monotonic() < until, "the database does not come back"
            time.sleep(0.2)

    # Calm

    def calm(self) -> None:
        """End all workers; let new ones carry every run on until it ends; settle by the log what nobody can say."""
        for worker in self._workers + self._graves:
            for pid in children_of(worker.pid):
                self._hurt.setdefault(pid, "end")
            worker.kill()
        self._graves, self._workers = self._graves + self._workers, []
        self._purge()
        for _ in range(WORKERS):
            self._hire()
        open_, until = Run.objects.exclude(status=RunStatus.COMPLETED.value), time.monotonic() + CALM_SECONDS
        while open_.exists() and time.monotonic() < until:
            for row in open_.filter(status=RunStatus.UNDECIDED.value):
                self._settle(row.run_id)
            self._sweep()
            self._listen()
            time.sleep(0.25)

    def _settle(self, run_id: str) -> None:
        row = Run.objects.filter(run_id=run_id, status=RunStatus.UNDECIDED.value).values_list("fence")
        stood, seen = row.first(), runs.inspect(run_id, tenant=TENANT)
        if stood is None or row.first() != stood:
            return  # somebody carries it on: what is in flight is under way
        for item in () if seen is None else seen.plan.indeterminate:
            claim: Any = item.claim
            line = f"{claim.tool}/{run_id}/{claim.key}"
            if line not in self._undecided:
                self._undecided.add(line)
                if not self._explained(line, claim):
                    self.verdicts.faults.append(f"call {claim.slot} of {run_id} is undecided and nobody was hurt")
            answer = "completed" if self._effects().count(line) else "never_ran"
            with contextlib.suppress(SettlementError):  # it might still happen: asked again later
                told = {"tenant": TENANT, "by": "the suite", "reason": "the log says so"}
                runs.settle(
                    run_id, claim.slot, answer=answer, outcome="settled" if answer == "completed" else None, **told
                )

    def _explained(self, line: str, claim: Any) -> bool:
        """Return whether the process that claimed a call was hurt, was not let run, or was without its database.

        Who entered the body says so in a line of its own; of a call that was not entered, its claim says who made it.
        """
        self._listen()
        entered = [text.rsplit("/", 2) for text in EffectLog(self.folder / "entered.log").lines()]
        mine = [(int(pid), float(at)) for what, pid, at in entered if what == line]
        ago = (datetime.now(UTC) - claim.begun_at).total_seconds()
        mine = mine or [(int(claim.holder.rpartition(":")[2]), time.monotonic() - ago)]
        away = [*((pid, at) for pid, _ in mine for at in self._outages), *self._stalls]
        return any(
            pid in self._hurt or any(pid == other and abs(at - moment) < NEAR_SECONDS for other, moment in away)
            for pid, at in mine
        )

    def _effects(self) -> list[str]:
        return EffectLog(self.folder / "effects.log").lines()

    # The verdict

    def verdict(self) -> Verdict:
        """Judge."""
        found, lines = self.verdicts, Counter(self._effects())
        found.undecided = len(self._undecided)
        self._listen()
        found.takeovers = len(self._takeovers)
        for row in Run.objects.all():
            if (row.status, row.output) != (RunStatus.COMPLETED.value, "done"):
                found.faults.append(f"{row.run_id} is {row.status}: {row.reason}")
        if Run.objects.count() != len(self.ids):
            found.faults.append(f"{Run.objects.count()} runs of {len(self.ids)}")
        script = script_of("roams", using=USING)
        asked = Counter(tool for turn in script if not isinstance(turn, str) for tool, _ in turn)
        claims = IdempotencyKey.objects.values_list("run_id", "turn", "position", "tool", "key")
        named = {f"{tool}/{run_id}/{key}": f"{run_id} {turn}.{at} {tool}" for run_id, turn, at, tool, key in claims}
        rows = Counter(name.split("/")[0] for name in Group.objects.values_list("name", flat=True))
        for run_id in self.ids:
            for tool, wanted in asked.items():
                if tool == "note":
                    self._count(f"{run_id} note", rows[run_id], wanted)
                    continue
                made = [line for line in lines if line.startswith(f"{tool}/{run_id}/")]
                self._count(f"{run_id} {tool}", len(made), wanted)
                for line in made:
                    if tool in ONCE and lines[line] > 1:
                        self._count(named.get(line, line), lines[line], 1)
        return found

    def _count(self, what: str, found: int, wanted: int) -> None:
        if found == wanted:
            return
        self.verdicts.doubled += max(0, found - wanted)
        self.verdicts.lost += max(0, wanted - found)
        self.verdicts.faults.append(f"{what}: {found} effects, not {wanted}")

    def close(self) -> None:
        """End everybody."""
        for _, _, work in self._later:
            work()
        for worker in self._workers + self._graves:
            worker.end()


def children_of(pid: int) -> list[int]:
    """Return the children of a process, none where it is gone."""
    with contextlib.suppress(OSError):
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return []


def go_on(pids: list[int]) -> None:
    """Let stopped processes go on."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
