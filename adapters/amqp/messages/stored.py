"""AMQP's part of a stored message: its native block, and what other code may read in it.

    native = length of route:u16 | route | property block
    route  = exchange:short-string  routing-key:short-string

Route and property block are the bytes that the publisher sent (the routing key of a dead letter is
in the message's history instead, see consuming.py). A delivery is therefore made of slices.

`AmqpOrigin` is what the kernel asks when it must route a message itself
(docs/design/delivery.md#attempts-and-dead-letters), and what turns headers into attributes for
other protocols.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from adapters.amqp.codec import properties
from adapters.amqp.codec.fields import Decimal, Field, Table
from adapters.amqp.names import kernel_key
from adapters.base import Origin

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernel.api.origins import Origins

ROUTE_LENGTH_BYTES: Final = 2


SHARED_PROPERTIES: Final = {
    "content_type": properties.CONTENT_TYPE,
    "content_encoding": properties.CONTENT_ENCODING,
    "correlation_id": properties.CORRELATION_ID,
    "reply_to": properties.REPLY_TO,
}
"""Attributes that have a property of their own here (docs/design/model.md#the-message-contract)."""

_KERNEL_HEADERS: Final = (
    properties.HEADER_DELAY,
    properties.HEADER_ORDERING_KEY,
    properties.HEADER_TAG,
    properties.HEADER_KEYS,
)
"""Headers that the kernel keeps as fields of its own, for readers of every protocol."""


class NativeBlock(NamedTuple):
    """A native block, taken apart."""

    exchange: str
    routing_key: str
    properties: bytes


def native_prefix(route: bytes) -> bytes:
    """The native block up to the property block. `route` is two short strings."""
    return len(route).to_bytes(ROUTE_LENGTH_BYTES, "big") + route


def parse_native(native: bytes) -> NativeBlock:
    """A native block that this adapter has stored, taken apart."""
    key_at = ROUTE_LENGTH_BYTES + 1 + native[ROUTE_LENGTH_BYTES]
    end = ROUTE_LENGTH_BYTES + int.from_bytes(native[:ROUTE_LENGTH_BYTES], "big")
    return NativeBlock(
        native[ROUTE_LENGTH_BYTES + 1 : key_at].decode("utf-8", "surrogateescape"),
        native[key_at + 1 : end].decode("utf-8", "surrogateescape"),
        native[end:],
    )


def plain_value(field: Field) -> object:
    """A header's value as attributes hold it: the same for any integer width and string type.

    Text is str if it is UTF-8, else bytes; a decimal is its digits as str; a table is a dict (of a
    name that occurs twice the first counts, as everywhere), an array a list.
    """
    value = field.value
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                return value
        case Decimal():
            return decimal_text(value)
        case Table():
            return attributes_of(value)
        case tuple():
            return [plain_value(item) for item in value]
        case _:
            return value


def decimal_text(value: Decimal) -> str:
    """A decimal in digits: 12345 of scale 2 is 123.45."""
    digits = str(value.value).rjust(value.scale + 1, "0")
    return digits if not value.scale else f"{digits[: -value.scale]}.{digits[-value.scale :]}"


def attributes_of(headers: Table) -> dict[str, object]:
    """Headers as attributes."""
    found: dict[str, object] = {}
    for name, field in headers.entries:
        if name not in found:
            found[name] = plain_value(field)
    return found


class AmqpOrigin:
    """`kernel.api.origins.OriginReader` of messages that AMQP clients wrote."""

    def routing_key(self, native: bytes) -> str:
        """The key of the publish, in the kernel's spelling."""
        return kernel_key(parse_native(native).routing_key)

    def topic_name(self, native: bytes) -> str:
        """The key of the publish as the default exchange understands it: a queue's name."""
        key = parse_native(native).routing_key
        return key.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

    def attributes(self, native: bytes) -> Mapping[str, object]:
        """The headers of the publish but for what the kernel knows by itself, and the properties
        that other protocols have too, under the names that all adapters know.
        """
        fields = properties.split(parse_native(native).properties)
        found = attributes_of(properties.headers_of(fields))
        for name in _KERNEL_HEADERS:
            found.pop(name, None)
        for name, place in SHARED_PROPERTIES.items():
            value = properties.short_text(fields[place])
            if value is not None:
                found[name] = value.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        return found


AMQP_ORIGIN: Final = AmqpOrigin()


def register_origin(origins: Origins) -> None:
    """Have the kernel read what AMQP clients wrote: wherever stored messages are."""
    origins.register(Origin.AMQP, AMQP_ORIGIN)


"""The one reader: registering it again is no conflict."""
