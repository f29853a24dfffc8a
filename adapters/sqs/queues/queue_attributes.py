"""Queue attributes: names, ranges, defaults, and which may be set when (SQS API, "attributes").

Checked attributes come out in canonical form (`7` for `007`, `true` for `True`). An empty string
takes back Policy, RedrivePolicy, RedriveAllowPolicy and KmsMasterKeyId. Whether a dead-letter queue
exists, and what a policy allows, is for others to say.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import error_codes as errors
from ..error_codes import SqsError
from . import policies

if TYPE_CHECKING:
    from collections.abc import Mapping

VISIBILITY_TIMEOUT_S_MAX = 43_200
DELAY_S_MAX = 900
WAIT_TIME_S_MAX = 20
MESSAGE_BYTES_MIN = 1024
MESSAGE_BYTES_MAX = 1_048_576
RETENTION_S_MAX = 1_209_600
KEY_ID_CHARS_MAX = 2048
"""AWS's limit on a KMS key id."""

_INTEGERS = {
    # name: smallest, largest, default
    "DelaySeconds": (0, DELAY_S_MAX, 0),
    "MaximumMessageSize": (MESSAGE_BYTES_MIN, MESSAGE_BYTES_MAX, MESSAGE_BYTES_MAX),
    "MessageRetentionPeriod": (60, RETENTION_S_MAX, 345_600),
    "ReceiveMessageWaitTimeSeconds": (0, WAIT_TIME_S_MAX, 0),
    "VisibilityTimeout": (0, VISIBILITY_TIMEOUT_S_MAX, 30),
}
_KEY_REUSE = "KmsDataKeyReusePeriodSeconds"
_KEY_REUSE_S_MIN, _KEY_REUSE_S_MAX = 60, 86_400
_BOOLEANS = frozenset({"FifoQueue", "ContentBasedDeduplication", "SqsManagedSseEnabled"})
_CHOICES = {
    "DeduplicationScope": ("queue", "messageGroup"),
    "FifoThroughputLimit": ("perQueue", "perMessageGroupId"),
}
_FIFO_DEFAULTS = {
    "FifoQueue": "true",
    "ContentBasedDeduplication": "false",
    "DeduplicationScope": "queue",
    "FifoThroughputLimit": "perQueue",
}

READ_ONLY = (
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
    "QueueArn",
)
SETTABLE = (
    *_INTEGERS,
    *_FIFO_DEFAULTS,
    "Policy",
    "RedrivePolicy",
    "RedriveAllowPolicy",
    "KmsMasterKeyId",
    _KEY_REUSE,
    "SqsManagedSseEnabled",
)
NAMES = frozenset({"All", *READ_ONLY, *SETTABLE})
"""What GetQueueAttributes may be asked for."""


def defaults(*, fifo: bool) -> dict[str, str]:
    """Attributes of a queue created without any."""
    attributes = {name: str(row[2]) for name, row in _INTEGERS.items()}
    attributes["SqsManagedSseEnabled"] = "true"
    return attributes | _FIFO_DEFAULTS if fifo else attributes


def check_for_create(attributes: Mapping[str, str], *, fifo: bool) -> dict[str, str]:
    """Attributes of CreateQueue in canonical form, without those left at an empty value.

    `fifo`: the queue's name ends in `.fifo`. Raises InvalidAttributeName, InvalidAttributeValue,
    InvalidParameterValue.
    """
    if not fifo and "FifoQueue" in attributes:
        # AWS takes neither "true" (the name is wrong) nor "false" (the attribute is unknown).
        raise _unknown("FifoQueue")
    checked = _check(attributes, {}, fifo=fifo)
    return {name: value for name, value in checked.items() if value}


def check_for_set(
    attributes: Mapping[str, str], current: Mapping[str, str], *, fifo: bool
) -> dict[str, str]:
    """Attributes of SetQueueAttributes in canonical form; an empty value takes one back.

    `current`: what the queue has now. Raises like `check_for_create`.
    """
    if not fifo and "FifoQueue" in attributes:
        raise _unknown("FifoQueue")
    return _check(attributes, current, fifo=fifo)


def first_difference(asked: Mapping[str, str], existing: Mapping[str, str]) -> str | None:
    """The first attribute that CreateQueue asks to be other than the existing queue has it.

    Both in canonical form and `existing` complete, defaults included. None: nothing differs.
    """
    for name, value in asked.items():
        if existing.get(name, "") != value:
            return name
    return None


