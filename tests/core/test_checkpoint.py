"""The frontier: everything in it comes back equal, what is newer is left alone, and what is damaged is called so."""

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from adk_django.core.checkpoint import (
    CHECKPOINT_FORMAT,
    Checkpoint,
    CheckpointBoundary,
    CheckpointPolicy,
    HistoryHandle,
    NewerFormatError,
    PendingCall,
)
from adk_django.core.codec import DecodeError, EncodeError
from adk_django.core.effects import EffectClass, Outcome, OutcomeKind, Slot
from adk_django.core.messages import BinaryPart, Message, TextPart, Usage

CALLS = (
    PendingCall(
        Slot(2, 1),
        "id",
        "book",
        {"a": (1, -0.0, "\ud83d\u0000")},
        "k",
        False,
        EffectClass.IDEMPOTENT,
        True,
        "d",
        ("a",),
        1.5,
    ),
    PendingCall(Slot(2, 2), "id", "x", None, result=Outcome.of(OutcomeKind.INVALID, "unknown tool"), dispatched=True),
)
FULL = Checkpoint(
    run_id="run_1",
    tenant="acme",
    agent="booking",
    boundary=CheckpointBoundary.BEFORE_APPROVAL,
    turn=2,
    model="m",
    messages=(Message("user", (TextPart("x"), BinaryPart(b"\xff", "image/png"))),),
    history_handle=HistoryHandle("acme", "run_1", 1, 3, "abc"),
    pending=CALLS,
    usage=Usage(1, 2, 3),
    cost_micros=4,
    iterations=2,
    revision="1",
    prompt_version="p",
    pending_approval="req-1",
    grant_id="req-0",
    scopes=("a", "b"),
    user="7",
    parent="run_0/1.1",
    guards=("g",),
)


def test_every_declared_field_is_written_and_comes_back_equal() -> None:
    at = datetime(2025, 1, 1, tzinfo=UTC)
    assert Checkpoint.decoded(FULL.encoded) == FULL
    assert Checkpoint.decoded(FULL.encoded, fence=3, created_at=at) == replace(FULL, fence=3, created_at=at)
    plain = Checkpoint("run_1", "acme", "booking", CheckpointBoundary.AFTER_MODEL_CALL, 1)
    assert Checkpoint.decoded(plain.encoded) == plain
    held = set(json.loads(FULL.encoded)["frontier"]) | {"format_version", "fence", "created_at"}
    assert held == set(vars(plain)) - {"encoded"}


def test_two_writes_of_one_sequence_are_compared_by_what_is_in_them_and_not_by_who_wrote() -> None:
    assert replace(FULL, fence=9, created_at=datetime(2025, 1, 1, tzinfo=UTC)).digest == FULL.digest
    assert replace(FULL, user="8").digest != FULL.digest


def test_sequences_rise_through_a_turn_and_into_the_next() -> None:
    order = ["after_model_call", "before_approval", "after_tool_result"]
    found = [replace(FULL, turn=turn, boundary=CheckpointBoundary(name)).sequence for turn in (1, 2) for name in order]
    assert found == sorted(set(found))


def test_a_newer_format_is_told_apart_before_its_body_is_looked_at() -> None:
    later = FULL.encoded.replace('"format":1', '"format":2').replace("before_approval", "mid_flight")
    with pytest.raises(NewerFormatError) as refusal:
        Checkpoint.decoded(later)
    assert (refusal.value.found, refusal.value.supported) == (2, CHECKPOINT_FORMAT)


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the path of every value in ``value``."""
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from places(item, (*path, key))


def changed(value: Any, path: tuple[Any, ...], put: Any) -> Any:
    if not path:
        return put
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    copy[path[0]] = changed(value[path[0]], path[1:], put)
    return copy


@pytest.mark.parametrize("put", [None, 0, "os.system", [], {}, True, {"$": "x"}], ids=repr)
def test_whatever_is_changed_by_hand_is_a_frontier_or_is_called_damaged(put: Any) -> None:
    whole = json.loads(FULL.encoded)
    called = 0
    for path in places(whole):
        text = json.dumps(changed(whole, path, put))
        try:
            _ = Checkpoint.decoded(text).sequence
        except (DecodeError, NewerFormatError):
            called += 1
    assert called > 20


@pytest.mark.parametrize(
    "text", ["", "{", FULL.encoded[:-9], "cos\nsystem\n(S'x'\ntR.", '{"format":0}', '{"format":true}']
)
def test_what_is_no_payload_is_called_damaged(text: str) -> None:
    with pytest.raises(DecodeError):
        Checkpoint.decoded(text)


def test_a_value_that_cannot_be_kept_is_refused_and_not_cut() -> None:
    broken = replace(FULL, pending=(replace(CALLS[0], arguments={"lock": object()}),))
    with pytest.raises(EncodeError):
        _ = broken.encoded


def test_a_handle_grows_with_its_conversation_and_depends_on_every_message_and_their_order() -> None:
    start = HistoryHandle("acme", "run_1")
    one, two = Message.of("user", "a"), Message.of("user", "b")
    whole = start.extended((one, two))
    assert whole == start.extended((one,)).extended((two,))
    assert (whole.length, len(whole.digest)) == (2, 64)
    assert whole.digest not in {start.extended((two, one)).digest, start.extended((one,)).digest}


@pytest.mark.parametrize(
    "options",
    [{"max_bytes": 0}, {"max_bytes": None}, {"ttl_seconds": -1}, {"save_timeout_seconds": True}, {"max_bytes": "1"}],
)
def test_a_policy_that_cannot_work_is_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"CheckpointPolicy.{next(iter(options))} is"):
        CheckpointPolicy(**options)


def test_a_policy_takes_boundaries_by_name_and_refuses_others() -> None:
    assert CheckpointPolicy(boundaries=frozenset({"after_model_call"})).boundaries == {  # type: ignore[arg-type]
        CheckpointBoundary.AFTER_MODEL_CALL
    }
    with pytest.raises(ValueError, match="mid_dispatch"):
        CheckpointPolicy(boundaries=frozenset({"mid_dispatch"}))  # type: ignore[arg-type]
