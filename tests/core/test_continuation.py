"""What crosses over where an execution is started again, and what must not be dropped."""

from dataclasses import replace

import pytest
from django.core.exceptions import ImproperlyConfigured

from adk_django.core.checkpoint import HistoryHandle, PendingCall
from adk_django.core.continuation import DEFAULT_CONTINUATION, Continuation, ContinuationPolicy, continued
from adk_django.core.effects import EffectClass, Slot
from adk_django.core.messages import Message, Usage
from adk_django.core.observations import Answered
from adk_django.core.record import Approval, ApprovalState, RunRecord
from adk_django.core.run_facts import Setting
from adk_django.core.state import RunState
from adk_django.exceptions import ConfigurationError

SLOT = Slot(1, 1)
CALL = PendingCall(SLOT, "c1", "wire", {"what": 1}, key="k", effect=EffectClass.EFFECTFUL, held=True, digest="d")
SETTING = Setting(fence=3, revision="7", model="m", prompt_version="p2", guards=("g",))


def state(**changes):
    """Return a run in its first turn, which waits for a person."""
    record = RunRecord("acme", "run_1", "booking", "go", "00" * 32, user="u", scopes=("s",), parent="run_0")
    asked = Approval("acme", "run_1", "req-1", SLOT, "wire", "d", {"what": 1})
    given = {
        "handle": HistoryHandle("acme", "run_1", length=2, digest="x"),
        "turn": 1,
        "open": True,
        "pending": (CALL,),
        "approvals": {SLOT: asked},
        "usage": Usage(10, 5),
        "cost_micros": 41,
    }
    return RunState(record=record, setting=SETTING, messages=(Message.of("user", "go"),), **{**given, **changes})


def test_everything_crosses_but_the_journal():
    crossed = continued(state(), tenant="acme", agent_name="booking")
    assert (crossed.revision, crossed.model, crossed.prompt_version, crossed.guards) == ("7", "m", "p2", ("g",))
    assert (crossed.pending, crossed.history_handle.length) == ((CALL,), 2)
    assert (crossed.usage, crossed.cost_micros, crossed.iterations) == (Usage(10, 5), 41, 1)
    assert (crossed.scopes, crossed.user, crossed.parent) == (("s",), "u", "run_0")
    assert (crossed.approvals, crossed.grants) == (((SLOT, "req-1"),), ())
    granted = replace(state().approvals[SLOT], state=ApprovalState.GRANTED)
    assert continued(state(approvals={SLOT: granted}), tenant="acme", agent_name="booking").grants == ((SLOT, "req-1"),)


def test_an_approval_or_a_grant_that_was_dropped_is_no_continuation():
    waiting = continued(state(), tenant="acme", agent_name="booking")
    for dropped in ({"approvals": ()}, {"approvals": (), "grants": ((Slot(1, 2), "req-1"),)}):
        with pytest.raises(ConfigurationError, match=r"dropped the approval of call 1\.1"):
            replace(waiting, **dropped)
    with pytest.raises(ImproperlyConfigured):
        continued(state(approvals={}), tenant="acme", agent_name="booking")


def test_an_empty_transcript_after_turns_is_no_continuation():
    for handle in (None, HistoryHandle("acme", "run_1")):
        with pytest.raises(ConfigurationError, match="empty transcript"):
            Continuation("acme", "run_1", "booking", handle, iterations=1)
    assert Continuation("acme", "run_1", "booking", None).iterations == 0


@pytest.mark.parametrize("other", [{"tenant": "other"}, {"agent_name": "other"}])
def test_another_tenants_or_agents_run_does_not_cross(other):
    with pytest.raises(ConfigurationError, match="not of"):
        continued(state(), **{"tenant": "acme", "agent_name": "booking", **other})


def test_a_continuation_is_due_by_its_steps_or_by_the_history():
    assert not DEFAULT_CONTINUATION.due(49)
    assert DEFAULT_CONTINUATION.due(50)
    assert DEFAULT_CONTINUATION.due(["step"] * 50)
    policy = ContinuationPolicy(max_steps=2, max_history_bytes=100)
    assert not policy.due(1, history_bytes=99)
    assert policy.due(1, history_bytes=100)
    assert not policy.due(1)
    assert policy.due(2)


@pytest.mark.parametrize("bad", [{"max_steps": 0}, {"max_steps": True}, {"max_steps": None}, {"max_history_bytes": 0}])
def test_a_policy_that_is_never_or_always_due_is_refused(bad):
    with pytest.raises(ValueError, match=next(iter(bad))):
        ContinuationPolicy(**bad)


def test_the_journal_counts_what_was_observed():
    seen = Answered(Message.of("assistant", "done"), (), Usage(1, 1), 0)
    assert state(open=False, pending=(), approvals={}).observe(seen).journal == 1
