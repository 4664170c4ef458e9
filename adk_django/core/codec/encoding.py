"""Writing: one walk that turns a value into plain JSON, then the encoder in C."""

import json
import re
from collections.abc import Callable
from math import isfinite, isnan
from typing import Any, NamedTuple
from unicodedata import normalize

from adk_django.core.codec.errors import EncodeError, Where, path_to
from adk_django.core.codec.registry import registered
from adk_django.core.codec.types import KINDS, Unfit, type_name

MAX_DEPTH = 200
_WIDEST = 1 << 2000  # shorter than 640 digits, the least that Python can be told to allow
_ATOMS = frozenset({type(None), bool})
_HALVES = re.compile(r"(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")


class _Form(NamedTuple):
    """``typed`` writes alike what means the same; ``ordered`` keeps a dict's keys in order, else they are sorted."""

    typed: bool
    ordered: bool


_EXACT = _Form(typed=False, ordered=True)
_CANONICAL = _Form(typed=False, ordered=False)
_TYPED = _Form(typed=True, ordered=False)


def encode(value: object) -> str:
    """Return the text that `decode` makes the same value of: dicts keep the order of their keys.

    Raise `EncodeError` if anything in it cannot be kept exactly.
    """
    return _written(value, _EXACT)


def canonical(value: object) -> str:
    """Return a text that is the same for equal values, dicts in whatever order, for digests of what is exactly so.

    `decode` makes an equal value of it. Raise `EncodeError` as `encode` does.
    """
    return _written(value, _CANONICAL)


def typed_form(value: object) -> str:
    """Return a text that is the same for values that mean the same to a tool, for keys and digests of arguments.

    2 and 2.0 agree, and so do 0 and -0.0, a list and a tuple, Decimal 1.1 and 1.10, texts alike under NFC, and dicts in
    any order; 2.5 and "2.5" do not, nor True and 1. Raise `EncodeError` for what cannot be kept, for NaN, and for keys
    or members that are the same in this form.
    """
    return _written(value, _TYPED)


def _encoder(*, sort_keys: bool) -> Callable[[Any], str]:
    made = json.JSONEncoder(sort_keys=sort_keys, separators=(",", ":"), allow_nan=False, check_circular=False)
    return made.encode


_in_order, _sorted = _encoder(sort_keys=False), _encoder(sort_keys=True)


def _written(value: object, form: _Form) -> str:
    try:
        return (_in_order if form.ordered else _sorted)(_dump(value, None, 0, form))
    except RecursionError:
        raise EncodeError("$", type_name(type(value)), "nested too deep for the stack it is written on") from None


def _dump(value: Any, where: Where, depth: int, form: _Form) -> Any:
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _text(value, form)
    if kind in _ATOMS:
        return value
    if kind is int:
        return value if -_WIDEST < value < _WIDEST else {"$": "int", "v": hex(value)}
    if kind is float:
        return _number(value, where, form)
    if depth >= MAX_DEPTH:
        raise EncodeError(path_to(where), type_name(kind), f"more than {MAX_DEPTH} levels deep, or within itself")
    if kind is dict:
        return _object(value, where, depth, form)
    if kind is list or (form.typed and kind is tuple):
        return [
            item
            if (cls := type(item)) in _ATOMS or (cls is str and item.isascii())
            else _dump(item, (where, index), depth + 1, form)
            for index, item in enumerate(value)
        ]
    return _tagged(kind, value, where, depth, form)


def _text(value: str, form: _Form) -> Any:
    if form.typed:
        value = normalize("NFC", value)
    try:
        value.encode()
    except UnicodeEncodeError:
        # JSON would join two halves of a character that this text holds side by side.
        if len(halves := _HALVES.split(value)) > 1:
            return {"$": "str", "v": halves}
    return value


def _number(value: float, where: Where, form: _Form) -> Any:
    if isfinite(value):
        return int(value) if form.typed and value.is_integer() else value
    if form.typed and isnan(value):
        raise EncodeError(path_to(where), "float", "not a number, and so equal to nothing")
    return {"$": "float", "v": repr(value)}


def _object(value: dict[Any, Any], where: Where, depth: int, form: _Form) -> Any:
    plain = {}
    for key, item in value.items():
        name = key if type(key) is str and key.isascii() else _dump(key, (where, None), depth + 2, form)
        if type(name) is not str or name == "$":
            return _pairs(value, where, depth, form)
        if name in plain:
            raise EncodeError(path_to(where), "dict", "two of its keys are the same in this form")
        kind = type(item)  # the commonest items are spared a call
        ascii_text = kind is str and item.isascii()
        plain[name] = item if ascii_text or kind in _ATOMS else _dump(item, (where, key), depth + 1, form)
    return plain


def _pairs(value: dict[Any, Any], where: Where, depth: int, form: _Form) -> Any:
    pairs = {}
    for key, item in value.items():
        written = _dump(key, (where, None), depth + 2, form)
        step = key if type(key) is str else None
        pairs[_sorted(written)] = (written, _dump(item, (where, step), depth + 2, form))
    if len(pairs) != len(value):
        raise EncodeError(path_to(where), "dict", "two of its keys are the same in this form")
    kept = pairs if form.ordered else sorted(pairs)
    return {"$": "dict", "v": [part for text in kept for part in pairs[text]]}


def _tagged(kind: type, value: Any, where: Where, depth: int, form: _Form) -> Any:
    try:
        if known := KINDS.get(kind):
            take = known.same if form.typed and known.same else known.take
            payload = _dump(take(value), where, depth + 1, form)
            if kind is set or kind is frozenset:
                members = {_sorted(member): member for member in payload}
                if len(members) != len(payload):
                    raise Unfit(kind, "two of its members are the same in this form")
                payload = [members[text] for text in sorted(members)]
            return {"$": known.tag, "v": payload}
        if record := registered(kind):
            parts = record.take(value)
            node = {"$": "type", "n": record.name, "v": _dump(parts.fields, where, depth + 1, form)}
            if parts.beyond is not None:
                node["x"] = _dump(parts.beyond, where, depth + 1, form)
            if parts.noted is not None and not form.typed:
                node["s"] = _dump(parts.noted, where, depth + 1, form)
            return node
    except Unfit as unfit:
        raise EncodeError(path_to(where), type_name(unfit.cls), unfit.reason) from None
    raise EncodeError(path_to(where), type_name(kind), "neither a kind of this format nor a registered type")
