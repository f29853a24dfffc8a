"""What clients receive: identifiers, windows, QoS exchanges, resending, aliases, size."""

from __future__ import annotations

import pytest

from adapters.mqtt.codec.encoder import encode, publish_frame
from adapters.mqtt.codec.errors import LocalProtocolError
from adapters.mqtt.codec.packet_types import PacketType
from adapters.mqtt.codec.packets import Ack, Connect, Publish
from adapters.mqtt.codec.properties import Properties
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.config import SessionConfig
from adapters.mqtt.session.events import DeliveriesCompleted, DeliveriesReceived
from adapters.mqtt.session.handshake import Welcome
from adapters.mqtt.session.outbound import InFlight, Sent
from tests.adapters.mqtt.support import LEVELS, NOW_MS, asking, connected, said

PUBACK, PUBREC, PUBREL, PUBCOMP = (
    PacketType.PUBACK,
    PacketType.PUBREC,
    PacketType.PUBREL,
    PacketType.PUBCOMP,
)


def frame(qos: int, payload: bytes = b"x", level: int = 5, topic: bytes = b"t"):
    return publish_frame(level, qos << 1, topic, b"", payload)


def answer(session, packet_type: PacketType, *packet_ids: int, code: int = 0) -> list:
    level = session.level
    data = b"".join(encode(Ack(packet_type, packet_id, code), level) for packet_id in packet_ids)
    return session.receive_data(data, NOW_MS)


def with_limit(**properties) -> Connect:
    return Connect("c", properties=Properties(**properties))


@pytest.mark.parametrize("level", LEVELS)
def test_one_frame_serves_many_deliveries_each_with_its_identifier(level):
    """[MQTT-2.2.1-4], [MQTT-4.3.2-1], [MQTT-4.3.2-2], [MQTT-4.3.3-1], [MQTT-4.3.3-2]."""
    session = connected(level)
    shared = frame(1, level=level)
    session.send_frames(
        [shared, frame(0, level=level), shared, frame(2, level=level)], [5, 6, 7, 8]
    )
    assert said(session) == [
        Publish("t", b"x", 1, packet_id=1),
        Publish("t", b"x", 0),
        Publish("t", b"x", 1, packet_id=2),
        Publish("t", b"x", 2, packet_id=3),
    ]
    assert session.in_flight() == [InFlight(1, 5, 1), InFlight(2, 7, 1), InFlight(3, 8, 2)]


def test_acknowledged_deliveries_are_reported_by_their_tokens():
    """[MQTT-4.3.2-3]."""
    session = connected()
    session.send_frames([frame(1)] * 3, [10, 20, 30])
    assert answer(session, PUBACK, 2, 1) == [DeliveriesCompleted([20, 10])]
    assert session.in_flight() == [InFlight(3, 30, 1)]
    assert answer(session, PUBACK, 1) == []


def test_a_delivery_that_the_client_refuses_is_over_too():
    """[MQTT-4.4.0-2], [MQTT-4.8.2-6]."""
    session = connected()
    session.send_frames([frame(1), frame(2), frame(1)], [1, 2, 3])
    session.data_to_send()
    [first] = answer(session, PUBACK, 1, code=0x87)
    [second] = answer(session, PUBREC, 2, code=0x97)
    assert (first.tokens, first.refused) == ([1], {1: 0x87})
    assert (second.tokens, second.refused) == ([2], {2: 0x97})
    assert session.in_flight() == [InFlight(3, 3, 1)]
    assert session.data_to_send() == b""


@pytest.mark.parametrize("level", LEVELS)
def test_a_qos_2_delivery_is_released_when_its_receipt_is_on_record(level):
    """[MQTT-4.3.3-3], [MQTT-4.3.3-4], [MQTT-4.3.3-5]."""
    session = connected(level)
    session.send_frames([frame(2, level=level)] * 2, [70, 80])
    session.data_to_send()
    assert answer(session, PUBREC, 1, 2) == [DeliveriesReceived([1, 2], [70, 80])]
    assert answer(session, PUBREC, 1) == []
    assert session.data_to_send() == b""
    session.receipts_committed([1, 2])
    assert [sent[:3] for sent in said(session)] == [(PUBREL, 1, 0), (PUBREL, 2, 0)]
    assert session.in_flight() == [InFlight(1, 70, 2, True), InFlight(2, 80, 2, True)]
    assert answer(session, PUBREC, 2) == []
    assert [sent[:3] for sent in said(session)] == [(PUBREL, 2, 0)]
    assert answer(session, PUBCOMP, 1, 2) == [DeliveriesCompleted([70, 80])]
    assert session.in_flight() == []


