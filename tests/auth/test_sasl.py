from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from auth.errors import AuthCode, AuthError
from auth.sign_in.sasl import MESSAGE_BYTES_MAX, PlainCredentials, parse_plain


@pytest.mark.parametrize(
    ("message", "login", "password"),
    [
        (b"\0guest\0guest", "guest", b"guest"),
        (b"guest\0guest\0guest", "guest", b"guest"),
        ("\0acme:Zoë\0pässword".encode(), "acme:Zoë", "pässword".encode()),
        (b"\0u\0\xff\xfe", "u", b"\xff\xfe"),
    ],
)
def test_a_plain_message_holds_login_and_password(
    message: bytes, login: str, password: bytes
) -> None:
    assert parse_plain(message) == PlainCredentials(login, password)


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"guest",
        b"guest\0guest",
        b"\0\0",
        b"\0guest\0",
        b"\0\0guest",
        b"\0a\0b\0",
        b"\0\xff\0b",
        b"\0u\0" + b"x" * MESSAGE_BYTES_MAX,
    ],
)
def test_anything_else_is_malformed(message: bytes) -> None:
    with pytest.raises(AuthError) as caught:
        parse_plain(message)
    assert caught.value.code is AuthCode.INVALID_ARGUMENT


def test_acting_for_someone_else_is_refused() -> None:
    with pytest.raises(AuthError) as caught:
        parse_plain(b"admin\0guest\0guest")
    assert caught.value.code is AuthCode.BAD_CREDENTIALS


@given(st.lists(st.binary(max_size=5), max_size=5).map(b"\0".join))
def test_only_the_designed_error_leaves_the_parser(message: bytes) -> None:
    try:
        parse_plain(message)
    except AuthError:
        pass


def test_a_password_is_not_shown() -> None:
    assert "hunter2" not in repr(parse_plain(b"\0u\0hunter2"))
