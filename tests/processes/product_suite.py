"""The suite of a product that runs an agent, in each way in which pytest-django gives a test its database.

Collected by nobody but the pytest that test_product.py starts. Tools write rows of the product, on the connection that
Django gives them.
"""

import asyncio
import threading
from collections.abc import Iterator

import psycopg
import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.contrib.auth.models import Group
from django.db import connection, connections
from django.test import TestCase, TransactionTestCase

from adk_django import runs
from adk_django.agents import Agent
from adk_django.concurrency import close_connections
from adk_django.core.record import RunStatus
from adk_django.models import Run
from adk_django.testing import ScriptedProvider
from adk_django.tools import tool

KEPT_THREADS = ("MainThread", "ThreadPoolExecutor", "adk-store", "asyncio")  # pools: idle, and without connections


@tool("read_only")
def search(what: str) -> int:
    """Count the product's rows."""
    return Group.objects.count()


@tool
def book(what: str) -> str:
    """Write a row."""
    Group.objects.create(name=what)
    return "booked"


@tool
async def abook(what: str) -> str:
    """Write a row, on a loop."""
    await Group.objects.acreate(name=what)
    return "booked"


@tool("transactional", using="default")
def note(what: str) -> str:
    """Write a row, in the transaction that keeps the outcome."""
    Group.objects.create(name=what)
    return "noted"


SCRIPT = [[(name, {"what": name}) for name in ("search", "book", "abook", "note")], "done"]


def agent() -> Agent:
    """Return the product's agent."""
    return Agent("clerk", tools=[search, book, abook, note], provider=ScriptedProvider(SCRIPT), revision="1")


def drive() -> None:
    """Start a run as a view does, carry it on as a worker does, and see what came of it."""
    assert not Run.objects.exists()
    assert not Group.objects.exists()
    runs.start(agent(), "go", tenant="acme", run_id="run_1")
    assert runs.resume("run_1", tenant="acme", agent=agent()).status is RunStatus.COMPLETED
    assert_done()


async def adrive() -> None:
    """Do the same on a loop."""
    await runs.astart(agent(), "go", tenant="acme", run_id="run_1")
    result = await runs.aresume("run_1", tenant="acme", agent=agent())
    assert result.status is RunStatus.COMPLETED


def assert_done() -> None:
    """Assert that the test sees the run and each of the product's rows."""
    assert Run.objects.get().output == "done"
    assert sorted(Group.objects.values_list("name", flat=True)) == ["abook", "book", "note"]


def backends() -> int:
    """Return how many connections to this test's database there are, on PostgreSQL; 0 elsewhere.

    A connection that was closed is counted until its server process has ended: for that there is time.
    """
    if connection.vendor != "postgresql":
        return 0
    mine = sum(item.connection is not None for item in connections.all(initialized_only=True))
    others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
    with psycopg.connect(**connection.get_connection_params() | {"cursor_factory": psycopg.Cursor}) as other:
        for _ in range(100):
            (count,) = other.execute(others).fetchone()
            if count == mine:
                break
            other.execute("SELECT pg_sleep(0.1)")
            other.rollback()  # the view stands still within a transaction
    other.close()
    return int(count) - mine


@pytest.fixture(autouse=True)
def nothing_is_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail where a test leaves a thread at work, or a connection that is not its own, behind."""
    if request.cls is None:
        request.getfixturevalue("transactional_db" if "transactional" in request.function.__name__ else "db")
    yield
    working = [item for item in threading.enumerate() if not item.name.startswith(KEPT_THREADS)]
    for thread in working:
        if thread is not threading.current_thread():
            thread.join(10)  # it has handed its result over, and may not have ended yet
    assert [item.name for item in working if item.is_alive()] == []
    assert backends() == 0


def test_db(db: None) -> None:
    drive()


def test_db_and_a_loop(db: None) -> None:
    async_to_sync(adrive)()
    assert_done()


def test_transactional_db(transactional_db: None) -> None:
    drive()


def test_transactional_db_and_a_loop(transactional_db: None) -> None:
    async_to_sync(adrive)()
    assert_done()


def test_transactional_db_and_a_loop_of_its_own(transactional_db: None) -> None:
    async def go() -> None:
        await adrive()
        # As every test has to that awaits Django's ORM on a loop of its own: its thread is nobody's to tidy up.
        await sync_to_async(close_connections)()

    asyncio.run(go())
    assert_done()


class InTestCase(TestCase):
    def test_sync(self) -> None:
        drive()

    def test_sync_again(self) -> None:
        drive()

    async def test_on_a_loop(self) -> None:
        await adrive()
        self.assertEqual(await Group.objects.acount(), 3)


class InTransactionTestCase(TransactionTestCase):
    def test_sync(self) -> None:
        drive()

    def test_sync_again(self) -> None:
        drive()

    async def test_on_a_loop(self) -> None:
        await adrive()
        self.assertEqual(await Group.objects.acount(), 3)
