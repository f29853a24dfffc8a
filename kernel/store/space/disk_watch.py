"""Free space of the volume: measured in a thread, judged in the loop.

    free bytes    >= 2 * mark   ok
                  >= mark       low: an alarm, nothing is refused yet
                  <  mark       full: new messages are refused, settlements and consumption go on

The mark is min(15 % of the volume, 5 GiB) unless it is set (docs/design/storage.md#a-full-disk).
Asking a volume for its room blocks as long as the volume likes, so the loop never does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from ...common.ports import Disk
from ..drivers.worker import Runner

RESERVE_SHARE = 0.15
RESERVE_BYTES_MAX = 5 * 1024**3
"""New messages are refused below min(15 % of the volume, 5 GiB) free
(docs/design/storage.md#a-full-disk)."""

ALARM_FACTOR = 2
"""The alarm is raised at so many times the mark (docs/design/storage.md#a-full-disk)."""


class DiskLevel(Enum):
    """What the free space means."""

    OK = "ok"
    LOW = "low"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The volume as last measured (once a second)."""

    free_bytes: int
    total_bytes: int
    mark_bytes: int
    """New messages are refused with less free."""

    @property
    def level(self) -> DiskLevel:
        """Whether there is room, little, or too little."""
        if self.free_bytes < self.mark_bytes:
            return DiskLevel.FULL
        return DiskLevel.LOW if self.free_bytes < ALARM_FACTOR * self.mark_bytes else DiskLevel.OK


class DiskWatch:
    """Measures one volume. The first measurement is made at once, and blocks."""

    def __init__(
        self,
        disk: Disk,
        runner: Runner,
        changed: Callable[[], None],
        mark_bytes: int | None = None,
        look_too: Callable[[], None] = lambda: None,
    ) -> None:
        """`look_too`: what else the thread looks at, as often."""
        self._disk = disk
        self._look_too = look_too
        self._runner = runner
        self._changed = changed
        self._mark_bytes = mark_bytes
        self._looking = False
        self._seen = self.space = self._measured()

    def look(self) -> None:
        """Measure in the thread, then call `changed`. While a measurement hangs: nothing."""
        if not self._looking:
            self._looking = True
            self._runner.submit(self._measure, self._measured_once)

    def _measure(self) -> None:
        """Ask the file system for free space, in a thread."""
        self._seen = self._measured()
        self._look_too()

    def _measured(self) -> DiskSpace:
        free, total = self._disk.free_bytes(), self._disk.total_bytes()
        mark = self._mark_bytes
        if mark is None:
            mark = min(int(total * RESERVE_SHARE), RESERVE_BYTES_MAX)
        return DiskSpace(free, total, mark)

    def _measured_once(self, error: BaseException | None) -> None:
        """Loop: a volume that cannot be asked is left at what it said last."""
        self._looking = False
        if error is None:
            self.space = self._seen
            self._changed()
