"""The receipt handle: a lease token of the kernel as text, bound to its topic and group.

    base64url( u8 version (1) | u32 CRC-32 of tenant, topic, group and token | token )

The checksum tells a handle of another group or topic, and a mangled one, before the kernel is
asked. It proves nothing: that the lease is there is what the kernel checks, and that the caller may
consume, the policies.
"""

from __future__ import annotations

import binascii
import struct
from typing import Final

from ..errors import Code, RocketmqError

TOKEN_BYTES_MAX: Final = 512
"""Bounds the text we decode. A lease token takes some dozens of bytes."""

_HEAD: Final = struct.Struct(">BI")
_VERSION: Final = 1
_HANDLE_CHARS_MAX: Final = (_HEAD.size + TOKEN_BYTES_MAX + 2) // 3 * 4
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")


class Handles:
    """The handles of one group on one topic."""

    __slots__ = ("_seed",)

    def __init__(self, tenant: str, topic: str, group: str) -> None:
        self._seed = binascii.crc32(f"{tenant}\0{topic}\0{group}\0".encode())

    def encode(self, token: bytes) -> bytes:
        """The handle (ASCII) for a token of at most TOKEN_BYTES_MAX bytes."""
        head = _HEAD.pack(_VERSION, binascii.crc32(token, self._seed))
        return binascii.b2a_base64(head + token, newline=False).translate(_TO_URL)

    def decode(self, handle: str) -> bytes:
        """The token in a handle. Raises INVALID_RECEIPT_HANDLE for what `encode` did not make."""
        if handle.isascii() and len(handle) <= _HANDLE_CHARS_MAX:
            try:
                data = binascii.a2b_base64(handle.encode().translate(_FROM_URL), strict_mode=True)
            except ValueError:
                data = b""
            token = data[_HEAD.size :]
            # Comparing whole handles also refuses other spellings of the same bytes.
            if token and self.encode(token) == handle.encode():
                return token
        raise RocketmqError(
            Code.INVALID_RECEIPT_HANDLE,
            "this is no receipt handle of this consumer group on this topic",
        )
