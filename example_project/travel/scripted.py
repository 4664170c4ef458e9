"""A model provider that is no model: a script that books flights, so that the example needs no network and no key.

It keeps nothing. Each answer follows from the conversation it is given, so any process carries a conversation on where
another one died, as a real model's would be.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from adk_django.core.messages import Message, TextPart, ToolCall, ToolResult, Usage
from adk_django.providers.base import ModelProvider, ModelResponse

if TYPE_CHECKING:
    from adk_django.providers.base import ModelRequest

EXAMPLE = "Book a flight from BER to LIS for Ada."
WISH = re.compile(r"from (?P<origin>\w{3}) to (?P<destination>\w{3}) for (?P<passenger>[^.,;]+)", re.IGNORECASE)
REFERENCE = re.compile(r"SEAT-\d+")
MICROS_PER_WORD = 2


class ScriptedTravelAgent(ModelProvider):
    """Search, book, note, report. "way back" in the wish has the flights back looked up beside the booking."""

    model = "scripted-travel"

    def request(self, request: ModelRequest) -> ModelResponse:
        """Return the next step of the script."""
        message = Message("assistant", _answer(request.messages))
        usage = Usage(sum(_words(said) for said in request.messages), _words(message))
        return ModelResponse(message, usage, MICROS_PER_WORD * (usage.input_tokens + usage.output_tokens))


def _answer(messages: tuple[Message, ...]) -> tuple[TextPart | ToolCall, ...]:
    wish = "".join(message.text for message in messages if message.role == "user")
    asked = WISH.search(wish)
    if asked is None:
        return (TextPart(f"I follow a script and understand only: {EXAMPLE}"),)
    origin, destination, passenger = (asked[name].strip() for name in ("origin", "destination", "passenger"))
    results = [part for message in messages for part in message.parts if isinstance(part, ToolResult)]
    if failed := [result for result in results if result.is_error]:
        return (TextPart(f"{failed[0].name} says: {failed[0].content}. Nothing more is done."),)
    came_back = {result.name: result.content for result in reversed(results)}  # of each tool the first
    if "search_flights" not in came_back:
        return (_call(results, 1, "search_flights", origin=origin, destination=destination),)
    flights = [flight for flight in came_back["search_flights"] if flight["left"] > 0]
    if not flights:
        return (TextPart(f"Nothing flies from {origin} to {destination}."),)
    flight = flights[0]["flight"]
    if "book_flight" not in came_back:
        book = _call(results, 1, "book_flight", flight=flight, passenger=passenger)
        back = _call(results, 2, "search_flights", origin=destination, destination=origin)
        return (book, back) if "way back" in wish else (book,)
    # Whoever answered for the booking - the airline, its look-up or a person - named the seat somewhere in it.
    seat = REFERENCE.search(str(came_back["book_flight"]))
    if seat is None:
        return (TextPart(f"{flight} is booked for {passenger}; nobody told me the seat, so I note nothing."),)
    if "note_itinerary" not in came_back:
        return (_call(results, 1, "note_itinerary", reference=seat[0], flight=flight, passenger=passenger),)
    text = f"{passenger} is booked on {flight} at {flights[0]['departs']}, {seat[0]}, and the itinerary says so."
    return (TextPart(text),)


def _call(results: list[ToolResult], position: int, name: str, **arguments: str) -> ToolCall:
    return ToolCall(f"call-{len(results) + position}", name, arguments)


def _words(message: Message) -> int:
    """Count words, in place of tokens."""
    return sum(len(_said(part).split()) for part in message.parts)


def _said(part: Any) -> str:
    match part:
        case TextPart():
            return part.text
        case ToolCall():
            return f"{part.name} {json.dumps(part.arguments)}"
        case ToolResult():
            return str(part.content)
    return ""
