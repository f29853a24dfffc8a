"""Keep alive, wills, goodbyes from both sides, takeover, and enhanced authentication."""

from __future__ import annotations

import pytest

from adapters.mqtt.codec.encoder import encode
from adapters.mqtt.codec.errors import LocalProtocolError
from adapters.mqtt.codec.packets import (
    Auth,
    Connack,
    Connect,
    Disconnect,
    FilterOptions,
    Pingreq,
    Pingresp,
    Publish,
    Subscribe,
    Will,
)
from adapters.mqtt.codec.properties import Properties
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.config import SessionConfig
from adapters.mqtt.limits import KEEP_ALIVE_PROGRESS_BYTES, SESSION_EXPIRY_NEVER
from adapters.mqtt.session.client_session import Session
from adapters.mqtt.session.events import (
    AuthenticationReceived,
    ConnectionClosed,
    ConnectReceived,
    Initiator,
)
from adapters.mqtt.session.handshake import Welcome
from adapters.mqtt.session.states import ConnectionState
from tests.adapters.mqtt.support import (
    LEVELS,
    NAMES,
    NOW_MS,
    asking,
    connected,
    publish,
    said,
)

WILL = Will("gone", b"bye", 1, False, Properties(will_delay_interval=30))


def with_will(level: int = 5, expiry_s: int = 600) -> Session:
    properties = Properties(session_expiry_interval=expiry_s) if level == 5 else Properties()
    will = WILL if level == 5 else Will("gone", b"bye", 1)
    connect = Connect("c", level, level == 5, 60, will=will, properties=properties)
    return connected(level, connect=connect)


# -------------------------------------------------------------------------------------------------
# Keep alive


@pytest.mark.parametrize("level", LEVELS)
def test_a_ping_is_answered(level):
    """[MQTT-3.12.4-1]."""
    session = connected(level)
    assert session.receive_data(encode(Pingreq(), level) * 2, NOW_MS) == []
    assert said(session) == [Pingresp()] * 2


@pytest.mark.parametrize("level", LEVELS)
def test_a_client_that_is_silent_for_one_and_a_half_intervals_is_closed(level):
    """[MQTT-3.1.2-22]: as if the network had failed, so the will is due."""
    session = with_will(level)
    assert session.deadline_ms == NOW_MS + 90_000
    assert session.check_deadline(NOW_MS + 89_999) is None
    session.receive_data(encode(Pingreq(), level), NOW_MS + 50_000)
    session.data_to_send()
    assert session.check_deadline(NOW_MS + 90_000) is None
    closed = session.check_deadline(NOW_MS + 140_000)
    assert closed.reason_code == ReasonCode.KEEP_ALIVE_TIMEOUT
    assert closed.will is not None
    assert closed.will.topic == "gone"
    goodbyes = said(session)
    if level == 5:
        assert goodbyes[0].reason_code == ReasonCode.KEEP_ALIVE_TIMEOUT
    else:
        assert goodbyes == []
    assert session.deadline_ms is None


def test_only_whole_packets_or_real_progress_prove_a_live_client():
    """[MQTT-3.1.2-22]; a byte now and then does not hold a connection."""
    session = with_will()
    large = encode(Publish("t", bytes(20_000)), 5)
    session.receive_data(large[:10], NOW_MS + 10_000)
    session.receive_data(large[10:11], NOW_MS + 20_000)
    assert session.deadline_ms == NOW_MS + 90_000
    session.receive_data(large[11 : 11 + KEEP_ALIVE_PROGRESS_BYTES], NOW_MS + 30_000)
    assert session.deadline_ms == NOW_MS + 120_000


def test_without_keep_alive_there_is_no_deadline():
    session = connected(connect=Connect("c", keep_alive_s=0))
    assert session.deadline_ms is None
    session.receive_data(encode(Pingreq(), 5), NOW_MS)
    assert session.deadline_ms is None
    assert session.check_deadline(NOW_MS + 10**9) is None


def test_a_client_must_connect_in_time():
    config = SessionConfig(connect_timeout_ms=5_000)
    session = Session(config, NAMES, NOW_MS)
    session.receive_data(encode(Connect("c"), 5)[:5], NOW_MS + 4_000)
    assert session.deadline_ms == NOW_MS + 5_000
    closed = session.check_deadline(NOW_MS + 5_000)
    assert closed.reason_code == ReasonCode.KEEP_ALIVE_TIMEOUT
    assert not closed.accepted
    assert session.data_to_send() == b""


def test_a_client_is_not_late_while_the_server_decides():
    session, _ = asking(Connect("c"))
    assert session.deadline_ms is None
    assert session.check_deadline(NOW_MS + 10**9) is None


# -------------------------------------------------------------------------------------------------
# Goodbyes and wills


