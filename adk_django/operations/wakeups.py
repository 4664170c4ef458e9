"""Wake-ups: a message that carries two ids and asks some worker to look at a run.

The row is the queue: losing or doubling a wake-up loses or doubles nothing. So one is sent once, within a few seconds
or not at all, and a broker that is down or silent fails nothing: the run stays due, and a sweep sends another.
"""

import functools
import logging
import os
import time
from collections.abc import Iterable
from typing import Final, cast

from celery import Celery
from celery.app import app_or_default
from django.db import transaction
from kombu.connection import Connection
from kombu.pools import ProducerPool

from adk_django.conf import get_settings
from adk_django.stores.bundle import Stores

logger = logging.getLogger(__name__)

SECONDS: Final = 2  # that a broker may take to answer
SILENT_SECONDS: Final = 10  # that one which did not is not asked again
TASK: Final = "adk_django.resume_run"

# Each transport has its own word for a socket's time-out, and some refuse a word they do not know.
_TIMEOUTS: Final = {
    "redis": {"socket_timeout": SECONDS, "socket_connect_timeout": SECONDS},
    "amqp": {"read_timeout": SECONDS, "write_timeout": SECONDS},
}

_pools: dict[tuple[int, str], ProducerPool] = {}  # by process and the broker's URL
_silent_until: dict[str, float] = {}  # by the broker's URL, in monotonic time


def product_app() -> Celery:
    """Return the product's Celery app: this thread's, else the only one of this process that names a broker.

    Celery keeps the current app by thread. The threads of a web server and of an event loop's pool, which imported no
    app, would otherwise ask one that nobody configured, and send nothing.
    """
    app = app_or_default()
    if _broker_of(app):
        return app
    from celery import _state  # which has no public name for it

    active: Iterable[Celery] = getattr(_state, "_get_active_apps", list)()
    named = [other for other in active if _broker_of(other)]
    if len(named) > 1:
        logger.warning("several Celery apps name a broker, and none is this thread's: call set_default() on one")
    return named[0] if len(named) == 1 else app


def _broker_of(app: Celery) -> str | None:
    url: str | None = app.conf.broker_write_url or app.conf.broker_url
    return url


def configured() -> bool:
    """Return whether the product's Celery app names a broker."""
    return bool(_broker_of(product_app()))


def wake(stores: Stores, tenant: str, run_id: str) -> None:
    """Wake a worker for a run once the transaction that is open on the run's database, if any, has committed.

    Runs of stores that no other process sees are nobody else's to carry on: nothing is sent.
    """
    alias = getattr(stores.runs, "alias", None)
    if alias is not None:
        transaction.on_commit(functools.partial(send, [(tenant, run_id)]), using=alias, robust=True)


def send(runs: Iterable[tuple[str, str]]) -> int:
    """Send a wake-up for each (tenant, run id), on a pooled connection; return how many went out.

    What does not go out is logged, and its broker left alone for a few seconds. A product that configured no broker has
    nobody to wake.
    """
    app, left = product_app(), list(runs)
    url, asked = _broker_of(app), len(left)
    if not url:
        logger.debug("no broker is configured: no wake-up is sent")
        return 0
    if time.monotonic() < _silent_until.get(url, 0.0):  # many starts in one request do not wait for it each
        logger.warning("a wake-up was not sent, a sweep sends another: the broker did not answer just now")
        return 0
    try:
        pool = _producers(app, url)
        while not _sent(app, pool, left):
            logger.debug("a pooled connection to the broker had closed: the wake-up is sent on a new one")
    except Exception as error:  # noqa: BLE001  # whatever a broker raises, the runs stay due
        _silent_until[url] = time.monotonic() + SILENT_SECONDS
        logger.warning("a wake-up was not sent, a sweep sends another: %s", type(error).__name__)
    return asked - len(left)


def _sent(app: Celery, pool: ProducerPool, left: list[tuple[str, str]]) -> bool:
    """Send a wake-up for each of ``left``, which keeps what did not go out; return False where the connection had been
    open before and broke, so that another is worth trying."""
    with pool.acquire(block=True, timeout=SECONDS) as producer:
        connection = cast(Connection, producer.connection)  # a producer of a pool has one
        reused = connection.connected
        try:
            while left:
                app.send_task(
                    TASK,
                    left[0],
                    producer=producer,
                    queue=get_settings().celery_queue,
                    retry=False,
                    ignore_result=True,
                )
                del left[0]
        except Exception:
            connection.collect()  # whoever gets it next opens it anew
            if not reused:
                raise
            return False
    return True


def _producers(app: Celery, url: str) -> ProducerPool:
    """Return this process's producers, ``broker_pool_limit`` at most. Each waits ``SECONDS`` for an answer."""
    key = os.getpid(), url  # a fork opens its own connections, and closes none of its parent's
    if key not in _pools:
        connection: Connection = app.connection_for_write(url, connect_timeout=SECONDS)
        timeouts = _TIMEOUTS.get(connection.transport.driver_type, {})
        connection.transport_options = {**(connection.transport_options or {}), **timeouts}
        limit = app.conf.broker_pool_limit
        _pools.setdefault(key, ProducerPool(connection.Pool(limit=limit), limit=limit))
    return _pools[key]
