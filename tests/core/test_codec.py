"""Every value comes back equal and of its type, or is refused by path and type; a text that is no text of ours is
refused and never acted on.
"""

import json
import os
import random
import threading
from collections import Counter, OrderedDict, defaultdict, namedtuple
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Context, Decimal, localcontext
from enum import IntEnum
from fractions import Fraction
from itertools import permutations
from pathlib import Path, PurePosixPath, PureWindowsPath
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr, TypeAdapter

from adk_django.core.codec import DecodeError, EncodeError, chain, decode, digest, encode, typed_form

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


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}")
def test_a_value_comes_back_equal_and_of_its_type(value):
    text = encode(value)
    assert text.isascii()
    assert alike(decode(text), value)
    assert encode(decode(text)) == text
    assert alike(decode(text.encode("ascii")), value)


def test_plain_values_are_plain_json():
    value = {"b": [1, 2.5, None, True, "é"], "a": {}}
    assert encode(value) == '{"a":{},"b":[1,2.5,null,true,"\\u00e9"]}'
    assert json.loads(encode(value)) == value


def test_a_zone_comes_back_as_the_same_object_so_that_repeated_hours_compare():
    value = datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1)
    assert decode(encode(value)).tzinfo is BERLIN
    assert decode(encode(value)) == value


def test_the_current_decimal_context_changes_nothing():
    value = Decimal("1E+30")
    text = encode(value)
    with localcontext(Context(prec=2, capitals=0, traps=[])):
        assert encode(value) == text
        assert encode(decode(encode(Decimal("1.2345")))) == encode(Decimal("1.2345"))
        with pytest.raises(DecodeError):
            decode('{"$":"decimal","v":"no number"}')


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


@given(ANYTHING)
def test_any_value_comes_back_or_is_refused(value):
    text = encode(value)
    assert text.isascii()
    assert alike(decode(text), value)
    assert encode(decode(text)) == text


@given(st.dictionaries(KEYS, ANYTHING, max_size=5), st.randoms())
def test_equal_dicts_have_one_text_in_whatever_order(value, chance):
    pairs = list(value.items())
    chance.shuffle(pairs)
    assert encode(dict(pairs)) == encode(value)


def test_equal_sets_have_one_text_in_whatever_order():
    members = [1, "1", (1,), b"1", 8, 16]
    assert len({encode(set(order)) for order in permutations(members)}) == 1


class Zone(tzinfo):
    def utcoffset(self, moment):
        return timedelta(hours=1)


class Text(str):
    __slots__ = ()


class Level(IntEnum):
    HIGH = 3


async def coroutine_function():
    """Do nothing."""


Point = namedtuple("Point", "x y")
REFUSED = [
    (object(), "object"),
    (Point(1, 2), f"{__name__}.Point"),
    (Text("hunter2"), f"{__name__}.Text"),
    (Level.HIGH, f"{__name__}.Level"),
    (OrderedDict(a=1), "collections.OrderedDict"),
    (defaultdict(list), "collections.defaultdict"),
    (Counter("hunter2"), "collections.Counter"),
    (datetime(2024, 5, 1, tzinfo=Zone()), f"{__name__}.Zone"),
    (SecretStr("hunter2"), "pydantic.types.SecretStr"),
    (threading.Lock(), "_thread.lock"),
    (coroutine_function, "function"),
    (os.system, "builtin_function_or_method"),
    (ValueError("hunter2"), "ValueError"),
    (int, "type"),
    (..., "ellipsis"),
    ({float("nan"), float("nan")}, "set"),
    ({float("nan"): 1, float("nan"): 2}, "dict"),
]


@pytest.mark.parametrize(("value", "name"), REFUSED, ids=[name for _, name in REFUSED])
def test_what_would_not_come_back_is_refused_by_path_and_type_and_never_shown(value, name):
    with pytest.raises(EncodeError) as caught:
        encode({"legs": [1, 2, {"price": value}]})
    assert caught.value.path.startswith("$.legs[2].price")
    assert caught.value.type_name == name
    assert "hunter2" not in str(caught.value)
    assert str(caught.value).isascii()


def test_a_path_shows_plain_keys_only():
    value = {"a": {"odd key \ud83d": [{7: ({1, object()},)}]}}
    with pytest.raises(EncodeError) as caught:
        encode(value)
    assert caught.value.path.startswith("$.a[?][0][?][0][")