def is_high_throughput(attributes: Mapping[str, str]) -> bool:
    """True for a FIFO queue limited per message group."""
    return attributes.get("FifoThroughputLimit") == "perMessageGroupId"


def is_deduplicated_as_a_whole(attributes: Mapping[str, str]) -> bool:
    """True for a FIFO queue that knows a deduplication id whatever the message group."""
    return attributes.get("DeduplicationScope") == "queue"


def check_scope(changes: Mapping[str, str], queues: int) -> None:
    """Raise InvalidAttributeValue for a DeduplicationScope that takes one kernel queue, of a topic
    that has more.
    """
    if queues > 1 and is_deduplicated_as_a_whole(changes):
        raise _invalid(
            "DeduplicationScope",
            f"queue takes a topic of one queue, and this one has {queues}.",
        )


def _check(
    attributes: Mapping[str, str], current: Mapping[str, str], *, fifo: bool
) -> dict[str, str]:
    checked = {name: _value(name, value, fifo=fifo) for name, value in attributes.items()}
    _check_encryption(checked, current)
    both = {**current, **checked}
    if is_high_throughput(both) and both.get("DeduplicationScope") != "messageGroup":
        raise _invalid(
            "FifoThroughputLimit",
            "perMessageGroupId is allowed only when DeduplicationScope is messageGroup.",
        )
    return checked


def _check_encryption(checked: dict[str, str], current: Mapping[str, str]) -> None:
    key_id = checked.get("KmsMasterKeyId", current.get("KmsMasterKeyId", ""))
    if key_id and checked.get("SqsManagedSseEnabled") == "true":
        raise SqsError(
            errors.INVALID_ATTRIBUTE_NAME,
            "You can use one type of server-side encryption (SSE) at one time. You can either "
            "enable KMS SSE or SQS SSE.",
        )
    if checked.get("KmsMasterKeyId"):
        checked["SqsManagedSseEnabled"] = "false"
    elif "KmsMasterKeyId" in checked and _KEY_REUSE in {**current, **checked}:
        checked[_KEY_REUSE] = ""  # it says nothing without the key


def _value(name: str, value: str, *, fifo: bool) -> str:
    if name not in SETTABLE:
        raise _unknown(name)
    if name in _FIFO_DEFAULTS and not fifo:
        if name in _CHOICES:
            message = f"You can specify the {name} only when FifoQueue is set to true."
            raise SqsError(errors.INVALID_ATTRIBUTE_NAME, message)
        raise _unknown(name)
    if name in _INTEGERS:
        smallest, largest, _ = _INTEGERS[name]
        return _integer(name, value, smallest, largest)
    if name == _KEY_REUSE:
        return _integer(name, value, _KEY_REUSE_S_MIN, _KEY_REUSE_S_MAX)
    if name in _BOOLEANS:
        return _boolean(name, value)
    if name in _CHOICES:
        if value not in _CHOICES[name]:
            raise _invalid(name)
        return value
    return _document(name, value, fifo=fifo)


def _integer(name: str, value: str, smallest: int, largest: int) -> str:
    # isdigit() alone would let other scripts' digits through.
    if not (value.isascii() and value.isdigit() and len(value) <= 10):
        raise _invalid(name)
    number = int(value)
    if not smallest <= number <= largest:
        raise _invalid(name)
    return str(number)


def _boolean(name: str, value: str) -> str:
    canonical = value.lower()
    if canonical not in {"true", "false"}:
        raise _invalid(name)
    if name == "FifoQueue" and canonical == "false":
        raise _invalid(name, "Modifying queue type is not supported.")
    return canonical


def _document(name: str, value: str, *, fifo: bool) -> str:
    if value and name == "Policy":
        policies.check_policy(value)
    elif value and name == "RedrivePolicy":
        policies.parse_redrive_policy(value, fifo=fifo)
    elif value and name == "RedriveAllowPolicy":
        policies.parse_redrive_allow_policy(value)
    elif name == "KmsMasterKeyId" and len(value) > KEY_ID_CHARS_MAX:
        raise _invalid(name)
    return value


def _unknown(name: str) -> SqsError:
    return SqsError(errors.INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name}.")


def _invalid(name: str, reason: str | None = None) -> SqsError:
    message = f"Invalid value for the parameter {name}."
    return SqsError(
        errors.INVALID_ATTRIBUTE_VALUE, f"{message} Reason: {reason}" if reason else message
    )
