"""Values of every kind that the codec keeps, and how to tell whether one came back."""

from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from uuid import UUID
from zoneinfo import ZoneInfo

from hypothesis import strategies as st
from pydantic import TypeAdapter

BERLIN = ZoneInfo("Europe/Berlin")


def alike(one, other):
    """Compare value and type, all the way down; floats and what holds them by their text, so that NaN is like NaN."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        pairs = zip(sorted(one.items(), key=repr), sorted(other.items(), key=repr), strict=False)
        return len(one) == len(other) and all(alike(a, b) for a, b in pairs)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(alike(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, set | frozenset):
        return sorted(map(repr, one)) == sorted(map(repr, other))
    if isinstance(one, datetime | time):
        return (repr(one), one.fold) == (repr(other), other.fold)
    if isinstance(one, PurePath):
        return (one.parts, str(one)) == (other.parts, str(other))
    if isinstance(one, int):
        return one == other
    return repr(one) == repr(other)


VALUES = [
    *(None, True, False, 0, -1, 2**53 + 1, 10**639, 10**640, -(10**5000), 1 << 2000, (1 << 2000) - 1),
    *(
        float("nan"),
        float("inf"),
        float("-inf"),
        0.0,
        -0.0,
        5e-324,
        1e100,
        1.0,
        25614222880669710.0,
        1.7976931348623157e308,
    ),
    *(
        "",
        "plain",
        'quo"te\\',
        "a\u0000b",
        "é",
        "e\u0301",
        "\U0001f600",
        "\ud83d",
        "\ude00",
        "\ud83d\ude00",
        "\ude00\ud83d",
    ),
    "x\ud83d\ude00y\ud83d\ude00\U0001f600",
    *([], {}, [[]], {"": ""}, {"a\u0000b": 1}, {"\ud83d": 1}, {"\ud83d\ude00": 1, "\U0001f600": 2}),
    *({"$": 1}, {"$": "tuple", "v": [1]}, {"a": {"$": "set", "v": [], "$v": 2}}, {"v": 1}),
    *({1: "int", "1": "text"}, {(1, "a"): None}, {None: 1, 2.5: 2, b"k": 3}, {float("nan"): 1}, {True: 1, "True": 2}),
    *((), (1, (2, [3])), set(), {1, "1", (2,)}, frozenset({frozenset(), 3}), {1.5, None, b"x"}),
    *(b"", b"\xff\x00", bytearray(b"\xfe"), UUID(int=7), Fraction(-3, 10**700), 1 - 0j, complex(-0.0, float("nan"))),
    *(range(0), range(5), range(10**700, 0, -3), timedelta(-1, 5, 7), timedelta.max, timedelta.min),
    *map(Decimal, ["1.10", "-0.00", "1E+3", "NaN", "sNaN12", "-Infinity", "1e999999", "9" * 5000]),
    *(date(1, 1, 1), date.max, time(1, 2, 3, 4), time(1, fold=1), time(9, tzinfo=UTC), time(9, tzinfo=BERLIN)),
    *(datetime(2024, 5, 1), datetime(2024, 5, 1, 1, 2, 3, 4, UTC), datetime.min, datetime.max),  # noqa: DTZ001, DTZ901
    datetime(2024, 10, 27, 2, 30, fold=1),  # noqa: DTZ001
    *(datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=fold) for fold in (0, 1)),
    datetime(2024, 5, 1, tzinfo=timezone(timedelta(hours=2))),
    datetime(2024, 5, 1, tzinfo=timezone(timedelta(hours=-2, microseconds=3), "odd \ud83d\ude00")),
    TypeAdapter(datetime).validate_python("2024-05-01T00:00:00-03:30"),
    *(Path("/a/b"), Path("."), PurePosixPath("//a/ü"), PureWindowsPath("C:/a"), PureWindowsPath(r"\\host\share\x")),
    PurePosixPath("\ud83d\ude00"),
    {"legs": [{"price": Decimal("1.10"), "when": datetime(2024, 5, 1, tzinfo=BERLIN)}], "seen": {("a", 1)}},
]


ATOMS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters(codec=None)) | st.binary()
    | st.decimals() | st.dates() | st.times() | st.datetimes() | st.timedeltas() | st.uuids() | st.fractions()
    | st.complex_numbers() | st.datetimes(timezones=st.timezones())
    | st.text(st.sampled_from("a$\ud800\udbff\udc00\udfff\U0001f600"))
)  # fmt: skip
KEYS = st.text() | st.integers() | st.tuples(st.integers(), st.text()) | st.just("$")
ANYTHING = st.recursive(
    ATOMS,
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(KEYS, inner) | st.sets(KEYS),
    max_leaves=12,
)
