"""Holding a run: kept while a tool blocks, told by the store alone, and worth nothing to whoever was superseded."""

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from adk_django.core.lease import LeasePolicy, RunLease
from adk_django.core.record import RunStatus
from adk_django.exceptions import LeaseLostError, ResumeConflictError, StoreUnavailableError
from adk_django.execution import leaseholder
from adk_django.execution.leaseholder import Leaseholder
from adk_django.execution.resumer import Resumer, claim_resume
from adk_django.stores.memory import MemoryLeaseStore
from tests.backends import TENANT
from tests.fake_tools import broken, calls, effect, raises, usual
from tests.run_fixture import Stage

SHORT = LeasePolicy(ttl_seconds=0.4, renew_within_seconds=0.39)


class Store(MemoryLeaseStore):
    """Tells of every renewal, and answers it as it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.renewed = threading.Semaphore(0)
        self.answers: list[BaseException | Callable[[], None] | None] = []

    def renew(self, lease: RunLease, *, ttl_seconds: float) -> RunLease:
        answer = self.answers.pop(0) if self.answers else None
        self.renewed.release()
        if isinstance(answer, BaseException):
            raise answer
        if answer is not None:
            answer()
        return super().renew(lease, ttl_seconds=ttl_seconds)

    def wait(self, renewals: int) -> None:
        for _ in range(renewals):
            assert self.renewed.acquire(timeout=10)


class Time:
    """A monotonic clock that moves when it is told to."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Time:
    clock = Time()
    monkeypatch.setattr(leaseholder, "time", clock)
    return clock


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(leaseholder, "RETRY_SECONDS", 0.01)
    yield
    for thread in threading.enumerate():
        if thread.name == "adk-keeper":
            thread.join(10)
            assert not thread.is_alive(), "nothing is left to keep, and the keeper lives"


def held(store: MemoryLeaseStore, run_id: str = "run_1", **options: Any) -> Leaseholder:
    return Leaseholder(store, run_id, tenant=TENANT, holder="w", policy=SHORT, **options)


def test_a_lease_is_kept_with_its_fence_while_nobody_calls_anything() -> None:
    store = Store()
    with held(store) as holder:
        first = holder.lease
        store.wait(4)
        with pytest.raises(ResumeConflictError):
            store.acquire("run_1", tenant=TENANT, holder="w", ttl_seconds=1)
        found = store.held("run_1", tenant=TENANT)
        assert found is not None and (found.fence, found.token) == (first.fence, first.token)
        holder.check()
    assert store.acquire("run_1", tenant=TENANT, holder="v", ttl_seconds=1).fence == first.fence + 1


@pytest.mark.parametrize("error", [StoreUnavailableError("down"), OSError("reset"), KeyError("bug")])
def test_a_renewal_that_fails_is_tried_again_and_delays_no_other_lease(error: Exception) -> None:
    store = Store()
    store.answers = [error, error]
    with held(store) as one, held(store, "run_2") as two:
        store.wait(8)
        one.check()
        two.check()


def test_a_loss_is_told_once_the_store_says_so_and_other_leases_are_kept(caplog: pytest.LogCaptureFixture) -> None:
    store = Store()
    store.answers = [LeaseLostError("taken")]
    with held(store) as one, held(store, "run_2") as two:
        store.wait(5)
        told = 0
        for holder in (one, two):
            try:
                holder.check()
            except LeaseLostError:
                told += 1
        assert told == 1
    assert caplog.text.count("a lease was lost") == 1


def test_a_lease_given_back_while_it_was_due_takes_no_other_with_it() -> None:
    store, due, go = Store(), threading.Event(), threading.Event()

    def slow() -> None:
        due.set()
        go.wait(10)

    store.answers = [slow]
    one, two = held(store), held(store, "run_2")
    one.acquire()
    assert due.wait(10)
    two.acquire()
    releases = threading.Thread(target=one.release)
    releases.start()  # waits for the renewal under way
    go.set()
    releases.join(10)
    with pytest.raises(LeaseLostError):
        _ = one.lease
    assert store.held("run_1", tenant=TENANT) is None
    store.wait(3)
    two.check()
    two.release()


