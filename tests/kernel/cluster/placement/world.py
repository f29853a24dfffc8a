"""A cluster in which moves are made at once, and what a hundred thousand topics ask of it.

Topics have a Zipf distribution of load: the r-th one writes 1/r of what the first one does. Their
size has grown by itself already (issue 16), so that no queue takes more than QUEUE_PART of what a
store can do. What they keep and how often they are read varies by topic.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil
from random import Random

from kernel.cluster.placement.holdings import FIGURES, READ
from kernel.cluster.placement.planner import plan, wanted
from kernel.cluster.placement.view import (
    GroupView,
    Kind,
    Load,
    Move,
    Pace,
    Plan,
    StoreState,
    StoreView,
)
from kernel.common.ids import RaftGroup
from kernel.definitions.queue_placement import place_queues

CAPACITY = Load(written=100e6, read=120e6, live=370e9)
"""Of which the load below takes about a half, each."""
QUEUE_PART = 0.1
USED = 0.5
"""Of what all stores can write."""
ROUNDS_MAX = 2_000


@dataclass(slots=True)
class Made:
    """What came of planning until there was nothing left to do."""

    moves: list[Move]
    slowest_ms: float
    """Of one plan, CPU."""
    last: Plan

    def copied(self) -> float:
        return sum(each.copied for each in self.moves)

    def copies(self) -> int:
        return sum(each.copies for each in self.moves)


class PlacedCluster:
    """Stores and groups; what is planned is carried out."""

    def __init__(
        self,
        stores: int,
        groups: int,
        *,
        replicas: int = 3,
        zones: int = 1,
        pace: Pace | None = None,
        capacity: Load = CAPACITY,
    ) -> None:
        self.replicas = replicas
        self.pace = pace or Pace()
        self.capacity = capacity
        self.zones = zones
        self.stores: dict[int, StoreView] = {}
        self.groups: dict[int, GroupView] = {}
        for number in range(1, stores + 1):
            self.add_store(number, StoreState.IN)
        for group in range(1, groups + 1):
            count = wanted(group, replicas, stores)
            members = tuple((group + each) % stores + 1 for each in range(count))
            self.groups[group] = GroupView(group, members, members[0])

    def add_store(self, number: int, state: StoreState = StoreState.JOINING) -> None:
        zone = f"z{number % self.zones}" if self.zones > 1 else ""
        self.stores[number] = StoreView(number, self.capacity, f"h{number}", zone, state)

    def set_store(self, number: int, **changes: object) -> None:
        self.stores[number] = replace(self.stores[number], **changes)  # type: ignore[arg-type]

    def plan(self, moving: Sequence[Move] = ()) -> Plan:
        stores, groups = self.stores.values(), self.groups.values()
        return plan(stores, groups, self.replicas, moving, self.pace)

    def make(self, move: Move) -> None:
        """Carry a move out."""
        group = self.groups[move.group]
        members = [each for each in group.members if each != move.gone]
        if move.copies:
            assert move.to not in members
            members.append(move.to)
        leader = move.to if move.kind is Kind.LEAD else group.leader
        assert not members or leader in members, f"{move} would take the leader away"
        self.groups[move.group] = replace(group, members=tuple(members), leader=leader)

    def calm(self) -> Made:
        """Plan and carry out, half of what is under way at a time, until nothing is left to do."""
        made: list[Move] = []
        moving: list[Move] = []
        slowest = 0.0
        for _ in range(ROUNDS_MAX):
            begun = time.process_time()
            found = self.plan(moving)
            slowest = max(slowest, time.process_time() - begun)
            assert not found.cancelled
            for number in found.settled:
                self.set_store(number, state=StoreState.IN)
            moving += found.moves
            if not moving and not found.settled:
                return Made(made, slowest * 1000, found)
            done = ceil(len(moving) / 2)
            for move in moving[:done]:
                self.make(move)
            made += moving[:done]
            del moving[:done]
        raise AssertionError(f"moves go on and on; the last ones: {made[-9:]}")

    def lose(self, number: int) -> None:
        """A store is gone; others lead what it has led."""
        self.set_store(number, state=StoreState.GONE)
        for group in self.groups.values():
            if group.leader == number:
                leader = next((each for each in group.members if each != number), 0)
                self.groups[group.number] = replace(group, leader=leader)

    def spread(self) -> dict[str, float]:
        """By how much the store that is furthest off its share is off."""
        able = [each for each in self.stores.values() if each.state is not StoreState.GONE]
        found = {}
        for figure, name in enumerate(FIGURES):
            held = dict.fromkeys((each.number for each in able), 0.0)
            for group in self.groups.values():
                for each in (group.leader,) if figure == READ else group.members:
                    held[each] += group.load[figure]
            share = sum(held.values()) / len(held)
            found[name] = max(abs(each - share) for each in held.values()) / share
        return found

    # --- Load -------------------------------------------------------------------------------

    def load(self, topics: int, seed: int = 1) -> None:
        """Have so many topics used, with their queues where `place_queues` has them."""
        random = Random(seed)
        stores = len(self.stores)
        numbers = [RaftGroup(each) for each in sorted(self.groups)]
        first = self._first(topics)
        loads = {each: [0.0, 0.0, 0.0] for each in numbers}
        for rank in range(1, topics + 1):
            written = first / rank
            read = written * random.choice((1, 1, 1, 2, 3))
            live = written * random.choice((600, 3_600, 3_600, 7_200))
            part = max(written / self.capacity.written, live / self.capacity.live)
            queues = min(256, max(1, ceil(part / QUEUE_PART)))
            home = random.choice(numbers)
            for group in place_queues(home, numbers, queues):
                load = loads[group]
                load[0] += written / queues
                load[1] += read / queues
                load[2] += live / queues
        followers = min(self.replicas, stores) - 1
        for number, (written, read, live) in loads.items():
            load_now = Load(written, read + followers * written, live)
            self.groups[number] = replace(self.groups[number], load=load_now)

    def _first(self, topics: int) -> float:
        """What the busiest topic writes, for USED of all that stores can write."""
        stores = len(self.stores)
        all_can = stores * self.capacity.written * USED / min(self.replicas, stores)
        return all_can / sum(1 / rank for rank in range(1, topics + 1))

    def waver(self, by: float, seed: int) -> None:
        """Every figure changes a little."""
        random = Random(seed)
        for number, group in self.groups.items():
            load = Load(*(each * random.uniform(1 - by, 1 + by) for each in group.load))
            self.groups[number] = replace(group, load=load)
