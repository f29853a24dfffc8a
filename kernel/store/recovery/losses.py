"""Losses: what this store has given up. Files in `lost/`, for whoever operates it to see, keep and
remove.

    lost/GGGG-INDEX.entry   the bytes of the record, as they stood in its segment
    lost/GGGG-INDEX.json    what stood in it, as far as that is known: `Loss`

They say so until somebody takes them away: nothing else depends on them.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from ...common.errors import UNDECODABLE
from ...common.ports import Disk
from ...log.format.files import read_all, replace_file
from ...log.hard_read import is_unread
from ...log.reading.aside import LOST_DIRECTORY, lost_name

ENDING = ".json"

LOST_ENTRIES_MAX = 1_000
"""Entries in `lost/` before a store stops giving up more by itself, and refuses to start: then it
is the disk, the memory or a cable that somebody has to see to, and what does not read today may
read tomorrow. Each is looked for in every queue's index, and keeps its bytes on the disk."""


def is_too_much(entries: int) -> bool:
    """Whether so many are for somebody to decide on."""
    return entries > LOST_ENTRIES_MAX


class LostMessages(msgspec.Struct, frozen=True):
    """The messages of one queue that a given-up entry had."""

    tenant: str
    topic: str
    queue: int
    offsets: tuple[tuple[int, int], ...]
    """(first, messages) each."""
    uids: tuple[str, ...]
    """Read from what does not match its sum: may be wrong; none if nothing could be made of it."""


class Loss(msgspec.Struct, frozen=True):
    """One log entry that was given up."""

    group: int
    index: int
    segment: int
    offset: int
    reason: str
    time_ms: int
    """Wall clock."""
    queues: tuple[LostMessages, ...]
    retained: tuple[tuple[str, str], ...] = ()
    """(tenant, name) each."""
    half_messages: int = 0
    dead_letters: int = 0

    @property
    def messages(self) -> int:
        """How many messages were lost with the entry, of all kinds."""
        queued = sum(count for each in self.queues for _first, count in each.offsets)
        return queued + len(self.retained) + self.half_messages + self.dead_letters


_decoder = msgspec.json.Decoder(Loss)


class Losses:
    """Everything in `lost/`, as this process knows it."""

    def __init__(self, disk: Disk) -> None:
        """Blocking; OSError. A file that is none of ours, or does not read, says nothing."""
        self._disk = disk
        self._known: dict[str, Loss] = {}
        self.watchers: list[Callable[[Loss], None]] = []
        """Each hears of what is given up from now on."""
        for name in self._names():
            try:
                self._known[name] = _decoder.decode(read_all(disk, name) or b"")
            except UNDECODABLE:
                continue
            except OSError as error:
                if not is_unread(error):
                    raise

    def _names(self) -> list[str]:
        names = self._disk.names(LOST_DIRECTORY)
        return [f"{LOST_DIRECTORY}/{name}" for name in names if name.endswith(ENDING)]

    def __len__(self) -> int:
        """Entries that were given up."""
        return len(self._known)

    @property
    def messages(self) -> int:
        """Messages that were in them, and somebody waited for."""
        return sum(each.messages for each in self._known.values())

    def all(self) -> list[Loss]:
        """Every known loss, by group and index."""
        return [each for _, each in sorted(self._known.items())]

    def get(self, group: int, index: int) -> Loss | None:
        """What is known of an entry; it may not have been carried out."""
        return self._known.get(lost_name(group, index, "json"))

    def write(self, loss: Loss) -> None:
        """Thread: have the disk say it. OSError."""
        content = msgspec.json.format(msgspec.json.encode(loss), indent=2)
        replace_file(self._disk, _name(loss), content)

    def add(self, loss: Loss) -> None:
        """It is written, and carried out."""
        self._known[_name(loss)] = loss
        for tell in self.watchers:
            tell(loss)

    def look(self) -> None:
        """Thread: forget what somebody has taken away. OSError."""
        if self._known:
            there = set(self._names())
            self._known = {name: each for name, each in self._known.items() if name in there}


def _name(loss: Loss) -> str:
    return lost_name(loss.group, loss.index, "json")