def test_without_a_background_a_lease_is_renewed_between_steps_once_it_falls_due(clock: Time) -> None:
    store = Store()
    with held(store, background=False) as holder:
        clock.now += 0.005
        holder.check()
        assert not store.renewed.acquire(blocking=False)
        clock.now += 0.01
        holder.check()
        assert store.renewed.acquire(blocking=False)
        holder.check()
        assert not store.renewed.acquire(blocking=False)


def test_a_lease_that_could_not_be_renewed_for_its_whole_length_lets_nothing_more_begin(clock: Time) -> None:
    store = Store()
    with held(store, background=False) as holder:
        clock.now += 1
        store.answers = [StoreUnavailableError("down")] * 2
        with pytest.raises(StoreUnavailableError):
            holder.check()
        with pytest.raises(StoreUnavailableError):
            holder.check()
        holder.check()  # the store is back, and nobody took it


def test_a_lease_that_cannot_be_given_back_lapses_by_itself(caplog: pytest.LogCaptureFixture, log: list[str]) -> None:
    stage = Stage("memory", [calls("search"), "done"], *usual(log))
    stage.wrap = broken("leases", release=raises(StoreUnavailableError("down")))
    with caplog.at_level(logging.WARNING):
        assert stage.run().status is RunStatus.COMPLETED
    assert "could not be released" in caplog.text


# What a lease is worth


def test_a_run_is_held_from_its_first_step(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("book"), "done"], *usual(log))
    told: list[str] = []

    def second() -> None:
        with pytest.raises(ResumeConflictError) as refusal:
            stage.resume(worker="worker-2")
        told.append(str(refusal.value))

    assert stage.disturbed("model", second).status is RunStatus.COMPLETED
    assert "is held by" in told[0] and " until " in told[0]
    assert log == ["book book"]


def test_an_expired_lease_that_nobody_took_is_still_its_holders(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("book", "mail"), "done"], *usual(log))
    assert stage.disturbed("tool book", stage.age).status is RunStatus.COMPLETED
    assert (log, stage.record.fence) == (["book book", "mail mail"], 1)


def everything(stage: Stage) -> Any:
    """Return all that is recorded of a run, but for late outcomes and when they wake it."""
    record = stage.record
    claims = {call: (claim.state, claim.outcome, claim.token) for call, claim in stage.claims.items()}
    frontier = stage.stores.checkpoints.latest(stage.run_id, tenant=TENANT)
    known = (record.status, record.reason, record.fence, record.output, record.usage, record.failed_save)
    return known, claims, frontier, stage.stores.runs.approvals(stage.run_id, tenant=TENANT), stage.lease


@pytest.mark.parametrize(
    ("effect_name", "nth"),
    [
        ("commit after_model_call", 1),
        ("commit facts", 1),
        ("tool book", 1),
        ("commit after_tool_result", 1),
        ("commit waiting", 1),
        ("model", 2),
        ("commit after_model_call", 2),
    ],
)
def test_nothing_a_superseded_worker_writes_lands(place: str, log: list[str], effect_name: str, nth: int) -> None:
    stage = Stage(place, [calls("book"), calls("wire"), "done"], *usual(log))
    seen: list[Any] = []

    def steal() -> None:
        stage.age()
        stage.acquired("thief")
        seen.append(everything(stage))

    name = "commit before_approval" if effect_name == "commit waiting" else effect_name
    with pytest.raises(LeaseLostError):
        stage.disturbed(name, steal, nth=nth)
    assert everything(stage) == seen[0]
    assert log in ([], ["book book"])


def test_the_frontier_of_the_next_holder_is_not_forgotten_by_the_last(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("search"), "done"], *usual(log))
    with pytest.raises(LeaseLostError):
        stage.disturbed("commit completed", lambda: stage.world.steal(stage.run_id))
    assert stage.frontier.turn == 1
    assert stage.resume().status is RunStatus.COMPLETED


def test_no_tool_is_made_after_the_lease_was_lost_during_a_model_call(place: str, log: list[str]) -> None:
    stage = Stage(place, [calls("search", "touch", "book"), "done"], *usual(log))
    with pytest.raises(LeaseLostError):
        stage.disturbed("model", lambda: stage.world.steal(stage.run_id), "after")
    assert log == []
    assert stage.resume().status is RunStatus.COMPLETED


