"""Sync first, async twins that come free: how a sync callable is offered to a running event loop.

Store I/O of async callers runs in a bounded pool of its own, never in asgiref's thread-sensitive one, which a single
slow call would block for the whole process.
"""

import asyncio
import contextvars
import functools
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar
from weakref import WeakSet

from asgiref.sync import sync_to_async
from django.core.exceptions import SynchronousOnlyOperation
from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper

P = ParamSpec("P")
R = TypeVar("R")
S = TypeVar("S")

_lock = threading.Lock()
_pool: ThreadPoolExecutor | None = None
_pooled: WeakSet[BaseDatabaseWrapper] = WeakSet()  # what the threads of the pool have opened


def refuse_on_loop(name: str) -> None:
    """Raise SynchronousOnlyOperation if an event loop runs in this thread, naming the twin of ``name``."""
    if os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE"):
        return
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    head, dot, last = name.rpartition(".")
    raise SynchronousOnlyOperation(
        f"{name} does I/O and an event loop is running here: await {head}{dot}a{last} instead"
    )


def sync_only(function: Callable[P, R]) -> Callable[P, R]:
    """Make ``function`` refuse a running event loop before it does anything."""

    @functools.wraps(function)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_on_loop(function.__qualname__)
        return function(*args, **kwargs)

    return guarded


def twin(method: Callable[Concatenate[S, P], R]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, R]]:
    """Return the async twin of a sync method: whatever overrides it is what the twin runs."""
    name = method.__name__

    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = await in_pool(getattr(self, name), *args, **kwargs)
        return result

    call.__name__ = f"a{name}"
    call.__qualname__ = f"a{name}"
    call.__doc__ = f"Async twin of `{name}`."
    return call


def twin_of(function: Callable[P, R]) -> Callable[P, Coroutine[Any, Any, R]]:
    """Return the async twin of a sync function."""

    async def call(*args: P.args, **kwargs: P.kwargs) -> R:
        return await in_pool(function, *args, **kwargs)

    call.__name__ = call.__qualname__ = f"a{function.__name__}"
    call.__doc__ = f"Async twin of `{function.__name__}`."
    return call


class SyncVerbs:
    """A class whose ``verbs`` refuse a running event loop, in every subclass that defines them."""

    verbs: tuple[str, ...] = ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for name in cls.verbs:
            defined = cls.__dict__.get(name)
            if defined is not None and not getattr(defined, "__isabstractmethod__", False):
                setattr(cls, name, sync_only(defined))