def test_a_windows_path_that_its_text_does_not_name_is_refused():
    path = PureWindowsPath("./c:stream")
    try:
        assert alike(decode(encode(path)), path)  # Python 3.12 writes it so that it reads back
    except EncodeError as error:
        assert error.type_name == "pathlib.PureWindowsPath"


def nested(levels, inner=None):
    for _ in range(levels):
        inner = [inner]
    return inner


def test_nesting_ends_at_a_fixed_depth():
    half = "\ud83d\ude00"
    for deepest in (nested(199, {half: half, 1: 10**5000}), nested(200, half), nested(200, float("nan"))):
        assert encode(decode(encode(deepest))) == encode(deepest)
    for deep in (nested(201), nested(100_000), nested(199, (1,))):
        with pytest.raises(EncodeError, match="levels deep"):
            encode(deep)


@pytest.mark.parametrize("make", [list, dict, tuple])
def test_a_value_within_itself_is_refused(make):
    inner = []
    value = {"in": inner} if make is dict else make([inner])
    inner.append(value)
    with pytest.raises(EncodeError, match="within itself"):
        encode(value)


NOT_OURS = [
    "",
    "{",
    "nul",
    "[1",
    '"\ud83d"',
    '"é"',
    "\ufeff1",
    "[1,]",
    "'a'",
    "NaN",
    "Infinity",
    "[-Infinity]",
    "1e999",
]
TOO_LONG = [
    "9" * 5000,
    "[" * 100_000,
    '{"a":' * 100_000,
    "[" * 210 + "]" * 210,
    '{"$":"tuple","v":[' * 150 + "]}" * 150,
]
TWICE = ['{"a":1,"a":1}', '{"a":{"b":[{"c":1,"c":2}]}}', '{"$":"set","$":"set","v":[]}']
UNFIT = r"""
{"$":"os.system","v":"true"}
{"$":null,"v":1}
{"$":{"$":"tuple","v":[]},"v":1}
{"$":"tuple"}
{"$":1}
{"$":"tuple","v":1}
{"$":"tuple","v":[],"w":1}
{"$":"tuple","v":{"$":"tuple","v":[]}}
{"$":"set","v":[1,1]}
{"$":"set","v":[[]]}
{"$":"set","v":[1,1.0]}
{"$":"dict","v":[1]}
{"$":"dict","v":[1,1,1.0,1]}
{"$":"dict","v":[[],1]}
{"$":"int","v":5}
{"$":"int","v":"5"}
{"$":"int","v":"0x"}
{"$":"float","v":"1"}
{"$":"float","v":[]}
{"$":"str","v":"a"}
{"$":"str","v":[1]}
{"$":"bytes","v":"a"}
{"$":"bytes","v":"!!!!"}
{"$":"bytearray","v":[1]}
{"$":"decimal","v":1}
{"$":"decimal","v":"x"}
{"$":"decimal","v":"1E+9999999999999999999"}
{"$":"uuid","v":"x"}
{"$":"datetime","v":"2024-01-01"}
{"$":"datetime","v":["2024-01-01T00:00:00+01:00",0,null]}
{"$":"datetime","v":["2024-13-01T00:00:00",0,null]}
{"$":"datetime","v":["2024-01-01T00:00:00",2,null]}
{"$":"time","v":["00:00:00",0,["zone","../../etc/passwd"]]}
{"$":"time","v":["00:00:00",0,["zone","Europe"]]}
{"$":"time","v":["00:00:00",0,["zone","/etc"]]}
{"$":"time","v":["00:00:00",0,1]}
{"$":"time","v":["00:00:00",0,["fixed",99999999999999999999999,null]]}
{"$":"time","v":["00:00:00",0,["parsed",99999999]]}
{"$":"date","v":"2024-02-30"}
{"$":"timedelta","v":[1,2]}
{"$":"timedelta","v":[9999999999,0,0]}
{"$":"fraction","v":[1,0]}
{"$":"fraction","v":[1.5,2]}
{"$":"complex","v":[1,2]}
{"$":"range","v":[0,1,0]}
{"$":"path","v":1}
{"$":"windowspath","v":"x"}
{"$":"type","n":"os.system","v":"true"}
{"$":"type","n":1,"v":1}
""".split()
HOSTILE = NOT_OURS + TOO_LONG + TWICE + UNFIT


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_text_that_is_not_of_this_format_is_damage_and_nothing_else(text):
    with pytest.raises(DecodeError) as caught:
        decode(text)
    assert caught.value.path.startswith("$")
    assert str(caught.value).isascii()


