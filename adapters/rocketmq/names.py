"""Names of topics, groups and namespaces, and what they are called in the kernel.

    RocketMQ                      kernel
    topic T                       topic T
    topic %DLQ%G                  topic dlq.G: the dead letters of group G
    group G                       group G of the topic it consumes
    namespace N                   tenant (`RocketmqSettings.namespaces`)

Clients disagree on where the namespace stands: some send a header, some fill the field of every
resource, some do half of either. The header counts, else the field; two different ones are an
error. Answers echo what the client sent.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from .errors import Code, RocketmqError

if TYPE_CHECKING:
    from .codec.answer_encoding import Name
    from .settings import RocketmqSettings

_NAME: Final = re.compile(r"[%a-zA-Z0-9_-]+", re.ASCII)
_DEAD_LETTERS: Final = "%DLQ%"
_DEAD_LETTER_PREFIX: Final = "dlq."
_SYSTEM_PREFIXES: Final = ("%", "__", "rmq_sys_", "RMQ_SYS_")
"""Names that the reference keeps for itself, and (`__`) those of our own server."""
_SYSTEM_NAMES: Final = frozenset(
    {"TBW102", "SCHEDULE_TOPIC_XXXX", "BenchmarkTest", "OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC"}
)


def topic_name(name: str, settings: RocketmqSettings) -> str:
    """The kernel's name of a topic. Raises ILLEGAL_TOPIC."""
    limit = settings.topic_characters_max
    if name.startswith(_DEAD_LETTERS):
        return dead_letter_topic(group_name(name.removeprefix(_DEAD_LETTERS), settings))
    _check("topic", name, limit, Code.ILLEGAL_TOPIC)
    if name.startswith(_SYSTEM_PREFIXES) or name in _SYSTEM_NAMES:
        raise RocketmqError(Code.ILLEGAL_TOPIC, f"the topic {name!a} is a name of the system")
    return name


def group_name(name: str, settings: RocketmqSettings) -> str:
    """The kernel's name of a consumer group. Raises ILLEGAL_CONSUMER_GROUP."""
    _check("consumer group", name, settings.group_characters_max, Code.ILLEGAL_CONSUMER_GROUP)
    if name.startswith(_SYSTEM_PREFIXES):
        message = f"the consumer group {name!a} is a name of the system"
        raise RocketmqError(Code.ILLEGAL_CONSUMER_GROUP, message)
    return name


def dead_letter_topic(group: str) -> str:
    """The kernel's topic for the dead letters of a group."""
    return _DEAD_LETTER_PREFIX + group


def shown_topic(name: str) -> str:
    """How RocketMQ spells the kernel's topic."""
    if name.startswith(_DEAD_LETTER_PREFIX):
        return _DEAD_LETTERS + name.removeprefix(_DEAD_LETTER_PREFIX)
    return name


def effective_namespace(header: str, name: Name) -> str:
    """The namespace of a resource. Raises FORBIDDEN if header and field are different ones."""
    if header and name.namespace and header != name.namespace:
        raise RocketmqError(
            Code.FORBIDDEN,
            f"the header names the namespace {header!a}, the request {name.namespace!a}",
        )
    return header or name.namespace


def _check(what: str, name: str, limit: int, code: Code) -> None:
    if not name:
        raise RocketmqError(code, f"the name of a {what} is empty")
    if len(name) > limit:
        raise RocketmqError(code, f"the name of a {what} has at most {limit} characters")
    if _NAME.fullmatch(name) is None:
        message = f"the name {name[:limit]!a} of a {what} holds other than % a-z A-Z 0-9 _ -"
        raise RocketmqError(code, message)
