"""What a conversation is made of: plain values, equal by value, kept verbatim through a save.

Whatever a provider adds to a part or a message and this package has no word for lives in its ``extra`` mapping (or in
an `OpaquePart` of its own) and is sent back exactly as it came: signatures and reasoning items must not be lost.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Literal

from adk_django.core import codec

type_ = type  # the payload's tag is called "type" as well

Role = Literal["system", "user", "assistant", "tool"]
ROLES: Final = ("system", "user", "assistant", "tool")


@dataclass(frozen=True)
class TextPart:
    """Text, said by anybody."""

    text: str
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class BinaryPart:
    """Bytes with a media type, such as an image. Never masked."""

    data: bytes
    media_type: str
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolCall:
    """One call the model asked for. ``id`` is the provider's, is not unique, and identifies nothing here."""

    id: str
    name: str
    arguments: Any
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ToolResult:
    """What one call came to:

    Exactly one per `ToolCall`, in the order asked. ``content`` is any value the codec keeps.
    """

    call_id: str
    name: str
    content: Any
    is_error: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class OpaquePart:
    """A part only its provider understands, kept and sent back verbatim."""

    data: Mapping[str, Any]


Part = TextPart | BinaryPart | ToolCall | ToolResult | OpaquePart

_PARTS: Final[dict[str, type[Part]]] = {
    "text": TextPart,
    "binary": BinaryPart,
    "tool_call": ToolCall,
    "tool_result": ToolResult,
    "opaque": OpaquePart,
}
_TAGS: Final = {cls: tag for tag, cls in _PARTS.items()}
_TEXTS: Final[dict[type[Part], tuple[str, ...]]] = {
    TextPart: ("text",),
    BinaryPart: ("media_type",),
    ToolCall: ("id", "name"),
    ToolResult: ("call_id", "name"),
}


def require_texts(part: Part) -> None:
    """Raise TypeError, naming the field and the type found, if a text of a part is of another type."""
    codec.require({name: getattr(part, name) for name in _TEXTS.get(type_(part), ())}, str)


@dataclass(frozen=True)
class Message:
    """One entry of a conversation: a role and parts in the order they came."""

    role: Role
    parts: tuple[Part, ...]
    extra: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, role: Role, text: str) -> "Message":
        """Return a message of one text part."""
        return cls(role, (TextPart(text),))

    @property
    def text(self) -> str:
        """All text parts, joined."""
        return "".join(part.text for part in self.parts if isinstance(part, TextPart))

    @property
    def tool_calls(self) -> tuple[ToolCall, ...]:
        """The calls asked for, in order."""
        return tuple(part for part in self.parts if isinstance(part, ToolCall))

    @cached_property
    def encoded(self) -> str:
        """The text that this message is stored as. Raise `EncodeError` if a value in it cannot be kept exactly."""
        return codec.encode(self.to_data())

    def to_data(self) -> dict[str, Any]:
        """Return this message as data for the codec."""
        parts = [{"type": _TAGS[type_(part)], **vars(part)} for part in self.parts]
        return {"role": self.role, "parts": parts, **({"extra": self.extra} if self.extra else {})}

    @classmethod
    def from_data(cls, data: Any) -> "Message":
        """Return the message that ``data`` holds. Raise `DecodeError` if it holds none."""
        try:
            if data["role"] not in ROLES:
                raise ValueError(f"unknown role {data['role']!r}")
            parts = []
            for item in data["parts"]:
                fields = dict(item)
                part = _PARTS[fields.pop("type")](**fields)
                require_texts(part)
                parts.append(part)
            return cls(data["role"], tuple(parts), data.get("extra", {}))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise codec.DecodeError("$", f"not a message: {type_(error).__name__} {error}") from error


@dataclass(frozen=True)
class Usage:
    """Tokens of answered model calls. ``unknown_calls`` counts calls whose answer died with its worker."""

    input_tokens: int = 0
    output_tokens: int = 0
    unknown_calls: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.unknown_calls + other.unknown_calls,
        )
