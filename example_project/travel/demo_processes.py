"""What the demo stands on: a folder of its own, the airline, and real processes to command and to kill."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import ProxyHandler, build_opener

from example_project.airline.launch import PROJECT_DIR, airline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

LEASE_SECONDS = 3.0
COMMAND_SECONDS = 60
POLL_SECONDS = 0.02
WIDTH = 96
STALL = "stall"
LOOK_UP_DOWN = "look-up-down"
STOPS = (signal.SIGINT, signal.SIGTERM)


class DemoError(Exception):
    """Something did not come out as it must: the demo cannot go on."""


@dataclass(frozen=True)
class Said:
    """What a command said, and the code it ended with."""

    code: int
    text: str

    def lines(self, pattern: str) -> list[str]:
        """Return the first group of every line that ``pattern`` begins. Raise DemoError if there is none."""
        found = [match[1] for line in self.text.splitlines() if (match := re.match(pattern, line))]
        if not found:
            raise DemoError(f"no line like {pattern!r} in:\n{self.text}")
        return found


class Stage:
    """The places and processes of one demo."""

    def __init__(self, folder: Path, url: str, write: Callable[[str], None]) -> None:
        self._folder, self._url, self._write = folder, url, write
        self._database = folder / "demo.sqlite3"
        self.marker = folder / "marker"  # written by demo_child at its point
        self.stall = folder / STALL  # while it is there, the airline sells and does not answer
        self.look_up_down = folder / LOOK_UP_DOWN  # while it is there, the airline answers no question about a key

    @property
    def stalled(self) -> Path:
        """The file that the airline writes once it sold a seat and does not answer."""
        return self._folder / f"{STALL}.sold"

    def say(self, text: str = "", indent: str = "") -> None:
        """Tell the audience, on lines that fit a terminal."""
        for line in text.splitlines() or [""]:
            rest = indent + "    "
            folded = textwrap.fill(line, WIDTH, initial_indent=indent, subsequent_indent=rest, break_on_hyphens=False)
            self._write(folded)

    # Processes

    def command(self, *words: str, expect: int = 0, begin: str = "") -> Said:
        """Run a management command in a process of its own and show what it says, from the line with ``begin`` on.

        Raise DemoError if it ends with another code than ``expect``.
        """
        self.say(f"$ manage.py {shlex.join(words)}", "  ")
        with self._process(words, subprocess.PIPE) as process:
            try:
                text = process.communicate(timeout=COMMAND_SECONDS)[0].strip()
            except subprocess.TimeoutExpired:
                raise DemoError(f"{words[0]} did not end in {COMMAND_SECONDS} seconds") from None
        lines = text.splitlines()
        first = next((number for number, line in enumerate(lines) if begin in line), 0)
        for line in (["..."] if first else []) + lines[first:]:
            self.say(line, "  | ")
        self.say(f"exit code {process.returncode}", "  ")
        if process.returncode != expect:
            raise DemoError(f"{words[0]} ended with code {process.returncode}, expected {expect}:\n{text}")
        return Said(process.returncode, text)

    @contextmanager
    def doomed(self, marker: Path, *words: str) -> Iterator[None]:
        """Start a management command, wait until ``marker`` is there, run the block, and kill it with SIGKILL.

        Raise DemoError if it ends before it is killed.
        """
        marker.unlink(missing_ok=True)
        self.say(f"$ manage.py {shlex.join(words)}", "  ")
        log = self._folder / "worker.log"
        with log.open("w") as output, self._process(words, output.fileno()) as process:
            until = time.monotonic() + COMMAND_SECONDS
            while not marker.exists() and process.poll() is None and time.monotonic() < until:
                time.sleep(POLL_SECONDS)
            if marker.exists():
                yield
            process.kill()
            if process.wait() != -signal.SIGKILL or not marker.exists():
                raise DemoError(f"{words[0]} was to be killed, and ended by itself:\n{log.read_text()}")
        marker.unlink()
        self.say(f"SIGKILL to process {process.pid}. It ran no handler, no finally, no rollback.", "  ")

    @contextmanager
    def _process(self, words: tuple[str, ...], output: int) -> Iterator[subprocess.Popen[str]]:
        mine = {
            "DJANGO_SETTINGS_MODULE": "example_project.settings",
            "EXAMPLE_DATABASE_URL": "",
            "EXAMPLE_SQLITE": str(self._database),
            "EXAMPLE_LEASE_SECONDS": str(LEASE_SECONDS),
            "AIRLINE_URL": self._url,
            "DEMO_MARKER": str(self.marker),
            "DEMO_PARENT": str(os.getpid()),
        }
        # A stop that came between the birth of the process and our hold of it would leave it behind. The process has
        # stops blocked for good: whoever started it kills it.
        unblocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
        try:
            process = subprocess.Popen(  # noqa: S603 - our own words
                [sys.executable, str(PROJECT_DIR / "manage.py"), *words],
                cwd=PROJECT_DIR,
                env={**os.environ, **mine},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                text=True,
            )
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)
                yield process
            finally:
                process.kill()
                process.wait()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, unblocked)

    # What came of it

    def wait_for_lapse(self, seen: Said) -> None:
        """Wait until the lease that ``adk_inspect`` showed has lapsed, by the clock it was given under: ours."""
        until = datetime.fromisoformat(seen.lines(r"lease \w+ by .*, until (\S+)")[0])
        left = (until - datetime.now(UTC)).total_seconds()
        self.say(f"The dead worker's lease lapses at {until:%H:%M:%S}; nobody could take the run over before.")
        time.sleep(max(0.0, left) + POLL_SECONDS)

    def seats(self, passenger: str) -> list[str]:
        """Ask the airline which seats it sold to a passenger."""
        with build_opener(ProxyHandler({})).open(f"{self._url}/seats", timeout=COMMAND_SECONDS) as answer:
            seats = json.load(answer)["seats"]
        return [seat["reference"] for seat in seats if seat["passenger"] == passenger]

    def itineraries(self, passenger: str) -> int:
        """Count what our own database tells a passenger."""
        with closing(sqlite3.connect(self._database, timeout=20)) as ours:
            count: int = ours.execute(
                "SELECT COUNT(*) FROM travel_itinerary WHERE passenger = ?", (passenger,)
            ).fetchone()[0]
        return count


@contextmanager
def staged(write: Callable[[str], None]) -> Iterator[Stage]:
    """Yield a stage; its processes and files are gone after the block, however that ends."""
    with tempfile.TemporaryDirectory(prefix="adk-demo-") as name:
        folder = Path(name)
        books = folder / "airline.sqlite3"
        with airline(books, stall_after_sale=folder / STALL, look_up_down=folder / LOOK_UP_DOWN) as url:
            yield Stage(folder, url, write)
