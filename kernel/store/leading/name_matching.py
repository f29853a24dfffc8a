"""Name matching at a leader: which reference lists a message to a name of the topic tree gets into
(ADR 10).

A gateway without a store does not know the lists: it sends the name, and the leader of the name's
group looks them up in what it has applied. Whoever was told that it is subscribed has a list that
is applied here, so that no later publish misses it, through whatever gateway it comes.

How many lists each name has brought, or REFUSED, goes into the log with the batch, as its last
command, and is its last result. So a repeat hears what became of the first try, also from the next
leader: by then there may be room for what was refused, or other lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, cast

from ...api.model import QueueRef
from ...broker.index.features import COPY
from ...common.ids import RaftGroup
from ...requests.publish_part import Part, grows

REFUSED = -1
"""The tenant has as many retained messages as it may."""


class NameMatches(Protocol):
    """Who knows what the groups of this store have applied of the tree (`local_tree`)."""

    def lists_of(
        self, group: RaftGroup, tenant: str, name: str, *, retain: bool
    ) -> Sequence[QueueRef] | None:
        """Reference lists of a group that a name gets into; None: it may not be retained."""


class Matching:
    """The messages of one batch, with what its names add."""

    __slots__ = ("_last", "_runs", "counts", "part")

    def __init__(self, names: NameMatches, group: RaftGroup, part: Part) -> None:
        """The part stays as it is; what is stored (`self.part`) has its slots."""
        self._runs = list(part.runs)
        self.counts: list[int] = []
        """Of each name: how many lists it has brought, or REFUSED."""
        self._last: dict[int, list[int]] = {}
        """The last run added to each list."""
        asked = {slot for _, slot in part.retained}
        refused: set[int] = set()
        for each in part.routed:
            tenant, name, slot, count, bits = cast("tuple[str, str, int, int, int]", each)
            slots = range(slot, slot + count)
            retain = not asked.isdisjoint(slots)
            lists = names.lists_of(group, tenant, name, retain=retain)
            if lists is None:
                refused.update(slots)
                self.counts.append(REFUSED)
                continue
            self.counts.append(len(lists))
            for ref in lists:
                self._add(ref.id, slot, count, bits)
                bits |= COPY
        retained = part.retained
        if refused:
            self._drop(refused)
            retained = [each for each in retained if each[1] not in refused]
        self.part = Part(self._runs, part.lengths, part.buffers, retained)

    @property
    def refuses(self) -> bool:
        """Some may not be retained."""
        return REFUSED in self.counts

    def _add(self, queue: int, slot: int, count: int, bits: int) -> None:
        run = self._last.get(queue)
        if run is None or not grows(run, slot, count, bits):
            run = self._last[queue] = [queue, slot, count, bits]
            self._runs.append(run)

    def _drop(self, refused: set[int]) -> None:
        """Nothing is stored of what may not be retained."""
        runs, self._runs = self._runs, []
        for queue, slot, count, bits in runs:
            for each in range(slot, slot + count):
                if each not in refused:
                    self._runs.append((queue, each, 1, bits))
