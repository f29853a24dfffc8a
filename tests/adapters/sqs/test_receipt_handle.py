from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.sqs import error_codes as errors
from adapters.sqs.error_codes import SqsError
from adapters.sqs.messages import receipt_handle
from adapters.sqs.messages.receipt_handle import TOKEN_BYTES_MAX, Receipt

TOPICS = st.integers(0, 2**64 - 1)
TIMES = st.integers(0, 2**32 - 1)


@given(st.binary(max_size=TOKEN_BYTES_MAX), TOPICS, TIMES)
def test_a_handle_gives_back_what_is_in_it(token: bytes, topic: int, received_s: int) -> None:
    handle = receipt_handle.encode(token, topic, received_s)
    assert handle.isascii()
    assert len(handle) <= 1024
    assert receipt_handle.decode(handle) == Receipt(token, topic, received_s)


@given(st.binary(max_size=60), st.data())
def test_a_handle_with_one_character_changed_is_refused(token: bytes, data) -> None:
    handle = receipt_handle.encode(token, 7, 1_795_000_000)
    at = data.draw(st.integers(0, len(handle) - 1))
    other = data.draw(st.characters().filter(lambda c: c != handle[at]))
    with pytest.raises(SqsError):
        receipt_handle.decode(handle[:at] + other + handle[at + 1 :])


@given(st.text(max_size=50))
def test_text_that_is_no_handle_is_refused(text: str) -> None:
    with pytest.raises(SqsError) as caught:
        receipt_handle.decode(text)
    assert caught.value.kind is errors.RECEIPT_HANDLE_IS_INVALID
    assert (
        caught.value.message == f'The input receipt handle "{text}" is not a valid receipt handle.'
    )


def test_a_handle_longer_than_any_is_refused_unread() -> None:
    with pytest.raises(SqsError):
        receipt_handle.decode("A" * 1_000_000)


def test_the_format_is_fixed() -> None:
    # Handles outlive a server: clients may hold them for 12 hours and over an upgrade.
    handle = "ASnjpfUAAAABAAAAAmr9icB0b2tlbg=="
    receipt = Receipt(b"token", 1 << 32 | 2, 1_795_000_768)
    assert receipt_handle.encode(*receipt) == handle
    assert receipt_handle.decode(handle) == receipt
