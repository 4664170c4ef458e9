"""A sample of the long lists, for where there is no time for all of them.

`pytest -m slow --sample` runs one test of each kind, and `draw` gives that test a few of its points. What is drawn
follows from pytest-randomly's seed, which is printed, and can be given again as `--randomly-seed`.
"""

import random
from collections.abc import Iterable
from typing import TypeVar

import pytest

Item = TypeVar("Item")
sampling = False

# Parameters that say which item of a list a test is for; the others say where and how it runs: its kind.
LISTS = {"fault", "name", "scenario", "transactional"}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--sample`."""
    parser.addoption("--sample", action="store_true", help="Run one slow test of each kind, on a few of its points.")


def pytest_configure(config: pytest.Config) -> None:
    """Note what was asked."""
    global sampling
    sampling = config.getoption("sample")


def kind_of(item: pytest.Item) -> tuple[object, ...]:
    """Return what a test has in common with those that differ in nothing but the item of their list."""
    assert isinstance(item, pytest.Function)
    params = item.callspec.params if hasattr(item, "callspec") else {}
    how = sorted((name, repr(value)) for name, value in params.items() if name not in LISTS)
    return (item.path, item.originalname, *how)


def sample(items: Iterable[pytest.Item], seed: int) -> list[pytest.Item]:
    """Return the tests that are not slow, and one slow test of each kind."""
    kinds: dict[tuple[object, ...], list[pytest.Item]] = {}
    for item in sorted(items, key=lambda item: item.nodeid):
        slow = item.get_closest_marker("slow") is not None
        kinds.setdefault(kind_of(item) if slow else (item.nodeid,), []).append(item)
    dice = random.Random(seed)
    return [dice.choice(same) for same in kinds.values()]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the sample does not hold."""
    if not sampling:
        return
    drawn = set(sample(items, config.getoption("randomly_seed")))
    config.hook.pytest_deselected(items=[item for item in items if item not in drawn])
    items[:] = [item for item in items if item in drawn]


def draw(listed: Iterable[Item], few: int, many: int | None = None) -> list[Item]:
    """Return what a test tries of a list, in its order: ``few`` where the session samples, else ``many``, or all."""
    everything = list(listed)
    size = few if sampling else many
    if size is None or size >= len(everything):
        return everything
    return [everything[index] for index in sorted(random.sample(range(len(everything)), size))]
