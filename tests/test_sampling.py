"""A sample holds every kind of slow test, is the same for the same seed, and another for another."""

import subprocess
import sys

from tests.servers import PROJECT_DIR


def collected(*options: str) -> list[str]:
    """Return the ids of the slow crash tests that a session with these options runs."""
    asked = [
        sys.executable,
        "-m",
        "pytest",
        "tests/execution/test_crash_points.py",
        "-m",
        "slow",
        "-n0",
        "--collect-only",
        "-q",
    ]
    listed = subprocess.run([*asked, *options], cwd=PROJECT_DIR, capture_output=True, text=True, check=True).stdout
    return sorted(line for line in listed.splitlines() if "::" in line)


def test_a_sample_is_one_of_every_kind_and_follows_from_its_seed() -> None:
    whole = collected()
    once, again, other = (collected("--sample", f"--randomly-seed={seed}") for seed in (1, 1, 2))
    assert once == again != other
    assert {*once, *other} < {*whole}
    for test, places in (
        ("every_single_crash_in_a_database", ("default", "postgres")),
        ("every_theft_in_a_database", ("default", "postgres")),
        ("every_pair_of_crashes_in_a_database", ("default", "postgres")),
        ("every_single_crash_in_redis", ("",)),
        ("every_pair_of_crashes_in_redis", ("",)),
    ):
        for place in places:
            for how in ("sync", "async"):
                words = {place, how} - {""}
                drawn = [
                    line for line in once if f"_{test}[" in line and words <= {*line[:-1].replace("[", "-").split("-")}
                ]
                assert len(drawn) == 1, (test, place, how, drawn)
