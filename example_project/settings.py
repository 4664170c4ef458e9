"""Settings of the example: a small travel product whose agent books flights.

These environment variables change them:

    EXAMPLE_DATABASE_URL=postgresql://user:password@host:5432/travel    PostgreSQL instead of SQLite
    EXAMPLE_SQLITE=path                                                 another SQLite file than db.sqlite3
    EXAMPLE_LEASE_SECONDS=60                                            how long a dead worker's lease stands
    AIRLINE_URL=http://127.0.0.1:8765                                   where the airline listens
    EXAMPLE_BROKER_URL=redis://127.0.0.1:6379/0                         a broker; without one nobody is woken
    EXAMPLE_SECRET_KEY=text                                             another SECRET_KEY
"""

import os
from pathlib import Path
from typing import Any

BASE_DIR = Path(__file__).resolve().parent.parent

# Good for a developer's machine and nothing else.
DEBUG = True
SECRET_KEY = os.environ.get("EXAMPLE_SECRET_KEY", "travel-example-key-that-protects-nothing")
ALLOWED_HOSTS: list[str] = []

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "adk_django",
    "example_project.travel",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]


def _sqlite() -> dict[str, Any]:
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("EXAMPLE_SQLITE") or BASE_DIR / "db.sqlite3",
        "OPTIONS": {
            # WAL: readers (the admin) do not hold up the worker that writes, nor it them.
            # FULL, not the NORMAL often advised beside WAL: under NORMAL a power loss may take back the last commits.
            # Were one of them the claim of a booking, the run would wake up and read that the booking never ran.
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL",
            # Take the write lock when a transaction starts: one that reads first and then wants to write is refused
            # with "database is locked" at once, however long it would have been ready to wait.
            "transaction_mode": "IMMEDIATE",
            # Seconds to wait for another process's write.
            "timeout": 20,
        },
    }


def _postgresql(url: str) -> dict[str, Any]:
    from psycopg.conninfo import conninfo_to_dict

    given: dict[str, Any] = conninfo_to_dict(url)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": given.pop("dbname", ""),
        "USER": given.pop("user", ""),
        "PASSWORD": given.pop("password", ""),
        "HOST": given.pop("host", ""),
        "PORT": str(given.pop("port", "")),
        # A prepared statement lives as long as its connection.
        "CONN_MAX_AGE": 600,
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": {
            # Whatever else the URL asks for, sslmode say.
            **given,
            # Only the two together let PostgreSQL keep a statement's plan, here from its sixth use on; a turn's commits
            # are the same few statements each time. Leave both out behind a pooler that hands out a server connection
            # per transaction: there the prepared statement may be on another one.
            "server_side_binding": True,
            "prepare_threshold": 5,
        },
    }


_database_url = os.environ.get("EXAMPLE_DATABASE_URL")
DATABASES = {"default": _postgresql(_database_url) if _database_url else _sqlite()}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
STATIC_URL = "static/"

AIRLINE_URL = os.environ.get("AIRLINE_URL", "http://127.0.0.1:8765")

# Without a broker nobody is woken: runs are carried on by hand, as the demo does it.
CELERY_BROKER_URL = os.environ.get("EXAMPLE_BROKER_URL")
# A task that its worker does not acknowledge in time is delivered again: longer than any slice, in seconds.
CELERY_BROKER_TRANSPORT_OPTIONS = {"visibility_timeout": 3_600}
CELERY_TASK_TIME_LIMIT = 1_800
# What broker and worker forgot is found here.
CELERY_BEAT_SCHEDULE = {
    "adk": {"task": "adk_django.sweep", "schedule": 10, "options": {"queue": "adk"}},
    "adk-prune": {"task": "adk_django.prune", "schedule": 300, "options": {"queue": "adk"}},
}

_lease_seconds = float(os.environ.get("EXAMPLE_LEASE_SECONDS", "60"))
ADK = {
    # Renewed at every third of it: a renewal may fail once. A dead worker's run stands still for the rest of it.
    "LEASES": {"ttl_seconds": _lease_seconds, "renew_within_seconds": _lease_seconds * 2 / 3},
}
