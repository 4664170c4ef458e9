"""One test for each id: what is found, and that nothing is where nothing is wrong."""

import contextlib
import socket
import sqlite3
import time
from types import SimpleNamespace

import pytest
from django.core.checks import registry, run_checks
from django.core.management import call_command
from django.db import connections

from adk_django import agents
from adk_django.agents import Agent
from adk_django.checks import celery as celery_checks
from adk_django.checks import database as server_checks
from adk_django.checks import settings as checks
from adk_django.tools import ToolContext, done, tool
from tests.celery_apps import celery_app

ORM = "adk_django.stores.orm"
MEMORY = {
    name: {"BACKEND": f"adk_django.stores.memory.Memory{kind}Store"}
    for name, kind in {
        "checkpoints": "Checkpoint",
        "leases": "Lease",
        "idempotency": "Idempotency",
        "history": "History",
    }.items()
}


def ids(found):
    """Return the ids, after each was seen to have a hint and to name what it is about."""
    assert all(item.hint and item.msg for item in found)
    return [item.id.removeprefix("adk_django.") for item in found]


def found_in(settings, adk):
    """Return what the checks of settings find in ``ADK``."""
    settings.ADK = adk
    return checks.check_settings()


class Stamped:
    """A store of somebody's that keeps lower fences out."""

    def stamp(self, tenant: str, run_id: str, fence: int) -> None:
        """Refuse lower fences from now on."""


class Unstamped:
    """A store of somebody's."""

    def __init__(self) -> None:
        raise AssertionError("a check makes no store of others: it may connect")


@pytest.fixture
def registered(monkeypatch):
    """Return a function that makes tools those of the only registered agent, and returns what is found."""

    def register(*tools):
        monkeypatch.setattr(agents, "_registry", {})
        agents.register(Agent("booking", tools=tools))
        return checks.check_agents()

    return register


def test_what_is_right_passes_and_connects_to_nothing(settings, registered, monkeypatch):
    def refuse(*args):
        raise AssertionError("a check of settings connected")

    monkeypatch.setattr("django.db.backends.base.base.BaseDatabaseWrapper.ensure_connection", refuse)
    assert found_in(settings, {}) == []
    assert found_in(settings, {"STORES": MEMORY}) == []
    settings.ADK = {}

    def was(context: ToolContext, what: str) -> object:
        return done("yes")

    def find(what: str) -> str:
        return what

    def touch(what: str, context: ToolContext) -> str:
        return what

    def send(what: str) -> str:
        return what

    def note(what: str) -> str:
        return what

    tools = [tool("read_only")(find), tool("idempotent")(touch), tool(probe=was)(send)]
    assert registered(*tools, tool("transactional", using="default")(note)) == []


def test_they_are_registered_and_those_that_ask_a_server_are_asked_for():
    plain, deploy = registry.registry.get_checks(), registry.registry.get_checks(include_deployment_checks=True)
    assert {checks.check_settings, checks.check_agents, checks.check_servers} <= set(plain)
    assert checks.check_deployment in deploy
    assert checks.check_deployment not in plain
    assert "database" in checks.check_servers.tags
    assert checks.check_servers() == checks.check_servers(databases=[]) == []


def test_e001_an_unknown_key(settings):
    (close,) = found_in(settings, {"LEASES": {"ttl_second": 60}})
    (far,) = found_in(settings, {"QUEUE": "adk"})
    assert ids([close, far]) == ["E001", "E001"]
    assert (close.msg, close.hint) == ("ADK has no key LEASES.ttl_second.", "Write LEASES.ttl_seconds.")
    assert far.hint.startswith("Remove it. ADK has STORES, CHECKPOINTS, ")


def test_e002_a_value_that_does_not_fit(settings):
    (found,) = found_in(settings, {"LEASES": {"ttl_seconds": 10, "renew_within_seconds": 10}})
    assert ids([found]) == ["E002"]
    assert "renew_within_seconds is 10" in found.msg
    assert ids(found_in(settings, [])) == ["E002"]
    assert ids(found_in(settings, {"TOOLS": {"max_concurrent": "8"}})) == ["E002"]


