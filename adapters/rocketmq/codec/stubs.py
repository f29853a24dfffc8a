"""The generated messages of `apache.rocketmq.v2`: the one module that touches code without types.

They come from the package rocketmq-python-client, whose `__init__` would import a whole client,
OpenTelemetry, and open a log file in the home directory. `_load` therefore puts a bare package
object in its place while the generated modules are imported, and takes it away again: a real
`import rocketmq` later in the same process works, and finds the same generated modules (a second
copy of them in one process is an error of protobuf).

Here are typed views of the requests that the adapter reads (only the fields it reads), the bytes
-> view functions, and the one message that is changed rather than made: `Settings`. Answers are
made by `wire`. proto3 gives every scalar a default, so no field is ever missing; presence is asked
by `HasField`.
"""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar, cast

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ..errors import Code, RocketmqError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

PACKAGE = "rocketmq"


def _load(module: str) -> ModuleType:
    """A generated module, without running the package's `__init__`."""
    if PACKAGE in sys.modules:
        return importlib.import_module(module)
    spec = find_spec(PACKAGE)
    assert spec is not None, "rocketmq-python-client is a dependency of this package"
    bare = ModuleType(PACKAGE)
    bare.__spec__ = spec
    bare.__path__ = list(spec.submodule_search_locations or ())
    sys.modules[PACKAGE] = bare
    try:
        return importlib.import_module(module)
    finally:
        del sys.modules[PACKAGE]


_service = _load("rocketmq.grpc_protocol.service_pb2")
_definition = sys.modules["rocketmq.grpc_protocol.definition_pb2"]


class Presence(Protocol):
    """A message that can be asked which fields were sent."""

    def HasField(self, name: str, /) -> bool:  # noqa: N802 - protobuf's name
        """Whether an optional or message field was sent."""


class Resource(Protocol):
    """A topic or group by name."""

    resource_namespace: str
    name: str

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        """The bytes of the message, unknown fields included."""

    def ByteSize(self) -> int:  # noqa: N802 - protobuf's name
        """How many bytes those are."""


class Moment(Protocol):
    """A Timestamp (since the epoch, UTC) or a Duration."""

    seconds: int
    nanos: int


class Address(Protocol):
    host: str
    port: int


class Endpoints(Protocol):
    scheme: int
    addresses: Sequence[Address]


class SystemProperties(Presence, Protocol):
    tag: str
    keys: Sequence[str]
    message_id: str
    receipt_handle: str
    delivery_attempt: int
    body_encoding: int
    message_type: int
    delivery_timestamp: Moment
    message_group: str
    lite_topic: str
    priority: int

    def ClearField(self, name: str, /) -> None:  # noqa: N802 - protobuf's name
        """As if it had not been sent."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        """The bytes of the message, unknown fields included."""


class Message(Protocol):
    topic: Resource
    user_properties: Mapping[str, str]
    system_properties: SystemProperties
    body: bytes

    def ClearField(self, name: str, /) -> None:  # noqa: N802 - protobuf's name
        """As if it had not been sent."""

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        """The bytes of the message, unknown fields included."""

    def ByteSize(self) -> int:  # noqa: N802 - protobuf's name
        """How many bytes those are."""


class SendMessageRequest(Protocol):
    messages: Sequence[Message]


class QueryRouteRequest(Protocol):
    topic: Resource
    endpoints: Endpoints


class QueryAssignmentRequest(Protocol):
    topic: Resource
    group: Resource
    endpoints: Endpoints


class MessageQueue(Protocol):
    topic: Resource
    id: int


class FilterExpression(Protocol):
    type: int
    expression: str


class ReceiveMessageRequest(Presence, Protocol):
    group: Resource
    message_queue: MessageQueue
    filter_expression: FilterExpression
    batch_size: int
    invisible_duration: Moment
    auto_renew: bool
    long_polling_timeout: Moment
    attempt_id: str


class PullMessageRequest(Presence, Protocol):
    group: Resource
    message_queue: MessageQueue
    offset: int
    batch_size: int
    filter_expression: FilterExpression
    long_polling_timeout: Moment


class UpdateOffsetRequest(Protocol):
    group: Resource
    message_queue: MessageQueue
    offset: int


class GetOffsetRequest(Protocol):
    group: Resource
    message_queue: MessageQueue


class QueryOffsetRequest(Protocol):
    message_queue: MessageQueue
    query_offset_policy: int
    timestamp: Moment


class RecallMessageRequest(Protocol):
    topic: Resource
    recall_handle: str


class AckMessageEntry(Protocol):
    message_id: str
    receipt_handle: str


class AckMessageRequest(Protocol):
    group: Resource
    topic: Resource
    entries: Sequence[AckMessageEntry]


class ChangeInvisibleDurationRequest(Protocol):
    group: Resource
    topic: Resource
    receipt_handle: str
    invisible_duration: Moment
    suspend: bool


class ForwardMessageToDeadLetterQueueRequest(Protocol):
    group: Resource
    topic: Resource
    receipt_handle: str


class EndTransactionRequest(Protocol):
    topic: Resource
    transaction_id: str
    resolution: int


class HeartbeatRequest(Protocol):
    client_type: int


class NotifyClientTerminationRequest(Protocol):
    group: Resource


# --- Settings: read, completed and sent back ----------------------------------------------------


class ExponentialBackoff(Protocol):
    initial: Moment
    max: Moment
    multiplier: float


class Durations(Protocol):
    """A repeated field of Durations."""

    def add(self, *, seconds: int) -> object:
        """Append one Duration."""


class CustomizedBackoff(Protocol):
    next: Durations


class RetryPolicy(Protocol):
    max_attempts: int
    exponential_backoff: ExponentialBackoff
    customized_backoff: CustomizedBackoff


class SubscriptionEntry(Protocol):
    topic: Resource


class Subscription(Protocol):
    group: Resource
    subscriptions: Iterable[SubscriptionEntry]
    fifo: bool
    receive_batch_size: int
    long_polling_timeout: Moment


class Publishing(Protocol):
    topics: Iterable[Resource]
    max_body_size: int
    validate_message_type: bool


class UserAgent(Protocol):
    language: int
    version: str
    platform: str
    hostname: str


class Metric(Protocol):
    on: bool


class Settings(Presence, Protocol):
    client_type: int
    backoff_policy: RetryPolicy
    publishing: Publishing
    subscription: Subscription
    user_agent: UserAgent
    metric: Metric

    def ClearField(self, name: str, /) -> None:  # noqa: N802 - protobuf's name
        """As if it had not been sent."""


class Status(Protocol):
    code: int
    message: str


class TelemetryCommand(Presence, Protocol):
    status: Status
    settings: Settings

    def SerializeToString(self) -> bytes:  # noqa: N802 - protobuf's name
        """The bytes of the message, unknown fields included."""


# --- Bytes to views -----------------------------------------------------------------------------

_View = TypeVar("_View")


class Parser(Generic[_View]):
    """From bytes to the message of a name, seen as `_View`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._from_string: Callable[[bytes], _View] = getattr(_service, name).FromString

    def __call__(self, data: bytes) -> _View:
        """Raises RocketmqError BAD_REQUEST for bytes that are no such message."""
        try:
            return self._from_string(data)
        except DecodeError:
            message = f"the request is not a {self._name} of apache.rocketmq.v2"
            raise RocketmqError(Code.BAD_REQUEST, message) from None


