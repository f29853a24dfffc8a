"""The receipt handle: a lease token of the kernel as text.

    base64( u8 version (1) | u32 CRC-32 of version and token, big-endian | token )

The checksum tells a mangled handle (ReceiptHandleIsInvalid) from one whose lease is over; it proves
nothing. What the token proves is the kernel's business: it is fenced there.
"""

from __future__ import annotations

import binascii
import struct

from .errors import invalid_receipt_handle

TOKEN_BYTES_MAX = 512
"""Bounds the text we decode. A lease token takes some dozens of bytes; AWS's handles, 1,024
characters at most, would fit."""

_VERSION = b"\x01"
_VERSION_CHECKSUM = binascii.crc32(_VERSION)
_CHECKSUM = struct.Struct(">I")
_TOKEN_AT = len(_VERSION) + _CHECKSUM.size
_HANDLE_CHARS_MAX = (_TOKEN_AT + TOKEN_BYTES_MAX + 2) // 3 * 4


def encode(token: bytes) -> str:
    """The handle for a token of at most TOKEN_BYTES_MAX bytes."""
    assert len(token) <= TOKEN_BYTES_MAX
    checksum = _CHECKSUM.pack(binascii.crc32(token, _VERSION_CHECKSUM))
    return binascii.b2a_base64(_VERSION + checksum + token, newline=False).decode()


def decode(handle: str) -> bytes:
    """The token in a handle. Raises ReceiptHandleIsInvalid for anything `encode` did not make."""
    if len(handle) > _HANDLE_CHARS_MAX:
        raise invalid_receipt_handle(handle)
    try:
        envelope = binascii.a2b_base64(handle, strict_mode=True)
    except ValueError:
        raise invalid_receipt_handle(handle) from None
    token = envelope[_TOKEN_AT:]
    # Comparing whole handles also refuses other spellings of the same bytes.
    if len(envelope) < _TOKEN_AT or encode(token) != handle:
        raise invalid_receipt_handle(handle)
    return token
