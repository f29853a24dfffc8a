"""What a process is made to do before it syncs data of a file, by whichever system call."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence


def before_syncs(action: Callable[[int], None]) -> None:
    """From now on `action(descriptor)` is called first, and what it raises takes the sync's place.
    Of a write that syncs nothing is written then, which nobody may find out either.
    """
    fdatasync, pwritev = os.fdatasync, os.pwritev

    def synced(descriptor: int) -> None:
        action(descriptor)
        fdatasync(descriptor)

    def written(descriptor: int, buffers: Sequence[bytes], offset: int, flags: int = 0) -> int:
        if flags & os.RWF_DSYNC:
            action(descriptor)
        return pwritev(descriptor, buffers, offset, flags)

    os.fdatasync, os.pwritev = synced, written
