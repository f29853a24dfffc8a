"""The native block of a message that SQS wrote: what a reader over SQS gets back exactly.

    msgpack [1, {attribute name: [data type, text, bytes]}, AWSTraceHeader, SenderId]

Of text and bytes one is nil, and the last two may be. The block is empty for a message without any
of them. What the kernel has fields for (group and deduplication id, times, attempts) is not in it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from ..codec.shapes import MessageAttributeValue

if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION = 1

_Fields = tuple[int, dict[str, tuple[str, str | None, bytes | None]], str | None, str | None]
_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(_Fields)


@dataclass(frozen=True, slots=True)
class NativeBlock:
    """Attributes as they came, data types with their labels."""

    attributes: Mapping[str, MessageAttributeValue] = field(default_factory=dict)
    trace_header: str | None = None
    sender_id: str | None = None


def encode(block: NativeBlock) -> bytes:
    """The block as bytes; its attributes have passed validation."""
    if not (block.attributes or block.trace_header or block.sender_id):
        return b""
    attributes = {
        name: (value.data_type, value.string_value, value.binary_value)
        for name, value in block.attributes.items()
    }
    return _ENCODER.encode((VERSION, attributes, block.trace_header, block.sender_id))


def decode(data: bytes) -> NativeBlock:
    """The block in bytes that `encode` made. Raises ValueError for others."""
    if not data:
        return NativeBlock()
    version, attributes, trace_header, sender_id = _DECODER.decode(data)
    if version != VERSION:
        raise ValueError(f"native block of version {version}, {VERSION} is the latest known here")
    return NativeBlock(
        {
            name: MessageAttributeValue(data_type=data_type, string_value=text, binary_value=binary)
            for name, (data_type, text, binary) in attributes.items()
        },
        trace_header,
        sender_id,
    )
