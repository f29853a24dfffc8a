"""Password hashes that another broker has made, and that came here with its definitions.

    $rabbit_password_hashing_sha256$BASE64        what is in BASE64: 4 bytes of salt, and
    $rabbit_password_hashing_sha512$BASE64        the digest of salt and password

The algorithm's name is RabbitMQ's own (https://www.rabbitmq.com/docs/passwords). They are fast to
make, so that whoever has the file may guess much faster than with argon2id: they stay until the
password is set anew. A build from before them leaves out the user, and says so in its log.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_PREFIX: Final = "$rabbit_password_hashing_"
SALT_BYTES: Final = 4
_DIGESTS: Final[Mapping[str, str]] = {
    "rabbit_password_hashing_sha256": "sha256",
    "rabbit_password_hashing_sha512": "sha512",
}
ALGORITHMS: Final = frozenset(_DIGESTS)
"""As RabbitMQ calls them. Its MD5 is not among them."""


def imported(algorithm: str, encoded: str) -> str | None:
    """A hash as it is kept, or None if it is none of these."""
    stored = f"${algorithm}${encoded}"
    return stored if _parts(stored) is not None else None


def is_imported(stored: str) -> bool:
    """Whether a hash is of one of these forms, sound or not."""
    return stored.startswith(_PREFIX)


def imported_fault(stored: str) -> str | None:
    """Why it is none of these, or None."""
    if _parts(stored) is None:
        return "a hash of RabbitMQ is base64 of 4 bytes of salt and a SHA-256 or SHA-512 digest"
    return None


def as_rabbit(stored: str) -> tuple[str, str]:
    """(algorithm, BASE64) of a hash that is one of these."""
    _, algorithm, encoded = stored.split("$", 2)
    return algorithm, encoded


def fits(stored: str, password: bytes) -> bool:
    """Whether a password fits; False also for what is no such hash."""
    parts = _parts(stored)
    if parts is None:
        return False
    digest, salt, wanted = parts
    return hmac.compare_digest(hashlib.new(digest, salt + password).digest(), wanted)


def _parts(stored: str) -> tuple[str, bytes, bytes] | None:
    """(name of the digest, salt, digest)."""
    if stored.count("$") != 2:
        return None
    algorithm, encoded = as_rabbit(stored)
    digest = _DIGESTS.get(algorithm)
    if digest is None:
        return None
    try:
        raw = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        return None
    if len(raw) != SALT_BYTES + hashlib.new(digest).digest_size:
        return None
    return digest, raw[:SALT_BYTES], raw[SALT_BYTES:]
