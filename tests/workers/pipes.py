"""What workers say to whoever started them, and gates at which they wait."""

import fcntl
import json
import os
from pathlib import Path
from typing import Any


def say(event: str, **facts: Any) -> None:
    """Tell something. A line this short is written whole, whoever else writes."""
    if pipe := os.environ.get("WORKERS_SAYS"):
        os.write(int(pipe), (json.dumps({"pid": os.getpid(), "event": event, **facts}) + "\n").encode())


def pass_gate(path: Path, **facts: Any) -> None:
    """Say ``entered`` and wait at a gate, where one was made, until it is opened or its maker dies."""
    if path.exists():
        say("entered", **facts)
        with open(path) as file:
            fcntl.flock(file, fcntl.LOCK_SH)
