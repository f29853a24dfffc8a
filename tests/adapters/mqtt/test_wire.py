"""The data types of the wire: bounds, shortest forms, and text as MQTT restricts it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.mqtt.codec import data_types as wire
from adapters.mqtt.codec.errors import LocalProtocolError, MqttError
from adapters.mqtt.codec.reason_codes import ReasonCode
from adapters.mqtt.limits import VARINT_MAX


def refused(read, data: bytes) -> ReasonCode:
    with pytest.raises(MqttError) as caught:
        read(data, 0, len(data))
    return caught.value.reason_code


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        (0, "00"),
        (127, "7f"),
        (128, "8001"),
        (16_383, "ff7f"),
        (16_384, "808001"),
        (2_097_151, "ffff7f"),
        (2_097_152, "80808001"),
        (268_435_455, "ffffff7f"),
    ],
)
def test_a_variable_byte_integer_uses_the_fewest_bytes(value, encoded):
    """[MQTT-1.5.5-1]."""
    data = bytes.fromhex(encoded)
    assert wire.encode_varint(value) == data
    assert wire.read_varint(data, 0, len(data)) == (value, len(data))


@pytest.mark.parametrize("data", ["8000", "808000", "80808000", "ff8000"])
def test_a_longer_form_of_a_variable_byte_integer_is_refused(data):
    """[MQTT-1.5.5-1]."""
    assert refused(wire.read_varint, bytes.fromhex(data)) == ReasonCode.MALFORMED_PACKET


@pytest.mark.parametrize("data", ["80808080", "8080808001", "ffffffff7f"])
def test_a_variable_byte_integer_has_at_most_four_bytes(data):
    assert refused(wire.read_varint, bytes.fromhex(data)) == ReasonCode.MALFORMED_PACKET


@pytest.mark.parametrize("value", [-1, VARINT_MAX + 1])
def test_a_number_that_no_variable_byte_integer_holds_is_our_bug(value):
    with pytest.raises(LocalProtocolError):
        wire.encode_varint(value)


@pytest.mark.parametrize(
    ("read", "data"),
    [
        (wire.read_u8, ""),
        (wire.read_u16, "01"),
        (wire.read_u32, "010203"),
        (wire.read_varint, ""),
        (wire.read_varint, "80"),
        (wire.read_binary, "00"),
        (wire.read_binary, "0002aa"),
        (wire.read_text, "000361"),
    ],
)
def test_a_field_that_ends_too_soon_is_malformed(read, data):
    assert refused(read, bytes.fromhex(data)) == ReasonCode.MALFORMED_PACKET


@pytest.mark.parametrize(
    "raw",
    [
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xc0\x80",
        b"\xc1\xbf",
        b"\xf4\x90\x80\x80",
        b"\xff",
        b"\xe2\x82",
        b"a\x80",
    ],
)
def test_text_that_is_not_well_formed_utf_8_is_malformed(raw):
    """[MQTT-1.5.4-1], surrogates included; [MQTT-1.5.3-1] of 3.1.1."""
    data = wire.encode_binary(raw)
    assert refused(wire.read_text, data) == ReasonCode.MALFORMED_PACKET


def test_text_with_the_null_character_is_malformed():
    """[MQTT-1.5.4-2]."""
    assert refused(wire.read_text, b"\x00\x03a\x00b") == ReasonCode.MALFORMED_PACKET
    with pytest.raises(LocalProtocolError):
        wire.encode_text("a\0b")


def test_a_byte_order_mark_is_kept():
    """[MQTT-1.5.4-3]."""
    data = wire.encode_binary(b"\xef\xbb\xbfa")
    assert wire.read_text(data, 0, len(data)) == ("\ufeffa", len(data))
    assert wire.encode_text("\ufeffa") == data


def test_text_that_has_no_utf_8_or_is_too_long_is_our_bug():
    with pytest.raises(LocalProtocolError):
        wire.encode_text("\ud800")
    with pytest.raises(LocalProtocolError):
        wire.encode_text("a" * 65_536)
    assert len(wire.encode_text("a" * 65_535)) == 65_537


@given(st.integers(0, VARINT_MAX), st.binary(max_size=4))
def test_a_variable_byte_integer_reads_back_whatever_follows_it(value, rest):
    data = wire.encode_varint(value)
    assert wire.read_varint(data + rest, 0, len(data + rest)) == (value, len(data))


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=40))
def test_text_reads_back(text):
    data = wire.encode_text(text)
    assert wire.read_text(data, 0, len(data)) == (text, len(data))
