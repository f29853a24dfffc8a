"""What a process is made to do before it syncs data of a file, by whichever system call."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

from kernel.common.ports import Written
from kernel.log.format.files import write_all
from kernel.store.drivers.disk import DiskFile
from kernel.store.drivers.write_ring import WriteRing


def before_syncs(action: Callable[[int], None]) -> None:
    """From now on `action(descriptor)` is called first, and what it raises takes the sync's place.
    Of a write that syncs nothing is written then, which nobody may find out either.
    """
    fdatasync, pwritev, begin = os.fdatasync, os.pwritev, WriteRing.begin

    def synced(descriptor: int) -> None:
        action(descriptor)
        fdatasync(descriptor)

    def written(descriptor: int, buffers: Sequence[bytes], offset: int, flags: int = 0) -> int:
        if flags & os.RWF_DSYNC:
            action(descriptor)
        return pwritev(descriptor, buffers, offset, flags)

    def begun(
        ring: WriteRing, file: DiskFile, buffers: Sequence[bytes], offset: int, done: Written
    ) -> bool:
        def write() -> None:
            if not begin(ring, file, buffers, offset, done):
                write_all(file, buffers, offset, synced=True)
                ring._loop.call_soon(done, None)

        def first() -> None:
            try:
                action(file.descriptor)
            except OSError as error:
                ring._loop.call_soon_threadsafe(done, error)
            else:
                ring._loop.call_soon_threadsafe(write)

        threading.Thread(target=first, daemon=True).start()
        return True

    os.fdatasync, os.pwritev, WriteRing.begin = synced, written, begun  # type: ignore[method-assign]
