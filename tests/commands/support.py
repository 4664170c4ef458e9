"""Commands in processes of their own, and what stands in the database before and after them."""

import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from django.apps import apps

from adk_django.agents import Agent
from adk_django.core.record import RunStatus
from adk_django.exceptions import ProviderError
from adk_django.execution.runner import AgentRunner
from tests.commands.product_app.definitions import AGENTS
from tests.servers import PROJECT_DIR, child_env

TENANT = "acme"


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Its output as the one JSON object it must be; nothing else may be said."""
        assert self.out.isascii()
        assert self.err == ""
        found: dict[str, Any] = json.loads(self.out)
        assert found["exit_code"] == self.code
        return found


def environment(alias: str, **changes: str) -> dict[str, str]:
    """Return the environment of a command whose `default` is the database of ``alias``."""
    kept = {**child_env(alias), "DJANGO_SETTINGS_MODULE": "tests.commands.settings"}
    return {**kept, "LOGNAME": "op", **changes}


def argv(name: str, *args: str, tenant: str | None = TENANT) -> list[str]:
    """Return the arguments of ``manage.py``."""
    return [name, *args] if tenant is None else [name, *args, "--tenant", tenant]


@functools.cache
def _forks() -> "subprocess.Popen[str]":
    """Start the process that forks one for each command; it ends when its input closes, with this one."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.commands.forked_commands"],
        cwd=PROJECT_DIR,
        env=environment("default"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def command(name: str, *args: str, alias: str = "default", tenant: str | None = TENANT, **env: str) -> Ended:
    """Run ``manage.py name args --tenant acme`` in a process of its own."""
    forks = _forks()
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, "out"), Path(folder, "err")]
        request = {
            "args": argv(name, *args, tenant=tenant),
            "env": environment(alias, **env),
            "files": [str(path) for path in files],
        }
        forks.stdin.write(json.dumps(request) + "\n")
        forks.stdin.flush()
        code = int(forks.stdout.readline())
        return Ended(code, *(path.read_text() for path in files))


def popen(name: str, *args: str, **env: str) -> "subprocess.Popen[str]":
    """Start a command that is not forked, with pipes for its output."""
    return subprocess.Popen(
        [sys.executable, "manage.py", *argv(name, *args, tenant=None if name == "adk_sweep" else TENANT)],
        cwd=PROJECT_DIR,
        env=environment("default", **env),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def begin(agent: str | Agent, run_id: str, *, using: str = "default") -> RunStatus | None:
    """Carry a run of an agent to its first stop, in this process; None if its model failed."""
    definition = AGENTS[agent] if isinstance(agent, str) else agent
    try:
        return AgentRunner(using=using).run(definition, "go", tenant=TENANT, run_id=run_id).status
    except ProviderError:
        return None


def rows(using: str = "default") -> dict[str, list[Any]]:
    """Return everything that the tables hold."""
    models = apps.get_app_config("adk_django").get_models()
    return {model.__name__: list(model.objects.using(using).order_by("pk").values()) for model in models}


def one_line(text: str) -> bool:
    """Return whether ``text`` is one line that a terminal only shows."""
    return text.endswith("\n") and text[:-1].isprintable()
