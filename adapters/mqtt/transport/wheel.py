"""A timing wheel: many deadlines, looked at once a tick, without a timer each.

An entry waits in the slot of the tick in which its deadline falls. A deadline that has moved
meanwhile (every packet moves a keep alive) is found out when the slot comes up, and costs one new
entry; a packet costs nothing. Times are milliseconds of any monotonic clock.
"""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar


class Timed(Protocol):
    """Something with a deadline."""

    wheel_tick: int
    """Where it waits; 0: nowhere. The wheel's own."""


TimedT = TypeVar("TimedT", bound=Timed)


class TimingWheel(Generic[TimedT]):
    """Entries by the tick at which to look at them."""

    def __init__(self, tick_ms: int, now_ms: int) -> None:
        self._tick_ms = tick_ms
        self._slots: dict[int, set[TimedT]] = {}
        self._now = now_ms // tick_ms

    def put(self, entry: TimedT, deadline_ms: int) -> None:
        """Have `entry` come up at its deadline, at most a tick late; replaces an earlier place."""
        self.remove(entry)
        # At the deadline's own tick it may not have passed yet.
        tick = max(deadline_ms // self._tick_ms + 1, self._now + 1)
        entry.wheel_tick = tick
        self._slots.setdefault(tick, set()).add(entry)

    def remove(self, entry: TimedT) -> None:
        """Forget an entry. Idempotent."""
        tick, entry.wheel_tick = entry.wheel_tick, 0
        slot = self._slots.get(tick)
        if slot is not None:
            slot.discard(entry)
            if not slot:
                del self._slots[tick]

    def due(self, now_ms: int) -> list[TimedT]:
        """What has come up since the last call, taken out of the wheel."""
        found: list[TimedT] = []
        until = now_ms // self._tick_ms
        for tick in range(self._now + 1, until + 1):
            slot = self._slots.pop(tick, None)
            if slot is not None:
                found.extend(slot)
        self._now = max(self._now, until)
        for entry in found:
            entry.wheel_tick = 0
        return found
