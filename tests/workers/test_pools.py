"""The same runs in every pool of Celery, and with every way of keeping connections."""

import json
from typing import Any

import pytest

from tests.workers.conftest import Site

KEPT = {"CONN_MAX_AGE": 600}
POOLED = {"OPTIONS": {"pool": {"min_size": 1, "max_size": 8}}}
RUNS = 6


@pytest.mark.parametrize(
    ("pool", "database"),
    [
        ("prefork", KEPT),
        ("threads", POOLED),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [("prefork", POOLED), ("threads", KEPT), ("solo", KEPT)]
        ),
    ],
)
def test_runs_are_carried_on_and_handed_over(site: Site, pool: str, database: dict[str, Any]) -> None:
    env = {"WORKERS_DATABASE": json.dumps(database), "WORKERS_CONNECT": "before the children are forked"}
    concurrency = 1 if pool == "solo" else 3
    worker = site.worker({"CONTINUE": {"max_steps": 3}}, env=env, pool=pool, concurrency=concurrency)
    ids = [f"run_{number}" for number in range(RUNS)]
    for run_id in ids:
        site.start("travels", run_id)
    for run_id in ids:
        site.completed(worker, run_id)
        assert site.lease(run_id).deaths == 0
    assert len(site.effects("book")) == 2 * RUNS
    assert worker.leave(10) == 0, worker.tail()
