"""What is the same of no other store: keys of hostile ids, sizes, a server that is down, forks, damage by hand."""

import os
from typing import Any

import pytest
from django_redis import get_redis_connection
from hypothesis import given
from hypothesis import strategies as st

from adk_django.core.checkpoint import Checkpoint, CheckpointBoundary, HistoryHandle
from adk_django.core.effects import Claim, EffectClass, Slot
from adk_django.core.messages import Message
from adk_django.exceptions import (
    CheckpointDamagedError,
    CheckpointTooLargeError,
    FenceLostError,
    StoreUnavailableError,
)
from adk_django.stores.redis import (
    RedisCheckpointStore,
    RedisHistoryStore,
    RedisIdempotencyStore,
    RedisLeaseStore,
)
from adk_django.stores.redis.client import keys_of, transcript_key

HOSTILE = ["a:b", "{x}", "{}", " ", "\u200b", "a", "1:a", "é", "\ud83d", "a\x00b", "*", "}:{", "x" * 255]


def frontier(run_id: str = "run_1", tenant: str = "acme", **changes: Any) -> Checkpoint:
    return Checkpoint(run_id, tenant, "booking", CheckpointBoundary.AFTER_MODEL_CALL, 1, **changes)


def claim(**changes: Any) -> Claim:
    given = {"tenant": "acme", "run_id": "run_1", "slot": Slot(1, 1), "key": "k", "tool": "book", "token": "t"}
    return Claim(**{**given, "effect": EffectClass.EFFECTFUL, **changes})


def acquire(run_id: str = "run_1", tenant: str = "acme", **options: Any) -> Any:
    return RedisLeaseStore().acquire(run_id, tenant=tenant, holder="worker-1", ttl_seconds=60, **options)


@given(st.lists(st.tuples(st.text(), st.text()), unique=True, min_size=2, max_size=2))
def test_no_two_ids_have_a_key_in_common(ids: list[tuple[str, str]]) -> None:
    (one, other) = (keys_of(*item) for item in ids)
    assert not {*one, transcript_key(*ids[0], 1)} & {*other, transcript_key(*ids[1], 1)}


def test_ids_that_look_alike_when_joined_are_apart_and_all_keys_of_a_run_have_one_hash_tag() -> None:
    pairs = [(tenant, run) for tenant in HOSTILE for run in HOSTILE]
    assert len({key for pair in pairs for key in keys_of(*pair)}) == 3 * len(pairs)
    for pair in pairs:
        keys = (*keys_of(*pair), transcript_key(*pair, 1))
        assert len({key[key.index("{") : key.index("}") + 1] for key in keys}) == 1


def test_hostile_tenants_never_find_each_others_runs(redis: Any) -> None:
    tenants = [tenant for tenant in HOSTILE if tenant.isprintable() or tenant.isascii()]  # what a run row takes
    for tenant in tenants:
        lease = acquire(tenant=tenant)
        RedisCheckpointStore().put(frontier(tenant=tenant, model=repr(tenant)), fence=lease.fence)
        RedisIdempotencyStore().begin(claim(tenant=tenant, token=repr(tenant)), fence=lease.fence)
    for tenant in tenants:
        found = RedisCheckpointStore().latest("run_1", tenant=tenant)
        assert found is not None
        assert found.model == repr(tenant)
        (only,) = RedisIdempotencyStore().look_up("run_1", tenant=tenant)
        assert (only.tenant, only.token) == (tenant, repr(tenant))
    assert RedisCheckpointStore().latest("run_1", tenant="b") is None


def test_nothing_that_is_kept_expires(redis: Any) -> None:
    lease = acquire()
    RedisCheckpointStore().put(frontier(), fence=lease.fence)
    RedisIdempotencyStore().begin(claim(), fence=lease.fence)
    RedisHistoryStore().append(HistoryHandle("acme", "run_1"), (Message.of("user", "hello"),), fence=lease.fence)
    keys = redis.keys("*")
    assert len(keys) == 4
    assert {redis.ttl(key) for key in keys} == {-1}


