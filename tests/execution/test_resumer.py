"""Taking a run over: who may, what is read and in which order, and what is refused."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from adk_django.agents import Agent
from adk_django.core.checkpoint import Checkpoint, CheckpointPolicy
from adk_django.core.record import RunStatus
from adk_django.exceptions import (
    AdkError,
    AgentRevisionError,
    CheckpointDamagedError,
    CheckpointFormatError,
    ConfigurationError,
    FenceLostError,
    HistoryUnavailableError,
    IndeterminateToolCallError,
    ResumeConflictError,
    StaleFrontierError,
)
from adk_django.execution.checkpointer import Checkpointer
from adk_django.execution.resumer import Resumer, aclaim_resume, claim_resume
from adk_django.tools import tool
from tests.backends import TENANT
from tests.fake_tools import broken, calls, effect, raises, usual
from tests.run_fixture import Stage


def resumer(stage: Stage) -> Resumer:
    """Return a resumer on the stage's stores."""
    stores = stage.wrap(stage.stores)
    return Resumer(
        checkpoints=Checkpointer(stores.checkpoints, stage.world.policy),
        leases=stores.leases,
        history=stores.history,
        idempotency=stores.idempotency,
    )


def cut(place: str, log: list[str], **options: Any) -> Stage:
    """Return a run whose worker died after its first turn was answered."""
    stage = Stage(place, [calls("search"), calls("book"), "done"], *usual(log), **options)
    stage.die("commit after_tool_result", "after")
    return stage


def test_the_loser_is_told_who_holds_the_run_and_reads_nothing_of_it(place: str, log: list[str]) -> None:
    stage = cut(place, log)
    carried = resumer(stage).resume(stage.run_id, tenant=TENANT, worker="worker-7")
    assert carried is not None
    unread = raises(AssertionError("read without the lease"))
    stage.wrap = broken("checkpoints", latest=unread)
    with pytest.raises(ResumeConflictError, match="worker-7") as refusal:
        stage.resume(worker="worker-7")  # the same name is no proof
    assert (refusal.value.holder, refusal.value.until) == ("worker-7", carried.lease.expires_at)
    assert refusal.value.fence == carried.lease.fence == 2
    carried.release()


def test_what_is_carried_is_gone_on_with_under_the_same_fence(log: list[str]) -> None:
    stage = cut("memory", log)
    carried = resumer(stage).resume(stage.run_id, tenant=TENANT, worker="worker-7")
    assert carried is not None and carried.plan.safe and carried.checkpoint is not None
    fence = carried.lease.fence
    result = stage.resume(carried=carried)
    assert (result.status, result.fence, stage.lease) == (RunStatus.COMPLETED, fence, None)
    with pytest.raises(AdkError):
        _ = carried.lease


def test_a_run_that_has_not_begun_has_no_frontier_and_one_that_is_not_there_is_none(place: str, log: list[str]) -> None:
    stage = Stage(place, ["done"])
    assert resumer(stage).resume("nobody", tenant=TENANT, worker="w") is None
    stage.die("model")
    with resumer(stage).resume(stage.run_id, tenant=TENANT, worker="w") as carried:  # type: ignore[union-attr]
        assert (carried.checkpoint, carried.plan.resumptions, carried.plan.safe) == (None, (), True)
    assert stage.lease is None


def test_another_run_agent_or_revision_is_not_gone_on_with_by_what_was_carried(log: list[str]) -> None:
    stage = cut("memory", log)
    for agent in (replace(stage.agent, name="other"), replace(stage.agent, revision="2")):
        carried = resumer(stage).resume(stage.run_id, tenant=TENANT, worker="w")
        with pytest.raises(AgentRevisionError):
            stage.resume(agent, carried=carried)
        assert stage.lease is None
    carried = resumer(stage).resume(stage.run_id, tenant=TENANT, worker="w")
    with pytest.raises(ConfigurationError, match="has no provider"):
        stage.resume(replace(stage.agent, provider=None), carried=carried)
    assert stage.lease is None
    carried = resumer(stage).resume(stage.run_id, tenant=TENANT, worker="w")
    with pytest.raises(ValueError, match=stage.run_id):
        stage.runner().resume(stage.agent, "another", tenant=TENANT, carried=carried)


