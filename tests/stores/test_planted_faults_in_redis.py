"""The suites find faults in the scripts of the stores in Redis: each that is planted makes the test fail that is there
for it."""

from typing import Any

import pytest

from adk_django.stores.redis import claim_scripts as redis_claim_scripts
from adk_django.stores.redis import scripts as redis_scripts
from adk_django.testing import (
    CheckpointStoreConformance,
    HistoryStoreConformance,
    IdempotencyStoreConformance,
    LeaseStoreConformance,
    StoreConformance,
)
from tests.stores.redis_conformance import InRedis

LEASES, CLAIMS = LeaseStoreConformance, IdempotencyStoreConformance
GATE = "if held.fence ~= ARGV[1] or held.token == '' or not held.here then"

FAULTS = {
    "a live lease is taken": (LEASES, "ACQUIRE", "if stands and", "if false and"),
    "the floor is not looked at": (LEASES, "ACQUIRE", "if tonumber(fence) <= tonumber(floor)", "if false"),
    "deaths are not counted": (LEASES, "ACQUIRE", "if stands then deaths", "if false then deaths"),
    "anyone renews": (LEASES, "RENEW", "if not mine", "if false"),
    "anyone releases": (LEASES, "RELEASE", "if mine", "if true"),
    "a release resets the fence": (LEASES, "RELEASE", "'token', ''", "'fence', '0', 'token', ''"),
    "progress of whoever": (LEASES, "PROGRESSED", "if mine", "if true"),
    "frontiers of whoever": (CheckpointStoreConformance, "PUT", GATE, "if false then"),
    "the last frontier wins": (CheckpointStoreConformance, "PUT", "if behind", "if false"),
    "the same again moves the instant": (CheckpointStoreConformance, "PUT", "if same and", "if false and"),
    "anyone forgets the frontier": (CheckpointStoreConformance, "FORGET_FRONTIER", GATE, "if false then"),
    "messages of whoever": (HistoryStoreConformance, "APPEND", GATE, "if false then"),
    "appends behind anything": (HistoryStoreConformance, "APPEND", "if there ~= digest", "if false"),
    "the orphan tail stays": (HistoryStoreConformance, "APPEND", "redis.call('LTRIM', KEYS[4], 0, length - 1)", ""),
    "claims of whoever": (CLAIMS, "BEGIN", GATE, "if false then"),
    "a claim is taken over in any state": (CLAIMS, "BEGIN", "or not as_read or late", ""),
    "late evidence is overlooked": (CLAIMS, "BEGIN", "or late then", "then"),
    "keys are not held": (CLAIMS, "BEGIN", "if other then", "if false then"),
    "the last outcome wins": (CLAIMS, "RECORD", "if row.state == IN_FLIGHT", "if true"),
    "outcomes under any token": (CLAIMS, "RECORD", "if row.token ~= sent.token", "if false"),
    "errors keep their key": (CLAIMS, "RECORD", "if holds == ''", "if false"),
    "anyone abandons": (CLAIMS, "ABANDON", "row.token == ARGV[3] and row.token ~= NULL", "true"),
    "an abandoned claim keeps its key": (CLAIMS, "ABANDON", "free(row.key, ARGV[2])", ""),
    "the last evidence stays": (CLAIMS, "EVIDENCE", "if row.evidence ~= NULL or", "if"),
    "a contradiction is not seen": (CLAIMS, "EVIDENCE", "if row.state == NEVER_RAN", "if false"),
    "the last answer wins": (CLAIMS, "SETTLE", "if row.state ~= IN_FLIGHT", "if false"),
    "not done before the deadline": (CLAIMS, "SETTLE", "tonumber(at) < tonumber(row.deadline_at)", "false"),
    "not done against evidence": (CLAIMS, "SETTLE", "if row.evidence ~= NULL and", "if false and"),
    "anyone forgets claims": (CLAIMS, "FORGET_CLAIMS", GATE, "if false then"),
}


def failing(suite: type[StoreConformance]) -> set[str]:
    """Run every test of ``suite`` and return those that fail."""
    tested: Any = type("Broken", (InRedis, suite), {})
    failed = set()
    for name in dir(tested):
        if name.startswith("test_"):
            try:
                getattr(tested(), name)()
            except Exception:  # noqa: BLE001  # however a broken store makes a test fail
                failed.add(name)
    return failed


@pytest.mark.slow
@pytest.mark.parametrize(("suite", "fault"), [(suite, fault) for fault, (suite, *_) in FAULTS.items()])
def test_the_suite_finds(
    suite: type[StoreConformance], fault: str, redis: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, name, sound, broken = FAULTS[fault]
    module = redis_claim_scripts if hasattr(redis_claim_scripts, name) else redis_scripts
    script = getattr(module, name)
    assert sound in script
    planted = script.replace(sound, broken)
    redis.script_load(planted)  # or what the suite finds would be that nothing works
    monkeypatch.setattr(module, name, planted)
    assert failing(suite)