@pytest.mark.parametrize("level", LEVELS)
def test_a_plain_goodbye_takes_the_will_back(level):
    """[MQTT-3.14.4-3], [MQTT-3.1.2-10]."""
    session = with_will(level)
    [closed] = session.receive_data(encode(Disconnect(), level), NOW_MS)
    assert closed.initiator == Initiator.CLIENT
    assert closed.reason_code == 0
    assert closed.will is None
    assert closed.accepted
    assert session.data_to_send() == b""


@pytest.mark.parametrize("code", [0x04, 0x80, 0x93])
def test_every_other_goodbye_keeps_the_will(code):
    """[MQTT-3.1.2-8]."""
    session = with_will()
    explained = Disconnect(code, Properties(reason_string="had to"))
    [closed] = session.receive_data(encode(explained, 5), NOW_MS)
    assert (closed.will, closed.will_delay_s) == (WILL, 30)
    assert closed.detail == "had to"


def test_a_lost_connection_keeps_the_will_and_the_session():
    """[MQTT-3.1.2-8], [MQTT-3.1.2-23]."""
    session = with_will()
    closed = session.connection_lost()
    assert closed.initiator == Initiator.NETWORK
    assert closed.will == WILL
    assert closed.session_expiry_s == 600
    assert session.connection_lost() is None


@pytest.mark.parametrize(("expiry_s", "delay_s"), [(0, 0), (10, 10), (600, 30)])
def test_a_will_waits_for_its_delay_or_the_end_of_the_session(expiry_s, delay_s):
    """[MQTT-3.1.2-8]; MQTT5 3.1.3.2.2: whichever happens first."""
    assert with_will(expiry_s=expiry_s).connection_lost().will_delay_s == delay_s


def test_a_client_without_a_will_leaves_none():
    """[MQTT-3.1.2-12] of 3.1.1."""
    assert connected().connection_lost().will is None


def test_a_will_of_a_client_that_was_never_accepted_is_not_published():
    session, _ = asking(Connect("c", will=WILL))
    assert session.refuse(ReasonCode.NOT_AUTHORIZED).will is None


@pytest.mark.parametrize("level", LEVELS)
def test_takeover_tells_the_old_connection_and_closes_it(level):
    """[MQTT-3.1.4-3]; a 3.1.1 client sees the connection close."""
    session = with_will(level)
    closed = session.disconnect(ReasonCode.SESSION_TAKEN_OVER)
    assert closed.initiator == Initiator.SERVER
    assert closed.will is not None
    assert said(session) == ([Disconnect(0x8E)] if level == 5 else [])
    assert session.state == ConnectionState.CLOSED


def test_a_client_can_be_moved_to_another_server():
    session = connected()
    session.disconnect(ReasonCode.SERVER_MOVED, "draining", "other:1883")
    [goodbye] = said(session)
    assert goodbye.reason_code == 0x9D
    assert goodbye.properties == Properties(reason_string="draining", server_reference="other:1883")


def test_the_server_never_sends_a_session_expiry_with_its_goodbye():
    """[MQTT-3.14.2-2]."""
    session = with_will()
    session.disconnect(ReasonCode.ADMINISTRATIVE_ACTION, "bye")
    assert said(session)[0].properties.session_expiry_interval is None


def test_before_acceptance_the_goodbye_is_a_connack():
    """[MQTT-3.14.0-1]."""
    session, _ = asking(Connect("c"))
    session.disconnect(ReasonCode.SERVER_SHUTTING_DOWN)
    [connack] = said(session)
    assert isinstance(connack, Connack)
    assert connack.reason_code == ReasonCode.SERVER_UNAVAILABLE
    # Whoever has not said which MQTT it speaks is told nothing.
    session = Session(SessionConfig(), NAMES, NOW_MS)
    session.disconnect(ReasonCode.SERVER_SHUTTING_DOWN)
    assert session.data_to_send() == b""


def test_nothing_follows_a_goodbye():
    """[MQTT-3.14.4-1], [MQTT-3.14.4-2]."""
    session = connected()
    ask = encode(Subscribe(1, (FilterOptions("a"),)), 5)
    [request] = session.receive_data(ask, NOW_MS)
    session.disconnect(ReasonCode.ADMINISTRATIVE_ACTION)
    assert len(said(session)) == 1
    session.send_suback(request, [0])
    assert session.disconnect(ReasonCode.SERVER_BUSY) is None
    assert session.receive_data(encode(Pingreq(), 5), NOW_MS) == []
    assert session.check_deadline(NOW_MS + 10**9) is None
    assert session.send_authentication(b"") == []
    assert session.data_to_send() == b""


