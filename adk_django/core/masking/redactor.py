"""Mask credentials, and personal data where asked to, in text and in whatever values hold text.

A mask tells its kind and nothing of what it hides. Only text is masked: bytes and numbers come through as they are.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import lru_cache
from hashlib import sha256
from operator import is_
from typing import Any

from adk_django.core.codec import MAX_DEPTH, EncodeError
from adk_django.core.codec.registry import Parts, record_of
from adk_django.core.codec.types import Unfit, type_name
from adk_django.core.masking.patterns import CREDENTIALS, PERSONAL_DATA, SHORT, Match, Pattern, is_secret

_MASK = re.compile(r"\[\[adk:masked:([a-z-]{1,20}):[0-9a-f]{8}\]\]")
_PASSES = 10
_LEAVES = frozenset({type(None), bool, int, float, bytes})
_SEQUENCES = frozenset({list, tuple, set, frozenset})

Change = Callable[[str, object], str]  # given a text, and the key it stands under


@lru_cache
def _mask(kind: str) -> str:
    return f"[[adk:masked:{kind}:{sha256(f'adk_django mask {kind}'.encode()).hexdigest()[:8]}]]"


def _masks(text: str) -> Iterator[Match]:
    return (match for match in _MASK.finditer(text) if match[0] == _mask(match[1]))


def contains_mask(value: object) -> bool:
    """Tell whether a mask is in a text or anywhere in a value, keys included.

    Raise `EncodeError` if the value is nested deeper than the codec allows.
    """
    found: list[Match] = []

    def look(text: str, key: object) -> str:
        found.extend(_masks(text))
        return text

    _changed(value, look)
    return bool(found)


class Redactor:
    """Mask credentials, what ``extra_patterns`` match, and with ``personal_data`` addresses, phone and card numbers.

    Raise ValueError if a pattern is no regular expression or matches the empty text, naming it.
    """

    def __init__(self, extra_patterns: Iterable[str] = (), personal_data: bool = False) -> None:
        own = tuple(Pattern("custom", _compiled(pattern)) for pattern in extra_patterns)
        self._patterns = CREDENTIALS + own + (PERSONAL_DATA if personal_data else ())

    def redact(self, value: Any) -> Any:
        """Return the value with every credential masked, keys of dicts included; the same object if there is none.

        What stands under a key such as ``password`` is one, whatever it looks like. A value that the codec refuses is
        returned as it is. Raise `EncodeError` if the value is nested deeper than the codec allows.
        """
        return _changed(value, self._redact_under)

    def redact_text(self, text: str) -> str:
        """Return the text with every credential masked. Masks in it stay as they are."""
        # A mask may bring to light what stood beside the secret. Two passes find all, but a pattern of the user's that
        # looks at its neighbours might go on for ever, a character at a time.
        for _ in range(_PASSES):
            if (masked := self._pass(text)) == text:
                break
            text = masked
        return text

    def _redact_under(self, text: str, key: object) -> str:
        if isinstance(key, str) and is_secret(key, text):
            return text if text == _mask("assigned") else _mask("assigned")
        return self.redact_text(text)

    def _pass(self, text: str) -> str:
        lower = _folded(text)
        for pattern in self._patterns:
            if not pattern.words or any(word in lower for word in pattern.words):
                text = _replaced(text, pattern)
        return text


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"the pattern {pattern!r} is no regular expression: {error}") from error
    if compiled.search(""):
        raise ValueError(f"the pattern {pattern!r} matches the empty text, and so everywhere")
    return compiled


def _folded(text: str) -> str:
    return text.replace("\u0130", "i").lower()  # the one letter that lower() makes longer


def _replaced(text: str, pattern: Pattern) -> str:
    pieces, done = [], 0
    searched = _folded(text) if pattern.folded else text
    edges = [edge for mask in _masks(text) for edge in mask.span()]
    for start, end in zip([0, *edges[1::2]], [*edges[::2], len(text)], strict=True):
        while match := pattern.regex.search(searched, start, end):
            first, last = match.span(0 if pattern.kind == "custom" else match.lastgroup or 0)
            if first < last and pattern.accept(match):
                pieces += [text[done:first], _mask(pattern.kind)]
                start = done = last
            else:  # look into a short value again, and not into a long one, so that time stays linear
                start = max(first, match.start() + 1) if last - first <= SHORT else last
    return "".join([*pieces, text[done:]]) if pieces else text


def _changed(value: Any, change: Change, key: object = None, depth: int = 0) -> Any:
    """Return the value with each text changed, rebuilding only what holds a text that did change."""
    if isinstance(value, str):
        return change(value, key)
    kind = type(value)
    if kind in _LEAVES or isinstance(value, Enum):
        return value
    if depth > MAX_DEPTH:
        raise EncodeError("$", type_name(kind), f"more than {MAX_DEPTH} levels deep, or within itself")
    if kind in _SEQUENCES:
        items = [_changed(item, change, key, depth + 1) for item in value]
        return value if all(map(is_, items, value)) else kind(items)
    if kind is dict:
        return _changed_dict(value, change, depth)
    try:
        record = record_of(kind)
        parts = record.take(value) if record else None
    except (TypeError, Unfit):
        return value
    if record is None or parts is None:
        return value
    fields = _changed(parts.fields, change, None, depth + 1)
    beyond = _changed(parts.beyond, change, None, depth + 1)
    if fields is parts.fields and beyond is parts.beyond:
        return value
    return record.make(Parts(fields, beyond, parts.noted))


def _changed_dict(value: dict[Any, Any], change: Change, depth: int) -> dict[Any, Any]:
    changed: dict[Any, Any] = {}
    for key, item in value.items():
        name = masked = _changed(key, change, None, depth + 1)
        number = 1
        while name is not key and (name in changed or name in value):
            number += 1  # two keys that have one mask stay two
            name = f"{masked} {number}"
        changed[name] = _changed(item, change, key, depth + 1)
    same = all(map(is_, changed, value)) and all(map(is_, changed.values(), value.values()))
    return value if same else changed
