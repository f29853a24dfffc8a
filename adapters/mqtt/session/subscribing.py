"""SUBSCRIBE and UNSUBSCRIBE: which filters may stand, which are refused alone (MQTT5 3.8, 3.10)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.mqtt.codec.errors import MqttError, protocol_error
from adapters.mqtt.codec.packet_types import MQTT_5
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.codec.topic_filter import FilterError, is_shared, parse_filter
from adapters.mqtt.session.events import SubscribeReceived, SubscriptionRequest, UnsubscribeReceived

if TYPE_CHECKING:
    from adapters.mqtt.codec.packets import FilterOptions, Subscribe, Unsubscribe
    from adapters.mqtt.config import SessionConfig


def subscribe_received(
    packet: Subscribe, config: SessionConfig, level: int = MQTT_5, *, is_bridge: bool = False
) -> SubscribeReceived:
    """The request with each filter parsed, or refused alone with 0x8F or 0x97. What a bridge has
    no options to say is No Local and Retain As Published.

    Raises MqttError: 0x82 for No Local on a shared subscription ([MQTT-3.8.3-4]); before MQTT 5,
    for a text that is no filter.
    """
    served = config.filters_per_subscribe_max
    requests = [_request(options, config, level) for options in packet.filters[:served]]
    requests += [_refused(options) for options in packet.filters[served:]]
    if is_bridge:
        requests = [
            each._replace(no_local=not is_shared(each.text), retain_as_published=True)
            for each in requests
        ]
    identifiers = packet.properties.subscription_identifiers
    return SubscribeReceived(
        packet_id=packet.packet_id,
        requests=tuple(requests),
        subscription_identifier=identifiers[0] if identifiers else 0,
        user_properties=packet.properties.user_properties,
    )


def _request(options: FilterOptions, config: SessionConfig, level: int) -> SubscriptionRequest:
    if options.no_local and is_shared(options.filter):
        raise protocol_error("No Local on a shared subscription")
    refusal = 0
    parsed = None
    try:
        parsed = parse_filter(options.filter, config.topic_levels_max)
    except MqttError as error:
        if level != MQTT_5 and isinstance(error, FilterError):
            raise
        refusal = int(error.reason_code)
    return SubscriptionRequest(
        text=options.filter,
        filter=parsed,
        # A server of a lower QoS still accepts the request ([MQTT-3.2.2-10]).
        qos=min(options.qos, config.maximum_qos),
        no_local=options.no_local,
        retain_as_published=options.retain_as_published,
        retain_handling=options.retain_handling,
        refusal=refusal,
    )


def _refused(options: FilterOptions) -> SubscriptionRequest:
    """One beyond the bound: it is not looked at."""
    return SubscriptionRequest(
        text=options.filter,
        filter=None,
        qos=0,
        no_local=False,
        retain_as_published=False,
        retain_handling=0,
        refusal=ReasonCode.QUOTA_EXCEEDED,
    )


def unsubscribe_received(packet: Unsubscribe, level: int = MQTT_5) -> UnsubscribeReceived:
    """The request. A filter that is not valid is no one's, so it is not looked at further; before
    MQTT 5 it raises MqttError.
    """
    if level != MQTT_5:
        for text in packet.filters:
            _check(text)
    return UnsubscribeReceived(
        packet_id=packet.packet_id,
        filters=packet.filters,
        user_properties=packet.properties.user_properties,
    )


def _check(text: str) -> None:
    try:
        parse_filter(text)
    except FilterError:
        raise
    except MqttError:
        pass  # of more levels than any that is served: valid, and no one's