def test_what_a_client_sends_behind_its_goodbye_is_ignored():
    """[MQTT-3.14.4-1]: it must not; what is malformed does not matter either."""
    session = with_will()
    data = encode(Disconnect(), 5) + publish(1) + b"\x00"
    [closed] = session.receive_data(data, NOW_MS)
    assert (closed.initiator, closed.will) == (Initiator.CLIENT, None)


def test_session_expiry_may_change_with_the_goodbye():
    """MQTT5 3.14.2.2.2."""
    for asked, granted in ((5, 5), (0, 0), (SESSION_EXPIRY_NEVER, 1000)):
        connect = Connect("c", properties=Properties(session_expiry_interval=600))
        session = connected(config=SessionConfig(session_expiry_s_max=1000), connect=connect)
        goodbye = Disconnect(0, Properties(session_expiry_interval=asked))
        [closed] = session.receive_data(encode(goodbye, 5), NOW_MS)
        assert closed.session_expiry_s == granted


def test_a_session_that_was_to_end_cannot_be_kept_by_the_goodbye():
    """MQTT5 3.14.2.2.2: 0x82, and the will is due."""
    session = connected(connect=Connect("c", will=WILL))
    goodbye = Disconnect(0, Properties(session_expiry_interval=5))
    [closed] = session.receive_data(encode(goodbye, 5), NOW_MS)
    assert closed.reason_code == ReasonCode.PROTOCOL_ERROR
    assert closed.will == WILL
    assert closed.session_expiry_s == 0
    # Nothing is not more than nothing.
    session = connected()
    goodbye = Disconnect(0, Properties(session_expiry_interval=0))
    [closed] = session.receive_data(encode(goodbye, 5), NOW_MS)
    assert closed.reason_code == 0


@pytest.mark.parametrize("code", [0x8B, 0x8E, 0x9D])
def test_a_client_may_not_say_goodbye_in_the_servers_words(code):
    """[MQTT-3.14.2-1]."""
    session = with_will()
    [closed] = session.receive_data(encode(Disconnect(code), 5), NOW_MS)
    assert closed.reason_code == ReasonCode.PROTOCOL_ERROR
    assert closed.will == WILL


@pytest.mark.parametrize("level", LEVELS)
def test_a_malformed_packet_is_answered_in_the_clients_own_format(level):
    """[MQTT-4.13.1-1], [MQTT-4.13.2-1]; what came before it is served."""
    session = with_will(level)
    data = encode(Pingreq(), level) + publish(level=level) + b"\x36\x00"
    run, closed = session.receive_data(data, NOW_MS)
    assert len(run) == 1
    assert isinstance(closed, ConnectionClosed)
    assert closed.reason_code == ReasonCode.MALFORMED_PACKET
    assert closed.will is not None
    answers = said(session)
    assert answers[0] == Pingresp()
    if level == 5:
        assert answers[1].reason_code == ReasonCode.MALFORMED_PACKET
        assert answers[1].properties.reason_string
    assert len(answers) == level - 3


# -------------------------------------------------------------------------------------------------
# Enhanced authentication

SIGNING = SessionConfig(authentication_methods=frozenset({"SCRAM"}))


def auth(code: int, data: bytes = b"", method: str = "SCRAM") -> bytes:
    properties = Properties(authentication_method=method, authentication_data=data)
    return encode(Auth(code, properties), 5)


def signing_connect() -> Connect:
    properties = Properties(authentication_method="SCRAM", authentication_data=b"first")
    return Connect("c", properties=properties)


def signed_in() -> Session:
    return connected(config=SIGNING, connect=signing_connect())


def test_an_exchange_of_auth_packets_ends_in_connack_or_a_refusal():
    """[MQTT-4.12.0-2], [MQTT-4.12.0-3], [MQTT-4.12.0-5]."""
    session, [event] = asking(signing_connect(), SIGNING)
    assert isinstance(event, ConnectReceived)
    assert session.send_authentication(b"challenge") == []
    assert session.state == ConnectionState.AUTHENTICATING
    [challenge] = said(session)
    assert challenge == Auth(
        0x18, Properties(authentication_method="SCRAM", authentication_data=b"challenge")
    )
    events = session.receive_data(auth(0x18, b"proof"), NOW_MS)
    assert events == [AuthenticationReceived("SCRAM", b"proof", again=False)]
    session.accept(Welcome(session_present=False, authentication_data=b"signature"), NOW_MS)
    [connack] = said(session)
    assert connack.properties.authentication_method == "SCRAM"
    assert connack.properties.authentication_data == b"signature"


def test_authentication_can_be_refused_at_any_point():
    """[MQTT-4.12.0-4]."""
    session, _ = asking(signing_connect(), SIGNING)
    session.send_authentication(b"challenge")
    session.receive_data(auth(0x18, b"wrong"), NOW_MS)
    session.data_to_send()
    session.refuse(ReasonCode.NOT_AUTHORIZED)
    assert said(session) == [Connack(0x87)]


