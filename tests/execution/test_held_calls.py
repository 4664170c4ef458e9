"""Calls that a person must approve: nothing overtakes them, nothing runs on an answer given for something else."""

import itertools

import pytest

from adk_django.core.checkpoint import CheckpointBoundary, CheckpointPolicy
from adk_django.core.codec import encode
from adk_django.core.effects import arguments_digest
from adk_django.core.messages import ToolCall, ToolResult
from adk_django.core.record import ApprovalState, RunStatus
from adk_django.exceptions import ApprovalConflictError, ApprovalExpiredError, MaskedArgumentsError
from adk_django.operations.inspection import inspection
from tests.fake_tools import calls, effect, usual
from tests.run_fixture import Stage

TURN = calls("search", ("wire", {"what": "a"}), "mail", "search", ("wire", {"what": "b"}), ("wire", {"what": "c"}))


def test_nothing_that_stands_behind_a_held_call_overtakes_it_but_what_reads(place: str, log: list[str]) -> None:
    stage = Stage(place, [TURN, "done"], *usual(log))
    result = stage.run()
    requests = [stage.request(call) for call in ("1.2", "1.5", "1.6")]
    assert (result.status, log) == (RunStatus.WAITING, ["search search"] * 2)
    assert [item.state for item in requests] == [ApprovalState.REQUESTED] * 3
    assert all(item.request_id in result.reason for item in requests)
    assert stage.frontier.boundary is CheckpointBoundary.BEFORE_APPROVAL
    assert stage.frontier.pending_approval == requests[0].request_id
    assert stage.lease is None
    assert stage.brought[-1].startswith("before_approval, request 1.2, request 1.5, request 1.6")


@pytest.mark.parametrize("order", list(itertools.permutations(["1.2", "1.5", "1.6"])))
def test_each_answer_goes_to_its_own_call_in_whatever_order_they_come(log: list[str], order: tuple[str, ...]) -> None:
    stage = Stage("memory", [TURN, "done"], *usual(log))
    stage.run()
    del log[:]
    for call in order:
        stage.decide(call, grant=call != "1.5")
        result = stage.resume()
    assert result.status is RunStatus.COMPLETED
    assert log == ["wire a", "mail mail", "wire c"]
    assert stage.results == ["search search", "wire a", "mail mail", "search search", "denied: because", "wire c"]
    answer, results = stage.provider.requests[-1].messages[-2:]
    asked = [part.id for part in answer.parts if isinstance(part, ToolCall)]
    assert [part.call_id for part in results.parts if isinstance(part, ToolResult)] == asked


def test_what_stands_behind_a_denial_is_not_made(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("wire", "mail", "search"), "done"], *usual(log))
    stage.run()
    stage.decide("1.1", grant=False)
    assert stage.resume().status is RunStatus.COMPLETED
    assert log == ["search search"]
    assert stage.results == ["denied: because", "not made: call 1.1 was denied", "search search"]


def test_edited_arguments_are_made_under_their_own_key_and_the_model_is_shown_them(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("wire", "mail"), "done"], *usual(log))
    stage.run()
    key = stage.frontier.pending[0].key
    edited = {"what": "less"}
    stage.decide("1.1", edited=edited, digest=arguments_digest(edited))
    assert stage.resume().status is RunStatus.COMPLETED
    assert log == ["wire less"]
    assert stage.claim("1.1").key != key
    assert stage.results == [
        {"arguments_changed_by_approver": edited, "result": "wire less"},
        "not made: call 1.1 was changed",
    ]


def test_an_approval_outlives_the_process_that_asked_for_it(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("wire"), "done"], *usual(log))
    stage.run(user="7")
    stage.decide("1.1")
    fresh = stage.agent_with(*usual(log))
    assert stage.resume(fresh).status is RunStatus.COMPLETED
    assert log == ["wire wire"]
    assert stage.claim("1.1").request_id == stage.request("1.1").request_id
    grants = [writes.frontier.grant_id for writes, _ in stage.commits if writes.frontier is not None]
    assert grants == [None, None, stage.request("1.1").request_id]
    assert [writes.frontier.user for writes, _ in stage.commits if writes.frontier is not None] == ["7"] * 3


def test_no_policy_skips_the_frontier_of_a_wait(log: list[str]) -> None:
    policy = CheckpointPolicy(boundaries=frozenset())
    stage = Stage("memory", [calls("wire"), "done"], *usual(log), policy=policy)
    assert stage.run().status is RunStatus.WAITING
    assert stage.frontier.boundary is CheckpointBoundary.BEFORE_APPROVAL


def test_an_approval_is_void_for_arguments_that_were_changed_in_the_frontier(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("wire"), "done"], *usual(log))
    stage.run()
    stage.decide("1.1")
    first = stage.request("1.1")
    stage.edit_frontier('"what":"wire"', '"what":"more"')
    result = stage.resume()
    again = stage.request("1.1")
    assert (result.status, log) == (RunStatus.WAITING, [])
    assert (again.state, again.arguments) == (ApprovalState.REQUESTED, {"what": "more"})
    assert again.request_id != first.request_id
    stage.decide("1.1")
    assert stage.resume().status is RunStatus.COMPLETED
    assert log == ["wire more"]


