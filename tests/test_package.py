"""What importing the package may not do, and which of its parts may import which."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter

import pytest

import adk_django
from tests.servers import PROJECT_DIR

IMPORT_CORE_WITHOUT_DJANGO = """
import importlib, pkgutil, sys

class NoDjango:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "django":
            raise ImportError(f"{name} is not for core")

sys.meta_path.insert(0, NoDjango())
core = importlib.import_module("adk_django.core")
for module in pkgutil.walk_packages(core.__path__, "adk_django.core."):
    print(importlib.import_module(module.name).__name__)
"""


def test_core_imports_where_there_is_no_django():
    child = subprocess.run(
        [sys.executable, "-c", IMPORT_CORE_WITHOUT_DJANGO],
        cwd=PROJECT_DIR,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (child.returncode, child.stderr) == (0, "")
    assert "adk_django.core.checkpoint" in child.stdout.split()


def test_the_package_itself_holds_the_version_alone():
    docstring, version = ast.parse((PROJECT_DIR / "adk_django" / "__init__.py").read_text()).body
    assert isinstance(docstring, ast.Expr)
    assert ast.unparse(version) == f"__version__ = '{adk_django.__version__}'"


# Each part of the package with the parts that it may import, at module level or within a function.
LEAVES = {"core", "exceptions", "concurrency"}
DEFINITIONS = {"providers", "tools", "agents"}
BELOW_STORES = LEAVES | {"conf", "signals", "fields", "models"}
BELOW_EXECUTION = BELOW_STORES | DEFINITIONS | {"stores"}
BELOW_RUNS = BELOW_EXECUTION | {"execution", "operations"}
MAY_IMPORT = {
    "core": {"exceptions"},
    "exceptions": set(),
    "signals": set(),
    "conf": {"core", "exceptions"},
    "concurrency": {"conf"},
    "fields": {"core"},
    "models": {"core", "fields"},
    "providers": LEAVES,
    "tools": LEAVES | {"providers"},
    "agents": LEAVES | {"providers", "tools"},
    "stores": BELOW_STORES,
    "execution": BELOW_EXECUTION,
    "operations": BELOW_EXECUTION | {"execution"},
    "runs": BELOW_RUNS,
    "tasks": BELOW_RUNS | {"runs"},
    "management": BELOW_RUNS | {"runs"},
    "checks": BELOW_RUNS | {"runs", "tasks"},
    "apps": {"agents", "checks"},
    "testing": BELOW_RUNS,
    "migrations": set(),
}
IN_CORE = {"codec": set(), "masking": {"codec"}}
IN_STORES = {
    "base": set(),
    "runs": {"base"},
    "settlements": {"base"},
    "transcripts": set(),
    "bundle": {"base", "runs"},
    "memory": {"base", "runs", "bundle", "settlements", "transcripts"},
    "orm": {"base", "runs", "bundle", "settlements", "transcripts"},
    "redis": {"base", "runs", "bundle", "settlements", "transcripts", "orm"},
    "handler": {"base", "runs", "bundle", "memory", "orm", "redis"},
}


def imports_of(source: str) -> Iterator[tuple[str, int]]:
    """Yield each dotted name below the package that a module's text imports, with its line."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [item.name for item in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            names = [f"{node.module}.{item.name}" for item in node.names]
        else:
            continue
        for name in names:
            if name.startswith("adk_django."):
                yield name.removeprefix("adk_django."), node.lineno


def forbidden(within: str, may_import: dict[str, set[str]]) -> list[str]:
    """Return the imports between parts of the package ``within`` that ``may_import`` does not allow."""
    folder = PROJECT_DIR / "adk_django" / within.replace(".", "/")
    found = []
    for path in sorted(folder.rglob("*.py")):
        part = path.relative_to(folder).with_suffix("").parts[0]
        if part == "__init__" or part not in may_import:
            continue
        for name, line in imports_of(path.read_text()):
            inside = name.removeprefix(f"{within}.") if name.startswith(f"{within}.") or not within else ""
            imported = inside.partition(".")[0]
            if imported and imported not in may_import[part] | {part}:
                found.append(f"{path.relative_to(folder)}:{line} imports {name}")
    return found


@pytest.mark.parametrize(
    ("within", "may_import"),
    [("", MAY_IMPORT), ("core", IN_CORE), ("stores", IN_STORES)],
    ids=["top", "core", "stores"],
)
def test_imports_point_one_way(within, may_import):
    TopologicalSorter(may_import).prepare()  # raises CycleError where two parts may import each other
    assert forbidden(within, may_import) == []


def test_every_part_has_its_imports_listed():
    parts = {path.stem for path in (PROJECT_DIR / "adk_django").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert parts - {"__init__", "__pycache__"} == set(MAY_IMPORT)
