"""Messages come back equal, whatever a provider put into them, and never half."""

from typing import Any

import pytest

from adk_django.core import codec
from adk_django.core.messages import BinaryPart, Message, OpaquePart, TextPart, ToolCall, ToolResult, Usage

PARTS = (
    TextPart("", {"signature": "a\u0000\ud83d"}),
    TextPart("b", {}),
    BinaryPart(b"\xff\x00", "image/png", {"detail": None}),
    ToolCall("", "book", {"seat": (1, 1.0)}, {"index": 0}),
    ToolResult("", "book", [float("inf")], True, {"copy_of_call": "1.1"}),
    OpaquePart({"type": "reasoning", "null": None, "b": 1, "a": 2}),
)


def back(message: Message) -> Message:
    return Message.from_data(codec.decode(message.encoded))


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_every_part_comes_back_equal_and_in_its_order(role: Any) -> None:
    message = Message(role, (*PARTS, *reversed(PARTS)), {"id": "x", "null": None})
    assert back(message) == message
    assert back(message).encoded == message.encoded


def test_a_null_field_and_a_missing_one_stay_what_they_are() -> None:
    with_null, without = (Message("assistant", (OpaquePart(data),)) for data in ({"a": None}, {}))
    assert with_null.encoded != without.encoded
    assert (back(with_null), back(without)) == (with_null, without)


def test_text_and_calls_are_read_in_order() -> None:
    message = Message("assistant", PARTS)
    assert (message.text, [call.name for call in message.tool_calls]) == ("b", ["book"])
    assert Message.of("user", "hi").parts == (TextPart("hi"),)


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"role": "user"},
        {"role": "pirate", "parts": []},
        {"role": "user", "parts": 1},
        {"role": "user", "parts": ["text"]},
        {"role": "user", "parts": [{"type": "os.system", "text": "x"}]},
        {"role": "user", "parts": [{"type": "text", "text": 1, "extra": {}}]},
        {"role": "user", "parts": [{"type": "text", "text": "x", "more": 1}]},
        {"role": "user", "parts": [{"type": "tool_call", "id": None, "name": "x", "arguments": {}}]},
    ],
)
def test_what_is_no_message_is_called_damaged(data: Any) -> None:
    with pytest.raises(codec.DecodeError):
        Message.from_data(data)


def test_a_value_that_cannot_be_kept_is_refused_by_path() -> None:
    with pytest.raises(codec.EncodeError, match=r"\$\.parts\[0\]\.arguments\.lock"):
        _ = Message("assistant", (ToolCall("id", "book", {"lock": object()}),)).encoded


def test_usage_adds_up_and_keeps_what_is_unknown() -> None:
    assert Usage(1, 2) + Usage(10, 20, 1) + Usage(unknown_calls=2) == Usage(11, 22, 3)
