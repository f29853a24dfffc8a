"""The one shape table: what each of the 23 actions takes and gives, in both protocols.

Each class is a row set: a field's annotation is its type, its name (`wire_name`) is the JSON key,
and `Wire` adds what Query spells differently and whether the service requires it. Both codecs are
built from these classes (`shape_base`); nothing else in the adapter knows a wire name.

In a request every field may be absent (`None`), so that the error for it is ours to word. In a
result a field at its default (`None`, empty) is left out, as AWS leaves it out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

from .shape_base import Shape, Wire

REQUIRED = Wire(required=True)
ATTRIBUTE = Wire("Attribute")
MESSAGE_ATTRIBUTE = Wire("MessageAttribute")
TAG = Wire("Tag", key="Key")


# --- parts -------------------------------------------------------------------------------------


class MessageAttributeValue(Shape, frozen=True):
    """Value of a message attribute or a message system attribute. List values: reserved by AWS."""

    data_type: Annotated[str | None, REQUIRED] = None
    string_value: str | None = None
    binary_value: bytes | None = None
    string_list_values: Annotated[list[str] | None, Wire("StringListValue")] = None
    binary_list_values: Annotated[list[bytes] | None, Wire("BinaryListValue")] = None


class OutgoingMessage(Shape, frozen=True):
    """What SendMessage and an entry of SendMessageBatch have in common."""

    message_body: Annotated[str | None, REQUIRED] = None
    delay_seconds: int | None = None
    message_attributes: Annotated[dict[str, MessageAttributeValue] | None, MESSAGE_ATTRIBUTE] = None
    message_system_attributes: Annotated[
        dict[str, MessageAttributeValue] | None, Wire("MessageSystemAttribute")
    ] = None
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class BatchResultErrorEntry(Shape, frozen=True):
    id: Annotated[str, REQUIRED]
    sender_fault: Annotated[bool, REQUIRED]
    code: Annotated[str, REQUIRED]
    message: str | None = None


_FAILED = Wire("BatchResultErrorEntry", required=True)
_QUEUE_URLS = Wire("QueueUrl")

# --- queues ------------------------------------------------------------------------------------


class CreateQueueRequest(Shape, frozen=True):
    queue_name: Annotated[str | None, REQUIRED] = None
    attributes: Annotated[dict[str, str] | None, ATTRIBUTE] = None
    tags: Annotated[dict[str, str] | None, TAG] = msgspec.field(default=None, name="tags")


class QueueUrlResult(Shape, frozen=True):
    """CreateQueueResult and GetQueueUrlResult."""

    queue_url: str | None = None


class QueueRequest(Shape, frozen=True):
    """DeleteQueue, PurgeQueue, ListQueueTags: a queue and nothing else."""

    queue_url: Annotated[str | None, REQUIRED] = None


class GetQueueUrlRequest(Shape, frozen=True):
    queue_name: Annotated[str | None, REQUIRED] = None
    queue_owner_aws_account_id: str | None = None


class ListQueuesRequest(Shape, frozen=True):
    queue_name_prefix: str | None = None
    next_token: str | None = None
    max_results: int | None = None


class ListQueuesResult(Shape, frozen=True):
    queue_urls: Annotated[list[str], _QUEUE_URLS] = msgspec.field(default_factory=list)
    next_token: str | None = None


class GetQueueAttributesRequest(Shape, frozen=True):
    queue_url: Annotated[str | None, REQUIRED] = None
    attribute_names: Annotated[list[str] | None, Wire("AttributeName")] = None


class GetQueueAttributesResult(Shape, frozen=True):
    attributes: Annotated[dict[str, str], ATTRIBUTE] = msgspec.field(default_factory=dict)


class SetQueueAttributesRequest(Shape, frozen=True):
    queue_url: Annotated[str | None, REQUIRED] = None
    attributes: Annotated[dict[str, str] | None, Wire("Attribute", required=True)] = None


class ListDeadLetterSourceQueuesRequest(Shape, frozen=True):
    queue_url: Annotated[str | None, REQUIRED] = None
    next_token: str | None = None
    max_results: int | None = None


class ListDeadLetterSourceQueuesResult(Shape, frozen=True):
    # Alone among all keys this one starts with a small letter, and is there when empty.
    queue_urls: Annotated[list[str], Wire("QueueUrl", required=True)] = msgspec.field(
        name="queueUrls"
    )
    next_token: str | None = None


class AddPermissionRequest(Shape, frozen=True):
    queue_url: Annotated[str | None, REQUIRED] = None
    label: Annotated[str | None, REQUIRED] = None
    aws_account_ids: Annotated[list[str] | None, Wire("AWSAccountId", required=True)] = (
        msgspec.field(default=None, name="AWSAccountIds")
    )
    actions: Annotated[list[str] | None, Wire("ActionName", required=True)] = None


class RemovePermissionRequest(Shape, frozen=True):
    queue_url: Annotated[str | None, REQUIRED] = None
    label: Annotated[str | None, REQUIRED] = None


class TagQueueRequest(Shape, frozen=True):
    queue_url: Annotated[str | None, REQUIRED] = None
    tags: Annotated[dict[str, str] | None, Wire("Tag", required=True, key="Key")] = None


class UntagQueueRequest(Shape, frozen=True):
    queue_url: Annotated[str | None, REQUIRED] = None
    tag_keys: Annotated[list[str] | None, Wire("TagKey", required=True)] = None


class ListQueueTagsResult(Shape, frozen=True):
    tags: Annotated[dict[str, str], TAG] = msgspec.field(default_factory=dict)


# --- messages ----------------------------------------------------------------------------------


class SendMessageRequest(OutgoingMessage, frozen=True):
    queue_url: Annotated[str | None, REQUIRED] = None


class SendMessageResult(Shape, frozen=True):
    md5_of_message_body: str | None = None
    md5_of_message_attributes: str | None = None
    md5_of_message_system_attributes: str | None = None
    message_id: str | None = None
    sequence_number: str | None = None


class SendMessageBatchRequestEntry(OutgoingMessage, frozen=True):
    id: Annotated[str | None, REQUIRED] = None


class SendMessageBatchRequest(Shape, frozen=True):
    queue_url: Annotated[str | None, REQUIRED] = None
    entries: Annotated[
        list[SendMessageBatchRequestEntry] | None,
        Wire("SendMessageBatchRequestEntry", required=True),
    ] = None


class SendMessageBatchResultEntry(Shape, frozen=True):
    id: Annotated[str, REQUIRED]
    message_id: Annotated[str, REQUIRED]
    md5_of_message_body: Annotated[str, REQUIRED]
    md5_of_message_attributes: str | None = None
    md5_of_message_system_attributes: str | None = None
    sequence_number: str | None = None


class SendMessageBatchResult(Shape, frozen=True):
    successful: Annotated[
        list[SendMessageBatchResultEntry], Wire("SendMessageBatchResultEntry", required=True)
    ] = msgspec.field(default_factory=list)
    failed: Annotated[list[BatchResultErrorEntry], _FAILED] = msgspec.field(default_factory=list)


class ReceiveMessageRequest(Shape, frozen=True):
    queue_url: Annotated[str | None, REQUIRED] = None
    attribute_names: Annotated[list[str] | None, Wire("AttributeName")] = None
    message_system_attribute_names: Annotated[
        list[str] | None, Wire("MessageSystemAttributeName")
    ] = None
    message_attribute_names: Annotated[list[str] | None, Wire("MessageAttributeName")] = None
    max_number_of_messages: int | None = None
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    receive_request_attempt_id: str | None = None


class Message(Shape, frozen=True):
    message_id: str | None = None
    receipt_handle: str | None = None
    md5_of_body: str | None = None
    body: str | None = None
    attributes: Annotated[dict[str, str], ATTRIBUTE] = msgspec.field(default_factory=dict)
    md5_of_message_attributes: str | None = None
    message_attributes: Annotated[dict[str, MessageAttributeValue], MESSAGE_ATTRIBUTE] = (
        msgspec.field(default_factory=dict)
    )


class ReceiveMessageResult(Shape, frozen=True):
    messages: Annotated[list[Message], Wire("Message")] = msgspec.field(default_factory=list)


class DeleteMessageRequest(Shape, frozen=True):
    queue_url: Annotated[str | None, REQUIRED] = None
    receipt_handle: Annotated[str | None, REQUIRED] = None


class DeleteMessageBatchRequestEntry(Shape, frozen=True):
    id: Annotated[str | None, REQUIRED] = None
    receipt_handle: Annotated[str | None, REQUIRED] = None


class DeleteMessageBatchRequest(Shape, frozen=True):
    queue_url: Annotated[str | None, REQUIRED] = None
    entries: Annotated[
        list[DeleteMessageBatchRequestEntry] | None,
        Wire("DeleteMessageBatchRequestEntry", required=True),
    ] = None


class BatchResultEntry(Shape, frozen=True):
    """DeleteMessageBatchResultEntry and ChangeMessageVisibilityBatchResultEntry."""

    id: Annotated[str, REQUIRED]


class DeleteMessageBatchResult(Shape, frozen=True):
    successful: Annotated[
        list[BatchResultEntry], Wire("DeleteMessageBatchResultEntry", required=True)
    ] = msgspec.field(default_factory=list)
    failed: Annotated[list[BatchResultErrorEntry], _FAILED] = msgspec.field(default_factory=list)


class ChangeMessageVisibilityRequest(Shape, frozen=True):
    queue_url: Annotated[str | None, REQUIRED] = None
    receipt_handle: Annotated[str | None, REQUIRED] = None
    visibility_timeout: Annotated[int | None, REQUIRED] = None


class ChangeMessageVisibilityBatchRequestEntry(Shape, frozen=True):
    id: Annotated[str | None, REQUIRED] = None
    receipt_handle: Annotated[str | None, REQUIRED] = None
    visibility_timeout: int | None = None


class ChangeMessageVisibilityBatchRequest(Shape, frozen=True):
    queue_url: Annotated[str | None, REQUIRED] = None
    entries: Annotated[
        list[ChangeMessageVisibilityBatchRequestEntry] | None,
        Wire("ChangeMessageVisibilityBatchRequestEntry", required=True),
    ] = None


class ChangeMessageVisibilityBatchResult(Shape, frozen=True):
    successful: Annotated[
        list[BatchResultEntry], Wire("ChangeMessageVisibilityBatchResultEntry", required=True)
    ] = msgspec.field(default_factory=list)
    failed: Annotated[list[BatchResultErrorEntry], _FAILED] = msgspec.field(default_factory=list)


# --- moves of dead letters ---------------------------------------------------------------------


class StartMessageMoveTaskRequest(Shape, frozen=True):
    source_arn: Annotated[str | None, REQUIRED] = None
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None


class StartMessageMoveTaskResult(Shape, frozen=True):
    task_handle: str | None = None


class ListMessageMoveTasksRequest(Shape, frozen=True):
    source_arn: Annotated[str | None, REQUIRED] = None
    max_results: int | None = None


class ListMessageMoveTasksResultEntry(Shape, frozen=True):
    task_handle: str | None = None
    status: str | None = None
    source_arn: str | None = None
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None
    approximate_number_of_messages_moved: int | None = None
    approximate_number_of_messages_to_move: int | None = None
    failure_reason: str | None = None
    started_timestamp: int | None = None


class ListMessageMoveTasksResult(Shape, frozen=True):
    results: Annotated[
        list[ListMessageMoveTasksResultEntry], Wire("ListMessageMoveTasksResultEntry")
    ] = msgspec.field(default_factory=list)


class CancelMessageMoveTaskRequest(Shape, frozen=True):
    task_handle: Annotated[str | None, REQUIRED] = None


class CancelMessageMoveTaskResult(Shape, frozen=True):
    approximate_number_of_messages_moved: int | None = None


# --- actions -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Action:
    """One action. `result` None: the answer has no body to speak of."""

    name: str
    request: type[Shape]
    result: type[Shape] | None = None

    @property
    def on_queue(self) -> bool:
        """True: it acts on the queue named by QueueUrl."""
        return "queue_url" in self.request.__struct_fields__

    @property
    def on_queue_path(self) -> bool:
        """True: Query may call it on a queue's own URL. GetQueueUrl may, for whatever reason."""
        return self.on_queue or self.name == "GetQueueUrl"


