"""Settings of the suite's Celery workers: the suite's own, an app that registers their agents, and four variables.

WORKERS_BROKER=redis://...   the broker
WORKERS_ADK={...}            `ADK`, as JSON
WORKERS_CELERY={...}         settings of Celery without their prefix, as JSON
WORKERS_DATABASE={...}       what the settings of the database have besides, as JSON
"""

import json
import os

from tests import settings as suite
from tests.settings import *  # noqa: F403  # all of the suite's

INSTALLED_APPS = [*suite.INSTALLED_APPS, "tests.workers"]
_more = json.loads(os.environ.get("WORKERS_DATABASE", "{}"))
_options = {**suite.DATABASES["default"]["OPTIONS"], **_more.pop("OPTIONS", {})}
DATABASES = {**suite.DATABASES, "default": {**suite.DATABASES["default"], **_more, "OPTIONS": _options}}
ADK = json.loads(os.environ.get("WORKERS_ADK", "{}"))
CELERY_BROKER_URL = os.environ.get("WORKERS_BROKER", "")
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_WORKER_PREFETCH_MULTIPLIER = 1
globals().update(
    {f"CELERY_{name}": value for name, value in json.loads(os.environ.get("WORKERS_CELERY", "{}")).items()}
)
