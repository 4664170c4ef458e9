"""The user's own types that the codec keeps: enums, dataclasses and pydantic models, each under a name.

Making one again restores its fields and runs neither its constructor nor its validators: what was kept had passed them,
and a second pass could change it. A field the class has gained since takes its default; one it has lost is a misfit.
"""

import dataclasses
import enum
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from inspect import getattr_static
from types import MemberDescriptorType
from typing import Any, NamedTuple, TypeVar, overload

from adk_django.core.codec.types import Misfit, Unfit, type_name

T = TypeVar("T", bound=type)


class Parts(NamedTuple):
    """What an instance consists of. ``noted`` is kept, though equality does not ask for it."""

    fields: Any
    beyond: Any = None
    noted: Any = None


class Record(NamedTuple):
    """One type: its name, and how an instance is taken apart and made again."""

    name: str
    take: Callable[[Any], Parts]
    make: Callable[[Parts], Any]


_records: dict[type, Record] = {}
_names: dict[str, type] = {}


@overload
def register(cls: T, *, name: str | None = None, aliases: Iterable[str] = ()) -> T: ...
@overload
def register(cls: None = None, *, name: str | None = None, aliases: Iterable[str] = ()) -> Callable[[T], T]: ...
def register(cls: T | None = None, *, name: str | None = None, aliases: Iterable[str] = ()) -> T | Callable[[T], T]:
    """Let the codec keep instances of an enum, a dataclass or a pydantic model; also a class decorator.

    They are written under ``name``, by default module and class name, and read under it and each of ``aliases``: give
    a renamed class its old name as one. Raise TypeError if the class is none of the three or cannot be kept exactly,
    ValueError if it has another name already or a name is another class's.
    """
    if cls is None:
        return lambda decorated: register(decorated, name=name, aliases=aliases)
    named = name or type_name(cls)
    made = record_of(cls)
    if made is None:
        raise TypeError(f"{type_name(cls)} is no enum, dataclass or pydantic model")
    if cls in _records and _records[cls].name != named:
        raise ValueError(f"{type_name(cls)} is registered already, as {_records[cls].name!r}")
    names = [named, *aliases]
    for each in names:
        if _names.get(each, cls) is not cls:
            raise ValueError(f"{each!r} is the name of another class, {type_name(_names[each])}")
    _names.update(dict.fromkeys(names, cls))
    _records[cls] = made._replace(name=named)
    return cls


def registered(cls: type) -> Record | None:
    """Return what is registered for exactly this class."""
    return _records.get(cls)


def registered_as(name: str) -> Record | None:
    """Return what is registered under this name or alias."""
    return _records[_names[name]] if name in _names else None


def record_of(cls: type) -> Record | None:
    """Return how instances of a class are taken apart, registered or not; None if it is none of the three.

    Raise TypeError if there is state in them that no field holds.
    """
    if cls in _records:
        return _records[cls]
    if issubclass(cls, enum.Enum):
        return _enum(cls)
    if dataclasses.is_dataclass(cls):
        return _dataclass(cls)
    if hasattr(cls, "__pydantic_validator__"):
        return _model(cls)
    return None


def _enum(cls: type[enum.Enum]) -> Record:
    def take(value: enum.Enum) -> Parts:
        if value.name in cls.__members__:
            return Parts(value.name)
        if isinstance(value, enum.Flag):  # a combination of flags is no member and has no name of its own
            return Parts(value.value)
        raise Unfit(cls, "it is no member")

    def make(parts: Parts) -> enum.Enum:
        if type(parts.fields) is str and parts.fields in cls.__members__:
            return cls[parts.fields]
        if type(parts.fields) is int and issubclass(cls, enum.Flag):
            return cls(parts.fields)
        raise Misfit("no such member")

    return Record("", take, make)


