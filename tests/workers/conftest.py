"""A site for workers: a broker of its own database of Redis, PostgreSQL, a folder, and the workers of one test."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from adk_django import agents as registry
from adk_django import runs
from adk_django.core.record import RunStatus
from adk_django.models import IdempotencyKey, Run, RunLease
from adk_django.testing import EffectLog
from tests.backends import AGES, TENANT
from tests.celery_apps import celery_app
from tests.kill.child_processes import Gate
from tests.servers import child_env
from tests.stores.orm_conformance import age
from tests.workers import run_definitions
from tests.workers.worker_processes import Worker


class Site:
    """Where workers of one test work. The suite is the product: it starts runs and sweeps."""

    def __init__(self, alias: str, url: str, folder: Path) -> None:
        self.alias, self.url, self.folder = alias, url, folder
        self.log = EffectLog(folder / "effects.log")
        self.redis = redis.Redis.from_url(url)
        self._workers: list[Worker] = []
        self._gates: list[Gate] = []

    def worker(self, adk: dict[str, Any] | None = None, **how: Any) -> Worker:
        """Return a worker that is ready, hired as `hire` does."""
        return self.hire(adk, **how).ready()

    def hire(
        self,
        adk: dict[str, Any] | None = None,
        celery: dict[str, Any] | None = None,
        env: dict[str, str] | None = None,
        **how: Any,
    ) -> Worker:
        """Return a worker that is starting. ``adk`` and ``celery`` are its settings, ``env`` is added to its
        environment."""
        given = {
            **child_env(self.alias),
            "DJANGO_SETTINGS_MODULE": "tests.workers.settings",
            "WORKERS_BROKER": self.url,
            "WORKERS_FOLDER": str(self.folder),
            "WORKERS_ADK": json.dumps(adk or {}),
            "WORKERS_CELERY": json.dumps(celery or {}),
            **(env or {}),
        }
        made = Worker(given, self.folder / f"worker-{len(self._workers)}.log", **how)
        self._workers.append(made)
        return made

    def gate(self, tool: str, when: str = "after") -> Gate:
        """Return a shut gate at which a tool waits, before or after its effect."""
        gate = Gate(run_definitions.gate_of(self.folder, tool, when))
        self._gates.append(gate)
        return gate

    def start(self, agent: str, run_id: str = "run_1", text: str = "go") -> runs.StartedRun:
        """Start a run."""
        return runs.start(agent, text, tenant=TENANT, run_id=run_id, using=self.alias)

    def sweep(self) -> tuple[str, ...]:
        """Sweep once; return the ids of what was taken."""
        swept = runs.sweep(using=self.alias)
        assert swept.sent == len(swept.taken)
        return tuple(run_id for _, run_id in swept.taken)

    def age(self, seconds: float = AGES) -> None:
        """Let time pass for every run."""
        age(self.alias, seconds)

    def run(self, run_id: str = "run_1") -> Run:
        """Return a run's row."""
        return Run.objects.using(self.alias).get(run_id=run_id)

    def lease(self, run_id: str = "run_1") -> RunLease:
        """Return a run's lease."""
        return RunLease.objects.using(self.alias).get(run_id=run_id)

    def claims(self, run_id: str = "run_1") -> list[IdempotencyKey]:
        """Return what is recorded of a run's calls."""
        return list(IdempotencyKey.objects.using(self.alias).filter(run_id=run_id))

    def queued(self) -> int:
        """Return how many messages nobody has taken."""
        found: Any = self.redis.llen("adk")
        return int(found)

    def effects(self, tool: str) -> list[str]:
        """Return the effects of a tool, none of which happened twice."""
        lines = [line for line in self.log.lines() if line.startswith(f"{tool}/")]
        assert len(set(lines)) == len(lines), f"an effect happened twice: {lines}"
        return lines

    def completed(self, worker: Worker, run_id: str = "run_1") -> None:
        """See that a worker has completed a run and given it back, and that no effect happened twice."""
        worker.said("done", run=run_id, came=RunStatus.COMPLETED.value)
        assert (self.run(run_id).status, self.run(run_id).output) == (RunStatus.COMPLETED.value, "done")
        assert self.lease(run_id).token is None
        self.effects("book")

    def close(self) -> None:
        """End everybody."""
        for worker in self._workers:
            worker.end()
        for gate in self._gates:
            gate.open()
        self.redis.close()


@pytest.fixture
def alias() -> str:
    """Return the alias of PostgreSQL: workers are many processes."""
    return "postgres"


@pytest.fixture
def broker(redis_url: str) -> Iterator[str]:
    """Yield the URL of an empty broker, which the current Celery app has."""
    url = f"{redis_url.rsplit('/', 1)[0]}/1"
    with redis.Redis.from_url(url) as server:
        server.flushdb()
    with celery_app(url):
        yield url


@pytest.fixture
def site(alias: str, broker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Yield the site of a test, whose agents are registered here as in its workers."""
    made = {agent.name: agent for agent in run_definitions.agents(tmp_path, using=alias)}
    monkeypatch.setattr(registry, "_registry", made)
    place = Site(alias, broker, tmp_path)
    yield place
    place.close()