parse_send_message = Parser[SendMessageRequest]("SendMessageRequest")
parse_query_route = Parser[QueryRouteRequest]("QueryRouteRequest")
parse_query_assignment = Parser[QueryAssignmentRequest]("QueryAssignmentRequest")
parse_receive_message = Parser[ReceiveMessageRequest]("ReceiveMessageRequest")
parse_pull_message = Parser[PullMessageRequest]("PullMessageRequest")
parse_update_offset = Parser[UpdateOffsetRequest]("UpdateOffsetRequest")
parse_get_offset = Parser[GetOffsetRequest]("GetOffsetRequest")
parse_query_offset = Parser[QueryOffsetRequest]("QueryOffsetRequest")
parse_recall_message = Parser[RecallMessageRequest]("RecallMessageRequest")
parse_ack_message = Parser[AckMessageRequest]("AckMessageRequest")
parse_change_invisible_duration = Parser[ChangeInvisibleDurationRequest](
    "ChangeInvisibleDurationRequest"
)
parse_forward_to_dead_letters = Parser[ForwardMessageToDeadLetterQueueRequest](
    "ForwardMessageToDeadLetterQueueRequest"
)
parse_end_transaction = Parser[EndTransactionRequest]("EndTransactionRequest")
parse_heartbeat = Parser[HeartbeatRequest]("HeartbeatRequest")
parse_notify_client_termination = Parser[NotifyClientTerminationRequest](
    "NotifyClientTerminationRequest"
)
parse_telemetry_command = Parser[TelemetryCommand]("TelemetryCommand")


def parse_message(data: bytes) -> Message:
    """A `Message` that this adapter has stored. Raises DecodeError for other bytes."""
    return cast("Message", _definition.Message.FromString(data))


def parse_system_properties(data: bytes) -> SystemProperties:
    """A `SystemProperties` that this adapter has stored. Raises DecodeError for other bytes."""
    return cast("SystemProperties", _definition.SystemProperties.FromString(data))


class RawMessage(Protocol):
    """A `Message` whose parts are left as bytes; user properties count as unknown."""

    topic: bytes
    system: bytes
    body: bytes


class _RawRequest(Protocol):
    messages: Sequence[RawMessage]


def _raw_requests() -> Callable[[bytes], _RawRequest]:
    """A parser of SendMessageRequest that does not look into messages: a description of the same
    bytes, of our own, in a pool of its own.
    """
    file = FileDescriptorProto(
        name="weir/rocketmq_raw.proto", package="weir.rocketmq", syntax="proto3"
    )
    message = file.message_type.add(name="RawMessage")
    kind, optional = FieldDescriptorProto.TYPE_BYTES, FieldDescriptorProto.LABEL_OPTIONAL
    for name, number in (("topic", 1), ("system", 3), ("body", 4)):
        message.field.add(name=name, number=number, type=kind, label=optional)
    file.message_type.add(name="RawRequest").field.add(
        name="messages",
        number=1,
        type=FieldDescriptorProto.TYPE_MESSAGE,
        type_name=".weir.rocketmq.RawMessage",
        label=FieldDescriptorProto.LABEL_REPEATED,
    )
    pool = DescriptorPool()
    pool.Add(file)
    made = GetMessageClass(pool.FindMessageTypeByName("weir.rocketmq.RawRequest"))
    return cast("Callable[[bytes], _RawRequest]", made.FromString)


_parse_raw_request = _raw_requests()


def raw_messages(data: bytes) -> Sequence[RawMessage]:
    """The messages of a SendMessageRequest (hot). Raises DecodeError for other bytes."""
    return _parse_raw_request(data).messages


def service_methods() -> frozenset[str]:
    """The names of all calls of MessagingService."""
    return frozenset(_service.DESCRIPTOR.services_by_name["MessagingService"].methods_by_name)


def enum_values(name: str) -> dict[str, int]:
    """Names and numbers of an enumeration of the definition."""
    return dict(getattr(_definition, name).items())
