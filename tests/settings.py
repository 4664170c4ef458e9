"""Settings of the suite and of the processes it starts.

Environment variables change the servers; tests/servers.py sets them for children:

    ADK_TEST_DATABASE_URL=postgresql://user@host/name   the PostgreSQL database behind the alias `postgres`
    ADK_TEST_SQLITE_NAME=path                           the SQLite file behind the alias `default`
    ADK_TEST_DEFAULT=postgres                           the alias whose database is `default` too
    ADK_TEST_POSTGRES=pool                              how PostgreSQL is connected to: one of tests.servers.SETUPS
    ADK_TEST_REDIS_URL=redis://host:port/db             the Redis behind the cache alias `adk`
"""

import os

from tests.servers import postgres_settings

SECRET_KEY = "for-the-suite-alone"
DEBUG = False
ROOT_URLCONF = "tests.urls"
STATIC_URL = "static/"
USE_TZ = True
TIME_ZONE = "UTC"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
# Users of the suite need no slow hash.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "adk_django",
]
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
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

# Neither database of the suite waits for the disk: a killed process loses nothing by it, only a power cut does.
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("ADK_TEST_SQLITE_NAME", ":memory:"),
        "OPTIONS": {"timeout": 20, "init_command": "PRAGMA synchronous=OFF"},
    },
    "postgres": postgres_settings(os.environ.get("ADK_TEST_DATABASE_URL", "")),
}
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
    "adk": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": os.environ.get("ADK_TEST_REDIS_URL", "redis://127.0.0.1:1/0"),  # the suite starts its own
    },
}
if "ADK_TEST_DEFAULT" in os.environ:
    DATABASES["default"] = {**DATABASES[os.environ["ADK_TEST_DEFAULT"]]}
