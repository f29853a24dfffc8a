"""Direct reply-to, frame by frame (with RabbitMQ beside it: `test_differential`)."""

from __future__ import annotations

import pytest

from adapters.amqp.codec import properties, spec
from adapters.amqp.codec.properties import REPLY_TO
from adapters.amqp.errors import ACCESS_REFUSED, NOT_FOUND, PRECONDITION_FAILED
from tests.adapters.amqp.consuming import deliveries
from tests.adapters.amqp.wire import FRAME_MAX, Content, Wire, block_of, close_of, stored_in

PSEUDO = "amq.rabbitmq.reply-to"
ASKS = block_of(reply_to=PSEUDO.encode(), correlation_id=b"7")


def listening(wire: Wire, number: int = 1, tag: str = "replies") -> str:
    """Make a channel listen; its address."""
    method = spec.BasicConsume(0, PSEUDO, tag, no_ack=True)
    assert wire.ask(number, method) == spec.BasicConsumeOk(tag)
    address = wire.connection.channels[number].reply_address()
    assert address is not None
    return address


def requests(wire: Wire) -> list[list[bytes | None]]:
    """Properties of what is in the queue of requests."""
    found = []
    for stored in stored_in(wire):
        native = stored.native
        at = 2 + int.from_bytes(native[:2], "big")
        found.append(properties.split(native[at:]))
    return found


@pytest.mark.parametrize("size", [1, 2 * FRAME_MAX])
def test_a_request_is_stored_with_the_address_and_nothing_else_changed(size: int) -> None:
    """On both ways that a message may take through the codec."""
    wire = Wire().open()
    wire.declare("q")
    address = listening(wire)
    for _ in range(2):
        wire.publish(1, "", "q", b"x" * size, block=ASKS)
    sent = properties.split(ASKS)
    for stored in requests(wire):
        assert stored[REPLY_TO] == bytes((len(address),)) + address.encode()
        assert [each for at, each in enumerate(stored) if at != REPLY_TO] == [
            each for at, each in enumerate(sent) if at != REPLY_TO
        ]
    assert len(requests(wire)) == 2


def test_a_reply_comes_to_the_channel_that_asked() -> None:
    wire = Wire().open(channels=2)
    first, second = listening(wire, 1), listening(wire, 2)
    assert first != second
    responder = Wire(wire.client).open()
    responder.publish(1, "", second, b"answer", mandatory=True)
    assert responder.take() == []
    wire.turn()
    (number, method), (_, content) = wire.take()
    assert isinstance(method, spec.BasicDeliver)
    assert isinstance(content, Content)
    assert (number, method.consumer_tag, method.exchange) == (2, "replies", "")
    assert (method.redelivered, content.body) == (False, b"answer")


def test_a_reply_to_nobody_is_dropped_and_confirmed_even_if_it_is_mandatory() -> None:
    wire = Wire().open()
    wire.ask(1, spec.ConfirmSelect())
    wire.publish(1, "", PSEUDO + ".gone", b"answer", mandatory=True)
    assert wire.take_one() == spec.BasicAck(1)


def test_whoever_knows_the_address_may_reply() -> None:
    wire = Wire().open()
    address = listening(wire)
    responder = Wire(wire.client).open()
    given = responder.logins.given[0]
    given.allows = lambda _number, name: name == ""  # type: ignore[method-assign]
    responder.publish(1, "", address, b"answer")
    wire.turn()
    assert len(deliveries(wire)) == 1
    responder.publish(1, "", "q", b"x")
    assert close_of(responder.take_one())[0] == ACCESS_REFUSED


def test_the_address_goes_with_its_consumer() -> None:
    wire = Wire().open()
    wire.declare("q")
    first = listening(wire)
    assert wire.ask(1, spec.BasicCancel("replies")) == spec.BasicCancelOk("replies")
    assert listening(wire) != first
    wire.send(1, spec.BasicCancel("replies"))
    wire.take()
    wire.publish(1, "", "q", b"x", block=ASKS)
    assert close_of(wire.take_one()) == (
        PRECONDITION_FAILED,
        "PRECONDITION_FAILED - fast reply consumer does not exist",
    )


def test_the_topic_behind_an_address_is_transient_and_the_connections_own() -> None:
    wire = Wire().open()
    address = listening(wire)
    options = wire.client.queues["default", address].info.options
    assert wire.connection.session is not None
    assert (options.durable, options.owner) == (False, wire.connection.session.id)
    assert options.delete_when_unused
    wire.connection.lost()
    assert ("default", address) not in wire.client.queues


@pytest.mark.parametrize(
    ("method", "code"),
    [
        (spec.BasicConsume(0, PSEUDO, "", no_ack=False), PRECONDITION_FAILED),
        (spec.BasicConsume(0, PSEUDO, "", no_ack=True), PRECONDITION_FAILED),  # a second one
        (spec.BasicConsume(0, "{}", "", no_ack=True), NOT_FOUND),
        (spec.BasicGet(0, "{}"), NOT_FOUND),
        (spec.QueuePurge(0, "{}"), NOT_FOUND),
        (spec.QueueBind(0, "{}", "amq.direct", "k"), NOT_FOUND),
        (spec.QueueDeclare(0, PSEUDO + ".none", passive=True), NOT_FOUND),
        (spec.QueueDeclare(0, PSEUDO + ".none"), NOT_FOUND),
    ],
)
def test_what_cannot_be_done_with_it(method: spec.BasicGet, code: int) -> None:
    wire = Wire().open()
    address = listening(wire)
    fields = {name: getattr(method, name) for name, _ in method.layout}
    fields["queue"] = fields["queue"].format(address)
    assert close_of(wire.ask(1, type(method)(**fields)))[0] == code


def test_a_declaration_tells_whether_somebody_listens() -> None:
    wire = Wire().open()
    address = listening(wire)
    other = Wire(wire.client).open()
    for name in (address, PSEUDO):
        asked = spec.QueueDeclare(0, name, passive=True)
        assert other.ask(1, asked) == spec.QueueDeclareOk(name, 0, 1)
