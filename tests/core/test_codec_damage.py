"""A text that is no text of ours is refused by path, and never acted on."""

import random

import pytest

from adk_django.core.codec import DecodeError, decode, encode
from tests.core.codec_values import VALUES

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
""".strip().splitlines()
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
