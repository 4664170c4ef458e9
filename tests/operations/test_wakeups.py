"""Wake-ups and sweeps: sent after the commit, never in its way, and each run that is due is taken once."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from celery import Celery
from django.db import connections, transaction

from adk_django import agents, models, runs
from adk_django.core.checkpoint import CHECKPOINT_FORMAT
from adk_django.core.record import RunStatus
from adk_django.exceptions import (
    AgentRevisionError,
    CheckpointFormatError,
    CheckpointPassedError,
    ResumeConflictError,
    ResumeError,
)
from adk_django.operations import wakeups
from tests.backends import TENANT
from tests.celery_apps import celery_app
from tests.fake_tools import calls, usual
from tests.run_fixture import Stage

QUEUE = "adk"


class Broker:
    """A broker in memory. ``messages`` takes what was sent."""

    def __init__(self, app: Celery) -> None:
        self.app = app

    def messages(self) -> list[Any]:
        """Take every message off the queue; return the arguments of each."""
        found = []
        with self.app.connection_for_read() as connection, contextlib.closing(connection.SimpleQueue(QUEUE)) as queue:
            while True:
                try:
                    message = queue.get_nowait()
                except queue.Empty:
                    return found
                message.ack()
                assert message.headers["task"] == wakeups.TASK
                found.append(tuple(message.payload[0]))


@pytest.fixture
def broker() -> Iterator[Broker]:
    """Yield the broker of the product's app."""
    with celery_app("memory://") as app:
        made = Broker(app)
        made.messages()
        yield made


@pytest.fixture
def stage(alias: str, log: list[str], monkeypatch: pytest.MonkeyPatch) -> Stage:
    """Return a stage whose agent is registered."""
    made = Stage(alias, [calls("book"), calls("wire"), "done"], *usual(log))
    monkeypatch.setattr(agents, "_registry", {"booking": made.agent})
    return made


def test_a_start_wakes_a_worker_once_it_has_committed(stage: Stage, alias: str, broker: Broker) -> None:
    given = {"tenant": TENANT, "using": alias}
    with transaction.atomic(using=alias):
        runs.start("booking", "go", run_id="one", **given)
        assert broker.messages() == []
    assert broker.messages() == [(TENANT, "one")]
    with contextlib.suppress(ZeroDivisionError), transaction.atomic(using=alias):
        runs.start("booking", "go", run_id="two", **given)
        _ = 1 / 0
    assert broker.messages() == []
    other = "default" if alias == "postgres" else "postgres"
    with transaction.atomic(using=other):
        runs.start("booking", "go", run_id="three", **given)
        assert broker.messages() == [(TENANT, "three")]


def test_a_run_that_is_not_due_is_not_woken_by_being_started_again(stage: Stage, alias: str, broker: Broker) -> None:
    def start() -> runs.StartedRun:
        return runs.start(stage.agent, "go", tenant=TENANT, run_id=stage.run_id, using=alias)

    assert start().created
    assert not start().created
    assert broker.messages() == [(TENANT, stage.run_id)] * 2  # it was still due
    stage.resume()
    assert start().record.status is RunStatus.WAITING
    assert broker.messages() == []


def test_whatever_people_say_wakes_a_worker(stage: Stage, alias: str, broker: Broker) -> None:
    given = {"tenant": TENANT, "by": "ann", "reason": "because", "using": alias}
    stage.die("tool book", "after")
    runs.settle(stage.run_id, "1.1", answer="completed", outcome="seat", **given)
    assert broker.messages() == [(TENANT, stage.run_id)]
    assert stage.resume().status is RunStatus.WAITING
    runs.decide(stage.request("2.1").request_id, grant=True, **given)
    assert broker.messages() == [(TENANT, stage.run_id)]
    runs.cancel(stage.run_id, **given)
    assert broker.messages() == [(TENANT, stage.run_id)]


