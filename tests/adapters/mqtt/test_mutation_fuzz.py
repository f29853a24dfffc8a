"""Mutated packets: only MqttError escapes the codec, and nothing at all escapes a session.

`WEIR_FUZZ_PACKETS` sets how many packets each test mutates (default 3,000; CI: 100,000), and
`WEIR_FUZZ_SEED` the seed, which a failure's message repeats.
"""

from __future__ import annotations

import os
import random

import pytest

from adapters.mqtt.codec.decoder import Decoder
from adapters.mqtt.codec.encoder import encode, publish_frame
from adapters.mqtt.codec.errors import MqttError
from adapters.mqtt.codec.packet_types import PacketType
from adapters.mqtt.codec.packets import (
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    FilterOptions,
    Pingreq,
    Pingresp,
    Publish,
    PublishRun,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from adapters.mqtt.codec.properties import Properties
from adapters.mqtt.config import SessionConfig
from adapters.mqtt.session.client_session import Session
from adapters.mqtt.session.events import (
    AuthenticationReceived,
    ConnectionClosed,
    ConnectReceived,
    DeliveriesReceived,
    PublishesReleased,
    SubscribeReceived,
    UnsubscribeReceived,
)
from adapters.mqtt.session.handshake import Welcome
from adapters.mqtt.session.states import ConnectionState
from tests.adapters.mqtt.support import (
    LEVELS,
    NAMES,
    NOW_MS,
    client_decoder,
    server_decoder,
    single,
)

COUNT = int(os.environ.get("WEIR_FUZZ_PACKETS", "3000"))
SEED = int(os.environ.get("WEIR_FUZZ_SEED", "20261121"))

_TEXTS = Properties(reason_string="why", user_properties=(("k", "v"), ("k", "w")))
_MESSAGE = Properties(
    payload_format_indicator=1,
    message_expiry_interval=60,
    content_type="text/plain",
    response_topic="answers",
    correlation_data=b"\x01\x02",
    topic_alias=3,
    user_properties=(("k", "v"),),
)


def seeds(level: int) -> list[bytes]:
    """One good packet of every type, with properties where there are any."""
    five = level == 5
    texts = _TEXTS if five else Properties()
    message = _MESSAGE if five else Properties()
    signing = Properties(authentication_method="m", authentication_data=b"d", receive_maximum=9)
    will = Will(
        "w/t", b"gone", 1, True, Properties(will_delay_interval=5) if five else Properties()
    )
    packets = [
        Connect("c", level, False, 30, "u", b"p", will, signing if five else Properties()),
        Connect("", level),
        Connack(0, True, Properties(maximum_packet_size=99) if five else Properties()),
        Publish("a/b", b"payload", 1, packet_id=7, properties=message),
        Publish("a/b", b"x" * 200, 2, True, True, packet_id=8),
        Publish("a", b""),
        *(
            Ack(kind, 7, 0, texts)
            for kind in (
                PacketType.PUBACK,
                PacketType.PUBREC,
                PacketType.PUBREL,
                PacketType.PUBCOMP,
            )
        ),
        Ack(PacketType.PUBACK, 8),
        Subscribe(9, (FilterOptions("a/+/#", 2), FilterOptions("$share/g/x", 1))),
        Suback(9, (0, 1, 0x80)),
        Unsubscribe(10, ("a/+", "#")),
        Unsuback(10, (0, 0x11) if five else ()),
        Pingreq(),
        Pingresp(),
        Disconnect(0, texts),
    ]
    if five:
        packets.append(Auth(0x18, Properties(authentication_method="m", authentication_data=b"d")))
    return [encode(packet, level) for packet in packets]


def mutated(data: bytes, others: list[bytes], dice: random.Random) -> bytes:
    """`data` with one to four small wounds; half of the time its length is made to fit again."""
    raw = bytearray(data)
    for _ in range(dice.randint(1, 4)):
        where = dice.randrange(len(raw) + 1)
        kind = dice.randrange(6)
        if kind == 0 and where < len(raw):
            raw[where] ^= 1 << dice.randrange(8)
        elif kind == 1 and where < len(raw):
            raw[where] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        elif kind == 2:
            del raw[where : where + dice.randint(1, 4)]
        elif kind == 3:
            raw[where:where] = dice.randbytes(dice.randint(1, 4))
        elif kind == 4:
            other = dice.choice(others)
            start = dice.randrange(len(other))
            raw[where:where] = other[start : start + dice.randint(1, 12)]
        else:
            del raw[where:]
    if len(raw) >= 2 and dice.random() < 0.5:
        body = raw[2:]
        raw = bytearray((raw[0], len(body))) + body if len(body) < 128 else raw
    return bytes(raw)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("side", ["server", "client"])
def test_only_mqtt_errors_escape_the_codec(level, side):
    dice = random.Random(SEED)
    good = seeds(level)
    refused: list[MqttError] = []
    for number in range(COUNT):
        data = mutated(dice.choice(good), good, dice)
        connect = bool(data) and data[0] >> 4 == 1
        if side == "client":
            decoder = client_decoder(level)
        else:
            decoder = Decoder(NAMES) if connect else server_decoder(level)
        packets: list = []
        try:
            cut = dice.randrange(len(data) + 1)
            decoder.receive(data[:cut], packets)
            decoder.receive(data[cut:], packets)
        except MqttError as error:
            refused.append(error)
        except Exception as error:
            raise AssertionError(f"seed {SEED}, packet {number}: {data.hex()}") from error
        # What was taken for good can be looked at and, if it has not been, written again.
        for packet in single(packets):
            if not isinstance(packet, tuple) and packet.type != PacketType.CONNECT:
                encode(packet, level)
    assert len(refused) > COUNT // 10
    assert all(error.reason_code >= 0x80 and error.detail for error in refused)


class CarelessDriver:
    """Accepts everything, answers events late and in any order, delivers now and then."""

    def __init__(self, session: Session, dice: random.Random) -> None:
        self.session = session
        self.dice = dice
        self.token = 100
        self.tokens: list[int] = []
        self.releases: list[int] = []
        self.receipts: list[int] = []
        self.requests: list = []
        self.closed = False

    def feed(self, data: bytes) -> None:
        self.take(self.session.receive_data(data, NOW_MS))
        self.session.data_to_send()
        if self.dice.random() < 0.5:
            self.work()

    def take(self, events: list) -> None:
        for event in events:
            assert not self.closed, "an event after the last one"
            if isinstance(event, ConnectionClosed):
                self.closed = True
            elif isinstance(event, ConnectReceived):
                given = "given" if event.client_id_needed else ""
                welcome = Welcome(session_present=False, assigned_client_id=given)
                self.take(self.session.accept(welcome, NOW_MS))
            elif isinstance(event, AuthenticationReceived):
                code = 0x00 if event.again else 0x18
                self.take(self.session.send_authentication(b"more", code))
            elif isinstance(event, PublishRun):
                self.tokens += [token for token in event.tokens if token]
            elif isinstance(event, PublishesReleased):
                self.releases += event.packet_ids
            elif isinstance(event, DeliveriesReceived):
                self.receipts += event.packet_ids
            elif isinstance(event, SubscribeReceived | UnsubscribeReceived):
                self.requests.append(event)

    def work(self) -> None:
        session, dice = self.session, self.dice
        dice.shuffle(self.tokens)
        for token in self.tokens[: dice.randint(0, 3)]:
            self.tokens.remove(token)
            closed = session.publish_committed((token,), dice.choice((0, 0, 0x10, 0x87)), "why")
            self.take([closed] if closed else [])
        session.releases_committed(self.releases)
        session.receipts_committed(self.receipts)
        self.releases.clear()
        self.receipts.clear()
        while self.requests and dice.random() < 0.7:
            request = self.requests.pop()
            if isinstance(request, SubscribeReceived):
                session.send_suback(request, [item.qos for item in request.undecided()])
            else:
                session.send_unsuback(request, [0x11] * len(request.filters))
        while session.credit and dice.random() < 0.5:
            self.token += 1
            flags = dice.choice((2, 4))
            frame = publish_frame(session.level, flags, b"t", b"", b"x")
            session.send_frames([frame], [self.token])


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_escapes_a_session(level):
    dice = random.Random(SEED + level)
    good = seeds(level)
    config = SessionConfig(authentication_methods=frozenset({"m"}), receive_maximum=20)
    driver: CarelessDriver | None = None
    fed = connections = 0
    while fed < COUNT:
        if driver is None or driver.closed:
            connections += 1
            driver = CarelessDriver(Session(config, NAMES, NOW_MS), dice)
            driver.feed(good[dice.choice((0, 1))])
        wounded = dice.random() < 0.3
        data = dice.choice(good[3:])
        data = mutated(data, good, dice) if wounded else data
        try:
            driver.feed(data)
        except Exception as error:
            raise AssertionError(f"seed {SEED}, packet {fed}: {data.hex()}") from error
        fed += 1
        if dice.random() < 0.002 and not driver.closed:
            driver.take([driver.session.connection_lost()])
        state = driver.session.state
        assert (state == ConnectionState.CLOSED) == driver.closed
    assert connections > 2
