"""What of a batch goes to one Raft group: slots once, and runs that refer to them by queue.

    slots    0  1  2  3  4          runs    queue 7: [0, 3)    queue 9: [2, 4)
             lengths, buffers                        features of each

A run grows while the slots of a queue lie side by side and are counted alike.
"""

from __future__ import annotations

from .broker.features import CLASSES, COPY, Feature
from .ids import QueueId, RaftGroup
from .model import QueueRef

RUN_SLOTS_MAX = 60_000
"""A run's count is a u16."""
_APART = int(Feature.DEDUPLICATE | Feature.KEY | Feature.DELAY) | COPY | CLASSES


class Part:
    """What goes to one Raft group."""

    __slots__ = (
        "buffers",
        "group",
        "last_runs",
        "lengths",
        "positions",
        "retained",
        "routed",
        "runs",
    )

    def __init__(self, group: RaftGroup) -> None:
        self.group = group
        self.runs: list[list[int]] = []
        """[queue, first slot, slots, features] runs; order matters only within a queue."""
        self.last_runs: dict[QueueId, list[int]] = {}
        """The last run of each queue that shares slots with others: a copy may join it."""
        self.lengths: list[int] = []
        self.buffers: list[bytes] = []
        self.positions: list[int] = []
        """Position in the batch of each slot."""
        self.retained: list[tuple[str, int]] = []
        """(tenant, slot) of the messages that are retained."""
        self.routed: list[list[object]] = []
        """`leader.Routed` of those whose lists the leader looks up."""


def refer(part: Part, ref: QueueRef, slot: int, features: int) -> None:
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