@pytest.mark.parametrize("url", ["redis://127.0.0.1:1/0", "amqp://guest@127.0.0.1:1//"])
def test_a_broker_that_is_down_fails_nothing_and_the_run_stays_due(
    stage: Stage, alias: str, broker: Broker, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with celery_app(url), transaction.atomic(using=alias):
        started = runs.start("booking", "secret prompt", tenant=TENANT, run_id=stage.run_id, using=alias)
    assert started.created
    assert "a wake-up was not sent" in caplog.text
    assert "secret" not in caplog.text
    swept = runs.sweep(using=alias)
    assert (swept.taken, swept.sent) == (((TENANT, stage.run_id),), 1)
    assert broker.messages() == [(TENANT, stage.run_id)]


def test_every_thread_knows_whom_to_wake(
    stage: Stage, alias: str, broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    def start() -> None:
        try:
            runs.start("booking", "go", tenant=TENANT, run_id="threaded", using=alias)
        finally:
            connections.close_all()

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert broker.messages() == [(TENANT, "threaded")]
    asyncio.run(runs.astart("booking", "go", tenant=TENANT, run_id="pooled", using=alias))
    assert broker.messages() == [(TENANT, "pooled")]
    with celery_app("redis://127.0.0.1:1/0"):
        thread = threading.Thread(target=start)
        thread.start()
        thread.join()
    assert "several Celery apps" in caplog.text  # which of them is the product's is not guessed
    assert broker.messages() == []


def test_without_a_broker_nobody_is_woken(stage: Stage, alias: str) -> None:
    assert not wakeups.configured()
    runs.start("booking", "go", tenant=TENANT, run_id=stage.run_id, using=alias)
    assert runs.sweep(using=alias).sent == 0


def test_a_sweep_takes_dead_runs_and_answers_and_nothing_else(stage: Stage, alias: str, broker: Broker) -> None:
    def swept() -> tuple[Any, ...]:
        return runs.sweep(using=alias).taken

    mine = ((TENANT, stage.run_id),)
    stage.die("model", ages=False)
    stage.stores.runs.wake(stage.run_id, tenant=TENANT)
    assert swept() == ()  # its lease has not lapsed
    stage.age()
    assert swept() == mine
    assert stage.resume().status is RunStatus.WAITING
    assert swept() == ()
    stage.decide("2.1")
    assert swept() == mine
    assert stage.resume().status is RunStatus.COMPLETED
    assert swept() == ()


def test_a_worker_carries_on_what_it_can_and_leaves_the_rest_due(stage: Stage, alias: str, broker: Broker) -> None:
    def carried(**options: Any) -> Any:
        return runs.carry_on(stage.run_id, tenant=TENANT, worker="w", using=alias, **options)

    assert carried() is None  # no such run
    runs.start(stage.agent, "go", tenant=TENANT, run_id=stage.run_id, using=alias)
    due, registry = stage.record.wake_at, dict(agents._registry)
    agents._registry.clear()
    assert carried() is None
    agents._registry.update(registry)
    lease = stage.acquired()
    with pytest.raises(ResumeConflictError):
        carried()
    assert stage.record.wake_at == due
    stage.stores.leases.release(lease)
    assert carried().status is RunStatus.WAITING
    assert stage.lease is None


@pytest.mark.parametrize("left", ["another agent", "another revision", "a newer format"])
@pytest.mark.parametrize("asked", ["wake-up", "resume"])
def test_a_run_that_cannot_be_carried_on_here_is_not_acquired(stage: Stage, alias: str, asked: str, left: str) -> None:
    stage.run()
    assert stage.record.format_version == CHECKPOINT_FORMAT
    changes = {
        "another agent": {"agent": "elsewhere"},
        "another revision": {"revision": "of another version"},
        "a newer format": {"format_version": CHECKPOINT_FORMAT + 1},
    }
    models.Run.objects.using(alias).update(**changes[left])
    stage.stores.runs.wake(stage.run_id, tenant=TENANT)
    before = models.RunLease.objects.using(alias).values().get()
    if asked == "wake-up":
        assert runs.carry_on(stage.run_id, tenant=TENANT, worker="w", using=alias) is None
    else:
        with pytest.raises((AgentRevisionError, CheckpointFormatError)):
            runs.resume(stage.run_id, tenant=TENANT, worker="w", using=alias)
    assert models.RunLease.objects.using(alias).values().get() == before
    assert stage.record.wake_at is not None


def test_no_more_runs_live_than_may(stage: Stage, alias: str, settings: Any) -> None:
    settings.ADK = {"RESUME": {"max_live": 1}}
    runs.start(stage.agent, "go", tenant=TENANT, run_id=stage.run_id, using=alias)
    busy = stage.stores.leases.acquire("busy", tenant=TENANT, holder="other", ttl_seconds=60)
    assert runs.sweep(using=alias).taken == ()
    assert runs.carry_on(stage.run_id, tenant=TENANT, worker="w", using=alias) is None
    assert stage.lease is None
    stage.stores.leases.release(busy)
    result = runs.carry_on(stage.run_id, tenant=TENANT, worker="w", using=alias)
    assert result is not None and result.status is RunStatus.WAITING


def test_a_run_is_handed_to_a_worker(stage: Stage, alias: str, broker: Broker) -> None:
    def enqueued(**options: Any) -> Any:
        return runs.resume(stage.run_id, tenant=TENANT, enqueue=True, using=alias, **options)

    stage.die("tool book", "after")
    with pytest.raises(ResumeError):
        enqueued()  # nobody can say whether it booked
    stage.settle("1.1", "seat")
    assert enqueued().status is RunStatus.ACTIVE
    assert broker.messages() == [(TENANT, stage.run_id)]
    assert stage.resume().status is RunStatus.WAITING
    with pytest.raises(ResumeError, match="waiting on approval"):
        enqueued()
    with pytest.raises(ValueError, match="enqueue"):
        enqueued(accept_stale=True)
    assert broker.messages() == []


# Quarantine, and what an operator does


def quarantined(stage: Stage) -> None:
    """Let the run's worker die until it is quarantined."""
    stage.die("model")
    stage.die("model")
    with pytest.raises(ResumeError, match="quarantined"):
        stage.resume()
    assert stage.record.status is RunStatus.QUARANTINED


def test_a_released_run_gets_one_more_round(place: str, log: list[str], settings: Any) -> None:
    settings.ADK = {"RESUME": {"max_deaths": 2}}
    stage = Stage(place, [calls("book"), "done"], *usual(log))
    quarantined(stage)
    given = {"tenant": TENANT, "by": "ann", "reason": "fixed", "using": stage.world.using}
    for _ in range(2):
        stage.stores.runs.request_release(stage.run_id, tenant=TENANT, by="ann", reason="fixed")
        stage.die("model")
        with pytest.raises(ResumeError, match="quarantined"):
            stage.resume()
    if place != "memory":
        runs.release(stage.run_id, **given)
        freed = runs.apply_requests(stage.run_id, tenant=TENANT, using=place)
        assert (freed.status, freed.release_requested_at) == (RunStatus.ACTIVE, None)
        assert runs.apply_requests(stage.run_id, tenant=TENANT, using=place) == freed  # nothing more was asked
    else:
        stage.stores.runs.request_release(stage.run_id, tenant=TENANT, by="ann", reason="fixed")
    assert stage.resume().status is RunStatus.COMPLETED


def test_a_release_takes_the_lease_from_a_holder_that_never_lapses(stage: Stage, alias: str, broker: Broker) -> None:
    stage.runner().create(stage.agent, "go", tenant=TENANT, run_id=stage.run_id, user=None)
    lease = stage.stores.leases.acquire(stage.run_id, tenant=TENANT, holder="stuck", ttl_seconds=86_400)
    with pytest.raises(ResumeConflictError, match="stuck"):
        stage.resume()
    runs.release(stage.run_id, tenant=TENANT, by="ann", reason="it hangs", lease=True, using=alias)
    assert broker.messages() == [(TENANT, stage.run_id)]
    assert "lease_revoked" in stage.everything()
    assert stage.resume().fence > lease.fence + 1


def test_a_cancel_is_heard_before_a_release(place: str, log: list[str], settings: Any) -> None:
    settings.ADK = {"RESUME": {"max_deaths": 2}}
    stage = Stage(place, [calls("book"), "done"], *usual(log))
    quarantined(stage)
    stage.stores.runs.request_release(stage.run_id, tenant=TENANT, by="ann", reason="fixed")
    stage.cancel()
    assert stage.resume().status is RunStatus.CANCELLED
    assert log == []


# What a sweep must not take again and again


@pytest.mark.parametrize("spoil", ["died", "passed"])
def test_what_is_refused_for_good_is_taken_once(stage: Stage, alias: str, settings: Any, spoil: str) -> None:
    settings.ADK = {"RESUME": {"max_deaths": 1}}
    runs.start(stage.agent, "go", tenant=TENANT, run_id=stage.run_id, using=alias)
    if spoil == "died":
        stage.die("model")
    else:
        stage.resume()
        models.Run.objects.using(alias).update(failed_save="too large", status="active")
    for _ in range(2):
        stage.stores.runs.wake(stage.run_id, tenant=TENANT)  # it died, or somebody answered something
        assert runs.sweep(using=alias).taken == ((TENANT, stage.run_id),)
        with pytest.raises((ResumeError, CheckpointPassedError)):
            runs.carry_on(stage.run_id, tenant=TENANT, worker="w", using=alias)
        assert stage.record.wake_at is None
        stage.age()
        assert runs.sweep(using=alias).taken == ()


def test_a_cancel_is_done_where_nobody_can_carry_the_run_on(
    stage: Stage, alias: str, broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.run()
    monkeypatch.setattr(agents, "_registry", {})
    assert runs.sweep(using=alias).taken == ()
    runs.cancel(stage.run_id, tenant=TENANT, by="ann", reason="enough", using=alias)
    assert runs.sweep(using=alias).taken == ((TENANT, stage.run_id),)
    assert runs.carry_on(stage.run_id, tenant=TENANT, worker="w", using=alias) is None
    assert stage.record.status is RunStatus.CANCELLED
