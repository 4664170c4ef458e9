"""The suite's side of its child processes: what they say, how they end, and gates at which they wait."""

import contextlib
import fcntl
import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections import defaultdict, deque
from pathlib import Path
from typing import Any, Self

from tests.servers import PROJECT_DIR, child_env

PATIENCE_SECONDS = 120


class Gate:
    """A file at which children wait until it is opened, or the suite dies."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._held = open(path, "w")  # noqa: SIM115  # held until it is opened
        fcntl.flock(self._held, fcntl.LOCK_EX)

    def open(self) -> None:
        """Let everybody through, those who come later too."""
        self._held.close()


class Nursery:
    """The process that forks children on the database of ``alias``; see `tests.kill.fork_server`."""

    def __init__(self, alias: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.kill.fork_server"],
            cwd=PROJECT_DIR,
            env=child_env(alias),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._process.stdout is not None
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)
        self._unread = b""
        self._said: dict[int, deque[dict[str, Any]]] = defaultdict(deque)
        self._gates: list[Gate] = []
        self.children: list[Child] = []

    def spawn(self, job: str, **given: Any) -> "Child":
        """Start a child on a job of `tests.kill.jobs`."""
        self.ask(job=job, given=given)
        child = Child(self, self._read(lambda line: line["event"] == "born")["pid"])
        self.children.append(child)
        return child

    def gate(self, path: Path) -> Gate:
        """Return a gate that is shut, for the length of the test at most."""
        gate = Gate(path)
        self._gates.append(gate)
        return gate

    def ask(self, **asked: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        self._process.stdin.flush()

    def next_of(self, pid: int) -> dict[str, Any]:
        """Return the next thing that is said of a child."""
        return self._said[pid].popleft() if self._said[pid] else self._read(lambda line: line["pid"] == pid)

    def last(self, pid: int) -> None:
        """Read on until a child is over, whatever else it said."""
        self._read(lambda line: line["pid"] == pid and line["event"] == "changed" and not os.WIFSTOPPED(line["status"]))
        self._said.pop(pid, None)

    def _read(self, wanted: Any) -> dict[str, Any]:
        """Return the next line that is wanted; keep the others for those who wait for them."""
        until = time.monotonic() + PATIENCE_SECONDS
        while True:
            while b"\n" in self._unread:
                text, _, self._unread = self._unread.partition(b"\n")
                line: dict[str, Any] = json.loads(text)
                if wanted(line):
                    return line
                self._said[line["pid"]].append(line)
            if not self._selector.select(until - time.monotonic()):
                raise AssertionError(f"no child said what was waited for within {PATIENCE_SECONDS} seconds")
            assert self._process.stdout is not None
            got = os.read(self._process.stdout.fileno(), 65536)
            if not got:
                raise AssertionError("the nursery died; why is on its standard error")
            self._unread += got

    def clear(self) -> None:
        """Kill the children that are left and open all gates, as a test ends."""
        children, self.children = self.children, []
        for child in children:
            child.end()
        for gate in self._gates:
            gate.open()

    def close(self) -> None:
        """End the nursery."""
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
        self._selector.close()


class Child:
    """A process of the nursery."""

    def __init__(self, nursery: Nursery, pid: int) -> None:
        self._nursery, self.pid = nursery, pid
        self._over = False

    def next(self) -> dict[str, Any]:
        """Return the next thing the child says."""
        return self._nursery.next_of(self.pid)

    def said(self, event: str) -> dict[str, Any]:
        """Return the next thing the child says. It must be ``event``."""
        line = self.next()
        assert line["event"] == event, f"waited for {event!r}, was told {line}"
        return line

    def wait(self) -> int:
        """Return how it ended: its exit code, or the signal that killed it as a negative number."""
        status = self._changed()
        assert not os.WIFSTOPPED(status)
        self._over = True
        return os.waitstatus_to_exitcode(status)

    def stop(self) -> Self:
        """Stop it where it is: SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)
        assert os.WIFSTOPPED(self._changed())
        return self

    def go_on(self) -> None:
        """Let it go on: SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def kill(self) -> None:
        """Kill it: SIGKILL."""
        os.kill(self.pid, signal.SIGKILL)
        assert self.wait() == -signal.SIGKILL

    def end(self) -> None:
        """See that it is over, whatever it is doing."""
        if self._over:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        self._nursery.ask(wait=self.pid)
        self._nursery.last(self.pid)

    def _changed(self) -> int:
        self._nursery.ask(wait=self.pid)
        status: int = self.said("changed")["status"]
        return status