def test_answers_to_deliveries_that_are_no_more_let_the_client_finish():
    session = connected()
    assert answer(session, PUBACK, 9) == []
    assert answer(session, PUBCOMP, 9) == []
    assert answer(session, PUBREC, 9, code=0x80) == []
    assert session.data_to_send() == b""
    assert answer(session, PUBREC, 9) == []
    assert [sent[:3] for sent in said(session)] == [(PUBREL, 9, 0x92)]
    session = connected(4)
    answer(session, PUBREC, 9)
    assert session.data_to_send() == bytes.fromhex("62 02 0009")


@pytest.mark.parametrize(("qos", "wrong"), [(1, PUBREC), (1, PUBCOMP), (2, PUBACK), (2, PUBCOMP)])
@pytest.mark.parametrize("level", LEVELS)
def test_an_answer_of_the_wrong_kind_is_a_protocol_error(qos, wrong, level):
    """[MQTT-3.3.4-1]."""
    session = connected(level)
    session.send_frames([frame(qos, level=level)], [1])
    session.data_to_send()
    [closed] = answer(session, wrong, 1)
    assert closed.reason_code == ReasonCode.PROTOCOL_ERROR
    assert len(said(session)) == (1 if level == 5 else 0)


def test_what_was_answered_before_an_error_in_the_same_bytes_counts():
    session = connected()
    session.send_frames([frame(1), frame(2)], [1, 2])
    events = answer(session, PUBACK, 1, 2)
    assert events[0] == DeliveriesCompleted([1])
    assert events[1].reason_code == ReasonCode.PROTOCOL_ERROR


def test_the_clients_window_bounds_what_is_unacknowledged():
    """[MQTT-3.3.4-9], [MQTT-4.9.0-1], [MQTT-4.9.0-2]; QoS 2 counts until PUBCOMP."""
    session = connected(connect=with_limit(receive_maximum=2))
    assert session.credit == 2
    session.send_frames([frame(1), frame(2)], [1, 2])
    assert session.credit == 0
    with pytest.raises(LocalProtocolError):
        session.send_frames([frame(1)], [3])
    # Other packets, and QoS 0, go on ([MQTT-3.3.4-10], [MQTT-4.9.0-3]).
    session.send_frames([frame(0)], [4])
    answer(session, PUBREC, 2)
    session.receipts_committed([2])
    assert session.credit == 0
    answer(session, PUBCOMP, 2)
    assert session.credit == 1


def test_the_servers_own_bound_holds_for_clients_that_offer_more():
    config = SessionConfig(deliveries_in_flight_max=5)
    assert connected(4, config).credit == 5
    assert connected(5, config).credit == 5
    assert connected(5, config, with_limit(receive_maximum=3)).credit == 3


def test_identifiers_in_use_are_passed_over_when_the_numbers_begin_again():
    """[MQTT-2.2.1-4]."""
    session = connected(config=SessionConfig(deliveries_in_flight_max=3))
    session.send_frames([frame(1), frame(2)], [1, 2])
    for number in range(65_540):
        session.send_frames([frame(1)], [number])
        packet_id = session.in_flight()[-1].packet_id
        assert packet_id not in (0, 1, 2)
        answer(session, PUBACK, packet_id)
        session.data_to_send()
    assert packet_id < 10


def test_a_packet_of_the_clients_maximum_is_sent_and_a_larger_one_counts_as_delivered():
    """[MQTT-3.1.2-24], [MQTT-3.1.2-25]."""
    size = len(encode(Publish("t", bytes(40), 1, packet_id=1), 5))
    session = connected(connect=with_limit(maximum_packet_size=size))
    large = [frame(1, bytes(40)), frame(1, bytes(41)), frame(0, bytes(42)), frame(0, bytes(43))]
    assert session.send_frames(large, [1, 2, 3, 4]) == [2, 4]
    assert [len(sent.payload) for sent in said(session)] == [40, 42]
    assert session.in_flight() == [InFlight(1, 1, 1)]
    assert session.send_publish("t", 2, b"", bytes(40), 5)
    assert not session.send_publish("t", 2, b"", bytes(41), 6)
    assert session.in_flight()[-1].token == 5


def test_the_first_topics_get_the_aliases_and_keep_them():
    """[MQTT-3.1.2-26], [MQTT-3.3.2-8], [MQTT-3.3.2-11]."""
    session = connected(connect=with_limit(topic_alias_maximum=2))
    assert session.uses_aliases
    for topic in ("one", "two", "three", "one", "two", "three"):
        session.send_publish(topic, 0, b"\x03\x00\x01c", b"x", 0)
    sent = said(session)
    assert [(packet.topic, packet.properties.topic_alias) for packet in sent] == [
        ("one", 1),
        ("two", 2),
        ("three", None),
        ("", 1),
        ("", 2),
        ("three", None),
    ]
    assert {packet.properties.content_type for packet in sent} == {"c"}


