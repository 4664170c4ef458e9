"""adk_inspect: all that is known of a run, in text and in JSON, and nothing changed by looking."""

import pytest

from adk_django import runs
from adk_django.models import Approval, Checkpoint, IdempotencyKey, Run, RunLease
from adk_django.stores.orm import OrmLeaseStore
from tests.commands.product_app.definitions import AGENTS
from tests.commands.support import TENANT, begin, command, one_line, rows
from tests.commands.test_resume import ON_DEFAULT, REFUSALS


def test_a_waiting_run(alias):
    begin("waiter", "r", using=alias)
    request, before = Approval.objects.using(alias).get().request_id, rows(alias)
    text, found = command("adk_inspect", "r", alias=alias), command("adk_inspect", "r", "--format", "json", alias=alias)
    assert rows(alias) == before
    assert (text.code, text.err) == (0, "")
    lines = text.out.splitlines()
    assert lines[:3] == [
        "run r  tenant acme  agent waiter",
        "iteration 1  10 in, 5 out  100 micros",
        f"waiting on approval {request}",
    ]
    assert f"next adk_decide {request} --tenant acme --grant|--deny --reason TEXT" in lines
    said = found.json
    assert (said["status"], said["standing"], said["iterations"]) == ("waiting", "waiting", 1)
    assert (said["boundary"], said["turn"], said["format"], said["revision"]) == ("before_approval", 1, 1, "1")
    assert said["usage"] == {"input_tokens": 10, "output_tokens": 5, "unknown_calls": 0}
    assert (said["cost_micros"], said["lease"], said["failed_save"], said["safe"]) == (100, None, "", True)
    assert said["waiting_on"] == [{"request_id": request, "call": "1.1", "tool": "wire", "expires_at": None}]
    assert said["next_step"].startswith(f"adk_decide {request}")
    assert said["age_seconds"] >= 0
    assert [(call["call"], call["tool"], call["disposition"], call["held"]) for call in said["calls"]] == [
        ("1.1", "wire", "never_ran", True)
    ]


@ON_DEFAULT
def test_a_doubtful_run_shows_its_evidence_and_no_escape_reaches_the_terminal():
    begin("doubter", "r")
    lease = OrmLeaseStore().acquire("r", tenant=TENANT, holder="w\x1b[2J", ttl_seconds=600)
    ended = command("adk_inspect", "r")
    assert (ended.code, ended.err) == (0, "")
    assert all(line.isprintable() for line in ended.out.splitlines())
    assert r"error RuntimeError: gone \x1b[31mred\x1b[0m\x00\u202e" in ended.out
    assert rf"lease held by w\x1b[2J, fence 2, until {lease.expires_at.isoformat()}" in ended.out.splitlines()
    claim = IdempotencyKey.objects.get()
    said = command("adk_inspect", "r", "--format", "json").json
    assert said["lease"] == {
        "holder": "w\x1b[2J",
        "fence": 2,
        "until": lease.expires_at.isoformat(),
        "live": True,
        "deaths": 0,
    }
    (call,) = said["calls"]
    assert (call["disposition"], call["key"], call["claim"]["state"]) == ("indeterminate", claim.key, "in_flight")
    assert call["claim"]["error"] == "RuntimeError: gone \x1b[31mred\x1b[0m\x00\u202e"
    assert (said["standing"], said["safe"]) == ("undecided", False)


@ON_DEFAULT
def test_ended_runs_and_unknown_ones():
    begin("clerk", "r")
    ended = command("adk_inspect", "r")
    assert (ended.code, ended.err) == (0, "")
    assert "status completed" in ended.out.splitlines()
    assert 'call 1.1 look: done, returned "saw a"' in ended.out.splitlines()
    (call,) = command("adk_inspect", "r", "--format", "json").json["calls"]
    assert (call["call"], call["tool"], call["effect"], call["claim"]["state"]) == ("1.1", "look", "read_only", "done")
    assert call["claim"]["outcome"] == {"kind": "returned", "is_error": False, "value": '"saw a"', "whole": True}
    unknown = command("adk_inspect", "s")
    assert (unknown.code, unknown.out, unknown.err) == (1, "", "there is no run s of tenant acme\n")


@ON_DEFAULT
@pytest.mark.parametrize("name", ["newer", "damaged", "no transcript", "lost"])
def test_a_frontier_it_cannot_read_is_shown_and_is_code_4(name):
    spoil, code, why = REFUSALS[name]
    begin("waiter", "r")
    spoil()
    before = list(Checkpoint.objects.values())
    text, found = command("adk_inspect", "r"), command("adk_inspect", "r", "--format", "json")
    assert (text.code, one_line(text.err)) == (4, True)
    assert why in text.err
    assert text.out.splitlines()[0] == "run r  tenant acme  agent waiter"
    assert (found.code, found.json["error"]["code"], found.json["safe"]) == (4, code, False)
    assert list(Checkpoint.objects.values()) == before


