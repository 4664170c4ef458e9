"""adk_resume, as a command line and its exit code; and that a dry run changes nothing and gives the same code."""

import pytest

from adk_django import runs
from adk_django.core.record import RunStatus
from adk_django.models import Approval, Checkpoint, IdempotencyKey, Run, RunLease, TranscriptMessage
from adk_django.stores.orm import OrmLeaseStore
from tests.commands.support import TENANT, begin, command, one_line, rows

ON_DEFAULT = pytest.mark.django_db(transaction=True, databases="__all__")


def both(*args: str, **env: str):
    """Resume: first dry, which must change nothing and end alike, then for real. Return how that ended."""
    before = rows()
    dry = command("adk_resume", "r", "--dry-run", *args, **env)
    assert rows() == before
    real = command("adk_resume", "r", *args, **env)
    assert dry.code == real.code, (dry, real)
    if "json" in args:
        assert dry.json["error"]["code"] == real.json["error"]["code"]
    return real


def test_it_prints_the_summary_takes_the_lease_and_carries_on(alias):
    begin("waiter", "r", using=alias)
    request = Approval.objects.using(alias).get().request_id
    waiting = command("adk_resume", "r", alias=alias)
    assert waiting.code == 4
    assert waiting.out.splitlines()[:3] == [
        "run r  tenant acme  agent waiter",
        "iteration 1  10 in, 5 out  100 micros",
        f"waiting on approval {request}",
    ]
    assert waiting.out.splitlines()[-1] == "held with fence 2"
    assert waiting.err == f"run r is waiting: waiting on approval {request} for call 1.1 (wire): adk_decide\n"
    runs.decide(request, tenant=TENANT, grant=True, by="Ada", reason="fine", using=alias)
    before = rows(alias)
    dry = command("adk_resume", "r", "--dry-run", alias=alias)
    assert (dry.code, dry.out.splitlines()[-1], rows(alias)) == (0, "could be carried on", before)
    ended = command("adk_resume", "r", "--worker", "me", alias=alias)
    assert (ended.code, ended.err) == (0, "")
    assert "held with fence 3" in ended.out.splitlines()
    assert ended.out.splitlines()[-3:] == ["stopped: completed", "output:", "wired"]
    after = command("adk_resume", "r", "--format", "json", alias=alias)
    assert (after.code, after.json["run"]["status"], after.json["error"]["code"]) == (1, "completed", "run-ended")


@ON_DEFAULT
def test_nothing_under_that_id():
    begin("waiter", "r")
    for args in (["other"], ["other", "--dry-run"]):
        ended = command("adk_resume", *args)
        assert (ended.code, ended.out, ended.err) == (1, "", "there is no run other of tenant acme\n")
    foreign = command("adk_resume", "r", "--tenant", "globex", tenant=None)
    assert (foreign.code, foreign.err) == (1, "there is no run r of tenant globex\n")


@ON_DEFAULT
def test_a_run_that_was_started_and_has_no_frontier_is_carried_on_from_its_input():
    from tests.commands.product_app.definitions import AGENTS

    runs.start(AGENTS["clerk"], "go", tenant=TENANT, run_id="r")
    dry = command("adk_resume", "r", "--dry-run")
    assert (dry.code, dry.err) == (0, "")
    ended = command("adk_resume", "r")
    assert (ended.code, ended.err) == (0, "")
    assert "stopped: completed" in ended.out


@ON_DEFAULT
def test_another_worker_holds_it():
    begin("waiter", "r")
    lease = OrmLeaseStore().acquire("r", tenant=TENANT, holder="w\x1b[2J", ttl_seconds=600)
    ended = both()
    assert (ended.code, one_line(ended.err)) == (3, True)
    assert f"is held by w\\x1b[2J until {lease.expires_at.isoformat()}" in ended.err


@ON_DEFAULT
def test_an_undecidable_call():
    assert begin("doubter", "r") is RunStatus.UNDECIDED
    ended = both()
    assert (ended.code, one_line(ended.err)) == (4, True)
    assert "1.1 vanish (key " in ended.err
    assert "next adk_settle r 1.1 --tenant acme --as completed|never-ran --reason TEXT" in ended.out.splitlines()


@ON_DEFAULT
def test_a_probe_answers_for_real_and_is_not_asked_by_a_dry_run(monkeypatch):
    monkeypatch.setenv("TEST_PROBE", "unknown")
    begin("knocker", "r")
    dry = command("adk_resume", "r", "--dry-run", TEST_PROBE="done")
    assert dry.code == 4
    assert "probe available" in dry.out
    ended = command("adk_resume", "r", TEST_PROBE="done")
    assert (ended.code, ended.err) == (0, "")
    assert "probing call 1.1 (knock)" in ended.out.splitlines()
    assert "committing answer for call 1.1 (knock), status active" in ended.out.splitlines()
    assert "stopped: completed" in ended.out