def test_a_method_that_is_not_supported_is_refused():
    """[MQTT-4.12.0-1]."""
    session, [closed] = asking(signing_connect())
    assert closed.reason_code == ReasonCode.BAD_AUTHENTICATION_METHOD
    assert said(session)[0].reason_code == ReasonCode.BAD_AUTHENTICATION_METHOD


@pytest.mark.parametrize("data", [encode(Pingreq(), 5), publish(1)])
def test_nothing_but_auth_and_disconnect_comes_while_authenticating(data):
    """[MQTT-3.1.2-30]."""
    session, _ = asking(signing_connect(), SIGNING)
    session.send_authentication(b"challenge")
    session.data_to_send()
    [closed] = session.receive_data(data, NOW_MS)
    assert closed.reason_code == ReasonCode.PROTOCOL_ERROR
    assert isinstance(said(session)[0], Connack)


def test_a_client_may_give_up_while_authenticating():
    session, _ = asking(signing_connect(), SIGNING)
    session.send_authentication(b"challenge")
    [closed] = session.receive_data(encode(Disconnect(), 5), NOW_MS)
    assert closed.initiator == Initiator.CLIENT
    assert not closed.accepted


def test_the_time_to_connect_includes_authentication():
    session, _ = asking(signing_connect(), SIGNING)
    session.send_authentication(b"challenge")
    assert session.deadline_ms == NOW_MS + SIGNING.connect_timeout_ms


def test_auth_without_a_method_is_a_protocol_error():
    """[MQTT-4.12.0-7]."""
    for data in (encode(Auth(0), 5), auth(0x19), auth(0x18)):
        session = connected(config=SIGNING)
        [closed] = session.receive_data(data, NOW_MS)
        assert closed.reason_code == ReasonCode.PROTOCOL_ERROR
        assert said(session)[0].reason_code == ReasonCode.PROTOCOL_ERROR


@pytest.mark.parametrize("data", [auth(0x18), auth(0x19, b"", "OTHER"), encode(Auth(0), 5)])
def test_auth_out_of_turn_or_with_another_method_is_a_protocol_error(data):
    """[MQTT-4.12.1-1], [MQTT-4.12.0-5]."""
    [closed] = signed_in().receive_data(data, NOW_MS)
    assert closed.reason_code == ReasonCode.PROTOCOL_ERROR


def test_an_accepted_client_may_authenticate_again_while_its_traffic_goes_on():
    """[MQTT-4.12.1-1]; packets behind AUTH are served at once."""
    session = signed_in()
    events = session.receive_data(auth(0x19, b"again") + publish(1) + auth(0x0), NOW_MS)
    assert events[0] == AuthenticationReceived("SCRAM", b"again", again=True)
    assert events[1].packet_ids == [1]
    # The second AUTH came before the first was answered.
    assert events[2].reason_code == ReasonCode.PROTOCOL_ERROR

    session = signed_in()
    session.receive_data(auth(0x19, b"again"), NOW_MS)
    session.send_authentication(b"challenge")
    events = session.receive_data(auth(0x18, b"proof"), NOW_MS)
    assert events == [AuthenticationReceived("SCRAM", b"proof", again=True)]
    session.send_authentication(b"done", ReasonCode.SUCCESS)
    assert [packet.reason_code for packet in said(session)] == [0x18, 0x00]
    assert len(session.receive_data(auth(0x19), NOW_MS)) == 1


def test_a_client_that_fails_to_authenticate_again_is_disconnected():
    """[MQTT-4.12.1-2]."""
    session = signed_in()
    session.receive_data(auth(0x19), NOW_MS)
    session.disconnect(ReasonCode.NOT_AUTHORIZED)
    assert said(session) == [Disconnect(0x87)]


def test_auth_is_sent_only_in_turn_and_only_to_those_who_asked():
    """[MQTT-4.12.0-6]."""
    for session in (connected(), signed_in(), asking(Connect("c"))[0]):
        with pytest.raises(LocalProtocolError):
            session.send_authentication(b"challenge")
    session, _ = asking(signing_connect(), SIGNING)
    with pytest.raises(LocalProtocolError):
        session.send_authentication(b"done", ReasonCode.SUCCESS)


def test_an_acceptance_names_no_method_to_those_who_named_none():
    """[MQTT-4.12.0-6]."""
    session, _ = asking(Connect("c"), SIGNING)
    session.accept(Welcome(session_present=False, authentication_data=b"x"), NOW_MS)
    [connack] = said(session)
    assert connack.properties.authentication_method is None
    assert connack.properties.authentication_data is None
