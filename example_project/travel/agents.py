"""The agent of the example: it finds a flight, books a seat with another company, and notes it in our own database."""

from __future__ import annotations

from typing import Any

from adk_django.agents import Agent, register
from adk_django.tools import ProbeAnswer, ToolContext, done, not_done, tool, unknown
from example_project.airline import client
from example_project.travel.models import Itinerary
from example_project.travel.scripted import ScriptedTravelAgent


@tool("read_only")
def search_flights(origin: str, destination: str) -> list[dict[str, Any]]:
    """List the flights between two airports: flight, from, to, departs, left (seats)."""
    return client.search(origin, destination)


def seat_sold(context: ToolContext, flight: str, passenger: str) -> ProbeAnswer:
    """Ask the airline whether it sold a seat under this call's key."""
    try:
        seat = client.status(context.idempotency_key)
    except client.NoAnswer:
        return unknown
    return not_done if seat is None else done(_told(seat))


# The airline may sell a second seat to whoever asks twice, so the tool is what it is by default: effectful.
@tool(probe=seat_sold, never_happened=(client.SeatRefused,), time_limit_seconds=30)
def book_flight(flight: str, passenger: str, context: ToolContext) -> dict[str, Any]:
    """Buy one seat on a flight; returns its reference. Each call buys another seat."""
    return _told(client.book(flight, passenger, context.idempotency_key))


@tool("transactional", using="default")
def note_itinerary(reference: str, flight: str, passenger: str) -> str:
    """Tell the passenger which seat was booked for them."""
    return str(Itinerary.objects.create(booking_reference=reference, flight=flight, passenger=passenger))


def _told(seat: dict[str, Any]) -> dict[str, Any]:
    """Return what the model is told of a seat: the same whether the sale answered or the look-up did."""
    return {name: seat[name] for name in ("reference", "flight", "passenger")}


booking = register(
    Agent(
        "booking",
        instructions="Book the flight the passenger asks for, then note it in their itinerary.",
        tools=(search_flights, book_flight, note_itinerary),
        provider=ScriptedTravelAgent(),
        revision="1",
    )
)
