"""Answers, read back with the generated code."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from adapters.rocketmq.codec import answer_encoding as wire
from adapters.rocketmq.codec.answer_encoding import AnswerPlace, Name
from adapters.rocketmq.errors import Code, RocketmqError
from tests.adapters.rocketmq.support import definition_pb2, service_pb2

ERROR = RocketmqError(Code.TOPIC_NOT_FOUND, "no topic x")


@given(st.integers(0, 2**63 - 1))
def test_numbers_of_any_size(value: int) -> None:
    read = service_pb2.GetOffsetResponse.FromString(wire.number(2, value))
    assert read.offset == value


@given(st.integers(0, 2**41))
def test_moments_keep_their_milliseconds(time_ms: int) -> None:
    read = service_pb2.ReceiveMessageResponse.FromString(wire.moment(3, time_ms))
    assert read.delivery_timestamp.ToMilliseconds() == time_ms


def test_a_moment_overrides_an_earlier_one_wholly() -> None:
    data = wire.moment(9, 1_999) + wire.moment(9, 5_000)
    read = definition_pb2.SystemProperties.FromString(data)
    assert read.store_timestamp.ToMilliseconds() == 5_000


@given(st.text())
def test_texts(value: str) -> None:
    read = service_pb2.ChangeInvisibleDurationResponse.FromString(wire.changed_answer(value))
    assert read.status.code == Code.OK
    assert read.receipt_handle == value.encode("utf-8", "replace").decode()


def test_a_refusal_is_the_answer_of_every_call() -> None:
    data = wire.refusal(ERROR)
    for name in service_pb2.DESCRIPTOR.services_by_name["MessagingService"].methods:
        answer = getattr(service_pb2, name.output_type.name)
        read = answer.FromString(data)
        assert (read.status.code, read.status.message) == (Code.TOPIC_NOT_FOUND, "no topic x")


def test_long_texts_are_cut() -> None:
    error = RocketmqError(Code.BAD_REQUEST, "x" * 10_000)
    assert len(wire.refusal(error)) < 600


def test_a_route() -> None:
    place = AnswerPlace(3, (("broker.example.org", 8081),))
    server = wire.broker("weir", place)
    name = Name("space", "orders")
    queues = [wire.queue(name, number, server, (1, 3)) for number in (0, 1)]
    read = service_pb2.QueryRouteResponse.FromString(wire.route_answer(queues))
    assert [each.id for each in read.message_queues] == [0, 1]
    one = read.message_queues[1]
    assert (one.topic.resource_namespace, one.topic.name) == ("space", "orders")
    assert one.permission == definition_pb2.Permission.READ_WRITE
    assert (one.broker.name, one.broker.id, one.broker.endpoints.scheme) == ("weir", 0, 3)
    assert [(each.host, each.port) for each in one.broker.endpoints.addresses] == [
        ("broker.example.org", 8081)
    ]
    assert list(one.accept_message_types) == [1, 3]


def test_an_assignment_of_any_queue() -> None:
    server = wire.broker("weir", AnswerPlace(1, (("127.0.0.1", 1),)))
    data = wire.assignment_answer([wire.queue(Name("", "t"), -1, server, (1,))])
    read = service_pb2.QueryAssignmentResponse.FromString(data)
    assert [each.message_queue.id for each in read.assignments] == [-1]


@given(st.lists(st.tuples(st.text(max_size=200), st.integers(-1, 2**60)), max_size=4))
def test_results_of_a_send(sent: list[tuple[str, int]]) -> None:
    idents = [ident.encode("utf-8", "replace") for ident, _ in sent]
    data = wire.OK + b"".join(map(wire.sent, idents, [offset for _, offset in sent]))
    read = service_pb2.SendMessageResponse.FromString(data)
    assert [each.message_id.encode() for each in read.entries] == idents
    assert [each.offset for each in read.entries] == [max(offset, 0) for _, offset in sent]
    assert all(each.status.code == Code.OK for each in read.entries)


@given(st.integers(1, 400), st.integers(0, 300) | st.integers(0, 2**60), st.booleans())
def test_results_of_messages_side_by_side(count: int, first: int, is_even: bool) -> None:
    idents = [b"%0*d" % (6 if is_even else 1, number) for number in range(count)]
    read = service_pb2.SendMessageResponse.FromString(wire.sent_in_a_row(idents, first))
    assert [each.message_id.encode() for each in read.entries] == idents
    assert [each.offset for each in read.entries] == list(range(first, first + count))
    assert all(each.status.code == Code.OK for each in read.entries)


def test_results_of_entries() -> None:
    data = wire.acked("id", "handle", None) + wire.acked("id2", "", ERROR)
    read = service_pb2.AckMessageResponse.FromString(data)
    assert [each.status.code for each in read.entries] == [Code.OK, Code.TOPIC_NOT_FOUND]
    assert (read.entries[0].message_id, read.entries[0].receipt_handle) == ("id", "handle")
    refused = service_pb2.SendMessageResponse.FromString(wire.not_sent(b"id", ERROR))
    assert (refused.entries[0].message_id, refused.entries[0].status.code) == (
        "id",
        Code.TOPIC_NOT_FOUND,
    )


def test_the_common_status() -> None:
    def code(*errors: RocketmqError | None) -> int:
        found: int = service_pb2.SendMessageResponse.FromString(
            wire.common_status(errors)
        ).status.code
        return found

    assert code(None) == Code.OK
    assert code(None, None) == Code.OK
    assert code(ERROR) == Code.TOPIC_NOT_FOUND, "of one entry it is that entry's"
    assert code(ERROR, ERROR) == Code.TOPIC_NOT_FOUND
    assert code(ERROR, None) == Code.MULTIPLE_RESULTS
    assert code(ERROR, RocketmqError(Code.BAD_REQUEST, "")) == Code.MULTIPLE_RESULTS
