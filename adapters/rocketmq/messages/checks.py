"""What a message must be like to be sent: the limits and rules of docs/design/rocketmq.md.

The checks stand in the order in which the reference makes them, so that a message with several
faults is refused for the same one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ..errors import Code, RocketmqError
from ..settings import KEYS_MAX, MESSAGE_ID_CHARACTERS_MAX
from .topic_types import MessageType

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..codec.stubs import Message, SystemProperties
    from ..settings import RocketmqSettings

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")

RESERVED_PROPERTIES: Final = frozenset(
    {
        *("1ST_POP_TIME", "ARRIVE_TIME", "BORN_HOST", "BORN_TIMESTAMP", "BUYER_ID"),
        *("CHECK_IMMUNITY_TIME_IN_SECONDS", "CLUSTER", "CONSUME_START_TIME", "CORRECTION_FLAG"),
        *("CORRELATION_ID", "DELAY", "DLQ_ORIGIN_MESSAGE_ID", "DLQ_ORIGIN_TOPIC", "DUP_INFO"),
        *("EXTEND_UNIQ_INFO", "FORWARD_QUEUE_ID", "INNER_BASE", "INNER_MULTI_DISPATCH"),
        *("INNER_MULTI_QUEUE_OFFSET", "INNER_NUM", "INSTANCE_ID", "KEYS", "MAX_OFFSET"),
        *("MAX_RECONSUME_TIMES", "MIN_OFFSET", "MQ2_FLAG", "MSG_REGION", "MSG_TYPE"),
        *("ORIGIN_MESSAGE_ID", "PGROUP", "POP_CK", "POP_CK_OFFSET", "PUSH_REPLY_TIME"),
        *("REAL_QID", "REAL_TOPIC", "RECONSUME_TIME", "REDIRECT", "REPLY_TO_CLIENT"),
        *("RETRY_TOPIC", "TAGS", "TIMER_DELAY_LEVEL", "TIMER_DELAY_MS", "TIMER_DELAY_SEC"),
        *("TIMER_DELIVER_MS", "TIMER_DEQUEUE_MS", "TIMER_ENQUEUE_MS", "TIMER_ROLL_TIMES"),
        *("TRACE_CONTEXT", "TRACE_ON", "TRANSACTION_CHECK_TIMES", "TRANSFER_FLAG", "TRAN_MSG"),
        *("TRAN_PREPARED_QUEUE_OFFSET", "TTL", "UNIQ_KEY", "WAIT", "__CRC32#", "__SHARDINGKEY"),
        *("__STARTDELIVERTIME", "__transactionId__"),
    }
)
"""Names that the reference uses itself and refuses from clients."""


LEVEL_MAX: Final = 255
"""The kernel's highest priority; RocketMQ's are any number from 0 on."""

NO_LITE_TOPICS: Final = "lite topics are not served"


def check_body(size: int, bytes_max: int) -> None:
    """Raises MESSAGE_BODY_EMPTY, MESSAGE_BODY_TOO_LARGE."""
    if not size:
        raise RocketmqError(Code.MESSAGE_BODY_EMPTY, "the body of a message is empty")
    if size > bytes_max:
        message = f"the body has {size} bytes; at most {bytes_max} are allowed here"
        raise RocketmqError(Code.MESSAGE_BODY_TOO_LARGE, message)


def check_message_id(ident: str) -> None:
    """Raises ILLEGAL_MESSAGE_ID."""
    if not ident or len(ident) > MESSAGE_ID_CHARACTERS_MAX or _CONTROL.search(ident):
        message = f"the message id is empty, longer than {MESSAGE_ID_CHARACTERS_MAX} or unprintable"
        raise RocketmqError(Code.ILLEGAL_MESSAGE_ID, message)


def check_properties(message: Message, settings: RocketmqSettings) -> None:
    """Checks user properties, tag and keys.

    Raises MESSAGE_PROPERTIES_TOO_LARGE, ILLEGAL_MESSAGE_PROPERTY_KEY, ILLEGAL_MESSAGE_TAG,
    ILLEGAL_MESSAGE_KEY.
    """
    system = message.system_properties
    properties = message.user_properties
    if len(properties) > settings.properties_max:
        text = f"a message has at most {settings.properties_max} user properties"
        raise RocketmqError(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)
    size = 0
    for name, value in properties.items():
        if name in RESERVED_PROPERTIES:
            text = f"the property {name!a} is used by the system"
            raise RocketmqError(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, text)
        if not name or _CONTROL.search(name) or _CONTROL.search(value):
            text = "a property has an empty name, or holds control characters"
            raise RocketmqError(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, text)
        size += len(name.encode()) + len(value.encode())
    size += _check_tag(system) + _check_keys(system.keys)
    if size > settings.properties_bytes_max:
        limit = settings.properties_bytes_max
        text = f"user properties, tag and keys have {size} bytes; at most {limit} are allowed"
        raise RocketmqError(Code.MESSAGE_PROPERTIES_TOO_LARGE, text)


def _check_tag(system: SystemProperties) -> int:
    tag = system.tag
    if not tag:
        return 0
    if not tag.strip() or "|" in tag or _CONTROL.search(tag):
        text = "a tag must not be blank, nor hold | or control characters"
        raise RocketmqError(Code.ILLEGAL_MESSAGE_TAG, text)
    return len(tag.encode())


def _check_keys(keys: Sequence[str]) -> int:
    if len(keys) > KEYS_MAX:
        raise RocketmqError(Code.ILLEGAL_MESSAGE_KEY, f"a message has at most {KEYS_MAX} keys")
    size = 0
    for key in keys:
        if not key.strip() or _CONTROL.search(key):
            text = "a key must not be blank, nor hold control characters"
            raise RocketmqError(Code.ILLEGAL_MESSAGE_KEY, text)
        size += len(key.encode())
    return size


def check_group(group: str, settings: RocketmqSettings) -> None:
    """Checks a message group. Raises ILLEGAL_MESSAGE_GROUP."""
    limit = settings.message_group_bytes_max
    if not group.strip() or _CONTROL.search(group) or len(group.encode()) > limit:
        text = f"a message group must not be blank, nor longer than {limit} bytes or unprintable"
        raise RocketmqError(Code.ILLEGAL_MESSAGE_GROUP, text)


def type_of(system: SystemProperties) -> MessageType:
    """The type that a message's properties make it.

    Raises MESSAGE_PROPERTY_CONFLICT_WITH_TYPE if they contradict one another, or the type named;
    BAD_REQUEST for a type that does not exist.
    """
    types = []
    if system.message_group:
        types.append(MessageType.FIFO)
    if system.HasField("delivery_timestamp"):
        types.append(MessageType.DELAY)
    if system.lite_topic:
        types.append(MessageType.LITE)
    if system.HasField("priority"):
        types.append(MessageType.PRIORITY)
    try:
        named = MessageType(system.message_type)
    except ValueError:
        text = f"there is no message type {system.message_type}"
        raise RocketmqError(Code.BAD_REQUEST, text) from None
    if named is MessageType.TRANSACTION:
        types.append(named)
    if len(types) > 1:
        both = " and ".join(each.name for each in types)
        raise RocketmqError(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, f"a message cannot be both {both}"
        )
    found = types[0] if types else MessageType.NORMAL
    if named not in {found, MessageType.UNSPECIFIED}:
        raise RocketmqError(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"the message is said to be {named.name}, but its properties make it {found.name}",
        )
    return found


def check_type(found: MessageType, accepted: Sequence[MessageType], topic: str) -> None:
    """Raises UNSUPPORTED for messages of lite topics, MESSAGE_PROPERTY_CONFLICT_WITH_TYPE for types
    that the topic does not take.
    """
    if found is MessageType.LITE:
        raise RocketmqError(Code.UNSUPPORTED, NO_LITE_TOPICS)
    if found not in accepted:
        names = ", ".join(each.name for each in accepted)
        raise RocketmqError(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"topic {topic} takes messages of type {names}, not {found.name}",
        )


def priority(system: SystemProperties) -> int:
    """The kernel's level of a message. Raises BAD_REQUEST for a negative one."""
    if system.priority < 0:
        raise RocketmqError(Code.BAD_REQUEST, "a priority is 0 or more")
    return min(system.priority, LEVEL_MAX)


def delay_ms(system: SystemProperties, now_ms: int, limit_ms: int) -> int:
    """Milliseconds until a message is to be delivered; 0 if that time has come.

    Raises ILLEGAL_DELIVERY_TIME.
    """
    wanted = system.delivery_timestamp
    due_ms = wanted.seconds * 1000 + wanted.nanos // 1_000_000
    if due_ms <= 0:
        raise RocketmqError(Code.ILLEGAL_DELIVERY_TIME, "the delivery time lies before 1970")
    wait_ms = due_ms - now_ms
    if wait_ms > limit_ms:
        text = f"the delivery time is {wait_ms} ms ahead; at most {limit_ms} ms are allowed"
        raise RocketmqError(Code.ILLEGAL_DELIVERY_TIME, text)
    return max(wait_ms, 0)
