from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from adapters.sqs import error_codes as errors
from adapters.sqs.error_codes import SqsError
from adapters.sqs.messages import body_text

ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@given(st.text())
@example("\ufffe")
@example("\uffff")
@example("\x7f\x85\u2028\ud7ff\ue000\ufffd\U0010ffff")
def test_legal_text_is_that_of_xml(text: str) -> None:
    assert body_text.is_legal(text.encode()) == (ILLEGAL.search(text) is None)


@given(st.binary() | st.text().map(str.encode))
def test_every_body_has_a_text_that_gives_it_back(body: bytes) -> None:
    text, is_base64 = body_text.text_of(body)
    assert ILLEGAL.search(text) is None
    utf8 = text.encode()
    assert (body_text.body_of(utf8) if is_base64 else utf8) == body


@pytest.mark.parametrize(
    ("body", "text", "is_base64"),
    [
        (b"", "", False),
        (b"hello\r\n", "hello\r\n", False),
        ("wörld".encode(), "wörld", False),
        (b"\xff\xfe", "//4=", True),
        (b"\x00", "AA==", True),
        (b"\xed\xa0\x80", "7aCA", True),
    ],
)
def test_bodies_and_their_texts(body: bytes, text: str, is_base64: bool) -> None:
    assert body_text.text_of(body) == (text, is_base64)


@pytest.mark.parametrize("text", [b"?", b"AA=", b"AA==AA==", b"A A=", "ä".encode()])
def test_a_text_that_is_not_base64_is_refused(text: bytes) -> None:
    with pytest.raises(SqsError) as caught:
        body_text.body_of(text)
    assert caught.value.kind is errors.INVALID_PARAMETER_VALUE


def test_text_sent_as_base64_can_be_given_back_as_base64() -> None:
    assert body_text.body_of(b"aGVsbG8=") == b"hello"
    assert body_text.base64_of(b"hello") == "aGVsbG8="
