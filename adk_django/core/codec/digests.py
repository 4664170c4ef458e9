"""Digests of what was written."""

from hashlib import sha256


def digest(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal."""
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def chain(previous: str, text: str) -> str:
    """Return the rolling digest of a transcript by one text more. Before the first, ``previous`` is empty."""
    return digest(previous + digest(text))
