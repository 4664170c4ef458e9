"""Write values as canonical ASCII JSON, read them back equal and of the same type, and digest what was written.

Two laws. What would not come back exactly is refused when it is written: by path and type, never showing the value. And
what is stored is data: a tagged object names one of the kinds of this format or a registered type, never a thing to
import or to call.

Plain JSON is None, bool, int, finite float, str, list, and dict with text keys. Everything else is
``{"$": tag, "v": payload}``, a registered type ``{"$": "type", "n": name, "v": fields}``; a dict that has the key ``$``
itself is written as a tagged list of its pairs. Values nest `MAX_DEPTH` levels deep, a tagged one counting as two.
"""

import json
import re
from collections.abc import Callable, Mapping
from hashlib import sha256
from math import isfinite, isnan
from typing import Any
from unicodedata import normalize

from adk_django.core.kinds import KINDS, MAKERS, Misfit, Unfit, type_name
from adk_django.core.registry import Parts, register, registered, registered_as

__all__ = ["MAX_DEPTH", "DecodeError", "EncodeError", "chain", "decode", "digest", "encode", "register", "typed_form"]

MAX_DEPTH = 200
_DEEPEST = MAX_DEPTH + 4  # at the last level, a number or text may bring a tag of its own
_WIDEST = 1 << 2000  # shorter than 640 digits, the least that Python can be told to allow
_LONGEST = 640
_ATOMS = frozenset({type(None), bool})
_LEAVES = frozenset({type(None), bool, int, float, str})
_HALVES = re.compile(r"(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")
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


def encode(value: object) -> str:
    """Return the canonical text of a value: the same for equal dicts and sets in whatever order.

    Raise `EncodeError` if anything in it cannot be kept exactly.
    """
    return _written(value, typed=False)


def typed_form(value: object) -> str:
    """Return a text that is the same for values that mean the same to a tool, for keys and digests of arguments.

    2 and 2.0 agree, and so do 0 and -0.0, a list and a tuple, Decimal 1.1 and 1.10, texts alike under NFC, and dicts in
    any order; 2.5 and "2.5" do not, nor True and 1. Raise `EncodeError` for what cannot be kept, for NaN, and for keys
    or members that are the same in this form.
    """
    return _written(value, typed=True)


def decode(text: str | bytes) -> Any:
    """Return the value of a text of `encode`, canonical or not.

    Raise `DecodeError`, and nothing else, if it is damaged, has a key twice or names what is not known here.
    """
    if not text.isascii():
        raise DecodeError("$", "not ASCII")
    try:
        return _load(_DECODER.decode(text if isinstance(text, str) else text.decode("ascii")), None, 0)
    except json.JSONDecodeError as error:
        raise DecodeError("$", f"no JSON: {error.msg} at {error.pos}") from None
    except RecursionError:
        raise DecodeError("$", "nested too deep") from None


def digest(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def require(fields: Mapping[str, object], *kinds: type) -> None:
    """Raise TypeError, naming the field and the type found, if a value is of none of exactly these types."""
    for name, value in fields.items():
        if type(value) not in kinds:
            raise TypeError(f"{name} is {type(value).__name__}")


def chain(previous: str, text: str) -> str:
    """Return the rolling digest of a transcript by one text more. Before the first, ``previous`` is empty."""
    return digest(previous + digest(text))


def _path(where: Where) -> str:
    steps = []
    while where is not None:
        where, step = where
        if type(step) is int:
            steps.append(f"[{step}]")
        else:
            steps.append(f".{step}" if type(step) is str and _PLAIN_KEY.fullmatch(step) else "[?]")
    return "$" + "".join(reversed(steps))


# Writing: one walk that turns a value into plain JSON, then the encoder in C.

_dumps = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False, check_circular=False).encode


def _written(value: object, *, typed: bool) -> str:
    try:
        return _dumps(_dump(value, None, 0, typed))
    except RecursionError:
        raise EncodeError("$", type_name(type(value)), "nested too deep for the stack it is written on") from None


def _dump(value: Any, where: Where, depth: int, typed: bool) -> Any:
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _text(value, typed)
    if kind in _ATOMS:
        return value
    if kind is int:
        return value if -_WIDEST < value < _WIDEST else {"$": "int", "v": hex(value)}
    if kind is float:
        return _number(value, where, typed)
    if depth >= MAX_DEPTH:
        raise EncodeError(_path(where), type_name(kind), f"more than {MAX_DEPTH} levels deep, or within itself")
    if kind is dict:
        return _object(value, where, depth, typed)
    if kind is list or (typed and kind is tuple):
        return [
            item
            if (cls := type(item)) in _ATOMS or (cls is str and item.isascii())
            else _dump(item, (where, index), depth + 1, typed)
            for index, item in enumerate(value)
        ]
    return _tagged(kind, value, where, depth, typed)


