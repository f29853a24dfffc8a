"""Sealing of access-key secrets: AES-256-GCM under a key file.

A signature is checked by making it again, so the server must be able to read the secret; it is
therefore not hashed but sealed. Stolen snapshots or journals are worth nothing without the file.

Envelope, 33 bytes longer than the secret:

    0        1            5             17                    17+n          17+n+16
    | form 1 | key id u32 | nonce 12 B  | ciphertext, n bytes | tag 16 B    |

The first 17 bytes and the context (which access key it is) are authenticated with it: an envelope
that is altered, cut or moved to another access key does not open.

Key file, mode 0600, one line a key; the last one seals, all of them open:

    # comment
    <key id, 8 hex digits> <32 bytes in base64>

Rotation: add a line; from the next start on it seals. Envelopes say by which key they were sealed,
so a line may go once every access key of its time has been made anew. All gateways of an
installation share one file. Nonces are random: by the birthday bound a key is good for 2**32
seals, which is a million access keys renewed four thousand times.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
import struct
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ..errors import AuthCode, AuthError
from .files import read_or_create_private

if TYPE_CHECKING:
    from pathlib import Path

KEY_BYTES = 32
KEYS_MAX = 64
"""Rotations kept in one file; the oldest must be gone long before."""

SECRET_BYTES_MAX = 512

_FORM = 1
_HEADER = struct.Struct(">BI12s")
_NONCE_BYTES = 12
_TAG_BYTES = 16
_LINE = re.compile(r"([0-9a-f]{8}) ([A-Za-z0-9+/]{43}=)")
_HEAD = (
    "# Weir seals access-key secrets with the last of these keys and opens them with any.\n"
    "# Keep a copy in a safe place: without it every access key must be made anew.\n"
)

RandomBytes = Callable[[int], bytes]


class KeyRing:
    """The keys of a key file. The last one seals, all of them open."""

    def __init__(self, keys: Mapping[int, bytes], random_bytes: RandomBytes = os.urandom) -> None:
        """`keys`: key id (0 .. 2**32-1) to KEY_BYTES bytes, oldest first, at least one."""
        assert keys, "a key ring holds at least one key"
        assert all(len(key) == KEY_BYTES for key in keys.values())
        self._ciphers = {key_id: AESGCM(key) for key_id, key in keys.items()}
        self._active = list(keys)[-1]
        self._random_bytes = random_bytes
        self.lacks: int | None = None
        """Id of the key that a secret was sealed by and that is not here, the last that was met: it
        was sealed where there is another file.
        """

    def seal(self, secret: bytes, context: bytes) -> bytes:
        """An envelope that only `unseal` with the same context opens.

        Raises AuthError INVALID_ARGUMENT if the secret is empty or over SECRET_BYTES_MAX.
        """
        if not 0 < len(secret) <= SECRET_BYTES_MAX:
            message = f"a secret has 1 to {SECRET_BYTES_MAX} bytes"
            raise AuthError(AuthCode.INVALID_ARGUMENT, message)
        nonce = self._random_bytes(_NONCE_BYTES)
        header = _HEADER.pack(_FORM, self._active, nonce)
        return header + self._ciphers[self._active].encrypt(nonce, secret, header + context)

    def unseal(self, envelope: bytes, context: bytes) -> bytes:
        """The secret. Raises AuthError DAMAGED: altered, another context, or an unknown key."""
        if len(envelope) < _HEADER.size + _TAG_BYTES or envelope[0] != _FORM:
            raise AuthError(AuthCode.DAMAGED, "a sealed secret is cut or of an unknown form")
        _, key_id, nonce = _HEADER.unpack_from(envelope)
        cipher = self._ciphers.get(key_id)
        if cipher is None:
            self.lacks = key_id
            message = f"a secret is sealed by key {key_id:08x}, which is not in the key file"
            raise AuthError(AuthCode.DAMAGED, message)
        header = envelope[: _HEADER.size]
        try:
            return cipher.decrypt(nonce, envelope[_HEADER.size :], header + context)
        except InvalidTag:
            message = "a sealed secret was altered, or belongs to another access key"
            raise AuthError(AuthCode.DAMAGED, message) from None


def open_key_ring(path: Path, random_bytes: RandomBytes = os.urandom) -> KeyRing:
    """The ring of a key file; makes the file, with one key, if there is none.

    Raises AuthError UNSAFE_FILE (others may read it) or DAMAGED (not a key file).
    """

    def make() -> bytes:
        return (_HEAD + _new_line({}, random_bytes)).encode()

    data = read_or_create_private(path, make)
    return KeyRing(_parse(path, data), random_bytes)


def _new_line(keys: Mapping[int, bytes], random_bytes: RandomBytes) -> str:
    key_id = int.from_bytes(random_bytes(4), "big")
    while key_id in keys:
        key_id = int.from_bytes(random_bytes(4), "big")
    key = base64.b64encode(random_bytes(KEY_BYTES)).decode()
    return f"{key_id:08x} {key}\n"


def _parse(path: Path, data: bytes) -> dict[int, bytes]:
    keys: dict[int, bytes] = {}
    try:
        lines = data.decode("ascii").splitlines()
        for number, line in enumerate(lines, start=1):
            if not line.strip() or line.startswith("#"):
                continue
            match = _LINE.fullmatch(line.strip())
            if match is None:
                raise _damaged(path, f"line {number} is not '<key id> <key>'")
            key_id = int(match[1], 16)
            if key_id in keys:
                raise _damaged(path, f"line {number} repeats a key id")
            keys[key_id] = base64.b64decode(match[2], validate=True)
    except (UnicodeDecodeError, binascii.Error):
        raise _damaged(path, "it is not ASCII text") from None
    if not 0 < len(keys) <= KEYS_MAX:
        raise _damaged(path, f"it holds {len(keys)} keys, not 1 to {KEYS_MAX}")
    return keys


def _damaged(path: Path, why: str) -> AuthError:
    return AuthError(AuthCode.DAMAGED, f"{path} is not a key file: {why}")