def test_another_agent_instructions_or_tools_are_refused_without_touching_the_run(log: list[str]) -> None:
    stage = cut("memory", log, revision=None)
    fence = stage.record.fence
    pinned = stage.record.revision
    for agent in (
        replace(stage.agent, name="other"),
        replace(stage.agent, instructions="be rude"),
        stage.agent_with(*usual(log)[1:]),
    ):
        with pytest.raises(AgentRevisionError) as refusal:
            stage.resume(agent)
        assert (refusal.value.pinned, refusal.value.found) == (pinned, agent.pinned_revision)
    assert (stage.record.fence, stage.record.status, log) == (fence, RunStatus.ACTIVE, ["search search"])
    assert stage.resume().status is RunStatus.COMPLETED


def test_an_accepted_revision_carries_on_and_pins_the_newer_one(place: str, log: list[str]) -> None:
    old = cut(place, log)
    newer = replace(old.agent, name="seats", revision="2", accepts=("1",), aliases=("booking",))
    old.provider.script = [calls("search"), calls("wire"), "done"]
    assert old.resume(newer).status is RunStatus.WAITING
    assert (old.record.revision, old.frontier.revision) == ("2", "2")
    with pytest.raises(AgentRevisionError, match="accept-revision 1"):
        old.resume()
    word = cut(place, log)
    other = replace(word.agent, revision="3")
    with pytest.raises(AgentRevisionError, match="accept-revision 3"):
        word.resume(other)
    with pytest.raises(AgentRevisionError):
        word.resume(other, accept_revision="2")
    assert word.resume(other, accept_revision="3").status is RunStatus.COMPLETED
    assert word.record.revision == "3"


def test_a_call_whose_tool_became_effectful_is_claimed_before_it_is_made(log: list[str]) -> None:
    stage = Stage("memory", [calls("search"), "done"], *usual(log))
    stage.die("commit after_model_call", "after")
    changed = stage.agent_with(effect(log, "search", then=raises(OSError("cut"))))
    assert stage.resume(changed).status is RunStatus.UNDECIDED
    assert stage.claim("1.1").error == "OSError: cut"
    assert log == ["search search"]


@pytest.mark.parametrize("damage", [('"format":1', '"format":"x"'), ('"turn":1', '"turn":"cos\\nsystem"'), ("{", "")])
def test_a_damaged_frontier_is_refused_kept_and_said(log: list[str], damage: tuple[str, str]) -> None:
    stage = cut("memory", log)
    stage.edit_frontier(*damage)
    with pytest.raises(CheckpointDamagedError):
        stage.resume()
    with pytest.raises(CheckpointDamagedError):
        resumer(stage).resume(stage.run_id, tenant=TENANT, worker="w")
    assert (stage.record.status, stage.lease) == (RunStatus.UNDECIDED, None)
    assert log == ["search search"]


def test_a_newer_format_is_left_for_a_newer_worker(place: str, log: list[str]) -> None:
    stage = cut(place, log)
    newer = replace(stage.frontier, format_version=2)
    object.__setattr__(newer, "encoded", newer.encoded.replace('"boundary":"after_tool', '"later":1,"boundary":"mid'))
    stage.forge_frontier(newer)
    for act in (stage.resume, lambda: resumer(stage).resume(stage.run_id, tenant=TENANT, worker="w")):
        with pytest.raises(CheckpointFormatError) as refusal:
            act()
        assert (refusal.value.found, refusal.value.supported) == (2, 1)
    assert (stage.record.status, stage.record.reason, stage.lease) == (RunStatus.ACTIVE, "", None)


def test_a_lost_frontier_is_no_first_run(place: str, log: list[str]) -> None:
    stage = cut(place, log)
    lease = stage.acquired()
    stage.stores.checkpoints.forget(stage.run_id, tenant=TENANT, fence=lease.fence)
    stage.stores.leases.release(lease)
    asked = len(stage.provider.requests)
    with pytest.raises(CheckpointDamagedError, match="lost"):
        stage.resume()
    assert (len(stage.provider.requests), log) == (asked, ["search search"])
    assert stage.record.status is RunStatus.UNDECIDED


def test_a_transcript_that_is_not_there_whole_is_refused(place: str, log: list[str]) -> None:
    gone = raises(HistoryUnavailableError("gone", handle=None))
    stage = cut(place, log)
    for message in ((), stage.stores.history.fetch(stage.frontier.history_handle, tenant=TENANT)[:-1]):
        asked = len(stage.provider.requests)
        shorter = replace(stage.frontier.history_handle, length=len(message), digest="0" * 64)  # type: ignore[type-var]
        stage.forge_frontier(replace(stage.frontier, history_handle=replace(shorter, length=9)))
        with pytest.raises(HistoryUnavailableError):
            stage.resume()
        assert (len(stage.provider.requests), log, stage.lease) == (asked, ["search search"], None)
    stage.wrap = broken("history", fetch=gone)
    with pytest.raises(HistoryUnavailableError):
        resumer(stage).resume(stage.run_id, tenant=TENANT, worker="w")
    assert stage.lease is None