def test_every_fault_of_the_settings_is_told_at_once_with_its_hint(settings):
    found = found_in(
        settings,
        {
            "QUEUE": "adk",
            "LEASES": {"ttl_second": 60, "ttl_seconds": "an hour", "renew_within_seconds": 1.5},
            "TOOLS": {"max_concurrent": "8", "time_limit_seconds": -1},
            "REDACT": {"extra_patterns": ["(", "a*", "order-[0-9]+"]},
            "CELERY_QUEUE": "",
            "RESUME": "never",
            "STORES": {
                "leases": {"BACKEND": "no.such.Store"},
                "history": {"BACKEND": f"{ORM}.NoSuchStore"},
                "idempotency": {"BACKEND": 3},
            },
        },
    )
    assert ids(found) == ["E001"] * 2 + ["E002"] * 6 + ["E003"] * 2 + ["W001"] + ["E004"] * 2
    assert all(item.hint for item in found)
    said = [item.msg for item in found]
    for what in ("QUEUE", "ttl_second", "'an hour'", "'8'", "-1", "'never'", "idempotency", "'('", "'a*'", "leases"):
        assert any(what in text for text in said), what


@pytest.mark.parametrize("pattern", ["(", "a*"])
def test_e003_a_pattern_that_masks_nothing(settings, pattern):
    (found,) = found_in(settings, {"REDACT": {"extra_patterns": ["order-[0-9]+", pattern]}})
    assert ids([found]) == ["E003"]
    assert repr(pattern) in found.msg


@pytest.mark.parametrize(
    "backend",
    [
        {"BACKEND": "no.such.Store"},
        {"BACKEND": f"{ORM}.NoSuchStore"},
        {"BACKEND": f"{ORM}.OrmLeaseStore", "OPTIONS": {"usin": "default"}},
    ],
)
def test_e004_a_store_that_cannot_be_made(settings, backend):
    (found,) = found_in(settings, {"STORES": {"leases": backend}})
    assert ids([found]) == ["E004"]
    assert "ADK['STORES']['leases']" in found.msg
    assert backend["BACKEND"] in found.msg


@pytest.mark.parametrize(
    "stores",
    [
        {"leases": MEMORY["leases"]},
        {"leases": {"BACKEND": f"{ORM}.OrmLeaseStore", "OPTIONS": {"using": "postgres"}}},
        {"leases": {"BACKEND": f"{__name__}.Unstamped"}},
        dict.fromkeys(MEMORY, {"BACKEND": f"{__name__}.Unstamped"}),
    ],
)
def test_e005_a_mixture_that_nothing_keeps_together(settings, stores):
    assert ids(found_in(settings, {"STORES": stores})) == ["E005"]


def test_e005_is_not_found_where_stores_stamp_or_name_the_same_alias(settings):
    assert found_in(settings, {"STORES": {"leases": {"BACKEND": f"{__name__}.Stamped"}}}) == []
    same = {"BACKEND": f"{ORM}.OrmLeaseStore", "OPTIONS": {"using": "default"}}
    assert found_in(settings, {"STORES": {"leases": same}}) == []


def test_e006_a_database_that_runs_cannot_be_kept_in(settings, monkeypatch):
    nowhere = {
        name: {"BACKEND": path, "OPTIONS": {"using": "nowhere"}} for name, path in checks.conf.DEFAULT_STORES.items()
    }
    assert ids(found_in(settings, {"STORES": nowhere})) == ["E006"]
    other = SimpleNamespace(vendor="mysql", settings_dict={"ENGINE": "django.db.backends.mysql", "AUTOCOMMIT": True})
    monkeypatch.setattr(checks, "connections", {"default": other})
    (found,) = found_in(settings, {})
    assert ids([found]) == ["E006"]
    assert "DATABASES['default']['ENGINE'] is 'django.db.backends.mysql'" in found.msg


def test_e007_a_database_without_autocommit(settings, monkeypatch):
    monkeypatch.setitem(connections["default"].settings_dict, "AUTOCOMMIT", False)
    (found,) = found_in(settings, {})
    assert ids([found]) == ["E007"]
    assert "DATABASES['default']['AUTOCOMMIT']" in found.msg


def test_e008_a_transactional_tool_where_the_runs_are_not(settings, registered):
    def note(what: str) -> str:
        return what

    (found,) = registered(tool("transactional", using="postgres")(note))
    assert ids([found]) == ["E008"]
    assert "Tool note of agent booking is transactional on 'postgres', but runs are in 'default'" in found.msg
    settings.ADK = {"STORES": MEMORY}
    assert ids(registered(tool("transactional", using="default")(note))) == ["E008"]


