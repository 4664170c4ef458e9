"""Wake-ups: a message that carries two ids and asks some worker to look at a run.

The row is the queue: losing or doubling a wake-up loses or doubles nothing. So one is sent once, within a few seconds
or not at all, and a broker that is down or silent fails nothing: the run stays due, and a sweep sends another.
"""

import functools
import logging
import time
from collections.abc import Iterable
from typing import Final

from celery import Celery
from celery.app import app_or_default
from django.db import transaction
from kombu.connection import Connection

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
    """Send a wake-up for each (tenant, run id), on a connection of its own; return how many went out.

    What does not go out is logged, and its broker left alone for a few seconds. A product that configured no broker has
    nobody to wake.
    """
    app, sent = product_app(), 0
    url = _broker_of(app)
    if not url:
        logger.debug("no broker is configured: no wake-up is sent")
        return 0
    if time.monotonic() < _silent_until.get(url, 0.0):  # many starts in one request do not wait for it each
        logger.warning("a wake-up was not sent, a sweep sends another: the broker did not answer just now")
        return 0
    try:
        with _connection(app) as connection:
            for tenant, run_id in runs:
                app.send_task(
                    TASK,
                    (tenant, run_id),
                    connection=connection,
                    queue=get_settings().celery_queue,
                    retry=False,
                    ignore_result=True,
                )
                sent += 1
    except Exception as error:  # noqa: BLE001  # whatever a broker raises, the runs stay due
        _silent_until[url] = time.monotonic() + SILENT_SECONDS
        logger.warning("a wake-up was not sent, a sweep sends another: %s", type(error).__name__)
    return sent


def _connection(app: Celery) -> Connection:
    connection: Connection = app.connection_for_write(_broker_of(app), connect_timeout=SECONDS)
    timeouts = _TIMEOUTS.get(connection.transport.driver_type, {})
    connection.transport_options = {**(connection.transport_options or {}), **timeouts}
    return connection
