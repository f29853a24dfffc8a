"""What the manager has done next, of all that could be done for where replicas and leaders are.

    1  a replica was in a store that is gone   another takes its place; without another store: goes
    2  a store leaves                          another leads; then another has its replica; where
                                               there are only so few stores: goes
    3  fewer replicas than there should be     one more
    4  more                                    one less
    5  replicas where one failure ends two     one goes elsewhere
    6  uneven load                             leaders move; then followers (`evening`)

One move of a group at a time; 1 before all others, then by group. A group of which no majority
answers is left alone: nothing can be decided in it. What is planned depends on nothing but what is
given, whatever its order, and once the moves are made there are no more of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet

from ...common.ids import METADATA_GROUP
from .evening import Evening, Uneven, overload, uneven
from .holdings import READ, Holdings, answering
from .view import (
    GroupView,
    Kind,
    Move,
    Pace,
    Plan,
    Reason,
    StoreState,
    StoreView,
    by_number,
)

METADATA_REPLICAS = (3, 5)
"""Of group 0: the larger number where there are as many stores. It decides who belongs to the
cluster, and is small."""


def plan(
    stores: Iterable[StoreView],
    groups: Iterable[GroupView],
    replicas: int,
    moving: Collection[Move] = (),
    pace: Pace | None = None,
    stays: AbstractSet[int] = frozenset(),
) -> Plan:
    """The next moves. `replicas`: of each data group, odd; `moving`: moves that were planned before
    and are neither done nor given up; `stays`: groups whose leader an operator has chosen.
    """
    return _Planner(stores, groups, replicas, moving, pace or Pace(), stays).made()


def wanted(group: int, replicas: int, stores: int) -> int:
    """How many replicas a group should have if there are so many stores for them."""
    few, many = METADATA_REPLICAS
    if group == METADATA_GROUP:
        replicas = many if stores >= many else few
    return min(replicas, stores)


class _Planner:
    def __init__(
        self,
        stores: Iterable[StoreView],
        groups: Iterable[GroupView],
        replicas: int,
        moving: Collection[Move],
        pace: Pace,
        stays: AbstractSet[int],
    ) -> None:
        self._stores = by_number(stores)
        self._pace = pace
        self._replicas = replicas
        stores_now = sum(each.state is not StoreState.LEAVING for each in self._stores.values())
        self._told = replicas if stores_now >= METADATA_REPLICAS[0] else stores_now
        """How many replicas a group lacks that has fewer: a cluster of one or two stores is still
        being made, or small on purpose. A store that is down counts until it is taken out."""
        self._plan = Plan()
        going_on = [each for each in moving if self._goes_on(each)]
        self._plan.cancelled = [each for each in moving if each not in going_on]
        # What is cancelled is left alone once more: who carries moves out has to hear of it first.
        self._busy = {each.group for each in moving}
        self._real = {each.number: each for each in groups}
        self._holdings = Holdings(self._stores, self._real.values(), going_on)
        self._want = {each: self._wanted(each) for each in self._holdings.groups}
        self._evening = Evening(self._holdings, self._want, stays)
        self._copies = pace.copies
        self._steps = pace.steps
        self._receiving: Counter[int] = Counter()
        self._sending: Counter[int] = Counter()
        self._stays: Counter[int] = Counter()
        """By store that leaves: groups that no other can take now."""
        for each in going_on:
            self._spend(each)

    def made(self) -> Plan:
        """The plan."""
        for group in sorted(self._holdings.groups, key=lambda each: (self._sound(each), each)):
            self._look(group)
        for store, count in sorted(self._stays.items()):
            why = f"no other answers and has room for {count} of its groups"
            self._plan.staying[store] = why
            self._plan.problems.append(f"store {store} leaves, but {why}")
        self._even()
        return self._plan

    # --- What there is ----------------------------------------------------------------------

    def _goes_on(self, move: Move) -> bool:
        store = self._stores.get(move.to)
        if not move.to:
            return True
        return store is not None and store.state in (StoreState.IN, StoreState.JOINING)

    def _wanted(self, group: int) -> int:
        return wanted(group, self._replicas, len(self._holdings.able))

    def _state(self, store: int) -> StoreState:
        view = self._stores.get(store)
        return view.state if view is not None else StoreState.GONE

    def _sound(self, group: int) -> int:
        """Replicas that are there, of those that are to be."""
        members = self._real[group].members
        found = sum(self._state(each) is not StoreState.GONE for each in members)
        return found - len(members) if found < len(members) else 0

    # --- One group --------------------------------------------------------------------------

    def _look(self, group: int) -> None:
        """Say what is wrong with a group; begin the first move that it needs."""
        members = self._real[group].members
        there = [each for each in members if self._state(each) is not StoreState.GONE]
        should = max(self._want[group], wanted(group, self._replicas, self._told))
        if len(there) < should:
            self._plan.short[group] = f"{len(there)} of {should} replicas"
        if len(there) < self._want[group]:
            self._plan.closed.add(group)
        if len(answering(self._stores, members)) * 2 <= len(members):
            self._plan.short[group] = f"no majority of stores {sorted(members)} answers"
            self._plan.closed.add(group)
        elif group not in self._busy and self._holdings.leaders[group]:
            self._mend(group, there)

    def _mend(self, group: int, there: list[int]) -> None:
        members = self._holdings.members[group]
        lost = sorted(set(members) - set(there))
        leaving = sorted(each for each in there if self._state(each) is StoreState.LEAVING)
        want = self._want[group]
        if lost:
            self._give_away(group, lost[0], Reason.LOST, f"store {lost[0]} is gone")
        elif leaving:
            self._leave(group, leaving)
        elif len(members) < want:
            why = f"group {group} has {len(members)} of {want} replicas"
            self._copy(group, Kind.ADD, Reason.SHORT, why)
        elif len(members) > want:
            self._remove_one(group, f"group {group} has {len(members)} replicas, not {want}")
        else:
            self._part(group)

    def _leave(self, group: int, leaving: list[int]) -> None:
        leader, members = self._holdings.leaders[group], self._holdings.members[group]
        why = f"store {leaving[0]} leaves"
        if leader not in leaving:
            self._give_away(group, leaving[0], Reason.LEAVES, why)
            return
        able = self._holdings.able
        load = self._holdings.groups[group].load
        others = [each for each in members if each in able and able[each].view.answers]
        if others:  # (else another has to have a replica first)
            to = min(others, key=lambda each: able[each].off[READ] / able[each].capacity[READ])
            self._begin(Move(Kind.LEAD, group, Reason.LEAVES, why, to))
            return
        follower = [each for each in leaving if each != leader]
        if follower:
            self._give_away(group, follower[0], Reason.LEAVES, f"store {follower[0]} leaves")
        elif len(members) == 1:
            self._copy(group, Kind.ADD, Reason.LEAVES, f"{why}, with {load.live:.0f} bytes")

    def _give_away(self, group: int, gone: int, reason: Reason, why: str) -> None:
        """Another store takes the place of one. If none can now: what is gone counts for nothing
        any more; a store that leaves waits, unless there are only so few stores.
        """
        if self._copy(group, Kind.REPLACE, reason, why, gone):
            return
        holdings = self._holdings
        members = len(holdings.members[group])
        if holdings.targets(group, {}, 1) or members <= 1:
            return
        if reason is Reason.LEAVES and members <= self._want[group]:
            self._stays[gone] += 1
            return
        self._begin(Move(Kind.REMOVE, group, reason, f"{why}, and no other has room", 0, gone))

    def _copy(self, group: int, kind: Kind, reason: Reason, why: str, gone: int = 0) -> bool:
        """Begin a copy to the best store for it, if there is one now."""
        holdings, want = self._holdings, self._want[group]
        if not self._may_copy(group):
            return False
        load = holdings.replica_loads[group]
        found = [
            (
                holdings.crowding(group, to, want, gone),
                -holdings.gain(load, holdings.able[to], None),
                to,
            )
            for to in holdings.targets(group, self._receiving, self._pace.store_copies)
        ]
        if found:
            self._begin_copy(Move(kind, group, reason, why, min(found)[2], gone))
        return bool(found)

    def _remove_one(self, group: int, why: str) -> None:
        holdings, want = self._holdings, self._want[group]
        load = holdings.replica_loads[group]
        stores = self._stores

        def needless(store: int) -> tuple[bool, tuple[int, int], float, int]:
            view, able = stores[store], holdings.able[store]
            crowded = holdings.crowding(group, store, want)
            return not view.answers, crowded, holdings.gain(load, None, able), store

        followers = [each for each in holdings.members[group] if each != holdings.leaders[group]]
        gone = max(followers, key=needless)
        self._begin(Move(Kind.REMOVE, group, Reason.SURPLUS, why, 0, gone))

    def _part(self, group: int) -> None:
        """Replicas that one failure would end: one of them goes elsewhere, if that is better."""
        holdings, want = self._holdings, self._want[group]
        members = holdings.members[group]
        crowded = {
            each: found
            for each in sorted(members)
            if (found := holdings.crowding(group, each, want)) > (0, 0)
            and each != holdings.leaders[group]
        }
        for gone in sorted(crowded, key=lambda each: crowded[each], reverse=True):
            targets = holdings.targets(group, self._receiving, self._pace.store_copies)
            if any(holdings.crowding(group, to, want, gone) < crowded[gone] for to in targets):
                view = self._stores[gone]
                what = f"host {view.host!r}" if crowded[gone][0] else f"zone {view.zone!r}"
                why = f"group {group} has several replicas in {what}"
                self._copy(group, Kind.REPLACE, Reason.TOGETHER, why, gone)
                return

    # --- Load -------------------------------------------------------------------------------

    def _even(self) -> None:
        in_vain: set[tuple[int, int, bool]] = set()
        """Of which no move was found."""
        while left := [each for each in uneven(self._holdings) if _key(each) not in in_vain]:
            if not self._even_one(left[0]):
                in_vain.add(_key(left[0]))
        held_up = not self._copies or not self._steps
        off = uneven(self._holdings)
        for number, store in self._holdings.able.items():
            if store.view.state is not StoreState.JOINING or self._receiving[number]:
                continue
            waits = held_up or any(
                number not in self._holdings.members[each]
                for each in self._busy & self._real.keys()
            )
            if not waits or all(each.store != number for each in off):
                self._plan.settled.append(number)
        texts = [overload(self._holdings, each) for each in off if not held_up]
        self._plan.problems += [each for each in texts if each is not None]

    def _even_one(self, off: Uneven) -> bool:
        if off.figure == READ and self._steps:
            found = self._evening.lead(off, self._busy)
            if found is not None:
                move = Move(Kind.LEAD, found.group, self._reason(off), off.why, found.to)
                self._begin(move)
                return True
        elif off.figure == READ:
            return False  # leaders first
        if not self._copies:
            return False
        full = {each for each, count in self._sending.items() if count >= self._pace.store_copies}
        copied = self._evening.replica(
            off, self._busy, self._receiving, self._pace.store_copies, full
        )
        if copied is None:
            return False
        why = off.why
        move = Move(Kind.REPLACE, copied.group, self._reason(off), why, copied.to, copied.gone)
        self._begin_copy(move)
        return True

    def _reason(self, off: Uneven) -> Reason:
        is_joining = self._state(off.store) is StoreState.JOINING
        return Reason.JOINS if is_joining else Reason.UNEVEN

    # --- Moves ------------------------------------------------------------------------------

    def _may_copy(self, group: int) -> bool:
        leader = self._holdings.leaders[group]
        return bool(self._copies and leader) and self._sending[leader] < self._pace.store_copies

    def _begin_copy(self, move: Move) -> None:
        copied = self._holdings.groups[move.group].load.live
        self._begin(
            Move(
                move.kind,
                move.group,
                move.reason,
                move.why,
                move.to,
                move.gone,
                copied,
                self._pace.rate,
            )
        )

    def _begin(self, move: Move) -> None:
        if not move.copies and not self._steps:
            return
        self._spend(move)
        self._busy.add(move.group)
        self._plan.moves.append(move)
        self._holdings.make(move)
        self._evening.changed()

    def _spend(self, move: Move) -> None:
        if move.copies:
            self._copies = max(0, self._copies - 1)
            self._receiving[move.to] += 1
            self._sending[self._holdings.leaders.get(move.group, 0)] += 1
        else:
            self._steps = max(0, self._steps - 1)


def _key(off: Uneven) -> tuple[int, int, bool]:
    return off.store, off.figure, off.off > 0