def test_w001_a_lease_that_lapses_when_one_renewal_fails(settings):
    (found,) = found_in(settings, {"LEASES": {"renew_within_seconds": 1.5}})
    assert ids([found]) == ["W001"]
    assert "ADK['LEASES']['renew_within_seconds'] is 1.5" in found.msg


def test_w002_an_effectful_tool_without_a_probe(registered):
    def send(what: str) -> str:
        return what

    (found,) = registered(tool(send))
    assert ids([found]) == ["W002"]
    assert found.msg.startswith("Tool send of agent booking is effectful and has no probe")


@pytest.mark.parametrize("name", ["send", "book_flight", "Delete_all"])
def test_w003_a_read_only_tool_whose_name_says_otherwise(registered, name):
    def body(what: str) -> str:
        return what

    body.__name__ = name
    assert ids(registered(tool("read_only")(body))) == ["W003"]


@pytest.mark.parametrize("name", ["booking_list", "list_payments", "resend_count"])
def test_w003_is_not_found_in_other_words(registered, name):
    def body(what: str) -> str:
        return what

    body.__name__ = name
    assert registered(tool("read_only")(body)) == []


def test_w004_an_idempotent_tool_that_cannot_pass_the_key_on(registered):
    def touch(what: str) -> str:
        return what

    (found,) = registered(tool("idempotent")(touch))
    assert ids([found]) == ["W004"]
    assert "def touch(..., context: ToolContext)" in found.hint


@pytest.mark.django_db(databases="__all__")
def test_w005_memory_stores_in_a_deployment(settings):
    settings.ADK = {"STORES": MEMORY}
    (found,) = checks.check_deployment()
    assert ids([found]) == ["W005"]
    assert "checkpoints, leases, idempotency, history" in found.msg


