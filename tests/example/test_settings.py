"""The settings of the example: what their docstring says of the environment is what they read of it."""

import re

from tests.servers import PROJECT_DIR

SETTINGS = (PROJECT_DIR / "example_project" / "settings.py").read_text(encoding="utf-8")


def test_the_docstring_names_each_variable_that_is_read() -> None:
    _, docstring, code = SETTINGS.split('"""', 2)
    named = re.findall(r"^    ([A-Z_]+)=", docstring, re.MULTILINE)
    assert sorted(named) == sorted(re.findall(r'environ(?:\.get\(|\[)"([A-Z_]+)"', code))
    assert len(named) == code.count("environ") > 0
