"""The suite of a history store."""

# ruff: noqa: S101 (a suite is made of asserts)

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from adk_django.core.checkpoint import HistoryHandle
from adk_django.core.lease import RunLease
from adk_django.core.messages import BinaryPart, Message, OpaquePart, TextPart, ToolCall, ToolResult
from adk_django.exceptions import HistoryUnavailableError
from adk_django.testing.conformance.base import FencedConformance, raises, said, same
from adk_django.testing.conformance.values import VALUES

MANY = 250  # more than any store writes at once


class HistoryStoreConformance(FencedConformance):
    """What a history store promises."""

    @property
    def start(self) -> HistoryHandle:
        """The handle of nothing yet."""
        return HistoryHandle(self.tenant, self.run_id)

    def append(self, lease: RunLease, handle: HistoryHandle, *texts: str) -> HistoryHandle:
        """Append one message for each text."""
        return self.stores.history.append(handle, said(*texts), fence=lease.fence)

    def texts(self, handle: HistoryHandle) -> list[str]:
        """Return what the store has behind ``handle``."""
        return [message.text for message in self.stores.history.fetch(handle, tenant=self.tenant)]

    def unavailable(self, handle: HistoryHandle, tenant: str | None = None) -> None:
        """Fail unless ``handle`` is refused, by name."""
        with raises(HistoryUnavailableError) as caught:
            self.stores.history.fetch(handle, tenant=tenant or self.tenant)
        assert caught.error.handle == handle

    def fenced_writes(self, lease: RunLease) -> Mapping[str, Callable[[int], Any]]:
        self.handle = self.append(lease, self.start, "a", "b")
        store, handle, shorter = self.stores.history, self.handle, self.start.extended(said("a"))
        return {
            "append": lambda fence: store.append(handle, said("c"), fence=fence),
            "append in place of a tail": lambda fence: store.append(shorter, said("x", "y"), fence=fence),
        }

    def test_the_handle_that_comes_back_is_extended_by_what_was_added(self) -> None:
        lease = self.lease()
        first = self.append(lease, self.start, "a", "b")
        assert first == self.start.extended(said("a", "b"))
        assert self.append(lease, first, "c") == first.extended(said("c"))

    def test_a_conversation_that_grew_in_steps_comes_back_whole_and_in_order(self) -> None:
        lease, handle = self.lease(), self.start
        for number in range(5):
            handle = self.append(lease, handle, *(f"{number}.{index}" for index in range(number)))
        assert self.texts(handle) == [f"{number}.{index}" for number in range(5) for index in range(number)]

    def test_a_long_delta_comes_back_whole(self) -> None:
        lease, texts = self.lease(), [f"message {index}" for index in range(MANY)]
        assert self.texts(self.append(lease, self.start, *texts)) == texts

    def test_every_value_comes_back_as_it_went_in(self) -> None:
        lease = self.lease()
        messages = []
        for name, value in VALUES.items():
            extra = {"signature": value, "name": name}
            call, result = ToolCall("id", "book", {"value": value}, extra), ToolResult("id", "book", value, True)
            messages.append(Message("assistant", (TextPart("", extra), call, OpaquePart({"v": value})), extra))
            messages.append(Message("tool", (result, BinaryPart(b"\x00\xff", "image/png"))))
        handle = self.stores.history.append(self.start, messages, fence=lease.fence)
        found = self.stores.history.fetch(handle, tenant=self.tenant)
        assert [message.encoded for message in found] == [message.encoded for message in messages]
        for sent, message in zip(messages, found, strict=True):
            assert same(message.to_data(), sent.to_data())

    def newest(self, limit: int, tenant: str | None = None) -> list[str]:
        """Return the last messages that are stored."""
        found = self.stores.history.newest(self.run_id, tenant=tenant or self.tenant, limit=limit)
        return [message.text for message in found]

    def test_the_newest_messages_are_found_without_a_handle_oldest_first(self) -> None:
        lease = self.lease()
        assert self.newest(10) == []
        handle = self.append(lease, self.start, "a", "b")
        self.append(lease, handle, "c")
        assert self.newest(10) == ["a", "b", "c"]
        assert self.newest(2) == ["b", "c"]
        assert self.newest(10, tenant=f"{self.tenant}-other") == []

    def test_a_tail_that_was_replaced_is_no_newest_message(self) -> None:
        lease = self.lease()
        handle = self.append(lease, self.start, "a")
        self.append(lease, handle, "b", "c")
        self.append(lease, handle, "d")
        assert self.newest(10) == ["a", "d"]

    def test_the_length_of_the_handle_is_the_truth(self) -> None:
        lease = self.lease()
        first = self.append(lease, self.start, "a")
        self.append(lease, first, "b", "c")
        assert self.texts(first) == ["a"]
        assert self.texts(self.start) == []

    def test_what_lies_behind_the_handle_is_an_orphan_tail_and_is_replaced(self) -> None:
        lease = self.lease()
        first = self.append(lease, self.start, "a")
        orphan = self.append(lease, first, "b", "c", "d")
        handle = self.append(lease, first, "x", "y")
        assert self.texts(handle) == ["a", "x", "y"]
        self.unavailable(orphan)

    def test_an_orphan_tail_of_a_dead_worker_is_replaced_by_the_next(self) -> None:
        lease = self.lease()
        first = self.append(lease, self.start, "a")
        orphan = self.append(lease, first, "b", "c")
        second = self.take_over()
        handle = self.append(second, first, "x")
        assert self.texts(handle) == ["a", "x"]
        self.unavailable(orphan)
        assert self.texts(self.append(second, handle, "y")) == ["a", "x", "y"]

    def test_the_same_again_leaves_one_copy(self) -> None:
        lease = self.lease()
        first = self.append(lease, self.start, "a")
        assert self.append(lease, first, "b") == self.append(lease, first, "b")
        assert self.texts(first.extended(said("b"))) == ["a", "b"]

    def test_nothing_is_appended_behind_what_is_not_there(self) -> None:
        lease = self.lease()
        handle = self.handle = self.append(lease, self.start, "a", "b")
        before = self.dump()
        for wrong in (
            handle.extended(said("never stored")),
            replace(handle, digest="0" * 64),
            replace(handle, generation=2),
            replace(handle, length=1),
        ):
            with raises(HistoryUnavailableError):
                self.append(lease, wrong, "x")
        assert self.dump() == before

    def test_a_conversation_that_is_shorter_than_its_handle_is_unavailable(self) -> None:
        handle = self.append(self.lease(), self.start, "a")
        self.unavailable(handle.extended(said("b")))

    def test_a_conversation_that_was_changed_is_unavailable(self) -> None:
        lease = self.lease()
        handle = self.append(lease, self.start, "a", "b", "c")
        self.append(lease, self.start, "a", "B", "c")
        self.unavailable(handle)

    def test_a_conversation_of_nobody_is_unavailable(self) -> None:
        self.unavailable(self.start.extended(said("a")))

    def test_generations_are_apart(self) -> None:
        lease = self.lease()
        first = self.append(lease, self.start, "a")
        second = self.append(lease, replace(self.start, generation=2), "b", "c")
        assert (self.texts(first), self.texts(second)) == (["a"], ["b", "c"])

    def test_another_tenants_conversation_is_never_found(self) -> None:
        handle, other = self.append(self.lease(), self.start, "a"), f"{self.tenant}-other"
        self.unavailable(handle, other)
        self.unavailable(replace(handle, tenant=other), other)
        theirs = self.stores.leases.acquire(self.run_id, tenant=other, holder="w", ttl_seconds=60)
        self.append(theirs, HistoryHandle(other, self.run_id), "x", "y")
        assert self.texts(handle) == ["a"]

    def test_fetching_changes_nothing(self) -> None:
        lease = self.lease()
        self.handle = self.append(lease, self.start, "a", "b")
        before = self.dump()
        self.texts(self.start.extended(said("a")))
        self.unavailable(self.handle.extended(said("c")))
        assert self.dump() == before

    def test_async_twins_do_the_same(self) -> None:
        lease, store = self.lease(), self.stores.history

        async def walk() -> tuple[Message, ...]:
            handle = await store.aappend(self.start, said("a", "b"), fence=lease.fence)
            with raises(HistoryUnavailableError):
                await store.afetch(handle, tenant="another")
            fetched: tuple[Message, ...] = await store.afetch(handle, tenant=self.tenant)
            return fetched

        assert asyncio.run(walk()) == said("a", "b")
