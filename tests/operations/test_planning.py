"""Planning and inspecting: every call has one disposition, looking writes nothing, and nobody is asked."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from adk_django.core.checkpoint import Checkpoint, CheckpointBoundary, PendingCall
from adk_django.core.effects import EffectClass, Slot
from adk_django.core.plan import ToolDisposition
from adk_django.core.record import RunStatus
from adk_django.exceptions import IndeterminateToolCallError
from adk_django.operations.inspection import Inspection, inspection
from adk_django.operations.planning import describe, plan_resume, refuse_if_undecidable
from adk_django.stores.bundle import Stores
from tests.backends import TENANT
from tests.fake_tools import broken, calls, effect, raises, usual
from tests.run_fixture import Stage


def plan(stage: Stage, **options: Any) -> dict[str, str]:
    """Return the disposition of each of the stage's outstanding calls."""
    made = plan_resume(stage.frontier, stage.stores.idempotency, **options)
    return {str(item.call.slot): item.disposition.value for item in made.resumptions}


def inspected(stage: Stage, stores: Stores | None = None) -> Inspection:
    runner = stage.runner()
    return inspection(stores or runner.stores, stage.record, runner.checkpointer, strict=False)


def test_every_call_is_looked_up_whatever_the_frontier_says_of_it(log: list[str]) -> None:
    stage = Stage("memory", [calls("search", "book", "mail", "touch"), "done"], *usual(log))
    stage.die("tool mail")
    assert plan(stage) == {"1.1": "completed", "1.2": "completed", "1.3": "indeterminate", "1.4": "never_ran"}
    marked = replace(stage.frontier, pending=tuple(replace(call, dispatched=True) for call in stage.frontier.pending))
    made = plan_resume(marked, stage.stores.idempotency)
    assert [item.outcome.value for item in made.completed if item.outcome] == ["search search", "book book"]
    assert [str(item.call.slot) for item in made.to_dispatch] == ["1.4"]
    assert [str(item.call.slot) for item in made.indeterminate] == ["1.3"]
    assert (made.safe, made.reasons) == (False, ("call 1.3 (mail) is indeterminate",))


def test_a_call_in_flight_stays_in_doubt_whatever_its_age(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("book"), "done"], *usual(log))
    stage.die("tool book")
    stage.age(10 * 365 * 86_400)
    assert plan(stage) == {"1.1": "indeterminate"}


def test_calls_that_never_ran_come_before_those_that_may_be_repeated(log: list[str]) -> None:
    stage = Stage("memory", [calls("touch", "touch", "search"), "done"], *usual(log), wrap=_refusing_once())
    stage.die("tool touch", nth=2)
    claim = stage.claim("1.2")
    assert claim.state == "in_flight"
    boundary = CheckpointBoundary.AFTER_MODEL_CALL
    frontier = Checkpoint(stage.run_id, TENANT, "booking", boundary, 1, pending=_pending())
    made = plan_resume(frontier, stage.stores.idempotency)
    assert [str(item.call.slot) for item in made.to_dispatch][-1] == "1.2"
    assert made.to_dispatch[-1].disposition is ToolDisposition.REPEATABLE
    assert plan_resume(frontier, stage.stores.idempotency, strict=True).indeterminate[0].call.slot == Slot(1, 2)


def _refusing_once() -> Callable[[Stores], Stores]:
    left = [1]

    def put(real: Callable[..., None], *args: Any, **kwargs: Any) -> None:
        if left:
            left.pop()
            raise OSError("full")
        real(*args, **kwargs)

    return broken("checkpoints", put=put)


def _pending() -> tuple[PendingCall, ...]:
    kinds = {"touch": EffectClass.IDEMPOTENT, "search": EffectClass.READ_ONLY}
    names = ["touch", "touch", "search"]
    return tuple(
        PendingCall(Slot(1, position), "id", name, {}, key=f"k{position}", effect=kinds[name])
        for position, name in enumerate(names, 1)
    )


