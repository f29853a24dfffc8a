"""RecallMessage: a delayed message is taken back before it is due.

Durability: OK means that the recall is in the log, on the disks of a majority of the voters (one
node: on this node's): nobody gets the message, however the server ends.

The handle that a send of a delayed message is answered with:

    base64url( u8 version (1) | u32 CRC-32 of tenant, topic and what follows
               | u64 topic id | u8 queue | u64 offset | message id )

It proves nothing, and need not: it names a message of a topic to which its caller may publish. A
message that is due answers BAD_REQUEST, never MESSAGE_NOT_FOUND, which clients take for a success
(docs/design/rocketmq.md).
"""

from __future__ import annotations

import binascii
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kernel.common.ids import Offset

from ..codec import answer_encoding as wire
from ..codec.stubs import parse_recall_message
from ..errors import Code, RocketmqError
from ..settings import MESSAGE_ID_CHARACTERS_MAX

if TYPE_CHECKING:
    from kernel.api.model import TopicInfo

    from ..environment import Call, Environment

QUEUE_NUMBER: Final = 0xFF
"""The low bits of a queue's id (kernel.common.ids)."""

_HEAD: Final = struct.Struct(">BI")
_PLACE: Final = struct.Struct(">QBQ")
_VERSION: Final = 1
_HANDLE_CHARACTERS_MAX: Final = (
    (_HEAD.size + _PLACE.size + 4 * MESSAGE_ID_CHARACTERS_MAX + 2) // 3 * 4
)
_TO_URL: Final = bytes.maketrans(b"+/", b"-_")
_FROM_URL: Final = bytes.maketrans(b"-_", b"+/")


class Sent(NamedTuple):
    """What a handle names."""

    queue: int
    offset: int
    message_id: bytes


def encode(topic: TopicInfo, sent: Sent) -> bytes:
    """The handle (ASCII) of a message of a topic."""
    data = _PLACE.pack(topic.id, sent.queue, sent.offset) + sent.message_id
    head = _HEAD.pack(_VERSION, binascii.crc32(data, _seed(topic)))
    return binascii.b2a_base64(head + data, newline=False).translate(_TO_URL)


def decode(topic: TopicInfo, handle: str) -> Sent:
    """What a handle of this topic names. Raises BAD_REQUEST for what `encode` did not make."""
    if handle.isascii() and len(handle) <= _HANDLE_CHARACTERS_MAX:
        try:
            data = binascii.a2b_base64(handle.encode().translate(_FROM_URL), strict_mode=True)
            ident, queue, offset = _PLACE.unpack_from(data, _HEAD.size)
        except (ValueError, struct.error):
            pass
        else:
            sent = Sent(queue, offset, data[_HEAD.size + _PLACE.size :])
            # Comparing whole handles also tells mangled ones, and those of another topic.
            is_whole = ident == topic.id and encode(topic, sent) == handle.encode()
            if is_whole and queue in topic.numbers:
                return sent
    raise RocketmqError(Code.BAD_REQUEST, "this is no recall handle of this topic")


def _seed(topic: TopicInfo) -> int:
    return binascii.crc32(f"{topic.tenant}\0{topic.name}\0".encode())


async def recall_message(environment: Environment, data: bytes, call: Call) -> bytes:
    """RecallMessage. Raises RocketmqError, KernelError."""
    caller = environment.admit(call)
    request = parse_recall_message(data)
    tenant, shown = caller.tenant_of(request.topic)
    name = caller.topic_to_publish(shown.name, environment.settings)
    topic = await environment.topics.find(tenant, name)
    sent = decode(topic.info, request.recall_handle)
    if not await environment.client.recall(topic.info, sent.queue, Offset(sent.offset)):
        text = "the message is due, or gone: it can be recalled no more"
        raise RocketmqError(Code.BAD_REQUEST, text)
    environment.counters.recalled += 1
    return wire.OK + wire.block(2, sent.message_id)
