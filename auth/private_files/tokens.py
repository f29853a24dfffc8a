"""The admin token: what the admin API asks for, and the command line reads from the data directory.

    DATA/admin.token   mode 0600, one line, made at the first start, kept over restarts

Whoever can read the file may do everything: it is for the user that runs the server. Deleting it
while the server is stopped makes a new one at the next start.
"""

from __future__ import annotations

import base64
import os
import re
from hashlib import sha256
from hmac import compare_digest
from typing import TYPE_CHECKING

from ..errors import AuthCode, AuthError
from .files import read_or_create_private, read_private

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOKEN_FILE = "admin.token"  # noqa: S105 - the name of a file
TOKEN_BYTES = 32

_FORM = re.compile(rb"[A-Za-z0-9_-]{43}")


class AdminToken:
    """The token of one data directory."""

    __slots__ = ("_digest", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._digest = sha256(text.encode()).digest()

    def __repr__(self) -> str:
        return "AdminToken(...)"

    def matches(self, presented: bytes) -> bool:
        """Whether a client presented this token. Takes the same time for any wrong one."""
        return compare_digest(sha256(presented).digest(), self._digest)


def open_admin_token(
    data_directory: Path, random_bytes: Callable[[int], bytes] = os.urandom
) -> AdminToken:
    """The server's side: reads the token, or makes one.

    Raises AuthError UNSAFE_FILE if others may read the file, DAMAGED if it holds no token.
    """
    path = data_directory / TOKEN_FILE

    def make() -> bytes:
        return base64.urlsafe_b64encode(random_bytes(TOKEN_BYTES)).rstrip(b"=") + b"\n"

    return _parse(path, read_or_create_private(path, make))


def read_admin_token(data_directory: Path) -> AdminToken:
    """The command line's side: reads the token of a running server. Root reads that of a server
    which another user runs: to make the file root's would keep it from the server.

    Raises FileNotFoundError, or AuthError UNSAFE_FILE or DAMAGED.
    """
    path = data_directory / TOKEN_FILE
    return _parse(path, read_private(path, by_root=True))


def _parse(path: Path, data: bytes) -> AdminToken:
    text = data.strip()
    if _FORM.fullmatch(text) is None:
        message = f"{path} holds no token. Delete it and start the server again: it makes a new one"
        raise AuthError(AuthCode.DAMAGED, message)
    return AdminToken(text.decode())
