"""What a turn costs: commits by effect class, statements by commit, bytes by boundary."""

import os
from pathlib import Path

import pytest
from django.db import connections
from django.test.utils import CaptureQueriesContext

from adk_django.core.checkpoint import Checkpoint, CheckpointBoundary, HistoryHandle
from adk_django.core.messages import Message
from adk_django.core.record import RunRecord
from adk_django.testing import Crasher, EffectLog
from tests.backends import TENANT, World, slice_of
from tests.run_definitions import Scenario, calls

ANSWER, RESULT, END = "commit after_model_call", "commit after_tool_result", "commit completed"
CLAIM = OUTCOME = "commit facts"

TURNS = {
    "no call": ([], [END]),
    "read_only": (["search"], [ANSWER, RESULT, END]),
    "idempotent": (["touch"], [ANSWER, RESULT, END]),
    "transactional": (["note"], [ANSWER, RESULT, END]),
    "effectful": (["book"], [ANSWER, CLAIM, RESULT, END]),
    "book, then search": (["book", "search"], [ANSWER, CLAIM, OUTCOME, RESULT, END]),
    "search, book, note": (["search", "book", "note"], [ANSWER, CLAIM, OUTCOME, RESULT, END]),
    "refused": (["refuse"], [ANSWER, CLAIM, RESULT, END]),
    "unknown tool": (["nothing"], [ANSWER, RESULT, END]),
}
WORKS_IN = {"postgres": "WITH gate", "default": "UPDATE adk_run_leases"}  # how a commit's first statement begins


def scenario_of(names: list[str]) -> Scenario:
    return Scenario([calls(*names), "done"] if names else ["done"])


@pytest.mark.parametrize("turn", TURNS)
def test_a_turn_makes_the_commits_of_its_classes(turn: str, alias: str, tmp_path: Path) -> None:
    names, wanted = TURNS[turn]
    crasher = Crasher()
    slice_of(World(alias), scenario_of(names), EffectLog(tmp_path / "log"), "run_cost", crasher, using=alias)
    assert [effect for effect in crasher.effects if effect.startswith("commit")] == wanted


@pytest.mark.django_db(transaction=True, databases="__all__")
@pytest.mark.parametrize("turn", [turn for turn, (names, _) in TURNS.items() if "note" not in names])
def test_a_commit_is_one_statement_and_one_round_trip_on_postgresql(turn: str, tmp_path: Path) -> None:
    names, wanted = TURNS[turn]
    log = EffectLog(tmp_path / "log")
    with CaptureQueriesContext(connections["postgres"]) as captured:
        slice_of(World("postgres"), scenario_of(names), log, "run_cost", Crasher())
    statements = [query["sql"] for query in captured.captured_queries]
    commits = [sql for sql in statements if sql.startswith(WORKS_IN["postgres"])]
    assert len(commits) == len(wanted)
    assert not [sql for sql in statements if sql in ("BEGIN", "COMMIT")]
    between = statements[statements.index(commits[0]) : statements.index(commits[-1]) + 1]
    assert between == commits, "nothing is asked of the database between the commits of a slice"


def after(world: World, messages: int) -> str:
    """Leave a run behind whose conversation has so many messages; return its id."""
    stores, run_id = world.stores(), f"run_{messages:06d}"
    stores.runs.create(RunRecord(TENANT, run_id, "traveller", "go", os.urandom(32).hex(), revision="1"))
    lease = stores.leases.acquire(run_id, tenant=TENANT, holder="before", ttl_seconds=60)
    said = tuple(Message.of("user", f"message {number:06d}") for number in range(messages))
    handle = stores.history.append(HistoryHandle(TENANT, run_id), said, fence=lease.fence)
    frontier = Checkpoint(
        run_id=run_id,
        tenant=TENANT,
        agent="traveller",
        boundary=CheckpointBoundary.AFTER_TOOL_RESULT,
        turn=1,
        iterations=1,
        history_handle=handle,
        revision="1",
    )
    stores.checkpoints.put(frontier, fence=lease.fence)
    stores.leases.release(lease)
    return run_id


def test_the_bytes_of_a_boundary_do_not_grow_with_the_conversation(alias: str, tmp_path: Path) -> None:
    world, written = World(alias), []
    log = EffectLog(tmp_path / "log")
    for messages in (10, 2_000):
        run_id = after(world, messages)
        with CaptureQueriesContext(connections[alias]) as captured:
            result = slice_of(world, scenario_of(["book", "search"]), log, run_id, Crasher())
        assert result is not None
        assert result.status.ended
        sent = [query["sql"] for query in captured.captured_queries]
        begun = next(place for place, sql in enumerate(sent) if sql.startswith(WORKS_IN[alias]))
        written.append(sum(len(sql) for sql in sent[begun:]))
    short, long = written
    assert short > 1_000
    assert abs(long - short) < 200, "a position has more digits, nothing else is longer"
