"""The one door: starting twice is one run, and every answer is checked before it is kept."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from adk_django import agents, runs
from adk_django.agents import Agent, register
from adk_django.core.effects import ClaimState
from adk_django.core.record import RunStatus
from adk_django.exceptions import (
    AdkError,
    ApprovalError,
    CheckpointNotFoundError,
    ResumeConflictError,
    RunConflictError,
    SettlementError,
)
from adk_django.execution.resumer import Resumer, claim_resume
from adk_django.execution.runner import AgentRunner
from adk_django.testing import ScriptedProvider
from adk_django.tools import ToolContext, done
from tests.backends import TENANT
from tests.fake_tools import calls, effect, raises, usual
from tests.run_fixture import Stage

SECRET = "Bearer " + "sk-live-" + "a1B2c3D4e5F6g7H8"
PRIVATE = "my private question"


@pytest.fixture(autouse=True)
def _registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(agents, "_registry", {})
    yield


@pytest.fixture(params=["default", "postgres"])
def place(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


def test_a_start_that_is_repeated_is_one_run_and_another_one_is_told_what_differs(place: str, log: list[str]) -> None:
    stage = Stage(place, ["done"], *usual(log))
    agent, other = register(stage.agent), register(stage.agent_with(name="other"))
    given = {"tenant": TENANT, "run_id": stage.run_id, "using": place}
    first = runs.start(agent, PRIVATE, user="7", **given)
    again = runs.start("booking", PRIVATE, user="7", **given)
    assert (first.created, again.created, again.run_id, first.status) == (True, False, stage.run_id, RunStatus.ACTIVE)
    for field, start in {
        "input": lambda: runs.start(agent, "another question", user="7", **given),
        "user": lambda: runs.start(agent, PRIVATE, user="8", **given),
        "agent": lambda: runs.start(other, PRIVATE, user="7", **given),
    }.items():
        with pytest.raises(RunConflictError, match=f"another {field}") as refusal:
            start()
        assert "question" not in str(refusal.value)
    assert runs.start(agent, PRIVATE, **{**given, "tenant": "theirs"}).created
    assert runs.resume(stage.run_id, tenant=TENANT, using=place).status is RunStatus.COMPLETED
    ended = runs.start(agent, PRIVATE, user="7", **given)
    assert (ended.created, ended.status, ended.output) == (False, RunStatus.COMPLETED, "done")
    assert len(stage.provider.requests) == 1


def test_a_secret_in_the_question_is_told_apart_and_kept_masked(place: str) -> None:
    stage = Stage(place, ["done"])
    given = {"tenant": TENANT, "run_id": stage.run_id, "using": place}
    runs.start(stage.agent, SECRET, **given)
    assert not runs.start(stage.agent, SECRET, **given).created
    with pytest.raises(RunConflictError):
        runs.start(stage.agent, SECRET.replace("H8", "H9"), **given)
    assert "a1B2c3D4" not in stage.everything()


def test_masked_arguments_are_no_edit(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls(("wire", {"what": SECRET})), "done"], *usual(log))
    register(stage.agent)
    stage.run()
    request = stage.request("1.1")
    answer = {"tenant": TENANT, "grant": True, "by": "ann", "using": place}
    with pytest.raises(ApprovalError, match="holds a mask"):
        runs.decide(request.request_id, arguments=request.arguments, **answer)
    with pytest.raises(ApprovalError, match="do not fit"):
        runs.decide(request.request_id, arguments={"who": "x"}, **answer)
    with pytest.raises(ApprovalError, match="no request"):
        runs.decide(request.request_id, **{**answer, "tenant": "theirs"})
    runs.decide(request.request_id, arguments={"what": "less"}, **answer)
    assert runs.resume(stage.run_id, tenant=TENANT, using=place).status is RunStatus.COMPLETED
    assert log == ["wire less"]


def test_what_people_and_probes_say_is_kept_masked_and_must_name_a_call_in_doubt(place: str, log: list[str]) -> None:
    def probe(context: ToolContext, what: str) -> object:
        return done({"token": SECRET})

    tools = effect(log, "book", then=raises(OSError("cut"))), effect(log, "mail", then=raises(OSError("cut")))
    stage = Stage(place, [calls("book", "mail"), "done"], *tools)
    register(stage.agent)
    stage.run()
    said = {"tenant": TENANT, "by": "ann", "using": place}
    settled = {"answer": "completed", "reason": f"I used {SECRET}", **said}
    with pytest.raises(ValueError, match="expected 'completed' or 'never_ran'"):
        runs.settle(stage.run_id, "1.1", **{**settled, "answer": "yes"})
    with pytest.raises(ValueError, match="TURN.POSITION"):
        runs.settle(stage.run_id, "first", **settled)
    with pytest.raises(CheckpointNotFoundError):
        runs.settle(stage.run_id, "1.1", **{**settled, "tenant": "theirs"})
    with pytest.raises(SettlementError):
        runs.settle(stage.run_id, "1.2", **settled)
    with pytest.raises(SettlementError, match="no probe"):
        runs.probe(stage.run_id, "1.1", **said)
    runs.settle(stage.run_id, "1.1", outcome={"token": SECRET}, **settled)
    agents._registry["booking"] = stage.agent_with(tools[0], effect(log, "mail", probe=probe))
    runs.resume(stage.run_id, tenant=TENANT, using=place, agent=stage.agent)
    reply, claim = runs.probe(stage.run_id, "1.2", **said)
    assert (reply.answer.value, claim.settled_by) == ("done", "ann")
    assert "a1B2c3D4" not in stage.everything()


def test_a_probe_that_a_person_asks_answers_for_the_attempt_it_was_asked_about(place: str, log: list[str]) -> None:
    stages: list[Stage] = []

    def probe(context: ToolContext, what: str) -> object:
        stage = stages[0]  # another person and a worker are quicker than the tool's own status
        asked = stage.claim("1.1")
        stage.settle("1.1", happened=False)
        lease = stage.acquired()
        again = replace(asked, token="again", attempt=2, replaces=asked.token, replaces_state=ClaimState.NEVER_RAN)
        stage.stores.idempotency.begin(again, fence=lease.fence)
        return done("a seat of the first attempt")

    stages.append(Stage(place, [calls("book"), "done"], effect(log, "book", probe=probe)))
    stage = stages[0]
    register(stage.agent)
    stage.die("tool book", "after")
    with pytest.raises(SettlementError, match="attempt 2"):
        runs.probe(stage.run_id, "1.1", tenant=TENANT, by="ann", using=place)
    assert (stage.claim("1.1").state, stage.claim("1.1").outcome) == (ClaimState.IN_FLIGHT, None)


def test_a_cancel_is_carried_out_at_once_where_nobody_holds_the_run(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("wire"), "done"], *usual(log))
    stage.run()
    given = {"tenant": TENANT, "using": place}
    lease = stage.acquired()
    assert runs.cancel(stage.run_id, by="ann", reason="enough", **given).cancel_requested_at is not None
    with pytest.raises(ResumeConflictError):
        runs.apply_requests(stage.run_id, **given)
    stage.stores.leases.release(lease)
    ended = runs.apply_requests(stage.run_id, **given)
    assert (ended.status, ended.reason, stage.lease) == (RunStatus.CANCELLED, "cancelled by ann: enough", None)
    with pytest.raises(AdkError):
        runs.cancel("nobody", by="ann", reason="", **given)


ACTS = {
    "start": lambda **given: runs.start(given.pop("agent", "plain"), "go", **given),
    "resume": lambda agent=None, user=None, **given: runs.resume(agent=agent, **given),
    "enqueue": lambda agent=None, user=None, **given: runs.resume(enqueue=True, **given),
    "carry_on": lambda agent=None, user=None, **given: runs.carry_on(worker="w", **given),
    "inspect": lambda agent=None, user=None, **given: runs.inspect(**given),
    "list_runs": lambda run_id=None, user=None, **given: runs.list_runs(**given),
    "settle": lambda agent=None, user=None, **given: runs.settle(call="1.1", answer="completed", **SAID, **given),
    "probe": lambda agent=None, user=None, **given: runs.probe(call="1.1", **SAID, **given),
    "decide": lambda agent=None, user=None, run_id="req", **given: runs.decide(run_id, grant=True, **SAID, **given),
    "cancel": lambda agent=None, user=None, **given: runs.cancel(**SAID, **given),
    "release": lambda agent=None, user=None, **given: runs.release(**SAID, **given),
    "apply_requests": lambda agent=None, user=None, **given: runs.apply_requests(**given),
    "Resumer": lambda agent=None, user=None, **given: resumer().resume(worker="w", **given),
    "claim_resume": lambda agent=None, user=None, **given: claim_resume(resumer()._stores.leases, holder="w", **given),
    "AgentRunner": lambda agent=None, user=None, **given: AgentRunner().resume(PLAIN, **given),
    "AgentRunner.run": lambda agent=None, **given: AgentRunner().run(PLAIN, "go", **given),
}
TAKES = {
    "start": ("tenant", "run_id", "user", "agent"),
    "resume": ("tenant", "run_id", "agent"),
    "list_runs": ("tenant", "agent"),
    "AgentRunner.run": ("tenant", "run_id", "user"),
}
SAID = {"by": "ann", "reason": "so"}
PLAIN = Agent("plain", provider=ScriptedProvider(["done"]))
BAD = {"NUL": "a\0b", "surrogate": "a\ud83d", "empty": ""}


def resumer() -> Resumer:
    return Resumer(checkpoints=AgentRunner().checkpointer)


@pytest.mark.django_db
@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize(
    ("act", "field"), [(act, field) for act in ACTS for field in TAKES.get(act, ("tenant", "run_id"))]
)
def test_what_no_database_keeps_as_an_id_is_refused_before_any_statement(
    act: str, field: str, bad: str, django_assert_num_queries: Any
) -> None:
    register(PLAIN)
    given = {name: "x" for name in ("tenant", "run_id") if name != "run_id" or act != "list_runs"}
    if act in ("start", "resume"):
        given["agent"] = "plain"
    named = "request_id" if act == "decide" and field == "run_id" else field
    with django_assert_num_queries(0), pytest.raises(ValueError, match=named):
        ACTS[act](**{**given, field: BAD[bad]})


@pytest.mark.parametrize("bad", ["NUL", "surrogate"])
def test_an_agent_is_not_named_by_what_no_database_keeps(bad: str) -> None:
    with pytest.raises(ValueError, match="agent"):
        Agent(BAD[bad])
    with pytest.raises(ValueError, match="alias"):
        Agent("plain", aliases=(BAD[bad],))