@pytest.fixture
def silent_port():
    """Yield the port of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.django_db(databases="__all__")
def test_w006_a_server_that_says_nothing_is_waited_for_two_seconds(monkeypatch, silent_port):
    connection = connections["postgres"].copy()
    connection.settings_dict.update(HOST="127.0.0.1", PORT=str(silent_port))
    monkeypatch.setattr(server_checks, "connections", {"postgres": connection})
    monkeypatch.setattr(server_checks, "SECONDS", 0.2)
    began = time.monotonic()
    (found,) = server_checks.ask("postgres")
    assert ids([found]) == ["W006"]
    assert "no answer within 0.2 seconds" in found.msg
    assert time.monotonic() - began < 60


@pytest.mark.django_db(databases="__all__")
def test_w006_a_server_that_refuses(monkeypatch):
    connection = connections["postgres"].copy()
    connection.settings_dict.update(HOST="127.0.0.1", PORT="1")
    monkeypatch.setattr(server_checks, "connections", {"postgres": connection})
    (found,) = server_checks.ask("postgres")
    assert ids([found]) == ["W006"]
    assert "'postgres' could not be asked" in found.msg


@pytest.fixture
def sqlite_file(monkeypatch, tmp_path):
    """Return a function that has a SQLite file opened with OPTIONS, and returns what is found."""
    connection = connections["default"].copy()
    connection.settings_dict["NAME"] = str(tmp_path / "db.sqlite3")
    monkeypatch.setattr(server_checks, "connections", {"default": connection})

    def ask(**options):
        sqlite3.connect(tmp_path / "db.sqlite3").close()
        (tmp_path / "db.sqlite3").touch()
        connection.settings_dict["OPTIONS"] = options
        return server_checks.ask("default")

    return ask


WAL = "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL"


@pytest.mark.django_db
def test_w007_sqlite_without_a_write_ahead_log(sqlite_file):
    (found,) = sqlite_file(timeout=20)
    assert ids([found]) == ["W007"]
    assert "journal_mode=delete" in found.msg
    assert sqlite_file(timeout=20, init_command=WAL) == []


@pytest.mark.django_db
def test_w008_sqlite_that_gives_up_early(sqlite_file):
    (found,) = sqlite_file(timeout=1, init_command=WAL)
    assert ids([found]) == ["W008"]
    assert "1000 milliseconds" in found.msg


@pytest.mark.django_db
@pytest.mark.parametrize("level", ["OFF", "NORMAL"])
def test_w009_sqlite_that_a_power_cut_sets_back(sqlite_file, level):
    (found,) = sqlite_file(timeout=20, init_command=f"PRAGMA journal_mode=WAL; PRAGMA synchronous={level}")
    assert ids([found]) == ["W009"]
    assert f"synchronous={level}" in found.msg


@pytest.mark.django_db
def test_a_sqlite_file_that_is_not_there_is_not_made_by_asking(monkeypatch, tmp_path):
    connection = connections["default"].copy()
    connection.settings_dict["NAME"] = str(tmp_path / "none.sqlite3")
    monkeypatch.setattr(server_checks, "connections", {"default": connection})
    assert server_checks.ask("default") == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.django_db(databases="__all__")
def test_w010_postgresql_that_confirms_before_it_keeps(monkeypatch):
    def asked(value):
        connection = connections["postgres"].copy()
        connection.settings_dict["OPTIONS"]["options"] = f"-c synchronous_commit={value}"
        monkeypatch.setattr(server_checks, "connections", {"postgres": connection})
        return server_checks.ask("postgres")

    (found,) = asked("off")
    assert ids([found]) == ["W010"]
    assert "synchronous_commit = off" in found.msg
    assert asked("on") == []


@pytest.mark.django_db(databases="__all__")  # from Django 6.1 on, databases are asked unless others are named
def test_our_tag_runs_ours_alone(settings, capsys):
    settings.ADK = {"LEASES": {"renew_within_seconds": 1.5}}
    found = {item.id for item in run_checks(tags=["adk_django"])}
    assert "adk_django.W001" in found
    assert all(item.startswith("adk_django.") for item in found)
    call_command("check", tags=["adk_django"])
    assert "adk_django.W001" in capsys.readouterr().err


@pytest.fixture
def celery():
    """Return a function that makes an app with these settings the current one."""
    with contextlib.ExitStack() as ends:
        yield lambda **conf: ends.enter_context(celery_app("redis://127.0.0.1:1/0", **conf))


def test_celery_is_not_checked_without_a_broker():
    assert celery_checks.check_tasks() == celery_checks.check_sweep() == []


def test_w011_a_task_that_ends_before_the_longest_call(celery, settings):
    settings.ADK = {"TOOLS": {"time_limit_seconds": 300, "grace_seconds": 30}}
    celery()
    assert celery_checks.check_tasks() == []  # an hour, where nothing is said
    for conf in ({"task_time_limit": 600}, {"broker_transport_options": {"visibility_timeout": 600}}):
        celery(**conf)
        (found,) = celery_checks.check_tasks()
        assert ids([found]) == ["W011"]
        assert "600 seconds" in found.msg
        assert "660" in found.hint
    celery(task_time_limit=660)
    assert celery_checks.check_tasks() == []


@pytest.mark.parametrize("name", ["*", "adk_django.resume_run"])
def test_w012_a_wake_up_that_is_acknowledged_before_its_run_was_carried_on(celery, name):
    celery(task_annotations={name: {"acks_late": False}})
    (found,) = celery_checks.check_tasks()
    assert ids([found]) == ["W012"]
    celery(task_annotations={name: {"acks_late": True}})
    assert celery_checks.check_tasks() == []


def test_w013_nothing_sweeps(celery):
    celery(beat_schedule={"other": {"task": "product.tidy", "schedule": 1}})
    (found,) = celery_checks.check_sweep()
    assert ids([found]) == ["W013"]
    entry = {"task": "adk_django.sweep", "schedule": 10}
    celery(beat_schedule={"adk": entry})
    (found,) = celery_checks.check_sweep()
    assert "to the queue 'celery', not to 'adk'" in found.msg
    assert '"options": {"queue": "adk"}' in found.hint
    celery(beat_schedule={"adk": {**entry, "options": {"queue": "adk"}}})
    assert celery_checks.check_sweep() == []
    celery(beat_schedule={"adk": entry}, task_default_queue="adk")
    assert celery_checks.check_sweep() == []
    celery(beat_scheduler="django_celery_beat.schedulers:DatabaseScheduler")
    assert celery_checks.check_sweep() == []
