"""Where the stores are: which alias, what its schema lacks, what its settings say of instants, who shares its file."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.db import connections
from django.db.migrations.recorder import MigrationRecorder
from django.test import override_settings

from adk_django import models
from adk_django.core.checkpoint import Checkpoint, CheckpointBoundary
from adk_django.core.record import RunRecord, Writes
from adk_django.exceptions import (
    CheckpointDamagedError,
    CheckpointFormatError,
    ConfigurationError,
    StoreUnavailableError,
)
from adk_django.stores.orm import OrmCheckpointStore, OrmIdempotencyStore, OrmLeaseStore, OrmRunStore
from adk_django.stores.orm import connection as sql_connection
from tests.servers import PROJECT_DIR, child_env
from tests.stores.orm_conformance import stores_on

IDS = {"tenant": "acme", "run_id": "run-1"}


class ToPostgres:
    """A router that writes this app's models elsewhere, and reads them from yet another place."""

    def db_for_write(self, model: object, **hints: object) -> str:
        return "postgres"

    def db_for_read(self, model: object, **hints: object) -> str:
        return "nowhere"


@pytest.mark.django_db(databases=["default", "postgres"])
def test_without_an_alias_the_router_is_asked_at_each_use_for_where_it_writes() -> None:
    runs, leases = OrmRunStore(), OrmLeaseStore()
    runs.create(RunRecord(**IDS, agent="a", input="", salt="00"))
    with override_settings(DATABASE_ROUTERS=["tests.stores.test_orm_aliases.ToPostgres"]):
        assert runs.get("run-1", tenant="acme") is None
        runs.create(RunRecord(**IDS, agent="b", input="", salt="00"))
        leases.acquire("run-1", tenant="acme", holder="w", ttl_seconds=60)
        assert runs.find()[0].agent == "b"
    assert runs.get("run-1", tenant="acme").agent == "a"
    assert leases.held("run-1", tenant="acme") is None


# Its schema


def test_the_schema_is_what_this_version_expects(alias: str) -> None:
    OrmCheckpointStore(using=alias).verify()


@pytest.fixture
def undone(alias: str) -> Iterator[list[str]]:
    """Run the statements in the list after the test."""
    statements: list[str] = []
    yield statements
    with connections[alias].cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)


def test_what_is_missing_is_named(alias: str, undone: list[str]) -> None:
    recorder = MigrationRecorder(connections[alias])
    with connections[alias].cursor() as cursor:
        cursor.execute("ALTER TABLE adk_spend RENAME COLUMN cost_micros TO cost")
        cursor.execute("DROP INDEX adk_approvals_open")
        cursor.execute("ALTER TABLE adk_run_events RENAME TO elsewhere")
    recorder.record_unapplied("adk_django", "0002_storage_parameters")
    undone += [
        "ALTER TABLE adk_spend RENAME COLUMN cost TO cost_micros",
        "CREATE INDEX adk_approvals_open ON adk_approvals (expires_at) WHERE state = 'requested'",
        "ALTER TABLE elsewhere RENAME TO adk_run_events",
    ]
    with pytest.raises(ConfigurationError) as refused:
        OrmCheckpointStore(using=alias).verify()
    recorder.record_applied("adk_django", "0002_storage_parameters")
    lacks, _, hint = str(refused.value).partition("): ")
    assert hint == f"python manage.py migrate --database={alias}"
    for missing in (
        "migration 0002_storage_parameters",
        "column adk_spend.cost_micros",
        "constraint adk_approvals_open",
        "table adk_run_events",
    ):
        assert missing in lacks


