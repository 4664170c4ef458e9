"""adk_settle, adk_decide and adk_cancel, as command lines and their exit codes."""

from datetime import UTC, datetime

from adk_django import runs
from adk_django.models import Approval, IdempotencyKey, Run, RunEvent
from adk_django.stores.orm import OrmLeaseStore
from tests.commands.support import TENANT, begin, command, one_line
from tests.commands.test_resume import ON_DEFAULT

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)


def test_settle_completed(alias):
    begin("doubter", "r", using=alias)
    asked = ("adk_settle", "r", "1.1", "--as", "completed", "--outcome", "seat \x1b 1A", "--reason", "seen \x1b")
    ended = command(*asked, alias=alias)
    assert (ended.code, ended.err, ended.out) == (0, "", "call 1.1 (vanish) of run r is settled as done\n")
    claim = IdempotencyKey.objects.using(alias).get()
    assert (claim.settled_by, claim.reason, "seat" in claim.outcome) == ("op", "seen \x1b", True)
    again = command(*asked, "--format", "json", alias=alias)
    assert (again.code, again.json["state"], again.json["settled_by"]) == (0, "done", "op")
    other = command("adk_settle", "r", "1.1", "--as", "never-ran", "--reason", "no", alias=alias)
    assert (other.code, other.out, one_line(other.err)) == (4, "", True)
    assert RunEvent.objects.using(alias).filter(kind="settled").count() == 1


@ON_DEFAULT
def test_settle_answers_for_the_attempt_that_was_looked_at():
    begin("doubter", "r")
    asked = ("adk_settle", "r", "1.1", "--as", "completed", "--reason", "seen")
    moved = command(*asked, "--attempt", "2")
    assert (moved.code, moved.out, one_line(moved.err), "attempt 1" in moved.err) == (4, "", True, True)
    assert command("adk_settle", "r", "1.1", "--probe", "--attempt", "1").code == 2
    assert command(*asked, "--attempt", "1").code == 0


@ON_DEFAULT
def test_settle_never_ran_is_refused_before_its_deadline_naming_it():
    begin("doubter", "r")
    asked = ("adk_settle", "r", "1.1", "--as", "never-ran", "--reason", "no", "--by", "Ada")
    early = command(*asked, "--format", "json")
    deadline = IdempotencyKey.objects.get().deadline_at
    assert (early.code, early.json["error"]["code"]) == (4, "settlement-refused")
    assert deadline.isoformat()[:19] in early.json["error"]["message"]
    IdempotencyKey.objects.update(deadline_at=LONG_AGO)
    ended = command(*asked)
    assert (ended.code, ended.err) == (0, "")
    assert (IdempotencyKey.objects.get().state, IdempotencyKey.objects.get().settled_by) == ("never_ran", "Ada")


@ON_DEFAULT
def test_settle_by_the_probe(monkeypatch):
    monkeypatch.setenv("TEST_PROBE", "unknown")
    begin("knocker", "r")
    unknown = command("adk_settle", "r", "1.1", "--probe")
    assert (unknown.code, one_line(unknown.err)) == (4, True)
    assert "said unknown" in unknown.err
    assert IdempotencyKey.objects.get().state == "in_flight"
    ended = command("adk_settle", "r", "1.1", "--probe", "--format", "json", TEST_PROBE="done")
    assert (ended.code, ended.json["probe"], ended.json["state"]) == (0, "done", "done")
    settled = command("adk_settle", "r", "1.1", "--probe")
    assert (settled.code, "is not in doubt" in settled.err) == (4, True)


@ON_DEFAULT
def test_what_there_is_not_cannot_be_settled():
    begin("doubter", "r")
    for asked in (("s", "1.1"), ("r", "9.9")):
        for how in (("--probe",), ("--as", "completed", "--reason", "seen")):
            ended = command("adk_settle", *asked, *how)
            assert (ended.code, ended.out, one_line(ended.err)) == (1, "", True)
    unprobed = command("adk_settle", "r", "1.1", "--probe")
    assert (unprobed.code, "has no probe" in unprobed.err) == (4, True)


