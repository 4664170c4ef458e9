"""Arguments that mean the same to a tool have one form, others have another, and some have none."""

from datetime import date
from decimal import Decimal

import pytest
from hypothesis import given

from adk_django.core.codec import EncodeError, decode, encode, typed_form
from tests.core.codec_values import ANYTHING

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
