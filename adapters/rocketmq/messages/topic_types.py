"""The message types of a topic, kept in `TopicOptions.declarations["rocketmq"]` as one word.

    declaration       accepts
    normal            NORMAL
    fifo              FIFO; its consumer groups deliver in order
    delay             DELAY
    transaction       TRANSACTION; see transactions
    priority          PRIORITY, and NORMAL, which counts as the lowest; higher ones are served first
    (none)            NORMAL and DELAY, PRIORITY if it has priorities: a topic that RocketMQ did not
                      make keeps no order for it

`weir topic create --type TYPE` writes the word.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from kernel.api.changes import PutTopic
from kernel.api.model import DEFAULT_GROUP, GroupOptions, TopicOptions

from ..names import dead_letter_topic

DECLARATION: Final = "rocketmq"
"""Our key among the declarations."""


class MessageType(IntEnum):
    """`enum MessageType` of the definition."""

    UNSPECIFIED = 0
    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4
    LITE = 5
    PRIORITY = 6


TOPIC_TYPES: Final = {
    "normal": (MessageType.NORMAL,),
    "fifo": (MessageType.FIFO,),
    "delay": (MessageType.DELAY,),
    "transaction": (MessageType.TRANSACTION,),
    "priority": (MessageType.PRIORITY, MessageType.NORMAL),
}
_UNDECLARED: Final = (MessageType.NORMAL, MessageType.DELAY)

PRIORITY_MAX: Final = 9
"""The highest priority of a topic of that type: as many levels as RocketMQ's has queues or more. A
message above it counts as the highest."""


def accepted(options: TopicOptions) -> tuple[MessageType, ...]:
    """The types of messages that RocketMQ clients may send to a topic."""
    word = word_of(options)
    if word is not None:
        return TOPIC_TYPES[word]
    return (*_UNDECLARED, MessageType.PRIORITY) if options.priority_max else _UNDECLARED


def declared(options: TopicOptions, word: str) -> TopicOptions:
    """Options with a topic's type; `word` is one of TOPIC_TYPES."""
    assert word in TOPIC_TYPES, word
    declarations = {**options.declarations, DECLARATION: word.encode()}
    priority_max = options.priority_max
    if word == "priority" and not priority_max:
        priority_max = PRIORITY_MAX
    return msgspec.structs.replace(options, declarations=declarations, priority_max=priority_max)


def word_of(options: TopicOptions) -> str | None:
    """The word of a topic; None: it has none, or none of ours."""
    word = options.declarations.get(DECLARATION, b"").decode("ascii", "replace")
    return word if word in TOPIC_TYPES else None


def dead_letters_of(tenant: str, group: str, retention_ms: int) -> PutTopic:
    """What makes the topic for the dead letters of a group, which keeps them for so long."""
    options = TopicOptions(message_ttl_ms=retention_ms)
    return PutTopic(tenant, dead_letter_topic(group), options, {DEFAULT_GROUP: GroupOptions()})