def _dataclass(cls: type) -> Record:
    fields = {field.name: field for field in dataclasses.fields(cls)}
    _require_plain_new(cls)
    _require_plain_fields(cls, fields)

    def take(value: Any) -> Parts:
        _refuse_others(cls, getattr(value, "__dict__", {}), fields)
        return Parts({name: _present(value, name) for name in fields})

    def make(parts: Parts) -> Any:
        made: Any = object.__new__(cls)
        for name, value in _restored(fields, parts.fields, _dataclass_default).items():
            object.__setattr__(made, name, value)
        return made

    return Record("", take, make)


def _model(cls: Any) -> Record:
    from pydantic import BaseModel

    _require_plain_new(cls)

    def take(value: Any) -> Parts:
        state = BaseModel.__getstate__(value)
        held, extra, private = state["__dict__"], state["__pydantic_extra__"], state["__pydantic_private__"]
        fields = {name: _present(value, name) for name in cls.model_fields}
        _refuse_others(cls, held, fields)
        noted = state["__pydantic_fields_set__"]
        beyond = [extra, private] if extra or private is not None else None
        return Parts(fields, beyond, None if noted == {*fields, *(extra or ())} else sorted(noted))

    def make(parts: Parts) -> Any:
        fields = _restored(cls.model_fields, parts.fields, _model_default)
        extra, private = _optional_dicts(parts.beyond)
        if extra is None and cls.model_config.get("extra") == "allow":
            extra = {}
        if (private is None) != (not cls.__private_attributes__):
            raise Misfit("other private attributes than the class has")
        noted = {*parts.fields, *(extra or ())} if parts.noted is None else set(parts.noted)
        made: Any = object.__new__(cls)
        state = {"__dict__": fields, "__pydantic_extra__": extra, "__pydantic_private__": private}
        BaseModel.__setstate__(made, {**state, "__pydantic_fields_set__": noted})
        return made

    return Record("", take, make)


def _require_plain_new(cls: Any) -> None:
    if cls.__new__ is not object.__new__:
        raise TypeError(f"{type_name(cls)} has a __new__ of its own")


def _require_plain_fields(cls: type, fields: Mapping[str, Any]) -> None:
    """Raise TypeError if a field is computed on access, or if a slot is no field."""
    for name in fields:
        found = getattr_static(cls, name, None)
        if hasattr(type(found), "__set__") and not isinstance(found, MemberDescriptorType):
            raise TypeError(f"{type_name(cls)}.{name} is a property and no plain field")
    for base in cls.__mro__:
        for name, found in vars(base).items():
            if isinstance(found, MemberDescriptorType) and name not in fields:
                raise TypeError(f"{type_name(cls)} has the slot {name}, which is no field")


def _present(value: Any, name: str) -> Any:
    try:
        return object.__getattribute__(value, name)
    except AttributeError:
        raise Unfit(type(value), f"its field {name} is not set") from None


def _refuse_others(cls: type, held: Mapping[str, Any], fields: Mapping[str, Any]) -> None:
    """Raise Unfit if an instance holds what no field does and what is not computed again when asked for."""
    for name in held.keys() - fields.keys():
        if not isinstance(getattr_static(cls, name, None), cached_property):
            raise Unfit(cls, "it holds an attribute that is no field")


def _restored(fields: Mapping[str, Any], given: Any, default: Callable[[str, Any], Any]) -> dict[str, Any]:
    if type(given) is not dict:
        raise Misfit("no fields")
    if lost := [name for name in given if name not in fields]:
        raise Misfit(f"the class has no field {ascii(lost[0])[:60]}")
    return {name: given[name] if name in given else default(name, field) for name, field in fields.items()}


def _dataclass_default(name: str, field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    raise Misfit(f"its field {name} is missing")


def _model_default(name: str, field: Any) -> Any:
    if field.is_required():
        raise Misfit(f"its field {name} is missing")
    return field.get_default(call_default_factory=True, validated_data={})


def _optional_dicts(beyond: Any) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    match beyond:
        case None:
            return None, None
        case [dict() | None as extra, dict() | None as private]:
            if all(type(name) is str for name in [*(extra or ()), *(private or ())]):
                return extra, private
    raise Misfit("neither extra fields nor private attributes")
