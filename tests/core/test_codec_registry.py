"""A registered type comes back equal and of that type, under its name or an alias; another is refused by name."""

import enum
from dataclasses import InitVar, dataclass, field
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import pydantic
import pytest
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, field_validator

from adk_django.core.codec import DecodeError, EncodeError, decode, encode, register, registry, typed_form

T = TypeVar("T")


@pytest.fixture(autouse=True)
def _own_registry(monkeypatch):
    monkeypatch.setattr(registry, "_records", {})
    monkeypatch.setattr(registry, "_names", {})


class Cabin(enum.Enum):
    ECONOMY = "economy"
    COACH = "economy"
    FIRST = ("first", 1)


class Extras(enum.Flag):
    BAG = 1
    MEAL = 2


class Level(enum.IntEnum):
    HIGH = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Leg:
    price: Decimal
    cabin: Cabin
    label: str = field(init=False, default="", compare=False)

    def __post_init__(self):
        object.__setattr__(self, "label", f"{self.label}{self.cabin.name}!")


@dataclass
class Booking(Generic[T]):
    kinds: ClassVar[int] = 1
    legs: tuple[Leg, ...]
    seed: InitVar[int]
    note: T | None = None
    total: Decimal = field(init=False)

    def __post_init__(self, seed):
        self.total = sum((leg.price for leg in self.legs), Decimal(seed))

    @cached_property
    def first(self):
        return self.legs[0]


class Guest(BaseModel):
    model_config = ConfigDict(extra="allow")

    name: str = Field(alias="fullName")
    miles: Decimal | int = 0
    anything: Any = None
    _token: int = PrivateAttr(default=1)

    @field_validator("name")
    @classmethod
    def _grow(cls, value):
        return value + "!"  # a second validation would change it


class Box(BaseModel, Generic[T]):
    item: T


class Names(pydantic.RootModel[list[str]]):
    pass


@pydantic.dataclasses.dataclass
class Seat:
    row: int


def booking():
    made = Booking((Leg(price=Decimal("1.10"), cabin=Cabin.FIRST),), 5, note={"why": {1, 2}})
    assert made.first is made.legs[0]
    return made


def guest():
    made = Guest(fullName="Ada", seat=("12", Decimal("1.0")), anything=[Cabin.FIRST, b"\xff"])
    made._token = 7
    return made


@pytest.mark.parametrize(
    "make",
    [
        *(lambda: Cabin.FIRST, lambda: Cabin.COACH, lambda: Level.HIGH, lambda: Extras(0), lambda: Extras(3)),
        *(booking, lambda: {"deep": [booking()]}, guest, lambda: Names(["a"]), lambda: Seat(row=1)),
        *(lambda: Box[int](item=1), lambda: Box[str](item="1"), lambda: Box[Guest](item=guest())),
    ],
)  # fmt: skip
def test_a_registered_type_comes_back_equal_and_of_that_type(make):
    for cls in (Cabin, Extras, Level, Leg, Booking, Guest, Names, Seat, Box[int], Box[str], Box[Guest]):
        register(cls)
    value = make()
    text = encode(value)
    again = decode(text)
    assert again == value
    assert type(again) is type(value)
    assert repr(again) == repr(value)
    assert encode(again) == text


def test_what_equality_does_not_ask_for_comes_back_too():
    for cls in (Cabin, Leg, Guest):
        register(cls)
    leg = decode(encode(Leg(price=Decimal(1), cabin=Cabin.FIRST)))
    assert leg.label == "FIRST!"
    again = decode(encode(guest()))
    assert again.model_fields_set == {"name", "anything", "seat"}
    assert again._token == 7
    assert again.model_extra == {"seat": ("12", Decimal("1.0"))}


def test_two_equal_models_have_one_typed_form_whatever_was_set():
    register(Guest)
    assert typed_form(Guest(fullName="Ada")) == typed_form(Guest(fullName="Ada", miles=0))
    assert encode(Guest(fullName="Ada")) != encode(Guest(fullName="Ada", miles=0))
    assert typed_form(Guest(fullName="Ada")) != typed_form(Guest(fullName="Ada", miles=1))


def test_an_unregistered_type_is_refused_also_within_a_registered_one():
    register(Booking)
    with pytest.raises(EncodeError) as caught:
        encode([booking()])
    assert (caught.value.path, caught.value.type_name) == ("$[0].legs[0]", f"{__name__}.Leg")


