"""The MD5 digests of SQS, which SDKs compute again and compare.

    attributes, sorted by name, each as    u32 length | name | u32 length | data type | u8 kind |
                                           u32 length | value         (big-endian)
    kind: 1 for String and Number, 2 for Binary (SQS Developer Guide, "message attributes")

System attributes are digested alike, apart from the others.
"""

from __future__ import annotations

import hashlib
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..codec.shapes import MessageAttributeValue

_LENGTH = struct.Struct(">I")
_TEXT = b"\x01"
_BINARY = b"\x02"


def of_body(body: bytes) -> str:
    """Digest of a message body as its reader gets it, in hex."""
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def of_attributes(attributes: Mapping[str, MessageAttributeValue] | None) -> str | None:
    """Digest of attributes that passed validation, in hex; None for none, as the key is absent."""
    if not attributes:
        return None
    pack = _LENGTH.pack
    parts: list[bytes] = []
    for name in sorted(attributes):
        attribute = attributes[name]
        kind, value = _TEXT, (attribute.string_value or "").encode()
        if attribute.binary_value is not None:
            kind, value = _BINARY, attribute.binary_value
        name_bytes = name.encode()
        type_bytes = (attribute.data_type or "").encode()
        parts += (
            pack(len(name_bytes)),
            name_bytes,
            pack(len(type_bytes)),
            type_bytes,
            kind,
            pack(len(value)),
            value,
        )
    return hashlib.md5(b"".join(parts), usedforsecurity=False).hexdigest()