def test_what_is_over_the_cap_is_refused_before_the_server_is_asked(settings: Any) -> None:
    nowhere = {**settings.CACHES["adk"], "LOCATION": "redis://127.0.0.1:1/0"}
    settings.CACHES = {**settings.CACHES, "adk": nowhere}
    size = len(frontier().encoded)
    with pytest.raises(CheckpointTooLargeError) as refused:
        RedisCheckpointStore(max_value_bytes=size - 1).put(frontier(), fence=1)
    assert (refused.value.size, refused.value.cap) == (size, size - 1)
    with pytest.raises(StoreUnavailableError):
        RedisCheckpointStore(max_value_bytes=size).put(frontier(), fence=1)
    with pytest.raises(CheckpointTooLargeError):
        history = RedisHistoryStore(max_value_bytes=100)
        history.append(HistoryHandle("acme", "run_1"), (Message.of("user", "x" * 100),), fence=1)


def test_a_server_that_is_down_is_unavailable_in_every_verb(settings: Any) -> None:
    settings.CACHES = {**settings.CACHES, "adk": {**settings.CACHES["adk"], "LOCATION": "redis://127.0.0.1:1/0"}}
    for verb in (
        acquire,
        lambda: RedisLeaseStore().held("run_1", tenant="acme"),
        lambda: RedisCheckpointStore().latest("run_1", tenant="acme"),
        lambda: RedisIdempotencyStore().look_up("run_1", tenant="acme"),
        lambda: RedisIdempotencyStore().begin(claim(), fence=1),
        lambda: RedisHistoryStore().fetch(HistoryHandle("acme", "run_1", length=1), tenant="acme"),
    ):
        with pytest.raises(StoreUnavailableError, match="CACHES\\['adk'\\]"):
            verb()


def test_a_server_that_refuses_writes_is_unavailable(redis: Any) -> None:
    lease = acquire()
    redis.config_set("maxmemory", "1")
    try:
        with pytest.raises(StoreUnavailableError):
            RedisCheckpointStore().put(frontier(), fence=lease.fence)
    finally:
        redis.config_set("maxmemory", "0")


def test_scripts_that_the_server_forgot_are_sent_again(redis: Any) -> None:
    acquire()
    redis.script_flush()
    assert RedisLeaseStore().held("run_1", tenant="acme") is not None


def test_an_acquisition_that_is_sent_twice_is_one(redis: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("uuid.uuid4", lambda: type("Fixed", (), {"hex": "the same"}))
    first, again = acquire(), acquire()
    assert (first.fence, again.fence, again.token, again.expires_at) == (1, 1, first.token, first.expires_at)


def test_a_stamp_raises_the_fence_and_never_lowers_it(redis: Any) -> None:
    lease, store = acquire(), RedisLeaseStore()
    store.stamp("acme", "run_1", 1)
    assert store.held("run_1", tenant="acme") == lease
    store.stamp("acme", "run_1", 7)
    assert acquire(floor=7).fence == 8
    with pytest.raises(FenceLostError):
        acquire("run_2", floor=7)


@pytest.mark.parametrize("text", [b"", b"{", b'"x"', b"{}", b'{"state": "\\"in_flight\\"", "token": "1", "key": "2"}'])
def test_a_claim_that_was_changed_by_hand_is_damaged_and_left_as_it_is(redis: Any, text: bytes) -> None:
    lease, store = acquire(), RedisIdempotencyStore()
    store.begin(claim(), fence=lease.fence)
    redis.hset(keys_of("acme", "run_1")[2], "1.1", text)
    with pytest.raises(CheckpointDamagedError, match=r"1\.1"):
        store.look_up("run_1", tenant="acme")
    with pytest.raises(CheckpointDamagedError, match=r"1\.1"):
        store.begin(claim(token="t2"), fence=lease.fence)
    assert redis.hget(keys_of("acme", "run_1")[2], "1.1") == text


@pytest.mark.parametrize("field", ["payload", "digest", "format", "turn", "fence"])
def test_a_frontier_that_was_changed_by_hand_is_damaged(redis: Any, field: str) -> None:
    RedisCheckpointStore().put(frontier(), fence=acquire().fence)
    redis.hset(keys_of("acme", "run_1")[1], field, "x")
    with pytest.raises(CheckpointDamagedError):
        RedisCheckpointStore().latest("run_1", tenant="acme")


def test_a_forked_process_shares_no_socket(redis: Any) -> None:
    acquire()
    mine = get_redis_connection("adk").client_id()
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover  # in the child
        try:
            os.write(writes, str(get_redis_connection("adk").client_id()).encode())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reads, 20).decode() not in ("", str(mine))
    assert get_redis_connection("adk").client_id() == mine
