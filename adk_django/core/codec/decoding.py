"""Reading: the scanner in C, then one walk that makes values of tagged objects."""

import json
from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

from adk_django.core.codec.encoding import MAX_DEPTH
from adk_django.core.codec.errors import DecodeError, Where, path_to, shown
from adk_django.core.codec.registry import Parts, registered_as
from adk_django.core.codec.types import MAKERS, Misfit

_DEEPEST = MAX_DEPTH + 4  # at the last level, a number or text may bring a tag of its own

_LONGEST = 640

_LEAVES = frozenset({type(None), bool, int, float, str})


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
        raise DecodeError(path_to(where), f"more than {MAX_DEPTH} levels deep")
    if kind is list:
        return [_load(item, (where, index), depth + 1) for index, item in enumerate(node)]
    if kind is _Twice:
        raise DecodeError(path_to(where), "a key is there twice")
    if "$" not in node:
        return {
            key: item if type(item) in _LEAVES else _load(item, (where, key), depth + 1) for key, item in node.items()
        }
    tag = node.pop("$")
    if tag == "type":
        return _load_record(node, where, depth)
    if type(tag) is not str or tag not in MAKERS:
        raise DecodeError(path_to(where), f"unknown tag {shown(tag)}")
    if node.keys() != {"v"}:
        raise DecodeError(path_to(where), f"a {tag} with other keys than v")
    return _made(MAKERS[tag], _load(node["v"], where, depth + 1), tag, where)


def _load_record(node: dict[str, Any], where: Where, depth: int) -> Any:
    name = node.get("n")
    if type(name) is not str or not {"n", "v"} <= node.keys() <= {"n", "v", "x", "s"}:
        raise DecodeError(path_to(where), "a registered type with other keys than n, v, x and s")
    record = registered_as(name)
    if record is None:
        hint = "register it, or give the class that took its place this name as an alias"
        raise DecodeError(path_to(where), f"no type is registered as {shown(name)}: {hint}")
    parts = Parts(*(_load(node.get(key), where, depth + 1) for key in ("v", "x", "s")))
    return _made(record.make, parts, record.name, where)


def _made(make: Callable[[Any], Any], payload: Any, name: str, where: Where) -> Any:
    try:
        return make(payload)
    except Misfit as misfit:
        raise DecodeError(path_to(where), f"no {shown(name)}: {misfit}") from None
    # Constructors, hashes and defaults, of the user's too, meet a payload nobody vouches for: all they raise is damage.
    except Exception as error:
        raise DecodeError(path_to(where), f"no {shown(name)}: {type(error).__name__}") from None


def require(fields: Mapping[str, object], *kinds: type) -> None:
    """Raise TypeError, naming the field and the type found, if a value is of none of exactly these types."""
    for name, value in fields.items():
        if type(value) not in kinds:
            raise TypeError(f"{name} is {type(value).__name__}")