def test_a_request_is_put_anew_where_the_arguments_changed_before_its_answer(log: list[str]) -> None:
    stage = Stage("memory", [calls("wire"), "done"], *usual(log))
    stage.run()
    old = stage.request("1.1").request_id
    stage.edit_frontier('"what":"wire"', '"what":"more"')
    assert stage.resume().status is RunStatus.WAITING
    assert (stage.request("1.1").request_id != old, stage.request("1.1").arguments) == (True, {"what": "more"})


def test_an_approval_changed_under_a_worker_holds_the_claim_back(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("wire"), "done"], *usual(log))
    stage.run()
    stage.decide("1.1")
    result = stage.disturbed("commit active", lambda: stage.edit_approval("1.1", digest="0" * 64))
    assert (result.status, log) == (RunStatus.WAITING, [])
    assert stage.request("1.1").state is ApprovalState.REQUESTED
    stage.decide("1.1")
    assert stage.resume().status is RunStatus.COMPLETED
    assert log == ["wire wire"]


def test_a_repeated_wait_asks_nobody_twice(log: list[str]) -> None:
    stage = Stage("memory", [calls("wire"), "done"], *usual(log))
    stage.run()
    before = len(stage.commits)
    assert stage.resume().status is RunStatus.WAITING
    assert stage.commits[before:] == []


def test_a_denial_after_a_crash_behind_it_is_still_told_to_the_model(log: list[str]) -> None:
    stage = Stage("memory", [calls("wire", "search"), "done"], *usual(log))
    stage.run()
    stage.decide("1.1", grant=False)
    stage.die("commit after_tool_result")
    assert stage.resume().status is RunStatus.COMPLETED
    assert stage.results == ["denied: because", "search search"]


def test_a_call_nobody_can_be_asked_about_is_answered_and_the_run_goes_on(log: list[str]) -> None:
    policy = CheckpointPolicy(max_bytes=6_000)
    turn = calls(("wire", {"what": "x" * 7_000}), "mail", "search")
    stage = Stage("memory", [turn, "done"], *usual(log), policy=policy)
    assert stage.run().status is RunStatus.COMPLETED
    assert log == ["search search"]
    assert stage.results[0].startswith("could not be put to a person: before_approval: the transcript delta has")
    assert stage.results[1:] == ["not made: call 1.1 was denied", "search search"]
    assert stage.stores.runs.approvals(stage.run_id, tenant="acme") == ()


def test_the_same_answer_again_is_quiet_another_is_a_conflict_and_a_late_one_expired(log: list[str]) -> None:
    wire = effect(log, "wire", requires_approval=True, expires_seconds=60)
    stage = Stage("memory", [calls(("wire", {"what": "a"}), ("wire", {"what": "b"})), "done"], wire)
    stage.run()
    assert stage.request("1.1").expires_seconds == 60
    stage.decide("1.1")
    stage.decide("1.1")
    with pytest.raises(ApprovalConflictError, match="granted by ann"):
        stage.decide("1.1", grant=False)
    stage.age(61)
    with pytest.raises(ApprovalExpiredError):
        stage.decide("1.2")


def test_a_request_that_nobody_decides_in_time_denies_its_call_and_the_run_goes_on(place: str, log: list[str]) -> None:
    slow = effect(log, "wire", requires_approval=True, expires_seconds=3_600)
    quick = effect(log, "mail", requires_approval=True, expires_seconds=60)
    stage = Stage(place, [calls("wire", "mail"), "done"], slow, quick)
    stage.run()
    assert stage.record.wake_at == stage.request("1.2").expires_at
    assert [writes.wake_at for writes, _ in stage.commits if writes.status is RunStatus.WAITING] == [None]
    stage.age(61)
    assert stage.request("1.2").state is ApprovalState.EXPIRED
    assert stage.resume().status is RunStatus.WAITING
    assert stage.record.wake_at == stage.request("1.1").expires_at
    stage.age(3_600)
    seen = inspection(stage.stores, stage.record, stage.runner().checkpointer, strict=False)
    assert seen.waiting_on == ()
    assert stage.resume().status is RunStatus.COMPLETED
    assert (log, stage.results) == ([], ["denied: nobody decided in time"] * 2)


def test_a_rule_that_cannot_answer_holds_the_call(log: list[str]) -> None:
    def rule(what: str) -> bool:
        raise LookupError(what)

    stage = Stage("memory", [calls("wire"), "done"], effect(log, "wire", requires_approval=rule))
    assert stage.run().status is RunStatus.WAITING
    free = Stage("memory", [calls("wire"), "done"], effect(log, "wire", requires_approval=lambda what: what != "wire"))
    assert free.run().status is RunStatus.COMPLETED


def test_masked_arguments_are_never_made_by_a_grant_nor_by_an_edit(log: list[str]) -> None:
    secret = "Bearer " + "sk-live-" + "a1B2c3D4e5F6g7H8"
    stage = Stage("memory", [calls(("wire", {"what": secret})), "done"], *usual(log))
    stage.run()
    shown = stage.request("1.1").arguments
    assert "a1B2" not in encode(shown)
    stage.decide("1.1")
    with pytest.raises(MaskedArgumentsError, match="1.1"):
        stage.resume()
    edited = Stage("memory", [calls(("wire", {"what": secret})), "done"], *usual(log))
    edited.run()
    edited.decide("1.1", edited=shown, digest=arguments_digest(shown))
    with pytest.raises(MaskedArgumentsError):
        edited.resume()
    assert log == []
