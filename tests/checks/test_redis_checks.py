"""The checks of the Redis set-up, one test for each id, and that what they refuse is refused without them too."""

import socket
from typing import Any

import pytest
from django_redis import get_redis_connection

from adk_django.checks import redis as redis_checks
from adk_django.checks import settings as checks
from adk_django.core.checkpoint import Checkpoint, CheckpointBoundary
from adk_django.exceptions import ConfigurationError
from adk_django.stores.handler import IN_REDIS, complete
from adk_django.stores.redis import RedisCheckpointStore, RedisStores
from tests.servers import RedisServer

STORES = {name: {"BACKEND": path, "OPTIONS": {"CACHE": "adk"}} for name, path in IN_REDIS.items()}


@pytest.fixture
def adk(settings: Any) -> Any:
    """Return the settings, with every store in Redis."""
    settings.ADK = {"STORES": STORES}
    return settings


def alias(settings: Any, **changes: Any) -> None:
    settings.CACHES = {**settings.CACHES, "adk": {**settings.CACHES["adk"], **changes}}


def ids(found: Any) -> list[str]:
    assert all(item.hint and item.msg for item in found)
    return [item.id.removeprefix("adk_django.") for item in found]


def test_all_stores_in_redis_are_one_set_up_beside_the_run_rows(adk: Any) -> None:
    assert checks.check_settings() == []
    stores = complete()
    assert isinstance(stores, RedisStores)
    assert stores.joins == frozenset()
    assert stores.checkpoints.cache == stores.leases.cache == "adk"


def test_options_become_keywords(settings: Any) -> None:
    options = {"CACHE": "adk", "max_value_bytes": 1_000}
    settings.ADK = {"STORES": {name: {**store, "OPTIONS": options} for name, store in STORES.items()}}
    assert checks.check_settings() == []
    assert complete().checkpoints.max_value_bytes == 1_000
    wrong = {**STORES["leases"], "OPTIONS": {"CACHES": "adk"}}
    settings.ADK = {"STORES": {**STORES, "leases": wrong}}
    assert ids(checks.check_settings()) == ["E004"]


@pytest.mark.parametrize(
    "changed",
    [
        {"leases": {"BACKEND": "adk_django.stores.orm.OrmLeaseStore"}},
        {"leases": {"BACKEND": "adk_django.stores.memory.MemoryLeaseStore"}},
        {"history": {"BACKEND": IN_REDIS["history"], "OPTIONS": {"CACHE": "other"}}},
        {"history": {"BACKEND": IN_REDIS["history"], "OPTIONS": {"CACHE": "adk", "using": "postgres"}}},
    ],
)
def test_e005_redis_beside_anything_else_is_a_mixture(settings: Any, changed: Any) -> None:
    other = {**settings.CACHES["adk"], "LOCATION": "redis://127.0.0.1:1/1"}
    settings.CACHES = {**settings.CACHES, "other": other}
    settings.ADK = {"STORES": {**STORES, **changed}}
    assert ids(checks.check_settings()) == ["E005"]


REFUSED = {
    "LocMem": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "Django's own": {"BACKEND": "django.core.cache.backends.redis.RedisCache"},
    "exceptions": {"OPTIONS": {"IGNORE_EXCEPTIONS": True}},
    "pickle": {"OPTIONS": {"SERIALIZER": "django_redis.serializers.pickle.PickleSerializer"}},
}


@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED)
def test_e009_an_alias_that_runs_cannot_be_kept_in(adk: Any, changes: Any) -> None:
    alias(adk, **changes)
    (found,) = checks.check_settings()
    assert ids([found]) == ["E009"]
    assert "CACHES['adk']" in found.msg
    frontier = Checkpoint("run_1", "acme", "booking", CheckpointBoundary.AFTER_MODEL_CALL, 1)
    with pytest.raises(ConfigurationError, match="adk"):
        RedisCheckpointStore("adk").put(frontier, fence=1)
    with pytest.raises(ConfigurationError, match="adk"):
        complete().leases.held("run_1", tenant="acme")


def test_e009_exceptions_ignored_by_the_other_setting_and_an_alias_that_is_not_there(adk: Any) -> None:
    adk.DJANGO_REDIS_IGNORE_EXCEPTIONS = True
    assert ids(checks.check_settings()) == ["E009"]
    alias(adk, OPTIONS={"IGNORE_EXCEPTIONS": False})
    assert checks.check_settings() == []
    adk.CACHES = {"default": adk.CACHES["default"]}
    assert ids(checks.check_settings()) == ["E009"]


def test_e010_an_alias_that_others_clear(adk: Any) -> None:
    adk.CACHES = {**adk.CACHES, "sessions": dict(adk.CACHES["adk"])}
    (found,) = checks.check_settings()
    assert ids([found]) == ["E010"]
    assert "'sessions'" in found.msg
    adk.CACHES = {"default": adk.CACHES["adk"]}
    adk.ADK = {"STORES": {name: {**store, "OPTIONS": {"CACHE": "default"}} for name, store in STORES.items()}}
    assert ids(checks.check_settings()) == ["E010"]


@pytest.fixture
def server(tmp_path: Any, adk: Any) -> Any:
    """Return a function that starts a server behind the alias, with options of its command line."""
    started = []

    def start(*options: str) -> None:
        server = RedisServer(tmp_path, *options)
        started.append(server)
        server.start()
        alias(adk, LOCATION=server.url)

    yield start
    for server in started:
        server.stop()


def test_a_server_that_keeps_everything_is_warned_of_nothing(server: Any) -> None:
    server("--appendonly", "yes", "--maxmemory-policy", "noeviction")
    assert redis_checks.ask("adk") == []


def test_w014_a_server_that_evicts(server: Any) -> None:
    server("--appendonly", "yes", "--maxmemory-policy", "allkeys-lru")
    (found,) = redis_checks.ask("adk")
    assert ids([found]) == ["W014"]
    assert "allkeys-lru" in found.msg


def test_w015_a_server_that_keeps_nothing_on_disk(server: Any) -> None:
    server()
    assert ids(redis_checks.ask("adk")) == ["W015"]
    get_redis_connection("adk").config_set("save", "60 1")
    assert redis_checks.ask("adk") == []


def test_w016_a_server_whose_settings_cannot_be_read(server: Any) -> None:
    server("--rename-command", "CONFIG", "")
    (found,) = redis_checks.ask("adk")
    assert ids([found]) == ["W016"]
    assert "maxmemory-policy, appendonly, save" in found.msg


def test_w016_a_server_that_does_not_answer(adk: Any) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        alias(adk, LOCATION=f"redis://127.0.0.1:{silent.getsockname()[1]}/0")
        assert ids(redis_checks.ask("adk")) == ["W016"]
    alias(adk, LOCATION="redis://127.0.0.1:1/0")
    assert ids(redis_checks.ask("adk")) == ["W016"]


@pytest.mark.django_db
def test_a_server_is_asked_where_the_database_is(server: Any) -> None:
    server()
    assert "W015" in ids(checks.check_servers(databases=["default"]))
    assert "W015" in ids(checks.check_deployment())
    assert checks.check_servers(databases=["postgres"]) == []


def test_w017_caps_that_count_no_lease_in_redis(adk: Any) -> None:
    for cap in ("max_live", "max_live_per_tenant"):
        adk.ADK = {"STORES": STORES, "RESUME": {cap: 3}}
        assert ids(checks.check_settings()) == ["W017"]
    adk.ADK = {"RESUME": {"max_live": 3}}
    assert checks.check_settings() == []
