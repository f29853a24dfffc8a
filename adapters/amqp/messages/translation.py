"""Deliveries that are not plain slices: dead letters, redeliveries, other protocols' messages.

`view` gives the exchange and routing key, the property block and the body that an AMQP consumer
sees of a stored message:

* of a message that AMQP wrote, the bytes as they came;
* of a dead letter, besides, RabbitMQ's headers x-death, x-first-death-* and x-last-death-*, no
  expiration, and the route by which it came to this queue;
* of a redelivery from a quorum queue, besides, the header x-delivery-count;
* of a message that another protocol wrote, the message contract's AMQP column
  (docs/design/model.md#the-message-contract): attributes as headers, the kernel's uid as message-id
  unless the writer gave one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple, TypedDict

import msgspec

from adapters.amqp.codec import properties
from adapters.amqp.codec.fields import Field, PlainValue, Table, field_of
from adapters.amqp.codec.methods import short_string
from adapters.amqp.errors import cut_text
from adapters.amqp.messages.stored import SHARED_PROPERTIES, parse_native
from adapters.amqp.names import amqp_key
from adapters.base import Origin
from kernel.api import message as messages
from kernel.api.message import TTL_AT_ONCE, Ext, Flag, Message
from kernel.api.model import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel.api.origins import Origins

HEADER_DELIVERY_COUNT: Final = "x-delivery-count"

_REASONS: Final = {
    Reason.REJECTED.value: "rejected",
    Reason.EXPIRED.value: "expired",
    Reason.OVERFLOW.value: "maxlen",
    Reason.ATTEMPTS.value: "delivery_limit",
    Reason.TOO_LARGE.value: "too_large",
}
"""RabbitMQ's words for why a message was dead-lettered; the last one is ours."""

_EXT_HEADERS: Final = {
    Ext.ORDERING_KEY: properties.HEADER_ORDERING_KEY,
    Ext.TAG: properties.HEADER_TAG,
    Ext.KEYS: properties.HEADER_KEYS,
}


class Death(TypedDict):
    """One entry of a message's dead-letter history, as the kernel writes it, newest first."""

    topic: str
    reason: str
    count: int
    time_ms: int
    router: str
    key: str


class View(NamedTuple):
    """What a consumer is sent of a message."""

    route: bytes
    """Exchange and routing key, as two short strings."""
    properties: bytes
    body: bytes


def view(slot: bytes, queue: str, attempt: int, origins: Origins, *, tells_attempt: bool) -> View:
    """What a consumer of `queue` is sent of the message in `slot`, at its `attempt` (from 1), which
    it is told of if there was one before and `tells_attempt`.
    """
    message = messages.decode(slot)
    if message.origin == Origin.AMQP:
        native = parse_native(message.native)
        exchange, key, block = native.exchange, native.routing_key, native.properties
    else:
        exchange, key, block = _foreign(message, queue, origins)
    headers: dict[str, Field] = {}
    if message.flags & Flag.DEAD_LETTER:
        deaths = msgspec.msgpack.decode(message.ext[Ext.DEAD_LETTER], type=list[Death])
        headers, block = _dead_letter_headers(deaths, exchange, key, block)
        exchange, key = deaths[0]["router"], deaths[0]["key"]
        if exchange:
            key = amqp_key(key)
    if attempt > 1 and tells_attempt:
        headers[HEADER_DELIVERY_COUNT] = field_of(attempt - 1)
    if headers:
        block = properties.replace_headers(block, headers)
    return View(_short(exchange) + _short(key), block, message.body)


