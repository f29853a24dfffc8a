"""Log time: the time that a leader stamps on entries (DESIGN.md 4 "Time").

Starts at max(last log time, wall clock), advances with the monotonic clock and is slewed towards
the wall clock by at most 5 %, so that a jump of the wall clock never makes leases or TTLs run out
at once or never.
"""

from __future__ import annotations

from ..ports import Clock

SLEW = 20
"""At most one part in twenty faster or slower than the monotonic clock."""


class LogClock:
    """Log time of one group's leader, in milliseconds since the epoch. Never goes back."""

    def __init__(self, clock: Clock, last_ms: int) -> None:
        self._clock = clock
        self._mono_ms = 0
        self._now_ms = 0
        self.start_at(last_ms)

    def start_at(self, last_ms: int) -> None:
        """A new leader begins where the log's time is, or at the wall clock's if that is later."""
        self._mono_ms = self._clock.monotonic_ms()
        self._now_ms = max(last_ms, self._clock.wall_ms())

    def now_ms(self) -> int:
        """Log time now."""
        elapsed = self._clock.monotonic_ms() - self._mono_ms
        if elapsed < SLEW:
            return self._now_ms + max(elapsed, 0)
        most = elapsed // SLEW
        ahead = self._clock.wall_ms() - (self._now_ms + elapsed)
        self._mono_ms += elapsed
        self._now_ms += elapsed + max(-most, min(most, ahead))
        return self._now_ms