def test_an_alias_is_not_taken_by_a_message_that_was_never_sent():
    connect = with_limit(topic_alias_maximum=5, maximum_packet_size=30)
    session = connected(connect=connect)
    assert not session.send_publish("long", 0, b"", bytes(30), 0)
    session.send_publish("long", 0, b"", b"", 0)
    assert said(session)[0].topic == "long"


@pytest.mark.parametrize("connect", [Connect("c"), with_limit(topic_alias_maximum=0)])
def test_a_client_that_takes_no_aliases_gets_none(connect):
    """[MQTT-3.1.2-27]."""
    session = connected(connect=connect)
    assert not session.uses_aliases
    session.send_publish("t", 2, b"", b"x", 1)
    session.send_publish("t", 2, b"", b"x", 2)
    assert {sent.properties.topic_alias for sent in said(session)} == {None}


def test_the_server_bounds_its_own_aliases():
    config = SessionConfig(topic_aliases_out_max=0)
    assert not connected(config=config, connect=with_limit(topic_alias_maximum=9)).uses_aliases


def resumed(*in_flight: InFlight, level: int = 5, **properties):
    connect = Connect("c", level=level, clean_start=False, properties=Properties(**properties))
    return connected(connect=connect, session_present=True, in_flight=in_flight)


RELEASED = InFlight(9, 90, 2, True)


@pytest.mark.parametrize("level", LEVELS)
def test_a_resumed_session_sends_again_what_was_not_acknowledged(level):
    """[MQTT-4.4.0-1], [MQTT-4.6.0-1], [MQTT-3.3.1-1], [MQTT-4.3.3-6]."""
    session = resumed(RELEASED, level=level)
    session.keep_ids([4, 2, 7])
    for packet_id, qos in ((4, 1), (2, 2), (7, 1)):
        payload = b"%d" % (10 * packet_id)
        session.send_kept(packet_id, 10 * packet_id, frame(qos, payload, level))
    assert said(session) == [
        Publish("t", b"40", 1, dup=True, packet_id=4),
        Publish("t", b"20", 2, dup=True, packet_id=2),
        Publish("t", b"70", 1, dup=True, packet_id=7),
    ]
    # New deliveries take identifiers that nobody has.
    session.send_frames([frame(1, level=level)] * 3, [1, 2, 3])
    assert {sent.packet_id for sent in said(session)}.isdisjoint({4, 9, 2, 7})
    assert answer(session, PUBACK, 4) == [DeliveriesCompleted([40])]
    assert answer(session, PUBREC, 2) == [DeliveriesReceived([2], [20])]


def test_releases_are_sent_again_at_once_behind_connack():
    """[MQTT-4.4.0-1] for PUBREL."""
    connect = Connect("c", clean_start=False)
    session, _ = asking(connect)
    session.accept(Welcome(session_present=True), NOW_MS, in_flight=[RELEASED])
    answers = said(session)
    assert answers[0].session_present
    assert [sent[:3] for sent in answers[1:]] == [(PUBREL, 9, 0)]
    assert answer(session, PUBCOMP, 9) == [DeliveriesCompleted([90])]


def test_what_was_never_released_is_not_restored_so():
    with pytest.raises(LocalProtocolError):
        resumed(InFlight(4, 40, 1))


def test_a_session_that_is_not_resumed_forgets_what_was_in_flight():
    """[MQTT-3.1.2-4]."""
    session = connected(in_flight=(RELEASED,), received_ids=(1,))
    assert session.in_flight() == []
    assert session.received_ids() == []


def test_the_window_holds_for_what_is_sent_again():
    """[MQTT-3.3.4-9]."""
    session = resumed(RELEASED, receive_maximum=2)
    session.keep_ids([4, 2])
    session.send_kept(4, 40, frame(1))
    assert session.credit == 0
    with pytest.raises(LocalProtocolError):
        session.send_kept(2, 20, frame(2))
    assert answer(session, PUBACK, 4) == [DeliveriesCompleted([40])]
    session.send_kept(2, 20, frame(2))


def test_identifiers_that_wait_to_be_sent_again_are_given_to_nothing_new():
    """[MQTT-4.6.0-5]: the old messages keep their places."""
    session = resumed()
    session.keep_ids([1, 2])
    session.send_frames([frame(1)], [30])
    assert [sent.packet_id for sent in said(session)] == [3]
    session.drop_kept(1)
    assert {InFlight(3, 30, 1)} == set(session.in_flight())


