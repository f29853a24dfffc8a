"""Dead letters, redeliveries and other protocols' messages, as an AMQP consumer sees them."""

from __future__ import annotations

import uuid

import msgspec
import pytest

from adapters.amqp.codec import properties
from adapters.amqp.codec.fields import Decimal, Field, Table
from adapters.amqp.codec.methods import short_string
from adapters.amqp.messages.stored import (
    AMQP_ORIGIN,
    AmqpOrigin,
    attributes_of,
    decimal_text,
    native_prefix,
    parse_native,
    plain_value,
)
from adapters.amqp.messages.translation import View, view
from adapters.base import Origin
from kernel.api import message as messages
from kernel.api.message import Ext, Flag
from kernel.api.model import Reason
from kernel.api.origins import Origins
from tests.adapters.amqp.wire import block_of

FOREIGN = Origin.SQS


class ForeignReader:
    """An origin whose native block is msgpack of its attributes."""

    def routing_key(self, native: bytes) -> str:
        return ""

    def attributes(self, native: bytes) -> dict[str, object]:
        return msgspec.msgpack.decode(native, type=dict[str, object])


@pytest.fixture
def origins() -> Origins:
    known = Origins()
    known.register(Origin.AMQP, AMQP_ORIGIN)
    known.register(FOREIGN, ForeignReader())
    return known


def _slot(**how: object) -> bytes:
    values: dict[str, object] = {
        "origin": int(Origin.AMQP),
        "priority": 0,
        "flags": Flag(0),
        "uid": bytes(range(16)),
        "published_ms": 1_700_000_000_123,
        "ttl_ms": 0,
        "delay_ms": 0,
        "key_hash": 0,
        "tag_hash": 0,
        "ext": {},
        "native": b"",
        "body": b"body",
    }
    return messages.encode(messages.Message(**{**values, **how}))  # type: ignore[arg-type]


def _native(exchange: str, key: str, block: bytes) -> bytes:
    return native_prefix(short_string(exchange) + short_string(key)) + block


def _route(seen: View) -> tuple[str, str]:
    native = parse_native(len(seen.route).to_bytes(2, "big") + seen.route)
    return native.exchange, native.routing_key


def _headers(seen: View) -> dict[str, object]:
    return attributes_of(properties.headers_of(properties.split(seen.properties)))


def test_amqp_reads_back_what_amqp_wrote(origins: Origins) -> None:
    block = block_of(headers=Table.of({"a": 0.1}), message_id=b"\xff", timestamp=bytes(8))
    slot = _slot(native=_native("e", "k.ü", block), ext={Ext.ORDERING_KEY: b"x"}, key_hash=1)
    assert view(slot, "q", 1, origins, tells_attempt=True) == View(
        short_string("e") + short_string("k.ü"), block, b"body"
    )


def test_a_redelivery_has_a_count(origins: Origins) -> None:
    block = block_of(headers=Table((("a", Field("f", 0.5)),)), app_id=b"app")
    seen = view(_slot(native=_native("", "q", block)), "q", 3, origins, tells_attempt=True)
    assert _headers(seen) == {"a": 0.5, "x-delivery-count": 2}
    assert properties.split(seen.properties)[properties.APP_ID] == b"\x03app"


def _death(topic: str, reason: Reason, router: str, key: str, **how: object) -> dict[str, object]:
    return {
        "topic": topic,
        "reason": reason.value,
        "count": 1,
        "time_ms": 5_000,
        "router": router,
        "key": key,
        **how,
    }


