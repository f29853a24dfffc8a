"""Files that only their owner may read: created whole or not at all, refused if others can read.

Create: a temporary file of mode 0600 in the same directory, write, fsync, link to its name (this
fails if the name exists, so that two starting processes agree on one), fsync of the directory.
Replace: the same with a rename. Read: refuses a file that group or others may touch, or that
another user owns.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import AuthCode, AuthError

if TYPE_CHECKING:
    from collections.abc import Callable

FILE_BYTES_MAX = 65_536
"""Keys, tokens and certificates are a few KB; anything larger is not one of ours."""


def create_private(path: Path, data: bytes) -> None:
    """Creates `path` with mode 0600, durably. Raises FileExistsError if the name is taken."""
    temporary = _write_temporary(path, data)
    try:
        os.link(temporary, path)
    finally:
        temporary.unlink()
    _sync_directory(path.parent)


def replace_private(path: Path, data: bytes) -> None:
    """Replaces or creates `path` with mode 0600, durably and at once."""
    temporary = _write_temporary(path, data)
    try:
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    _sync_directory(path.parent)


def read_private(path: Path, *, by_root: bool = False) -> bytes:
    """The content of a file that only its owner (this user, or root) may read. `by_root`: if this
    user is root, it may also belong to whom its directory does.

    Raises FileNotFoundError, or AuthError UNSAFE_FILE with the command that mends it, or DAMAGED
    if it is no file or larger than FILE_BYTES_MAX.
    """
    with path.open("rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise AuthError(AuthCode.DAMAGED, f"{path} is not a regular file")
        mode = stat.S_IMODE(status.st_mode)
        if mode & 0o077:
            message = f"{path} has mode {mode:04o}: others may use it. Run: chmod 600 {path}"
            raise AuthError(AuthCode.UNSAFE_FILE, message)
        user = os.geteuid()
        owners = {user, 0}
        if by_root and user == 0:
            owners.add(path.parent.stat().st_uid)
        if status.st_uid not in owners:
            message = (
                f"{path} belongs to another user ({status.st_uid}). Run this as that user, or: "
                f"sudo chown {user} {path}"
            )
            raise AuthError(AuthCode.UNSAFE_FILE, message)
        data = file.read(FILE_BYTES_MAX + 1)
    if len(data) > FILE_BYTES_MAX:
        raise AuthError(AuthCode.DAMAGED, f"{path} is larger than {FILE_BYTES_MAX} bytes")
    return data


def read_or_create_private(path: Path, make: Callable[[], bytes]) -> bytes:
    """The content of `path`, created from `make()` if there is none yet.

    Of several processes that start at once, one creates it and all read the same.
    """
    try:
        return read_private(path)
    except FileNotFoundError:
        pass
    with suppress(FileExistsError):
        create_private(path, make())
    return read_private(path)


def _write_temporary(path: Path, data: bytes) -> Path:
    # mkstemp makes it with mode 0600, whatever the umask.
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
