"""What every command does alike: faults, command lines, streams. Each in a process of its own."""

import io
import os

import pytest
from django.core.management import CommandError, call_command

from adk_django.core.record import RunStatus
from adk_django.models import Run, RunLease
from tests.commands.support import TENANT, command, one_line, popen

pytestmark = pytest.mark.django_db(transaction=True, databases="__all__")

COMMANDS = {
    "adk_run": ("clerk", "go"),
    "adk_inspect": ("r",),
    "adk_resume": ("r",),
    "adk_settle": ("r", "1.1", "--as", "completed", "--reason", "seen"),
    "adk_decide": ("req", "--grant", "--reason", "fine"),
    "adk_cancel": ("r", "--reason", "enough"),
    "adk_release": ("r", "--reason", "fixed"),
    "adk_sweep": (),
}
NOWHERE = "postgresql://nobody@127.0.0.1:1/none"


@pytest.mark.parametrize("name", COMMANDS)
def test_a_missing_table_is_a_fault_that_says_what_to_type(name, tmp_path):
    ended = command(name, *COMMANDS[name], ADK_TEST_SQLITE_NAME=str(tmp_path / "empty.sqlite3"))
    assert (ended.code, ended.out) == (5, "")
    assert one_line(ended.err)
    assert "python manage.py migrate --database=default" in ended.err


@pytest.mark.parametrize("name", COMMANDS)
def test_an_unreachable_database_is_a_fault_and_worth_another_try(name, tmp_path):
    here = {"ADK_TEST_SQLITE_NAME": str(tmp_path / "no" / "such" / "folder" / "db.sqlite3")}
    if name == "adk_inspect":  # one that is asked over a network is enough
        here = {"ADK_TEST_DATABASE_URL": NOWHERE, "ADK_TEST_DEFAULT": "postgres"}
    ended = command(name, *COMMANDS[name], "--format", "json", **here)
    assert ended.code == 5
    assert ended.json["error"]["code"] == "store-unavailable"
    assert ended.json["error"]["retryable"] is True


@pytest.mark.parametrize("name", COMMANDS)
def test_a_failed_check_of_ours_is_a_fault(name):
    ended = command(name, *COMMANDS[name], TEST_ADK='{"LEASE": {}, "TOOL": {}}')
    assert (ended.code, ended.out) == (5, "")
    assert one_line(ended.err)
    assert ended.err.startswith("adk_django.E001: ADK has no key LEASE.")
    assert "and 1 more: python manage.py check --tag adk_django" in ended.err


@pytest.mark.parametrize("name", COMMANDS)
def test_help_and_command_lines_that_cannot_be_read(name):
    helped = command(name, "--help", tenant=None)
    assert (helped.code, helped.err) == (0, "")
    assert "--tenant" in helped.out
    unread = command(name, *COMMANDS[name], "--nonsense")
    assert (unread.code, unread.out) == (2, "")
    assert "--nonsense" in unread.err


def test_the_traceback_is_shown_where_it_is_asked_for_and_changes_no_code(tmp_path):
    ended = command("adk_inspect", "r", "--traceback", ADK_TEST_SQLITE_NAME=str(tmp_path / "empty.sqlite3"))
    assert (ended.code, ended.out) == (5, "")
    assert "Traceback (most recent call last)" in ended.err
    assert ended.err.splitlines()[-1].startswith("adk_django.exceptions.ConfigurationError: ")


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("adk_run", ["clerk", "go"]),
        ("adk_inspect", ["r"]),
        ("adk_inspect", ["r", "--tenant", TENANT, "--stuck"]),
        ("adk_inspect", ["--status", "lost"]),
        ("adk_inspect", ["--limit", "0"]),
        ("adk_inspect", ["--database", "nowhere"]),
        ("adk_run", ["nobody", "go", "--tenant", TENANT]),
        ("adk_settle", ["r", "1.1", "--tenant", TENANT, "--reason", "seen"]),
        ("adk_settle", ["r", "1.1", "--tenant", TENANT, "--as", "completed"]),
        ("adk_settle", ["r", "1.1", "--tenant", TENANT, "--as", "maybe", "--reason", "seen"]),
        ("adk_settle", ["r", "one", "--tenant", TENANT, "--as", "completed", "--reason", "seen"]),
        ("adk_settle", ["r", "1.1", "--tenant", TENANT, "--probe", "--as", "completed", "--reason", "seen"]),
        ("adk_settle", ["r", "1.1", "--tenant", TENANT, "--as", "never-ran", "--outcome", "x", "--reason", "seen"]),
        ("adk_decide", ["req", "--tenant", TENANT, "--reason", "fine"]),
        ("adk_decide", ["req", "--tenant", TENANT, "--grant"]),
        ("adk_decide", ["req", "--tenant", TENANT, "--grant", "--deny", "--reason", "fine"]),
        ("adk_decide", ["req", "--tenant", TENANT, "--grant", "--arguments", "[1]", "--reason", "fine"]),
        ("adk_decide", ["req", "--tenant", TENANT, "--grant", "--arguments", "{", "--reason", "fine"]),
        ("adk_decide", ["req", "--tenant", TENANT, "--deny", "--arguments", "{}", "--reason", "fine"]),
        ("adk_cancel", ["r", "--tenant", TENANT]),
        *((name, [*given, "--tenant", "a\0b"]) for name, given in COMMANDS.items() if name != "adk_sweep"),
        *((name, ["a\0b", *given[1:], "--tenant", TENANT]) for name, given in COMMANDS.items() if given),
        ("adk_run", ["waits", "go", "--tenant", TENANT, "--run-id", "a\0b"]),
    ],
)
def test_what_cannot_be_read_is_code_2_for_callers_too(name, given):
    with pytest.raises(CommandError) as caught:
        call_command(name, *given)
    assert caught.value.returncode == 2


def test_a_caller_gets_the_code_and_the_object_that_a_command_line_gets():
    said = io.StringIO()
    with pytest.raises(CommandError, match="there is no run r of tenant acme") as caught:
        call_command("adk_inspect", "r", tenant=TENANT, format="json", stdout=said)
    assert caught.value.returncode == 1
    assert '"exit_code": 1' in said.getvalue()


def test_a_reader_that_leaves_stops_no_run():
    process = popen("adk_run", "clerk", "go", "--run-id", "piped")
    assert process.stdout.readline().startswith("run piped")
    process.stdout.close()
    with process.stderr:
        assert (process.stderr.read(), process.wait(60)) == ("", 0)
    assert Run.objects.get().status == RunStatus.COMPLETED.value


def test_ctrl_c_frees_the_run_without_a_traceback():
    ended = command("adk_run", "stopped", "go", "--run-id", "stopped")
    assert (ended.code, ended.err) == (130, "interrupted\n")
    assert RunLease.objects.get().token is None
    shown = command("adk_inspect", "stopped", "--format", "json").json
    assert [call["disposition"] for call in shown["calls"]] in (["indeterminate"], ["completed"])


def test_a_stream_that_knows_ascii_only_stops_no_run():
    process = popen("adk_run", "clerk", "gö", "--run-id", "ümlaut", PYTHONIOENCODING="ascii")
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "run \\xfcmlaut  tenant acme" in out


def test_who_answers_is_known_where_the_system_knows_no_name(monkeypatch):
    from adk_django.management import base

    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr(base.getpass, "getuser", unknown)
    assert base.answerer(None) == f"uid {os.getuid()}"
    assert base.answerer("Ada") == "Ada"
