"""Two databases for every test that takes `alias`: SQLite in a file, and PostgreSQL."""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps import apps
from django.conf import settings
from django.core.signals import setting_changed
from django.db import connections, transaction
from django.test import TransactionTestCase
from django_redis import get_redis_connection

from adk_django.concurrency import forget_pool
from tests.sampling import pytest_addoption, pytest_collection_modifyitems, pytest_configure
from tests.servers import RedisServer, postgres, postgres_settings

__all__ = ["pytest_addoption", "pytest_collection_modifyitems", "pytest_configure"]


def pytest_itemcollected(item: pytest.Item) -> None:
    """Give a test that takes `alias` both databases, with real commits."""
    if "alias" in getattr(item, "fixturenames", ()):
        item.add_marker(pytest.mark.django_db(transaction=True, databases="__all__"))
    place = (
        item.callspec.params.get("place") if isinstance(item, pytest.Function) and hasattr(item, "callspec") else None
    )
    if place in ("default", "postgres"):
        item.add_marker(pytest.mark.django_db(databases=[place]))


@pytest.fixture(params=["memory", "default", "postgres"])
def place(request: pytest.FixtureRequest) -> str:
    """Return a place for runs: memory, or the alias of a database, whose transaction is rolled back after the test."""
    name: str = request.param
    return name


@pytest.fixture(params=["default", "postgres"])
def alias(request: pytest.FixtureRequest) -> str:
    """Return the alias of the database to test: the test runs once on SQLite and once on PostgreSQL.

    Both are open to it and committed to, so threads and child processes see what it wrote; both are emptied after it.
    """
    name: str = request.param
    return name


SERVER = pytest.StashKey[tuple[contextlib.ExitStack, str]]()


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Start PostgreSQL for the session, and say to each of its workers where it is."""
    stash = node.config.stash
    if SERVER not in stash:
        ends = contextlib.ExitStack()
        stash[SERVER] = ends, ends.enter_context(postgres())
    node.workerinput["postgres_url"] = stash[SERVER][1]


def pytest_unconfigure(config: pytest.Config) -> None:
    """Stop it."""
    if SERVER in config.stash:
        config.stash[SERVER][0].close()


@pytest.fixture(scope="session")
def postgres_url(pytestconfig: pytest.Config) -> Iterator[str]:
    """Return where PostgreSQL is: the server of the session, or one that a session without workers starts here."""
    if hasattr(pytestconfig, "workerinput"):
        yield pytestconfig.workerinput["postgres_url"]
        return
    with postgres() as url:
        yield url


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Start Redis when the first test wants it (each xdist worker its own), kill it with the session; or take the
    server of ADK_TEST_REDIS_URL. It is behind the cache alias `adk`."""
    if url := os.environ.get("ADK_TEST_REDIS_URL"):
        yield url
        return
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        settings.CACHES["adk"]["LOCATION"] = server.url
        setting_changed.send(sender=type(settings), setting="CACHES", value=settings.CACHES, enter=True)
        yield server.url


@pytest.fixture
def redis(redis_url: str, transactional_db: None) -> Iterator[Any]:
    """Return a raw client of the suite's Redis, which is empty, as `default` is, and emptied after the test."""
    client = get_redis_connection("adk")
    client.flushdb()
    yield client
    forget_pool()


@pytest.fixture(scope="session")
def django_db_modify_db_settings(
    django_db_modify_db_settings_parallel_suffix: None,
    postgres_url: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Say where the databases are, before the first connection to them."""
    # In a file, not in memory: threads and processes share it, each with a connection of its own.
    test = settings.DATABASES["default"].setdefault("TEST", {})
    test["NAME"] = str(tmp_path_factory.mktemp("sqlite") / "adk.sqlite3")
    settings.DATABASES["postgres"].update(postgres_settings(postgres_url))


MIGRATED = {"auth.Permission", "contenttypes.ContentType"}


def empty(case: TransactionTestCase) -> None:
    """Empty a test's databases of all but what their migrations wrote: quicker than TRUNCATE for tables this small."""
    for alias in case._databases_names(include_mirrors=False):
        models = [model._meta for model in apps.get_models(include_auto_created=True)]
        tables = [model.db_table for model in models if not model.proxy and model.label not in MIGRATED]
        with transaction.atomic(using=alias), connections[alias].cursor() as cursor:
            for table in tables:
                cursor.execute(f"DELETE FROM {connections[alias].ops.quote_name(table)}")  # noqa: S608


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Let go, before the databases are dropped, of what threads that idle still hold of PostgreSQL."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TransactionTestCase, "_fixture_teardown", empty)
        yield
    with django_db_blocker.unblock(), connections["postgres"].cursor() as cursor:
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        cursor.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")  # noqa: S608


@pytest.fixture
def log() -> list[str]:
    """Return the effects of a test's tools, in the order they happened."""
    return []
