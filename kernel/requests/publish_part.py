"""Messages for one Raft group: slots once, and runs that refer to them by queue.

    slots    0  1  2  3  4          runs    queue 7: [0, 3)    queue 9: [2, 4)
             lengths, buffers                        features of each

A run grows while the slots of a queue lie side by side and are counted alike.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..api.model import QueueRef
from ..broker.index.features import CLASSES, COPY, Feature
from ..common.ids import QueueId, RaftGroup

RUN_SLOTS_MAX = 60_000
"""A run's count is a u16."""
_APART = int(Feature.DEDUPLICATE | Feature.KEY | Feature.DELAY) | COPY | CLASSES


Routed = Sequence[object]
"""[tenant, name, first slot, slots, features] of messages that are published to a tree name, whose
lists the leader of the name's group looks up (`store.name_matching`)."""


class Part:
    """What `leader.Leader.publish` takes, over slots numbered from 0. Whoever takes it leaves it as
    it is: it may come again, to another leader too.
    """

    __slots__ = ("buffers", "lengths", "retained", "routed", "runs")

    def __init__(
        self,
        runs: Sequence[Sequence[int]],
        lengths: Sequence[int],
        buffers: Sequence[bytes],
        retained: Sequence[tuple[str, int]] = (),
        routed: Sequence[Routed] = (),
    ) -> None:
        self.runs = runs
        """[queue, first slot, slots, features] runs; order matters only within a queue."""
        self.lengths = lengths
        """Bytes of each slot."""
        self.buffers = buffers
        """What makes up the slots, one after the other: cut anywhere."""
        self.retained = retained
        """(tenant, slot) of the messages that are retained."""
        self.routed = routed
        """Those whose lists the leader looks up."""

    @property
    def size_bytes(self) -> int:
        """Bytes of its slots."""
        return sum(self.lengths)


class BatchPart(Part):
    """What of a batch goes to one Raft group: it grows with the batch."""

    __slots__ = ("group", "last_runs", "positions")

    def __init__(self, group: RaftGroup) -> None:
        # All that `Part` has, without the call: there is one for each batch.
        self.runs: list[list[int]] = []
        self.lengths: list[int] = []
        self.buffers: list[bytes] = []
        self.retained: list[tuple[str, int]] = []
        self.routed: list[Routed] = []
        self.group = group
        self.last_runs: dict[QueueId, list[int]] = {}
        """The last run of each queue that shares slots with others: a copy may join it."""
        self.positions: list[int] = []
        """Position in the batch of each slot."""


def refer(part: BatchPart, ref: QueueRef, slot: int, features: int) -> None:
    """Add a slot to the runs of a queue."""
    run = part.last_runs.get(ref.id)
    if run is None or not grows(run, slot, 1, features):
        run = part.last_runs[ref.id] = [ref.id, slot, 1, features]
        part.runs.append(run)


def grows(run: list[int], slot: int, count: int, features: int) -> bool:
    """Add slots that lie side by side to a run, if they may join: they are the next ones, and the
    features may differ (it then has zeros for what it lacks), but not in whether they ask for
    deduplication, nor in how they are counted.
    """
    if run[1] + run[2] != slot or run[2] + count > RUN_SLOTS_MAX or (run[3] ^ features) & _APART:
        return False
    run[2] += count
    run[3] |= features
    return True
