"""Log time: the time that a leader stamps on entries (docs/design/delivery.md#time).

Starts at max(last log time, wall clock), advances with the monotonic clock and is slewed towards
the wall clock by at most 5 %, so that a jump of the wall clock never makes leases or TTLs run out
at once or never. A wall clock that is more than GAP_MS_MAX away is not believed by itself: the
other members of the group are asked (`wall_clocks`) before anything is stamped.
"""

from __future__ import annotations

from ...common.ports import Clock

SLEW = 20
"""At most one part in twenty faster or slower than the monotonic clock."""

GAP_MS_MAX = 60_000
"""Further away than this a wall clock is wrong, or everybody was down: others can tell which."""


class LogClock:
    """Log time of one group's leader, in milliseconds since the epoch. Never goes back."""

    def __init__(self, clock: Clock, last_ms: int) -> None:
        self._clock = clock
        self._mono_ms = 0
        self._now_ms = 0
        self._alone = True
        self.start_at(last_ms)

    def start_at(self, last_ms: int, *, alone: bool = True) -> bool:
        """A new leader begins where the log's time is, or at the wall clock's if that is later.
        False if that is too far ahead to be believed: the log's time goes on until `agree`.
        `alone`: there is nobody else to ask, and this clock is believed whatever it says.
        """
        self._mono_ms = self._clock.monotonic_ms()
        self._alone = alone
        wall = self._clock.wall_ms()
        believed = alone or not last_ms or wall - last_ms <= GAP_MS_MAX
        self._now_ms = max(last_ms, wall) if believed else last_ms
        return believed

    def reach(self, last_ms: int) -> None:
        """Entries of an earlier leader bear this time, as is known only now."""
        self._now_ms = max(self.now_ms(), last_ms)

    def agree(self, ahead_ms: int) -> None:
        """A majority's wall clocks are at least so far ahead of the monotonic clock: what their
        time is, log time is.
        """
        self.reach(self._clock.monotonic_ms() + ahead_ms)

    def monotonic_ms(self) -> int:
        """Time that passes on this machine alone."""
        return self._clock.monotonic_ms()

    def now_ms(self) -> int:
        """Log time now."""
        elapsed = self._clock.monotonic_ms() - self._mono_ms
        if elapsed < SLEW:
            return self._now_ms + max(elapsed, 0)
        self._mono_ms += elapsed
        self._now_ms += elapsed
        ahead = self._clock.wall_ms() - self._now_ms
        if self._alone or -GAP_MS_MAX <= ahead <= GAP_MS_MAX:
            most = elapsed // SLEW
            self._now_ms += max(-most, min(most, ahead))
        return self._now_ms

    def gap_ms(self) -> int:
        """How far the wall clock is ahead of log time (behind it, if negative): an alarm is due
        beyond GAP_MS_MAX.
        """
        return self._clock.wall_ms() - self.now_ms()
