"""QueryRoute and QueryAssignment: where a client is sent, and what it may send there."""

from __future__ import annotations

from pathlib import Path

import pytest

from adapters.rocketmq.errors import Code
from adapters.rocketmq.settings import AutoCreate, RocketmqSettings
from kernel.api.changes import ResizeTopic
from kernel.api.model import GroupOptions, Start, TopicKind
from tests.adapters.in_process import READER_KEY_ID, READER_SECRET
from tests.adapters.rocketmq.support import (
    Broker,
    Wire,
    broker_in_thread,
    definition_pb2,
    endpoints,
    message,
    resource,
    service_pb2,
    signed,
)

NAME, IPV4, IPV6 = 3, 1, 2


def route(wire: Wire, topic: str, *dialled: tuple[str, int], scheme: int = IPV4, **more):
    request = service_pb2.QueryRouteRequest(topic=resource(topic, more.pop("namespace", "")))
    if dialled:
        request.endpoints.CopyFrom(endpoints(scheme, *dialled))
    return wire.call("QueryRoute", request, more.get("headers"))


def assignment(wire: Wire, topic: str, group: str):
    request = service_pb2.QueryAssignmentRequest(topic=resource(topic), group=resource(group))
    request.endpoints.CopyFrom(endpoints(IPV4, ("127.0.0.1", 8081)))
    return wire.call("QueryAssignment", request)


@pytest.mark.parametrize(
    ("word", "types"),
    [("normal", [1]), ("fifo", [2]), ("delay", [3]), ("transaction", [4]), (None, [1, 3])],
)
def test_a_route_tells_every_queue_and_the_types_it_takes(
    broker: Broker, wire: Wire, word: str | None, types: list[int]
) -> None:
    name = f"route-{word}"
    broker.topic(name, word, queues=3)
    answer = route(wire, name, ("10.1.2.3", 4711))
    assert answer.status.code == Code.OK
    assert [queue.id for queue in answer.message_queues] == [0, 1, 2]
    for queue in answer.message_queues:
        assert list(queue.accept_message_types) == types
        assert (queue.topic.name, queue.permission, queue.broker.id) == (name, 4, 0)


def test_a_sealed_queue_is_shown_as_readable_only(broker: Broker, wire: Wire) -> None:
    """As long as it is needed (ADR 31): it is consumed, and nobody chooses it for what is new."""
    broker.topic("sealed", None, kind=TopicKind.WORK, groups={"default": GroupOptions()})
    sent = service_pb2.SendMessageRequest(messages=[message("sealed", b"kept")])
    assert wire.call("SendMessage", sent).status.code == Code.OK
    change = ResizeTopic("default", "sealed", 2, by_key=True)
    broker.run(lambda: broker.kernel.administer(change))
    answer = route(wire, "sealed", ("10.1.2.3", 4711))
    assert {queue.id: queue.permission for queue in answer.message_queues} == {
        0: definition_pb2.Permission.READ,
        1: definition_pb2.Permission.READ_WRITE,
        2: definition_pb2.Permission.READ_WRITE,
    }


def test_a_route_leads_back_to_the_address_that_was_dialled(broker: Broker, wire: Wire) -> None:
    broker.topic("dialled")

    def place(*dialled: tuple[str, int], scheme: int = IPV4) -> object:
        told = route(wire, "dialled", *dialled, scheme=scheme).message_queues[0].broker.endpoints
        return told.scheme, [(each.host, each.port) for each in told.addresses]

    two = [("10.0.0.1", 81), ("10.0.0.2", 82)]
    assert place(*two) == (IPV4, two)
    assert place(("gate.example.org", 443), scheme=NAME) == (NAME, [("gate.example.org", 443)])
    # A client that does not say what it dialled is told what the listener is bound to.
    assert place() == (IPV4, [("127.0.0.1", broker.port)])


@pytest.mark.parametrize(
    ("scheme", "address"),
    [(0, ("h", 1)), (NAME, ("", 1)), (NAME, ("h", 0)), (NAME, ("h", 65_536)), (9, ("h", 1))],
)
def test_an_address_that_is_none(
    broker: Broker, wire: Wire, scheme: int, address: tuple[str, int]
) -> None:
    broker.topic("no-address")
    answer = route(wire, "no-address", address, scheme=scheme)
    assert answer.status.code == Code.ILLEGAL_ACCESS_POINT


def test_an_unknown_topic_is_told_with_the_command_that_makes_it(wire: Wire) -> None:
    answer = route(wire, "nowhere")
    assert answer.status.code == Code.TOPIC_NOT_FOUND
    assert answer.status.message == (
        "no topic nowhere; run: "
        "weir topic create nowhere --type normal|fifo|delay|transaction|priority"
    )


