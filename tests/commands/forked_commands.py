"""Runs manage.py in forks of one process that Django is set up in: real processes and exit codes, quickly.

Reads one request a line, {"args": [...], "env": {...}, "files": [out, err]}, and answers each with an exit code.
"""

import importlib
import json
import os
import signal
import sys

import django
from django.conf import settings
from django.core.management import execute_from_command_line, load_command_class
from django.db import connections

from tests import settings as suite
from tests.commands import settings as ours


def become_a_command(request: dict) -> None:
    """Turn this fork into the process that was asked for: it has opened no connection and read no setting of ours."""
    os.environ.clear()
    os.environ.update(request["env"])
    importlib.reload(suite)
    importlib.reload(ours)
    settings.ADK, settings.DATABASES = ours.ADK, ours.DATABASES
    connections.__dict__.pop("settings", None)
    connections.__init__()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever it was to the suite
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for fd, path in enumerate(request["files"], 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), fd)
    sys.argv = ["manage.py", *request["args"]]
    execute_from_command_line(sys.argv)


def serve() -> None:
    """Fork for every request; a fork leaves through here as any command does."""
    while line := sys.stdin.readline():
        if (pid := os.fork()) == 0:
            return become_a_command(json.loads(line))
        _, status = os.waitpid(pid, 0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(status)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    django.setup()
    importlib.import_module("adk_django.stores.orm")
    for name in ("adk_run", "adk_inspect", "adk_resume", "adk_settle", "adk_decide", "adk_cancel"):
        load_command_class("adk_django", name)  # so that no fork has to import it
    serve()
