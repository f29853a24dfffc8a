"""SUBSCRIBE and UNSUBSCRIBE: one bad filter alone, codes in order, identifiers in use."""

from __future__ import annotations

import pytest

from adapters.mqtt.codec.encoder import encode
from adapters.mqtt.codec.errors import LocalProtocolError
from adapters.mqtt.codec.packets import (
    Connect,
    FilterOptions,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from adapters.mqtt.codec.properties import Properties
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.config import SessionConfig
from adapters.mqtt.session.events import SubscribeReceived, UnsubscribeReceived
from tests.adapters.mqtt.support import LEVELS, NOW_MS, connected, said


def subscribe(session, *filters, packet_id: int = 1, **properties) -> list:
    options = [FilterOptions(item) if isinstance(item, str) else item for item in filters]
    packet = Subscribe(packet_id, tuple(options), Properties(**properties))
    return session.receive_data(encode(packet, session.level), NOW_MS)


def unsubscribe(session, *filters: str, packet_id: int = 1) -> list:
    packet = Unsubscribe(packet_id, filters)
    return session.receive_data(encode(packet, session.level), NOW_MS)


def test_a_request_carries_all_that_was_asked():
    session = connected()
    [event] = subscribe(
        session,
        FilterOptions("a/+", 2, no_local=True, retain_as_published=True, retain_handling=2),
        FilterOptions("$share/g/b/#", 1, retain_handling=1),
        packet_id=77,
        subscription_identifiers=(9,),
        user_properties=(("k", "v"),),
    )
    assert isinstance(event, SubscribeReceived)
    assert (event.packet_id, event.subscription_identifier) == (77, 9)
    assert event.user_properties == (("k", "v"),)
    own, shared = event.requests
    assert (own.text, own.qos, own.no_local, own.retain_as_published) == ("a/+", 2, True, True)
    assert (own.retain_handling, own.refusal) == (2, 0)
    assert (shared.filter.share_name, shared.filter.pattern) == ("g", "b/#")
    assert shared.retain_handling == 1


def test_a_bad_filter_is_refused_alone_and_in_its_place():
    """[MQTT-3.8.4-1], [MQTT-3.8.4-2], [MQTT-3.8.4-5], [MQTT-3.8.4-6], [MQTT-3.9.3-1],
    [MQTT-2.2.1-6]."""
    session = connected()
    [event] = subscribe(session, "ok/1", "bad/#/x", "ok/2", "", "$share/+/x", packet_id=5)
    assert [request.text for request in event.undecided()] == ["ok/1", "ok/2"]
    assert session.data_to_send() == b""
    session.send_suback(event, [1, 2])
    bad = 0x8F
    assert said(session) == [Suback(5, (1, bad, 2, bad, bad))]


@pytest.mark.parametrize("bad", ["", "a/#/b", "a+", "$share/g", "$share//a", "#/"])
@pytest.mark.parametrize("ask", [subscribe, unsubscribe])
def test_before_mqtt_5_a_text_that_is_no_filter_closes_the_connection(bad, ask):
    """MQTT 3.1.1 4.7.1, 4.7.3, 4.8: SUBACK says 0x80 of what the server will not have, not of
    what the client must not send."""
    session = connected(4)
    [closed] = ask(session, "good", bad)
    assert closed.reason_code == ReasonCode.TOPIC_FILTER_INVALID
    assert session.data_to_send() == b""


def test_the_driver_may_refuse_and_explain():
    """[MQTT-3.9.3-2], [MQTT-3.8.4-7]."""
    session = connected()
    [event] = subscribe(session, "a", "b")
    session.send_suback(event, [ReasonCode.NOT_AUTHORIZED, 0], "not a")
    assert said(session) == [Suback(1, (0x87, 0), Properties(reason_string="not a"))]


def test_no_explanation_for_those_who_want_none():
    """[MQTT-3.1.2-29]."""
    connect = Connect("c", properties=Properties(request_problem_information=0))
    session = connected(connect=connect)
    [event] = subscribe(session, "a")
    session.send_suback(event, [0x87], "because")
    [event] = unsubscribe(session, "a")
    session.send_unsuback(event, [0x87], "because")
    assert said(session) == [Suback(1, (0x87,)), Unsuback(1, (0x87,))]


def test_no_local_on_a_shared_subscription_is_a_protocol_error():
    """[MQTT-3.8.3-4]."""
    session = connected()
    [closed] = subscribe(session, FilterOptions("$share/g/a", no_local=True))
    assert closed.reason_code == ReasonCode.PROTOCOL_ERROR


def test_filters_beyond_the_bound_are_refused_and_the_others_served():
    session = connected(config=SessionConfig(filters_per_subscribe_max=2))
    [event] = subscribe(session, "a", "b", "c", "d")
    session.send_suback(event, [0, 1])
    assert said(session) == [Suback(1, (0, 1, 0x97, 0x97))]


@pytest.mark.parametrize(("level", "code"), [(4, 0x80), (5, 0x8F)])
def test_a_filter_of_too_many_levels_is_refused_alone(level, code):
    session = connected(level, config=SessionConfig(topic_levels_max=2))
    [event] = subscribe(session, "a/b", "a/b/c")
    session.send_suback(event, [0])
    assert said(session) == [Suback(1, (0, code))]
    assert unsubscribe(session, "a/b/c")


def test_a_server_of_a_lower_qos_still_accepts_subscriptions():
    """[MQTT-3.2.2-10]."""
    session = connected(config=SessionConfig(maximum_qos=1))
    [event] = subscribe(session, FilterOptions("a", 2))
    assert event.requests[0].qos == 1


@pytest.mark.parametrize("level", LEVELS)
def test_unsubscribing_is_answered_whatever_there_was(level):
    """[MQTT-3.10.4-4], [MQTT-3.10.4-5], [MQTT-3.10.4-6], [MQTT-3.11.3-1]."""
    session = connected(level)
    other = "never#valid" if level == 5 else "never/there"
    [event] = unsubscribe(session, "a/+", other, packet_id=9)
    assert isinstance(event, UnsubscribeReceived)
    assert event.filters == ("a/+", other)
    session.send_unsuback(event, [0, 0x11])
    assert said(session) == [Unsuback(9, (0, 0x11) if level == 5 else ())]


def test_an_identifier_whose_request_is_pending_is_in_use():
    """MQTT5 2.2.1, 3.9.3: 0x91; a 3.1.1 client is disconnected."""
    session = connected()
    [event] = subscribe(session, "a", packet_id=4)
    assert subscribe(session, "b", "c", packet_id=4) == []
    assert unsubscribe(session, "b", packet_id=4) == []
    assert said(session) == [Suback(4, (0x91, 0x91)), Unsuback(4, (0x91,))]
    session.send_suback(event, [0])
    assert len(subscribe(session, "b", packet_id=4)) == 1
    session = connected(4)
    subscribe(session, "a", packet_id=4)
    [closed] = subscribe(session, "b", packet_id=4)
    assert closed.reason_code == ReasonCode.PROTOCOL_ERROR


def test_a_client_with_too_many_pending_requests_is_read_more_slowly():
    session = connected(config=SessionConfig(requests_pending_max=2))
    [first] = subscribe(session, "a", packet_id=1)
    assert not session.reading_paused
    unsubscribe(session, "a", packet_id=2)
    assert session.reading_paused
    session.send_suback(first, [0])
    assert not session.reading_paused


def test_answers_that_do_not_fit_the_request_are_our_bug():
    session = connected()
    [event] = subscribe(session, "a", "b")
    with pytest.raises(LocalProtocolError):
        session.send_suback(event, [0])
    session.send_suback(event, [0, 0])
    with pytest.raises(LocalProtocolError):
        session.send_suback(event, [0, 0])
    [event] = unsubscribe(session, "a")
    with pytest.raises(LocalProtocolError):
        session.send_unsuback(event, [])
