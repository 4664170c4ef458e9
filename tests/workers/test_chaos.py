"""The chaos of `tests.workers.chaos`, as a process of its own: it restarts its own database and broker."""

import os
import subprocess
import sys

import pytest

from tests.servers import PROJECT_DIR
from tests.workers.chaos import SETUPS


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("setup", SETUPS)
def test_every_run_comes_to_its_end_and_no_effect_happens_twice(setup: str, capfd: pytest.CaptureFixture[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.workers.chaos", "--setup", setup],
        cwd=PROJECT_DIR,
        env={**os.environ, "PYTHONPATH": str(PROJECT_DIR)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    with capfd.disabled():
        sys.stdout.write(f"\n{setup}: {done.stdout}{done.stderr}")
    assert done.returncode == 0, done.stderr
    assert "doubled 0  lost 0" in done.stdout
