"""Celery workers of the suite: real processes that say what they do on a pipe, and that end with the suite."""

import contextlib
import json
import os
import select
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.servers import PROJECT_DIR

PATIENCE_SECONDS = 60
COMMAND = ("worker", "-Q", "adk", "--without-gossip", "--without-mingle", "--without-heartbeat")


class Worker:
    """One worker and its children, ready for tasks. What it logs goes to the file ``log``."""

    def __init__(
        self, env: Mapping[str, str], log: Path, *, pool: str = "prefork", concurrency: int = 1, level: str = "INFO"
    ) -> None:
        self.log = log
        self._said, pipe = os.pipe()
        name = f"{log.stem}@suite"
        options = ["-P", pool, "-c", str(concurrency), "-l", level, "-n", name]
        with open(log, "ab") as written:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "tests.workers.celery_app", *COMMAND, *options],
                cwd=PROJECT_DIR,
                env={**env, "WORKERS_SAYS": str(pipe)},
                stdin=subprocess.PIPE,
                stdout=written,
                stderr=subprocess.STDOUT,
                pass_fds=[pipe],
                start_new_session=True,  # a group of its own, to be killed whole
            )
        os.close(pipe)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._said, selectors.EVENT_READ)
        self._unread = b""
        self._kept: list[dict[str, Any]] = []

    @property
    def pid(self) -> int:
        """The process that was started: a pool's parent."""
        return self.process.pid

    def ready(self) -> "Worker":
        """Return once it takes tasks."""
        self.said("ready")
        return self

    def said(self, event: str, **facts: Any) -> dict[str, Any]:
        """Return the next thing of this kind that it says, or said and nobody asked for."""
        until = time.monotonic() + PATIENCE_SECONDS

        def fits(line: dict[str, Any]) -> bool:
            return line["event"] == event and all(line.get(name) == value for name, value in facts.items())

        while True:
            for index, line in enumerate(self._kept):
                if fits(line):
                    return self._kept.pop(index)
            if not self._read(until - time.monotonic()):
                raise AssertionError(f"nobody said {event!r} {facts}; said was {self._kept}; {self.tail()}")

    def so_far(self, event: str) -> list[dict[str, Any]]:
        """Return everything of this kind that it has said until now and that nobody asked for."""
        while self._read(0):
            pass
        return [line for line in self._kept if line["event"] == event]

    def forget_said(self) -> None:
        """Drop what it has said until now."""
        self._kept.clear()

    def _read(self, seconds: float) -> bool:
        if not self._selector.select(max(0.0, seconds)):
            return False
        got = os.read(self._said, 65536)
        *lines, self._unread = (self._unread + got).split(b"\n")
        self._kept += [json.loads(line) for line in lines]
        return bool(got)

    def tail(self) -> str:
        """Return the end of what it logged."""
        return self.log.read_text(errors="replace")[-3_000:]

    def signal(self, number: int) -> None:
        """Send a signal to the parent alone."""
        os.kill(self.pid, number)

    def leave(self, grace_seconds: float) -> int | None:
        """Ask it to leave, as an operator's tools do; return its exit code, None where it was not gone in time."""
        self.signal(signal.SIGTERM)
        return self.left(grace_seconds)

    def left(self, grace_seconds: float) -> int | None:
        """Return its exit code, None where it is not gone in time; then it is killed."""
        try:
            return self.process.wait(grace_seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return None

    def kill(self) -> None:
        """Kill it and its children."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """See that nothing of it is left."""
        self.kill()
        if self.process.stdin is not None:
            self.process.stdin.close()
        self._selector.close()
        os.close(self._said)


def kill(pid: int) -> None:
    """Kill a process that is nobody's child here, and see it gone."""
    with watched(pid) as watch:
        os.kill(pid, signal.SIGKILL)
        gone(watch)


@contextlib.contextmanager
def watched(pid: int) -> Any:
    """Yield what `gone` waits for, taken while the process is certain to be there."""
    watch = os.pidfd_open(pid)
    try:
        yield watch
    finally:
        os.close(watch)


def gone(watch: int) -> None:
    """Wait until a watched process is no more."""
    ready, _, _ = select.select([watch], [], [], PATIENCE_SECONDS)
    assert ready, "a process did not end"
