"""What importing the package may not do."""

import ast
import subprocess
import sys

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
