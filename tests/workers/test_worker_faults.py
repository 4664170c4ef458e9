"""What a worker, a broker or a deploy does to a run, and that one sweep is enough to carry it on."""

import signal

import pytest

from adk_django.core.record import RunStatus
from adk_django.operations import wakeups
from tests.workers.conftest import Site
from tests.workers.worker_processes import gone, kill, watched

RUN = "run_1"


@pytest.mark.parametrize(("agent", "tool", "when"), [("books", "book", "after"), ("touches", "touch", "before")])
def test_a_prefork_child_is_killed_inside_a_tool(site: Site, agent: str, tool: str, when: str) -> None:
    gate, worker = site.gate(tool, when), site.worker()
    site.start(agent)
    kill(worker.said("entered")["pid"])
    gate.open()
    assert site.sweep() == ()  # its lease lives
    site.age()
    assert site.sweep() == (RUN,)
    site.completed(worker)
    assert len(site.effects(tool)) == 1


def test_the_parent_is_killed(site: Site) -> None:
    gate, worker = site.gate("book"), site.worker()
    site.start("books")
    child = worker.said("entered")["pid"]
    with watched(child) as watch:
        worker.signal(signal.SIGKILL)
        worker.process.wait()
        second = site.worker()
        site.age()
        assert site.sweep() == (RUN,)
        site.completed(second)
        gate.open()
        gone(watch)  # a child without a parent ends what it was at, and itself
    assert len(site.effects("book")) == 1
    assert site.lease().fence == 2


def test_a_task_meets_its_hard_time_limit(site: Site) -> None:
    gate, worker = site.gate("book"), site.worker(celery={"TASK_TIME_LIMIT": 2})
    site.start("books")
    with watched(worker.said("entered")["pid"]) as watch:
        gone(watch)
    gate.open()
    site.age()
    assert site.sweep() == (RUN,)
    site.completed(worker)


def test_a_worker_is_given_one_second_to_leave(site: Site) -> None:
    gate, worker = site.gate("book"), site.worker()
    site.start("books")
    worker.said("entered")
    assert worker.leave(1) is None
    second = site.worker()
    gate.open()
    site.age()
    assert site.sweep() == (RUN,)
    site.completed(second)


def test_the_queue_is_purged(site: Site) -> None:
    site.start("books")
    assert site.redis.delete("adk") == 1
    worker = site.worker()
    assert site.sweep() == (RUN,)
    site.completed(worker)


def test_a_task_that_was_renamed_is_discarded(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    worker = site.worker()
    with monkeypatch.context() as before:
        before.setattr(wakeups, "TASK", "adk_django.an_older_name")
        site.start("books")
    assert worker.said("unknown")["name"] == "adk_django.an_older_name"
    assert site.sweep() == (RUN,)
    site.completed(worker)


@pytest.mark.parametrize("pool", ["prefork", "threads", "solo"])
def test_a_worker_that_leaves_hands_its_run_over(site: Site, pool: str) -> None:
    gate, worker = site.gate("book"), site.worker(pool=pool)
    site.start("travels")
    worker.said("entered")
    worker.signal(signal.SIGTERM)
    worker.said("leaving")
    gate.open()
    assert worker.left(10) == 0, worker.tail()
    assert worker.said("done")["came"] == RunStatus.ACTIVE.value
    assert (site.lease().token, site.lease().fence, site.lease().deaths) == (None, 1, 0)
    assert len(site.effects("book")) == 1
    assert site.queued() == 1
    second = site.worker(pool=pool)
    site.completed(second)
    assert (site.lease().fence, site.lease().deaths) == (2, 0)
    assert len(site.effects("book")) == 2


def test_a_message_that_is_delivered_again_ends_at_once(site: Site) -> None:
    timeout = {"BROKER_TRANSPORT_OPTIONS": {"visibility_timeout": 600}}  # far longer than the slice
    gate, worker = site.gate("book"), site.worker(celery=timeout)
    site.start("books")
    worker.said("entered")
    (tag, since) = site.redis.zrange("unacked_index", 0, -1, withscores=True)[0]
    site.redis.zincrby("unacked_index", -3600, tag)  # for the broker: an hour ago
    second = site.worker(celery=timeout)  # a worker that starts looks for what was not acknowledged in time
    assert second.said("done", run=RUN)["came"] == "resume-conflict"
    assert (site.lease().fence, site.lease().deaths) == (1, 0)
    gate.open()
    site.completed(worker)
    assert len(site.effects("book")) == 1


def test_a_task_meets_its_soft_time_limit(site: Site) -> None:
    gates, worker = [site.gate("touch", "before"), site.gate("book")], site.worker(celery={"TASK_SOFT_TIME_LIMIT": 1})
    for agent in ("touches", "books"):
        site.start(agent, agent)
        worker.said("entered", run=agent)
        assert worker.said("done", run=agent)["came"] == "time-limit"
        assert (site.lease(agent).token, site.lease(agent).fence, site.lease(agent).deaths) == (None, 1, 0)
    assert not site.claims("touches")  # nobody was told that it failed
    assert [(claim.state, claim.error) for claim in site.claims("books")] == [("in_flight", "")]
    for gate in gates:
        gate.open()
    site.age()  # it is tried again a little later
    assert sorted(site.sweep()) == ["books", "touches"]
    for agent in ("books", "touches"):
        site.completed(worker, agent)
    assert [claim.state for claim in (*site.claims("touches"), *site.claims("books"))] == ["done", "done"]
    assert len(site.effects("book")) == 1
