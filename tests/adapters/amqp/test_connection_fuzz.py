"""A connection fed with damaged and shuffled frames: it answers, and nothing ever escapes."""

from __future__ import annotations

import random
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.amqp.codec import spec
from adapters.amqp.codec.fields import Table
from adapters.amqp.codec.frames import HEARTBEAT, PROTOCOL_HEADER
from adapters.amqp.codec.method_base import Method
from adapters.amqp.codec.methods import encode_method
from adapters.amqp.lifecycle import ConnectionState
from tests.adapters.amqp.test_codec_fuzz import SEED, _damage
from tests.adapters.amqp.wire import Wire, block_of

CONNECTIONS = 400
FRAMES_EACH = 25

_ARGUMENTS = Table.of({"x-message-ttl": 5, "x-max-length": 3})
_METHODS: list[Method] = [
    spec.QueueDeclare(0, "q", durable=True, arguments=_ARGUMENTS),
    spec.QueueDeclare(0, ""),
    spec.QueueBind(0, "q", "amq.topic", "a.#"),
    spec.QueueUnbind(0, "q", "amq.topic", "a.#"),
    spec.QueuePurge(0, "q"),
    spec.QueueDelete(0, "q"),
    spec.ExchangeDeclare(0, "e", "headers"),
    spec.ExchangeBind(0, "e", "amq.topic", "#"),
    spec.ExchangeDelete(0, "e"),
    spec.BasicConsume(0, "q", "t"),
    spec.BasicConsume(0, "q", "n", no_ack=True),
    spec.BasicCancel("t"),
    spec.BasicGet(0, "q"),
    spec.BasicQos(0, 3, global_=True),
    spec.BasicAck(1),
    spec.BasicAck(0, multiple=True),
    spec.BasicNack(2, multiple=True),
    spec.BasicReject(3, requeue=False),
    spec.BasicRecover(requeue=True),
    spec.ConfirmSelect(),
    spec.TxSelect(),
    spec.TxCommit(),
    spec.TxRollback(),
    spec.BasicConsume(0, "amq.rabbitmq.reply-to", "r", no_ack=True),
    spec.ChannelClose(200, "", 0, 0),
    spec.ChannelCloseOk(),
    spec.ChannelOpen(),
    spec.ChannelFlow(active=True),
]


def _frames(*, consumes: bool = True) -> list[bytes]:
    block = block_of(headers=Table.of({"n": 1}), expiration=b"60", delivery_mode=b"\x02")
    asks = block_of(reply_to=b"amq.rabbitmq.reply-to")
    methods = [each for each in _METHODS if consumes or not isinstance(each, spec.BasicConsume)]
    contents = [
        Wire.publish_bytes(number, exchange, key, bytes(size), block=block, frame_max=4096)
        for number in (1, 2)
        for exchange, key, size in (("", "q", 10), ("amq.topic", "a.b", 9_000), ("e", "", 0))
    ]
    return [
        *(encode_method(number, method) for method in methods for number in (1, 2)),
        Wire.publish_bytes(1, "", "q", b"?", block=asks, frame_max=4096),
        *contents,
        *contents,
        HEARTBEAT,
    ]


def _check(wire: Wire) -> None:
    """Whatever came in, what went out is whole frames, and the state is a legal one."""
    wire.take()
    if wire.connection.state is ConnectionState.GONE:
        assert wire.host.closed
    assert wire.connection.state in ConnectionState


def test_damaged_streams_end_in_a_close_and_never_in_an_exception() -> None:
    choose = random.Random(SEED)
    frames = _frames()
    states: set[ConnectionState] = set()
    for _ in range(CONNECTIONS):
        wire = Wire().open(channels=2, frame_max=4096)
        for _ in range(FRAMES_EACH):
            frame = choose.choice(frames)
            if choose.random() < 0.15:
                frame = _damage(frame, choose)
            at = choose.randrange(len(frame) + 1)
            wire.feed(frame[:at])
            wire.feed(frame[at:])
        _check(wire)
        states.add(wire.connection.state)
        wire.connection.lost()
        assert all(not queue.held for queue in wire.client.queues.values())
    # Some survive, some are told to go.
    assert states >= {ConnectionState.OPEN, ConnectionState.CLOSING}


def test_handshakes_are_damaged_too() -> None:
    choose = random.Random(SEED + 1)
    properties = Table.of({"capabilities": {"authentication_failure_close": True}})
    frames = [
        encode_method(0, spec.ConnectionStartOk(properties, "PLAIN", b"\0guest\0guest", "en_US")),
        encode_method(0, spec.ConnectionTuneOk(10, 4096, 5)),
        encode_method(0, spec.ConnectionOpen("/")),
        encode_method(1, spec.ChannelOpen()),
        encode_method(0, spec.ConnectionClose(200, "", 0, 0)),
    ]
    for _ in range(2_000):
        wire = Wire()
        stream = PROTOCOL_HEADER + b"".join(frames[: choose.randint(1, len(frames))])
        damaged = _damage(stream, choose)
        wire.feed(damaged[: choose.randrange(len(damaged) + 1)])
        wire.feed(damaged)
        _check(wire)
        wire.connection.tick(wire.host.now_ms + 60_000)
        wire.connection.lost()


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_any_bytes_behind_the_handshake(data: bytes) -> None:
    wire = Wire().open()
    wire.feed(data)
    _check(wire)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_the_same_stream_in_other_pieces_has_the_same_answers(data: st.DataObject) -> None:
    # What consumers get comes when it comes, before or after what a client says next.
    frames = _frames(consumes=False)
    stream = b"".join(data.draw(st.lists(st.sampled_from(frames), max_size=8)))
    whole, pieces = Wire().open(channels=2, frame_max=4096), Wire().open(channels=2, frame_max=4096)
    whole.feed(stream)
    at = 0
    while at < len(stream):
        size = data.draw(st.integers(1, 200))
        pieces.feed(stream[at : at + size])
        at += size
    # Confirms are coalesced by what one read brings, and so may differ; the rest may not.
    assert _without_confirms(whole) == _without_confirms(pieces)
    assert whole.connection.state == pieces.connection.state


def _without_confirms(wire: Wire) -> list[object]:
    found = [each for each in wire.take_methods() if not isinstance(each, spec.BasicAck)]
    # A delivery may come before or after an answer on another channel, and what was published on
    # one may or may not be counted yet in the other.
    return sorted(re.sub(r"message_count=\d+", "message_count", repr(each)) for each in found)
