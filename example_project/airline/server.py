"""Run the airline: another company's service, in a process of its own, knowing neither Django nor agents.

    python -m example_project.airline.server --db airline.sqlite3 --port 8765

    GET  /flights?from=BER&to=LIS   what flies there, and how many seats are left
    POST /seats                     {"flight": ..., "passenger": ...} sells a seat and answers with its reference
    GET  /seats                     every seat sold
    GET  /seats?key=KEY             the seat sold under that Idempotency-Key; 404 if there is none

The Idempotency-Key that came with a sale is always written down. Whether a repeated key sells a second seat depends on
the airline: most sell it; one started with --honour-keys answers with the first seat again.

A refusal is a 4xx whose JSON says "sold": false. Any other answer but the seat, and none at all, leaves it open.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import re
import select
import signal
import socket
import sqlite3
import sys
import threading
import time
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger("airline")

POLL_SECONDS = 0.05
HOLD_SECONDS = 600
MAX_BODY_BYTES = 9_999
MAX_TEXT = 200

# flight: from, to, departs, seats
TIMETABLE = {
    "AD101": ("BER", "LIS", "08:10", 180),
    "AD103": ("BER", "LIS", "18:40", 180),
    "AD102": ("LIS", "BER", "12:35", 180),
    "AD201": ("BER", "HEL", "09:20", 2),
}


@dataclass(frozen=True)
class Seat:
    """Hold what the airline knows of a seat it sold."""

    reference: str
    flight: str
    passenger: str
    key: str | None


class Refused(Exception):  # noqa: N818 - an answer, not an error
    """Say no, with an HTTP status; `sold` is what that says of a sale, None where it says nothing."""

    def __init__(self, status: int, message: str, *, sold: bool | None = False) -> None:
        super().__init__(message)
        self.status = status
        self.sold = sold


class Books:
    """Keep the seats sold in one SQLite file; a seat is sold when its row is committed."""

    def __init__(self, path: Path, *, honour_keys: bool) -> None:
        self._honour_keys = honour_keys
        self._lock = threading.Lock()
        self._db = sqlite3.connect(path, timeout=20, isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=FULL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS seats (number INTEGER PRIMARY KEY AUTOINCREMENT,"
            " flight TEXT NOT NULL, passenger TEXT NOT NULL, key TEXT)"
        )
        self._db.execute("CREATE INDEX IF NOT EXISTS seats_key ON seats (key)")

    def flights(self, origin: str, destination: str) -> list[dict[str, Any]]:
        """List the flights between two airports with the seats they have left."""
        with self._lock:
            return [
                {"flight": flight, "from": start, "to": end, "departs": departs, "left": seats - self._sold(flight)}
                for flight, (start, end, departs, seats) in TIMETABLE.items()
                if (start, end) == (origin, destination)
            ]

    def sell(self, flight: str, passenger: str, key: str | None) -> tuple[Seat, bool]:
        """Sell a seat; return it and whether it is a new one. Raise Refused if there is none to sell."""
        with self._lock, self._db:
            self._db.execute("BEGIN IMMEDIATE")
            if self._honour_keys and key is not None and (known := self._seats("WHERE key = ?", key)):
                if (known[0].flight, known[0].passenger) != (flight, passenger):
                    raise Refused(409, "this key has sold another seat", sold=True)
                return known[0], False
            if flight not in TIMETABLE:
                raise Refused(404, f"no flight {flight}")
            if self._sold(flight) >= TIMETABLE[flight][3]:
                raise Refused(409, f"flight {flight} is full")
            sale = "INSERT INTO seats (flight, passenger, key) VALUES (?, ?, ?)"
            number = self._db.execute(sale, (flight, passenger, key)).lastrowid
            return self._seats("WHERE number = ?", number)[0], True

    def under(self, key: str) -> Seat:
        """Return the first seat sold under a key. Raise Refused if there is none."""
        with self._lock:
            seats = self._seats("WHERE key = ?", key)
        if not seats:
            raise Refused(404, "no seat was sold under this key")
        return seats[0]

    def all(self) -> list[Seat]:
        """Return every seat sold, oldest first."""
        with self._lock:
            return self._seats()

    def close(self) -> None:
        """Let a sale in progress finish and close the books."""
        with self._lock:
            self._db.close()

    def _sold(self, flight: str) -> int:
        return len(self._seats("WHERE flight = ?", flight))

    def _seats(self, where: str = "", *values: object) -> list[Seat]:
        rows = self._db.execute(f"SELECT number, flight, passenger, key FROM seats {where} ORDER BY number", values)  # noqa: S608 - our own text
        return [Seat(f"SEAT-{number:04d}", flight, passenger, key) for number, flight, passenger, key in rows]


class Handler(BaseHTTPRequestHandler):
    """Answer one request in JSON."""

    server: AirlineServer
    timeout = 30

    def do_GET(self) -> None:  # noqa: N802 - called by this name
        """Answer a question; nothing is sold."""
        self._answer(self._look_up)

    def do_POST(self) -> None:  # noqa: N802 - called by this name
        """Sell a seat."""
        self._answer(self._sell)

    def log_message(self, format: str, *args: Any) -> None:
        """Log a request quietly."""
        logger.info(format, *args)

    def _look_up(self) -> tuple[int, dict[str, Any]]:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        if url.path == "/flights":
            origin, destination = _text(query, "from").upper(), _text(query, "to").upper()
            return 200, {"flights": self.server.books.flights(origin, destination)}
        if url.path == "/seats" and "key" in query:
            if self.server.look_up_down is not None and self.server.look_up_down.exists():
                raise Refused(503, "the look-up is down for maintenance", sold=None)
            return 200, {"sold": True, **asdict(self.server.books.under(_key(query, "key")))}
        if url.path == "/seats":
            seats = self.server.books.all()
            return 200, {"count": len(seats), "seats": [asdict(seat) for seat in seats]}
        raise Refused(404, f"no page {url.path}", sold=None)

    def _sell(self) -> tuple[int, dict[str, Any]]:
        if self.path != "/seats":
            raise Refused(404, f"no page {self.path}")
        key = _key(self.headers, "Idempotency-Key") if "Idempotency-Key" in self.headers else None
        order = self._body()
        seat, new = self.server.books.sell(_text(order, "flight").upper(), _text(order, "passenger"), key)
        if new:
            self._hold(seat)
        return 201 if new else 200, {"sold": True, **asdict(seat)}

    def _body(self) -> dict[str, Any]:
        length = self.headers.get("Content-Length", "")
        if not re.fullmatch("[0-9]{1,4}", length):
            raise Refused(400, f"Content-Length is missing or above {MAX_BODY_BYTES}")
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError):
            body = None
        if not isinstance(body, dict):
            raise Refused(400, "the body is not a JSON object")
        return body

    def _hold(self, seat: Seat) -> None:
        """Keep the buyer of a sold seat waiting, for as long as the stall file is there and the buyer too."""
        stall = self.server.stall_after_sale
        if stall is None or not stall.exists():
            return
        _write(stall.with_name(f"{stall.name}.sold"), seat.reference)
        until = time.monotonic() + HOLD_SECONDS
        while stall.exists() and time.monotonic() < until and not self._buyer_left():
            time.sleep(POLL_SECONDS)

    def _buyer_left(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        try:
            return bool(readable) and self.connection.recv(1, socket.MSG_PEEK) == b""
        except ConnectionError:
            return True

    def _answer(self, page: Callable[[], tuple[int, dict[str, Any]]]) -> None:
        try:
            status, body = page()
        except Refused as refused:
            status, body = refused.status, {"error": str(refused), "sold": refused.sold}
        payload = json.dumps(body).encode()
        # Who asked may be gone by now. What was sold stays sold.
        with contextlib.suppress(ConnectionError):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(payload)))
            self.end_headers()
            self.wfile.write(payload)


class AirlineServer(ThreadingHTTPServer):
    """Serve the books on the loopback address, until told to stop or the parent process is gone."""

    request_queue_size = 64

    def __init__(
        self,
        port: int,
        books: Books,
        *,
        stall_after_sale: Path | None,
        look_up_down: Path | None,
        parent: int | None,
    ) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.books = books
        self.stall_after_sale = stall_after_sale
        self.look_up_down = look_up_down
        self._parent = parent

    def service_actions(self) -> None:
        """Stop once the parent is gone; called on every turn of the serving loop."""
        if self._parent is not None and os.getppid() != self._parent:
            sys.exit(0)


def _text(values: Any, name: str) -> str:
    """Return a value that is a short line of text. Raise Refused if it is anything else."""
    value = values.get(name)
    if not (isinstance(value, str) and value.strip() and len(value) <= MAX_TEXT and value.isprintable()):
        raise Refused(400, f"{name} is to be one line of 1 to {MAX_TEXT} characters")
    return value.strip()


def _key(values: Any, name: str) -> str:
    """Return a key that reads the same in a header and in a URL. Raise Refused if it would not."""
    key = _text(values, name)
    if not key.isascii():
        raise Refused(400, f"{name} is to be ASCII")
    return key


def _write(path: Path, text: str) -> None:
    """Write a file so that whoever waits for it finds it whole."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(text)
    part.replace(path)