def test_a_dead_letter_tells_why_and_comes_by_its_new_route(origins: Origins) -> None:
    block = block_of(expiration=b"60", content_type=b"text/plain", headers=Table.of({"own": 1}))
    history = [_death("work", Reason.EXPIRED, "dlx", "a/b.c")]
    slot = _slot(
        native=_native("orders", "new.eu", block),
        flags=Flag.DEAD_LETTER | Flag.INTERNAL,
        ext={Ext.DEAD_LETTER: msgspec.msgpack.encode(history)},
    )
    seen = view(slot, "dead", 1, origins, tells_attempt=True)
    assert _route(seen) == ("dlx", "a.b/c")
    fields = properties.split(seen.properties)
    assert fields[properties.EXPIRATION] is None
    assert fields[properties.CONTENT_TYPE] == b"\x0atext/plain"
    assert _headers(seen) == {
        "own": 1,
        "x-death": [
            {
                "count": 1,
                "reason": "expired",
                "queue": "work",
                "time": 5,
                "exchange": "orders",
                "routing-keys": ["new.eu"],
                "original-expiration": "60",
            }
        ],
        "x-first-death-queue": "work",
        "x-first-death-reason": "expired",
        "x-first-death-exchange": "orders",
        "x-last-death-queue": "work",
        "x-last-death-reason": "expired",
        "x-last-death-exchange": "orders",
    }


def test_every_death_names_the_exchange_and_key_by_which_the_message_had_come(
    origins: Origins,
) -> None:
    history = [
        _death("third", Reason.OVERFLOW, "", "graveyard.main"),
        _death("second", Reason.ATTEMPTS, "dlx2", "k/2", count=4),
        _death("first", Reason.REJECTED, "dlx1", "k/1"),
    ]
    slot = _slot(
        native=_native("e", "own.key", b"\0\0"),
        flags=Flag.DEAD_LETTER,
        ext={Ext.DEAD_LETTER: msgspec.msgpack.encode(history)},
    )
    seen = view(slot, "graveyard.main", 2, origins, tells_attempt=True)
    assert _route(seen) == ("", "graveyard.main")
    headers = _headers(seen)
    deaths = headers["x-death"]
    assert isinstance(deaths, list)
    assert [
        (each["queue"], each["reason"], each["count"], each["exchange"], each["routing-keys"])
        for each in deaths
    ] == [
        ("third", "maxlen", 1, "dlx2", ["k.2"]),
        ("second", "delivery_limit", 4, "dlx1", ["k.1"]),
        ("first", "rejected", 1, "e", ["own.key"]),
    ]
    assert headers["x-last-death-exchange"] == "dlx2"
    assert headers["x-first-death-exchange"] == "e"
    assert headers["x-delivery-count"] == 1


def test_what_a_client_wrote_into_x_death_is_replaced(origins: Origins) -> None:
    block = block_of(headers=Table.of({"x-death": "forged", "kept": 1}))
    slot = _slot(
        native=_native("", "q", block),
        flags=Flag.DEAD_LETTER,
        ext={Ext.DEAD_LETTER: msgspec.msgpack.encode([_death("q", Reason.REJECTED, "", "d")])},
    )
    headers = _headers(view(slot, "d", 1, origins, tells_attempt=True))
    assert isinstance(headers["x-death"], list)
    assert headers["kept"] == 1


def test_a_message_of_another_protocol_has_headers_and_an_id(origins: Origins) -> None:
    attributes = {
        "content_type": "application/json",
        "correlation_id": "c" * 300,
        "text": "ü",
        "number": 7,
        "huge": 2**63,
        "ratio": 0.5,
        "flag": True,
        "blob": b"\xff",
        "nothing": None,
        "list": [1, "a"],
        "map": {"k": "v"},
        "n" * 300: "long name",
    }
    slot = _slot(
        origin=int(FOREIGN),
        native=msgspec.msgpack.encode(attributes),
        priority=4,
        ttl_ms=60_000,
        flags=Flag.PERSISTENT,
        ext={Ext.ORDERING_KEY: b"group", Ext.TAG: b"red", Ext.KEYS: b"a b"},
        key_hash=1,
    )
    seen = view(slot, "orders", 1, origins, tells_attempt=True)
    assert _route(seen) == ("", "orders")
    fields = properties.split(seen.properties)
    assert properties.short_text(fields[properties.CONTENT_TYPE]) == "application/json"
    assert fields[properties.CORRELATION_ID] is None
    assert fields[properties.DELIVERY_MODE] == b"\x02"
    assert fields[properties.PRIORITY] == b"\x04"
    assert properties.short_text(fields[properties.EXPIRATION]) == "60000"
    assert fields[properties.TIMESTAMP] == (1_700_000_000).to_bytes(8, "big")
    expected_id = str(uuid.UUID(bytes=bytes(range(16))))
    assert properties.short_text(fields[properties.MESSAGE_ID]) == expected_id
    headers = _headers(seen)
    assert headers.pop("n" * 255) == "long name"
    assert headers == {
        "correlation_id": "c" * 300,
        "text": "ü",
        "number": 7,
        "huge": str(2**63),
        "ratio": 0.5,
        "flag": True,
        "blob": b"\xff",
        "nothing": None,
        "list": [1, "a"],
        "map": {"k": "v"},
        "x-message-group-id": "group",
        "weir.tag": "red",
        "weir.keys": "a b",
    }
    properties.inspect(seen.properties)


