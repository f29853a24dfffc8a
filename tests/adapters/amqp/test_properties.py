"""The property block: checked whole, opaque otherwise, changed only where asked."""

from __future__ import annotations

import datetime

import pamqp.commands
import pamqp.header
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.amqp.codec import properties
from adapters.amqp.codec.fields import Field, Table, encode_table
from adapters.amqp.errors import PRECONDITION_FAILED, SYNTAX_ERROR, AmqpError
from tests.adapters.amqp.wire import short_field


def _block(**values: object) -> bytes:
    """A property block as pamqp writes it."""
    header = pamqp.header.ContentHeader(0, 0, pamqp.commands.Basic.Properties(**values))
    return header.marshal()[12:]


_SHORT = st.binary(max_size=255).map(short_field)
_RAW_FIELDS = {
    properties.HEADERS: st.dictionaries(
        st.text("xyz-", max_size=5), st.one_of(st.booleans(), st.integers(0, 99)), max_size=4
    ).map(lambda values: encode_table(Table.of(values))),
    properties.DELIVERY_MODE: st.binary(min_size=1, max_size=1),
    properties.PRIORITY: st.binary(min_size=1, max_size=1),
    properties.TIMESTAMP: st.binary(min_size=8, max_size=8),
}
_BLOCK_FIELDS = st.tuples(
    *(
        st.one_of(st.none(), _RAW_FIELDS.get(place, _SHORT))
        for place in range(properties.PROPERTY_COUNT)
    )
).map(list)


@given(_BLOCK_FIELDS)
def test_split_and_join_keep_every_byte(fields: list[bytes | None]) -> None:
    block = properties.join(fields)
    assert properties.split(block) == fields
    assert properties.join(properties.split(block)) == block


def test_traits_of_a_block_as_a_client_writes_it() -> None:
    block = _block(
        content_type="text/plain",
        delivery_mode=2,
        priority=7,
        expiration="1500",
        user_id="guest",
        headers={"x-delay": 2_000, "other": "x"},
        timestamp=datetime.datetime(2026, 1, 2, tzinfo=datetime.UTC),
    )
    traits = properties.inspect(block)
    assert traits[:5] == (True, 7, 1_500, 2_000, b"guest")


def test_an_empty_block_is_transient_and_of_priority_zero() -> None:
    traits = properties.inspect(b"\x00\x00")
    assert traits == (False, 0, None, 0, None, None, False, Table())


def test_headers_without_meaning_to_us_are_checked_but_not_decoded() -> None:
    assert properties.inspect(_block(headers={"a": "b"})).headers == Table()
    malformed = b"\x20\x00" + b"\x00\x00\x00\x03\x01aZ"
    with pytest.raises(AmqpError) as caught:
        properties.inspect(malformed)
    assert caught.value.code == SYNTAX_ERROR


@pytest.mark.parametrize("text", ["", "soon", "-1", "1.5", " 1", "315360000001", "٣"])
def test_a_bad_expiration_is_precondition_failed(text: str) -> None:
    block = b"\x01\x00" + short_field(text)
    with pytest.raises(AmqpError) as caught:
        properties.inspect(block)
    assert caught.value.code == PRECONDITION_FAILED
    assert not caught.value.hard


@pytest.mark.parametrize("delay", ["soon", 41 * 24 * 3600 * 1000])
def test_a_bad_delay_is_precondition_failed(delay: object) -> None:
    with pytest.raises(AmqpError) as caught:
        properties.inspect(_block(headers={"x-delay": delay}))
    assert caught.value.code == PRECONDITION_FAILED


def test_a_negative_delay_means_at_once() -> None:
    assert properties.inspect(_block(headers={"x-delay": -5})).delay_ms == 0


@pytest.mark.parametrize(
    "block",
    [
        b"",
        b"\x00",
        b"\x00\x01",
        b"\x00\x02",
        b"\x80\x00",
        b"\x80\x00\x05abc",
        b"\x20\x00\x00\x00",
        b"\x08\x00",
        b"\x00\x40\x00\x00",
        b"\x00\x00extra",
    ],
)
def test_malformed_blocks_are_syntax_errors(block: bytes) -> None:
    with pytest.raises(AmqpError) as caught:
        properties.inspect(block)
    assert caught.value.code == SYNTAX_ERROR


def test_replacing_headers_leaves_every_other_byte() -> None:
    headers = Table(
        (("a", Field("B", 1)), ("x-delivery-count", Field("I", 1)), ("z", Field("V", None)))
    )
    fields: list[bytes | None] = [None] * properties.PROPERTY_COUNT
    fields[properties.CONTENT_TYPE] = short_field("text/plain")
    fields[properties.HEADERS] = encode_table(headers)
    fields[properties.APP_ID] = short_field(b"\xff\x00")
    changed = properties.split(
        properties.replace_headers(properties.join(fields), {"x-delivery-count": Field("l", 2)})
    )
    assert properties.headers_of(changed).entries == (
        ("a", Field("B", 1)),
        ("z", Field("V", None)),
        ("x-delivery-count", Field("l", 2)),
    )
    assert changed[properties.CONTENT_TYPE] == fields[properties.CONTENT_TYPE]
    assert changed[properties.APP_ID] == fields[properties.APP_ID]
    without = properties.replace_headers(b"\x00\x00", {"n": Field("l", 1)})
    assert properties.headers_of(properties.split(without)).entries == (("n", Field("l", 1)),)
