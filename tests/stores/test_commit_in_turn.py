"""The commit that goes store by store: its order, and that a resume understands every prefix of it."""

import copy
import functools
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from adk_django.core.record import RunStatus
from adk_django.exceptions import IndeterminateToolCallError
from adk_django.stores.bundle import Stores
from adk_django.testing import Crash
from adk_django.testing.crashes import Crasher
from tests.backends import World, finish, slice_of
from tests.execution.test_crash_points import ONCE, expected, fresh_log, run_id
from tests.run_definitions import SCENARIOS, Scenario, calls

VERBS = {
    "checkpoints": ("put", "forget"),
    "leases": ("progressed",),
    "idempotency": ("begin", "record", "abandon", "note_error", "settle"),
    "history": ("append",),
    "runs": ("write", "gate", "ungate"),
}


class Cut(Crasher):
    """Dies after so many calls of stores; with None it only counts. ``made`` lists them."""

    def __init__(self, after: int | None = None) -> None:
        super().__init__()
        self.after, self.made = after, []

    def stores(self, stores: Stores) -> Stores:
        wrapped = {kind: self._cut(getattr(stores, kind), verbs) for kind, verbs in VERBS.items()}
        cut = type(stores)(**{**vars(stores), **wrapped})
        whole = super().stores(cut)
        return type(cut)(**vars(whole))  # the leases of a dead run stay; its commit is not an effect here

    def _cut(self, store: Any, verbs: tuple[str, ...]) -> Any:
        def counted(name: str) -> Any:
            verb = getattr(type(store), name)

            @functools.wraps(verb)
            def call(this: Any, *args: Any, **kwargs: Any) -> Any:
                if self.dead:
                    raise Crash
                result = verb(this, *args, **kwargs)
                self.made.append(name)
                if len(self.made) == self.after:
                    self.dead = True
                    raise Crash
                return result

            return call

        cut = copy.copy(store)
        cut.__class__ = type("Cut", (type(store),), {name: counted(name) for name in verbs})
        return cut


def sequence(world: World, scenario: Scenario, tmp_path: Path, after: int | None = None) -> list[str]:
    cut = Cut(after)
    slice_of(world, scenario, fresh_log(tmp_path), run_id(), cut)
    return cut.made


@pytest.fixture
def world(redis: Any) -> World:
    return World("redis")


def test_facts_come_before_progress_and_a_claim_comes_last(world: World, tmp_path: Path) -> None:
    assert sequence(world, SCENARIOS["effectful"], tmp_path) == [
        *("write", "append", "put", "write"),  # spend, transcript, frontier, row
        *("write", "gate", "begin"),  # the note in the row, the claim; then the body
        *("record", "append", "put", "write"),  # outcome, transcript, frontier, row
        *("write", "append", "write", "forget"),  # spend, transcript, status; then it is forgotten
    ]


PREFIXES = {
    "book_mail": Scenario([calls("book", "mail"), calls("touch"), "done"]),
    "granted": SCENARIOS["granted"],
    "twins": SCENARIOS["twins"],
    "refused": Scenario([[("unknown", {}), *calls("refuse", "book")], "done"]),
}


@pytest.mark.parametrize("name", PREFIXES)
def test_a_resume_understands_every_prefix(name: str, world: World, tmp_path: Path) -> None:
    scenario = PREFIXES[name]
    wanted = expected(world, scenario, tmp_path, None)
    whole = sequence(world, scenario, tmp_path)
    assert len(whole) > 6
    for after in range(1, len(whole) + 1):
        log, run = fresh_log(tmp_path), run_id()
        cut = Cut(after)
        assert slice_of(world, scenario, log, run, cut) is None
        assert finish(world, scenario, log, run).status is RunStatus.COMPLETED
        made = Counter(log.lines())
        assert Counter(line.split("/")[0] for line in made) == wanted, f"after {cut.made}"
        assert all(times == 1 for line, times in made.items() if line.split("/")[0] in ONCE), f"after {cut.made}"


def test_a_claim_that_was_noted_and_not_made_is_unknown(world: World, tmp_path: Path) -> None:
    scenario, log, run = SCENARIOS["effectful"], fresh_log(tmp_path), run_id()
    slice_of(world, scenario, log, run, Cut(sequence(world, scenario, tmp_path).index("gate") + 1))
    with pytest.raises(IndeterminateToolCallError, match="1.1 book"):
        slice_of(world, scenario, log, run, Crasher())
    assert log.lines() == []