def test_a_missing_table_is_a_matter_of_migrating(alias: str, undone: list[str]) -> None:
    stores = stores_on(alias)
    stores.runs.create(RunRecord(**IDS, agent="a", input="", salt="00"))
    lease = stores.leases.acquire("run-1", tenant="acme", holder="w", ttl_seconds=60)
    with connections[alias].cursor() as cursor:
        cursor.execute("ALTER TABLE adk_spend RENAME TO elsewhere")
    undone.append("ALTER TABLE elsewhere RENAME TO adk_spend")
    hint = f"python manage.py migrate --database={alias}"
    with pytest.raises(ConfigurationError, match=hint):
        stores.runs.get("run-1", tenant="acme")
    with connections[alias].cursor() as cursor:
        cursor.execute("ALTER TABLE adk_idempotency_keys RENAME COLUMN key TO name")
    undone.append("ALTER TABLE adk_idempotency_keys RENAME COLUMN name TO key")
    with pytest.raises(ConfigurationError, match=hint):
        stores.idempotency.look_up("run-1", tenant="acme")
    with connections[alias].cursor() as cursor:
        cursor.execute("ALTER TABLE adk_run_leases RENAME TO no_leases")
    undone.append("ALTER TABLE no_leases RENAME TO adk_run_leases")
    with pytest.raises(ConfigurationError, match=hint):
        stores.commit(Writes(begins=True), lease=lease)


# What is in it


@pytest.fixture
def stored(alias: str) -> OrmCheckpointStore:
    stores = stores_on(alias)
    lease = stores.leases.acquire("run-1", tenant="acme", holder="w", ttl_seconds=60)
    frontier = Checkpoint(**IDS, agent="a", boundary=CheckpointBoundary.AFTER_MODEL_CALL, turn=1)
    stores.commit(Writes(frontier=frontier), lease=lease)
    return OrmCheckpointStore(using=alias)


def test_the_format_is_read_before_the_payload_is_looked_at(stored: OrmCheckpointStore, alias: str) -> None:
    models.Checkpoint.objects.using(alias).update(format_version=9, payload="from another time")
    with pytest.raises(CheckpointFormatError) as refused:
        stored.latest("run-1", tenant="acme")
    assert (refused.value.found, refused.value.supported) == (9, 1)


@pytest.mark.parametrize("damage", [{"payload": "{"}, {"digest": "f" * 64}, {"turn": 2}])
def test_a_row_changed_by_hand_is_damaged(stored: OrmCheckpointStore, alias: str, damage: dict[str, object]) -> None:
    models.Checkpoint.objects.using(alias).update(**damage)
    with pytest.raises(CheckpointDamagedError):
        stored.latest("run-1", tenant="acme")
    assert models.Checkpoint.objects.using(alias).filter(**damage).exists()


def test_an_unreadable_outcome_is_damaged_and_no_permission(alias: str) -> None:
    outcome = {"outcome": "{", "state": "done", "effect": "effectful", "fence": 1, "tool": "book", "key": "k"}
    models.IdempotencyKey.objects.using(alias).create(**IDS, turn=1, position=1, **outcome)
    with pytest.raises(CheckpointDamagedError, match="call 1.1"):
        OrmIdempotencyStore(using=alias).look_up("run-1", tenant="acme")


# Its instants

ELSEWHERE = """
from tests.settings import *
USE_TZ = {use_tz}
TIME_ZONE = "America/St_Johns"
"""

ASK = """
import django; django.setup()
from datetime import timedelta
from django.db import connections
from adk_django import models
from adk_django.core.record import RunRecord, RunStatus, Writes
from tests.stores.orm_conformance import stores_on

stores = stores_on("default")
made, _ = stores.runs.create(RunRecord(tenant="acme", run_id="theirs", agent="a", input="", salt="00"))
lease = stores.leases.acquire("theirs", tenant="acme", holder="w", ttl_seconds=60)
wake_at = lease.acquired_at + timedelta(hours=1)
stores.commit(Writes(status=RunStatus.ACTIVE, wake_at=wake_at), lease=lease)
row = models.Run.objects.get(run_id="theirs")
print(made.created_at.isoformat(), row.created_at.isoformat(), (row.wake_at - lease.acquired_at).total_seconds())
print(stores.runs.get("ours", tenant="acme").created_at.isoformat())
print(models.Run.objects.filter(created_at__gte=made.created_at, wake_at__lte=wake_at).count())
connections.close_all()
"""


