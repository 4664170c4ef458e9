"""A product's own suite runs an agent under each kind of test there is, and leaves nothing behind."""

import subprocess
import sys

from django.db import connections

from tests.servers import PROJECT_DIR, child_env

TESTS = 11


def databases() -> set[str]:
    """Return the databases of the server that this test's processes make: other tests share the server."""
    ours = connections["postgres"].settings_dict["NAME"]
    with connections["postgres"].cursor() as cursor:
        cursor.execute("SELECT datname FROM pg_database WHERE strpos(datname, %s) > 0", [ours])
        return {name for (name,) in cursor.fetchall()}


def test_a_products_suite_passes_and_leaves_no_database(alias: str) -> None:
    before = databases()
    assert before
    # A child whose default is SQLite has its test database in memory, as a product has that says nothing of it.
    suite = [sys.executable, "-m", "pytest", "tests/processes/product_suite.py", "--noconftest", "-q", "-n", "0"]
    ended = subprocess.run(suite, cwd=PROJECT_DIR, env=child_env(alias), capture_output=True, text=True, timeout=200)
    said = ended.stdout + ended.stderr
    assert ended.returncode == 0, said
    assert f"{TESTS} passed" in said
    assert "warning" not in said.lower(), said
    assert databases() == before
