"""One nursery of child processes for each database, for the whole session."""

from collections.abc import Iterator

import pytest

from tests.kill.child_processes import Nursery


@pytest.fixture(scope="session")
def nurseries(django_db_setup: None) -> Iterator[dict[str, Nursery]]:
    """Return the nurseries by alias; each is started by the first test that wants it."""
    started: dict[str, Nursery] = {}
    yield started
    for nursery in started.values():
        nursery.close()


@pytest.fixture
def nursery(alias: str, nurseries: dict[str, Nursery]) -> Iterator[Nursery]:
    """Return the nursery on the database of ``alias``; the test's children end with the test."""
    if alias not in nurseries:
        nurseries[alias] = Nursery(alias)
    yield nurseries[alias]
    nurseries[alias].clear()