def test_typed_attributes_of_a_writer_without_a_native_block_are_headers(
    origins: Origins,
) -> None:
    typed = msgspec.msgpack.encode({"a": 1, "content_type": "text/plain"})
    slot = _slot(origin=int(Origin.KERNEL), ext={Ext.ATTRIBUTES: typed})
    seen = view(slot, "q", 1, origins, tells_attempt=True)
    assert _headers(seen) == {"a": 1}
    fields = properties.split(seen.properties)
    assert properties.short_text(fields[properties.CONTENT_TYPE]) == "text/plain"


def test_the_writers_message_id_and_tree_name_are_kept(origins: Origins) -> None:
    slot = _slot(
        origin=int(FOREIGN),
        native=msgspec.msgpack.encode({}),
        ext={Ext.MESSAGE_ID: b"mine", Ext.TREE_NAME: b"a/b.c/+"},
    )
    seen = view(slot, "q", 1, origins, tells_attempt=True)
    assert _route(seen) == ("amq.topic", "a.b/c.*")
    fields = properties.split(seen.properties)
    assert properties.short_text(fields[properties.MESSAGE_ID]) == "mine"
    assert fields[properties.HEADERS] is None
    assert fields[properties.DELIVERY_MODE] == b"\x01"


def test_a_foreign_dead_letter_has_both(origins: Origins) -> None:
    slot = _slot(
        origin=int(FOREIGN),
        native=msgspec.msgpack.encode({"a": "b"}),
        flags=Flag.DEAD_LETTER,
        ext={Ext.DEAD_LETTER: msgspec.msgpack.encode([_death("q", Reason.TOO_LARGE, "", "d")])},
    )
    seen = view(slot, "d", 1, origins, tells_attempt=True)
    headers = _headers(seen)
    assert headers["a"] == "b"
    assert headers["x-first-death-reason"] == "too_large"


def test_the_kernel_reads_keys_and_attributes_of_our_blocks() -> None:
    headers = Table(
        (
            ("n", Field("B", 5)),
            ("n", Field("B", 6)),
            ("text", Field("S", b"x")),
            ("raw", Field("x", b"\xff")),
            ("price", Field("D", Decimal(2, 1234))),
            # The kernel keeps these itself.
            ("x-message-group-id", Field("S", b"g")),
            ("weir.tag", Field("S", b"t")),
            ("weir.keys", Field("S", b"k")),
            ("x-delay", Field("I", 5)),
        )
    )
    block = block_of(headers=headers, content_type=b"text/plain", reply_to=b"\xff")
    native = _native("e", "a.b/*", block)
    reader = AmqpOrigin()
    assert reader.routing_key(native) == "a/b.+"
    assert reader.topic_name(native) == "a.b/*"
    assert reader.attributes(native) == {
        "n": 5,
        "text": "x",
        "raw": b"\xff",
        "price": "12.34",
        "content_type": "text/plain",
        "reply_to": "\ufffd",
    }


@pytest.mark.parametrize(
    ("decimal", "text"), [((0, 5), "5"), ((2, 5), "0.05"), ((3, 1234), "1.234"), ((1, 0), "0.0")]
)
def test_decimals_are_written_in_digits(decimal: tuple[int, int], text: str) -> None:
    assert decimal_text(Decimal(*decimal)) == text
    assert plain_value(Field("D", Decimal(*decimal))) == text
