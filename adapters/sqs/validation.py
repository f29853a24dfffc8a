"""Validation of requests: required members, ranges, batches, messages, tags.

The order of the checks of a message is AWS's as far as it is known: presence, size, characters,
attributes, delay, FIFO identifiers. One check of a message, over all of its parts, takes about
2 µs for a body of 1 KB without attributes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import error_codes as errors
from . import names
from .codec.shape_base import Field, ShapeKind, fields_of
from .codec.shapes import (
    ACTIONS,
    BatchResultErrorEntry,
    ChangeMessageVisibilityBatchRequest,
    ChangeMessageVisibilityBatchRequestEntry,
    DeleteMessageBatchRequest,
    DeleteMessageBatchRequestEntry,
    OutgoingMessage,
    SendMessageBatchRequest,
    SendMessageBatchRequestEntry,
)
from .error_codes import SqsError
from .messages import body_text
from .messages.message_attributes import (
    check_attributes,
    check_system_attributes,
    size_of_attributes,
)
from .queues import queue_attributes
from .queues.queue_attributes import DELAY_S_MAX, VISIBILITY_TIMEOUT_S_MAX, WAIT_TIME_S_MAX

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .codec.shapes import (
        Action,
        Call,
        ChangeMessageVisibilityRequest,
        CreateQueueRequest,
        ReceiveMessageRequest,
    )

BATCH_ENTRIES_MAX = 10
BATCH_BYTES_MAX = queue_attributes.MESSAGE_BYTES_MAX
"""All bodies and attributes of a batch together, whatever the queue's own limit."""
RECEIVE_MESSAGES_MAX = 10
TAGS_MAX = 50
TAG_KEY_CHARS_MAX = 128
TAG_VALUE_CHARS_MAX = 256

_BATCH_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
_IDENTIFIER = re.compile(r"[!-~]{1,128}")
"""Message group, deduplication and receive attempt ids: letters, digits, punctuation."""
_WRONG_QUEUE_TYPE = "The request include parameter that is not valid for this queue type."


# --- required members --------------------------------------------------------------------------


def _required(action: Action) -> tuple[tuple[str, str], ...]:
    return tuple(
        (field.attribute, field.query_name if _is_list_of_texts(field) else field.json_name)
        for field in fields_of(action.request)
        if field.required
    )


def _is_list_of_texts(field: Field) -> bool:
    """Of such a list AWS's text names the element, as Query spells it: ActionName."""
    return field.kind is ShapeKind.LIST and field.item is ShapeKind.STRING


_REQUIRED = {name: _required(action) for name, action in ACTIONS.items()}


def check_required(call: Call) -> None:
    """Check that the members are there that the action cannot do without.

    Raises MissingParameter; for a queue name InvalidParameterValue, as AWS does.
    """
    params = call.params
    for attribute, name in _REQUIRED[call.action.name]:
        value = getattr(params, attribute)
        if value is None or (value == "" and call.action.name != "CreateQueue"):
            if name == "QueueName":
                raise SqsError(
                    errors.INVALID_PARAMETER_VALUE,
                    "Value for parameter QueueName is invalid. Reason: Must specify a queue name.",
                )
            raise errors.missing_parameter(name)


# --- queues ------------------------------------------------------------------------------------


def check_create_queue(request: CreateQueueRequest) -> dict[str, str]:
    """The attributes CreateQueue asks for, in canonical form; name and tags are checked too."""
    name, asked = request.queue_name or "", request.attributes or {}
    fifo = asked.get("FifoQueue", "").lower() == "true"
    names.check_new_queue_name(name, fifo=fifo)
    if request.tags:
        check_tags(request.tags, existing={})
    return queue_attributes.check_for_create(asked, fifo=fifo)


def check_tags(tags: Mapping[str, str], existing: Mapping[str, str]) -> None:
    """Check tags to be added to the existing ones. Raises InvalidParameterValue."""
    if not tags:
        raise errors.missing_parameter("Tags")
    for key, value in tags.items():
        if not 1 <= len(key) <= TAG_KEY_CHARS_MAX or key.lower().startswith("aws:"):
            reason = (
                f"A tag key must be 1 to {TAG_KEY_CHARS_MAX} characters long and must not begin "
                "with aws:."
            )
            raise errors.invalid_parameter(key, "TagKey", reason)
        if len(value) > TAG_VALUE_CHARS_MAX:
            reason = f"A tag value must be at most {TAG_VALUE_CHARS_MAX} characters long."
            raise errors.invalid_parameter(value, "TagValue", reason)
    if len({*tags, *existing}) > TAGS_MAX:
        message = f"Too many tags added for queue: the maximum is {TAGS_MAX}."
        raise SqsError(errors.INVALID_PARAMETER_VALUE, message)


