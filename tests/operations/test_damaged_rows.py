"""Rows that were changed by hand: their run says so and stands still, and no other run is harder to see."""

from dataclasses import replace
from typing import Any

import pytest
from django.db import connections

from adk_django import models
from adk_django.core.record import RunStatus
from adk_django.exceptions import CheckpointDamagedError
from adk_django.operations.inspection import Inspection, inspection
from tests.fake_tools import calls, effect, usual
from tests.run_fixture import Stage

BROKEN = '{"broken'


def damaged(stage: Stage, what: str) -> None:
    """Break one payload of the run's rows."""
    kind, column = what.split(".")
    if stage.world.using is None:
        rows = vars(stage.world._space._runs["acme", stage.run_id])[kind]
        rows.update({slot: replace(row, **{column: BROKEN}) for slot, row in rows.items()})
        return
    name = "late_outcome" if column == "evidence" else column
    model: Any = {"claims": models.IdempotencyKey, "approvals": models.Approval, "run": models.Run}[kind]
    model.objects.using(stage.world.using).filter(run_id=stage.run_id).update(**{name: BROKEN})


def seen(stage: Stage) -> Inspection:
    return inspection(stage.stores, stage.record, stage.runner().checkpointer, strict=False)


def stands_still(stage: Stage) -> None:
    """The run is shown with its reason, refused with it, keeps it, and can be cancelled."""
    (refusal,) = (error for error in seen(stage).refusals if isinstance(error, CheckpointDamagedError))
    assert (seen(stage).plan.safe, seen(stage).plan.resumptions) == (False, ())
    with pytest.raises(CheckpointDamagedError, match="cannot be read"):
        stage.resume()
    assert (stage.record.status, stage.record.reason) == (RunStatus.UNDECIDED, str(refusal))
    assert stage.lease is None
    assert stage.run_id in {row.run_id for row in stage.stores.runs.find()}
    stage.cancel()
    assert stage.resume().status is RunStatus.CANCELLED


@pytest.mark.parametrize("what", ["claims.outcome", "claims.evidence"])
def test_a_run_whose_outcome_cannot_be_read_stands_still_and_says_so(place: str, log: list[str], what: str) -> None:
    stage = Stage(place, [calls("book", "mail"), "done"], effect(log, "book"), effect(log, "mail"))
    stage.die("commit", nth=3)
    if what == "claims.outcome":
        stage.settle("1.1", "seat")
    damaged(stage, what)
    stands_still(stage)
    assert log == ["book book"]


@pytest.mark.parametrize("what", ["approvals.arguments", "approvals.edited"])
def test_a_run_whose_request_cannot_be_read_stands_still_and_says_so(place: str, log: list[str], what: str) -> None:
    stage = Stage(place, [calls("wire"), "done"], *usual(log))
    stage.run()
    damaged(stage, what)
    stands_still(stage)
    assert log == []


@pytest.mark.parametrize("place", ["default", "postgres"])
def test_a_run_whose_own_row_cannot_be_read_is_listed_with_what_can(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("wire"), "done"], *usual(log))
    stage.run()
    damaged(stage, "run.scopes")
    assert stage.record.scopes == ()
    stands_still(stage)
    assert log == []


@pytest.mark.parametrize("place", ["default", "postgres"])
def test_a_text_that_was_damaged_reads_as_it_stands(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("wire"), "done"], *usual(log))
    stage.run()
    with connections[place].cursor() as cursor:
        cursor.execute("UPDATE adk_runs SET reason = %s WHERE run_id = %s", ['"broken', stage.run_id])
    assert stage.record.reason == '"broken'
