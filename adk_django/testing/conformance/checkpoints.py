"""The suite of a checkpoint store."""

# ruff: noqa: S101 (a suite is made of asserts)

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from adk_django.core.checkpoint import CHECKPOINT_FORMAT, Checkpoint, CheckpointBoundary, HistoryHandle
from adk_django.core.lease import RunLease
from adk_django.core.messages import Message, TextPart, ToolResult
from adk_django.exceptions import CheckpointDamagedError, CheckpointFormatError, RunConflictError
from adk_django.testing.conformance.base import AFTER, RACERS, FencedConformance, race, raises, returned, same
from adk_django.testing.conformance.values import VALUES


class CheckpointStoreConformance(FencedConformance):
    """What a checkpoint store promises."""

    def put(self, checkpoint: Checkpoint, lease: RunLease) -> None:
        """Store a frontier under ``lease``."""
        self.stores.checkpoints.put(checkpoint, fence=lease.fence)

    def stored(self) -> Checkpoint:
        """Return the frontier, which is there."""
        latest = self.latest()
        assert latest is not None
        return latest

    def fenced_writes(self, lease: RunLease) -> Mapping[str, Callable[[int], Any]]:
        self.put(self.frontier(), lease)
        store = self.stores.checkpoints
        return {
            "put": lambda fence: store.put(self.frontier(2), fence=fence),
            "put of the same": lambda fence: store.put(self.frontier(2), fence=fence),
            "forget": lambda fence: store.forget(self.run_id, tenant=self.tenant, fence=fence),
        }

    def test_a_run_without_a_frontier_has_none(self) -> None:
        assert self.latest() is None

    def test_the_frontier_comes_back_with_fence_and_instant(self) -> None:
        lease = self.lease()
        before = self.stores.runs.now()
        sent = self.frontier(
            model="m-1",
            history_handle=HistoryHandle(self.tenant, self.run_id, 1, 3, "aa"),
            pending=(replace(self.pending(), held=True, result=returned()),),
            iterations=1,
            revision="r",
            user="u-1",
            scopes=("read", "write"),
            guards=("g",),
        )
        self.put(sent, lease)
        found = self.stored()
        assert found.created_at is not None
        assert before <= found.created_at <= self.stores.runs.now()
        assert found == replace(sent, fence=lease.fence, created_at=found.created_at)
        assert found.encoded == sent.encoded

    def test_every_value_comes_back_as_it_went_in(self) -> None:
        lease = self.lease()
        for turn, (name, value) in enumerate(VALUES.items(), 1):
            message = Message("tool", (ToolResult("id", "book", value), TextPart("", {"signature": name})))
            sent = self.frontier(turn, messages=(message,), pending=(self.pending(arguments={"value": value}),))
            self.put(sent, lease)
            found = self.stored()
            assert found.encoded == sent.encoded, name
            assert same(found.pending[0].arguments, {"value": value}), name

    def test_a_higher_sequence_replaces(self) -> None:
        lease = self.lease()
        for turn in (1, 2):
            for boundary in CheckpointBoundary:
                self.put(self.frontier(turn, boundary), lease)
                assert self.stored().sequence == (turn, boundary.rank)

    def test_a_higher_fence_replaces_whatever_the_sequence(self) -> None:
        self.put(self.frontier(5), self.lease())
        second = self.take_over()
        self.put(self.frontier(2), second)
        assert (self.stored().turn, self.stored().fence) == (2, second.fence)

    def test_the_same_again_is_a_quiet_success(self) -> None:
        lease = self.lease()
        self.put(self.frontier(iterations=1), lease)
        before = self.dump()
        self.age(1)
        aged = self.stored().created_at
        self.put(self.frontier(iterations=1), lease)
        assert self.stored().created_at == aged
        assert self.stored().encoded == before["frontier"][0]

    def test_another_frontier_of_the_same_sequence_is_refused_and_the_first_stays(self) -> None:
        lease = self.lease()
        self.put(self.frontier(model="first"), lease)
        with raises(RunConflictError):
            self.put(self.frontier(model="second"), lease)
        assert self.stored().model == "first"

    def test_a_lower_sequence_is_refused_and_the_newer_stays(self) -> None:
        lease = self.lease()
        self.put(self.frontier(2, AFTER), lease)
        for lower in (self.frontier(2), self.frontier(1, AFTER)):
            with raises(RunConflictError):
                self.put(lower, lease)
        assert self.stored().sequence == (2, AFTER.rank)

    def test_of_frontiers_sent_at_once_one_is_stored_and_the_others_are_refused(self) -> None:
        lease = self.lease()
        sent = [self.frontier(model=f"model-{index}") for index in range(RACERS)]
        results = race(*(lambda item=item: self.put(item, lease) for item in sent))
        stored = [item for item, result in zip(sent, results, strict=True) if result is None]
        assert [type(result) for result in results if result is not None] == [RunConflictError] * (RACERS - 1)
        assert [item.model for item in stored] == [self.stored().model]

    def test_a_frontier_of_a_newer_format_is_named_and_left_as_it_is(self) -> None:
        self.put(self.frontier(format_version=CHECKPOINT_FORMAT + 1), self.lease())
        for _ in range(2):
            with raises(CheckpointFormatError) as caught:
                self.latest()
            assert (caught.error.found, caught.error.supported) == (CHECKPOINT_FORMAT + 1, CHECKPOINT_FORMAT)

    def test_a_frontier_that_cannot_be_read_is_damaged_and_left_as_it_is(self) -> None:
        damaged = self.frontier()
        vars(damaged)["encoded"] = '{"format":1,"frontier":{"agent":"bo'
        self.put(damaged, self.lease())
        for _ in range(2):
            with raises(CheckpointDamagedError):
                self.latest()

    def test_reading_changes_nothing(self) -> None:
        self.put(self.frontier(), self.lease())
        before = self.dump()
        self.latest()
        self.stores.checkpoints.latest("another", tenant=self.tenant)
        assert self.dump() == before

    def test_a_forgotten_frontier_is_gone(self) -> None:
        lease = self.lease()
        self.put(self.frontier(), lease)
        self.stores.checkpoints.forget(self.run_id, tenant=self.tenant, fence=lease.fence)
        assert self.latest() is None

    def test_forgetting_what_is_not_there_is_no_error(self) -> None:
        lease = self.lease()
        self.stores.checkpoints.forget(self.run_id, tenant=self.tenant, fence=lease.fence)
        assert self.latest() is None

    def test_forgetting_the_frontier_lowers_no_fence(self) -> None:
        lease = self.lease()
        self.put(self.frontier(), lease)
        self.stores.checkpoints.forget(self.run_id, tenant=self.tenant, fence=lease.fence)
        self.stores.leases.release(lease)
        assert self.lease().fence > lease.fence

    def test_another_tenants_frontier_is_never_found(self) -> None:
        self.put(self.frontier(), self.lease())
        store, other = self.stores.checkpoints, f"{self.tenant}-other"
        assert store.latest(self.run_id, tenant=other) is None
        lease = self.stores.leases.acquire(self.run_id, tenant=other, holder="w", ttl_seconds=60)
        store.forget(self.run_id, tenant=other, fence=lease.fence)
        assert self.latest() is not None
        store.put(replace(self.frontier(9), tenant=other), fence=lease.fence)
        assert self.stored().turn == 1

    def test_async_twins_do_the_same(self) -> None:
        lease, store = self.lease(), self.stores.checkpoints

        async def walk() -> tuple[Checkpoint | None, Checkpoint | None]:
            await store.aput(self.frontier(3), fence=lease.fence)
            with raises(RunConflictError):
                await store.aput(self.frontier(2), fence=lease.fence)
            found = await store.alatest(self.run_id, tenant=self.tenant)
            await store.aforget(self.run_id, tenant=self.tenant, fence=lease.fence)
            return found, await store.alatest(self.run_id, tenant=self.tenant)

        found, gone = asyncio.run(walk())
        assert found is not None
        assert (found.turn, gone) == (3, None)