def check_tag_keys(keys: Sequence[str]) -> None:
    """Check the keys of UntagQueue. Raises MissingParameter."""
    if not keys:
        raise errors.missing_parameter("TagKey")


# --- receiving ---------------------------------------------------------------------------------


def check_receive(request: ReceiveMessageRequest) -> None:
    """Check the ranges of ReceiveMessage. Raises InvalidParameterValue."""
    count = request.max_number_of_messages
    if count is not None and not 1 <= count <= RECEIVE_MESSAGES_MAX:
        reason = f"Must be between 1 and {RECEIVE_MESSAGES_MAX}, if provided."
        raise errors.invalid_parameter(count, "MaxNumberOfMessages", reason)
    wait_s = request.wait_time_seconds
    if wait_s is not None and not 0 <= wait_s <= WAIT_TIME_S_MAX:
        reason = f"Must be >= 0 and <= {WAIT_TIME_S_MAX}, if provided."
        raise errors.invalid_parameter(wait_s, "WaitTimeSeconds", reason)
    timeout_s = request.visibility_timeout
    if timeout_s is not None and not 0 <= timeout_s <= VISIBILITY_TIMEOUT_S_MAX:
        reason = f"Must be >= 0 and <= {VISIBILITY_TIMEOUT_S_MAX}, if provided."
        raise errors.invalid_parameter(timeout_s, "VisibilityTimeout", reason)
    if request.receive_request_attempt_id is not None:
        _check_identifier("ReceiveRequestAttemptId", request.receive_request_attempt_id)


def check_visibility(
    request: ChangeMessageVisibilityRequest | ChangeMessageVisibilityBatchRequestEntry,
) -> int:
    """The new timeout in seconds, 0..43200. Raises MissingParameter, InvalidParameterValue."""
    timeout_s = request.visibility_timeout
    if timeout_s is None:
        raise errors.missing_parameter("VisibilityTimeout")
    if not 0 <= timeout_s <= VISIBILITY_TIMEOUT_S_MAX:
        reason = f"VisibilityTimeout must be an integer between 0 and {VISIBILITY_TIMEOUT_S_MAX}."
        raise errors.invalid_parameter(timeout_s, "VisibilityTimeout", reason)
    return timeout_s


# --- sending -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SendRules:
    """What a queue asks of the messages sent to it."""

    fifo: bool = False
    content_based_deduplication: bool = False
    message_bytes_max: int = queue_attributes.MESSAGE_BYTES_MAX


def check_message(message: OutgoingMessage, rules: SendRules, prefix: str = "") -> bytes:
    """Check a message; returns its text in UTF-8. `prefix`: what names it in a batch, with a dot.

    Raises MissingParameter, InvalidParameterValue, InvalidMessageContents.
    """
    if not message.message_body:
        raise errors.missing_parameter(f"{prefix}MessageBody")
    body = message.message_body.encode()
    attributes = message.message_attributes
    if len(body) + size_of_attributes(attributes) > rules.message_bytes_max:
        raise SqsError(
            errors.INVALID_PARAMETER_VALUE,
            "One or more parameters are invalid. Reason: Message must be shorter than "
            f"{rules.message_bytes_max} bytes.",
        )
    if not body_text.is_legal(body):
        raise SqsError(errors.INVALID_MESSAGE_CONTENTS)
    if attributes:
        check_attributes(attributes)
    if message.message_system_attributes:
        check_system_attributes(message.message_system_attributes)
    _check_delay(message.delay_seconds, rules)
    _check_identifiers(message, rules, in_batch=bool(prefix))
    return body


def _check_delay(delay_s: int | None, rules: SendRules) -> None:
    if not delay_s:
        return
    if rules.fifo:
        raise errors.invalid_parameter(delay_s, "DelaySeconds", _WRONG_QUEUE_TYPE)
    if not 0 <= delay_s <= DELAY_S_MAX:
        reason = f"DelaySeconds must be >= 0 and <= {DELAY_S_MAX}."
        raise errors.invalid_parameter(delay_s, "DelaySeconds", reason)