def test_without_a_free_identifier_nothing_is_sent_and_nothing_goes_in_a_circle():
    session = resumed()
    session.keep_ids(range(1, 65_536))
    with pytest.raises(LocalProtocolError, match="no packet identifier is free"):
        session.send_frames([frame(1)], [30])
    session.drop_kept(7)
    session.keep_ids([])
    with pytest.raises(LocalProtocolError, match="no packet identifier is free"):
        session.send_frames([frame(1), frame(1)], [30, 31])
    assert [each.packet_id for each in session.in_flight()] == [7]


def test_a_message_that_is_gone_is_given_up_but_its_qos_2_exchange_is_finished():
    session = resumed()
    session.keep_ids([2])
    session.data_to_send()
    session.release_kept(2, 20)
    assert [sent[:3] for sent in said(session)] == [(PUBREL, 2, 0)]
    assert session.in_flight() == [InFlight(2, 20, 2, True)]
    assert answer(session, PUBCOMP, 2) == [DeliveriesCompleted([20])]


def test_what_does_not_fit_is_known_before_it_is_sent_again():
    """[MQTT-3.1.2-25]."""
    session = resumed(maximum_packet_size=20)
    assert not session.fits(frame(1, bytes(50)))
    assert session.fits(frame(1))


def test_nothing_is_sent_again_while_the_connection_lasts():
    """[MQTT-4.4.0-1]: not at any other time."""
    session = connected()
    session.send_frames([frame(1)], [1])
    with pytest.raises(LocalProtocolError):
        session.send_kept(1, 1, frame(1))


def test_a_reserved_identifier_is_used_by_what_is_sent_later():
    session = connected(connect=with_limit(receive_maximum=2))
    first = session.reserve(10, 2)
    session.send_frames([frame(1)], [20])
    assert session.credit == 0
    with pytest.raises(LocalProtocolError):
        session.reserve(30, 2)
    session.send_reserved(first, frame(2))
    assert [(sent.packet_id, sent.qos) for sent in said(session)] == [(2, 1), (first, 2)]
    assert answer(session, PUBREC, first) == [DeliveriesReceived([first], [10])]


def test_one_delivery_is_tried_and_said_what_became_of_it():
    session = connected(connect=with_limit(receive_maximum=1, maximum_packet_size=40))
    assert session.try_frame(frame(1, bytes(50)), 1) is Sent.TOO_LARGE
    assert session.try_frame(frame(0, bytes(50)), 1) is Sent.TOO_LARGE
    assert session.try_frame(frame(1), 1) is Sent.GONE
    assert session.try_frame(frame(1), 2) is Sent.NO_CREDIT
    assert session.try_frame(frame(0), 3) is Sent.GONE
    assert [sent.qos for sent in said(session)] == [1, 0]


@pytest.mark.parametrize("level", LEVELS)
def test_one_plain_puback_is_taken_the_short_way_and_nothing_else_is(level):
    session = connected(level)
    session.send_frames([frame(1, level=level)] * 2 + [frame(2, level=level)], [10, 20, 30])
    assert session.receive_puback(b"\x40\x02\x00\x01", NOW_MS) == 10
    assert session.receive_puback(b"\x40\x02\x00\x01", NOW_MS) is None
    assert session.receive_puback(b"\x40\x02\x00\x03", NOW_MS) is None
    assert session.receive_puback(b"\x40\x03\x00\x02", NOW_MS) is None
    assert session.receive_puback(b"\x50\x02\x00\x02", NOW_MS) is None
    assert session.receive_puback(b"\x40\x02\x00", NOW_MS) is None
    session.receive_data(b"\x40", NOW_MS)
    assert session.receive_puback(b"\x40\x02\x00\x02", NOW_MS) is None
    [completed] = session.receive_data(b"\x02\x00\x02", NOW_MS)
    assert completed.tokens == [20]
    session.connection_lost()
    assert session.receive_puback(b"\x40\x02\x00\x02", NOW_MS) is None


def test_receipts_that_were_never_reported_are_our_bug():
    session = connected()
    session.send_frames([frame(2)], [1])
    with pytest.raises(LocalProtocolError):
        session.receipts_committed([1])


def test_nothing_is_delivered_to_a_connection_that_is_not_open():
    """[MQTT-3.14.4-1], [MQTT-3.2.0-1]."""
    session = connected()
    session.disconnect(ReasonCode.SERVER_SHUTTING_DOWN)
    assert session.credit == 0
    for attempt in (
        lambda: session.send_frames([frame(0)], [1]),
        lambda: session.send_publish("t", 0, b"", b"", 1),
        lambda: session.try_frame(frame(0), 1),
        lambda: session.reserve(1, 2),
        lambda: session.send_reserved(1, frame(2)),
        lambda: session.send_kept(1, 1, frame(1)),
        lambda: session.release_kept(1, 1),
    ):
        with pytest.raises(LocalProtocolError):
            attempt()
