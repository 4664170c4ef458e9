"""Every value comes back equal and of its type, or is refused by path and type."""

import json
import os
import threading
from collections import Counter, OrderedDict, defaultdict, namedtuple
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from decimal import Context, Decimal, localcontext
from enum import IntEnum
from itertools import permutations
from pathlib import PureWindowsPath

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from adk_django.core.codec import DecodeError, EncodeError, canonical, chain, decode, digest, encode, register
from tests.core.codec_values import ANYTHING, BERLIN, KEYS, VALUES, alike


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}")
def test_a_value_comes_back_equal_and_of_its_type(value):
    text = encode(value)
    assert text.isascii()
    assert alike(decode(text), value)
    assert encode(decode(text)) == text
    assert alike(decode(text.encode("ascii")), value)


def test_plain_values_are_plain_json():
    value = {"b": [1, 2.5, None, True, "é"], "a": {}}
    assert encode(value) == '{"b":[1,2.5,null,true,"\\u00e9"],"a":{}}'
    assert canonical(value) == '{"a":{},"b":[1,2.5,null,true,"\\u00e9"]}'
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


@given(ANYTHING)
def test_any_value_comes_back_or_is_refused(value):
    text = encode(value)
    assert text.isascii()
    assert alike(decode(text), value)
    assert encode(decode(text)) == text


@given(st.dictionaries(KEYS, ANYTHING, max_size=5), st.randoms())
def test_equal_dicts_have_one_canonical_text_in_whatever_order(value, chance):
    pairs = list(value.items())
    chance.shuffle(pairs)
    assert canonical(dict(pairs)) == canonical(value)
    assert alike(decode(canonical(value)), value)


def in_order(value):
    """Return the keys of each dict in a value, in order and at any depth; of everything else its type."""
    if isinstance(value, dict):
        return [(key, in_order(item)) for key, item in value.items()]
    if isinstance(value, list | tuple):
        return [in_order(item) for item in value]
    return type(value)


@given(st.dictionaries(KEYS, ANYTHING, max_size=5), st.randoms())
def test_dicts_keep_the_order_of_their_keys_at_any_depth(value, chance):
    pairs = list(value.items())
    chance.shuffle(pairs)
    deep = [{"z": (dict(pairs),), "a": {"$": dict(pairs), 1: 2}}]
    assert in_order(decode(encode(deep))) == in_order(deep)


@register(name="tests.Ordered")
@dataclass
class Ordered:
    fields: dict[str, object]


def test_dicts_in_registered_types_keep_the_order_of_their_keys():
    value = Ordered({"b": 1, "a": {"d": 1, "c": 2}})
    assert in_order(decode(encode(value)).fields) == in_order(value.fields)


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


def test_a_digest_is_that_of_the_text_and_a_chain_depends_on_every_text_before():
    assert digest("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert len({chain(chain("", one), two) for one in ("a", "b", "ab", "") for two in ("a", "b", "ab", "")}) == 16
    assert chain(chain("", "a"), "b") == digest(digest(digest("a")) + digest("b"))
