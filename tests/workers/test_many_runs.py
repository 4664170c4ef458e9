"""Many runs, sweeps and slices at once: each run is one run, and no more live than may."""

import threading
from typing import Any

import pytest
from django.db import connections

from adk_django import runs
from adk_django.core.record import RunStatus
from adk_django.models import IdempotencyKey, Run, RunLease, Spend, TranscriptMessage
from adk_django.stores.orm.sql import Clock
from tests.workers.conftest import Site

COMPLETED = RunStatus.COMPLETED.value


def live(site: Site) -> int:
    """Return how many leases live."""
    return RunLease.objects.using(site.alias).filter(token__isnull=False, expires_at__gt=Clock()).count()


def test_ten_sweeps_at_once_start_each_run_once(site: Site) -> None:
    ids = [f"run_{number}" for number in range(30)]
    for run_id in ids:
        site.start("books", run_id)
    site.redis.delete("adk")
    together, taken = threading.Barrier(10), []

    def sweep() -> None:
        together.wait()
        try:
            taken.append(runs.sweep(using=site.alias))
        finally:
            connections.close_all()

    sweeps = [threading.Thread(target=sweep) for _ in range(10)]
    for thread in sweeps:
        thread.start()
    for thread in sweeps:
        thread.join()
    assert sorted(run_id for swept in taken for _, run_id in swept.taken) == sorted(ids)
    assert site.queued() == len(ids)
    worker = site.worker(concurrency=2)
    for run_id in ids:
        site.completed(worker, run_id)
    assert worker.so_far("begun")[len(ids) :] == []
    assert len(site.effects("book")) == len(ids)
    assert set(RunLease.objects.using(site.alias).values_list("fence", "deaths")) == {(1, 0)}


def left_by(site: Site, run_id: str) -> list[Any]:
    """Return what a run's commits left, but for its keys, its instants and its fences."""
    of_run = {"run_id": run_id}
    transcript = TranscriptMessage.objects.using(site.alias).filter(**of_run).order_by("position")
    claims = IdempotencyKey.objects.using(site.alias).filter(**of_run).order_by("turn", "position")
    spent = Spend.objects.using(site.alias).filter(**of_run).order_by("turn")
    row = Run.objects.using(site.alias).filter(**of_run)
    return [
        *transcript.values_list("position", "payload"),
        *claims.values_list("turn", "position", "tool", "effect", "state", "outcome", "attempt"),
        *spent.values_list("turn", "input_tokens", "output_tokens", "unknown_calls"),
        *row.values_list("status", "output", "reason", "revision"),
    ]


def test_a_run_that_is_handed_over_leaves_what_one_slice_leaves(site: Site) -> None:
    whole = site.worker()
    site.start("travels", "whole")
    site.completed(whole, "whole")
    assert site.lease("whole").fence == 1
    assert whole.leave(10) == 0
    parts = site.worker({"CONTINUE": {"max_steps": 1}}, concurrency=2)
    site.start("travels", "parts")
    site.completed(parts, "parts")
    slices = site.lease("parts").fence
    assert slices > 5
    assert len(parts.so_far("begun")) == slices
    assert left_by(site, "parts") == left_by(site, "whole")
    assert len(site.effects("book")) == 4


@pytest.mark.parametrize("cap", ["max_live", pytest.param("max_live_per_tenant", marks=pytest.mark.slow)])
def test_no_more_leases_live_than_may(site: Site, settings: Any, cap: str) -> None:
    limits = {"RESUME": {cap: 2}, "LEASES": {"ttl_seconds": 1.0, "renew_within_seconds": 0.5}}
    settings.ADK = limits
    ids = [f"run_{number}" for number in range(16)]
    for run_id in ids:
        site.start("travels", run_id)
    for _ in range(2):
        site.hire(limits, concurrency=2)
    left, most = Run.objects.using(site.alias).exclude(status=COMPLETED), 0
    while left.exists():
        site.sweep()
        most = max(most, live(site))
    assert 1 <= most <= 2
    assert len(site.effects("book")) == 2 * len(ids)
