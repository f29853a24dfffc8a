"""Passwords that RabbitMQ has hashed."""

from __future__ import annotations

import base64
import hashlib

import pytest

from auth.errors import AuthCode, AuthError
from auth.password_checks.passwords import verify_password
from auth.password_checks.salted_hashes import fits, is_salted, parts_of, spelled
from auth.users.records import password_hash_fault

PUBLISHED = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
"""Of `test12`: the worked example of rabbitmq.com/docs/passwords."""


def made(kind: str, password: bytes, salt: bytes = b"\x90\x8d\xc6\x0a") -> str:
    digest = hashlib.new(kind, salt + password).digest()
    return spelled(kind, base64.b64encode(salt + digest).decode())


def test_the_published_example_fits_its_password_and_no_other() -> None:
    stored = spelled("sha256", PUBLISHED)
    assert stored == made("sha256", b"test12")
    assert verify_password(stored, b"test12") is True
    assert verify_password(stored, b"test13") is False
    assert parts_of(stored) == ("sha256", PUBLISHED)


def test_sha512_is_read_too() -> None:
    stored = made("sha512", "größe".encode())
    assert password_hash_fault(stored) is None
    assert fits(stored, "größe".encode())
    assert not fits(stored, b"")


def test_a_hash_of_the_empty_password_signs_nobody_in() -> None:
    stored = made("sha256", b"")
    assert password_hash_fault(stored) is None
    assert verify_password(stored, b"") is False


@pytest.mark.parametrize(
    ("stored", "says"),
    [
        ("$rabbitmq-md5$AAAAAAAAAAAAAAAAAAAAAAAAAAA=", "sha256 and sha512 are read, not md5"),
        ("$rabbitmq-sha256$", "base64 of 36 bytes"),
        (f"$rabbitmq-sha512${PUBLISHED}", "base64 of 68 bytes"),
        (f"$rabbitmq-sha256$ {PUBLISHED}", "base64 of 36 bytes"),
        (f"$rabbitmq-sha256${PUBLISHED[:-4]}", "base64 of 36 bytes"),
        ("$rabbitmq-sha256$größe", "base64 of 36 bytes"),
        ("$rabbitmq-", "are read, not "),
    ],
)
def test_what_is_no_such_hash_is_refused_and_never_checked(stored: str, says: str) -> None:
    assert is_salted(stored)
    fault = password_hash_fault(stored)
    assert fault is not None
    assert says in fault
    with pytest.raises(AuthError) as raised:
        verify_password(stored, b"x")
    assert raised.value.code is AuthCode.UNAVAILABLE
