"""Rights that are withdrawn from a connection that is open (docs/amqp.md)."""

from __future__ import annotations

from adapters.amqp.codec import spec
from adapters.amqp.codec.fields import Table
from adapters.amqp.errors import ACCESS_REFUSED
from adapters.base import RECHECK_STEP
from adapters.tree_rights import CONSUME_TOPIC, PUBLISH_TOPIC
from tests.adapters.amqp.wire import Content, Wire, close_of


def consuming(*queues: str, **how: object) -> Wire:
    wire = Wire().open(**how)
    for queue in queues:
        wire.declare(queue)
        wire.send(1, spec.BasicConsume(0, queue, queue))
        wire.take()
    return wire


def test_only_consumers_without_right_are_cancelled() -> None:
    wire = consuming("a", "b")
    assert wire.recheck() == 0
    assert wire.take() == []
    wire.logins.denied.add((CONSUME_TOPIC, "a"))
    wire.recheck()
    assert wire.take_one() == spec.BasicCancel("a", nowait=True)
    wire.publish(1, "", "a", b"for nobody")
    wire.publish(1, "", "b", b"for b")
    [deliver, content] = [each for _, each in wire.take()]
    assert isinstance(deliver, spec.BasicDeliver)
    assert isinstance(content, Content)
    assert (deliver.consumer_tag, content.body) == ("b", b"for b")
    assert wire.environment.counters.revoked == 1


def test_what_was_delivered_before_may_be_settled() -> None:
    wire = consuming("a")
    wire.publish(1, "", "a", b"x")
    [deliver, _] = [each for _, each in wire.take()]
    assert isinstance(deliver, spec.BasicDeliver)
    wire.logins.denied.add((CONSUME_TOPIC, "a"))
    wire.recheck()
    wire.take()
    wire.send(1, spec.BasicAck(deliver.delivery_tag, multiple=False))
    assert wire.take() == []
    assert wire.environment.counters.acked == 1


def test_a_client_that_takes_no_cancel_loses_the_channel_and_gives_back_what_it_holds() -> None:
    wire = consuming("a", features=Table())
    wire.publish(1, "", "a", b"x")
    wire.take()
    wire.logins.denied.add((CONSUME_TOPIC, "a"))
    wire.recheck()
    assert close_of(wire.take_one())[0] == ACCESS_REFUSED
    assert wire.connection.channels[1].unacked == {}


def test_a_right_held_for_a_moment_does_not_outlive_it_in_what_publishers_remember() -> None:
    wire = Wire().open()
    wire.declare("q")
    wire.take()
    denied = (PUBLISH_TOPIC, "q")
    wire.logins.denied.add(denied)
    [rights] = wire.logins.given
    before = rights.rules()
    wire.publish(1, "", "other", b"looked up while q is denied")
    wire.take()
    wire.logins.denied.discard(denied)
    wire.publish(1, "", "q", b"while allowed")
    # Back to the very rules of before, and no recheck in between.
    wire.logins.denied.add(denied)
    rights._rules = before
    wire.recheck()
    wire.publish(1, "", "q", b"not any more")
    assert close_of(wire.take_one())[0] == ACCESS_REFUSED


def test_many_consumers_are_looked_at_in_steps() -> None:
    queues = [f"q{number}" for number in range(RECHECK_STEP)]
    assert consuming(*queues).recheck() == 1
