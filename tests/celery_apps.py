"""Celery apps of products, each for the length of a block."""

import contextlib
from collections.abc import Iterator
from typing import Any

from celery import Celery
from celery._state import _set_current_app
from celery.app import app_or_default

from adk_django.operations import wakeups


@contextlib.contextmanager
def celery_app(url: str, **conf: Any) -> Iterator[Celery]:
    """Yield a new app, the current one of this thread. Celery forgets it afterwards, in every thread."""
    wakeups._silent_until.clear()
    before, app = app_or_default(), Celery("product", broker=url, **conf)
    app.set_current()
    if url == "memory://":  # which all apps of this process share
        with app.connection_for_write() as connection, contextlib.closing(connection.SimpleQueue("adk")) as queue:
            queue.clear()
    try:
        yield app
    finally:
        app.close()
        _set_current_app(before)
