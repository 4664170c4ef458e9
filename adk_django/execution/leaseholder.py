"""Leaseholder, and the one thread a process has that keeps its leases.

A tool that blocks its thread, or a coroutine that blocks its loop, keeps its lease: the keeper renews on a thread and
a database connection of its own. It lives only while a lease is held. Inside a TestCase, where another thread would
see no row, nothing is kept in the background and `Leaseholder.check` renews between the steps of a run.
"""

import contextlib
import logging
import os
import threading
import time
from types import TracebackType
from typing import Self

from adk_django.concurrency import close_connections, in_pool, off_loop
from adk_django.core.lease import DEFAULT_LEASE, LeasePolicy, RunLease
from adk_django.exceptions import AdkError, LeaseLostError, StoreUnavailableError, kept_error
from adk_django.stores.base import LeaseStore

logger = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class Leaseholder:
    """Hold the lease of a run: acquired on the way in unless it is handed one, renewed meanwhile, released on the way
    out.

    A sync and an async context manager. ``background=False`` renews only when `check` is called. Raise
    ResumeConflictError on the way in if another holds the run.
    """

    def __init__(
        self,
        leases: LeaseStore,
        run_id: str,
        *,
        tenant: str,
        holder: str,
        policy: LeasePolicy = DEFAULT_LEASE,
        floor: int = 0,
        background: bool = True,
    ) -> None:
        self.leases, self.policy, self.background = leases, policy, background
        self._ask = (run_id, tenant, holder, floor)
        self._lease: RunLease | None = None
        self._lost: AdkError | None = None
        self._confirmed = 0.0
        self._renewing = threading.Lock()

    @property
    def ids(self) -> dict[str, str]:
        """What a log line says of the run."""
        run_id, tenant, *_ = self._ask
        return {"tenant": tenant, "run_id": run_id}

    @property
    def lease(self) -> RunLease:
        """The lease as it was last confirmed. Raise LeaseLostError if there is none."""
        if self._lease is None:
            raise LeaseLostError("the lease is not held")
        return self._lease

    def acquire(self) -> RunLease:
        """Take the lease and begin to keep it."""
        run_id, tenant, holder, floor = self._ask
        before = time.monotonic()
        ttl = self.policy.ttl_seconds
        self._lease = self.leases.acquire(run_id, tenant=tenant, holder=holder, ttl_seconds=ttl, floor=floor)
        self._confirmed = before
        if self.background:
            _keeper.add(self)
        return self._lease

    def release(self) -> None:
        """Stop keeping the lease and give it back. A store that is down keeps it until it expires; that is logged."""
        _keeper.discard(self)
        with self._renewing:
            lease, self._lease = self._lease, None
        if lease is None:
            return
        for _ in range(2):  # what the slice left idle may have died meanwhile; the next connection is a new one
            with contextlib.suppress(StoreUnavailableError):
                return self.leases.release(lease)
        logger.warning("a lease could not be released and lapses by itself", extra=self.ids)

    def check(self) -> None:
        """Raise LeaseLostError if the lease is known to be lost, after renewing it here where it is due.

        Raise StoreUnavailableError if it could not be renewed for as long as it lasts: nothing more may be started.
        """
        if self._lost is not None:
            raise self._lost
        _ = self.lease
        if self.late or (not self.background and self.due()):
            self.renew()

    def keep(self) -> None:
        """Renew here where that is due and nothing does it in the background; a loss is for the next write to find
        out."""
        if not self.background and self.due():
            with contextlib.suppress(LeaseLostError, StoreUnavailableError):
                self.renew()

    @property
    def late(self) -> bool:
        """Whether the lease was last confirmed longer ago than it lasts, by elapsed time of this process."""
        return time.monotonic() - self._confirmed > self.policy.ttl_seconds

    def due(self) -> bool:
        """Return whether less than ``renew_within_seconds`` is left, by elapsed time of this process."""
        return time.monotonic() >= self.due_at

    @property
    def due_at(self) -> float:
        """The monotonic instant at which the next renewal falls due."""
        return self._confirmed + self.policy.ttl_seconds - self.policy.renew_within_seconds

    def renew(self, *, wait: bool = True) -> None:
        """Renew now. Only an answer of the store is a loss.

        Without ``wait`` raise StoreUnavailableError where somebody else is at the lease: not now.
        """
        if not self._renewing.acquire(blocking=wait):
            raise StoreUnavailableError("the lease is being renewed or released")
        try:
            before, lease = time.monotonic(), self.lease
            renew = self.leases.renew if wait else self.leases.renew_at_once
            try:
                self._lease = renew(lease, ttl_seconds=self.policy.ttl_seconds)
            except LeaseLostError as error:
                logger.warning("a lease was lost", extra=self.ids)
                self._lost = error
                raise
            self._confirmed = before
        finally:
            self._renewing.release()

    def __enter__(self) -> Self:
        if self._lease is None:
            self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with kept_error(error, "releasing the lease"):
            self.release()

    async def __aenter__(self) -> Self:
        if self._lease is None:
            await off_loop(self.acquire, lambda _: self.release())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with kept_error(error, "releasing the lease"):
            await in_pool(self.release)


class _Keeper:
    """Renews every lease of this process as it falls due. The thread ends when no lease is left."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._next: dict[Leaseholder, float] = {}
        self._thread: threading.Thread | None = None

    def add(self, holder: Leaseholder) -> None:
        with self._changed:
            self._next[holder] = holder.due_at
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="adk-keeper", daemon=True)
                self._thread.start()
            self._changed.notify()

    def discard(self, holder: Leaseholder) -> None:
        with self._changed:
            self._next.pop(holder, None)
            thread = self._thread if not self._next else None
            self._changed.notify()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout=RETRY_SECONDS)

    def _run(self) -> None:
        try:
            while due := self._wait():
                for holder in due:
                    self._renew(holder)
        finally:
            close_connections()

    def _wait(self) -> list[Leaseholder]:
        """Return the holders that are due, waiting until there are some; none if nothing is left to keep."""
        with self._changed:
            while self._next:
                now = time.monotonic()
                if due := [holder for holder, at in self._next.items() if at <= now]:
                    return due
                self._changed.wait(min(self._next.values()) - now)
            self._thread = None
            return []

    def _renew(self, holder: Leaseholder) -> None:
        again: float | None
        try:
            holder.renew(wait=False)  # one row that somebody has locked delays no other
            again = holder.due_at
        except LeaseLostError:  # or it was given back meanwhile
            again = None
        except Exception as error:  # noqa: BLE001  # whatever a store raises, it is no answer, and other leases are kept
            logger.warning("a renewal failed and is tried again: %s", type(error).__name__, extra=holder.ids)
            again = time.monotonic() + RETRY_SECONDS
        with self._changed:
            if again is None:
                self._next.pop(holder, None)
            elif holder in self._next:
                self._next[holder] = again


_keeper = _Keeper()


def _forget_keeper() -> None:
    global _keeper
    _keeper = _Keeper()


os.register_at_fork(after_in_child=_forget_keeper)
