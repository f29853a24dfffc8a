"""What placement is decided by, and what it says: values, without rules."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple


class Load(NamedTuple):
    """What a replica costs the store that it is in, or what a store can do. The figures of groups
    are averages over hours: a move takes minutes, and one for what lasts minutes is in vain.
    """

    written: float = 0.0
    """Bytes a second that each replica writes."""
    read: float = 0.0
    """Bytes a second that leave the leader, to consumers and to followers. A follower has none."""
    live: float = 0.0
    """Bytes that each replica keeps."""


NO_LOAD = Load()


class StoreState(StrEnum):
    """What is to become of a store."""

    IN = "in"
    JOINING = "joining"
    """It takes its share; when it has that, `Plan.settled` says so."""
    LEAVING = "leaving"
    """What it holds goes elsewhere; it is there until then."""
    GONE = "gone"
    """Nothing that it held will come back. A store that is not named is the same."""


@dataclass(frozen=True, slots=True)
class StoreView:
    """One store."""

    number: int
    capacity: Load
    """What it can write and send a second, and keep: each above 0."""
    host: str
    """What fails with it is named alike."""
    zone: str = ""
    """A larger thing that fails at once: a rack, a building."""
    state: StoreState = StoreState.IN
    answers: bool = True
    """False: it may come back; until then it is given nothing."""


@dataclass(frozen=True, slots=True)
class GroupView:
    """One Raft group."""

    number: int
    members: tuple[int, ...]
    """Numbers of the stores with a replica of it, learners not among them."""
    leader: int
    """One of them; 0: none is known."""
    load: Load = NO_LOAD


class Kind(StrEnum):
    """What is to be done."""

    ADD = "add"
    """`to` becomes a learner, then a voter."""
    REMOVE = "remove"
    """`gone` leaves."""
    REPLACE = "replace"
    """`to` becomes a learner; then it votes and `gone` leaves in one, joint step."""
    LEAD = "lead"
    """`to`, which is a voter, leads."""


class Reason(StrEnum):
    """Why it is to be done."""

    LOST = "lost"
    """A replica was in a store that is gone."""
    SHORT = "short"
    """There are fewer replicas than there should be."""
    LEAVES = "leaves"
    """Its store leaves."""
    TOGETHER = "together"
    """Replicas are where one failure ends several of them."""
    SURPLUS = "surplus"
    """There are more replicas than there should be."""
    JOINS = "joins"
    """A store takes its share."""
    UNEVEN = "uneven"
    """One store has more to do than others, or less."""


@dataclass(frozen=True, slots=True)
class Move:
    """One step of one group."""

    kind: Kind
    group: int
    reason: Reason
    why: str
    """For people: the reason with its figures."""
    to: int = 0
    gone: int = 0
    copied: float = 0.0
    """Bytes that `to` has to be sent."""
    rate: float = 0.0
    """Bytes a second that it may be sent at most."""

    @property
    def copies(self) -> bool:
        """Whether a store is sent all that the group has."""
        return self.kind in (Kind.ADD, Kind.REPLACE)


@dataclass(frozen=True, slots=True)
class Pace:
    """What moves may take at a time."""

    copies: int = 8
    """Groups that are copied at once."""
    store_copies: int = 2
    """Of these, how many one store receives, and how many it sends."""
    steps: int = 4
    """Moves that copy nothing, at once: each makes clients look for a leader, or may."""
    bytes_a_second: float = 64e6
    """Of all copies together."""

    @property
    def rate(self) -> float:
        """Bytes a second of one copy: what all may have, divided by how many there may be."""
        return self.bytes_a_second / self.copies


@dataclass(slots=True)
class Plan:
    """What is to be done next, and what is to be said."""

    moves: list[Move] = field(default_factory=list)
    """To be begun now, all of them, in any order: no two are of one group."""
    cancelled: list[Move] = field(default_factory=list)
    """Of those under way: they lead to a store that will not be there."""
    short: dict[int, str] = field(default_factory=dict)
    """Groups with fewer replicas than they should have, and what is wrong."""
    closed: set[int] = field(default_factory=set)
    """Groups that get no new queues: there are stores for another replica of them."""
    settled: list[int] = field(default_factory=list)
    """Stores that were joining and have their share."""
    problems: list[str] = field(default_factory=list)
    """What no move mends."""
    staying: dict[int, str] = field(default_factory=dict)
    """Of them, by store: why one that leaves cannot now."""


def by_number(stores: Iterable[StoreView]) -> dict[int, StoreView]:
    """Stores, in order."""
    return {each.number: each for each in sorted(stores, key=lambda each: each.number)}