def _dead_letter_headers(
    deaths: list[Death], exchange: str, key: str, block: bytes
) -> tuple[dict[str, Field], bytes]:
    """The headers that tell of the deaths, and the block without its expiration."""
    fields = properties.split(block)
    expiration = properties.short_text(fields[properties.EXPIRATION])
    fields[properties.EXPIRATION] = None
    entries: list[PlainValue] = []
    for place, death in enumerate(deaths):
        if place + 1 < len(deaths):
            # It was published to this queue by the dead-lettering before.
            source = deaths[place + 1]["router"]
            source_key = deaths[place + 1]["key"]
            source_key = amqp_key(source_key) if source else source_key
        else:
            source, source_key = exchange, key
        entry: dict[str, PlainValue] = {
            "count": death["count"],
            "reason": _reason(death),
            "queue": death["topic"],
            "time": Field("T", death["time_ms"] // 1000),
            "exchange": source,
            "routing-keys": [source_key],
        }
        if expiration is not None and place + 1 == len(deaths):
            entry["original-expiration"] = expiration
        entries.append(entry)
    first, last = deaths[-1], deaths[0]
    headers: dict[str, PlainValue] = {
        "x-death": entries,
        "x-first-death-queue": first["topic"],
        "x-first-death-reason": _reason(first),
        "x-first-death-exchange": exchange,
        "x-last-death-queue": last["topic"],
        "x-last-death-reason": _reason(last),
        "x-last-death-exchange": deaths[1]["router"] if len(deaths) > 1 else exchange,
    }
    return {name: field_of(value) for name, value in headers.items()}, properties.join(fields)


def _reason(death: Death) -> str:
    return _REASONS.get(death["reason"], death["reason"])


def _foreign(message: Message, queue: str, origins: Origins) -> tuple[str, str, bytes]:
    """Exchange, routing key and property block of a message that another protocol wrote."""
    attributes = dict(origins.attributes(message.origin, message.native))
    typed = message.ext.get(Ext.ATTRIBUTES)
    if typed is not None:
        attributes |= msgspec.msgpack.decode(typed, type=dict[str, object])
    fields: list[bytes | None] = [None] * properties.PROPERTY_COUNT
    for name, place in SHARED_PROPERTIES.items():
        value = attributes.get(name)
        if isinstance(value, str) and _fits(value):
            fields[place] = _short(value)
            del attributes[name]
    headers = _headers(attributes)
    for kind, header in _EXT_HEADERS.items():
        if kind in message.ext:
            headers[header] = Field("S", message.ext[kind])
    if headers:
        fields[properties.HEADERS] = properties.encode_headers(Table(tuple(headers.items())))
    fields[properties.DELIVERY_MODE] = b"\x02" if message.flags & Flag.PERSISTENT else b"\x01"
    if message.priority:
        fields[properties.PRIORITY] = bytes((message.priority,))
    if message.ttl_ms:
        ttl_ms = 0 if message.ttl_ms == TTL_AT_ONCE else message.ttl_ms
        fields[properties.EXPIRATION] = _short(str(ttl_ms))
    fields[properties.TIMESTAMP] = (message.published_ms // 1000).to_bytes(8, "big")
    given = message.ext.get(Ext.MESSAGE_ID, b"").decode("utf-8", "replace")
    fields[properties.MESSAGE_ID] = _short(given or _uid_text(message.uid))
    tree_name = message.ext.get(Ext.TREE_NAME)
    if tree_name is not None:
        return "amq.topic", amqp_key(tree_name.decode("utf-8", "replace")), properties.join(fields)
    return "", queue, properties.join(fields)


def _uid_text(uid: bytes) -> str:
    """A uid in the form of RFC 9562: 8-4-4-4-12 hexadecimal digits."""
    digits = uid.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _headers(attributes: Mapping[str, object]) -> dict[str, Field]:
    """Attributes as headers. A name that no header can have is cut, as error texts are."""
    return {cut_text(name): _field(value) for name, value in attributes.items()}


def _field(value: object) -> Field:
    """A header's value. What AMQP has no type for travels as text."""
    match value:
        case bool() | str() | bytes() | float() | None:
            return field_of(value)
        case int():
            return field_of(value if -(2**63) <= value < 2**63 else str(value))
        case dict():
            return Field(
                "F", Table(tuple((str(name), _field(each)) for name, each in value.items()))
            )
        case list() | tuple():
            return Field("A", tuple(_field(each) for each in value))
        case _:
            return field_of(str(value))


def _fits(text: str) -> bool:
    return len(text.encode("utf-8", "replace")) <= 255


def _short(text: str) -> bytes:
    return short_string(cut_text(text) if len(text) > 60 and not _fits(text) else text)
