"""Which file system holds a path: what a disk may be asked for depends on it."""

from __future__ import annotations

from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_UNKNOWN = "unknown"


def file_system_of(path: Path) -> str:
    """The type of the file system that holds `path`, as Linux names it; "unknown" elsewhere."""
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return _UNKNOWN
    found, kind = "", _UNKNOWN
    target = str(path.resolve())
    for line in mounts.splitlines():
        # 36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw (proc(5))
        left, _, right = line.partition(" - ")
        mount = left.split()[4]
        is_inside = target == mount or target.startswith(mount.rstrip("/") + "/")
        if is_inside and len(mount) >= len(found):
            found, kind = mount, right.split()[0]
    return kind
