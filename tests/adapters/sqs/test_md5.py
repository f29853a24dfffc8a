"""Digests that AWS itself answered with (recorded responses; SQS Developer Guide for the body)."""

from __future__ import annotations

import pytest

from adapters.sqs.codec.shapes import MessageAttributeValue
from adapters.sqs.messages import md5


def text(value: str, data_type: str = "String") -> MessageAttributeValue:
    return MessageAttributeValue(data_type=data_type, string_value=value)


GENERAL, HELLO, HELP = text("Kenobi"), text("There"), text("Me")


@pytest.mark.parametrize(
    ("attributes", "digest"),
    [
        (
            {"Hello": HELLO, "General": GENERAL, "Help.Me": HELP},
            "4c360f3fdafd970e05fae2f149d997f5",
        ),
        ({"General": GENERAL, "Hello": HELLO}, "fca026605781cb4126a1e9044df24232"),
        ({"Hello": HELLO}, "a311262e065454b75da111d535b8dacd"),
        ({"Help.Me": HELP, "Hello": HELLO}, "83fee93c1bcd8b9a5a923ffacdc636c7"),
        ({"Foo": text("Bar")}, "ae7155c6026991b6d54b11589678bf9c"),
        (
            {"UserId": text("1234567890123456789012", "Number.bigint")},
            "797ab158d73dcb5242dedc4412c8e855",
        ),
        (
            {
                "attr1": MessageAttributeValue(
                    data_type="Binary",
                    binary_value=b"traceparent\x1e00-774062d6c37081a5a0b9b5b88e30627c-"
                    b"2d2482211f6489da-01",
                )
            },
            "8cbe4db156db8a94db8b801b7addb984",
        ),
        ({"AWSTraceHeader": text("some-trace-id")}, "fdce4f2818803f2f73becc09a54792c0"),
        ({"AWSTraceHeader": text("some-value")}, "a3263a0cbc09023ccd431feb61438309"),
    ],
)
def test_digests_of_attributes(attributes: dict[str, MessageAttributeValue], digest: str) -> None:
    assert md5.of_attributes(attributes) == digest


@pytest.mark.parametrize("attributes", [None, {}])
def test_no_attributes_have_no_digest(attributes) -> None:
    assert md5.of_attributes(attributes) is None


@pytest.mark.parametrize(
    ("body", "digest"),
    [
        (b"msg", "6e2baaf3b97dbeef01c0043275f9a0e7"),
        (b"Test Message", "d1d4180b7e411c4be86b00fb2ee103eb"),
        (b"message-body-1", "19c9e282d65f9733bc6b35d50062c7ee"),
        (b"", "d41d8cd98f00b204e9800998ecf8427e"),
    ],
)
def test_digests_of_bodies(body: bytes, digest: str) -> None:
    assert md5.of_body(body) == digest