def test_a_stale_frontier_is_refused_until_somebody_accepts_it_and_waiting_makes_none_stale(
    place: str, log: list[str]
) -> None:
    policy = CheckpointPolicy(ttl_seconds=600)
    stage = cut(place, log, policy=policy)
    stage.age(601)
    with pytest.raises(StaleFrontierError, match="over the limit of 600"):
        stage.resume()
    assert (stage.record.status, stage.lease) == (RunStatus.UNDECIDED, None)
    assert stage.resume(accept_stale=True).status is RunStatus.COMPLETED
    waits = Stage(place, [calls("wire"), "done"], *usual(log), policy=policy)
    waits.run()
    waits.age(100_000)
    waits.decide("1.1")
    assert waits.resume().status is RunStatus.COMPLETED


def test_every_refusal_gives_the_lease_back_at_once(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("book"), "done"], *usual(log))
    stage.die("tool book")
    for _ in range(2):
        with pytest.raises(IndeterminateToolCallError):
            stage.resume()
    stage.settle("1.1", "seat")
    assert stage.resume().status is RunStatus.COMPLETED


def test_a_lease_store_that_forgot_its_fence_is_refused(log: list[str]) -> None:
    stage = cut("memory", log)
    stage.world._space.written(TENANT, stage.run_id).lease = None
    stage.world._space.written(TENANT, stage.run_id).fence = 0
    with pytest.raises(FenceLostError):
        stage.resume()
    assert log == ["search search"]


def test_a_loop_that_is_not_ours_holds_a_run_for_five_minutes(log: list[str]) -> None:
    stage = cut("memory", log)
    with claim_resume(stage.stores.leases, stage.run_id, tenant=TENANT, holder="theirs") as claim:
        lease = claim.lease
        assert (lease.expires_at - lease.acquired_at).total_seconds() == pytest.approx(300)
        with pytest.raises(ResumeConflictError, match="theirs"):
            stage.resume()
    assert stage.resume().status is RunStatus.COMPLETED


def test_the_async_forms_are_the_same(log: list[str]) -> None:
    stage = cut("memory", log)

    async def both() -> RunStatus:
        carried = await resumer(stage).aresume(stage.run_id, tenant=TENANT, worker="w")
        assert carried is not None
        async with carried:
            with pytest.raises(ResumeConflictError):
                await aclaim_resume(stage.stores.leases, stage.run_id, tenant=TENANT, holder="theirs")
            result = await stage.runner().aresume(stage.agent, stage.run_id, tenant=TENANT, carried=carried)
        return result.status

    assert asyncio.run(both()) is RunStatus.COMPLETED


def test_a_frontier_written_by_others_with_its_messages_in_line_is_carried_on(place: str, log: list[str]) -> None:
    stage = cut(place, log)
    frontier = stage.frontier
    assert frontier.history_handle is not None
    messages = stage.stores.history.fetch(frontier.history_handle, tenant=TENANT)
    stage.forge_frontier(replace(frontier, history_handle=None, messages=messages))
    assert isinstance(stage.agent, Agent) and isinstance(frontier, Checkpoint)
    stage.die("tool book")
    stage.settle("2.1", "seat")
    assert stage.resume().status is RunStatus.COMPLETED
    assert stage.provider.requests[-1].messages[: len(messages)] == messages


def test_a_resumed_model_is_sent_byte_for_byte_what_it_would_have_been_sent(place: str, log: list[str]) -> None:
    given = {"zeta": {"d": 1, "c": [{"b": 1, "a": 2}]}, "alpha": {"2": 1, "1": 2}}

    @tool("read_only")
    def look(zeta: dict[str, Any], alpha: dict[str, Any]) -> dict[str, Any]:
        return {"z": [{"y": 1, "b": 2}], "a": zeta}

    def stage_of(name: str) -> Stage:
        return Stage(name, [[("look", given)], [("look", given)], "done"], look)

    undisturbed = stage_of("memory")
    undisturbed.run()
    stage = stage_of(place)
    stage.die("model", nth=2)
    stage.die("tool look")
    assert stage.resume().status is RunStatus.COMPLETED
    assert repr(stage.provider.requests[-1].messages) == repr(undisturbed.provider.requests[-1].messages)
    assert repr(given) in repr(stage.provider.requests[-1].messages)
