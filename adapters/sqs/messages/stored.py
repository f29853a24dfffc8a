"""SQS messages as stored messages (`kernel.api.message`): what a send writes.

    SQS                              stored
    body                             body; decoded, if `weir.encoding` is `base64`
    attributes, trace, SenderId      native block (`native`)
    MessageGroupId                   Ext.ORDERING_KEY on FIFO queues, else Ext.FAIRNESS_KEY; the
                                     hash of either in the header
    MessageDeduplicationId           Ext.DEDUPLICATION_ID; SHA-256 of the body, if by content
    DelaySeconds                     header `delay`
    weir.message_id, .tag, .keys     Ext.MESSAGE_ID, .TAG, .KEYS, for the other protocols

With the deduplication scope `messageGroup` the deduplication id is `id NUL group`: ids are
printable, so the two come apart again.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from adapters.sqs.origin import ORIGIN_BYTE
from kernel.api import message as messages
from kernel.api.message import HEADER, VERSION, Ext, Flag

from . import attribute_map, body_text, native
from .body_text import BASE64, ENCODING_ATTRIBUTE
from .message_attributes import TRACE_HEADER
from .native import NativeBlock

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel.api.client import Destinations, PublishBatch
    from kernel.api.origins import Origins

    from ..codec.shapes import MessageAttributeValue, OutgoingMessage
    from ..environment import Context
    from ..queues.ready_queue import Queue

_WEIR_PREFIX: Final = "weir."
_EXT_OF_ATTRIBUTES: Final = {
    "weir.message_id": Ext.MESSAGE_ID,
    "weir.tag": Ext.TAG,
    "weir.keys": Ext.KEYS,
}
_KERNEL_NAMES: Final = {
    "weir.content_type": "content_type",
    "weir.correlation_id": "correlation_id",
    "weir.reply_to": "reply_to",
}
"""Attributes that every protocol has under the kernel's name."""
_SCOPE_SEPARATOR: Final = b"\0"
_PERSISTENT: Final = int(Flag.PERSISTENT)
_PERSISTENT_ONCE: Final = int(Flag.PERSISTENT | Flag.DEDUPLICATE)


def add(
    batch: PublishBatch,
    to: Destinations,
    context: Context,
    queue: Queue,
    message: OutgoingMessage,
    body: bytes,
    now_ms: int,
) -> str:
    """Add a message that passed validation to a batch; its MessageId.

    `body`: its text in UTF-8. Raises InvalidParameterValue: not the base64 or JSON that reserved
    attributes say.
    """
    attributes = message.message_attributes
    ext: dict[int, bytes] = {}
    tag = 0
    block = context.caller.plain_native
    trace = _trace_of(message, context)
    if attributes or trace is not None:
        attributes = attributes or {}
        block = native.encode(NativeBlock(attributes, trace, context.caller.sender_id))
        if any(name.startswith(_WEIR_PREFIX) for name in attributes):
            body, tag = _read_reserved(attributes, body, ext)
    flags, key = _PERSISTENT, 0
    group = message.message_group_id
    if queue.is_fifo:
        assert group is not None, "validation.check_message"
        flags = _PERSISTENT_ONCE
        group_bytes = group.encode()
        key = messages.key_hash(group_bytes)
        ext[Ext.ORDERING_KEY] = group_bytes
        ext[Ext.DEDUPLICATION_ID] = _deduplication_id(queue, message, group_bytes)
    elif group is not None:
        group_bytes = group.encode()
        key = messages.key_hash(group_bytes)
        ext[Ext.FAIRNESS_KEY] = group_bytes
    # A message of a FIFO queue has no delay of its own: 0, which passes, is the queue's.
    delay_s = message.delay_seconds
    delay_ms = queue.delay_ms if delay_s is None or queue.is_fifo else delay_s * 1000
    ext_block = messages.encode_ext(ext) if ext else b""
    high, low = batch.uid()
    header = HEADER.pack(
        VERSION,
        ORIGIN_BYTE,
        0,
        flags,
        len(body),
        len(block),
        len(ext_block),
        high,
        low,
        now_ms,
        0,
        delay_ms,
        key,
        tag,
        0,
    )
    head = header + ext_block + block
    batch.add(to, (head, body), len(head) + len(body))
    return uuid_text(f"{high:016x}{low:016x}")


def uuid_text(digits: str) -> str:
    """32 hexadecimal digits as the text of a UUID."""
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def deduplication_id_of(stored: bytes) -> str:
    """MessageDeduplicationId in an Ext.DEDUPLICATION_ID."""
    return stored.partition(_SCOPE_SEPARATOR)[0].decode("utf-8", "replace")


def _trace_of(message: OutgoingMessage, context: Context) -> str | None:
    """AWSTraceHeader: the system attribute, else the header of the request."""
    system = message.message_system_attributes
    if system:
        return system[TRACE_HEADER].string_value
    header = context.trace_header
    return header.decode("ascii", "replace") if header else None


def _read_reserved(
    attributes: Mapping[str, MessageAttributeValue], body: bytes, ext: dict[int, bytes]
) -> tuple[bytes, int]:
    """(body, tag hash) by the attributes that mean something to the kernel; fills `ext`."""
    reserved = attribute_map.from_sqs(attributes).reserved
    for name, kind in _EXT_OF_ATTRIBUTES.items():
        if (value := reserved.get(name)) is not None:
            ext[kind] = value.encode()
    if reserved.get(ENCODING_ATTRIBUTE) == BASE64:
        body = body_text.body_of(body)
    tag = ext.get(Ext.TAG)
    return body, 0 if tag is None else messages.tag_hash(tag)


def _deduplication_id(queue: Queue, message: OutgoingMessage, group: bytes) -> bytes:
    given = message.message_deduplication_id
    if given is None:
        given = sha256((message.message_body or "").encode()).hexdigest()
    key = given.encode()
    return key + _SCOPE_SEPARATOR + group if queue.fifo_per_group else key


class SqsOrigin:
    """`kernel.api.origins.OriginReader` of messages that SQS clients wrote."""

    def routing_key(self, native_block: bytes, /) -> str:
        """SQS has no keys."""
        return ""

    def topic_name(self, native_block: bytes, /) -> str:
        """SQS has no keys."""
        return ""

    def attributes(self, native_block: bytes, /) -> Mapping[str, object]:
        """Message attributes as typed values, under the names that all protocols know."""
        properties = attribute_map.from_sqs(native.decode(native_block).attributes)
        values = dict(properties.attributes)
        for name, value in properties.reserved.items():
            if (known := _KERNEL_NAMES.get(name)) is not None:
                values[known] = value
        return values


ORIGIN: Final = SqsOrigin()


def register_origin(origins: Origins) -> None:
    """Have the kernel read what SQS clients wrote: wherever stored messages are."""
    origins.register(ORIGIN_BYTE, ORIGIN)


"""One object: an origin byte has one reader for as long as the client lives."""
