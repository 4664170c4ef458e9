"""How each kind of value that JSON lacks is taken apart into simpler ones, and made of them again, exactly."""

import re
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from fractions import Fraction
from math import inf, nan
from pathlib import PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any, NamedTuple, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

T = TypeVar("T")

_MICROSECOND = timedelta(microseconds=1)
# A context of our own: the current one may write a small e, and may take malformed text for a NaN.
_DECIMALS = Context(prec=MAX_PREC, Emax=MAX_EMAX, Emin=MIN_EMIN, capitals=1, traps=[InvalidOperation])
_HEX = re.compile(r"-?0x[0-9a-f]+")


class Unfit(Exception):  # noqa: N818  (told to the codec, which knows the path and raises the error)
    """A value whose kind is known but which cannot be kept exactly: its class, and why."""

    def __init__(self, cls: type, reason: str) -> None:
        super().__init__(cls, reason)
        self.cls, self.reason = cls, reason


class Misfit(ValueError):  # noqa: N818  (as above)
    """A payload that nothing can be made of. The message quotes no value."""


class Kind(NamedTuple):
    """A kind with a tag. ``same``, where it differs from ``take``, is alike for values that are equal."""

    tag: str
    take: Callable[[Any], Any]
    make: Callable[[Any], Any]
    same: Callable[[Any], Any] | None = None


def type_name(cls: type) -> str:
    """Return the full name of a class in ASCII, without a module for the built-in ones."""
    name = cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"
    return name.encode("ascii", "backslashreplace").decode("ascii")


def _one(payload: Any, kind: type[T]) -> T:
    if type(payload) is not kind:
        raise Misfit(f"expected {kind.__name__}, found {type_name(type(payload))}")
    return payload


def _some(payload: Any, kind: type[T]) -> list[T]:
    return [_one(item, kind) for item in _one(payload, list)]


def _row(payload: Any, *kinds: type) -> list[Any]:
    if len(_one(payload, list)) != len(kinds):
        raise Misfit(f"expected {len(kinds)} items, found {len(payload)}")
    return [_one(item, kind) for item, kind in zip(payload, kinds, strict=True)]


def _bytes(payload: Any) -> bytes:
    return b64decode(_one(payload, str), validate=True)


def _distinct(collection: type[Any]) -> Callable[[Any], Any]:
    def make(payload: Any) -> Any:
        made = collection(_one(payload, list))
        if len(made) != len(payload):
            raise Misfit("a member is there twice")
        return made

    return make


def _make_dict(payload: Any) -> dict[Any, Any]:
    if len(_one(payload, list)) % 2:
        raise Misfit("a key without a value")
    made = dict(zip(payload[::2], payload[1::2], strict=True))
    if len(made) * 2 != len(payload):
        raise Misfit("a key is there twice")
    return made


def _make_int(payload: Any) -> int:
    if not _HEX.fullmatch(_one(payload, str)):
        raise Misfit("no hexadecimal number")
    return int(payload, 16)


def _same_decimal(value: Decimal) -> str:
    if value.is_nan():
        raise Unfit(Decimal, "not a number, and so equal to nothing")
    return _DECIMALS.to_sci_string(_DECIMALS.normalize(value)) if value else "0"


def _zone(zone: tzinfo | None) -> list[Any] | None:
    if zone is None:
        return None
    if type(zone) is timezone:
        offset, name = zone.utcoffset(None), zone.tzname(None)
        return ["fixed", offset // _MICROSECOND, None if name == timezone(offset).tzname(None) else name]
    if type(zone) is ZoneInfo and zone.key:
        return ["zone", zone.key]
    from pydantic_core import TzInfo  # the fixed offset pydantic gives to what it parses

    if type(zone) is TzInfo:
        return ["parsed", (zone.utcoffset(None) or timedelta()) // timedelta(seconds=1)]
    raise Unfit(type(zone), "neither a fixed offset nor a named zone")


def _make_zone(payload: Any) -> tzinfo | None:
    if payload is None:
        return None
    match _one(payload, list):
        case ["fixed", int(offset), None]:
            return timezone(offset * _MICROSECOND)
        case ["fixed", int(offset), str(name)]:
            return timezone(offset * _MICROSECOND, name)
        case ["zone", str(key)]:
            return ZoneInfo(key)  # reads the zone's rules from the system, the first time it is asked for
        case ["parsed", int(seconds)]:
            from pydantic_core import TzInfo

            return TzInfo(seconds)
    raise Misfit("no time zone")


def _take_instant(value: datetime | time) -> list[Any]:
    return [value.replace(tzinfo=None, fold=0).isoformat(), value.fold, _zone(value.tzinfo)]


def _make_instant(kind: type[datetime] | type[time]) -> Callable[[Any], Any]:
    def make(payload: Any) -> datetime | time:
        match _one(payload, list):
            case [str(text), int(fold), zone]:
                naive = kind.fromisoformat(text)
                if naive.tzinfo is None:
                    return naive.replace(fold=fold, tzinfo=_make_zone(zone))
        raise Misfit(f"no {kind.__name__}")

    return make


def _path(tag: str, cls: type[PurePath]) -> Kind:
    def take(path: PurePath) -> str:
        again = cls(str(path))
        if (again.parts, str(again)) != (path.parts, str(path)):
            raise Unfit(cls, "its text is another path")
        return str(path)

    return Kind(tag, take, lambda payload: cls(_one(payload, str)))


KINDS: dict[type, Kind] = {
    tuple: Kind("tuple", list, lambda payload: tuple(_one(payload, list))),
    set: Kind("set", list, _distinct(set)),
    frozenset: Kind("frozenset", list, _distinct(frozenset)),
    bytes: Kind("bytes", lambda value: b64encode(value).decode("ascii"), _bytes),
    bytearray: Kind("bytearray", lambda value: b64encode(value).decode("ascii"), lambda p: bytearray(_bytes(p))),
    Decimal: Kind("decimal", _DECIMALS.to_sci_string, lambda p: Decimal(_one(p, str), _DECIMALS), _same_decimal),
    datetime: Kind("datetime", _take_instant, _make_instant(datetime)),
    time: Kind("time", _take_instant, _make_instant(time)),
    date: Kind("date", date.isoformat, lambda payload: date.fromisoformat(_one(payload, str))),
    timedelta: Kind(
        "timedelta", lambda v: [v.days, v.seconds, v.microseconds], lambda p: timedelta(*_row(p, int, int, int))
    ),
    UUID: Kind("uuid", str, lambda payload: UUID(_one(payload, str))),
    Fraction: Kind("fraction", lambda v: [v.numerator, v.denominator], lambda p: Fraction(*_row(p, int, int))),
    complex: Kind("complex", lambda v: [v.real, v.imag], lambda p: complex(*_row(p, float, float))),
    range: Kind("range", lambda v: [v.start, v.stop, v.step], lambda p: range(*_row(p, int, int, int))),
    PosixPath: _path("path", PosixPath),
    WindowsPath: _path("windowspath", WindowsPath),
    PurePosixPath: _path("pureposixpath", PurePosixPath),
    PureWindowsPath: _path("purewindowspath", PureWindowsPath),
}
MAKERS: dict[str, Callable[[Any], Any]] = {
    **{kind.tag: kind.make for kind in KINDS.values()},
    "int": _make_int,
    "float": lambda payload: {"nan": nan, "inf": inf, "-inf": -inf}[payload],
    "str": lambda payload: "".join(_some(payload, str)),
    "dict": _make_dict,
}
