"""The message types of a topic, kept in `TopicOptions.declarations["rocketmq"]` as one word.

    declaration       accepts
    normal            NORMAL
    fifo              FIFO; its consumer groups deliver in order
    delay             DELAY
    transaction       TRANSACTION; see transactions
    (none)            NORMAL and DELAY: a topic that RocketMQ did not make keeps no order for it

`weir topic create --type TYPE` writes the word.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final

import msgspec

if TYPE_CHECKING:
    from kernel.model import TopicOptions

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
}
_UNDECLARED: Final = (MessageType.NORMAL, MessageType.DELAY)


def accepted(options: TopicOptions) -> tuple[MessageType, ...]:
    """The types of messages that RocketMQ clients may send to a topic."""
    word = options.declarations.get(DECLARATION, b"").decode("ascii", "replace")
    return TOPIC_TYPES.get(word, _UNDECLARED)


def declared(options: TopicOptions, word: str) -> TopicOptions:
    """Options with a topic's type; `word` is one of TOPIC_TYPES."""
    assert word in TOPIC_TYPES, word
    declarations = {**options.declarations, DECLARATION: word.encode()}
    return msgspec.structs.replace(options, declarations=declarations)