def test_damage_is_found_by_its_path():
    with pytest.raises(DecodeError) as caught:
        decode('{"legs":[{"price":{"$":"decimal","v":"hunter2"}}]}')
    assert caught.value.path == "$.legs[0].price"
    assert "hunter2" not in str(caught.value)
    with pytest.raises(DecodeError, match=r"\$\.a\[1\]: a key is there twice"):
        decode('{"a":[1,{"b":1,"b":2}]}')


def test_whatever_happened_to_a_text_it_is_a_value_or_damage():
    chance = random.Random(20240501)  # noqa: S311
    texts = [encode(value) for value in VALUES]
    pieces = [*'{}[]",:$v0eE+-.\\ntuxf', "\x00", "é", '"$":', '{"$":"type","n":"x","v":1}', "99999999", "null"]
    damaged = 0
    for _ in range(2000):
        text = chance.choice(texts)
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(text) + 1)
            text = text[:at] + chance.choice([*pieces, ""]) + text[at + chance.randint(0, 2) :]
        try:
            decode(text)
        except DecodeError:
            damaged += 1
    assert damaged > 500


AGREE = [
    *(
        (2, 2.0),
        (0.0, -0.0),
        (0, -0.0),
        ([1, 2], (1.0, 2)),
        ({"a": 1, "b": 2}, {"b": 2.0, "a": 1}),
        (1e300, int(1e300)),
    ),
    *(
        ("é", "e\u0301"),
        ({"é": 1}, {"e\u0301": 1}),
        (Decimal("1.10"), Decimal("1.1")),
        (Decimal("-0"), Decimal("0.00")),
    ),
    *((Decimal("1E+3"), Decimal("1000")), ({1: "a"}, {1.0: "a"}), (complex(0.0, 1.0), complex(-0.0, 1.0))),
]
DIFFER = [
    *((2.5, "2.5"), (True, 1), (False, 0), (None, "null"), (1, "1"), ("a", "A"), (1, 2), (2**53, 2**53 + 1), ([], {})),
    *(
        ([1, [2]], [[1], 2]),
        ({"a": None}, {}),
        (b"a", "a"),
        ({"1": 1}, {1: 1}),
        ([1], {1}),
        (float("inf"), float("-inf")),
    ),
    *((Decimal("1.10"), Decimal("1.11")), (date(2024, 1, 1), "2024-01-01"), ({"$": "set", "v": []}, set())),
]


@pytest.mark.parametrize(("one", "other"), AGREE)
def test_arguments_that_mean_the_same_have_one_typed_form(one, other):
    assert typed_form({"x": [one]}) == typed_form({"x": [other]})


@pytest.mark.parametrize(("one", "other"), DIFFER)
def test_arguments_that_differ_have_two_typed_forms(one, other):
    assert typed_form({"x": [one]}) != typed_form({"x": [other]})


@pytest.mark.parametrize(
    "value",
    [float("nan"), Decimal("NaN"), object(), {"é": 1, "e\u0301": 2}, {"é", "e\u0301"}, {("é",): 1, ("e\u0301",): 2}],
)
def test_arguments_without_a_typed_form_are_refused(value):
    with pytest.raises(EncodeError) as caught:
        typed_form({"x": [value]})
    assert caught.value.path == "$.x[0]"


@given(ANYTHING)
def test_a_typed_form_outlives_a_save(value):
    try:
        form = typed_form(value)
    except EncodeError:
        return
    assert form.isascii()
    assert typed_form(decode(encode(value))) == form


def test_a_digest_is_that_of_the_text_and_a_chain_depends_on_every_text_before():
    assert digest("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert len({chain(chain("", one), two) for one in ("a", "b", "ab", "") for two in ("a", "b", "ab", "")}) == 16
    assert chain(chain("", "a"), "b") == digest(digest(digest("a")) + digest("b"))
