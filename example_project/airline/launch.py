"""Start the airline as its own process, for the demo and for tests."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

START_SECONDS = 30
STOP_SECONDS = 10
PROJECT_DIR = Path(__file__).resolve().parents[2]


@contextmanager
def airline(
    db: Path, *, honour_keys: bool = False, stall_after_sale: Path | None = None, look_up_down: Path | None = None
) -> Iterator[str]:
    """Run the airline for the length of the block and yield its URL; it goes down with this process, however that ends.

    Raise RuntimeError if it does not start.
    """
    db = db.absolute()
    port_file = db.with_name(f"{db.name}.port")
    port_file.unlink(missing_ok=True)
    command = [sys.executable, "-m", "example_project.airline.server", "--db", str(db)]
    command += ["--port", "0", "--port-file", str(port_file), "--exit-with-parent", str(os.getpid())]
    if honour_keys:
        command.append("--honour-keys")
    for option, file in (("--stall-after-sale", stall_after_sale), ("--look-up-down", look_up_down)):
        if file is not None:
            command += [option, str(file.absolute())]
    process = subprocess.Popen(command, cwd=PROJECT_DIR, stdin=subprocess.DEVNULL)  # noqa: S603 - our own words
    try:
        yield f"http://127.0.0.1:{_port(process, port_file)}"
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _port(process: subprocess.Popen[bytes], port_file: Path) -> int:
    until = time.monotonic() + START_SECONDS
    while not port_file.exists():
        if process.poll() is not None:
            raise RuntimeError(f"the airline ended with code {process.returncode}")
        if time.monotonic() > until:
            raise RuntimeError(f"the airline did not start in {START_SECONDS} seconds")
        time.sleep(0.02)
    return int(port_file.read_text())
