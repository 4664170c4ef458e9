"""EffectLog: a second effect is a second line, whoever wrote it and whatever became of them."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from adk_django.testing import EffectLog
from adk_django.testing.conformance.base import race
from adk_django.testing.conformance.values import AWKWARD_TEXTS

CHILD = """
import os, signal, sys
from adk_django.testing.effects import EffectLog
log = EffectLog(sys.argv[1])
for index in range(50):
    log.append(f"{sys.argv[2]} {index}")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_log_that_was_never_written_is_empty(tmp_path: Path) -> None:
    log = EffectLog(tmp_path / "effects")
    assert (log.lines(), log.count("x")) == ([], 0)


def test_any_text_is_one_line_and_comes_back(tmp_path: Path) -> None:
    log = EffectLog(tmp_path / "effects")
    texts = [*AWKWARD_TEXTS.values(), "one\ntwo", "\x1c\x85\u2029"]
    texts.remove(AWKWARD_TEXTS["two halves"])  # JSON joins them
    for text in texts:
        log.append(text)
    assert log.lines() == texts
    assert all(log.count(text) == 1 for text in texts)


def test_the_same_line_twice_counts_twice(tmp_path: Path) -> None:
    log = EffectLog(tmp_path / "effects")
    for line in ("booked", "booked", "booked too"):
        log.append(line)
    assert log.count("booked") == 2


def test_threads_and_killed_processes_lose_no_line(tmp_path: Path) -> None:
    log = EffectLog(tmp_path / "effects")
    command = [sys.executable, "-c", CHILD, str(log.path)]
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings"}
    children = [subprocess.Popen([*command, f"child-{index}"], env=environment) for index in range(3)]
    race(*(lambda index=index: [log.append(f"thread-{index} {line}") for line in range(50)] for index in range(3)))
    assert [child.wait(60) for child in children] == [-signal.SIGKILL] * 3
    writers = [f"{kind}-{index}" for kind in ("child", "thread") for index in range(3)]
    for writer in writers:
        assert [line for line in log.lines() if line.startswith(f"{writer} ")] == [f"{writer} {n}" for n in range(50)]


def test_a_line_that_does_not_fit_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "write", lambda opened, text: len(text) - 1)
    with pytest.raises(OSError, match="of 9 bytes"):
        EffectLog(tmp_path / "effects").append("booked")
