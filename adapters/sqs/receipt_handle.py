"""The receipt handle: a lease token of the kernel, and when it was given, as text.

    base64( u8 version (1) | u32 CRC-32 of all but itself | u32 received_s | token )   (big-endian)

The checksum tells a mangled handle (ReceiptHandleIsInvalid) from one whose lease is over; it proves
nothing. What the token proves is the kernel's business: it is fenced there. `received_s`, seconds
since 1970, is what the 12 hours of a message in flight are counted from.
"""

from __future__ import annotations

import binascii
import struct
from typing import NamedTuple

from .errors import invalid_receipt_handle

TOKEN_BYTES_MAX = 512
"""Bounds the text we decode. A lease token takes some dozens of bytes; AWS's handles, 1,024
characters at most, would fit."""

_VERSION = b"\x01"
_VERSION_CHECKSUM = binascii.crc32(_VERSION)
_U32 = struct.Struct(">I")
_PAYLOAD_AT = len(_VERSION) + _U32.size
_TOKEN_AT = _PAYLOAD_AT + _U32.size
_HANDLE_CHARS_MAX = (_TOKEN_AT + TOKEN_BYTES_MAX + 2) // 3 * 4


class Receipt(NamedTuple):
    """What a handle says."""

    token: bytes
    received_s: int


def encode(token: bytes, received_s: int) -> str:
    """The handle for a token of at most TOKEN_BYTES_MAX bytes; `received_s`: seconds since 1970."""
    assert len(token) <= TOKEN_BYTES_MAX
    payload = _U32.pack(received_s) + token
    checksum = _U32.pack(binascii.crc32(payload, _VERSION_CHECKSUM))
    return binascii.b2a_base64(_VERSION + checksum + payload, newline=False).decode()


def decode(handle: str) -> Receipt:
    """What is in a handle. Raises ReceiptHandleIsInvalid for anything `encode` did not make."""
    if len(handle) > _HANDLE_CHARS_MAX:
        raise invalid_receipt_handle(handle)
    try:
        envelope = binascii.a2b_base64(handle, strict_mode=True)
    except ValueError:
        raise invalid_receipt_handle(handle) from None
    if len(envelope) < _TOKEN_AT:
        raise invalid_receipt_handle(handle)
    receipt = Receipt(envelope[_TOKEN_AT:], _U32.unpack_from(envelope, _PAYLOAD_AT)[0])
    # Comparing whole handles also refuses other spellings of the same bytes.
    if encode(*receipt) != handle:
        raise invalid_receipt_handle(handle)
    return receipt