def test_decide(alias):
    begin("waiter", "r", using=alias)
    request = Approval.objects.using(alias).get().request_id
    asked = ("adk_decide", request, "--grant", "--arguments", '{"amount": 3}', "--reason", "less")
    ended = command(*asked, alias=alias)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        f"request {request} for call 1.1 (wire) is granted",
        "next adk_resume r --tenant acme",
    ]
    approval = Approval.objects.using(alias).get()
    assert (approval.decided_by, approval.reason, "3" in approval.edited) == ("op", "less", True)
    again = command(*asked, "--format", "json", alias=alias)
    assert (again.code, again.json["state"], again.json["run_id"]) == (0, "granted", "r")
    other = command("adk_decide", request, "--deny", "--reason", "no", "--format", "json", alias=alias)
    assert (other.code, other.json["error"]["code"]) == (4, "approval-conflict")


@ON_DEFAULT
def test_requests_that_cannot_be_answered():
    begin("waiter", "r")
    request = Approval.objects.get().request_id
    unknown = command("adk_decide", "req-0", "--deny", "--reason", "no", "--format", "json")
    assert (unknown.code, unknown.json["error"]["code"]) == (1, "request-not-found")
    misfit = command("adk_decide", request, "--grant", "--arguments", '{"amount": "much"}', "--reason", "more")
    assert (misfit.code, misfit.out, one_line(misfit.err)) == (4, "", True)
    Approval.objects.update(expires_at=LONG_AGO)
    late = command("adk_decide", request, "--grant", "--reason", "fine", "--format", "json")
    assert (late.code, late.json["error"]["code"]) == (4, "approval-expired")


def test_cancel_ends_a_run_that_nobody_holds(alias):
    begin("waiter", "r", using=alias)
    ended = command("adk_cancel", "r", "--reason", "enough \x1b", alias=alias)
    assert (ended.code, ended.err, ended.out) == (0, "", "run r is cancelled by op: enough \\x1b\n")
    assert Run.objects.using(alias).get().status == "cancelled"
    again = command("adk_cancel", "r", "--reason", "once more", "--format", "json", alias=alias)
    assert (again.code, again.json["status"], again.json["reason"]) == (0, "cancelled", "cancelled by op: enough \x1b")


@ON_DEFAULT
def test_cancel_leaves_a_held_run_to_its_holder_and_its_doubtful_call_to_be_settled():
    begin("doubter", "r")
    leases = OrmLeaseStore()
    lease = leases.acquire("r", tenant=TENANT, holder="w", ttl_seconds=600)
    held = command("adk_cancel", "r", "--reason", "enough", "--by", "Ada")
    assert (held.code, held.err, held.out) == (0, "", "cancel of run r is requested: w holds it and ends it\n")
    assert Run.objects.get().status == "undecided"
    assert Run.objects.get().cancel_requested_by == "Ada"
    leases.release(lease)
    ended = command("adk_cancel", "r", "--reason", "enough", "--format", "json")
    assert (ended.code, ended.json["status"], ended.json["reason"]) == (0, "cancelled", "cancelled by Ada: enough")
    settled = command("adk_settle", "r", "1.1", "--as", "completed", "--reason", "seen")
    assert (settled.code, settled.err) == (0, "")


@ON_DEFAULT
def test_a_run_that_ended_otherwise_or_is_not_there_cannot_be_cancelled():
    begin("clerk", "r")
    ended = command("adk_cancel", "r", "--reason", "enough")
    assert (ended.code, ended.err) == (4, "run r has ended as completed: there is nothing to cancel\n")
    unknown = command("adk_cancel", "s", "--reason", "enough")
    assert (unknown.code, unknown.err) == (1, "there is no run s of tenant acme\n")
    assert runs.inspect("r", tenant=TENANT).record.cancel_requested_at is None
