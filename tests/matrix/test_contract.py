"""Each row of the message contract, from every writer to every reader
(docs/design/model.md#the-message-contract)."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.matrix.contract import Can, Neutral, Peer

pytestmark = pytest.mark.interop

TEXT = 'grüße\r\n\t"<&>" 😀'.encode()
BINARY = bytes(range(256))
ORDERED = "fifo"
"""Type of a topic on which RocketMQ takes ordering keys."""


def test_a_text_body(writer: Peer, reader: Peer, topic: str) -> None:
    writer.write(topic, Neutral(body=TEXT))
    got = reader.read(topic)
    assert (got.body, got.attributes, got.attempt) == (TEXT, {}, 1)


@pytest.mark.can(Can.BINARY)
def test_a_binary_body(writer: Peer, reader: Peer, topic: str) -> None:
    writer.write(topic, Neutral(body=BINARY))
    assert reader.read(topic).body == BINARY


@pytest.mark.can(Can.EMPTY)
def test_an_empty_body(writer: Peer, reader: Peer, topic: str) -> None:
    writer.write(topic, Neutral(body=b""))
    assert reader.read(topic).body == b""


def test_attributes_of_every_type_the_writer_has(writer: Peer, reader: Peer, topic: str) -> None:
    writer.write(topic, Neutral(attributes=writer.values))
    expected = {name: reader.shows(value) for name, value in writer.values.items()}
    assert reader.read(topic).attributes == expected


def test_attributes_with_odd_names(writer: Peer, reader: Peer, topic: str) -> None:
    names = {"a.b-c_d": "1", "x" * 100: "2"}
    writer.write(topic, Neutral(attributes=names))
    assert reader.read(topic).attributes == names


def test_tag_and_keys(writer: Peer, reader: Peer, topic: str) -> None:
    writer.write(topic, Neutral(tag="blue", keys=frozenset({"k1", "k2"})))
    got = reader.read(topic)
    assert (got.tag, got.keys, got.attributes) == ("blue", {"k1", "k2"}, {})


def test_content_type_correlation_id_and_reply_to(writer: Peer, reader: Peer, topic: str) -> None:
    said = {"content_type": "text/plain", "correlation_id": "c-1", "reply_to": "answers"}
    writer.write(topic, Neutral(**said))
    got = reader.read(topic)
    assert {name: getattr(got, name) for name in said} == said
    assert got.attributes == {}


@pytest.mark.can(Can.MESSAGE_ID)
def test_the_writers_message_id(writer: Peer, reader: Peer, topic: str) -> None:
    ident = writer.write(topic, Neutral(message_id="mine-1"))
    assert ident
    assert reader.read(topic).message_id == ident


@pytest.mark.can(Can.NO_MESSAGE_ID)
def test_the_uid_stands_for_an_id_that_the_writer_did_not_give(
    writer: Peer, reader: Peer, topic: str
) -> None:
    uid = writer.write(topic, Neutral())
    got = reader.read(topic)
    if writer.name == reader.name == "amqp":  # reads back exactly what was written
        assert got.message_id is None
        return
    assert got.uid is not None
    assert len(got.uid) == 36
    # AMQP tells its writers no id.
    assert uid in {None, got.uid}


@pytest.mark.can(Can.ORDERING_KEY)
def test_an_ordering_key(writer: Peer, reader: Peer, make_topic: Callable[[str], str]) -> None:
    topic = make_topic(ORDERED)
    bodies = [b"%d" % number for number in range(3)]
    for body in bodies:
        writer.write(topic, Neutral(body=body, ordering_key="key-1"))
    found = [reader.read(topic) for _ in bodies]
    assert [got.body for got in found] == bodies
    assert {got.ordering_key for got in found} == {"key-1"}


@pytest.mark.can(Can.DELAY)
def test_a_delay(writer: Peer, reader: Peer, topic: str) -> None:
    # RocketMQ's client says whole seconds of the clock, so two are at least one.
    began = time.monotonic()
    writer.write(topic, Neutral(body=b"later"), delay_s=2)
    assert reader.read(topic).body == b"later"
    assert 0.9 < time.monotonic() - began < 6


def test_attempts_are_counted_across_protocols(writer: Peer, reader: Peer, topic: str) -> None:
    writer.write(topic, Neutral(body=b"twice"))
    writer.refuse(topic)
    got = reader.read(topic)
    assert (got.body, got.attempt) == (b"twice", 2)


def test_what_one_has_acked_the_other_does_not_get(writer: Peer, reader: Peer, topic: str) -> None:
    for body in (b"first", b"second"):
        writer.write(topic, Neutral(body=body))
    assert writer.read(topic).body == b"first"
    assert reader.read(topic).body == b"second"