@pytest.mark.parametrize("use_tz", [True, False])
def test_instants_are_the_same_under_every_setting(alias: str, use_tz: bool, tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text(ELSEWHERE.format(use_tz=use_tz))
    env = child_env(alias)
    env |= {"DJANGO_SETTINGS_MODULE": "elsewhere", "PYTHONPATH": f"{tmp_path}:{env['PYTHONPATH']}"}
    runs = stores_on(alias).runs
    ours, _ = runs.create(RunRecord(tenant="acme", run_id="ours", agent="a", input="", salt="00"))
    told = subprocess.run(
        [sys.executable, "-c", ASK], env=env, cwd=PROJECT_DIR, capture_output=True, text=True, timeout=60
    )
    assert told.returncode == 0, told.stderr
    made, row, hour, seen, count = told.stdout.split()
    theirs = runs.get("theirs", tenant="acme")
    assert made == row == theirs.created_at.isoformat()
    assert datetime.fromisoformat(made).utcoffset() == datetime.now(UTC).utcoffset()
    assert (hour, seen, count) == ("3600.0", ours.created_at.isoformat(), "1")


# Who shares it

WORK = """
import sys
import django; django.setup()
from adk_django.core.checkpoint import Checkpoint, CheckpointBoundary
from adk_django.core.record import RunRecord, Writes
from adk_django.exceptions import ResumeConflictError
from tests.stores.orm_conformance import stores_on

stores, name = stores_on("default"), sys.argv[1]
ids = {"tenant": "acme", "run_id": name}
stores.runs.create(RunRecord(**ids, agent="a", input="", salt="00"))
lease = stores.leases.acquire(name, tenant="acme", holder=name, ttl_seconds=60)
sys.stdin.readline()  # until all are there
won = 0
for turn in range(1, 11):
    frontier = Checkpoint(**ids, agent="a", boundary=CheckpointBoundary.AFTER_MODEL_CALL, turn=turn)
    stores.commit(Writes(frontier=frontier, begins=True), lease=lease)
    lease = stores.leases.renew(lease, ttl_seconds=60)
    try:
        shared = stores.leases.acquire("shared", tenant="acme", holder=name, ttl_seconds=60)
    except ResumeConflictError:
        continue
    won += 1
    stores.leases.release(shared)
print(won)
"""


@pytest.fixture(params=["delete", "wal"])
def journal(alias: str, request: pytest.FixtureRequest) -> Iterator[None]:
    def set_mode(mode: str) -> None:
        with connections[alias].cursor() as cursor:
            cursor.execute(f"PRAGMA journal_mode={mode}")
            assert cursor.fetchone() == (mode,)

    set_mode(request.param)
    yield
    set_mode("delete")


@pytest.mark.parametrize("alias", ["default"], indirect=True)
@pytest.mark.usefixtures("journal")
def test_processes_that_share_a_file_never_find_it_locked(alias: str) -> None:
    env = child_env(alias)
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORK, f"run-{number}"],
            env=env,
            cwd=PROJECT_DIR,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(8)
    ]
    for worker in workers:
        worker.stdin.write("go\n")
        worker.stdin.flush()
    results = [worker.communicate(timeout=120) for worker in workers]
    assert [worker.returncode for worker in workers] == [0] * 8, "".join(errors for _, errors in results)
    assert sum(int(won) for won, _ in results) == models.RunLease.objects.get(run_id="shared").fence
    assert {row.turn for row in models.Checkpoint.objects.all()} == {10}


# Its connection


@pytest.mark.parametrize("alias", ["postgres"], indirect=True)
@pytest.mark.parametrize(("age", "kept"), [(0, True), (1, False), (None, True)])
def test_a_connection_past_its_age_goes_when_nothing_was_asked_of_it_for_a_while(
    alias: str, age: int | None, kept: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, runs = connections[alias], stores_on(alias).runs
    runs.now()
    monkeypatch.setitem(connection.settings_dict, "CONN_MAX_AGE", age)
    monkeypatch.setattr(connection, "close_at", None if age is None else 0.0)
    before = connection.connection
    runs.now()
    assert connection.connection is before, "it was in use a moment ago"
    monkeypatch.setattr(sql_connection, "IDLE_SECONDS", 0)
    runs.now()
    assert (connection.connection is before) is kept


@pytest.mark.parametrize("alias", ["postgres"], indirect=True)
def test_a_connection_that_broke_is_replaced(alias: str) -> None:
    runs = stores_on(alias).runs
    runs.now()
    connections[alias].connection.close()
    with pytest.raises(StoreUnavailableError):
        runs.now()
    assert runs.now().tzinfo is UTC
