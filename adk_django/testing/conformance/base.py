"""What the suites of all stores share: the hooks a store's author fills in, and a run to try things on."""

# ruff: noqa: S101 (a suite is made of asserts)

import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from adk_django.concurrency import in_thread
from adk_django.core import codec
from adk_django.core.checkpoint import Checkpoint, CheckpointBoundary, HistoryHandle, PendingCall
from adk_django.core.effects import Claim, EffectClass, Outcome, OutcomeKind, Slot
from adk_django.core.lease import RunLease
from adk_django.core.messages import Message
from adk_django.core.record import RunRecord, Writes, Written
from adk_django.exceptions import LeaseLostError
from adk_django.stores.bundle import Stores

E = TypeVar("E", bound=BaseException)

TTL_SECONDS = 60.0
LIMIT_SECONDS = 300.0
LONG_SECONDS = 3_600.0  # past every lease and every deadline of the suites
FOR_EVER_SECONDS = 400 * 86_400.0
RACERS = 8
WAIT_SECONDS = 60.0

ONE, TWO, THREE = Slot(1, 1), Slot(1, 2), Slot(1, 3)
BEFORE, AFTER = CheckpointBoundary.AFTER_MODEL_CALL, CheckpointBoundary.AFTER_TOOL_RESULT


class Caught(Generic[E]):
    """What `raises` caught: ``error``, once the block has ended."""

    error: E


@contextmanager
def raises(kind: type[E], what: str = "") -> Iterator[Caught[E]]:
    """Fail unless the block raises ``kind``."""
    caught: Caught[E] = Caught()
    try:
        yield caught
    except kind as error:
        caught.error = error
    else:
        raise AssertionError(f"nothing was raised where {kind.__name__} was expected {what}".rstrip())


_making = threading.RLock()


if TYPE_CHECKING:
    _MadeOnce = cached_property
else:

    class _MadeOnce(cached_property):
        """A cached property that racing threads find the same: from Python 3.12 on the plain one may be made twice."""

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            with _making:
                return super().__get__(instance, owner)


