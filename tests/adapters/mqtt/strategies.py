"""Hypothesis strategies for packets that a codec must carry, for either version."""

from __future__ import annotations

from hypothesis import strategies as st

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
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
    Will,
)
from adapters.mqtt.codec.properties import NO_PROPERTIES, PROPERTIES, WILL, Properties
from adapters.mqtt.codec.reason_codes import ALLOWED

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=12)
names = st.text(
    st.characters(exclude_characters="\0+#", exclude_categories=("Cs",)), min_size=1, max_size=12
)
blobs = st.binary(max_size=20)
packet_ids = st.integers(1, 65_535)
flags = st.booleans()
qos_levels = st.integers(0, 2)

_VALUES = {
    "payload_format_indicator": st.integers(0, 1),
    "message_expiry_interval": st.integers(0, 2**32 - 1),
    "content_type": texts,
    "response_topic": names,
    "correlation_data": blobs,
    "session_expiry_interval": st.integers(0, 2**32 - 1),
    "assigned_client_identifier": texts,
    "server_keep_alive": st.integers(0, 65_535),
    "authentication_method": texts,
    "authentication_data": blobs,
    "request_problem_information": st.integers(0, 1),
    "will_delay_interval": st.integers(0, 2**32 - 1),
    "request_response_information": st.integers(0, 1),
    "response_information": texts,
    "server_reference": texts,
    "reason_string": texts,
    "receive_maximum": st.integers(1, 65_535),
    "topic_alias_maximum": st.integers(0, 65_535),
    "topic_alias": st.integers(1, 65_535),
    "maximum_qos": st.integers(0, 1),
    "retain_available": st.integers(0, 1),
    "maximum_packet_size": st.integers(1, 2**32 - 1),
    "wildcard_subscription_available": st.integers(0, 1),
    "subscription_identifiers_available": st.integers(0, 1),
    "shared_subscription_available": st.integers(0, 1),
}
_identifiers = st.integers(1, 268_435_455)


def properties_of(owner: int, level: int, without: frozenset[str] = frozenset()):
    """Any properties that `owner` may carry; none before MQTT 5."""
    if level != 5:
        return st.just(NO_PROPERTIES)
    fields = {}
    for row in PROPERTIES:
        if owner not in row.owners or row.field in without:
            continue
        if row.field == "user_properties":
            fields[row.field] = st.lists(st.tuples(texts, texts), max_size=3).map(tuple)
        elif row.field == "subscription_identifiers":
            most = 3 if owner in row.repeats_in else 1
            fields[row.field] = st.lists(_identifiers, max_size=most).map(tuple)
        else:
            fields[row.field] = st.none() | _VALUES[row.field]
    return st.one_of(st.just(NO_PROPERTIES), st.builds(Properties, **fields))


def _codes(packet_type: PacketType):
    return st.sampled_from(sorted(ALLOWED[packet_type]))


def wills(level: int):
    return st.builds(Will, names, blobs, qos_levels, flags, properties_of(WILL, level))


@st.composite
def connects(draw, level: int):
    properties = draw(properties_of(PacketType.CONNECT, level))
    if properties.authentication_method is None and properties.authentication_data is not None:
        properties = NO_PROPERTIES
    username = draw(st.none() | texts)
    password = draw(st.none() | blobs)
    if username is None and level != 5:
        password = None
    return Connect(
        client_id=draw(texts),
        level=level,
        clean_start=draw(flags),
        keep_alive_s=draw(st.integers(0, 65_535)),
        username=username,
        password=password,
        will=draw(st.none() | wills(level)),
        properties=properties,
        is_bridge=level != 5 and draw(flags),
    )


@st.composite
def publishes(draw, level: int):
    qos = draw(qos_levels)
    without = frozenset({"subscription_identifiers"})
    properties = draw(properties_of(PacketType.PUBLISH, level, without))
    topic = draw(names)
    if properties.topic_alias is not None and draw(flags):
        topic = ""
    return Publish(
        topic=topic,
        payload=draw(st.binary(max_size=200)),
        qos=qos,
        retain=draw(flags),
        dup=bool(qos) and draw(flags),
        packet_id=draw(packet_ids) if qos else 0,
        properties=properties,
    )


@st.composite
def acks(draw, level: int):
    packet_type = draw(
        st.sampled_from(
            [PacketType.PUBACK, PacketType.PUBREC, PacketType.PUBREL, PacketType.PUBCOMP]
        )
    )
    code = draw(_codes(packet_type)) if level == 5 else 0
    return Ack(packet_type, draw(packet_ids), code, draw(properties_of(packet_type, level)))


def _options(level: int):
    if level != 5:
        return st.builds(FilterOptions, texts, qos_levels)
    return st.builds(FilterOptions, texts, qos_levels, flags, flags, qos_levels)


def _tuples(items):
    return st.lists(items, min_size=1, max_size=4).map(tuple)


def from_clients(level: int):
    """Every packet that a client may send, CONNECT aside."""
    packets = [
        publishes(level),
        acks(level),
        st.builds(
            Subscribe,
            packet_ids,
            _tuples(_options(level)),
            properties_of(PacketType.SUBSCRIBE, level),
        ),
        st.builds(
            Unsubscribe, packet_ids, _tuples(texts), properties_of(PacketType.UNSUBSCRIBE, level)
        ),
        st.just(Pingreq()),
        disconnects(level),
    ]
    if level == 5:
        packets.append(auths())
    return st.one_of(packets)


def from_servers(level: int):
    """Every packet that a server may send."""
    five = level == 5
    suback_codes = _codes(PacketType.SUBACK) if five else st.sampled_from([0, 1, 2, 0x80])
    unsuback_codes = _tuples(_codes(PacketType.UNSUBACK)) if five else st.just(())
    packets = [
        publishes(level),
        acks(level),
        connacks(level),
        st.builds(
            Suback, packet_ids, _tuples(suback_codes), properties_of(PacketType.SUBACK, level)
        ),
        st.builds(Unsuback, packet_ids, unsuback_codes, properties_of(PacketType.UNSUBACK, level)),
        st.just(Pingresp()),
    ]
    if five:
        packets += [auths(), disconnects(level)]
    return st.one_of(packets)


@st.composite
def connacks(draw, level: int):
    code = draw(_codes(PacketType.CONNACK)) if level == 5 else draw(st.integers(0, 5))
    properties = draw(properties_of(PacketType.CONNACK, level))
    return Connack(code, code == 0 and draw(flags), properties)


def disconnects(level: int):
    if level != 5:
        return st.just(Disconnect())
    properties = properties_of(PacketType.DISCONNECT, level)
    return st.builds(Disconnect, _codes(PacketType.DISCONNECT), properties)


@st.composite
def auths(draw):
    code = draw(_codes(PacketType.AUTH))
    properties = draw(properties_of(PacketType.AUTH, 5))
    if code and properties.authentication_method is None:
        code = 0
    return Auth(code, properties)
