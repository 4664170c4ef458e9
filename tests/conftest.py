"""Two databases for every test that takes `alias`: SQLite in a file, and PostgreSQL."""

import os
from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.core.signals import setting_changed
from django.db import connections
from django_redis import get_redis_connection

from adk_django.asynchronous import forget_pool
from tests.servers import RedisServer, postgres, postgres_settings


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


@pytest.fixture(scope="session")
def postgres_url() -> Iterator[str]:
    """Start PostgreSQL when the first test wants a database (each xdist worker its own), stop it with the session."""
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
    forget_pool()  # whose idle connections keep a database from being emptied


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


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Let go, before the databases are dropped, of what threads that idle still hold of PostgreSQL."""
    yield
    with django_db_blocker.unblock(), connections["postgres"].cursor() as cursor:
        others = "datname = current_database() AND pid <> pg_backend_pid()"
        cursor.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}")  # noqa: S608


@pytest.fixture
def log() -> list[str]:
    """Return the effects of a test's tools, in the order they happened."""
    return []
