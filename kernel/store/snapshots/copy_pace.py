"""How fast a store takes in what others send it to bring its replicas up. Pure."""

from __future__ import annotations

from collections.abc import Callable

PAUSE_SECONDS_MAX = 5.0
"""Between two questions: less than a leader's patience (`transfer.PATIENCE_MS`)."""


class CopyPace:
    """Of one store, whose snapshots come one at a time."""

    def __init__(self, now: Callable[[], float]) -> None:
        """`now`: seconds, monotonic."""
        self._now = now
        self._paid_at = 0.0
        self._bytes_per_second = 0

    def took(self, size_bytes: int, bytes_per_second: int) -> float:
        """Seconds to wait before more is asked for, after so much has come. `bytes_per_second`: 0:
        as fast as they come. If it is another one than before, what has come before is paid.
        """
        now = self._now()
        if bytes_per_second != self._bytes_per_second:
            self._bytes_per_second, self._paid_at = bytes_per_second, now
        if not bytes_per_second:
            return 0.0
        self._paid_at = max(self._paid_at, now) + size_bytes / bytes_per_second
        return min(self._paid_at - now, PAUSE_SECONDS_MAX)
