"""Talk to the airline over HTTP.

The one distinction that matters: `SeatRefused` says that nothing was sold; `NoAnswer` says that nobody here can know.
"""

from __future__ import annotations

import json
import os
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import ProxyHandler, Request, build_opener

from django.conf import settings

TIMEOUT_SECONDS = 10.0


class SeatRefused(Exception):  # noqa: N818 - the airline's answer
    """The airline refused: nothing was sold."""


class NoAnswer(Exception):  # noqa: N818 - the lack of one
    """No answer came, or none that says whether anything was sold."""


def search(origin: str, destination: str, timeout: float = TIMEOUT_SECONDS) -> list[dict[str, Any]]:
    """List the flights between two airports: flight, from, to, departs, left. Raise NoAnswer if there is no list."""
    code, answer = _ask("GET", "/flights?" + urlencode({"from": origin, "to": destination}), timeout)
    if code != 200 or not isinstance(answer.get("flights"), list):
        raise NoAnswer(_reason(code, answer))
    flights: list[dict[str, Any]] = answer["flights"]
    return flights


def book(flight: str, passenger: str, key: str, timeout: float = TIMEOUT_SECONDS) -> dict[str, Any]:
    """Buy a seat; return it: reference, flight, passenger, key.

    Raise SeatRefused if the airline says that it sold nothing, NoAnswer if it may or may not have sold the seat.
    """
    order = {"flight": flight, "passenger": passenger}
    code, answer = _ask("POST", "/seats", timeout, json.dumps(order).encode(), {"Idempotency-Key": key})
    if code in (200, 201) and answer.get("sold") is True:
        return _seat(answer)
    # The status alone is not enough: a proxy's 404 or 408 has never seen the airline's books.
    if 400 <= code < 500 and answer.get("sold") is False:
        raise SeatRefused(_reason(code, answer))
    raise NoAnswer(_reason(code, answer))


def status(key: str, timeout: float = TIMEOUT_SECONDS) -> dict[str, Any] | None:
    """Return the seat sold under a key, or None if the airline says that none was.

    Raise NoAnswer if it says neither.
    """
    code, answer = _ask("GET", "/seats?" + urlencode({"key": key}), timeout)
    if code == 200 and answer.get("sold") is True:
        return _seat(answer)
    if code == 404 and answer.get("sold") is False:
        return None
    raise NoAnswer(_reason(code, answer))


def _ask(
    method: str, path: str, timeout: float, body: bytes | None = None, headers: dict[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON object of an answer. Raise NoAnswer if there is no such answer."""
    url = (os.environ.get("AIRLINE_URL") or settings.AIRLINE_URL).rstrip("/") + path
    request = Request(url, body, {"Content-Type": "application/json", **(headers or {})}, method=method)  # noqa: S310 - from settings
    try:
        try:
            # No proxy of the environment's: the airline of this example is on this machine.
            response = build_opener(ProxyHandler({})).open(request, timeout=timeout)
        except HTTPError as error:
            response = error
        with response:
            code, answer = response.status, json.loads(response.read())
    except (OSError, HTTPException, ValueError) as error:
        raise NoAnswer(f"{method} {path.partition('?')[0]}: {str(error) or type(error).__name__}") from error
    if not isinstance(answer, dict):
        raise NoAnswer(f"{method} {path.partition('?')[0]}: HTTP {code}, not a JSON object")
    return code, answer


def _seat(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: answer[name] for name in ("reference", "flight", "passenger", "key")}


def _reason(code: int, answer: dict[str, Any]) -> str:
    return str(answer.get("error", f"HTTP {code}"))
