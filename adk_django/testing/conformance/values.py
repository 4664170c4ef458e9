"""Values that must come back from a store as they went in."""

import math
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

AWKWARD_TEXTS = {
    "empty": "",
    "nul": "a\x00b",
    "high half": "\ud83d",
    "low half": "\ude00",
    "pair": "\U0001f600",
    "two halves": "\ud83d" + "\ude00",
    "escapes": "\\u0000 \\ud83d \" ' \\ \r\n\t \x7f\x1b \u2028",
    "composed": "e\u0301 \u00e9",
}

NUMBERS = {
    "nan": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "minus zero": -0.0,
    "smallest": 5e-324,
    "googol": 1e100,
    "whole float": 1.0,
    "large float": 25614222880669710.0,
    "integer": 1,
    "large integer": 10**100,
    "true": True,
    "decimal": Decimal("1.10"),
}

VALUES: dict[str, Any] = {
    **AWKWARD_TEXTS,
    **NUMBERS,
    "none": None,
    "naive datetime": datetime(2025, 3, 30, 2, 30, 0, 1),  # noqa: DTZ001  # naive is the point
    "aware datetime": datetime(2025, 3, 30, 2, 30, tzinfo=UTC),
    "offset datetime": datetime(2025, 3, 30, 2, 30, tzinfo=timezone(timedelta(hours=5, minutes=45))),
    "date": date(2025, 3, 30),
    "timedelta": timedelta(microseconds=-1),
    "tuple": (1, (2.0, ())),
    "set": {"b", "a"},
    "frozenset": frozenset({1}),
    "bytes": b"\x00\xff",
    "dict in no order": {"b": 1, "a": 2, "": 3},
    "dict with other keys": {1: "one", (2, 3): "pair", None: "none", "\x00": "nul", "$": "mark"},
    "nested": {"list": [{"deep": [None, {"er": ("\ud83d", -0.0)}]}]},
}
