"""adk_inspect: all that is known of a run, in text and in JSON, and nothing changed by looking."""

import pytest

from adk_django.models import Approval, Checkpoint, IdempotencyKey, Run
from adk_django.stores.orm import OrmLeaseStore
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
