"""CC and BCC: further routing keys of a message."""

from __future__ import annotations

import pytest

from adapters.amqp.codec import properties, spec
from adapters.amqp.codec.fields import Table, encode_table
from adapters.amqp.codec.properties import COPIES_MAX
from adapters.amqp.errors import ACCESS_REFUSED, PRECONDITION_FAILED
from adapters.amqp.messages.stored import parse_native
from adapters.tree_rights import PUBLISH_TOPIC, PUBLISH_TREE
from kernel.api import message as messages
from kernel.api.message import Message
from tests.adapters.amqp.wire import Wire, block_of, close_of


def _wire(*queues: str) -> Wire:
    wire = Wire().open()
    for queue in queues:
        wire.declare(queue)
    assert wire.ask(1, spec.ConfirmSelect()) == spec.ConfirmSelectOk()
    return wire


def _block(**headers: object) -> bytes:
    return block_of(headers=Table.of({"kept": 1, **headers, "last": "x"}))


def _stored(wire: Wire, queue: str) -> list[Message]:
    return [messages.decode(slot) for slot in wire.client.queues["default", queue].slots]


def _headers(message: Message) -> Table:
    fields = properties.split(parse_native(message.native).properties)
    return properties.headers_of(fields)


@pytest.mark.parametrize("frame_max", [4096, 131_072])
def test_each_key_is_routed_and_each_queue_gets_one(frame_max: int) -> None:
    wire = _wire("a", "b", "c", "d")
    block = _block(CC=["b", "a", "nowhere", 7], BCC=["c", "b"])
    wire.publish(1, "", "a", bytes(9_000), block=block, frame_max=frame_max)
    assert wire.take_one() == spec.BasicAck(1)
    assert [len(_stored(wire, queue)) for queue in "abcd"] == [1, 1, 1, 0]
    for queue in "abc":
        [message] = _stored(wire, queue)
        assert parse_native(message.native).routing_key == "a"
        assert [name for name, _ in _headers(message).entries] == ["kept", "CC", "last"]


def test_of_a_block_without_hidden_copies_every_byte_is_kept() -> None:
    wire = _wire("a", "b")
    block = _block(CC=["b"])
    wire.publish(1, "", "nowhere", b"x", block=block)
    [message] = _stored(wire, "b")
    assert parse_native(message.native).properties == block


def test_a_message_that_only_copies_reach_is_not_returned() -> None:
    wire = _wire("a")
    wire.publish(1, "", "nowhere", b"x", block=_block(BCC=["a"]), mandatory=True)
    assert wire.take_one() == spec.BasicAck(1)
    wire.publish(1, "", "nowhere", b"x", block=_block(BCC=["neither"]), mandatory=True)
    returned, content, ack = wire.take_methods()
    assert isinstance(returned, spec.BasicReturn)
    assert b"neither" not in repr(content).encode()
    assert ack == spec.BasicAck(2)


def test_keys_go_through_the_exchange() -> None:
    wire = _wire("a", "b", "c")
    wire.ask(1, spec.ExchangeDeclare(0, "topics", "topic", durable=True))
    for queue, pattern in (("a", "a.#"), ("b", "*.b"), ("c", "c")):
        wire.ask(1, spec.QueueBind(0, queue, "topics", pattern))
    wire.publish(1, "topics", "a.b", b"x", block=_block(CC=["a.c", "c"]))
    assert [len(_stored(wire, queue)) for queue in "abc"] == [1, 1, 1]


def test_keys_that_lead_to_a_headers_exchange_take_the_headers_along() -> None:
    wire = _wire("a", "b")
    wire.ask(1, spec.ExchangeDeclare(0, "h", "headers", durable=True))
    matching = Table.of({"x-match": "all", "kept": 1})
    wire.ask(1, spec.QueueBind(0, "a", "h", "", arguments=matching))
    wire.publish(1, "h", "", b"x", block=_block(CC=["b"]))
    assert [len(_stored(wire, queue)) for queue in "ab"] == [1, 0]


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_each_key_needs_the_right_to_its_target(name: str) -> None:
    wire = _wire("a", "secret")
    wire.logins.denied.add((PUBLISH_TOPIC, "secret"))
    wire.publish(1, "", "a", b"x", block=_block(**{name: ["a", "secret"]}))
    assert close_of(wire.take_one())[0] == ACCESS_REFUSED
    assert [len(_stored(wire, queue)) for queue in ("a", "secret")] == [0, 0]


def test_a_name_in_the_tree_needs_its_right_too() -> None:
    wire = _wire()
    wire.logins.denied.add((PUBLISH_TREE, "secret/door"))
    wire.publish(1, "amq.topic", "open", b"x", block=_block(CC=["secret.door"]))
    assert close_of(wire.take_one())[0] == ACCESS_REFUSED


@pytest.mark.parametrize("value", ["b", 7, {"b": 1}])
def test_a_header_that_is_no_array_is_refused(value: object) -> None:
    wire = _wire("a")
    wire.publish(1, "", "a", b"x", block=_block(CC=value))
    assert close_of(wire.take_one())[0] == PRECONDITION_FAILED
    assert _stored(wire, "a") == []


def test_more_keys_than_that_are_refused() -> None:
    wire = _wire("a")
    keys = [f"k{number}" for number in range(COPIES_MAX + 1)]
    wire.publish(1, "", "a", b"x", block=_block(CC=keys[1:]))
    assert wire.take_one() == spec.BasicAck(1)
    wire.publish(1, "", "a", b"x", block=_block(CC=keys[:1], BCC=keys[1:]))
    assert close_of(wire.take_one())[0] == PRECONDITION_FAILED


def test_copies_in_a_transaction_are_routed_with_the_commit() -> None:
    wire = Wire().open()
    for queue in "ab":
        wire.declare(queue)
    wire.ask(1, spec.TxSelect())
    wire.publish(1, "", "a", b"x", block=_block(BCC=["b"]))
    assert [len(_stored(wire, queue)) for queue in "ab"] == [0, 0]
    assert wire.ask(1, spec.TxCommit()) == spec.TxCommitOk()
    assert [len(_stored(wire, queue)) for queue in "ab"] == [1, 1]


def test_a_table_without_hidden_copies_is_the_same_table() -> None:
    table = Table.of({"a": 1, "BCC": ["x"], "b": "y"})
    block = block_of(headers=table, delivery_mode=b"\x02")
    fields = properties.split(properties.without_header(block, "BCC"))
    assert fields[properties.HEADERS] == encode_table(Table.of({"a": 1, "b": "y"}))
    assert fields[properties.DELIVERY_MODE] == b"\x02"