def _text(value: str, typed: bool) -> Any:
    if typed:
        value = normalize("NFC", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        # JSON would join two halves of a character that this text holds side by side.
        if len(halves := _HALVES.split(value)) > 1:
            return {"$": "str", "v": halves}
    return value


def _number(value: float, where: Where, typed: bool) -> Any:
    if isfinite(value):
        return int(value) if typed and value.is_integer() else value
    if typed and isnan(value):
        raise EncodeError(_path(where), "float", "not a number, and so equal to nothing")
    return {"$": "float", "v": repr(value)}


def _object(value: dict[Any, Any], where: Where, depth: int, typed: bool) -> Any:
    plain = {}
    for key, item in value.items():
        name = key if type(key) is str and key.isascii() else _dump(key, (where, None), depth + 2, typed)
        if type(name) is not str or name == "$":
            return _pairs(value, where, depth, typed)
        if name in plain:
            raise EncodeError(_path(where), "dict", "two of its keys are the same in this form")
        kind = type(item)  # the commonest items are spared a call
        ascii_text = kind is str and item.isascii()
        plain[name] = item if ascii_text or kind in _ATOMS else _dump(item, (where, key), depth + 1, typed)
    return plain


def _pairs(value: dict[Any, Any], where: Where, depth: int, typed: bool) -> Any:
    pairs = {}
    for key, item in value.items():
        written = _dump(key, (where, None), depth + 2, typed)
        step = key if type(key) is str else None
        pairs[_dumps(written)] = (written, _dump(item, (where, step), depth + 2, typed))
    if len(pairs) != len(value):
        raise EncodeError(_path(where), "dict", "two of its keys are the same in this form")
    return {"$": "dict", "v": [part for _, pair in sorted(pairs.items()) for part in pair]}


def _tagged(kind: type, value: Any, where: Where, depth: int, typed: bool) -> Any:
    try:
        if known := KINDS.get(kind):
            take = known.same if typed and known.same else known.take
            payload = _dump(take(value), where, depth + 1, typed)
            if kind is set or kind is frozenset:
                members = {_dumps(member): member for member in payload}
                if len(members) != len(payload):
                    raise Unfit(kind, "two of its members are the same in this form")
                payload = [members[text] for text in sorted(members)]
            return {"$": known.tag, "v": payload}
        if record := registered(kind):
            parts = record.take(value)
            node = {"$": "type", "n": record.name, "v": _dump(parts.fields, where, depth + 1, typed)}
            if parts.beyond is not None:
                node["x"] = _dump(parts.beyond, where, depth + 1, typed)
            if parts.noted is not None and not typed:
                node["s"] = _dump(parts.noted, where, depth + 1, typed)
            return node
    except Unfit as unfit:
        raise EncodeError(_path(where), type_name(unfit.cls), unfit.reason) from None
    raise EncodeError(_path(where), type_name(kind), "neither a kind of this format nor a registered type")


# Reading: the scanner in C, then one walk that makes values of tagged objects.


class _Twice:
    """Stands for an object that has a key twice, until the walk knows its path."""


def _unique(pairs: list[tuple[str, Any]]) -> Any:
    made = dict(pairs)
    return made if len(made) == len(pairs) else _Twice()


def _integer(digits: str) -> int:
    if len(digits) > _LONGEST:
        raise DecodeError("$", f"a plain integer of more than {_LONGEST} digits")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise DecodeError("$", "a plain number beyond the range of floats")
    return number


def _constant(name: str) -> Any:
    raise DecodeError("$", f"the bare word {name}")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_int=_integer, parse_float=_finite, parse_constant=_constant
)


def _load(node: Any, where: Where, depth: int) -> Any:
    kind = type(node)
    if kind in _LEAVES:
        return node
    if depth >= _DEEPEST:
        raise DecodeError(_path(where), f"more than {MAX_DEPTH} levels deep")
    if kind is list:
        return [_load(item, (where, index), depth + 1) for index, item in enumerate(node)]
    if kind is _Twice:
        raise DecodeError(_path(where), "a key is there twice")
    if "$" not in node:
        return {
            key: item if type(item) in _LEAVES else _load(item, (where, key), depth + 1) for key, item in node.items()
        }
    tag = node.pop("$")
    if tag == "type":
        return _load_record(node, where, depth)
    if type(tag) is not str or tag not in MAKERS:
        raise DecodeError(_path(where), f"unknown tag {_shown(tag)}")
    if node.keys() != {"v"}:
        raise DecodeError(_path(where), f"a {tag} with other keys than v")
    return _made(MAKERS[tag], _load(node["v"], where, depth + 1), tag, where)


def _load_record(node: dict[str, Any], where: Where, depth: int) -> Any:
    name = node.get("n")
    if type(name) is not str or not {"n", "v"} <= node.keys() <= {"n", "v", "x", "s"}:
        raise DecodeError(_path(where), "a registered type with other keys than n, v, x and s")
    record = registered_as(name)
    if record is None:
        hint = "register it, or give the class that took its place this name as an alias"
        raise DecodeError(_path(where), f"no type is registered as {_shown(name)}: {hint}")
    parts = Parts(*(_load(node.get(key), where, depth + 1) for key in ("v", "x", "s")))
    return _made(record.make, parts, record.name, where)


def _made(make: Callable[[Any], Any], payload: Any, name: str, where: Where) -> Any:
    try:
        return make(payload)
    except Misfit as misfit:
        raise DecodeError(_path(where), f"no {_shown(name)}: {misfit}") from None
    # Constructors, hashes and defaults, of the user's too, meet a payload nobody vouches for: all they raise is damage.
    except Exception as error:
        raise DecodeError(_path(where), f"no {_shown(name)}: {type(error).__name__}") from None


def _shown(name: object) -> str:
    return ascii(name)[:80]