def _check_identifiers(message: OutgoingMessage, rules: SendRules, *, in_batch: bool) -> None:
    group, deduplication = message.message_group_id, message.message_deduplication_id
    if group is not None:
        _check_identifier("MessageGroupId", group)
    elif rules.fifo:
        error = errors.missing_parameter("MessageGroupId")
        # For a batch AWS sends the same text under another code.
        raise SqsError(errors.INVALID_PARAMETER_VALUE, error.message) if in_batch else error
    if deduplication is not None:
        if not rules.fifo:
            raise errors.invalid_parameter(
                deduplication, "MessageDeduplicationId", _WRONG_QUEUE_TYPE
            )
        _check_identifier("MessageDeduplicationId", deduplication)
    elif rules.fifo and not rules.content_based_deduplication:
        raise SqsError(
            errors.INVALID_PARAMETER_VALUE,
            "The queue should either have ContentBasedDeduplication enabled or "
            "MessageDeduplicationId provided explicitly",
        )


def _check_identifier(name: str, value: str) -> None:
    if not _IDENTIFIER.fullmatch(value):
        reason = (
            f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in length."
        )
        raise errors.invalid_parameter(value, name, reason)


# --- batches -----------------------------------------------------------------------------------

_BatchRequest = (
    SendMessageBatchRequest | DeleteMessageBatchRequest | ChangeMessageVisibilityBatchRequest
)
_BatchEntry = (
    SendMessageBatchRequestEntry
    | DeleteMessageBatchRequestEntry
    | ChangeMessageVisibilityBatchRequestEntry
)


def check_batch(request: _BatchRequest) -> None:
    """Check the number of entries and their ids.

    Raises EmptyBatchRequest, TooManyEntriesInBatchRequest, MissingParameter, InvalidBatchEntryId,
    BatchEntryIdsNotDistinct: the whole request fails.
    """
    entries: Sequence[_BatchEntry] = request.entries or []
    if not entries:
        message = f"There should be at least one {_entry_name(request)} in the request."
        raise SqsError(errors.EMPTY_BATCH_REQUEST, message)
    if len(entries) > BATCH_ENTRIES_MAX:
        message = (
            f"Maximum number of entries per request are {BATCH_ENTRIES_MAX}. "
            f"You have sent {len(entries)}."
        )
        raise SqsError(errors.TOO_MANY_ENTRIES, message)
    seen: set[str] = set()
    for number, entry in enumerate(entries, 1):
        if entry.id is None:
            raise errors.missing_parameter(f"{_entry_name(request)}.{number}.Id")
        if not is_batch_id(entry.id):
            raise SqsError(errors.INVALID_BATCH_ENTRY_ID)
        if entry.id in seen:
            raise SqsError(errors.BATCH_ENTRY_IDS_NOT_DISTINCT, f"Id {entry.id} repeated.")
        seen.add(entry.id)


def check_send_batch(
    request: SendMessageBatchRequest, rules: SendRules
) -> tuple[list[bytes | None], list[BatchResultErrorEntry]]:
    """Check a batch of messages: (their texts in UTF-8, None for a refused one; the refusals).

    On a FIFO queue one refused message refuses the batch, as order could not be kept without it.
    Raises what `check_batch` does, BatchRequestTooLong, and on FIFO what `check_message` does.
    """
    check_batch(request)
    entries = request.entries or []
    total = sum(
        len((entry.message_body or "").encode()) + size_of_attributes(entry.message_attributes)
        for entry in entries
    )
    if total > BATCH_BYTES_MAX:
        message = (
            f"Batch requests cannot be longer than {BATCH_BYTES_MAX} bytes. "
            f"You have sent {total} bytes."
        )
        raise SqsError(errors.BATCH_REQUEST_TOO_LONG, message)
    bodies: list[bytes | None] = []
    failed: list[BatchResultErrorEntry] = []
    for number, entry in enumerate(entries, 1):
        try:
            bodies.append(check_message(entry, rules, f"{_entry_name(request)}.{number}."))
        except SqsError as error:
            if rules.fifo:
                raise
            bodies.append(None)
            failed.append(failed_entry(entry.id or "", error))
    return bodies, failed


def failed_entry(entry_id: str, error: SqsError) -> BatchResultErrorEntry:
    """An error as an entry of `Failed`."""
    return BatchResultErrorEntry(
        id=entry_id,
        sender_fault=error.kind.sender,
        code=error.kind.code,
        message=error.message,
    )


def is_batch_id(text: str) -> bool:
    """True for 1 to 80 letters, digits, hyphens and underscores; a permission's label is alike."""
    return _BATCH_ID.fullmatch(text) is not None


def _entry_name(request: _BatchRequest) -> str:
    return type(request).__name__ + "Entry"
