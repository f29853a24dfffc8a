from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sqs import error_codes as errors
from adapters.sqs.codec.shapes import MessageAttributeValue
from adapters.sqs.error_codes import SqsError
from adapters.sqs.messages import attribute_map, native
from adapters.sqs.messages.attribute_map import MORE_ATTRIBUTE, RESERVED_NAMES, Properties
from adapters.sqs.messages.message_attributes import check_attributes
from adapters.sqs.messages.native import NativeBlock

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
    | st.binary(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc"), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12).filter(
    lambda name: name not in RESERVED_NAMES
)
PROPERTIES = st.builds(
    Properties,
    st.dictionaries(st.sampled_from(RESERVED_NAMES), st.text(max_size=5).filter(
        lambda text: not any("\ud800" <= c <= "\udfff" for c in text)), max_size=7),
    st.dictionaries(NAMES, JSON_VALUES, max_size=15),
)  # fmt: skip


def text(value: str, data_type: str = "String") -> MessageAttributeValue:
    return MessageAttributeValue(data_type=data_type, string_value=value)


@given(PROPERTIES)
def test_properties_survive_sqs_whatever_they_hold(properties: Properties) -> None:
    attributes = attribute_map.to_sqs(properties)
    check_attributes(attributes)
    assert attribute_map.from_sqs(attributes) == properties


def test_values_have_the_types_of_the_contract() -> None:
    attributes = attribute_map.to_sqs(
        Properties(
            {"weir.tag": "blue"},
            {"s": "a", "i": -5, "f": 1.5, "t": True, "no": False, "b": b"\x00"},
        )
    )
    assert attributes == {
        "weir.tag": text("blue"),
        "b": MessageAttributeValue(data_type="Binary", binary_value=b"\x00"),
        "f": text("1.5", "Number"),
        "i": text("-5", "Number"),
        "no": text("false", "String.bool"),
        "s": text("a"),
        "t": text("true", "String.bool"),
    }


def test_ten_attributes_fit_and_reserved_ones_come_first() -> None:
    values = {f"a{number}": number for number in range(8)}
    reserved = {"weir.tag": "t", "weir.message_id": "m"}
    attributes = attribute_map.to_sqs(Properties(reserved, values))
    assert list(attributes) == ["weir.message_id", "weir.tag", *values]


def test_of_eleven_the_tenth_holds_the_rest() -> None:
    values = {f"a{number:02}": number for number in range(11)}
    attributes = attribute_map.to_sqs(Properties({}, values))
    assert list(attributes) == [*list(values)[:9], MORE_ATTRIBUTE]
    assert attributes[MORE_ATTRIBUTE] == text('{"a09":9,"a10":10}')


def test_what_sqs_forbids_goes_into_more_beside_what_fits() -> None:
    values = {
        "AWS.x": "reserved prefix",
        "sp ace": "odd name",
        "bytes name?": b"\xff",
        "empty": "",
        "control": "\x00",
        "none": None,
        "list": [1, b"\x01", {"k": math.inf}],
        "fits": "yes",
    }
    attributes = attribute_map.to_sqs(Properties({}, values))
    assert list(attributes) == ["fits", MORE_ATTRIBUTE]
    assert json.loads(attributes[MORE_ATTRIBUTE].string_value) == {
        "AWS.x": "reserved prefix",
        "bytes name?": {"$base64": "/w=="},
        "control": "\x00",
        "empty": "",
        "list": [1, {"$base64": "AQ=="}, {"k": "inf"}],
        "none": None,
        "sp ace": "odd name",
    }


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        (text("5", "Number"), 5),
        (text("+5", "Number.int"), 5),
        (text("-007", "Number"), -7),
        (text("1.50", "Number"), 1.5),
        (text("1e3", "Number"), 1000.0),
        (text("9223372036854775807", "Number"), 2**63 - 1),
        (text("9223372036854775808", "Number"), "9223372036854775808"),
        (text("1" * 38, "Number"), "1" * 38),
        (text("1e999", "Number"), "1e999"),
        (text("true", "String.bool"), True),
        (text("maybe", "String.bool"), "maybe"),
        (text("5", "String.label"), "5"),
        (MessageAttributeValue(data_type="Binary.png", binary_value=b"x"), b"x"),
    ],
)
def test_what_an_sqs_writer_meant(value: MessageAttributeValue, meaning: object) -> None:
    attributes = attribute_map.from_sqs({"a": value}).attributes
    assert attributes == {"a": meaning}
    assert type(attributes["a"]) is type(meaning)


def test_reserved_texts_are_told_from_attributes() -> None:
    properties = attribute_map.from_sqs(
        {"weir.tag": text("t"), "weir.encoding": text("base64"), "weir.other": text("o")}
    )
    assert properties.reserved == {"weir.tag": "t", "weir.encoding": "base64"}
    assert properties.attributes == {"weir.other": "o"}


@pytest.mark.parametrize("more", ["", "[]", "{", "5", '{"a":{"$base64":"?"}}', "[" * 100_000])
def test_more_that_is_not_ours_is_refused(more: str) -> None:
    with pytest.raises(SqsError) as caught:
        attribute_map.from_sqs({MORE_ATTRIBUTE: text(more)})
    assert caught.value.kind is errors.INVALID_PARAMETER_VALUE


def test_an_attribute_beside_more_wins() -> None:
    attributes = {MORE_ATTRIBUTE: text('{"a":1,"b":2}'), "a": text("x")}
    assert attribute_map.from_sqs(attributes).attributes == {"a": "x", "b": 2}


# --- the native block --------------------------------------------------------------------------


def test_a_native_block_gives_back_what_was_written() -> None:
    block = NativeBlock(
        {
            "n": text("1.50", "Number.price"),
            "b": MessageAttributeValue(data_type="Binary.png", binary_value=b"\x00\xff"),
        },
        "Root=1-5e1b4151",
        "AIDAEXAMPLE",
    )
    assert native.decode(native.encode(block)) == block


def test_a_message_with_nothing_has_an_empty_block() -> None:
    assert native.encode(NativeBlock()) == b""
    assert native.decode(b"") == NativeBlock()


def test_the_block_is_of_a_fixed_format() -> None:
    data = b"\x94\x01\x81\xa1n\x93\xa6Number\xa15\xc0\xc0\xc0"
    assert native.encode(NativeBlock({"n": text("5", "Number")})) == data
    assert native.decode(data) == NativeBlock({"n": text("5", "Number")})


@pytest.mark.parametrize("data", [b"\xc1", b"\x00", b"\x94\x02\x80\xc0\xc0", b"\x94\x01"])
def test_a_block_of_another_kind_is_an_error(data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        native.decode(data)