async def in_pool(function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    """Run a sync callable in the bounded pool, with this task's context variables, and return its result.

    Inside a TestCase it runs in the test's own thread, the only one whose connection sees the test's rows.
    """
    if await _tested():
        return await sync_to_async(function)(*args, **kwargs)
    context = contextvars.copy_context()
    call = functools.partial(context.run, _closing, function, *args, **kwargs)
    return await asyncio.get_running_loop().run_in_executor(_get_pool(), call)


async def off_loop(function: Callable[[], R], late: Callable[[R], None] | None = None) -> R:
    """Run a sync callable that may take long on a thread of its own, not in the stores' pool, and return its result.

    Where the task is cancelled meanwhile, ``late`` is handed what it still returns.
    """
    if await _tested():
        return await sync_to_async(function)()
    return await in_thread(function, late).await_(None)


async def _tested() -> bool:
    """Return whether this is a TestCase's task, without importing Django's test environment where it is not set up."""
    utils = sys.modules.get("django.test.utils")
    return utils is not None and hasattr(utils._TestState, "saved_data") and await sync_to_async(in_testcase)()


def _closing(function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
    try:
        return function(*args, **kwargs)
    finally:
        for connection in connections.all(initialized_only=True):
            _pooled.add(connection)
            if getattr(connection, "is_in_memory_db", bool)():
                BaseDatabaseWrapper.close(connection)
            else:
                connection.close_if_unusable_or_obsolete()


def close_connections() -> None:
    """Close the connections of this thread, which ends.

    Those to a database in memory too: Django's own `close` spares them, and a suite's database lives on in its thread.
    """
    for connection in connections.all(initialized_only=True):
        BaseDatabaseWrapper.close(connection)


def _get_pool() -> ThreadPoolExecutor:
    global _pool
    with _lock:
        if _pool is None:
            from adk_django.conf import get_settings

            _pool = ThreadPoolExecutor(get_settings().store_threads, thread_name_prefix="adk-store")
        return _pool


def forget_pool() -> None:
    """Let go of the pool: its threads end what they are at, and their connections are closed."""
    global _pool
    with _lock:
        pool, _pool = _pool, None
    if pool is not None:
        pool.shutdown()
        while _pooled:  # no thread is left that uses them
            connection = _pooled.pop()
            connection.inc_thread_sharing()
            BaseDatabaseWrapper.close(connection)


def _after_fork() -> None:
    global _lock, _pool, _pooled
    _lock, _pool, _pooled = threading.Lock(), None, WeakSet()


os.register_at_fork(after_in_child=_after_fork)


def in_testcase() -> bool:
    """Return whether this thread is inside a TestCase, whose rows no other thread or connection can see."""
    open_connections = connections.all(initialized_only=True)
    blocks = (block for connection in open_connections for block in connection.atomic_blocks)
    return any(block._from_testcase for block in blocks)  # type: ignore[attr-defined]  # as Django's own check does


class Left(Exception):  # noqa: N818  # not an error: the work goes on, nobody waits for it
    """The work was left at its time limit; it may still be in progress."""


def in_thread(function: Callable[[], R], late: Callable[[R], None] | None = None) -> "Work[R]":
    """Start ``function`` on a daemon thread of its own, whose database connections are closed behind it.

    A thread for each call, not a pool: what is left at its time limit holds no slot and does not keep the process
    alive. ``late`` is handed the result of work that was left.
    """
    work: Work[R] = Work(contextvars.copy_context(), function, late)
    threading.Thread(target=work.run, name=f"adk-work-{work.name}", daemon=True).start()
    return work


class Work(Generic[R]):
    """A call in progress on a thread of its own."""

    def __init__(
        self, context: contextvars.Context, function: Callable[[], R], late: Callable[[R], None] | None
    ) -> None:
        self._context, self._function, self._late = context, function, late
        self._lock = threading.Lock()
        self._left = False
        self.future: Future[R] = Future()
        self.name = getattr(function, "__name__", "call")

    def run(self) -> None:
        """Do the work; called on its thread."""
        try:
            result = self._context.run(self._function)
        except BaseException as error:  # noqa: BLE001  # handed to whoever waits, KeyboardInterrupt included
            self.future.set_exception(error)
        else:
            with self._lock:
                left = self._left
                if not left:
                    self.future.set_result(result)
            if left and self._late is not None:
                self._late(result)
        finally:
            close_connections()

    def _leave(self) -> bool:
        """Wait no longer; return whether there is no result yet."""
        with self._lock:
            self._left = not self.future.done()
        return self._left

    def _interrupted(self) -> None:
        """Whoever waited is gone: what came, or still comes, is late."""
        if self._leave() or self._late is None or self.future.exception() is not None:
            return
        late, result = self._late, self.future.result()
        in_thread(lambda: late(result))

    def wait(self, seconds: float | None) -> R:
        """Return the result. Raise `Left` if it does not come within ``seconds``."""
        try:
            return self.future.result(seconds)
        except FutureTimeoutError:
            if self._leave():
                raise Left from None
            return self.future.result()
        except BaseException as error:
            if not self.future.done() or self.future.exception() is not error:
                self._interrupted()
            raise

    async def await_(self, seconds: float | None) -> R:
        """Async twin of `wait`."""
        waiting = asyncio.wrap_future(self.future)
        try:
            done, _ = await asyncio.wait({waiting}, timeout=seconds)
        except BaseException:
            self._interrupted()
            raise
        if not done and self._leave():
            raise Left
        return await waiting


async def gather_limited(limit: int, work: Sequence[Callable[[], Awaitable[R]]]) -> list[R]:
    """Await the results of ``work`` in order, at most ``limit`` in progress at once.

    Where one raises, nothing more is started; what is in progress is awaited before the first error is raised.
    """
    gate, errors = asyncio.Semaphore(limit), list[BaseException]()

    async def one(start: Callable[[], Awaitable[R]]) -> R:
        async with gate:
            if errors:
                raise errors[0]
            try:
                return await start()
            except BaseException as error:
                errors.append(error)
                raise

    results = await asyncio.gather(*(one(start) for start in work), return_exceptions=True)
    if errors:
        raise errors[0]
    return [result for result in results if not isinstance(result, BaseException)]
