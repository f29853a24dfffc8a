"""x-consumer-timeout: a consumer may hold a delivery only so long."""

from __future__ import annotations

import pytest

from adapters.amqp.codec import spec
from adapters.amqp.codec.fields import Table
from adapters.amqp.errors import PRECONDITION_FAILED
from tests.adapters.amqp.wire import Content, Wire, close_of

TIMEOUT_MS = 30_000


def _wire(of: str, timeout_ms: int = TIMEOUT_MS, **how: object) -> Wire:
    table = Table.of({"x-consumer-timeout": timeout_ms})
    wire = Wire().open(channels=2)
    wire.declare("q", durable=True, arguments=table if of == "queue" else Table())
    own = Table.of({"x-consumer-timeout": timeout_ms}) if of == "consumer" else Table()
    wire.send(1, spec.BasicConsume(0, "q", "t", arguments=own, **how))  # type: ignore[arg-type]
    wire.take()
    return wire


def _pass(wire: Wire, seconds: int) -> None:
    """Time, with a tick each second."""
    for _ in range(seconds):
        wire.host.now_ms += 1_000
        wire.connection.tick(wire.host.now_ms)
        wire.turn()


@pytest.mark.parametrize("of", ["queue", "consumer"])
def test_who_holds_a_delivery_too_long_has_its_channel_closed(of: str) -> None:
    wire = _wire(of)
    wire.publish(1, "", "q", b"held")
    wire.publish(1, "", "q", b"acked")
    wire.send(1, spec.BasicAck(2))
    wire.take()
    _pass(wire, TIMEOUT_MS // 1_000 - 1)
    assert wire.take_methods() == []
    _pass(wire, 3)
    code, text = close_of(wire.take_one())
    assert code == PRECONDITION_FAILED
    assert text == (
        "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. Timeout value "
        "used: 30000 ms. This timeout value can be configured, see consumers doc guide to learn "
        "more"
    )
    # It is there for the next one, and what was acked is not.
    wire.send(2, spec.BasicConsume(0, "q", "next"))
    _, delivered, content = wire.take_methods()
    assert delivered == spec.BasicDeliver("next", 1, True, "", "q")
    assert isinstance(content, Content)
    assert content.body == b"held"


def test_each_delivery_has_the_whole_time() -> None:
    wire = _wire("queue")
    for tag in range(1, 20):
        wire.publish(1, "", "q", b"x")
        _pass(wire, TIMEOUT_MS // 1_000 - 1)
        wire.send(1, spec.BasicAck(tag))
    assert not any(isinstance(each, spec.ChannelClose) for each in wire.take_methods())
    wire.publish(1, "", "q", b"x")
    _pass(wire, TIMEOUT_MS // 1_000 + 2)
    assert any(isinstance(each, spec.ChannelClose) for each in wire.take_methods())


def test_a_consumers_own_timeout_goes_before_its_queues() -> None:
    wire = _wire("queue", timeout_ms=5_000)
    patient = Table.of({"x-consumer-timeout": 60_000})
    wire.send(1, spec.BasicCancel("t"), spec.BasicConsume(0, "q", "own", arguments=patient))
    wire.publish(1, "", "q", b"x")
    wire.take()
    _pass(wire, 50)
    assert wire.take_methods() == []
    _pass(wire, 13)
    assert close_of(wire.take_one())[0] == PRECONDITION_FAILED


def test_others_on_the_channel_may_hold_theirs_for_ever() -> None:
    wire = _wire("consumer")
    wire.declare("other")
    wire.send(1, spec.BasicConsume(0, "other", "o"))
    wire.publish(1, "", "other", b"x")
    wire.take()
    _pass(wire, 90)
    assert wire.take_methods() == []


def test_a_cancelled_consumer_holds_what_it_has() -> None:
    wire = _wire("queue")
    wire.publish(1, "", "q", b"x")
    wire.send(1, spec.BasicCancel("t"))
    wire.take()
    _pass(wire, 33)
    assert close_of(wire.take_one())[0] == PRECONDITION_FAILED


def test_without_acks_there_is_nothing_to_hold() -> None:
    wire = _wire("queue", no_ack=True)
    wire.publish(1, "", "q", b"x")
    wire.take()
    _pass(wire, 90)
    assert wire.take_methods() == []


def test_what_is_remembered_is_bounded() -> None:
    wire = _wire("queue", timeout_ms=600_000)
    for tag in range(1, 1_500):
        wire.publish(1, "", "q", b"x")
        wire.send(1, spec.BasicAck(tag))
        _pass(wire, 1)
    consumers = wire.connection._consumers
    assert consumers is not None
    [patience] = consumers.patiences._links.values()
    assert len(patience._looks) <= 61
    wire.send(1, spec.BasicCancel("t"))
    _pass(wire, 1)
    assert consumers.patiences._links == {}
