"""EffectLog: a file outside every store, in which a second effect shows as a second line."""

import json
import os
from pathlib import Path


class EffectLog:
    """An append-only file of one line per effect, written by any number of threads and processes.

    A line is in the file before `append` returns, whatever becomes of the process afterwards. Lines are kept as JSON,
    so that any text is one line.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    def append(self, line: str) -> None:
        """Add ``line`` at the end, by one write."""
        text = (json.dumps(line) + "\n").encode("ascii")
        opened = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            written = os.write(opened, text)
            if written != len(text):
                raise OSError(f"only {written} of {len(text)} bytes fitted into {self.path}")
            os.fsync(opened)
        finally:
            os.close(opened)

    def lines(self) -> list[str]:
        """Return all lines, oldest first; none if nothing was ever appended."""
        if not self.path.exists():
            return []
        return [json.loads(line) for line in self.path.read_text("ascii").splitlines()]

    def count(self, text: str) -> int:
        """Return how many lines are exactly ``text``."""
        return self.lines().count(text)