def test_a_topic_of_the_system_is_told_as_such(wire: Wire) -> None:
    assert route(wire, "__metering").status.code == Code.ILLEGAL_TOPIC


def test_whoever_may_consume_a_topic_may_ask_for_it_and_nobody_else(
    broker: Broker, wire: Wire
) -> None:
    for name in ("open-1", "closed-1"):
        broker.topic(name)
    reader = signed(READER_KEY_ID, READER_SECRET)
    assert route(wire, "open-1", headers=reader).status.code == Code.OK
    refused = route(wire, "closed-1", headers=reader)
    assert refused.status.code == Code.FORBIDDEN
    assert "inspect topic closed-1" in refused.status.message


def test_a_namespace_of_somebody_else_is_forbidden(broker: Broker, wire: Wire) -> None:
    broker.topic("spaces")
    assert route(wire, "spaces", namespace="elsewhere").status.code == Code.FORBIDDEN
    headers = signed(x_mq_namespace="a")
    assert route(wire, "spaces", namespace="b", headers=headers).status.code == Code.FORBIDDEN


def test_a_group_that_delivers_at_once_is_assigned_any_queue(broker: Broker, wire: Wire) -> None:
    broker.topic("assigned", queues=4)
    answer = assignment(wire, "assigned", "anyone")
    assert answer.status.code == Code.OK
    assert [each.message_queue.id for each in answer.assignments] == [-1]


def test_a_group_in_order_is_assigned_every_queue(broker: Broker, wire: Wire) -> None:
    broker.topic("assigned-fifo", "fifo", queues=4)
    answer = assignment(wire, "assigned-fifo", "in-order")
    assert [each.message_queue.id for each in answer.assignments] == [0, 1, 2, 3]


def test_a_new_group_begins_with_what_is_kept(broker: Broker, wire: Wire) -> None:
    from tests.adapters.rocketmq.support import message

    broker.topic("kept")
    wire.send(message("kept", b"before"))
    assert wire.receive("kept", "late", wait_s=2).bodies == [b"before"]


def test_from_its_assignment_on_a_group_of_news_misses_nothing(tmp_path: Path) -> None:
    from tests.adapters.rocketmq.support import message

    settings = RocketmqSettings(stream_start=Start.LATEST, invisible_ms_min=1_000)
    with broker_in_thread(tmp_path, settings) as latest:
        latest.topic("from-now")
        calls = Wire(latest.address)
        calls.send(message("from-now", b"before"))
        assignment(calls, "from-now", "late")
        calls.send(message("from-now", b"after"))
        assert calls.receive("from-now", "late", wait_s=2).bodies == [b"after"]
        calls.close()


@pytest.mark.parametrize(
    ("mode", "is_loopback", "makes"),
    [
        (AutoCreate.LOOPBACK, True, True),
        (AutoCreate.LOOPBACK, False, False),
        (AutoCreate.ALWAYS, False, True),
        (AutoCreate.NEVER, True, False),
    ],
)
def test_topics_are_made_by_use_if_the_setting_says_so(
    tmp_path: Path, mode: AutoCreate, is_loopback: bool, makes: bool
) -> None:
    settings = RocketmqSettings(auto_create=mode, is_loopback=is_loopback, auto_create_queues=2)
    with broker_in_thread(tmp_path, settings) as generous:
        calls = Wire(generous.address)
        assert len(route(calls, "made").message_queues) == (2 if makes else 0)
        reader = signed(READER_KEY_ID, READER_SECRET)
        assert route(calls, "open-made", headers=reader).status.code == Code.TOPIC_NOT_FOUND
        calls.close()


def test_out_of_the_box_only_the_default_tenant_makes_topics_by_use() -> None:
    settings = RocketmqSettings(is_loopback=True)
    assert settings.makes_topics_of("default")
    assert not settings.makes_topics_of("acme")


def test_an_operator_may_name_another_address(tmp_path: Path) -> None:
    settings = RocketmqSettings(advertised={"grpc": "queue.example.org:443"})
    with broker_in_thread(tmp_path, settings) as hidden:
        hidden.topic("shown")
        calls = Wire(hidden.address)
        told = route(calls, "shown", ("10.0.0.1", 1)).message_queues[0].broker.endpoints
        calls.close()
    assert (told.scheme, told.addresses[0].host, told.addresses[0].port) == (
        NAME,
        "queue.example.org",
        443,
    )
