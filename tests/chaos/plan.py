"""Which faults and changes a run has: all follows from a seed and what the site can suffer."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

PAUSE_SECONDS = 5.0
"""Longer than the longest election timeout by default: others take over meanwhile."""

CUT_SECONDS = (3.0, 8.0)
"""From shorter to longer than the silence after which a connection counts as broken (5 s)."""


FULL_SECONDS = 12.0
"""A checkpoint, every 10 s, falls into it."""


class Kind(Enum):
    """A fault, or a change that an operator asks for."""

    KILL_LEADER = "kill -9 of the leader"
    KILL_FOLLOWER = "kill -9 of a follower"
    KILL_GATEWAY = "kill -9 of a gateway"
    KILL_ALL = "kill -9 of every process at once"
    PAUSE_LEADER = "SIGSTOP of the leader"
    PAUSE_FOLLOWER = "SIGSTOP of a follower"
    PAUSE_GATEWAY = "SIGSTOP of a gateway"
    CUT_STORES = "leader and other stores cut off from each other"
    CUT_STORES_ONE_WAY = "what the leader says does not reach the other stores"
    CUT_GATEWAY = "a gateway cut off from the leader"
    CUT_GATEWAY_ONE_WAY = "what the leader says does not reach a gateway"
    SYNC_ERROR_LEADER = "fdatasync of the leader fails with EIO"
    SYNC_ERROR_FOLLOWER = "fdatasync of a follower fails with EIO"
    FULL_DISK = "the disk of a store is full"
    ROLLING_RESTART = "all processes restart, one after the other"
    ADD_STORE = "a store joins and takes its share"
    REMOVE_STORE = "a store gives everything away and leaves"
    RESIZE = "topics get 16 queues, then 4"
    SPREAD = "topics are spread over the groups"
    MOVE_HOT = "the leader of the busiest group, then a replica of it, move"
    ADD_GROUPS = "data groups are added"


CHANGES = frozenset(
    {
        Kind.ADD_STORE,
        Kind.REMOVE_STORE,
        Kind.RESIZE,
        Kind.SPREAD,
        Kind.MOVE_HOT,
        Kind.ADD_GROUPS,
    }
)
"""What an operator asks for while all is well: nobody is to notice."""

DURING = (Kind.KILL_LEADER, Kind.KILL_FOLLOWER, Kind.KILL_GATEWAY, Kind.CUT_STORES)
"""Faults that come in the middle of changes."""


@dataclass(frozen=True, slots=True)
class Round:
    """One fault, or one change."""

    number: int
    kind: Kind
    group: int
    """Whose leader is meant: data groups from 1; 0: who manages the cluster."""
    pick: int
    """Which of those that the kind leaves to choose from, by remainder."""
    seconds: float
    """How long it lasts, of what lasts."""
    before: float
    """Seconds of load ahead of it."""
    during: Kind | None = None
    """The fault in the middle of a change."""

    @property
    def name(self) -> str:
        """For people."""
        middle = f", in the middle of it {self.during.value}" if self.during else ""
        return f"{self.kind.value}{middle}"

    def __str__(self) -> str:
        return f"{self.name} (group {self.group}, choice {self.pick}, {self.seconds:.1f} s)"


def plan(seed: int, rounds: int, kinds: Sequence[Kind], groups: int) -> list[Round]:
    """A run. Every kind comes before any comes again; every other change has a fault in the middle
    of it, by chance.
    """
    chance = random.Random(seed)
    made: list[Round] = []
    deck: list[Kind] = []
    for number in range(rounds):
        if not deck:
            deck = sorted(kinds, key=lambda kind: kind.name)
            chance.shuffle(deck)
        kind = deck.pop()
        group, pick = chance.randrange(groups + 1), chance.randrange(6)
        cut, before = chance.uniform(*CUT_SECONDS), chance.uniform(0.5, 2.0)
        seconds = FULL_SECONDS if kind is Kind.FULL_DISK else cut
        if kind.name.startswith("PAUSE"):
            seconds = PAUSE_SECONDS
        during = None
        if kind in CHANGES and chance.random() < 0.5:
            during = chance.choice(DURING)
        made.append(Round(number, kind, group, pick, seconds, before, during))
    return made
