"""The data types of the wire (MQTT5 1.5) and nothing else.

Readers take `(data, position, end)`, never look at or beyond `end`, and return the value with the
position after it. What does not fit, or is not what its type says, is a malformed packet.

    two-byte length | bytes          text (UTF-8) and binary data
    7 bits + more flag, 1..4 times   variable byte integer, shortest form only
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from adapters.mqtt.codec.errors import LocalProtocolError, malformed
from adapters.mqtt.limits import TEXT_BYTES_MAX, VARINT_MAX

U16: Final = Struct(">H")
U32: Final = Struct(">I")


def read_u8(data: bytes, position: int, end: int) -> tuple[int, int]:
    if position >= end:
        raise malformed("the packet ends where a byte should be")
    return data[position], position + 1


def read_u16(data: bytes, position: int, end: int) -> tuple[int, int]:
    if position + 2 > end:
        raise malformed("the packet ends inside a two byte integer")
    return data[position] << 8 | data[position + 1], position + 2


def read_u32(data: bytes, position: int, end: int) -> tuple[int, int]:
    if position + 4 > end:
        raise malformed("the packet ends inside a four byte integer")
    value: int = U32.unpack_from(data, position)[0]
    return value, position + 4


def read_varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    """A variable byte integer, 0..268,435,455; a longer form than needed is refused."""
    value = shift = 0
    while True:
        if position >= end:
            raise malformed("the packet ends inside a variable byte integer")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                raise malformed("a variable byte integer is not in its shortest form")
            return value, position
        shift += 7
        if shift > 21:
            raise malformed("a variable byte integer is longer than four bytes")


def read_binary(data: bytes, position: int, end: int) -> tuple[bytes, int]:
    start = position + 2
    if start > end:
        raise malformed("the packet ends inside a length")
    stop = start + (data[position] << 8 | data[position + 1])
    if stop > end:
        raise malformed("a field is longer than its packet")
    return data[start:stop], stop


def text_of(raw: bytes) -> str:
    """UTF-8 as MQTT restricts it: no surrogates, no U+0000; a byte order mark is data."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise malformed("a string is not well-formed UTF-8") from error
    if "\0" in text:
        raise malformed("a string contains U+0000")
    return text


def read_text(data: bytes, position: int, end: int) -> tuple[str, int]:
    raw, position = read_binary(data, position, end)
    return text_of(raw), position


def encode_u16(value: int) -> bytes:
    """0..65,535 in two bytes; raises LocalProtocolError beyond."""
    if not 0 <= value <= 0xFFFF:
        raise LocalProtocolError(f"{value} does not fit a two byte integer")
    return U16.pack(value)


def encode_u32(value: int) -> bytes:
    """0..4,294,967,295 in four bytes; raises LocalProtocolError beyond."""
    if not 0 <= value <= 0xFFFF_FFFF:
        raise LocalProtocolError(f"{value} does not fit a four byte integer")
    return U32.pack(value)


def encode_varint(value: int) -> bytes:
    """The shortest form of 0..268,435,455; raises LocalProtocolError beyond."""
    if value < 0x80:
        if value < 0:
            raise LocalProtocolError("a variable byte integer cannot be negative")
        return value.to_bytes(1, "big")
    if value < 0x4000:
        return bytes((value & 0x7F | 0x80, value >> 7))
    if value < 0x20_0000:
        return bytes((value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14))
    if value <= VARINT_MAX:
        return bytes(
            (value & 0x7F | 0x80, value >> 7 & 0x7F | 0x80, value >> 14 & 0x7F | 0x80, value >> 21)
        )
    raise LocalProtocolError(f"{value} does not fit a variable byte integer")


def encode_binary(value: bytes) -> bytes:
    """Length and bytes; raises LocalProtocolError over 65,535 bytes."""
    if len(value) > TEXT_BYTES_MAX:
        raise LocalProtocolError(f"a field of {len(value)} bytes does not fit its length")
    return U16.pack(len(value)) + value


def encode_text(value: str) -> bytes:
    """Length and UTF-8; raises LocalProtocolError for what `text_of` would refuse."""
    try:
        raw = value.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError("a string holds a lone surrogate") from error
    if b"\0" in raw:
        raise LocalProtocolError("a string holds U+0000")
    return encode_binary(raw)