@ON_DEFAULT
@pytest.mark.parametrize("name", ["passed", "quarantined", "revised", "homeless"])
def test_a_run_that_must_not_be_carried_on_is_shown_with_the_reason(name):
    spoil, _, why = REFUSALS[name]
    begin("waiter", "r")
    spoil()
    said = command("adk_inspect", "r", "--format", "json")
    assert (said.code, why in said.json["reason"]) == (0, True)
    assert said.json["next_step"]


@ON_DEFAULT
def test_the_list_is_newest_first_and_filtered():
    begin("clerk", "one")
    begin("waiter", "two")
    begin("doubter", "three")
    Run.objects.filter(run_id="two").update(tenant="globex", reason="two\nlines \x1b[2J")
    OrmLeaseStore().acquire("three", tenant=TENANT, holder="w", ttl_seconds=600)

    def listed(*args: str) -> list[str]:
        ended = command("adk_inspect", *args, "--format", "json", tenant=None)
        assert ended.code == 0
        return [row["run_id"] for row in ended.json["runs"]]

    assert listed() == ["three", "two", "one"]
    assert listed("--tenant", TENANT, "--limit", "1") == ["three"]
    assert listed("--status", "waiting") == ["two"]
    assert listed("--agent", "clerk") == ["one"]
    assert listed("--stuck") == ["two"]
    text = command("adk_inspect", tenant=None)
    assert (text.code, text.err, len(text.out.splitlines())) == (0, "", 3)
    assert text.out.splitlines()[1].endswith(r"waiting: two\nlines \x1b[2J")


@ON_DEFAULT
def test_an_ended_run_shows_who_settled_its_calls():
    begin("doubter", "r")
    runs.settle("r", "1.1", tenant=TENANT, answer="completed", outcome="seat 1A", by="Ada", reason="the mail says so")
    assert command("adk_resume", "r").code == 0
    text = command("adk_inspect", "r")
    assert 'call 1.1 vanish: done, returned "seat 1A", ' in text.out
    assert "settled by Ada: the mail says so" in text.out
    (call,) = command("adk_inspect", "r", "--format", "json").json["calls"]
    assert (call["claim"]["settled_by"], call["claim"]["reason"]) == ("Ada", "the mail says so")


def test_the_list_says_what_the_lease_says(alias):
    for name in ("queued", "running", "dead", "released"):
        runs.start(AGENTS["clerk"], "go", tenant=TENANT, run_id=name, using=alias)
    begin("waiter", "waiting", using=alias)
    begin("clerk", "ended", using=alias)
    store = OrmLeaseStore(using=alias)
    for name in ("running", "dead", "released"):
        lease = store.acquire(name, tenant=TENANT, holder="w", ttl_seconds=600)
        if name == "dead":
            RunLease.objects.using(alias).filter(run_id=name).update(expires_at=lease.acquired_at)
        elif name == "released":
            store.release(lease)
    wanted = {
        "queued": "queued",
        "running": "running",
        "dead": "interrupted",
        "released": "queued",
        "waiting": "waiting",
        "ended": "completed",
    }
    found = command("adk_inspect", "--format", "json", alias=alias).json["runs"]
    assert {row["run_id"]: row["standing"] for row in found} == wanted
    one = {name: command("adk_inspect", name, "--format", "json", alias=alias).json["standing"] for name in wanted}
    assert one == wanted
    lines = command("adk_inspect", alias=alias).out.splitlines()
    assert {line.split()[1]: line.split()[-1] for line in lines if "waiting on" not in line}.items() <= wanted.items()


SECRET = "Bearer " + "sk-live-" + "a1B2c3D4e5F6g7H8"


@pytest.mark.parametrize("stored", ["masked", "whole"])
def test_the_conversation_is_shown_masked_newest_last(alias, stored):
    redact = {} if stored == "masked" else {"TEST_ADK": '{"REDACT": {"enabled": false}}'}
    given = ["adk_run", "clerk", f"use {SECRET}", "--tenant", TENANT, "--run-id", "r"]
    assert command(*given, alias=alias, tenant=None, **redact).code == 0
    text = command("adk_inspect", "r", "--messages", alias=alias, **redact)
    assert (text.code, text.err, SECRET in text.out) == (0, "", False)
    said = text.out.splitlines()[-4:]
    assert said[0].startswith("user: use ")
    assert said[1:] == [
        'assistant: call look {"what":"a"}',
        'tool: result of look "saw a"',
        r"assistant: done \x1b[31mred\x1b[0m\x00\u202e\nreally",
    ]
    found = command("adk_inspect", "r", "--messages", "--limit", "2", "--format", "json", alias=alias, **redact).json
    assert [(message["role"], message["parts"][0]["type"]) for message in found["messages"]] == [
        ("tool", "tool_result"),
        ("assistant", "text"),
    ]


@ON_DEFAULT
def test_the_conversation_of_runs_that_have_not_ended():
    begin("waiter", "r")
    assert command("adk_inspect", "r", "--messages").out.splitlines()[-1] == 'assistant: call wire {"amount":5}'
    runs.start(AGENTS["clerk"], "go on", tenant=TENANT, run_id="new")
    assert command("adk_inspect", "new", "--messages").out.splitlines()[-1] == "user: go on"
    assert command("adk_inspect", "--messages").code == 2
    assert command("adk_inspect", "r", "--limit", "2").code == 2
