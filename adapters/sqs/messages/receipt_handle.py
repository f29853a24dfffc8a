"""The receipt handle: a lease token of the kernel, its queue, and when it was given, as text.

    base64( u8 version (1) | u32 CRC-32 of all but itself | u64 topic id | u32 received_s | token )
                                                                                     (big-endian)

The checksum tells a mangled handle (ReceiptHandleIsInvalid) from one whose lease is over; it proves
nothing. What the token proves is the kernel's business: it is fenced there. The topic tells a
handle of another queue; `received_s`, seconds since 1970, is what the 12 hours of a message in
flight are counted from.
"""

from __future__ import annotations

import binascii
import struct
from typing import NamedTuple

from ..error_codes import invalid_receipt_handle

TOKEN_BYTES_MAX = 512
"""Bounds the text we decode. A lease token takes some dozens of bytes; AWS's handles, 1,024
characters at most, would fit."""

_VERSION = b"\x01"
_VERSION_CHECKSUM = binascii.crc32(_VERSION)
_CHECKSUM = struct.Struct(">I")
_FACTS = struct.Struct(">QI")
_FACTS_AT = len(_VERSION) + _CHECKSUM.size
_TOKEN_AT = _FACTS_AT + _FACTS.size
_HANDLE_CHARS_MAX = (_TOKEN_AT + TOKEN_BYTES_MAX + 2) // 3 * 4


class Receipt(NamedTuple):
    """What a handle says."""

    token: bytes
    topic: int
    received_s: int


def encode(token: bytes, topic: int, received_s: int) -> str:
    """The handle for a token of at most TOKEN_BYTES_MAX bytes.

    `topic`: its kernel id; `received_s`: seconds since 1970.
    """
    assert len(token) <= TOKEN_BYTES_MAX
    payload = _FACTS.pack(topic, received_s) + token
    checksum = _CHECKSUM.pack(binascii.crc32(payload, _VERSION_CHECKSUM))
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
    topic, received_s = _FACTS.unpack_from(envelope, _FACTS_AT)
    receipt = Receipt(envelope[_TOKEN_AT:], topic, received_s)
    # Comparing whole handles also refuses other spellings of the same bytes.
    if encode(*receipt) != handle:
        raise invalid_receipt_handle(handle)
    return receipt