def test_a_claim_confirmed_too_long_ago_enters_nothing_and_is_made_anew(
    log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from adk_django.execution import ports

    clock = Time()
    clock.sleep = None  # type: ignore[attr-defined]  # nothing here may sleep
    monkeypatch.setattr(ports, "time", clock)
    stage = Stage("memory", [calls("book"), "done"], effect(log, "book"))

    def stopped() -> None:
        clock.now += 331

    assert stage.disturbed("commit facts", stopped, "after").status is RunStatus.COMPLETED
    assert stage.brought == [
        "after_model_call",
        "claim 1.1",
        "abandoned 1.1",
        "claim 1.1",
        "after_tool_result, outcome 1.1",
        "completed",
    ]
    assert log == ["book book"]


# What comes out of a block that holds a lease


class Foreign(BaseException):
    """Neither an error nor an exit."""


class ReleaseError(RuntimeError):
    """A store's own error."""


async def within(manager: Any, error: BaseException | None, *, asynchronous: bool) -> None:
    """Raise ``error``, if there is one, in a block of ``manager``."""

    def fail() -> None:
        if error is not None:
            raise error

    if asynchronous:
        async with manager:
            fail()
    else:
        with manager:
            fail()


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("kind", ["Leaseholder", "claim_resume", "ResumedRun"])
@pytest.mark.parametrize("error", [ValueError("the block's"), KeyboardInterrupt(), None])
def test_the_error_of_the_block_comes_out_and_that_of_the_release_is_a_note(
    log: list[str],
    kind: str,
    error: BaseException | None,
    asynchronous: bool,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")  # the sync form, on the loop of this test
    stage = Stage("memory", ["done"])
    stage.runner().create(stage.agent, "go", tenant=TENANT, run_id=stage.run_id, user=None)
    leases = broken("leases", release=raises(ReleaseError("down for good")))(stage.stores).leases
    given = {"tenant": TENANT, "holder": "w"}
    made: dict[str, Any] = {
        "Leaseholder": lambda: Leaseholder(leases, stage.run_id, **given, background=False),
        "claim_resume": lambda: claim_resume(leases, stage.run_id, **given),
        "ResumedRun": lambda: Resumer(checkpoints=stage.runner().checkpointer, leases=leases).resume(
            stage.run_id, tenant=TENANT, worker="w"
        ),
    }
    wanted = ReleaseError if error is None else type(error)
    with pytest.raises(wanted) as caught:
        asyncio.run(within(made[kind](), error, asynchronous=asynchronous))
    if error is not None:
        assert caught.value is error
        assert error.__notes__ == ["releasing the lease failed, too: ReleaseError: down for good"]
        assert "releasing the lease failed behind another error: ReleaseError" in caplog.text
        del error.__notes__


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_error_of_a_slice_comes_out_whatever_fails_behind_it(log: list[str], asynchronous: bool) -> None:
    stage = Stage("memory", [calls("search"), "done"], effect(log, "search", "read_only", raises(Foreign())))
    stage.wrap = broken("leases", held=raises(ReleaseError("held")), release=raises(ReleaseError("release")))
    with pytest.raises(Foreign) as caught:
        stage.arun() if asynchronous else stage.run()
    assert caught.value.__notes__ == [
        "recording why the slice ended failed, too: ReleaseError: held",
        "releasing the lease failed, too: ReleaseError: release",
    ]


def test_a_resume_that_cannot_read_says_so_whatever_fails_behind_it(log: list[str]) -> None:
    stage = Stage("memory", ["done"])
    stage.runner().create(stage.agent, "go", tenant=TENANT, run_id=stage.run_id, user=None)
    stage.wrap = lambda stores: broken("leases", release=raises(ReleaseError("release")))(
        broken("idempotency", look_up=raises(ZeroDivisionError()))(stores)
    )
    with pytest.raises(ZeroDivisionError) as caught:
        stage.resume()
    assert caught.value.__notes__ == ["releasing the lease failed, too: ReleaseError: release"]
