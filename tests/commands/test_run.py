"""adk_run, as a command line and its exit code."""

import pytest

from adk_django.core.record import RunStatus
from adk_django.models import Run, RunLease
from tests.commands.support import command, one_line


def test_it_starts_a_run_and_shows_each_step(alias):
    ended = command("adk_run", "clerk", "go", "--run-id", "r", "--user", "u", alias=alias)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.splitlines() == [
        "run r  tenant acme  agent clerk  new",
        "held with fence 1",
        "asking the model, turn 1",
        "committing after_model_call",
        "making call 1.1 (look)",
        "committing after_tool_result, outcome of call 1.1 (look)",
        "asking the model, turn 2",
        "committing status completed",
        "stopped: completed",
        "output:",
        r"done \x1b[31mred\x1b[0m\x00\u202e",
        "really",
    ]
    again = command("adk_run", "clerk", "go", "--run-id", "r", "--user", "u", "--format", "json", alias=alias)
    assert (again.code, again.json["created"]) == (1, False)
    assert again.json["error"] == {"code": "run-ended", "message": "run r has ended as completed", "retryable": False}


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_it_says_in_json_how_a_run_stopped_and_what_to_type_next():
    ended = command("adk_run", "waiter", "go", "--run-id", "r", "--format", "json")
    found = ended.json
    assert (ended.code, found["status"], found["created"], found["output"]) == (0, "waiting", True, None)
    assert found["steps"][:3] == ["asking the model, turn 1", "committing after_model_call", found["steps"][2]]
    assert found["reason"].startswith("waiting on approval req-")
    assert found["next_step"].startswith("adk_decide req-")
    assert (found["fence"], found["iterations"], found["usage"]["input_tokens"]) == (1, 1, 10)
    other = command("adk_run", "waiter", "another question", "--run-id", "r", "--format", "json")
    assert (other.code, other.json["error"]["code"]) == (4, "run-conflict")
    assert "another question" not in other.out


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_an_agent_that_nobody_registered_is_a_command_line_that_cannot_be_read():
    ended = command("adk_run", "nobody", "go")
    assert (ended.code, ended.out) == (2, "")
    assert "no agent is registered as 'nobody'; registered: clerk, doubter" in ended.err


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_a_model_that_fails_is_a_fault_and_the_run_says_when_it_is_tried_again():
    ended = command("adk_run", "faulty", "go", "--run-id", "r")
    assert ended.code == 5
    assert one_line(ended.err)
    assert "the model provider failed, next try at 20" in ended.err
    assert "ConnectionError: the model is away" in ended.err
    assert "the run stays active" in ended.err
    assert Run.objects.get().status == RunStatus.ACTIVE.value
    assert RunLease.objects.get().token is None


@pytest.mark.django_db(transaction=True, databases="__all__")
def test_a_run_that_another_worker_took_on_the_way_is_code_3_naming_it():
    ended = command("adk_run", "victim", "go", "--run-id", "r")
    assert ended.code == 3
    assert one_line(ended.err)
    assert "thief" in ended.err
    held = command("adk_run", "victim", "go", "--run-id", "r", "--format", "json")
    assert (held.code, held.json["error"]["code"], held.json["error"]["retryable"]) == (3, "resume-conflict", True)
