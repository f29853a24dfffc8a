"""What clients publish: order of acknowledgements, repeats, flow control, aliases."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from adapters.mqtt.codec.encoder import encode
from adapters.mqtt.codec.errors import LocalProtocolError
from adapters.mqtt.codec.packet_types import PacketType
from adapters.mqtt.codec.packets import Ack, Connect, Disconnect, Publish, PublishRun
from adapters.mqtt.codec.properties import Properties
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.config import SessionConfig
from adapters.mqtt.session.events import ConnectionClosed, PublishesReleased
from tests.adapters.mqtt.support import LEVELS, NOW_MS, connected, publish, said

PUBACK, PUBREC, PUBCOMP = PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBCOMP


def received(session, *packets: bytes) -> list:
    return session.receive_data(b"".join(packets), NOW_MS)


def release(packet_id: int, level: int = 5) -> bytes:
    return encode(Ack(PacketType.PUBREL, packet_id), level)


def acks(session) -> list[tuple[PacketType, int, int]]:
    return [answer[:3] for answer in said(session)]


@pytest.mark.parametrize("level", LEVELS)
def test_nothing_is_acknowledged_before_it_is_committed(level):
    """[MQTT-4.3.2-4], [MQTT-4.3.3-8]: ownership is the commit; [MQTT-2.2.1-5]."""
    session = connected(level)
    [run] = received(session, publish(1, level=level), publish(2, 2, level=level))
    assert session.data_to_send() == b""
    session.publish_committed(run.tokens)
    assert acks(session) == [(PUBACK, 1, 0), (PUBREC, 2, 0)]


def test_qos_0_has_no_token_and_no_answer():
    """[MQTT-4.3.1-1], [MQTT-3.3.4-1]."""
    session = connected()
    [run] = received(session, publish(), publish(7), publish())
    assert [bool(token) for token in run.tokens] == [False, True, False]
    [only_0] = received(session, publish(), publish())
    assert list(only_0.tokens) == [0, 0]
    session.publish_committed([token for token in run.tokens if token])
    assert acks(session) == [(PUBACK, 7, 0)]


def test_acknowledgements_leave_in_the_order_of_arrival():
    """[MQTT-4.6.0-2], [MQTT-4.6.0-3], though commits finish in any order."""
    session = connected()
    [run] = received(session, publish(5), publish(3, 2), publish(9), publish(1))
    first, second, third, fourth = run.tokens
    session.publish_committed([third])
    session.publish_committed([second])
    assert session.data_to_send() == b""
    session.publish_committed([first])
    assert acks(session) == [(PUBACK, 5, 0), (PUBREC, 3, 0), (PUBACK, 9, 0)]
    session.publish_committed([fourth])
    assert acks(session) == [(PUBACK, 1, 0)]


def test_answers_that_were_held_back_leave_with_their_own_results():
    """[MQTT-4.6.0-2]."""
    session = connected()
    [run] = received(session, *(publish(number) for number in range(1, 8)))
    first, *others = run.tokens
    session.publish_committed(others[:2])
    session.publish_committed(others[2:4], ReasonCode.QUOTA_EXCEEDED)
    session.publish_committed(others[4:])
    session.publish_committed([first])
    codes = [code for _, _, code in acks(session)]
    assert codes == [0, 0, 0, 0x97, 0x97, 0, 0]


@given(st.data(), st.sampled_from(LEVELS))
@settings(max_examples=60, deadline=None)
def test_acknowledgements_keep_their_order_however_commits_finish(data, level):
    """[MQTT-4.6.0-2]."""
    session = connected(level)
    ids = data.draw(st.lists(st.integers(1, 65_535), min_size=1, max_size=12, unique=True))
    tokens: list[int] = []
    for packet_id in ids:
        [run] = received(session, publish(packet_id, data.draw(st.integers(1, 2)), level=level))
        tokens += run.tokens
    heard: list[int] = []
    for token in data.draw(st.permutations(tokens)):
        session.publish_committed([token])
        heard += [packet_id for _, packet_id, _ in acks(session)]
        assert heard == ids[: len(heard)]
    assert heard == ids


def test_a_refusal_is_told_in_its_place_with_its_reason():
    """[MQTT-3.4.2-1]."""
    session = connected()
    [run] = received(session, publish(1), publish(2), publish(3, 2))
    session.publish_committed([run.tokens[1]], ReasonCode.NOT_AUTHORIZED, "not yours")
    session.publish_committed([run.tokens[2]], ReasonCode.QUOTA_EXCEEDED)
    session.publish_committed([run.tokens[0]], ReasonCode.NO_MATCHING_SUBSCRIBERS)
    assert said(session) == [
        (PUBACK, 1, 0x10, None),
        (PUBACK, 2, 0x87, Properties(reason_string="not yours")),
        (PUBREC, 3, 0x97, None),
    ]


def test_a_client_that_wants_no_explanations_gets_none():
    """[MQTT-3.1.2-29]."""
    connect = Connect("c", properties=Properties(request_problem_information=0))
    session = connected(connect=connect)
    [run] = received(session, publish(1))
    session.publish_committed(run.tokens, ReasonCode.NOT_AUTHORIZED, "not yours")
    assert said(session) == [(PUBACK, 1, 0x87, None)]


def test_an_explanation_that_would_make_the_answer_too_large_is_left_out():
    """[MQTT-3.4.2-2], [MQTT-3.1.2-24]."""
    connect = Connect("c", properties=Properties(maximum_packet_size=30))
    session = connected(connect=connect)
    [run] = received(session, publish(1))
    session.publish_committed(run.tokens, ReasonCode.NOT_AUTHORIZED, "x" * 30)
    assert said(session) == [(PUBACK, 1, 0x87, None)]


def test_a_3_1_1_client_is_disconnected_where_it_cannot_be_told():
    """MQTT3.1.1 3.3.5: an acknowledgement would say that the message is stored."""
    session = connected(4)
    [run] = received(session, publish(1, level=4), publish(2, level=4))
    closed = session.publish_committed([run.tokens[1]], ReasonCode.NOT_AUTHORIZED)
    assert isinstance(closed, ConnectionClosed)
    assert closed.reason_code == ReasonCode.NOT_AUTHORIZED
    assert session.publish_committed([run.tokens[0]]) is None
    assert session.data_to_send() == b""


def test_a_3_1_1_client_may_be_told_a_lie_about_what_it_may_not_publish():
    session = connected(4, SessionConfig(acknowledge_unauthorized_v3=True))
    [run] = received(session, publish(1, level=4), publish(2, 2, level=4))
    assert session.publish_committed(run.tokens, ReasonCode.NOT_AUTHORIZED) is None
    assert acks(session) == [(PUBACK, 1, 0), (PUBREC, 2, 0)]
    [run] = received(session, publish(1, level=4))
    assert session.publish_committed(run.tokens, ReasonCode.QUOTA_EXCEEDED) is not None


def test_a_repeated_qos_1_message_is_new():
    """[MQTT-4.3.2-5]: whatever DUP says."""
    session = connected()
    for dup in (False, True, True):
        [run] = received(session, publish(1, dup=dup))
        assert len(run) == 1
        session.publish_committed(run.tokens)
    assert acks(session) == [(PUBACK, 1, 0)] * 3


@pytest.mark.parametrize("level", LEVELS)
def test_a_repeated_qos_2_message_is_acknowledged_and_not_stored_again(level):
    """[MQTT-4.3.3-10]."""
    session = connected(level)
    again = publish(1, 2, level=level, dup=True)
    [run] = received(session, publish(1, 2, level=level), again)
    assert len(run) == 1
    assert received(session, again) == []
    session.publish_committed(run.tokens)
    assert acks(session) == [(PUBREC, 1, 0)]
    assert received(session, again, again) == []
    assert acks(session) == [(PUBREC, 1, 0)] * 2


def test_repeats_are_taken_out_of_a_run_with_everything_that_is_theirs():
    session = connected()
    [run] = received(session, publish(1, 2))
    session.publish_committed(run.tokens)
    session.data_to_send()
    expiring = Properties(message_expiry_interval=7)
    [run] = received(
        session,
        publish(1, 2, payload=b"repeat", properties=Properties(message_expiry_interval=1)),
        publish(0, payload=b"a"),
        publish(1, 2, payload=b"repeat"),
        publish(2, 2, payload=b"b", properties=expiring),
        publish(3, payload=b"c", properties=Properties(content_type="t")),
    )
    assert run.payloads == [b"a", b"b", b"c"]
    assert run.packet_ids == [0, 2, 3]
    assert run.expiries == {1: 7}
    assert run.properties == [b"", b"", b"\x03\x00\x01t"]
    session.publish_committed([token for token in run.tokens if token])
    assert acks(session) == [(PUBREC, 1, 0)] * 2 + [(PUBREC, 2, 0), (PUBACK, 3, 0)]


@pytest.mark.parametrize("level", LEVELS)
def test_a_qos_2_exchange_is_recorded_before_it_is_completed(level):
    """[MQTT-4.3.3-11], [MQTT-4.3.3-12]."""
    session = connected(level)
    [run] = received(session, publish(4, 2, level=level))
    session.publish_committed(run.tokens)
    assert session.received_ids() == [4]
    session.data_to_send()
    assert received(session, release(4, level)) == [PublishesReleased([4])]
    assert received(session, release(4, level)) == []
    assert session.data_to_send() == b""
    session.releases_committed([4])
    assert acks(session) == [(PUBCOMP, 4, 0)]
    assert session.received_ids() == []
    [run] = received(session, publish(4, 2, level=level))
    assert len(run) == 1


def test_a_release_of_something_unknown_is_answered_so():
    """[MQTT-4.3.3-11]; 0x92, and a plain PUBCOMP before MQTT 5."""
    session = connected(5)
    assert received(session, release(9)) == []
    assert acks(session) == [(PUBCOMP, 9, 0x92)]
    session = connected(4)
    assert received(session, release(9, 4)) == []
    assert session.data_to_send() == bytes.fromhex("70 02 0009")


def test_a_release_before_the_receipt_is_a_protocol_error():
    session = connected()
    received(session, publish(1, 2))
    [closed] = received(session, release(1))
    assert closed.reason_code == ReasonCode.PROTOCOL_ERROR


def test_an_identifier_that_is_being_released_is_not_free_yet():
    session = connected()
    [run] = received(session, publish(1, 2))
    session.publish_committed(run.tokens)
    received(session, release(1))
    [closed] = received(session, publish(1, 2))
    assert closed.reason_code == ReasonCode.PROTOCOL_ERROR


def test_after_a_refusal_the_identifier_means_a_new_message():
    """[MQTT-4.3.3-9]."""
    session = connected()
    [run] = received(session, publish(1, 2))
    session.publish_committed(run.tokens, ReasonCode.QUOTA_EXCEEDED)
    assert acks(session) == [(PUBREC, 1, 0x97)]
    [run] = received(session, publish(1, 2))
    assert len(run) == 1


def test_a_resumed_session_knows_what_it_has_received():
    """[MQTT-4.3.3-10], [MQTT-4.3.3-13] over two connections: whether the message of a known
    identifier is stored is the driver's to say, so it gets the repeat.
    """
    connect = Connect("c", clean_start=False)
    session = connected(connect=connect, session_present=True, received_ids=(3, 4))
    [run] = received(session, publish(3, 2, dup=True))
    assert acks(session) == []
    session.publish_committed(run.tokens)
    assert acks(session) == [(PUBREC, 3, 0)]
    assert received(session, publish(3, 2, dup=True)) == []
    assert acks(session) == [(PUBREC, 3, 0)]
    assert received(session, release(4)) == [PublishesReleased([4])]
    session.releases_committed([4])
    assert acks(session) == [(PUBCOMP, 4, 0)]
    assert received(session, release(3)) == [PublishesReleased([3])]
    session.releases_committed([3])
    assert acks(session) == [(PUBCOMP, 3, 0)]


def test_more_than_receive_maximum_is_refused():
    """[MQTT-3.3.4-7], [MQTT-4.9.0-2]; QoS 0 does not count, QoS 2 until PUBCOMP."""
    session = connected(config=SessionConfig(receive_maximum=3))
    [run] = received(session, publish(1), publish(2, 2), publish(), publish(3))
    session.publish_committed([token for token in run.tokens if token])
    received(session, publish(4), publish(5))
    assert not session.reading_paused
    [closed] = received(session, publish(6))
    assert closed.reason_code == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED
    assert said(session)[-1].reason_code == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


def test_every_end_of_an_exchange_gives_its_place_back():
    """MQTT5 4.9: PUBACK, PUBCOMP, and PUBREC that refuses."""
    session = connected(config=SessionConfig(receive_maximum=2))
    for number in range(1, 20):
        [run] = received(session, publish(number), publish(100 + number, 2))
        refused = number % 3 == 0
        session.publish_committed([run.tokens[0]])
        session.publish_committed([run.tokens[1]], 0x97 if refused else 0)
        if not refused:
            received(session, release(100 + number))
            session.releases_committed([100 + number])
    assert not any(isinstance(answer, Disconnect) for answer in said(session))


def test_an_exchange_of_an_earlier_connection_takes_no_place():
    connect = Connect("c", clean_start=False)
    config = SessionConfig(receive_maximum=1)
    session = connected(config=config, connect=connect, session_present=True, received_ids=(7, 8))
    received(session, release(7), release(8))
    session.releases_committed([7, 8])
    session.data_to_send()
    [run] = received(session, publish(1))
    session.publish_committed(run.tokens)
    [run] = received(session, publish(2))
    [closed] = received(session, publish(3))
    assert closed.reason_code == ReasonCode.RECEIVE_MAXIMUM_EXCEEDED


@pytest.mark.parametrize(("level", "enforce"), [(4, True), (4, False), (5, False)])
def test_a_client_that_is_not_held_to_a_maximum_is_read_more_slowly(level, enforce):
    config = SessionConfig(receive_maximum=2, enforce_receive_maximum=enforce)
    session = connected(level, config)
    [run] = received(session, *(publish(n, 1 + n % 2, level=level) for n in (1, 2, 3)))
    assert session.reading_paused
    session.publish_committed(run.tokens[:2])
    assert not session.reading_paused


def test_a_client_that_is_not_read_is_not_late():
    """[MQTT-3.1.2-22] is about a client that is silent, not about one that is not heard."""
    config = SessionConfig(receive_maximum=1)
    session = connected(4, config, Connect("c", level=4, keep_alive_s=10))
    [run] = received(session, publish(1, level=4))
    assert session.reading_paused
    assert session.check_deadline(NOW_MS + 15_000) is None
    session.publish_committed(run.tokens)
    session.reading_resumed(NOW_MS + 20_000)
    assert session.check_deadline(NOW_MS + 34_999) is None
    assert session.check_deadline(NOW_MS + 35_000) is not None


def test_a_slowed_client_can_still_complete_its_qos_2_exchanges():
    """What waits for the client itself must not stop the reading of it."""
    session = connected(4, SessionConfig(receive_maximum=1))
    for packet_id in (1, 2, 3):
        [run] = received(session, publish(packet_id, 2, level=4))
        session.publish_committed(run.tokens)
        assert not session.reading_paused


def test_a_topic_alias_stands_for_the_topic_it_was_set_to():
    """[MQTT-3.3.2-12], and it may be set anew."""
    session = connected()
    alias = Properties(topic_alias=2)
    [run] = received(
        session,
        publish(topic="one", properties=alias),
        publish(topic="", properties=alias),
        publish(topic="two", properties=alias),
        publish(topic="", properties=alias),
    )
    assert run.topics == ["one", "one", "two", "two"]
    [run] = received(session, publish(topic="", properties=alias))
    assert run.topics == ["two"]


@pytest.mark.parametrize(
    ("topic", "alias", "code"),
    [
        ("t", 33, ReasonCode.TOPIC_ALIAS_INVALID),
        ("", 33, ReasonCode.TOPIC_ALIAS_INVALID),
        ("", 1, ReasonCode.PROTOCOL_ERROR),
    ],
)
def test_an_alias_that_is_too_large_or_unknown_ends_the_connection(topic, alias, code):
    """[MQTT-3.3.2-9], [MQTT-3.2.2-17]."""
    session = connected(config=SessionConfig(topic_alias_maximum=32))
    [closed] = received(session, publish(topic=topic, properties=Properties(topic_alias=alias)))
    assert closed.reason_code == code


def test_a_server_that_takes_no_aliases_refuses_all():
    """[MQTT-3.2.2-18]."""
    session = connected(config=SessionConfig(topic_alias_maximum=0))
    [closed] = received(session, publish(properties=Properties(topic_alias=1)))
    assert closed.reason_code == ReasonCode.TOPIC_ALIAS_INVALID


def test_aliases_do_not_outlive_the_connection():
    """[MQTT-3.3.2-7]."""
    connect = Connect("c", clean_start=False)
    session = connected(connect=connect)
    received(session, publish(properties=Properties(topic_alias=1)))
    session.connection_lost()
    session = connected(connect=connect, session_present=True)
    [closed] = received(session, publish(topic="", properties=Properties(topic_alias=1)))
    assert closed.reason_code == ReasonCode.PROTOCOL_ERROR


@pytest.mark.parametrize(
    ("config", "packet", "code"),
    [
        (SessionConfig(maximum_qos=1), publish(1, 2), ReasonCode.QOS_NOT_SUPPORTED),
        (SessionConfig(maximum_qos=0), publish(1), ReasonCode.QOS_NOT_SUPPORTED),
        (
            SessionConfig(retain_available=False),
            publish(retain=True),
            ReasonCode.RETAIN_NOT_SUPPORTED,
        ),
        (
            SessionConfig(validate_payload_format=True),
            publish(payload=b"\xff", properties=Properties(payload_format_indicator=1)),
            ReasonCode.PAYLOAD_FORMAT_INVALID,
        ),
    ],
)
def test_what_the_server_does_not_offer_ends_the_connection(config, packet, code):
    """[MQTT-3.2.2-11], [MQTT-3.2.2-14]."""
    session = connected(config=config)
    assert len(received(session, publish())) == 1
    [closed] = received(session, packet)
    assert closed.reason_code == code


def test_payloads_are_checked_only_where_they_claim_something():
    config = SessionConfig(validate_payload_format=True)
    session = connected(config=config)
    [run] = received(
        session,
        publish(payload=b"\xff"),
        publish(payload=b"\xff", properties=Properties(payload_format_indicator=0)),
        publish(payload="ü".encode(), properties=Properties(payload_format_indicator=1)),
    )
    assert len(run) == 3


def test_the_event_is_the_message_and_nothing_of_the_hop():
    session = connected()
    own = Properties(user_properties=(("b", "1"), ("a", "2")), content_type="x")
    sent = Publish(
        "t",
        b"p",
        1,
        True,
        packet_id=3,
        properties=Properties(
            user_properties=own.user_properties,
            content_type="x",
            message_expiry_interval=60,
            topic_alias=4,
        ),
    )
    [run] = received(session, encode(sent, 5))
    assert isinstance(run, PublishRun)
    assert run.expiries == {0: 60}
    assert run.flags == [0x33]
    assert run.packet(0).properties.user_properties == own.user_properties
    assert b"\x23" not in run.properties[0]


def test_answers_for_messages_that_do_not_wait_are_our_bug():
    session = connected()
    [run] = received(session, publish(1), publish(2))
    session.publish_committed([])
    session.publish_committed([run.tokens[0]])
    for tokens in ([run.tokens[0]], [run.tokens[1] + 1]):
        with pytest.raises(LocalProtocolError):
            session.publish_committed(tokens)
    with pytest.raises(LocalProtocolError):
        session.releases_committed([1])


def test_answers_for_a_connection_that_is_over_are_ignored():
    """[MQTT-3.14.4-1]."""
    session = connected()
    [run] = received(session, publish(1), publish(2, 2))
    session.disconnect(ReasonCode.SERVER_SHUTTING_DOWN)
    session.data_to_send()
    assert session.publish_committed(run.tokens) is None
    assert session.data_to_send() == b""


def test_a_run_whose_first_packet_is_malformed_is_no_event():
    session = connected()
    bad = bytes.fromhex("30 06 0001 74 02 0102")
    [closed] = received(session, bad)
    assert isinstance(closed, ConnectionClosed)
