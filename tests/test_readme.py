"""What the README shows works as it stands there."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.servers import PROJECT_DIR

README = (PROJECT_DIR / "README.md").read_text(encoding="utf-8")

PROJECT = """
from django.conf import settings
settings.configure(
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "db.sqlite3"}},
    INSTALLED_APPS=["django.contrib.auth", "django.contrib.contenttypes", "adk_django", "travel"],
    USE_TZ=True,
)
import django
django.setup()
from django.core.management import call_command
call_command("migrate", verbosity=0)
"""


def blocks(title: str) -> list[str]:
    """Return the Python blocks of a section."""
    section = README.split(f"\n## {title}\n")[1].split("\n## ")[0]
    return re.findall(r"```python\n(.*?)```", section, re.DOTALL)


def test_the_twenty_lines_and_the_loop_that_drives_runs_work(tmp_path: Path) -> None:
    agents, anywhere = blocks("Twenty lines")
    (loop,) = blocks("Who drives a run")
    left = 'runs.start("booking", "Book me another", tenant="acme", run_id="left")\n'
    shown = 'print(runs.inspect("left", tenant="acme").record.status)\n'
    (tmp_path / "travel").mkdir()
    (tmp_path / "travel" / "__init__.py").write_text("")
    (tmp_path / "travel" / "agents.py").write_text(agents)
    script = tmp_path / "go.py"
    script.write_text(PROJECT + anywhere + left + loop + shown)
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.stdout, done.stderr, done.returncode) == ("completed Booked.\ncompleted\n", "", 0)


def test_the_settings_shown_are_the_defaults() -> None:
    from adk_django.conf import DEFAULT_STORES, Settings, load

    (shown,) = blocks("Settings")
    names: dict[str, object] = {}
    exec(shown, names)  # noqa: S102  # the README's own text
    written = names["ADK"]
    assert isinstance(written, dict)
    assert set(written["STORES"]) == set(DEFAULT_STORES)
    assert load(written) == Settings()


def test_the_settings_shown_for_redis_pass_the_checks(settings: Any) -> None:
    from adk_django.checks.settings import check_settings
    from adk_django.stores.handler import complete

    (shown,) = blocks("Runs in Redis")
    names: dict[str, Any] = {}
    exec(shown, names)  # noqa: S102  # the README's own text
    settings.CACHES, settings.ADK = names["CACHES"], names["ADK"]
    assert check_settings() == []
    assert type(complete()).__name__ == "RedisStores"


def test_the_commands_on_the_first_screen_are_those_that_ci_runs() -> None:
    commands = re.findall(r"```console\n(.*?)\n```", README)
    assert len(commands) == 2
    assert commands[0].endswith("manage.py demo")
    assert commands[1].endswith("pytest")