def test_looking_writes_nothing_and_asks_no_probe(place: str, log: list[str]) -> None:
    probe = raises(AssertionError("asked"))
    stage = Stage(place, [calls("search", "book"), "done"], *usual(log)[:1], effect(log, "book", probe=probe))
    stage.die("tool book")
    stores, before = stage.stores, stage.everything()
    for kind, verbs in {
        "idempotency": ("begin", "record", "abandon", "note_error", "evidence", "settle", "forget"),
        "checkpoints": ("put", "forget"),
        "leases": ("acquire", "renew", "release", "progressed", "revoke"),
        "history": ("append",),
        "runs": (
            *("create", "write", "decide", "request_cancel", "request_release"),
            *("wake", "tell", "take_due", "prune", "gate"),
        ),
    }.items():
        stores = broken(kind, **{verb: raises(AssertionError(verb)) for verb in verbs})(stores)
    assert plan_resume(stage.frontier, stores.idempotency).safe is False
    assert "call 1.2 book: indeterminate" in describe(inspected(stage, stores))
    assert stage.everything() == before


def test_a_refusal_names_every_call_with_its_key_since_when_and_by_whom(log: list[str]) -> None:
    stage = Stage("memory", [[("book", {"what": "a"}), ("book", {"what": "b"})], "done"], *usual(log))
    stage.die("commit facts", nth=1)
    state = stage.state(lease := stage.acquired("worker-7"))
    for call in state.pending:
        stage.stores.idempotency.begin(state.claim_of(call), fence=lease.fence)
    made = plan_resume(stage.frontier, stage.stores.idempotency)
    with pytest.raises(IndeterminateToolCallError) as refusal:
        refuse_if_undecidable(made)
    for call in state.pending:
        assert f"{call.slot} book (key {call.key}, in flight since 2025-01-01T" in str(refusal.value)
    assert str(refusal.value).count("by worker-7") == 2
    assert "2 model" not in str(refusal.value)


def foreign(stage: Stage, **call: Any) -> None:
    """Put a frontier in the store that another program wrote, with one call outstanding."""
    pending = PendingCall(Slot(1, 1), "id", "book", {"what": "x"}, **call)
    stage.die("commit facts")
    stage.forge_frontier(replace(stage.frontier, pending=(pending,)))


@pytest.mark.parametrize("happened", [True, False])
def test_a_call_others_dispatched_without_a_key_is_in_doubt_and_can_be_settled(
    place: str, log: list[str], happened: bool
) -> None:
    stage = Stage(place, [calls("book"), "done"], *usual(log))
    foreign(stage, dispatched=True)
    assert plan(stage) == {"1.1": "indeterminate"}
    for _ in range(2):
        with pytest.raises(IndeterminateToolCallError):
            stage.resume()
    assert (log, stage.record.status) == ([], RunStatus.UNDECIDED)
    stage.age()
    stage.settle("1.1", "seat", happened=happened)
    assert stage.resume().status is RunStatus.COMPLETED
    assert (log, stage.results) == (([], ["seat"]) if happened else (["book x"], ["book x"]))


@pytest.mark.parametrize("call", [{}, {"key": "k"}, {"effect": EffectClass.EFFECTFUL}])
def test_a_call_of_others_that_was_not_dispatched_is_made_like_an_effect(log: list[str], call: dict[str, Any]) -> None:
    stage = Stage("memory", [calls("book"), "done"], *usual(log))
    foreign(stage, **call)
    assert plan(stage) == {"1.1": "never_ran"}
    stage.die("tool book", "after")
    assert plan(stage) == {"1.1": "indeterminate"}


def test_an_inspection_says_where_a_run_stands_and_what_moves_it(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("wire"), calls("book"), "done"], *usual(log))
    stage.run()
    request = stage.request("1.1").request_id
    lines = describe(inspected(stage)).splitlines()
    assert lines[:3] == [
        f"run {stage.run_id}  tenant acme  agent booking",
        "iteration 1  10 in, 5 out  100 micros",
        f"waiting on approval {request}",
    ]
    seen = inspected(stage)
    assert (seen.standing, seen.live) == ("waiting", False)
    assert seen.record.reason == f"waiting on approval {request} for call 1.1 (wire): adk_decide"
    stage.decide("1.1")
    stage.die("tool book", ages=False)
    running = inspected(stage)
    assert (running.standing, running.live, running.reason) == ("running", True, "")
    stage.age()
    lapsed = inspected(stage)
    assert (lapsed.standing, lapsed.live) == ("interrupted", False)
    assert "call 2.1 book: indeterminate, in flight since" in describe(lapsed)
    assert describe(lapsed).splitlines()[2] == "waiting on nothing"
