from __future__ import annotations

import base64
import hashlib

import pytest

from auth.password_checks.imported_hashes import as_rabbit, imported
from auth.password_checks.passwords import verify_password
from auth.users.records import password_hash_fault

SHA256 = "rabbit_password_hashing_sha256"
EXAMPLE = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"
"""Of RabbitMQ's documentation: the password test12."""


def test_the_example_of_rabbitmqs_documentation_is_checked() -> None:
    stored = imported(SHA256, EXAMPLE)
    assert stored is not None
    assert password_hash_fault(stored) is None
    assert verify_password(stored, b"test12")
    assert not verify_password(stored, b"test13")
    assert as_rabbit(stored) == (SHA256, EXAMPLE)


def test_sha_512_is_checked_as_well() -> None:
    salt = b"salt"
    raw = salt + hashlib.sha512(salt + "pä$$".encode()).digest()
    stored = imported("rabbit_password_hashing_sha512", base64.b64encode(raw).decode())
    assert stored is not None
    assert verify_password(stored, "pä$$".encode())


@pytest.mark.parametrize(
    ("algorithm", "encoded"),
    [
        ("rabbit_password_hashing_md5", EXAMPLE),
        ("rabbit_password_hashing_sha512", EXAMPLE),
        (SHA256, EXAMPLE[:-4]),
        (SHA256, EXAMPLE[:-1] + "!"),
        (SHA256, "$" + EXAMPLE),
        (SHA256, ""),
        ("", ""),
    ],
)
def test_what_is_no_such_hash_is_not_read_and_fits_no_password(
    algorithm: str, encoded: str
) -> None:
    assert imported(algorithm, encoded) is None
    forged = f"${SHA256}${encoded}" if encoded != EXAMPLE else f"${algorithm}${encoded}"
    assert password_hash_fault(forged) is not None
    if algorithm == SHA256:
        assert not verify_password(forged, b"test12")
