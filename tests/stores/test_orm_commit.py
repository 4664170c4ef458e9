"""The combined commit: a statement on PostgreSQL, a write-first transaction on SQLite, and what comes between."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from django.db import DataError, InterfaceError, OperationalError, connections, transaction
from django.test.utils import CaptureQueriesContext

from adk_django import models
from adk_django.concurrency import in_thread
from adk_django.core.checkpoint import Checkpoint, CheckpointBoundary, HistoryHandle
from adk_django.core.effects import Claim, ClaimState, EffectClass, Outcome, OutcomeKind, Slot
from adk_django.core.lease import RunLease
from adk_django.core.messages import Message, Usage
from adk_django.core.record import Answer, Approval, RunRecord, RunStatus, Settlement, Spend, Writes
from adk_django.exceptions import (
    ConfigurationError,
    LeaseLostError,
    RunConflictError,
    StoreUnavailableError,
)
from adk_django.stores.orm import OrmStores, connection
from tests.stores.orm_conformance import age, stores_on

IDS = {"tenant": "acme", "run_id": "run-1"}
RETURNED = Outcome.of(OutcomeKind.RETURNED, {"seat": "1A"})
MESSAGES = (Message.of("user", "book a seat"), Message.of("assistant", "booking"))
HANDLE = HistoryHandle("acme", "run-1")


@pytest.fixture
def stores(alias: str) -> OrmStores:
    made = stores_on(alias)
    made.runs.create(RunRecord(**IDS, agent="booking", input="book a seat", salt="00"))
    return made


@pytest.fixture
def lease(stores: OrmStores) -> RunLease:
    return stores.leases.acquire("run-1", tenant="acme", holder="worker-1", ttl_seconds=60)


def frontier(turn: int = 1, **changes: Any) -> Checkpoint:
    given = {**IDS, "agent": "booking", "boundary": CheckpointBoundary.AFTER_MODEL_CALL, "turn": turn}
    return Checkpoint(**{**given, **changes})


def claim(position: int = 1, **changes: Any) -> Claim:
    given = {
        **IDS,
        "slot": Slot(1, position),
        "key": f"key-{position}",
        "tool": "book",
        "effect": EffectClass.EFFECTFUL,
        "digest": "d1",
        "token": f"token-{position}",
        "limit_seconds": 30.0,
    }
    return Claim(**{**given, **changes})


def request(position: int, **changes: Any) -> Approval:
    asked = {"request_id": f"req-{position}", "slot": Slot(1, position), "tool": "book", "digest": "d1"}
    return Approval(**{**IDS, **asked, "arguments": {"seat": "1A"}, **changes})


def everything(stores: OrmStores, lease: RunLease) -> Writes:
    """Return a commit with something of every kind in it, after what it needs."""
    stores.commit(Writes(requests=(request(5),), claims=(claim(1), claim(2), claim(3), claim(4))), lease=lease)
    stores.runs.decide("req-5", tenant="acme", grant=True, by="ann", reason="fine")
    return Writes(
        frontier=frontier(history_handle=HANDLE.extended(MESSAGES)),
        delta=MESSAGES,
        extends=HANDLE,
        outcomes=(claim(1, outcome=RETURNED), claim(6, token=None, outcome=RETURNED)),
        failures=(claim(2, error="ValueError: no"),),
        settlements=(Settlement(claim(3), Answer.DONE, RETURNED, "probe", "asked"),),
        abandoned=(claim(4),),
        claims=(claim(5, request_id="req-5"),),
        requests=(request(7),),
        spend=(Spend(1, lease.fence, Usage(10, 5), 7),),
        begins=True,
        status=RunStatus.ACTIVE,
        reason="on its way",
        revision="r1",
        deaths=0,
    )


def found(stores: OrmStores, position: int) -> Claim | None:
    claims = stores.idempotency.look_up("run-1", tenant="acme")
    return next((item for item in claims if item.slot == Slot(1, position)), None)


def statements(alias: str, call: Callable[[], Any]) -> list[str]:
    with CaptureQueriesContext(connections[alias]) as captured:
        call()
    return [query["sql"] for query in captured]


def test_everything_in_one_commit(stores: OrmStores, lease: RunLease) -> None:
    written = stores.commit(everything(stores, lease), lease=lease)
    states = {item.slot.position: item.state for item in stores.idempotency.look_up("run-1", tenant="acme")}
    assert states == {
        1: ClaimState.DONE,
        2: ClaimState.IN_FLIGHT,
        3: ClaimState.DONE,
        5: ClaimState.IN_FLIGHT,
        6: ClaimState.DONE,
    }
    (begun,) = written.claims
    assert begun == found(stores, 5)
    assert (begun.holder, begun.fence, begun.begun_at) == ("worker-1", lease.fence, written.at)
    assert found(stores, 2).error == "ValueError: no"
    assert stores.history.fetch(written.handle, tenant="acme") == MESSAGES
    assert stores.checkpoints.latest("run-1", tenant="acme").created_at == written.at
    row = stores.runs.get("run-1", tenant="acme")
    assert (row.usage, row.cost_micros, row.begun_at, row.revision) == (Usage(10, 5), 7, written.at, "r1")
    assert (row.reason, row.fence, row.updated_at) == ("on its way", lease.fence, written.at)
    assert [item.request_id for item in stores.runs.approvals("run-1", tenant="acme")] == ["req-5", "req-7"]


@pytest.mark.parametrize("alias", ["postgres"], indirect=True)
def test_a_commit_is_one_statement_and_no_transaction_block(stores: OrmStores, lease: RunLease) -> None:
    writes = everything(stores, lease)
    (sent,) = statements("postgres", lambda: stores.commit(writes, lease=lease))
    assert sent.startswith("WITH gate")
    ends = Writes(status=RunStatus.COMPLETED, output="booked")
    assert len(statements("postgres", lambda: stores.commit(ends, lease=lease))) == 1


@pytest.mark.parametrize("alias", ["default"], indirect=True)
def test_a_transaction_begins_with_a_write(stores: OrmStores, lease: RunLease) -> None:
    writes, runs = everything(stores, lease), stores.runs
    late = replace(lease, token="another")  # noqa: S106  # no password
    calls: dict[str, Callable[[], Any]] = {
        "commit": lambda: stores.commit(writes, lease=lease),
        "acquire": lambda: stores.leases.acquire("run-2", tenant="acme", holder="w", ttl_seconds=60),
        "renew": lambda: stores.leases.renew(lease, ttl_seconds=60),
        "release": lambda: stores.leases.release(late),
        "evidence": lambda: stores.idempotency.evidence(claim(5), RETURNED),
        "settle": lambda: stores.idempotency.settle(
            "run-1", Slot(1, 5), tenant="acme", answer=Answer.DONE, outcome=RETURNED, by="ann", reason="seen"
        ),
        "decide": lambda: runs.decide("req-7", tenant="acme", grant=True, by="ann", reason="fine"),
        "cancel": lambda: runs.request_cancel("run-1", tenant="acme", by="ann", reason="enough"),
        "create": lambda: runs.create(RunRecord(tenant="acme", run_id="run-3", agent="a", input="", salt="00")),
    }
    for name, call in calls.items():
        sent = statements("default", call)
        begins = [number for number, text in enumerate(sent) if text == "BEGIN"]
        assert begins or name == "release", f"{name} wrote outside a transaction"
        for number in begins:
            verb = sent[number + 1].split(") ")[-1] if sent[number + 1].startswith("WITH") else sent[number + 1]
            assert "INSERT" in sent[number + 1] or "UPDATE" in sent[number + 1], f"{name}: {verb}"


def test_a_take_over_keeps_outcomes_as_evidence_and_writes_nothing_else(
    stores: OrmStores, lease: RunLease, alias: str
) -> None:
    stores.commit(Writes(claims=(claim(1),)), lease=lease)
    age(alias, 3_600)
    stores.leases.acquire("run-1", tenant="acme", holder="worker-2", ttl_seconds=60)
    before = models.Run.objects.using(alias).values().get()
    late = Writes(
        frontier=frontier(), outcomes=(claim(1, outcome=RETURNED),), claims=(claim(2),), status=RunStatus.COMPLETED
    )
    with pytest.raises(LeaseLostError) as lost:
        stores.commit(late, lease=lease)
    assert (lost.value.holder, lost.value.fence) == ("worker-2", 2)
    assert (found(stores, 1).state, found(stores, 1).evidence) == (ClaimState.IN_FLIGHT, RETURNED)
    assert found(stores, 2) is None
    assert stores.checkpoints.latest("run-1", tenant="acme") is None
    after = models.Run.objects.using(alias).values().get()
    assert after["wake_at"] is not None, "evidence wakes the run"
    assert {**after, "wake_at": None} == before


def test_facts_are_written_where_the_transcript_refuses(stores: OrmStores, lease: RunLease) -> None:
    gone = replace(HANDLE, length=3, digest="f" * 64)
    writes = Writes(
        frontier=frontier(history_handle=gone.extended(MESSAGES)),
        delta=MESSAGES,
        extends=gone,
        outcomes=(claim(1, token=None, outcome=RETURNED),),
        claims=(claim(2),),
    )
    written = stores.commit(writes, lease=lease)
    assert [item.slot for item in written.claims] == [Slot(1, 2)]
    assert written.failed_save.startswith("after_model_call: HistoryUnavailableError")
    assert (written.handle, stores.checkpoints.latest("run-1", tenant="acme")) == (None, None)
    assert found(stores, 1).outcome == RETURNED
    assert stores.runs.get("run-1", tenant="acme").failed_save == written.failed_save


def test_nobody_is_asked_without_a_transcript(stores: OrmStores, lease: RunLease) -> None:
    gone = replace(HANDLE, length=3, digest="f" * 64)
    asks = Writes(frontier=frontier(), delta=MESSAGES, extends=gone, requests=(request(1),), status=RunStatus.WAITING)
    with pytest.raises(StoreUnavailableError, match="nobody could be asked"):
        stores.commit(asks, lease=lease)
    row = stores.runs.get("run-1", tenant="acme")
    assert (row.status, row.failed_save, stores.runs.approvals("run-1", tenant="acme")) == (RunStatus.ACTIVE, "", ())


@pytest.mark.parametrize("alias", ["postgres"], indirect=True)
def test_facts_are_written_where_the_database_refuses_the_frontier(stores: OrmStores, lease: RunLease) -> None:
    written = stores.commit(Writes(frontier=frontier(turn=2**40), claims=(claim(1),)), lease=lease)
    assert isinstance(written.refusal, DataError)
    assert len(written.claims) == 1
    assert "DataError" in stores.runs.get("run-1", tenant="acme").failed_save


def test_of_frontiers_at_once_one_is_stored_and_the_others_are_noted(stores: OrmStores, lease: RunLease) -> None:
    barrier = threading.Barrier(4)

    def commit(number: int) -> Any:
        barrier.wait(30)
        sent = frontier(model=f"model-{number}")
        return stores.commit(Writes(frontier=sent, spend=(Spend(number, lease.fence, Usage(1)),)), lease=lease)

    works = [in_thread(lambda number=number: commit(number)) for number in range(4)]
    written = [work.wait(60) for work in works]
    assert sorted(bool(item.failed_save) for item in written) == [False, True, True, True]
    assert stores.runs.get("run-1", tenant="acme").usage == Usage(4), "the facts of all four stand"


# What the database says meanwhile


class Fault:
    """Fails chosen statements of one connection: `after` them, the server has done its work."""

    def __init__(self, error: Callable[[], Exception], times: int, *, after: bool = False) -> None:
        self.error, self.times, self.after, self.seen = error, times, after, 0

    def __call__(self, execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:  # noqa: FBT001
        if not sql.startswith("WITH gate"):
            return execute(sql, params, many, context)
        self.seen += 1
        if self.seen > self.times:
            return execute(sql, params, many, context)
        if self.after:
            execute(sql, params, many, context)
        raise self.error()


def refused(code: str) -> Callable[[], Exception]:
    def error() -> Exception:
        cause = Exception("refused")
        cause.sqlstate = code  # type: ignore[attr-defined]  # as psycopg's errors have it
        made = OperationalError("refused")
        made.__cause__ = cause
        return made

    return error


def cut_off(kind: type[Exception] = OperationalError) -> Callable[[], Exception]:
    """Return what a connection raises whose server went away."""

    def error() -> Exception:
        connections["postgres"].connection.close()
        return kind("server closed the connection unexpectedly")

    return error


@pytest.mark.parametrize("alias", ["postgres"], indirect=True)
@pytest.mark.parametrize("code", ["40001", "40P01"])
def test_a_commit_that_the_database_undid_is_sent_again_a_few_times(
    stores: OrmStores, lease: RunLease, code: str
) -> None:
    fault = Fault(refused(code), times=2)
    with connections["postgres"].execute_wrapper(fault):
        assert stores.commit(Writes(claims=(claim(1),)), lease=lease).claims
    assert fault.seen == 3
    fault = Fault(refused(code), times=100)
    with connections["postgres"].execute_wrapper(fault), pytest.raises(StoreUnavailableError):
        stores.commit(Writes(claims=(claim(2),)), lease=lease)
    assert fault.seen == connection.ATTEMPTS


@pytest.mark.parametrize("alias", ["postgres"], indirect=True)
@pytest.mark.parametrize("landed", [True, False])
@pytest.mark.parametrize("kind", [OperationalError, InterfaceError])
def test_an_answer_that_was_lost_is_asked_for_again(
    stores: OrmStores, lease: RunLease, landed: bool, kind: type[Exception]
) -> None:
    writes = everything(stores, lease)
    fault = Fault(cut_off(kind), times=1, after=landed)
    with connections["postgres"].execute_wrapper(fault):
        written = stores.commit(writes, lease=lease)
    assert fault.seen == 2
    assert [item.token for item in written.claims] == ["token-5"]
    assert (written.failed_save, written.handle) == ("", HANDLE.extended(MESSAGES))
    assert written.claims[0] == found(stores, 5)
    row = stores.runs.get("run-1", tenant="acme")
    assert (row.usage, row.cost_micros) == (Usage(10, 5), 7)
    assert stores.checkpoints.latest("run-1", tenant="acme").turn == 1
    assert models.RunEvent.objects.using("postgres").filter(kind="settled").count() == 1


@pytest.mark.parametrize("alias", ["postgres"], indirect=True)
def test_an_answer_that_was_lost_takes_back_no_decision(stores: OrmStores, lease: RunLease) -> None:
    class Denied(Fault):
        def __call__(self, *args: Any) -> Any:
            try:
                return super().__call__(*args)
            except OperationalError:
                in_thread(lambda: stores.runs.decide("req-1", tenant="acme", grant=False, by="ann", reason="no")).wait(
                    30
                )
                raise

    with connections["postgres"].execute_wrapper(Denied(cut_off(), times=1, after=True)):
        stores.commit(Writes(frontier=frontier(), requests=(request(1),), status=RunStatus.WAITING), lease=lease)
    (asked,) = stores.runs.approvals("run-1", tenant="acme")
    assert asked.decided_by == "ann"


@pytest.mark.parametrize("alias", ["postgres"], indirect=True)
def test_a_database_that_does_not_come_back_is_unavailable(stores: OrmStores, lease: RunLease) -> None:
    connection = connections["postgres"]
    settings = dict(connection.settings_dict)
    connection.close()
    connection.close_pool()  # which would still know where it was
    connection.settings_dict["PORT"] = "1"
    try:
        with pytest.raises(StoreUnavailableError):
            stores.commit(Writes(claims=(claim(1),)), lease=lease)
    finally:
        connection.close_pool()
        connection.settings_dict.update(settings)
    assert found(stores, 1) is None


@contextmanager
def blocked(alias: str, call: Callable[[], Any]) -> Iterator[Any]:
    """Start ``call`` in a thread and enter the block once it waits for a lock of this one."""
    work = in_thread(call)
    deadline = time.monotonic() + 30
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
    while True:
        with connections[alias].cursor() as cursor:
            cursor.execute(waiting)
            if cursor.fetchone()[0]:
                break
        assert time.monotonic() < deadline, "it waits for nothing"
    yield work


@pytest.mark.parametrize("alias", ["postgres"], indirect=True)
def test_a_cancel_that_commits_while_a_claim_waits_holds_it_back(stores: OrmStores, lease: RunLease) -> None:
    writes = Writes(claims=(claim(1),), outcomes=(claim(2, token=None, outcome=RETURNED),))
    with transaction.atomic("postgres"):
        stores.runs.request_cancel("run-1", tenant="acme", by="ann", reason="enough")
        with blocked("postgres", lambda: stores.commit(writes, lease=lease)) as work:
            pass
    written = work.wait(30)
    assert (written.claims, written.cancel_requested_at is None) == ((), False)
    assert (found(stores, 1), found(stores, 2).outcome) == (None, RETURNED)
    row = stores.runs.get("run-1", tenant="acme")
    assert (row.cancel_requested_by, row.fence) == ("ann", lease.fence)


@pytest.mark.parametrize("alias", ["postgres"], indirect=True)
def test_a_take_over_that_commits_while_a_commit_waits_refuses_it(stores: OrmStores, lease: RunLease) -> None:
    age("postgres", 3_600)
    writes = Writes(claims=(claim(1),), frontier=frontier(), status=RunStatus.COMPLETED)
    with transaction.atomic("postgres"):
        stores.leases.acquire("run-1", tenant="acme", holder="worker-2", ttl_seconds=60)
        with blocked("postgres", lambda: stores.commit(writes, lease=lease)) as work:
            pass
    with pytest.raises(LeaseLostError):
        work.wait(30)
    assert (found(stores, 1), stores.checkpoints.latest("run-1", tenant="acme")) == (None, None)


@pytest.mark.parametrize("alias", ["postgres"], indirect=True)
def test_a_settlement_that_commits_while_its_call_is_claimed_again_stands(stores: OrmStores, lease: RunLease) -> None:
    stores.commit(Writes(claims=(claim(1),)), lease=lease)
    again = {"token": "token-1b", "replaces": "token-1", "replaces_state": ClaimState.IN_FLIGHT, "attempt": 2}
    again = claim(1, effect=EffectClass.IDEMPOTENT, **again)
    with transaction.atomic("postgres"):
        stores.idempotency.settle(
            "run-1", Slot(1, 1), tenant="acme", answer=Answer.DONE, outcome=RETURNED, by="ann", reason="seen"
        )
        with blocked("postgres", lambda: stores.commit(Writes(claims=(again,)), lease=lease)) as work:
            pass
    written = work.wait(30)
    assert written.claims == ()
    assert written.standing[Slot(1, 1)].outcome == RETURNED


@pytest.mark.parametrize("alias", ["postgres"], indirect=True)
def test_a_frontier_that_is_stored_while_another_waits_stays(stores: OrmStores, lease: RunLease) -> None:
    second = Writes(frontier=frontier(model="second"), spend=(Spend(1, lease.fence, Usage(1)),))
    with transaction.atomic("postgres"):
        stores.commit(Writes(frontier=frontier(model="first")), lease=lease, joined=True)
        with blocked("postgres", lambda: stores.commit(second, lease=lease)) as work:
            pass
    written = work.wait(30)
    assert (written.failed_save, type(written.refusal)) == (
        f"after_model_call: RunConflictError: {written.refusal}",
        RunConflictError,
    )
    assert stores.checkpoints.latest("run-1", tenant="acme").model == "first"
    row = stores.runs.get("run-1", tenant="acme")
    assert (row.usage, row.failed_save) == (Usage(1), written.failed_save)


# Whose transaction it is


def test_a_callers_transaction_is_refused_before_anything_is_written(
    stores: OrmStores, lease: RunLease, alias: str
) -> None:
    with transaction.atomic(alias), pytest.raises(ConfigurationError, match="runs.start"):
        stores.commit(Writes(claims=(claim(1),)), lease=lease)
    with transaction.atomic(alias), pytest.raises(ConfigurationError):
        stores.refuse_transaction()
    stores.refuse_transaction()
    assert found(stores, 1) is None


def test_what_people_write_joins_their_transaction(stores: OrmStores, lease: RunLease, alias: str) -> None:
    stores.commit(Writes(claims=(claim(1),), requests=(request(2),)), lease=lease)
    runs = stores.runs
    with transaction.atomic(alias):
        runs.create(RunRecord(tenant="acme", run_id="run-2", agent="a", input="", salt="00"))
        runs.decide("req-2", tenant="acme", grant=True, by="ann", reason="fine")
        runs.request_cancel("run-1", tenant="acme", by="ann", reason="enough")
        stores.idempotency.settle(
            "run-1", Slot(1, 1), tenant="acme", answer=Answer.DONE, outcome=RETURNED, by="ann", reason="seen"
        )
        transaction.set_rollback(True, using=alias)
    assert runs.get("run-2", tenant="acme") is None
    assert runs.approvals("run-1", tenant="acme")[0].decided_by == ""
    assert runs.get("run-1", tenant="acme").cancel_requested_at is None
    assert found(stores, 1).state is ClaimState.IN_FLIGHT
    assert not models.RunEvent.objects.using(alias).exists()


def test_a_joined_commit_goes_with_the_transaction_it_is_in(stores: OrmStores, lease: RunLease, alias: str) -> None:
    done = Writes(outcomes=(claim(1, token=None, outcome=RETURNED, effect=EffectClass.TRANSACTIONAL),))
    with transaction.atomic(alias, durable=True):
        stores.commit(done, lease=lease, joined=True)
        transaction.set_rollback(True, using=alias)
    assert found(stores, 1) is None
    with transaction.atomic(alias, durable=True):
        stores.commit(done, lease=lease, joined=True)
    assert found(stores, 1).outcome == RETURNED
    with pytest.raises(RunConflictError), transaction.atomic(alias, durable=True):
        stores.commit(done, lease=lease, joined=True)


def test_a_joined_commit_of_a_lost_lease_undoes_what_was_done(stores: OrmStores, lease: RunLease, alias: str) -> None:
    stores.leases.release(lease)
    done = Writes(outcomes=(claim(1, token=None, outcome=RETURNED, effect=EffectClass.TRANSACTIONAL),))
    with pytest.raises(LeaseLostError), transaction.atomic(alias, durable=True):
        models.RunEvent.objects.using(alias).create(**IDS, at=lease.acquired_at, kind="a tool's row")
        stores.commit(done, lease=lease, joined=True)
    assert not models.RunEvent.objects.using(alias).exists()


@pytest.mark.parametrize("place", ["default", "postgres"])
def test_a_testcase_is_no_callers_transaction(place: str) -> None:
    stores = stores_on(place)
    stores.runs.create(RunRecord(**IDS, agent="booking", input="book a seat", salt="00"))
    lease = stores.leases.acquire("run-1", tenant="acme", holder="worker-1", ttl_seconds=60)
    assert connections[place].in_atomic_block
    written = stores.commit(Writes(frontier=frontier(), claims=(claim(1),)), lease=lease)
    assert written.claims == (found(stores, 1),)
