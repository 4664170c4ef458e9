"""The app on an alias that a router chooses, and reads that it sends to a replica which lags: nobody reads there."""

from pathlib import Path
from typing import Any

import pytest

from adk_django import agents, runs
from adk_django.core.record import RunStatus
from adk_django.testing.crashes import Crasher, crash_points
from tests.backends import TENANT, World, finish, slice_of
from tests.fake_tools import calls, usual
from tests.run_definitions import SCENARIOS, log_at
from tests.run_fixture import Stage


class Lagging:
    """Writes go to one alias, reads to another, which has all the tables and never a row."""

    writes, reads = "postgres", "default"

    def db_for_write(self, model: Any, **hints: Any) -> str:
        """Return the alias of what is written."""
        return self.writes

    def db_for_read(self, model: Any, **hints: Any) -> str:
        """Return the alias of what may lag."""
        return self.reads


class Routed(World):
    """A database that the router chooses."""

    def __init__(self, alias: str) -> None:
        super().__init__(alias)
        self.routed = alias
        self.using = None

    def stores(self) -> Any:
        return runs.AgentRunner().stores

    def age(self, run_id: str, seconds: float = 3_600.0) -> None:
        World(self.routed).age(run_id, seconds)


@pytest.fixture
def routed(alias: str, settings: Any) -> Routed:
    """Return a world whose writes go to ``alias`` and whose reads, where they are routed, find nothing."""
    other = "default" if alias == "postgres" else "postgres"
    router = type("Router", (Lagging,), {"writes": alias, "reads": other})()
    settings.DATABASE_ROUTERS = [router]
    return Routed(alias)


@pytest.mark.parametrize("name", ["book_search", "granted"])
def test_every_crash_is_carried_on_where_reads_lag(name: str, routed: Routed, tmp_path: Path) -> None:
    scenario, log = SCENARIOS[name], log_at(tmp_path)

    def first(crasher: Crasher) -> None:
        slice_of(routed, scenario, log_at(tmp_path), "counted", crasher)

    for number, point in enumerate(crash_points(first)):
        (tmp_path / "effects.log").unlink(missing_ok=True)
        assert slice_of(routed, scenario, log, f"run_{number}", Crasher(point)) is None
        assert finish(routed, scenario, log, f"run_{number}").status is RunStatus.COMPLETED
        made = [line for line in log.lines() if not line.startswith("search")]
        assert len(made) == len(set(made)) > 0, point


def test_people_and_sweeps_see_what_was_just_written(
    routed: Routed, log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = Stage("memory", [calls("wire"), "done"], *usual(log))
    monkeypatch.setattr(agents, "_registry", {"booking": stage.agent})
    runs.start("booking", "go", tenant=TENANT, run_id="r")
    assert runs.sweep().taken == ((TENANT, "r"),)
    assert runs.resume("r", tenant=TENANT).status is RunStatus.WAITING
    seen = runs.inspect("r", tenant=TENANT)
    assert seen is not None
    runs.decide(seen.waiting_on[0].request_id, tenant=TENANT, grant=True, by="ann")
    assert runs.sweep().taken == ((TENANT, "r"),)
    assert runs.resume("r", tenant=TENANT).status is RunStatus.COMPLETED
    assert [row.run_id for row in runs.list_runs(tenant=TENANT)] == ["r"]
    assert log == ["wire wire"]
