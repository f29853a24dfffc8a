"""What a manager does about where replicas are, where their number is set (ADR 30).

    reports of all stores -> loads (`group_loads`) -> views (`placement_view`) -> `placement.plan`
      ADD, REMOVE, REPLACE   a record `cluster/move/GROUP`, which `manager` carries out
      LEAD                   the leader is asked to hand over
      cancelled              the record says so
      a learner that nobody wants  is none any more

Asked again every few seconds, and bound by nothing that was said before: remembered are loads,
which stores take their share, and what there was to say. For the sake of an even load alone
something moves once the cluster has been calm for a minute.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet

from msgspec.structs import replace

from ..common.errors import KernelError
from ..common.ids import METADATA_GROUP, RaftGroup
from .group_loads import GroupLoads
from .messages import Goal, GroupReport, Report, Towards
from .placement.planner import plan
from .placement.view import Kind, Move, Plan, Reason
from .placement_view import Moving, Records, groups_of, moves_of, orphans, stores_of
from .records import NodeState
from .replica_moves import MOVES_MAX, ReplicaMove

PutMove = Callable[[ReplicaMove, int], Awaitable[None]]
Ask = Callable[[Towards], Awaitable[object]]
HandOver = Callable[[RaftGroup, int], Awaitable[object]]


class Placing:
    """Of one manager."""

    def __init__(self, put_move: PutMove, ask: Ask, hand_over: HandOver) -> None:
        """What it may do: write a record, expecting a version; have a group's leader take a step;
        have another store lead. Each raises KernelError.
        """
        self._put_move = put_move
        self._ask = ask
        self._hand_over = hand_over
        self.clear()

    def clear(self) -> None:
        """Remember nothing: another store manages the cluster by now, or no number is set."""
        self._loads = GroupLoads()
        self._known: set[int] = set()
        """Stores that it has made up its mind about."""
        self._taking: set[int] = set()
        """Stores that take their share."""
        self.plan = Plan()
        """The last one: what is to be said."""
        self.groups: Mapping[int, GroupReport] = {}
        """As they were reported then."""

    def still_held(self, store: int, data_groups: Iterable[int], moving: Moving) -> str:
        """What of the data groups a store is a member of, or is on its way to be, by the last look,
        and why it stays so; empty: nothing.
        """
        told: list[str] = []
        for number in data_groups:
            group = self.groups.get(number)
            if group is None or not group.serves:
                told.append(f"group {number}: nobody leads it")
            elif store in {*group.voters, *group.learners}:
                told.append(f"group {number}: is still in store {store}")
            elif number in moving and moving[number][1].to == store:
                told.append(f"group {number}: is on its way to store {store}")
        if told and store in self.plan.staying:
            told.insert(0, f"{self.plan.staying[store]}: have another one join")
        return "; ".join(told)

    def look(
        self,
        replicas: int,
        records: Records,
        reports: Mapping[int, Report],
        groups: Mapping[int, GroupReport],
        moving: Moving,
        stays: AbstractSet[int],
        now_ms: int,
        *,
        is_calm: bool,
    ) -> list[Awaitable[None]]:
        """Decide; what is to be awaited, all at once, so that it begins. `groups`: by the report of
        its leader, or else of anybody; `stays`: groups that keep their leader; `is_calm`: the load
        may be evened out.
        """
        self.groups = groups
        served = [(each.leader, each) for each in groups.values() if each.serves]
        self._loads.take(served, now_ms)
        metadata = groups.get(METADATA_GROUP)
        members = {*metadata.voters, *metadata.learners} if metadata is not None else set()
        self._meet(records)
        stores = stores_of(records, reports, members, self._taking)
        views = groups_of(groups, reports, moving, self._loads)
        self.plan = plan(stores, views, replicas, moves_of(moving), stays=stays)
        self._taking -= set(self.plan.settled)
        unable = {n for n, each in reports.items() if each.draining or not each.accepting}
        steps: list[Awaitable[object]] = [
            self._ask(Towards(group, store, Goal.NO_LEARNER))
            for group, store in orphans(groups, reports, moving)
        ]
        for cancelled in self.plan.cancelled:
            version, known = moving[cancelled.group]
            steps.append(self._put_move(replace(known, cancelled=True), version))
        free = MOVES_MAX - len(moving)
        for move in self.plan.moves:
            if not self._waits(move, unable, is_calm=is_calm):
                free -= move.kind is not Kind.LEAD
                if free >= 0:
                    steps.append(self._begin(move))
        return [*map(_tried, steps)]

    def _meet(self, records: Records) -> None:
        """Whoever is new takes its share: it joins, or has nothing yet."""
        self._known &= records.keys()
        self._taking &= records.keys()
        for number, record in records.items():
            if record.state is NodeState.JOINING:
                self._taking.add(number)
            elif number not in self._known and record.state is NodeState.MEMBER:
                self._known.add(number)
                held = (each for each in self.groups.values() if each.group != METADATA_GROUP)
                if not any(number in each.voters for each in held):
                    self._taking.add(number)

    def _waits(self, move: Move, unable: AbstractSet[int], *, is_calm: bool) -> bool:
        """Whether a move is not begun now."""
        if move.kind is Kind.LEAD and move.to in unable:
            return True
        return move.reason is Reason.UNEVEN and not is_calm

    async def _begin(self, move: Move) -> None:
        if move.kind is Kind.LEAD:
            await self._hand_over(RaftGroup(move.group), move.to)
        else:
            wanted = ReplicaMove(move.group, move.to, move.gone, why=f"{move.reason}: {move.why}")
            await self._put_move(wanted, 0)


async def _tried(step: Awaitable[object]) -> None:
    """Somebody may have been faster, or not be there: the next look sees what has come of it."""
    with contextlib.suppress(KernelError):
        await step
