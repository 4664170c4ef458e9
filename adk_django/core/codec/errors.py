"""What the codec raises, and the path to a value."""

import re
from typing import Any

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,39}")

Where = tuple[Any, Any] | None  # the path so far, innermost key first


class EncodeError(ValueError):
    """A value cannot be kept exactly.

    ``path`` leads to it, such as ``$.legs[2].price``, and ``type_name`` is its type.
    """

    def __init__(self, path: str, type_name: str, reason: str) -> None:
        super().__init__(path, type_name, reason)
        self.path, self.type_name, self.reason = path, type_name, reason

    def __str__(self) -> str:
        return f"{self.path}: {self.type_name} cannot be kept: {self.reason}"


class DecodeError(ValueError):
    """A text holds no value of this format; ``path`` leads to where it is damaged or unknown."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(path, reason)
        self.path, self.reason = path, reason

    def __str__(self) -> str:
        return f"{self.path}: {self.reason}"


def path_to(where: Where) -> str:
    steps = []
    while where is not None:
        where, step = where
        if type(step) is int:
            steps.append(f"[{step}]")
        else:
            steps.append(f".{step}" if type(step) is str and _PLAIN_KEY.fullmatch(step) else "[?]")
    return "$" + "".join(reversed(steps))


def shown(name: object) -> str:
    return ascii(name)[:80]