def main(argv: list[str] | None = None) -> None:
    """Serve until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m example_project.airline.server", description="Run the airline.")
    parser.add_argument("--db", type=Path, required=True, help="SQLite file of the seats sold; made if it is not there")
    parser.add_argument("--port", type=int, default=8765, help="0 picks a free one (default: %(default)s)")
    parser.add_argument("--port-file", type=Path, help="write the port here once the airline listens")
    parser.add_argument("--honour-keys", action="store_true", help="sell one seat per Idempotency-Key")
    parser.add_argument(
        "--stall-after-sale",
        type=Path,
        metavar="FILE",
        help="while FILE exists: sell the seat, write FILE.sold, and hold the answer until FILE or the buyer is gone",
    )
    parser.add_argument(
        "--look-up-down",
        type=Path,
        metavar="FILE",
        help="while FILE exists: answer no question about a key (503)",
    )
    parser.add_argument("--exit-with-parent", type=int, metavar="PID", help="stop once PID is no longer the parent")
    options = parser.parse_args(argv)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    with (
        contextlib.closing(Books(options.db, honour_keys=options.honour_keys)) as books,
        AirlineServer(
            options.port,
            books,
            stall_after_sale=options.stall_after_sale,
            look_up_down=options.look_up_down,
            parent=options.exit_with_parent,
        ) as server,
    ):
        if options.port_file:
            _write(options.port_file, str(server.server_port))
        server.serve_forever(poll_interval=POLL_SECONDS)


if __name__ == "__main__":
    main()
