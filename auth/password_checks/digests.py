"""A memory of password checks: keyed digests of what was right, and of what was wrong.

A password check costs tens of milliseconds on purpose. Devices reconnect by the thousand with
passwords checked before; for them one BLAKE2b of a few microseconds is enough:

    digest = BLAKE2b-128(key = random of this process,
                         len(tenant) tenant len(name) name len(hash) hash password)

- The stored hash is part of it, so that a changed password is forgotten at once.
- The key never leaves the process: a digest in a core dump cannot be tried offline without it.
- Right and wrong answers have tables of their own: an attacker who guesses fills only the one
  that holds guesses. Each is bounded; the least recently used goes first, and everything goes
  after its time to live.

Sans-I/O: the key and the time are parameters.
"""

from __future__ import annotations

import struct
from hashlib import blake2b

RIGHT_MAX = 131_072
"""Logins remembered: more than one gateway has connections; about 26 MB when full."""

RIGHT_TTL_MS = 3_600_000
"""An hour: bounds how long the digest of a password stays in memory after its last check."""

WRONG_MAX = 4_096
WRONG_TTL_MS = 60_000
"""A minute: a device that retries a wrong password every second costs one real check a minute."""

DIGEST_KEY_BYTES = 32

_LENGTHS = struct.Struct("<III")


class DigestMemory:
    """What was checked before. Not thread-safe: belongs to the event loop."""

    __slots__ = ("_key", "_right", "_right_max", "_wrong", "_wrong_max")

    def __init__(
        self, key: bytes, *, right_max: int = RIGHT_MAX, wrong_max: int = WRONG_MAX
    ) -> None:
        """`key`: DIGEST_KEY_BYTES random bytes, made anew by each process."""
        assert len(key) == DIGEST_KEY_BYTES
        self._key = key
        self._right: dict[bytes, int] = {}
        self._wrong: dict[bytes, int] = {}
        self._right_max = right_max
        self._wrong_max = wrong_max

    def digest(self, tenant: str, name: str, stored: str, password: bytes) -> bytes:
        """Names one check: this password for this login against this stored hash."""
        one, two, three = (
            tenant.encode("utf-8", "surrogatepass"),
            name.encode("utf-8", "surrogatepass"),
            stored.encode(),
        )
        lengths = _LENGTHS.pack(len(one), len(two), len(three))
        return blake2b(
            b"".join((lengths, one, two, three, password)), digest_size=16, key=self._key
        ).digest()

    def recall(self, digest: bytes, now_ms: int) -> bool | None:
        """What the check gave, or None if it is not known (any more)."""
        right = self._right
        expires_ms = right.pop(digest, None)
        if expires_ms is not None:
            if expires_ms > now_ms:
                right[digest] = expires_ms  # to the end: most recently used
                return True
            return None
        expires_ms = self._wrong.get(digest)
        return False if expires_ms is not None and expires_ms > now_ms else None

    def remember(self, digest: bytes, now_ms: int, *, right: bool) -> None:
        """Keeps the result of a real check."""
        table, size_max, ttl_ms = (
            (self._right, self._right_max, RIGHT_TTL_MS)
            if right
            else (self._wrong, self._wrong_max, WRONG_TTL_MS)
        )
        table.pop(digest, None)
        if len(table) >= size_max:
            del table[next(iter(table))]
        table[digest] = now_ms + ttl_ms

    def __len__(self) -> int:
        return len(self._right) + len(self._wrong)
