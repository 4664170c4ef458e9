"""The demo as a user runs it: real processes, real SIGKILL, one seat each, nothing left behind."""

import os
import re
import signal
import subprocess
import sys

import pytest

from example_project.airline.launch import PROJECT_DIR

DEMO = [sys.executable, str(PROJECT_DIR / "manage.py"), "demo"]
ROW = re.compile(r"(?P<scenario>\d\w? killed .*?) +(?P<deaths>\d+) +(?P<wanted>\d+) +(?P<sold>\d+) +(?P<noted>\d+)")
IN_DOUBT = "2.1 book_flight: indeterminate"


@pytest.fixture
def environment(tmp_path):
    """The demo's environment: its files go into tmp_path, and every child of it can be told by a mark of its own."""
    (tmp_path / "temporary").mkdir()
    ours = ("DJANGO_", "EXAMPLE_", "AIRLINE_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    return {**kept, "TMPDIR": str(tmp_path / "temporary"), "DEMO_MARK": str(tmp_path)}


def left_over(environment):
    """List the files and the processes that a demo left behind."""
    mark = f"DEMO_MARK={environment['DEMO_MARK']}".encode()
    processes = []
    for entry in os.scandir("/proc"):
        try:
            with open(f"/proc/{entry.name}/environ", "rb") as environ:
                if mark in environ.read().split(b"\0"):
                    processes.append(entry.name)
        except OSError:
            continue
    return os.listdir(environment["TMPDIR"]), processes


@pytest.mark.slow
def test_every_killed_run_is_carried_on_and_no_seat_is_sold_twice(environment):
    database = PROJECT_DIR / "db.sqlite3"
    before = database.stat().st_mtime_ns if database.exists() else None
    demo = subprocess.run(DEMO, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert demo.returncode == 0, demo.stdout + demo.stderr

    rows = [match.groupdict() for line in demo.stdout.splitlines() if (match := ROW.fullmatch(line))]
    plans = re.findall(r"^    plan: (.*)$", demo.stdout, re.MULTILINE)
    assert [row["scenario"].split()[0] for row in rows] == ["1", "2a", "2b", "3", "4"]
    assert {(row["deaths"], row["wanted"], row["sold"], row["noted"]) for row in rows} == {("1", "1", "1", "1")}
    assert plans == [
        "2.1 book_flight: never_ran",
        IN_DOUBT,
        IN_DOUBT,
        "2.1 book_flight: completed, 2.2 search_flights: never_ran",
        "3.1 note_itinerary: never_ran",
    ]
    assert "scripted" in demo.stdout
    assert max(map(len, demo.stdout.splitlines())) < 100
    assert left_over(environment) == ([], [])
    assert (database.stat().st_mtime_ns if database.exists() else None) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_stopped_leaves_nothing_behind(environment, number):
    # A suite that a shell started in the background ignores SIGINT, and what it starts would too.
    heeding = [sys.executable, "-c", f"import os, signal; signal.signal({number}, 0); os.execv({DEMO[0]!r}, {DEMO!r})"]
    demo = subprocess.Popen(heeding, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    with demo:
        try:
            heard = []
            for line in demo.stdout:
                heard.append(line)
                if "demo_child" in line:  # a worker is on its way to its death, and the airline is open
                    break
            demo.send_signal(number)
            heard.append(demo.stdout.read())
            assert demo.wait(60) == 128 + number, "".join(heard)
        finally:
            demo.kill()
    assert left_over(environment) == ([], [])
