"""The example's script in place of a model: the same conversation has the same next step, whoever asks."""

import pytest

from adk_django.core.messages import Message, ToolCall, ToolResult
from adk_django.providers.base import ModelRequest
from example_project.travel.scripted import EXAMPLE, ScriptedTravelAgent

FLIGHTS = [
    {"flight": "AD100", "from": "BER", "to": "LIS", "departs": "06:00", "left": 0},
    {"flight": "AD101", "from": "BER", "to": "LIS", "departs": "08:10", "left": 3},
]


def answer(*messages):
    # A provider of its own for each answer: nothing may be kept between two.
    return ScriptedTravelAgent().request(ModelRequest("", messages)).message


def told(call, content, *, is_error=False):
    return Message("tool", (ToolResult(call.id, call.name, content, is_error),))


def conversation(wish, booked):
    """Return the calls asked for, one list a turn, and the final text."""
    results = {"search_flights": FLIGHTS, "book_flight": booked, "note_itinerary": "noted"}
    messages, turns = [Message.of("user", wish)], []
    while (said := answer(*messages)).tool_calls:
        turns.append([(call.name, call.arguments) for call in said.tool_calls])
        back = tuple(ToolResult(call.id, call.name, results[call.name]) for call in said.tool_calls)
        messages += [said, Message("tool", back)]
    return turns, said.text


SEARCH = ("search_flights", {"origin": "BER", "destination": "LIS"})
BACK = ("search_flights", {"origin": "LIS", "destination": "BER"})
BOOK = ("book_flight", {"flight": "AD101", "passenger": "Ada"})
NOTE = ("note_itinerary", {"reference": "SEAT-0007", "flight": "AD101", "passenger": "Ada"})


@pytest.mark.parametrize("booked", [{"reference": "SEAT-0007"}, "a person says: it is seat SEAT-0007"])
def test_it_searches_books_notes_and_reports(booked):
    turns, text = conversation(EXAMPLE, booked)
    assert turns == [[SEARCH], [BOOK], [NOTE]]
    assert text == "Ada is booked on AD101 at 08:10, SEAT-0007, and the itinerary says so."


def test_the_way_back_is_looked_up_beside_the_booking():
    turns, text = conversation(f"{EXAMPLE} Look for the way back as well.", {"reference": "SEAT-0007"})
    assert turns == [[SEARCH], [BOOK, BACK], [NOTE]]
    assert "AD101" in text


def test_no_seat_is_noted_that_nobody_named():
    turns, text = conversation(EXAMPLE, "completed; what it returned is not known")
    assert turns == [[SEARCH], [BOOK]]
    assert "I note nothing" in text


def test_an_error_ends_the_script():
    search = ToolCall("call-1", *SEARCH)
    refused = told(search, "flight AD101 is full", is_error=True)
    said = answer(Message.of("user", EXAMPLE), Message("assistant", (search,)), refused)
    assert said.tool_calls == ()
    assert "AD101 is full" in said.text


def test_a_full_timetable_books_nothing():
    search = ToolCall("call-1", *SEARCH)
    said = answer(Message.of("user", EXAMPLE), Message("assistant", (search,)), told(search, FLIGHTS[:1]))
    assert said.text == "Nothing flies from BER to LIS."


def test_a_wish_it_does_not_understand_is_told_what_it_does():
    assert EXAMPLE in answer(Message.of("user", "Sing!")).text


def test_words_stand_in_for_tokens():
    response = ScriptedTravelAgent().request(ModelRequest("", (Message.of("user", EXAMPLE),)))
    assert (response.usage.input_tokens, response.usage.output_tokens) == (9, 5)
    assert response.cost_micros == 28