def _newer():
    Checkpoint.objects.update(format_version=2)


def _damaged():
    Checkpoint.objects.update(payload='{"format": 1, "frontier": {}}')


def _no_transcript():
    TranscriptMessage.objects.all().delete()


def _lost():
    Checkpoint.objects.all().delete()


def _passed():
    Run.objects.update(failed_save="after_tool_result: too large")


def _beyond():
    IdempotencyKey.objects.update(turn=2)


def _quarantined():
    Run.objects.update(status="quarantined", reason="its workers kept dying")


def _dying():
    lease = OrmLeaseStore().acquire("r", tenant=TENANT, holder="dead", ttl_seconds=60)
    RunLease.objects.update(deaths=4, expires_at=lease.acquired_at.replace(year=2020))


def _revised():
    Run.objects.update(revision="0")


def _homeless():
    Run.objects.update(agent="ghost")


REFUSALS = {
    "newer": (_newer, "checkpoint-format", "format 2, this one reads up to 1"),
    "damaged": (_damaged, "checkpoint-damaged", ""),
    "no transcript": (_no_transcript, "history-unavailable", ""),
    "lost": (_lost, "checkpoint-damaged", "the frontier is lost"),
    "passed": (_passed, "checkpoint-passed", "too large"),
    "quarantined": (_quarantined, "resume-refused", "its workers kept dying"),
    "dying": (_dying, "resume-refused", "died 5 times"),
    "revised": (_revised, "agent-revision", "pinned to revision '0'"),
    "homeless": (_homeless, "agent-revision", "agent 'ghost' of run r is not registered: no worker here can carry it"),
}


@ON_DEFAULT
@pytest.mark.parametrize("name", REFUSALS)
def test_what_must_not_be_carried_on_says_why(name):
    spoil, code, why = REFUSALS[name]
    begin("waiter", "r")
    spoil()
    ended = both("--format", "json")
    assert (ended.code, ended.json["error"]["code"]) == (4, code)
    assert why in ended.json["error"]["message"]
    lease = RunLease.objects.get()
    assert lease.token is None or lease.holder == "dead"


@ON_DEFAULT
def test_records_beyond_the_frontier():
    begin("doubter", "r")
    _beyond()
    ended = both("--format", "json")
    assert (ended.code, ended.json["error"]["code"]) == (4, "checkpoint-passed")


@ON_DEFAULT
def test_an_operator_accepts_another_revision_or_an_old_frontier():
    begin("doubter", "r")
    runs.settle("r", "1.1", tenant=TENANT, answer="completed", by="Ada", reason="seen")
    Run.objects.update(revision="0")
    old = {"TEST_ADK": '{"CHECKPOINTS": {"ttl_seconds": 0.001}}'}
    assert both("--accept-stale", **old).code == 4
    assert both("--accept-revision", "1", **old).code == 4
    wrong = both("--accept-revision", "2", "--accept-stale", **old)
    assert (wrong.code, "not '2'" in wrong.err) == (4, True)
    before = rows()
    dry = command("adk_resume", "r", "--dry-run", "--accept-revision", "1", "--accept-stale", **old)
    assert (dry.code, dry.err, rows()) == (0, "", before)
    ended = command("adk_resume", "r", "--accept-revision", "1", "--accept-stale", **old)
    assert (ended.code, ended.err) == (0, "")
    assert Run.objects.get().status == "completed"


@ON_DEFAULT
@pytest.mark.parametrize("name", ["sound", "damaged", "quarantined"])
def test_a_cancel_that_was_asked_for_is_carried_out(name):
    begin("doubter", "r")
    if name != "sound":
        REFUSALS[name][0]()
    runs.cancel("r", tenant=TENANT, by="Ada", reason="enough")
    dry = command("adk_resume", "r", "--dry-run")
    assert (dry.code, dry.err) == (0, "")
    ended = command("adk_resume", "r")
    assert (ended.code, ended.err) == (0, "")
    assert "stopped: cancelled: cancelled by Ada: enough" in ended.out.splitlines()
    assert Run.objects.get().status == "cancelled"


@ON_DEFAULT
def test_a_run_that_had_its_turns_says_what_lets_it_go_on():
    begin("spinner", "r")
    ended = both("--format", "json")
    assert (ended.code, ended.json["error"]["code"]) == (4, "budget-exceeded")
    assert "raise ADK['LIMITS']['max_turns'] or its Agent(max_turns=...)" in ended.json["error"]["message"]
    seen = command("adk_inspect", "r", "--format", "json").json
    assert seen["next_step"] == "adk_resume r --tenant acme, once the limit is raised"
    assert (seen["standing"], "max_turns" in seen["reason"]) == ("undecided", True)