def race(*calls: Callable[[], Any]) -> list[Any]:
    """Make all calls at once, each in a thread of its own; return what each returned or raised."""
    barrier = threading.Barrier(len(calls))

    def started(call: Callable[[], Any]) -> Callable[[], Any]:
        def run() -> Any:
            barrier.wait(WAIT_SECONDS)
            try:
                return call()
            except Exception as error:  # noqa: BLE001  # handed to the test, which looks at it
                return error

        return run

    works = [in_thread(started(call)) for call in calls]
    return [work.wait(WAIT_SECONDS) for work in works]


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal and of one type, all the way down: nan and nan are, 1 and 1.0 are not."""
    return codec.encode(one) == codec.encode(other)


class StoreConformance(ABC):
    """The hooks of every suite. A mixin for a test class of pytest, or for Django's TransactionTestCase.

    The suites race threads and await twins, so what is written must be committed: no TestCase. Each test has a tenant
    and a run id of its own, so the place may be shared and keep what earlier tests left.
    """

    @abstractmethod
    def make_stores(self) -> Stores:
        """Return the stores to test, as a bundle: fences come from its lease store. Called once a test."""

    @abstractmethod
    def age(self, seconds: float) -> None:
        """Let so much time pass in the stores: move their clock on, or every instant they keep back."""

    @abstractmethod
    def forget_run(self, run_id: str, *, tenant: str) -> None:
        """Erase a run as forgetting it does: its id cannot be used again."""

    @_MadeOnce
    def stores(self) -> Stores:
        """The stores of this test."""
        return self.make_stores()

    @_MadeOnce
    def tenant(self) -> str:
        """The tenant of this test."""
        return f"acme-{uuid.uuid4().hex[:12]}"

    @_MadeOnce
    def run_id(self) -> str:
        """The run of this test."""
        return f"run-{uuid.uuid4().hex}"

    @property
    def ids(self) -> dict[str, Any]:
        """The run as keyword arguments."""
        return {"tenant": self.tenant, "run_id": self.run_id}

    handle: HistoryHandle | None = None  # the transcript that `dump` reads

    def row(self, **changes: Any) -> RunRecord:
        """Return a new run row."""
        given = {**self.ids, "agent": "booking", "input": "book a seat", "salt": "00" * 32, **changes}
        return RunRecord(**given)

    def lease(self, holder: str = "worker-1", ttl_seconds: float = TTL_SECONDS) -> RunLease:
        """Acquire the run, whose row is made where there is none."""
        self.stores.runs.create(self.row())
        return self.stores.leases.acquire(self.run_id, tenant=self.tenant, holder=holder, ttl_seconds=ttl_seconds)

    def commit(self, lease: RunLease, **writes: Any) -> Written:
        """Commit under ``lease``."""
        return self.stores.commit(Writes(**writes), lease=lease)

    def take_over(self, holder: str = "worker-2") -> RunLease:
        """Let the lease expire and acquire the run as another worker."""
        self.age(LONG_SECONDS)
        return self.lease(holder)

    def frontier(self, turn: int = 1, boundary: CheckpointBoundary = BEFORE, **changes: Any) -> Checkpoint:
        """Return a frontier of the run."""
        return Checkpoint(**{**self.ids, "agent": "booking", "boundary": boundary, "turn": turn, **changes})

    def pending(self, slot: Slot = ONE, arguments: Any = None) -> PendingCall:
        """Return a pending call."""
        return PendingCall(slot, "call_1", "book", {} if arguments is None else arguments, key=f"key-{slot}")

    def claim(self, slot: Slot = ONE, token: str | None = "token-1", **changes: Any) -> Claim:  # noqa: S107
        """Return a claim of a call, as a worker sends it."""
        given = {
            **self.ids,
            "slot": slot,
            "key": f"key-{slot}",
            "tool": "book",
            "effect": EffectClass.EFFECTFUL,
            "digest": "d1",
            "token": token,
            "limit_seconds": LIMIT_SECONDS,
        }
        return Claim(**{**given, **changes})

    def found(self, slot: Slot = ONE) -> Claim | None:
        """Return the claim of a slot as the store has it."""
        claims = self.stores.idempotency.look_up(self.run_id, tenant=self.tenant)
        return next((claim for claim in claims if claim.slot == slot), None)

    def latest(self) -> Checkpoint | None:
        """Return the run's frontier."""
        return self.stores.checkpoints.latest(self.run_id, tenant=self.tenant)

    def record_of(self) -> RunRecord:
        """Return the run's row."""
        row = self.stores.runs.get(self.run_id, tenant=self.tenant)
        assert row is not None
        return row

    def dump(self) -> Mapping[str, Any]:
        """Return everything the stores hold of the run, as far as their readers tell."""
        stores, frontier, where = self.stores, self.latest(), {"tenant": self.tenant}
        return {
            "frontier": frontier and (frontier.encoded, frontier.fence, frontier.created_at),
            "lease": stores.leases.held(self.run_id, **where),
            "claims": stores.idempotency.look_up(self.run_id, **where),
            "row": stores.runs.get(self.run_id, **where),
            "requests": stores.runs.approvals(self.run_id, **where),
            "transcript": self.handle and stores.history.fetch(self.handle, **where),
        }


def returned(value: Any = "seat 12A") -> Outcome:
    """Return the outcome of a call that returned ``value``."""
    return Outcome.of(OutcomeKind.RETURNED, value)


def said(*texts: str) -> tuple[Message, ...]:
    """Return one message of the user for each text."""
    return tuple(Message.of("user", text) for text in texts)


class FencedConformance(StoreConformance):
    """What the fence means to a store's writes."""

    @abstractmethod
    def fenced_writes(self, lease: RunLease) -> Mapping[str, Callable[[int], Any]]:
        """Prepare the run under ``lease`` and return every write of the store that takes a fence, by name."""

    def _refused(self, writes: Mapping[str, Callable[[int], Any]], fence: int) -> None:
        before = self.dump()
        for name, write in writes.items():
            with raises(LeaseLostError, name):
                write(fence)
            assert self.dump() == before, f"{name} was refused and changed something"

    def test_a_superseded_holder_writes_nothing(self) -> None:
        lease = self.lease()
        writes = self.fenced_writes(lease)
        self.take_over()
        self._refused(writes, lease.fence)

    def test_a_superseded_holder_writes_nothing_after_the_next_one_released(self) -> None:
        lease = self.lease()
        writes = self.fenced_writes(lease)
        self.stores.leases.release(self.take_over())
        self._refused(writes, lease.fence)

    def test_a_holder_writes_nothing_after_its_own_release(self) -> None:
        lease = self.lease()
        writes = self.fenced_writes(lease)
        self.stores.leases.release(lease)
        self._refused(writes, lease.fence)

    def test_a_holder_writes_under_an_expired_lease_that_nobody_took_over(self) -> None:
        lease = self.lease()
        writes = self.fenced_writes(lease)
        self.age(LONG_SECONDS)
        for write in writes.values():
            write(lease.fence)
