"""The file system that holds a path: what a disk may be asked for depends on it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

_MOUNTS: Final = Path("/proc/self/mountinfo")
_UNKNOWN: Final = "unknown"
_ESCAPED: Final = re.compile(r"\\([0-7]{3})")


def file_system_of(path: Path) -> str:
    """The type of the file system that holds `path`, as Linux names it; "unknown" elsewhere."""
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return _UNKNOWN
    return type_in(mounts, str(path.resolve()))


def type_in(mounts: str, target: str) -> str:
    """The same of an absolute path without links, by the text of a mountinfo (proc(5))."""
    # 36 35 98:0 / /mnt/a\040b rw,noatime master:1 - ext3 /dev/root rw
    found, kind = "", _UNKNOWN
    for line in mounts.splitlines():
        left, _, right = line.partition(" - ")
        mount = _ESCAPED.sub(lambda code: chr(int(code[1], 8)), left.split()[4])
        is_inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if is_inside and len(mount) >= len(found):
            found, kind = mount, right.split()[0]
    return kind
