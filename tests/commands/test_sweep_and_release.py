"""adk_sweep, adk_release and --enqueue, as command lines and their exit codes."""

import signal

import pytest

from adk_django.models import IdempotencyKey, Run, RunEvent, RunLease
from adk_django.stores.orm import OrmLeaseStore
from tests.commands.support import TENANT, begin, command, one_line, popen
from tests.commands.test_resume import ON_DEFAULT


def quarantine():
    Run.objects.update(status="quarantined", reason="its worker died 5 times without progress")
    RunLease.objects.update(deaths=5)


@ON_DEFAULT
def test_release_frees_a_quarantined_run_at_once():
    begin("waiter", "r")
    quarantine()
    seen = command("adk_inspect", "r")
    assert "next adk_release r --tenant acme --reason TEXT" in seen.out
    ended = command("adk_release", "r", "--reason", "fixed")
    assert (ended.code, ended.err, ended.out) == (0, "", "run r is released: one more round\n")
    assert (Run.objects.get().status, RunLease.objects.get().deaths) == ("active", 4)
    event = RunEvent.objects.get(kind="release_requested")
    assert (event.by, event.reason) == ("op", "fixed")
    again = command("adk_release", "r", "--reason", "fixed", "--format", "json")
    assert (again.code, again.json["error"]["code"]) == (4, "not-quarantined")


@ON_DEFAULT
def test_release_of_a_run_that_a_worker_holds_is_requested():
    begin("waiter", "r")
    quarantine()
    OrmLeaseStore().acquire("r", tenant=TENANT, holder="busy", ttl_seconds=60)
    ended = command("adk_release", "r", "--reason", "fixed", "--format", "json")
    assert (ended.code, ended.json["holder"]) == (0, "busy")
    assert Run.objects.get().release_requested_at is not None


@ON_DEFAULT
def test_release_takes_a_lease_away():
    begin("waiter", "r")
    lease = OrmLeaseStore().acquire("r", tenant=TENANT, holder="stuck", ttl_seconds=86_400)
    ended = command("adk_release", "r", "--lease", "--reason", "it hangs")
    assert (ended.code, ended.err, ended.out) == (0, "", "the lease of stuck is taken away\n")
    assert RunLease.objects.get().fence == lease.fence + 1
    event = RunEvent.objects.get(kind="lease_revoked")
    assert (event.by, event.reason, event.detail) == ("op", "it hangs", f"fence {lease.fence + 1}")


@ON_DEFAULT
@pytest.mark.parametrize(("run", "status"), [("nobody", "active"), ("r", "completed")])
def test_what_is_not_there_or_has_ended_is_not_released(run, status):
    begin("waiter", "r")
    Run.objects.update(status=status)
    ended = command("adk_release", run, "--reason", "fixed")
    assert (ended.code, ended.out, one_line(ended.err)) == (1, "", True)


@ON_DEFAULT
def test_sweep_says_what_it_took():
    begin("waiter", "r")
    assert command("adk_sweep", tenant=None).out == "0 due, 0 wake-ups sent\n"
    Run.objects.update(status="active", wake_at=None)
    ended = command("adk_sweep", "--format", "json", tenant=None)
    assert (ended.code, ended.json["taken"], ended.json["sent"]) == (0, [{"tenant": TENANT, "run_id": "r"}], 0)
    assert command("adk_sweep", tenant=None).out == "0 due, 0 wake-ups sent\n"


@pytest.mark.django_db(transaction=True, databases="__all__")
@pytest.mark.parametrize("pause", ["0", "-1", "nan", "inf", "soon"])
def test_sweep_refuses_a_pause_that_is_none(pause):
    ended = command("adk_sweep", f"--loop={pause}", tenant=None)
    assert (ended.code, "expected seconds above 0" in ended.err) == (2, True)


@ON_DEFAULT
def test_sweep_goes_on_until_it_is_stopped():
    begin("waiter", "r")
    sweeping = popen("adk_sweep", "--loop", "0.05")
    with sweeping:
        assert [sweeping.stdout.readline() for _ in range(3)] == ["0 due, 0 wake-ups sent\n"] * 3
        sweeping.send_signal(signal.SIGTERM)
        assert sweeping.wait(60) == -signal.SIGTERM


@ON_DEFAULT
def test_a_run_is_handed_to_a_worker():
    started = command("adk_run", "clerk", "go", "--run-id", "r", "--enqueue")
    (due,) = started.out.splitlines()[1:]
    assert (started.code, started.err) == (0, "")
    assert due.startswith(
        "due, and nobody is woken: the product's Celery app names no broker; adk_resume r --tenant acme"
    )
    row = Run.objects.get()
    assert (row.status, row.fence, row.wake_at is None) == ("active", 0, False)
    Run.objects.update(wake_at=None)
    ended = command("adk_resume", "r", "--enqueue")
    assert (ended.code, ended.err, ended.out.splitlines()[-1]) == (0, "", due)
    assert Run.objects.get().wake_at is not None
    alone = command("adk_resume", "r", "--enqueue", "--accept-stale")
    assert (alone.code, "goes alone" in alone.err) == (2, True)


@ON_DEFAULT
@pytest.mark.parametrize(("agent", "code"), [("waiter", 4), ("doubter", 4)])
def test_what_a_worker_could_not_carry_on_is_not_handed_to_one(agent, code):
    begin(agent, "r")
    ended = command("adk_resume", "r", "--enqueue")
    assert (ended.code, one_line(ended.err)) == (code, True)
    assert Run.objects.get().wake_at is None


@ON_DEFAULT
def test_settling_a_call_whose_worker_holds_the_run_says_so():
    begin("doubter", "r")
    lease = OrmLeaseStore().acquire("r", tenant=TENANT, holder="busy", ttl_seconds=60)
    IdempotencyKey.objects.update(fence=lease.fence)
    asked = ("adk_settle", "r", "1.1", "--as", "completed", "--reason", "seen")
    ended = command(*asked)
    assert (ended.code, ended.err) == (0, "")
    settled, note = ended.out.splitlines()
    assert settled == "call 1.1 (vanish) of run r is settled as done"
    assert note.startswith("note: busy holds the run until ")
    assert command(*asked, "--format", "json").json["holder"] == "busy"
    OrmLeaseStore().release(lease)
    assert command(*asked).out.splitlines() == [settled]
