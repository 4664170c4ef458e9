"""Which texts may name a run, its tenant, its user or its agent: those that every store keeps as they are."""

from typing import Final

ID_CHARACTERS: Final = 255
_STORED_AS_IDS: Final = ("tenant", "run_id")  # in columns of `ID_CHARACTERS`


def require_ids(**given: object) -> None:
    """Raise ValueError, naming the field, for what is no text, empty, too long, or holds what no database keeps.

    That is NUL, and a lone surrogate, which is half a character.
    """
    for field, text in given.items():
        if not isinstance(text, str) or not text:
            found = "empty" if isinstance(text, str) else type(text).__name__
            raise ValueError(f"{field} is {found}: expected a text")
        if field in _STORED_AS_IDS and len(text) > ID_CHARACTERS:
            raise ValueError(f"{field} has {len(text)} characters: expected at most {ID_CHARACTERS}")
        if "\0" in text:
            raise ValueError(f"{field} has a NUL character at {text.index(chr(0))}: expected a text without")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{field} has a lone surrogate at {error.start}: expected a text without") from None
