"""Who holds what, as it will be once the moves under way are made; a plan changes it move by move.

A store's *share* of a figure (bytes written, read, live) is what it should have of what there is,
by its capacity. How far it is off is said in shares: 0.1 is a tenth too much. A figure that takes
little of the cluster's capacity matters little: shares are taken for NEGLIGIBLE of the capacity at
least, so that nothing moves for the sake of what is nearly nothing, and group 0 not for any load. A
data group without load counts as LEAST of what a store can do, or if stores have so few of them
that this would come to less than NEGLIGIBLE, as much as makes that: so groups are spread by number
where there is no load yet.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from math import ceil

from ...common.ids import METADATA_GROUP
from .view import NO_LOAD, GroupView, Kind, Move, StoreState, StoreView

FIGURES = ("written", "read", "live")
WRITTEN, READ, LIVE = range(3)

START = 0.12
"""A store that is off by more has something moved."""

SETTLED = 0.05
"""A store that joins takes what is there until it is so near its share."""

NEGLIGIBLE = 0.05

LEAST = (0.002, 0.005)
"""Of what a store can write: a replica; of what it can send: a leader. With ten replicas each, one
more or less is not worth a move, two are."""

FULL = 0.85
"""No store is given a replica that would fill more of its disk."""

Figures = tuple[float, float, float]


class Member:
    """A store that has a share: it is in, or joining. Changed by `Holdings` alone."""

    __slots__ = ("capacity", "off", "room", "share", "view")

    def __init__(self, view: StoreView) -> None:
        self.view = view
        self.capacity: list[float] = [*view.capacity]
        self.share = [0.0, 0.0, 0.0]
        """What it should have."""
        self.off = [0.0, 0.0, 0.0]
        """What it has beyond that."""
        self.room = view.capacity.live * FULL
        """Bytes that it may still be given."""


class Holdings:
    """See the module's head. Groups, members and leaders as they will be."""

    def __init__(
        self, stores: Mapping[int, StoreView], groups: Iterable[GroupView], moving: Iterable[Move]
    ) -> None:
        self.stores = stores
        self.groups = {each.number: each for each in sorted(groups, key=lambda each: each.number)}
        self.members = {each: list(group.members) for each, group in self.groups.items()}
        self.leaders = {
            each: group.leader if group.leader in answering(stores, group.members) else 0
            for each, group in self.groups.items()
        }
        """0: none that could have anything done."""
        self.held: dict[int, dict[int, None]] = {number: {} for number in stores}
        """Groups by store."""
        self.able = {
            number: Member(view)
            for number, view in stores.items()
            if view.state in (StoreState.IN, StoreState.JOINING)
        }
        self._spread()
        self._measure()
        for move in moving:
            self.make(move)

    def _spread(self) -> None:
        """How many replicas of a group may share a host, and a zone, if it has `want` of them."""
        hosts = {each.view.host for each in self.able.values()}
        zones: defaultdict[str, float] = defaultdict(float)
        for each in self.able.values():
            zones[each.view.zone] += each.view.capacity.live
        # A zone that is much smaller than others would be filled by a replica of every group.
        fair = sum(zones.values()) / max(1, len(zones)) / 2
        self.hosts = max(1, len(hosts))
        self.zones = max(1, sum(each >= fair for each in zones.values()))

    def _measure(self) -> None:
        """What each store holds, and should."""
        count = max(1, len(self.able))
        total = [sum(each.capacity[figure] for each in self.able.values()) for figure in range(3)]
        data = [each for group, each in self.members.items() if group != METADATA_GROUP]
        counts = sum(map(len, data)), len(data)
        replica_least, leader_least = (
            max(each, NEGLIGIBLE * count / max(1, there)) * all_can / count
            for each, there, all_can in zip(LEAST, counts, total, strict=False)
        )
        self.replica_loads: dict[int, Figures] = {}
        """What a replica of each group brings to its store."""
        self.leader_loads: dict[int, Figures] = {}
        """What leading it brings besides."""
        used = [0.0, 0.0, 0.0]
        for number, members in self.members.items():
            load = self.groups[number].load
            written = max(load.written, replica_least)
            read = max(load.read, leader_least)
            if number == METADATA_GROUP:
                # It is small, and whoever leads it has the cluster to look after.
                load, written, read = NO_LOAD, 0.0, 0.0
            self.replica_loads[number] = written, 0.0, load.live
            self.leader_loads[number] = 0.0, read, 0.0
            for store in members:
                if store in self.held:
                    self.held[store][number] = None
                if store in self.able:
                    self.able[store].room -= load.live
            used[WRITTEN] += written * len(members)
            used[READ] += read
            used[LIVE] += load.live * len(members)
        mean = [
            use / capacity if capacity else 0.0 for use, capacity in zip(used, total, strict=True)
        ]
        self.unit = [max(each, NEGLIGIBLE) for each in mean]
        """By figure: the part of a capacity that "all of a share" is."""
        self.scale = [
            count / (capacity * unit * unit) if capacity else 0.0
            for capacity, unit in zip(total, self.unit, strict=True)
        ]
        for each in self.able.values():
            each.share = [capacity * of for capacity, of in zip(each.capacity, mean, strict=True)]
            each.off = [-share for share in each.share]
        for number, members in self.members.items():
            for store in members:
                self._add(store, self.replica_loads[number])
            self._add(self.leaders[number], self.leader_loads[number])

    # --- Figures ----------------------------------------------------------------------------

    def off_by(self, store: Member) -> list[float]:
        """By figure: how far a store is off its share, in shares."""
        return [
            off / (capacity * unit)
            for off, capacity, unit in zip(store.off, store.capacity, self.unit, strict=True)
        ]

    def gain(self, load: Figures, to: Member | None, gone: Member | None) -> float:
        """By how much the cluster is more even once a load has moved; below 0: less. None: that end
        has no share. The measure is the sum over stores and figures of how far they are off,
        squared (hot).
        """
        gain = 0.0
        for figure in range(3):
            moved = load[figure]
            if moved:
                change = 0.0
                if gone is not None:
                    change += (2 * gone.off[figure] - moved) / gone.capacity[figure]
                if to is not None:
                    change -= (2 * to.off[figure] + moved) / to.capacity[figure]
                gain += self.scale[figure] * moved * change
        return gain

    def extremes(self) -> tuple[list[float], list[float]]:
        """By figure: of all stores the least, and the most, that one is off, in capacities."""
        offs = [
            [store.off[figure] / store.capacity[figure] for store in self.able.values()]
            for figure in range(3)
        ]
        return [min(each, default=0.0) for each in offs], [max(each, default=0.0) for each in offs]

    def gain_at_most(self, load: Figures, one: Member, other: list[float], sign: int) -> float:
        """No move of a load has more gain than this if `one` end is known, and of the other only
        that no store is further off than `other`. `sign` 1: `one` is where it goes from (hot).
        """
        gain = 0.0
        for figure in range(3):
            moved = load[figure]
            if moved:
                off = one.off[figure] / one.capacity[figure] - other[figure]
                cost = moved / one.capacity[figure]
                gain += self.scale[figure] * moved * (2 * sign * off - cost)
        return gain

    # --- Moves ------------------------------------------------------------------------------

    def make(self, move: Move) -> None:
        """A move is made, or as good as made."""
        if move.group not in self.groups:
            return
        load = self.replica_loads[move.group]
        members = self.members[move.group]
        if move.kind is Kind.LEAD:
            self._lead(move.group, move.to)
            return
        if move.gone in members:
            members.remove(move.gone)
            self.held.get(move.gone, {}).pop(move.group, None)
            self._add(move.gone, load, -1)
        if move.copies and move.to not in members:
            members.append(move.to)
            if move.to in self.held:
                self.held[move.to][move.group] = None
            self._add(move.to, load)
            if move.to in self.able:
                self.able[move.to].room -= self.groups[move.group].load.live
        if self.leaders[move.group] not in (0, *members):
            self._lead(move.group, min(members, default=0))

    def _lead(self, group: int, to: int) -> None:
        load = self.leader_loads[group]
        self._add(self.leaders[group], load, -1)
        self._add(to, load)
        self.leaders[group] = to

    def _add(self, number: int, load: Figures, times: int = 1) -> None:
        store = self.able.get(number)
        if store is not None:
            for figure in range(3):
                store.off[figure] += times * load[figure]

    # --- Where another replica may be -------------------------------------------------------

    def crowding(self, group: int, store: int, want: int, gone: int = 0) -> tuple[int, int]:
        """How many replicas too many a store's host, and its zone, would have with one of this
        group, `gone` being no more; (0, 0): as far apart as stores allow.
        """
        view = self.stores[store]
        host = zone = 1
        for each in self.members[group]:
            other = self.stores.get(each)
            if other is not None and each not in (store, gone):
                host += other.host == view.host
                zone += other.zone == view.zone
        return max(0, host - ceil(want / self.hosts)), max(0, zone - ceil(want / self.zones))

    def targets(self, group: int, busy: Mapping[int, int], busy_max: int) -> list[int]:
        """Stores that can be given a replica of a group now. `busy`: what each receives already."""
        members, live = self.members[group], self.groups[group].load.live
        return [
            number
            for number, store in self.able.items()
            if store.view.answers
            and store.room >= live
            and number not in members
            and busy.get(number, 0) < busy_max
        ]


def answering(stores: Mapping[int, StoreView], members: Sequence[int]) -> list[int]:
    """Of a group's members those that answer."""
    return [
        each
        for each in members
        if each in stores and stores[each].answers and stores[each].state is not StoreState.GONE
    ]
