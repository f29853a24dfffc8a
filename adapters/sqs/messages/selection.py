"""The selection of attributes that a request asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import error_codes as errors
from ..error_codes import SqsError
from ..queues import queue_attributes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..codec.shapes import MessageAttributeValue, ReceiveMessageRequest

SYSTEM_ATTRIBUTE_NAMES = frozenset(
    {
        "All",
        "SenderId",
        "SentTimestamp",
        "ApproximateReceiveCount",
        "ApproximateFirstReceiveTimestamp",
        "SequenceNumber",
        "MessageDeduplicationId",
        "MessageGroupId",
        "AWSTraceHeader",
        "DeadLetterQueueSourceArn",
    }
)
_ALL = "All"
_WILDCARD = ".*"
_NOTHING: frozenset[str] = frozenset()


def system_attribute_names(request: ReceiveMessageRequest) -> frozenset[str]:
    """Names of the system attributes a receive asks for; may hold `All`.

    The older parameter AttributeNames may also name queue attributes, which no message has.
    Raises InvalidAttributeName.
    """
    current, older = request.message_system_attribute_names, request.attribute_names
    if not current and not older:
        return _NOTHING
    for name in current or ():
        if name not in SYSTEM_ATTRIBUTE_NAMES:
            raise _unknown(name)
    for name in older or ():
        if name not in SYSTEM_ATTRIBUTE_NAMES and name not in queue_attributes.NAMES:
            raise _unknown(name)
    return frozenset((*(current or ()), *(older or ())))


def select(names: frozenset[str], available: Mapping[str, str]) -> dict[str, str]:
    """Those of the available attributes that are asked for."""
    if _ALL in names:
        return dict(available)
    return {name: value for name, value in available.items() if name in names}


def message_attributes(
    names: Sequence[str] | None, available: Mapping[str, MessageAttributeValue]
) -> dict[str, MessageAttributeValue]:
    """Those of a message's attributes that a receive asks for.

    A name is one attribute; `prefix.*` all that begin with prefix; `All` and `.*` every one.
    """
    if not names or not available:
        return {}
    exact: set[str] = set()
    prefixes: list[str] = []
    for name in names:
        if name == _ALL:
            return dict(available)
        if name.endswith(_WILDCARD):
            prefixes.append(name.removesuffix(_WILDCARD))
        else:
            exact.add(name)
    starts = tuple(prefixes)
    return {
        name: value for name, value in available.items() if name in exact or name.startswith(starts)
    }


def queue_attribute_names(names: Sequence[str] | None) -> frozenset[str]:
    """Names GetQueueAttributes asks for; may hold `All`. Raises InvalidAttributeName."""
    for name in names or ():
        if name not in queue_attributes.NAMES:
            raise _unknown(name)
    return frozenset(names or ())


def _unknown(name: str) -> SqsError:
    return SqsError(errors.INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name}.")
