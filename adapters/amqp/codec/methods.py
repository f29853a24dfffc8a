"""Codec of methods, compiled from the table in spec.py.

A method frame (AMQP 0-9-1 section 4.2.4)::

    1:u8  channel:u16  size:u32 | class-id:u16  method-id:u16  arguments ... | 0xCE

Rules:

1. One compiler, no code per method. basic.publish, ack, reject, nack and deliver have lean paths
   of their own where they are hot (publishing.py, consuming.py); those are tested against this.
2. A decoded short string that is not UTF-8 survives by `surrogateescape`, for routing keys may
   hold any bytes. Who turns one into a name checks it (`names.py`).
3. Arguments that end early or late raise `AmqpError` 501 FRAME_ERROR, a method that does not
   exist raises 503 COMMAND_INVALID, a bad table 502 SYNTAX_ERROR; each names the method.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, TypeAlias

from adapters.amqp.codec.fields import Table, decode_table, encode_table
from adapters.amqp.codec.frames import FRAME_METHOD
from adapters.amqp.codec.spec import METHOD_TABLE
from adapters.amqp.errors import COMMAND_INVALID, FRAME_ERROR, AmqpError

if TYPE_CHECKING:
    from collections.abc import Callable

    from adapters.amqp.codec.method_base import Method

_FRAME_START: Final = struct.Struct(">BHII")
_INTEGER_SIZES: Final = {"Octet": 1, "Short": 2, "Long": 4, "LongLong": 8}

_Value: TypeAlias = int | bool | str | bytes | Table
_Decoder: TypeAlias = "Callable[[bytes, int, int], Method]"


def decode_method(data: bytes, offset: int, end: int) -> Method:
    """Decode the method whose class id is at `offset`, in a frame whose payload ends at `end`."""
    if end - offset < 4:
        raise AmqpError(FRAME_ERROR, "a method frame shorter than its class and method id")
    key = int.from_bytes(data[offset : offset + 4], "big")
    decoder = _DECODERS.get(key)
    if decoder is None:
        raise AmqpError(
            COMMAND_INVALID,
            f"no method {key & 0xFFFF} in class {key >> 16}",
            class_id=key >> 16,
            method_id=key & 0xFFFF,
        )
    try:
        return decoder(data, offset + 4, end)
    except AmqpError as error:
        raise error.blame(key >> 16, key & 0xFFFF) from None


def encode_method(channel: int, method: Method) -> bytes:
    """The whole frame of a method. Raises ValueError for a short string over 255 bytes."""
    arguments = encode_arguments(method)
    start = _FRAME_START.pack(FRAME_METHOD, channel, len(arguments) + 4, method.key)
    return start + arguments + b"\xce"


def encode_arguments(method: Method) -> bytes:
    """The arguments alone, as they stand behind the class and method id."""
    parts: list[bytes] = []
    bits = bit_count = 0
    for name, domain in method.layout:
        value = getattr(method, name)
        if domain == "Bit":
            if bit_count == 8:
                parts.append(bytes((bits,)))
                bits = bit_count = 0
            bits |= bool(value) << bit_count
            bit_count += 1
            continue
        if bit_count:
            parts.append(bytes((bits,)))
            bits = bit_count = 0
        parts.append(_encode_value(domain, value))
    if bit_count:
        parts.append(bytes((bits,)))
    return b"".join(parts)


def _encode_value(domain: str, value: _Value) -> bytes:
    match value:
        case int():
            return value.to_bytes(_INTEGER_SIZES[domain], "big")
        case str():
            return short_string(value)
        case bytes():
            return len(value).to_bytes(4, "big") + value
        case Table():
            return encode_table(value)


def short_string(text: str) -> bytes:
    """`text` as a short string. Raises ValueError when it has more than 255 bytes."""
    encoded = text.encode("utf-8", "surrogateescape")
    return bytes((len(encoded),)) + encoded


def _compile(method: type[Method]) -> _Decoder:
    layout = tuple(domain for _, domain in method.layout)

    def decode(data: bytes, offset: int, end: int) -> Method:
        values: list[_Value] = []
        bits = bit_count = 0
        for domain in layout:
            if domain == "Bit":
                if bit_count == 0:
                    bits, offset = _take_integer(data, offset, end, 1)
                values.append(bool(bits >> bit_count & 1))
                bit_count = (bit_count + 1) & 7
                continue
            bit_count = 0
            value, offset = _take(domain, data, offset, end)
            values.append(value)
        if offset != end:
            raise AmqpError(FRAME_ERROR, f"{method.wire_name} has octets behind its arguments")
        return method(*values)

    return decode


def _take(domain: str, data: bytes, offset: int, end: int) -> tuple[_Value, int]:
    match domain:
        case "ShortStr":
            length, offset = _take_integer(data, offset, end, 1)
            raw, offset = _take_bytes(data, offset, end, length)
            return raw.decode("utf-8", "surrogateescape"), offset
        case "LongStr":
            length, offset = _take_integer(data, offset, end, 4)
            return _take_bytes(data, offset, end, length)
        case "Table":
            return decode_table(data, offset, end)
        case _:
            return _take_integer(data, offset, end, _INTEGER_SIZES[domain])


def _take_integer(data: bytes, offset: int, end: int, size: int) -> tuple[int, int]:
    raw, after = _take_bytes(data, offset, end, size)
    return int.from_bytes(raw, "big"), after


def _take_bytes(data: bytes, offset: int, end: int, length: int) -> tuple[bytes, int]:
    after = offset + length
    if after > end:
        raise AmqpError(FRAME_ERROR, "method arguments are cut off")
    return data[offset:after], after


_DECODERS: Final[dict[int, _Decoder]] = {
    key: _compile(method) for key, method in METHOD_TABLE.items()
}
