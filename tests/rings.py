"""Whether this machine lets a process have an io_uring: its tests are skipped where it does not."""

from __future__ import annotations

import asyncio

from kernel.store.drivers.write_ring import open_ring


def _has_rings() -> bool:
    loop = asyncio.new_event_loop()
    try:
        ring = open_ring(loop)
        if ring is None:
            return False
        ring.close()
        return True
    finally:
        loop.close()


HAS_RINGS = _has_rings()
