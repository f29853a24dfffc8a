"""A stored message, by whatever protocol it was written, as a Message of SQS
(docs/design/model.md#the-message-contract).

What SQS wrote comes back as it was. Of a message from elsewhere the typed attributes become message
attributes (`attribute_map`), and a body that is no text of XML 1.0 becomes base64, which the
attribute `weir.encoding` tells.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from adapters.base import Origin
from kernel.api import message as messages
from kernel.api.message import Ext, Flag

from ..codec.shapes import Message
from . import attribute_map, body_text, md5, native, selection
from .attribute_map import Properties
from .body_text import BASE64, ENCODING_ATTRIBUTE
from .native import NativeBlock
from .stored import deduplication_id_of, uuid_text

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel.api.message import Message as StoredMessage
    from kernel.api.origins import Origins

    from ..codec.shapes import MessageAttributeValue, ReceiveMessageRequest
    from ..environment import Context

_ENCODING_MARK: Final = ENCODING_ATTRIBUTE.encode()
"""In a native block only where the writer set `weir.encoding` (or quotes its name)."""

_RESERVED_EXT: Final = {
    Ext.MESSAGE_ID: "weir.message_id",
    Ext.TAG: "weir.tag",
    Ext.KEYS: "weir.keys",
}
_RESERVED_ATTRIBUTES: Final = {
    "content_type": "weir.content_type",
    "correlation_id": "weir.correlation_id",
    "reply_to": "weir.reply_to",
}

_SEQUENCE_DIGITS: Final = 20


class Death(msgspec.Struct, frozen=True):
    """What SQS tells of an entry of the dead-letter history, which is newest first."""

    topic: str
    deliveries: int = 0
    """Before it came here, over all queues."""


_DEATHS: Final = msgspec.msgpack.Decoder(list[Death])
_ATTRIBUTES: Final = msgspec.msgpack.Decoder(dict[str, object])


class Delivery(NamedTuple):
    """One message that was received."""

    slot: bytes
    handle: str
    offset: int
    attempt: int
    """From 1."""
    first_received_ms: int


def view(
    context: Context,
    delivery: Delivery,
    asked: frozenset[str],
    request: ReceiveMessageRequest,
    *,
    is_fifo: bool,
) -> Message:
    """The message as it is answered. `asked`: names of system attributes, may hold `All`."""
    message = messages.decode(delivery.slot)
    block: NativeBlock | None = None
    if message.origin == Origin.SQS:
        text = _own_body(message)
        if asked or request.message_attribute_names:
            block = native.decode(message.native)
        available = block.attributes if block is not None else {}
    else:
        text, available = _foreign(message, context.environment.client.origins)
    attributes = selection.message_attributes(request.message_attribute_names, available)
    return Message(
        message_id=uuid_text(message.uid.hex()),
        receipt_handle=delivery.handle,
        md5_of_body=md5.of_body(text.encode()),
        body=text,
        attributes=(
            selection.select(asked, _system(context, delivery, message, block, is_fifo=is_fifo))
            if asked
            else {}
        ),
        md5_of_message_attributes=md5.of_attributes(attributes),
        message_attributes=attributes,
    )


def sequence_number(offset: int) -> str:
    """SequenceNumber of the message at an offset: 20 digits, growing within a message group."""
    return f"{offset:0{_SEQUENCE_DIGITS}d}"


def _own_body(message: StoredMessage) -> str:
    """The text that an SQS client sent."""
    if _ENCODING_MARK in message.native:
        properties = attribute_map.from_sqs(native.decode(message.native).attributes)
        if properties.reserved.get(ENCODING_ATTRIBUTE) == BASE64:
            return body_text.base64_of(message.body)
    return message.body.decode()


def _foreign(
    message: StoredMessage, origins: Origins
) -> tuple[str, Mapping[str, MessageAttributeValue]]:
    """Text and message attributes of a message that another protocol wrote."""
    values = dict(origins.attributes(message.origin, message.native))
    if (own := message.ext.get(Ext.ATTRIBUTES)) is not None:
        values |= _ATTRIBUTES.decode(own)
    reserved: dict[str, str] = {}
    for kind, name in _RESERVED_EXT.items():
        if (stored := message.ext.get(kind)) is not None:
            reserved[name] = stored.decode("utf-8", "replace")
    for key, name in _RESERVED_ATTRIBUTES.items():
        if isinstance(value := values.get(key), str):
            reserved[name] = value
            del values[key]
    text, is_base64 = body_text.text_of(message.body)
    if is_base64:
        reserved[ENCODING_ATTRIBUTE] = BASE64
    return text, attribute_map.to_sqs(Properties(reserved, values))


def _system(
    context: Context,
    delivery: Delivery,
    message: StoredMessage,
    block: NativeBlock | None,
    *,
    is_fifo: bool,
) -> dict[str, str]:
    """Every system attribute that the message has."""
    ext = message.ext
    sender = block.sender_id if block is not None else None
    found = {
        "SenderId": sender or context.caller.account,
        "SentTimestamp": str(message.published_ms),
        "ApproximateReceiveCount": str(delivery.attempt),
        "ApproximateFirstReceiveTimestamp": str(delivery.first_received_ms),
    }
    if block is not None and block.trace_header:
        found["AWSTraceHeader"] = block.trace_header
    if is_fifo:
        found["SequenceNumber"] = sequence_number(delivery.offset)
    if (deduplication := ext.get(Ext.DEDUPLICATION_ID)) is not None:
        found["MessageDeduplicationId"] = deduplication_id_of(deduplication)
    group = ext.get(Ext.ORDERING_KEY) or ext.get(Ext.FAIRNESS_KEY)
    if group is not None:
        found["MessageGroupId"] = group.decode("utf-8", "replace")
    if message.flags & Flag.DEAD_LETTER and Ext.DEAD_LETTER in ext:
        death = _DEATHS.decode(ext[Ext.DEAD_LETTER])[0]
        found["DeadLetterQueueSourceArn"] = context.arn_of(death.topic)
        found["ApproximateReceiveCount"] = str(death.deliveries + delivery.attempt)
    return found
