"""A real process is stopped inside a tool, for longer than its lease lasts; what another worker may do meanwhile."""

import contextlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps

from adk_django import runs
from adk_django.core.effects import Claim, ClaimState
from adk_django.core.record import RunStatus
from adk_django.exceptions import IndeterminateToolCallError, ResumeConflictError, SettlementError
from adk_django.models import RunLease
from adk_django.testing import EffectLog
from tests.backends import TENANT, World, finish, settle
from tests.kill.child_processes import Child, Nursery
from tests.kill.run_definitions import SCENES

RUN = "run_stopped"
SHORT = {"LEASES": {"ttl_seconds": 0.6, "renew_within_seconds": 0.3}}


class Stage:
    """A run whose worker is stopped inside a tool."""

    def __init__(self, nursery: Nursery, alias: str, tmp_path: Path) -> None:
        self.world, self.alias, self._nursery = World(alias), alias, nursery
        self.log, self.gate = EffectLog(tmp_path / "effects.log"), nursery.gate(tmp_path / "gate")

    def stopped(self, tool: str, when: str, *, scene: str = "effectful", **how: Any) -> Child:
        """Return the worker, stopped before or after the effect of a tool."""
        self.scene = SCENES[scene]
        hold = {"tool": tool, "when": when, "gate": self.gate.path}
        child = self._nursery.spawn("drive", run=RUN, scene=scene, log=str(self.log.path), hold=hold, **how)
        child.said("entered")
        return child.stop()

    def let_go(self, child: Child) -> dict[str, Any]:
        """Let the worker go on to its end, and return the last it says."""
        self.gate.open()
        child.go_on()
        last = child.next()
        assert child.wait() == 0
        return last

    def lapse(self) -> None:
        """Let the lease lapse, and nothing else."""
        for lease in RunLease.objects.using(self.alias).filter(run_id=RUN):
            lease.expires_at -= timedelta(hours=1)
            lease.save()

    def resume(self) -> Any:
        """Carry the run on, as another worker."""
        return self.world.runner().resume(self.scene.agent(self.log), RUN, tenant=TENANT, worker="second")

    def finish(self) -> RunStatus:
        """Carry the run to its end."""
        return finish(self.world, self.scene, self.log, RUN).status

    @property
    def claim(self) -> Claim:
        """The claim of the run's first call."""
        return self.world.stores().idempotency.look_up(RUN, tenant=TENANT)[0]

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        """Return everything the tables hold."""
        models = apps.get_app_config("adk_django").get_models()
        return {model.__name__: list(model.objects.using(self.alias).order_by("pk").values()) for model in models}


@pytest.fixture
def stage(nursery: Nursery, alias: str, tmp_path: Path) -> Stage:
    return Stage(nursery, alias, tmp_path)


def without_evidence(rows: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """Return rows without what evidence may change: its own columns, and when the run is due."""
    left = {name: [dict(row) for row in found] for name, found in rows.items()}
    for row in left["IdempotencyKey"]:
        del row["late_outcome"], row["late_at"]
    for row in left["Run"]:
        del row["wake_at"]
    left["RunEvent"] = [row for row in left["RunEvent"] if row["kind"] != "evidence"]
    return left


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("short", [False, True])
def test_its_outcome_is_evidence_and_nothing_else_of_it_lands(stage: Stage, *, short: bool, asynchronous: bool) -> None:
    child = stage.stopped("book", "after", asynchronous=asynchronous, adk=SHORT if short else None)
    if not short:
        stage.lapse()

    with pytest.raises(IndeterminateToolCallError) as refused:
        while True:
            with contextlib.suppress(ResumeConflictError):  # until the lease has lapsed
                stage.resume()
    assert [str(item.call.slot) for item in refused.value.calls] == ["1.1"]
    seen = runs.inspect(RUN, tenant=TENANT, using=stage.alias)
    assert seen is not None
    assert [str(item.call.slot) for item in seen.plan.indeterminate] == ["1.1"]
    deadline = stage.claim.deadline_at
    assert deadline is not None
    with pytest.raises(SettlementError, match=deadline.isoformat().replace("+", "[+]")):
        settle(stage.world, RUN, stage.claim.slot, happened=False)

    before = stage.rows()
    last = stage.let_go(child)
    assert (last["event"], last["code"]) == ("raised", "lease-lost")
    after = stage.rows()
    assert without_evidence(after) == without_evidence(before)
    assert [row["kind"] for row in after["RunEvent"]] == ["evidence"]
    assert stage.claim.evidence is not None
    assert stage.claim.evidence.value == "book book 0"

    assert stage.resume().status is RunStatus.COMPLETED
    assert (stage.claim.settled_by, stage.claim.attempt) == ("evidence", 1)
    assert len(stage.log.lines()) == 1


def test_nothing_of_it_lands_in_a_run_that_another_worker_has_finished(stage: Stage) -> None:
    child = stage.stopped("search", "before", scene="book_search")
    stage.lapse()
    assert stage.resume().status is RunStatus.COMPLETED
    before = stage.rows()
    last = stage.let_go(child)
    assert (last["event"], last["code"]) == ("raised", "lease-lost")
    assert stage.rows() == before


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("short", [False, True])
def test_it_goes_on_where_nobody_took_over(stage: Stage, *, short: bool, asynchronous: bool) -> None:
    child = stage.stopped("book", "after", asynchronous=asynchronous, adk=SHORT if short else None)
    stage.lapse()
    last = stage.let_go(child)
    assert (last["event"], last.get("status"), last.get("fence")) == ("result", "completed", 1)
    assert len(stage.log.lines()) == 1
    assert stage.claim.state is ClaimState.DONE


def test_its_outcome_voids_the_answer_that_the_call_never_ran(stage: Stage) -> None:
    child = stage.stopped("book", "after")
    stage.world.age(RUN)
    with pytest.raises(IndeterminateToolCallError):
        stage.resume()
    settle(stage.world, RUN, stage.claim.slot, happened=False)
    assert stage.claim.state is ClaimState.NEVER_RAN

    assert stage.let_go(child)["code"] == "lease-lost"
    assert stage.claim.contested
    with pytest.raises(IndeterminateToolCallError):
        stage.resume()
    settle(stage.world, RUN, stage.claim.slot, happened=True)
    assert stage.finish() is RunStatus.COMPLETED
    assert len(stage.log.lines()) == 1


def test_its_outcome_changes_nothing_of_a_call_that_was_claimed_again(stage: Stage) -> None:
    """Its own effect is made all the same: a process stopped before its first byte is beyond any promise."""
    child = stage.stopped("book", "before")
    stage.world.age(RUN)
    with pytest.raises(IndeterminateToolCallError):
        stage.resume()
    settle(stage.world, RUN, stage.claim.slot, happened=False)
    assert stage.resume().status is RunStatus.COMPLETED
    assert stage.claim.attempt == 2

    before = stage.rows()
    assert stage.let_go(child)["code"] == "lease-lost"
    after = stage.rows()
    told = [row for row in after["RunEvent"] if row["kind"] == "evidence"]
    assert [row["detail"] for row in told] == ["of an earlier attempt"]
    assert {**after, "RunEvent": before["RunEvent"]} == before
