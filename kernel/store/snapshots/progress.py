"""How far a snapshot is on its way to this store, for people."""

from __future__ import annotations

from collections.abc import Callable

RATE_SECONDS = 5.0
"""Bytes a second are measured over at least so long, and shown until the next time is over."""


class Progress:
    """Of one group's snapshot. `clock()`: seconds, which only go on."""

    def __init__(self, sender: int, clock: Callable[[], float], *, hurries: bool = False) -> None:
        """`hurries`: it follows from another one, and comes as fast as it can."""
        self.hurries = hurries
        self.sender = sender
        """The store that it comes from."""
        self.begun = False
        """False: it waits for another group's."""
        self.file_bytes = 0
        self.file_bytes_total = 0
        """This and the next: 0 until the first answer, or the whole file, has come."""
        self.entries = 0
        self.entries_total = 0
        self.bytes = 0
        """Of the file and of entries; how many the entries have is known once they have come."""
        self._clock = clock
        self._offered = clock()
        self._mark = self._offered
        self._mark_bytes = 0
        self._rate = 0

    def begin(self) -> None:
        """It is this group's turn: nothing is counted for the time that it has waited."""
        self.begun = True
        self._mark = self._clock()

    def took_file(self, count: int, total: int) -> None:
        """A piece of the file has come; `total`: the file's bytes."""
        self.file_bytes += count
        self.file_bytes_total = total
        self._took(count)

    def took_entry(self, count: int) -> None:
        """An entry of so many bytes has come."""
        self.entries += 1
        self._took(count)

    def _took(self, count: int) -> None:
        self.bytes += count
        if self._clock() - self._mark >= RATE_SECONDS:
            self._rate, self._mark, self._mark_bytes = self.rate, self._clock(), self.bytes

    @property
    def rate(self) -> int:
        """Bytes a second of late: it falls while nothing comes."""
        past = self._clock() - self._mark
        if self._rate and past < RATE_SECONDS:
            return self._rate
        return int((self.bytes - self._mark_bytes) / max(past, 1.0))

    @property
    def seconds(self) -> int:
        """Since it was offered, the time that it has waited for its turn included."""
        return int(self._clock() - self._offered)
