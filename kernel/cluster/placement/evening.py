"""Which move makes the load more even: of all that would, what gains most for what it copies.

    a store is off its share by more than START, or joins and is below it by more than SETTLED; as
    long as one joins, the others wait
      read:                another replica of a group leads; if that gains nothing anywhere, a
                           replica goes where it could lead well, and leads at the next look
      written, live:       a follower goes to another store; if that gains nothing anywhere, another
                           leads a group first, and the replica that was its leader's goes next

Each move has to gain something, by one measure for all of them (`Holdings.gain`), which has a least
value: so they come to an end, and nothing goes to and fro.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from .holdings import FIGURES, LIVE, READ, SETTLED, START, WRITTEN, Figures, Holdings, Member
from .view import StoreState

GAIN_MIN = 0.001
"""In shares, squared: a store that is a tenth off and gets a hundredth nearer gains twice that."""

CROWDED = 0.2
"""No store is brought so far above its share, unless the one that gives is further above it: what
one figure needs would have to be taken away again for the sake of another."""

USUAL_JOINING, USUAL = 4.0, 1.0
"""Bytes of a usual group, so many times, are added to what a move copies when its gain is held
against that: many groups that are cheap to copy cost as well. Who joins is given large groups
sooner: its share has to be copied anyway."""

_DOES = {WRITTEN: "writes", READ: "sends", LIVE: "keeps"}


@dataclass(frozen=True, slots=True)
class Uneven:
    """A store that is off its share."""

    store: int
    figure: int
    """Index of FIGURES."""
    off: float
    """In shares; below 0: it has less."""

    @property
    def why(self) -> str:
        """For people."""
        than = "more" if self.off > 0 else "less"
        return f"store {self.store} {_DOES[self.figure]} {abs(self.off):.0%} {than} than its share"


@dataclass(frozen=True, slots=True)
class Found:
    """A move that gains something."""

    group: int
    to: int
    gone: int
    """Whose replica goes; for a move of a leader: who has led."""
    gain: float


def uneven(holdings: Holdings) -> list[Uneven]:
    """Every store that is too far off, the worst first; of those that join alone, if any does."""
    found: list[tuple[float, Uneven]] = []
    joining = {
        number: store
        for number, store in holdings.able.items()
        if store.view.state is StoreState.JOINING
    }
    bound = SETTLED if joining else START
    for number, store in (joining or holdings.able).items():
        for figure, off in enumerate(holdings.off_by(store)):
            most = START if off > 0 else bound
            if abs(off) > most:
                found.append((abs(off) / most, Uneven(number, figure, off)))
    found.sort(key=lambda each: (-each[0], each[1].store, each[1].figure))
    return [each for _, each in found]


class Evening:
    """Looks for moves."""

    def __init__(
        self, holdings: Holdings, wanted: Mapping[int, int], stays: AbstractSet[int]
    ) -> None:
        """`wanted`: replicas of each group; `stays`: groups that keep their leader."""
        self._holdings = holdings
        self._wanted = wanted
        self._stays = stays
        groups = holdings.groups.values()
        self._usual = max(1.0, sum(each.load.live for each in groups) / max(1, len(groups)))
        """Bytes of a group."""
        self._extremes = holdings.extremes()

    def changed(self) -> None:
        """A move was made."""
        self._extremes = self._holdings.extremes()

    def lead(self, off: Uneven, busy: AbstractSet[int]) -> Found | None:
        """Another leader, of a group that is not `busy`."""
        best: Found | None = None
        for group, to, gone in self._leads(off):
            if group in busy or group in self._stays:
                continue
            gain = self._lead_gain(group, to, gone)
            if gain > (best.gain if best is not None else GAIN_MIN):
                best = Found(group, to, gone, gain)
        return best

    def replica(
        self,
        off: Uneven,
        busy: AbstractSet[int],
        receiving: Mapping[int, int],
        receives_max: int,
        full: AbstractSet[int],
    ) -> Found | None:
        """A follower at another store. `receiving`: how many groups each is sent already; `full`:
        stores that can send no more.
        """
        holdings = self._holdings
        best: Found | None = None
        best_worth = 0.0
        is_joining = holdings.able[off.store].view.state is StoreState.JOINING
        usual = self._usual * (USUAL_JOINING if is_joining else USUAL)
        open_to = {
            number: store
            for number, store in holdings.able.items()
            if store.view.answers and receiving.get(number, 0) < receives_max
        }
        for group in self._candidates(off):
            leader = holdings.leaders[group]
            if group in busy or not leader or leader in full:
                continue
            cost = holdings.groups[group].load.live + usual
            if self._at_most(off, group) <= max(GAIN_MIN, best_worth * cost):
                continue
            for gone, to in self._replicas(off, group, open_to):
                gain = self._gain(off, group, to, gone, leader)
                worth = gain / cost
                if gain > GAIN_MIN and worth > best_worth and self._fits(group, to, gone):
                    best, best_worth = Found(group, to, gone, gain), worth
        return best

    def _candidates(self, off: Uneven) -> Iterable[int]:
        """Groups with a replica that could move for the sake of a store."""
        held = self._holdings.held[off.store]
        if off.off > 0:
            return held
        return (each for each in self._holdings.groups if each not in held)

    def _at_most(self, off: Uneven, group: int) -> float:
        """No move of a group for the sake of a store gains more."""
        holdings = self._holdings
        store, (least, most) = holdings.able[off.store], self._extremes
        if off.off < 0:
            gain = holdings.gain_at_most(holdings.replica_loads[group], store, most, -1)
            if off.figure == READ:
                gain += holdings.gain_at_most(holdings.leader_loads[group], store, most, -1)
            return gain
        if off.figure != READ:
            return holdings.gain_at_most(holdings.replica_loads[group], store, least, 1)
        gain = holdings.gain_at_most(holdings.leader_loads[group], store, least, 1)
        load = holdings.replica_loads[group]
        for figure in (WRITTEN, LIVE):
            most_off = 2 * (most[figure] - least[figure])
            gain += holdings.scale[figure] * load[figure] * most_off
        return gain

    def _gain(self, off: Uneven, group: int, to: int, gone: int, leader: int) -> float:
        holdings = self._holdings
        able = holdings.able
        gain = holdings.gain(holdings.replica_loads[group], able[to], able[gone])
        if off.figure == READ:
            # What it brings is had only once it leads: until then nothing may have become worse.
            gain = gain + self._lead_gain(group, to, leader) if gain > 0 else 0.0
        return gain

    def _lead_gain(self, group: int, to: int, gone: int) -> float:
        able = self._holdings.able
        load = self._holdings.leader_loads[group]
        return self._holdings.gain(load, able[to], able.get(gone))

    def _leads(self, off: Uneven) -> Iterator[tuple[int, int, int]]:
        """(group, to, from) of each that would mend it."""
        holdings = self._holdings
        for group in holdings.held[off.store]:
            leader = holdings.leaders[group]
            if off.off > 0 and leader == off.store:
                yield from ((group, each, leader) for each in self._able_to_lead(group, leader))
                continue
            able = self._able_to_lead(group, leader)
            if off.off < 0 and leader in holdings.able and off.store in able:
                yield group, off.store, leader

    def _able_to_lead(self, group: int, leader: int) -> list[int]:
        holdings = self._holdings
        return [
            each
            for each in holdings.members[group]
            if each != leader and each in holdings.able and holdings.able[each].view.answers
        ]

    def _replicas(
        self, off: Uneven, group: int, open_to: Mapping[int, Member]
    ) -> Iterator[tuple[int, int]]:
        """(from, to) of each follower of a group that could move for the sake of a store."""
        holdings = self._holdings
        members, leader = holdings.members[group], holdings.leaders[group]
        followers = [each for each in members if each != leader and each in holdings.able]
        if off.off < 0:
            if off.store in open_to:
                yield from ((each, off.store) for each in followers)
            return
        if off.figure != READ:
            followers = [each for each in followers if each == off.store]
        elif leader != off.store:
            return
        for to in open_to:
            if to not in members:
                yield from ((each, to) for each in followers)

    def _is_worse(self, load: Figures, to: int, gone: int) -> bool:
        """Whether a store would have too much that did not, and more than where it comes from."""
        holdings = self._holdings
        one, other = holdings.able[to], holdings.able[gone]
        for figure, moved in enumerate(load):
            unit = holdings.unit[figure]
            after = (one.off[figure] + moved) / (one.capacity[figure] * unit)
            if moved and after > max(CROWDED, other.off[figure] / (other.capacity[figure] * unit)):
                return True
        return False

    def _fits(self, group: int, to: int, gone: int) -> bool:
        """Whether there is room, and replicas would be as far apart as before."""
        holdings, want = self._holdings, self._wanted[group]
        if holdings.able[to].room < holdings.groups[group].load.live:
            return False
        if not holdings.able[gone].view.answers:
            return False
        if self._is_worse(holdings.replica_loads[group], to, gone):
            return False
        before = holdings.crowding(group, gone, want)
        return holdings.crowding(group, to, want, gone) <= before


def overload(holdings: Holdings, off: Uneven) -> str | None:
    """What is to be said of a store that no move mends; None: it has not much to do, or does not
    answer, so that nobody knows what it can do.
    """
    store = holdings.able[off.store]
    if off.off < 0 or not store.view.answers:
        return None
    used = (store.share[off.figure] + store.off[off.figure]) / store.capacity[off.figure]
    if used < BUSY:
        return None
    loads = {each: holdings.groups[each].load[off.figure] for each in holdings.held[off.store]}
    group = max(loads, key=lambda each: (loads[each], -each))
    part = loads[group] / store.capacity[off.figure]
    return (
        f"store {off.store} has {used:.0%} of what it can do ({FIGURES[off.figure]}), and no move "
        f"helps; group {group} alone is {part:.0%}: its queues need successors in other groups"
    )


BUSY = 0.8
"""Of a store's capacity: below that an uneven share harms nobody."""
