"""Write values as ASCII JSON, read them back equal and of the same type, and digest what was written.

Two laws. What would not come back exactly is refused when it is written: by path and type, never showing the value. And
what is stored is data: a tagged object names one of the kinds of this format or a registered type, never a thing to
import or to call.

Plain JSON is None, bool, int, finite float, str, list, and dict with text keys. Everything else is
``{"$": tag, "v": payload}``, a registered type ``{"$": "type", "n": name, "v": fields}``; a dict that has the key ``$``
itself is written as a tagged list of its pairs. A dict comes back in the order it had, at any depth; for digests there
are texts that do not depend on it. Values nest `MAX_DEPTH` levels deep, a tagged one counting as two.
"""

from adk_django.core.codec.decoding import decode, require
from adk_django.core.codec.digests import chain, digest
from adk_django.core.codec.encoding import MAX_DEPTH, canonical, encode, typed_form
from adk_django.core.codec.errors import DecodeError, EncodeError
from adk_django.core.codec.registry import register

__all__ = [
    "MAX_DEPTH",
    "DecodeError",
    "EncodeError",
    "canonical",
    "chain",
    "decode",
    "digest",
    "encode",
    "register",
    "require",
    "typed_form",
]
