"""How much of an old entry is still needed, as far as a start knows: who weighs what was recovered.

What refers to an entry is counted anew at each start; how many messages it had, when all of them
were needed, only the entry says. Until it was asked it counts as wholly alive, and its segment as
one that is not worth a rewrite. So the heads of the large ones are read in the background, a
segment at a time. Entries that a rewrite made hold nothing but what was alive.
"""

from __future__ import annotations

from contextlib import suppress

from ...common.ports import Disk
from ..format.entry import HEAD, REWRITTEN
from ..format.files import segment_name
from ..format.record import HEADER_BYTES
from ..locations import Locations, Weighed

LENGTH_MIN = 4_096
"""Shorter records are left: they can hold little that is dead."""


class SurveyJob:
    """Reads the heads of some entries of one segment. `run` belongs to a thread."""

    __slots__ = ("_disk", "_places", "found", "number")

    def __init__(self, disk: Disk, number: int, places: list[tuple[int, int, int]]) -> None:
        self._disk = disk
        self.number = number
        self._places = places
        self.found: list[Weighed] = []

    def run(self) -> None:
        """Thread: one read of 24 bytes an entry. What does not read stays as it is: who needs a
        message of it will hear of the error.
        """
        with suppress(OSError):
            self._read()

    def _read(self) -> None:
        file = self._disk.open(segment_name(self.number))
        try:
            for group, index, offset in self._places:
                head = file.pread(HEAD.size, offset + HEADER_BYTES)
                if len(head) == HEAD.size:
                    _time, _version, flags, _batches, slots, _payload_at = HEAD.unpack(head)
                    if not flags & REWRITTEN:
                        self.found.append((group, index, offset, slots))
        finally:
            file.close()


def surveys(disk: Disk, locations: Locations) -> list[SurveyJob]:
    """What to ask after a recovery, newest segment first (to be popped from the end)."""
    places: dict[int, list[tuple[int, int, int]]] = {}
    for group, index, segment, offset in locations.large(LENGTH_MIN):
        places.setdefault(segment, []).append((group, index, offset))
    return [SurveyJob(disk, number, places[number]) for number in sorted(places, reverse=True)]