def test_a_subclass_of_a_registered_type_is_not_that_type():
    class Child(Guest):
        pass

    register(Guest)
    with pytest.raises(EncodeError, match="Child"):
        encode(Child(fullName="Ada"))


def test_a_renamed_class_is_read_under_an_alias_and_refused_without_one(monkeypatch):
    register(Cabin, name="shop.Cabin")
    text = encode({"a": [Cabin.FIRST]})
    monkeypatch.setattr(registry, "_records", {})
    monkeypatch.setattr(registry, "_names", {})

    class Klasse(enum.Enum):
        FIRST = ("first", 1)

    with pytest.raises(DecodeError, match=r"\$\.a\[0\].*'shop\.Cabin'.*register it.*alias"):
        decode(text)
    register(Klasse, name="shop.Klasse", aliases=["shop.Cabin"])
    assert decode(text) == {"a": [Klasse.FIRST]}
    assert encode(Klasse.FIRST) == '{"$":"type","n":"shop.Klasse","v":"FIRST"}'


def test_a_name_belongs_to_one_class_and_a_class_has_one_name():
    register(Cabin, name="cabin")
    register(Cabin, name="cabin", aliases=("old",))
    with pytest.raises(ValueError, match="registered already"):
        register(Cabin, name="other")
    with pytest.raises(ValueError, match="another class"):
        register(Level, name="cabin")
    with pytest.raises(ValueError, match="another class"):
        register(Level, aliases=("old",))
    assert registry.registered(Level) is None


def test_register_is_a_decorator_with_and_without_arguments():
    @register
    class One(enum.Enum):
        A = 1

    @register(name="two")
    class Two(enum.Enum):
        A = 1

    assert decode(encode([One.A, Two.A])) == [One.A, Two.A]
    assert '"n":"two"' in encode(Two.A)


class WithSlot:
    __slots__ = ("hidden",)


@dataclass
class HiddenSlot(WithSlot):
    shown: int


@dataclass
class Number(int):
    shown: int


@dataclass
class Computed:
    shown: int

    @property
    def shown(self):
        return 1

    @shown.setter
    def shown(self, value):
        """Keep nothing."""


@pytest.mark.parametrize("cls", [HiddenSlot, Number, Computed, int, object, BaseException])
def test_a_type_whose_state_no_field_holds_cannot_be_registered(cls):
    with pytest.raises(TypeError):
        register(cls)


def test_an_instance_that_holds_more_or_less_than_its_fields_is_refused():
    register(Seat)
    register(Guest)
    seat = Seat(row=1)
    seat.aisle = True
    with pytest.raises(EncodeError, match="no field"):
        encode([seat])
    del seat.aisle, seat.row
    with pytest.raises(EncodeError, match="row is not set"):
        encode([seat])
    with pytest.raises(EncodeError, match="name is not set"):
        encode(Guest.model_construct())


def test_a_class_may_gain_fields_with_a_default_and_lose_none():
    @register(name="seat")
    @dataclass
    class NewSeat:
        row: int
        tags: list[str] = field(default_factory=list)
        letter: str = "A"

    @register(name="box")
    class NewBox(BaseModel):
        item: int
        tags: list[str] = Field(default_factory=list)

    assert decode('{"$":"type","n":"seat","v":{"row":1}}') == NewSeat(1)
    assert decode('{"$":"type","n":"box","v":{"item":1}}') == NewBox(item=1)
    for text in ('{"row":1,"colour":2}', "{}", "[]", '{"row":1,"__class__":2}', '"row"'):
        for name in ("seat", "box"):
            with pytest.raises(DecodeError):
                decode(f'{{"$":"type","n":"{name}","v":{text}}}')


@pytest.mark.parametrize(
    "rest",
    [
        '"x":1',
        '"x":[1,2]',
        '"x":[null,null]',
        '"x":[null,{"_token":1}],"s":5',
        '"x":[null,{"_token":1}],"s":[[]]',
        '"y":1',
    ],
)
def test_a_damaged_model_is_damage_and_nothing_else(rest):
    register(Guest)
    with pytest.raises(DecodeError):
        decode(f'{{"$":"type","n":"{__name__}.Guest","v":{{"name":"Ada"}},{rest}}}')


@pytest.mark.parametrize("payload", ['"GOLD"', '"__class__"', '"mro"', "3", "true", "null", "[]"])
def test_an_unknown_member_is_damage(payload):
    register(Cabin, name="cabin")
    with pytest.raises(DecodeError, match="no such member"):
        decode(f'{{"$":"type","n":"cabin","v":{payload}}}')
