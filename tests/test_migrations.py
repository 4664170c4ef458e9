"""The migrations: they fit the models under every setting, go both ways, and stand alone."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from django.core.management import call_command
from django.db import connections

from tests.servers import PROJECT_DIR

MIGRATIONS = sorted((PROJECT_DIR / "adk_django" / "migrations").glob("0*.py"))

VARIANTS = {
    "as usual": "",
    "other automatic keys": 'DEFAULT_AUTO_FIELD = "django.db.models.AutoField"',
    "naive instants": "USE_TZ = False",
    "other users": 'INSTALLED_APPS = [*INSTALLED_APPS, "members"]; AUTH_USER_MODEL = "members.Member"',
    "another language": 'LANGUAGE_CODE = "de"; USE_I18N = True',
}

MEMBERS = """
from django.contrib.auth.models import AbstractUser

class Member(AbstractUser):
    class Meta:
        app_label = "members"
"""


def tables(alias: str) -> set[str]:
    return {name for name in connections[alias].introspection.table_names() if name.startswith("adk_")}


def test_they_go_back_and_forth(alias: str) -> None:
    before = tables(alias)
    assert "adk_run_leases" in before
    try:
        call_command("migrate", "adk_django", "zero", database=alias, verbosity=0)
        assert tables(alias) == set()
    finally:
        call_command("migrate", "adk_django", database=alias, verbosity=0)
    assert tables(alias) == before


@pytest.mark.parametrize("alias", ["postgres"], indirect=True)
def test_hot_tables_have_room_on_postgresql(alias: str) -> None:
    asked = (
        "SELECT relname, array_to_string(reloptions, ',') FROM pg_class "
        "WHERE relname LIKE 'adk_%' AND reloptions <> '{}'"
    )
    with connections[alias].cursor() as cursor:
        cursor.execute(asked)
        options = dict(cursor.fetchall())
        assert "fillfactor=50" in options["adk_run_leases"]
        assert set(options) == {"adk_run_leases", "adk_runs", "adk_checkpoints"}
        call_command("migrate", "adk_django", "0001", database=alias, verbosity=0)
        try:
            cursor.execute(asked)
            assert cursor.fetchall() == []
        finally:
            call_command("migrate", "adk_django", database=alias, verbosity=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_no_product_has_to_make_one(variant: str, tmp_path: Path) -> None:
    (tmp_path / "variant.py").write_text(f"from tests.settings import *\n{VARIANTS[variant]}\n")
    (tmp_path / "members").mkdir()
    (tmp_path / "members" / "__init__.py").touch()
    (tmp_path / "members" / "models.py").write_text(MEMBERS)
    env = {
        **os.environ,
        "DJANGO_SETTINGS_MODULE": "variant",
        "PYTHONPATH": f"{tmp_path}:{PROJECT_DIR}",
        "ADK_TEST_SQLITE_NAME": str(tmp_path / "empty.sqlite3"),
    }
    command = [sys.executable, "-m", "django", "makemigrations", "--check", "--dry-run", "adk_django"]
    made = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
    assert (made.returncode, made.stdout.strip()) == (0, "No changes detected in app 'adk_django'"), made.stderr


@pytest.mark.parametrize("path", MIGRATIONS, ids=lambda path: path.stem)
def test_they_import_no_code_of_the_app_and_no_settings(path: Path) -> None:
    imported = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            imported.add(node.module)
        elif isinstance(node, ast.Import):
            imported |= {item.name for item in node.names}
    assert imported <= {"django.db", "django.db.models", "typing"}
