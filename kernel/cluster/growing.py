"""How a group that was added gets its members: of the manager (`added_groups` has the states).

    WANTED    the store that begins it is asked whether it votes in it, and so serves it -> GROWING
    GROWING   where the number of replicas is set, the planner gives it voters, as to any group that
              has too few; else it gets every store, in the usual steps -> GROWN

What is to be stands in the register, and each look does the next step of a few groups.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping

from msgspec.structs import replace

from ..common.errors import KernelError
from .added_groups import Added, AddedGroup, GroupState, given_up
from .messages import Goal, GroupReport, StepProgress, Towards
from .placement.planner import wanted
from .records import NodeRecord, NodeState

AT_ONCE = 16
"""Groups of which a step is taken in one look: each asks a leader something for each store."""

Put = Callable[[AddedGroup, int], Awaitable[None]]
Ask = Callable[[Towards], Awaitable[StepProgress]]


class Growing:
    """Of one manager."""

    def __init__(self, put: Put, ask: Ask) -> None:
        """`put(record, version)` writes a record, if nobody has meanwhile; `ask` has a group's
        leader take a step. Both raise KernelError.
        """
        self._put = put
        self._ask = ask
        self._turn = 0
        self.told: dict[int, str] = {}
        """By number: what a group waits for."""

    async def look(
        self,
        added: Added,
        stores: Mapping[int, NodeRecord],
        replicas: int,
        reported: Mapping[int, GroupReport],
    ) -> None:
        """Take the next steps. `replicas`: how many a group is to have; 0: one in each store;
        `reported`: groups by the last report of who leads them, where a number is set.
        """
        for version, lost in given_up(added, stores):
            await self._tried(lost.number, self._put(lost, version))
        due = [
            each
            for each in added.values()
            if each[1].state in (GroupState.WANTED, GroupState.GROWING)
        ]
        self.told = {each.number: self.told.get(each.number, "begins") for _, each in due}
        at = self._turn % len(due) if len(due) > AT_ONCE else 0
        self._turn += AT_ONCE
        members = [n for n, each in stores.items() if each.state is NodeState.MEMBER]
        some = (due[at:] + due[:at])[:AT_ONCE]
        await asyncio.gather(
            *(
                self._tried(each.number, self._grow(version, each, members, replicas, reported))
                for version, each in some
            )
        )

    async def _tried(self, number: int, step: Awaitable[None]) -> None:
        try:
            await step
        except KernelError as error:
            self.told[number] = error.message

    async def _grow(
        self,
        version: int,
        group: AddedGroup,
        members: list[int],
        replicas: int,
        reported: Mapping[int, GroupReport],
    ) -> None:
        if group.state is GroupState.WANTED:
            if group.store not in members:
                self.told[group.number] = f"store {group.store} leaves"
                return
            await self._ask(Towards(group.number, group.store, Goal.VOTER))
            await self._put(replace(group, state=GroupState.GROWING), version)
            return
        waits = (
            self._lacks(group.number, reported.get(group.number), replicas, len(members))
            if replicas
            else await self._everywhere(group.number, members)
        )
        self.told[group.number] = waits
        if not waits:
            await self._put(replace(group, state=GroupState.GROWN), version)

    def _lacks(self, number: int, group: GroupReport | None, replicas: int, stores: int) -> str:
        want = wanted(number, replicas, stores)
        has = len(group.voters) if group is not None and group.serves else 0
        return f"has {has} of {want} replicas" if has < want else ""

    async def _everywhere(self, number: int, members: list[int]) -> str:
        """Have every store vote in it; what that waits for."""
        waits: list[str] = []
        for store in members:
            for goal in (Goal.LEARNER, Goal.VOTER):
                progress = await self._ask(Towards(number, store, goal))
                if not progress.done:
                    waits.append(f"store {store} {progress.what}")
                    break
        return "; ".join(waits)
