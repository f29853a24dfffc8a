"""The real clock and randomness."""

from __future__ import annotations

import secrets
import time


class SystemClock:
    """`ports.Clock` of this machine."""

    def wall_ms(self) -> int:
        """Milliseconds since the epoch, UTC."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> int:
        """Milliseconds of the monotonic clock."""
        return time.monotonic_ns() // 1_000_000


class SystemRandom:
    """`ports.Random` from the operating system."""

    def bits(self, count: int) -> int:
        """A uniform integer of `count` bits."""
        return secrets.randbits(count)
