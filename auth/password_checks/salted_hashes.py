"""Hashes of passwords that RabbitMQ has made: a salt and one round of SHA-2.

    $rabbitmq-sha256$BASE64      BASE64 of salt (4 bytes) and SHA-256(salt + password) (32 bytes)
    $rabbitmq-sha512$BASE64      likewise SHA-512 (64 bytes)

BASE64 is what RabbitMQ calls `password_hash` (rabbitmq.com/docs/passwords, "Computing Password
Hash"). They sign their users in as they are, until the first password that fits is hashed by
argon2id (`gateway.access.renewed_hashes`): one round of SHA-2 is nothing to a graphics card, so
that whoever reads such a hash tries a billion passwords a second.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Any, Final

SALT_BYTES: Final = 4

_DIGESTS: Final[Mapping[str, Callable[[bytes], Any]]] = {
    "sha256": hashlib.sha256,
    "sha512": hashlib.sha512,
}
_MARK: Final = "$rabbitmq-"


def is_salted(stored: str) -> bool:
    """Whether a stored hash is of this kind, sound or not."""
    return stored.startswith(_MARK)


def spelled(kind: str, encoded: str) -> str:
    """The stored form: `kind` is sha256 or sha512, `encoded` RabbitMQ's own text."""
    return f"{_MARK}{kind}${encoded}"


def parts_of(stored: str) -> tuple[str, str]:
    """Kind and RabbitMQ's own text: the inverse of `spelled`."""
    kind, _, encoded = stored.removeprefix(_MARK).partition("$")
    return kind, encoded


def salted_fault(stored: str) -> str | None:
    """Why a text that `is_salted` is no hash that a password could fit; None: it is one."""
    kind, encoded = parts_of(stored)
    digest = _DIGESTS.get(kind)
    if digest is None:
        return f"of RabbitMQ's hashes those by {' and '.join(_DIGESTS)} are read, not {kind[:40]}"
    size = SALT_BYTES + len(digest(b"").digest())
    if len(_bytes(encoded)) != size:
        return f"RabbitMQ's hash by {kind} is base64 of {size} bytes: a salt of {SALT_BYTES}, a sum"
    return None


def fits(stored: str, password: bytes) -> bool:
    """Whether a password fits a sound hash. Microseconds; no empty password fits."""
    kind, encoded = parts_of(stored)
    data = _bytes(encoded)
    salt, found = data[:SALT_BYTES], data[SALT_BYTES:]
    return bool(password) and hmac.compare_digest(_DIGESTS[kind](salt + password).digest(), found)


def _bytes(encoded: str) -> bytes:
    """Empty if it is no base64."""
    try:
        return base64.b64decode(encoded, validate=True)
    except (ValueError, binascii.Error):
        return b""