ACTIONS: dict[str, Action] = {
    action.name: action
    for action in (
        Action("AddPermission", AddPermissionRequest),
        Action("CancelMessageMoveTask", CancelMessageMoveTaskRequest, CancelMessageMoveTaskResult),
        Action("ChangeMessageVisibility", ChangeMessageVisibilityRequest),
        Action(
            "ChangeMessageVisibilityBatch",
            ChangeMessageVisibilityBatchRequest,
            ChangeMessageVisibilityBatchResult,
        ),
        Action("CreateQueue", CreateQueueRequest, QueueUrlResult),
        Action("DeleteMessage", DeleteMessageRequest),
        Action("DeleteMessageBatch", DeleteMessageBatchRequest, DeleteMessageBatchResult),
        Action("DeleteQueue", QueueRequest),
        Action("GetQueueAttributes", GetQueueAttributesRequest, GetQueueAttributesResult),
        Action("GetQueueUrl", GetQueueUrlRequest, QueueUrlResult),
        Action(
            "ListDeadLetterSourceQueues",
            ListDeadLetterSourceQueuesRequest,
            ListDeadLetterSourceQueuesResult,
        ),
        Action("ListMessageMoveTasks", ListMessageMoveTasksRequest, ListMessageMoveTasksResult),
        Action("ListQueueTags", QueueRequest, ListQueueTagsResult),
        Action("ListQueues", ListQueuesRequest, ListQueuesResult),
        Action("PurgeQueue", QueueRequest),
        Action("ReceiveMessage", ReceiveMessageRequest, ReceiveMessageResult),
        Action("RemovePermission", RemovePermissionRequest),
        Action("SendMessage", SendMessageRequest, SendMessageResult),
        Action("SendMessageBatch", SendMessageBatchRequest, SendMessageBatchResult),
        Action("SetQueueAttributes", SetQueueAttributesRequest),
        Action("StartMessageMoveTask", StartMessageMoveTaskRequest, StartMessageMoveTaskResult),
        Action("TagQueue", TagQueueRequest),
        Action("UntagQueue", UntagQueueRequest),
    )
}


class Call(msgspec.Struct, frozen=True, gc=False):
    """A decoded request."""

    action: Action
    params: Shape
