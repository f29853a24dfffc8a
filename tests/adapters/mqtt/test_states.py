"""The state tables themselves: whole, without dead ends, and used as they are written."""

from __future__ import annotations

from adapters.mqtt.codec.packet_types import PacketType
from adapters.mqtt.session.states import (
    ON_AUTH_RECEIVED,
    ON_AUTH_SENT,
    ON_INCOMING,
    ON_OUTGOING,
    ON_PACKET,
    AuthState,
    ConnectionState,
    Incoming,
    IncomingAction,
    Outgoing,
    OutgoingAction,
)


def reached(table, start) -> set:
    """The states that `start` leads to; rows are (state, input) -> state or (state, action)."""
    seen = {start}
    while True:
        found = {
            after[0] if isinstance(after, tuple) else after
            for (state, _), after in table.items()
            if state in seen
        }
        if found <= seen:
            return seen
        seen |= found


def test_every_state_of_an_exchange_can_be_reached_and_left():
    # NOTED is where a session begins that goes on.
    assert reached(ON_INCOMING, Incoming.UNKNOWN) == set(Incoming) - {Incoming.NOTED}
    assert reached(ON_INCOMING, Incoming.NOTED) == set(Incoming)
    sent = {Outgoing.AT_LEAST_ONCE, Outgoing.SENT}
    both = reached(ON_OUTGOING, Outgoing.AT_LEAST_ONCE) | reached(ON_OUTGOING, Outgoing.SENT)
    assert both == set(Outgoing)
    for state in Incoming:
        assert Incoming.UNKNOWN in reached(ON_INCOMING, state)
    for state in sent:
        assert Outgoing.UNKNOWN in reached(ON_OUTGOING, state)


def test_every_action_is_asked_for_by_some_row():
    assert {action for _, action in ON_INCOMING.values()} == set(IncomingAction)
    assert {action for _, action in ON_OUTGOING.values()} == set(OutgoingAction)


def test_authentication_ends_and_may_begin_again():
    whole = {**ON_AUTH_RECEIVED, **ON_AUTH_SENT}
    assert reached(whole, AuthState.OUR_TURN) == set(AuthState) - {AuthState.NONE}
    assert all(state != AuthState.NONE for state, _ in whole)


def test_nothing_is_received_while_deciding_or_closed():
    """[MQTT-3.1.4-6]: DECIDING has no rows, its bytes are held."""
    receiving = {state for state, _ in ON_PACKET}
    assert receiving == {
        ConnectionState.WAITING,
        ConnectionState.AUTHENTICATING,
        ConnectionState.CONNECTED,
    }


def test_an_accepted_client_may_send_everything_but_connect():
    """[MQTT-3.1.0-2]."""
    allowed = {kind for state, kind in ON_PACKET if state == ConnectionState.CONNECTED}
    only_servers = {
        PacketType.CONNACK,
        PacketType.SUBACK,
        PacketType.UNSUBACK,
        PacketType.PINGRESP,
    }
    assert allowed == set(PacketType) - only_servers - {PacketType.CONNECT}
