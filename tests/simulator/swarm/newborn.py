"""Data groups that are added while a run goes on, as an operator, stores and a manager do it, by
records of group 0; and what must be true of that:

    homes_unchanged   no store ever finds other homes
    born_once         once the register says that a group is there, nobody makes it; and nobody but
                      the store and the disk that the register names
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kernel.api.changes import PutRecord
from kernel.cluster.added_groups import (
    PREFIX,
    Added,
    AddedGroup,
    GroupState,
    begun,
    closed,
    encode,
    key_of,
    read,
    wanted,
)
from kernel.cluster.births import Births
from kernel.cluster.growing import Growing
from kernel.cluster.messages import GroupReport, StepProgress, Towards
from kernel.cluster.records import NodeRecord
from kernel.common.errors import Code, KernelError
from kernel.common.ids import METADATA_GROUP, RaftGroup

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .machines import Machine
    from .run import Run

SHARE = 0.8
"""Of the runs with more machines than replicas."""

BIRTHS = 0.3
"""Share of looks of a manager with which groups are asked for."""

GROUPS_MAX = 3
WIPES = 0.8
AT_ONCE = (1, 2)

HIT = 0.5
"""Share of births, and of groups that are there, at which the store's process is hit."""

HITS_MAX = 3
LOOK_S_MAX = 2.0
"""A look that waits for a process that has ended is given up."""


class Newborn:
    """Of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._chance = random.Random(run.seed + 9)
        self.happens = run.levels.placed and self._chance.random() < SHARE
        self.there: dict[RaftGroup, None] = {}
        """Groups that some store knows to be there."""
        self._hits = 0
        self._tasks: list[asyncio.Task[None]] = []

    # --- A store ----------------------------------------------------------------------------

    def started(self, machine: Machine) -> Births:
        """A process has been opened, and is about to start."""
        opened = machine.opened
        add = opened.store.add_group

        def add_group(group: RaftGroup, *, born: bool) -> None:
            if not machine.runs or machine.opened is not opened:
                return  # its process has ended
            self._adds(machine, group, born=born)
            add(group, born=born)

        opened.store.add_group = add_group  # type: ignore[method-assign]
        opened.client.administrator.closed = lambda: closed(read(opened.client.records(PREFIX)))
        opened.client.watch_records(lambda key, _record: self._hears(machine, key))
        return Births(opened.store, opened.client, machine.directory)

    def known(self, machine: Machine) -> Added:
        """What a store's group 0 says."""
        return read(machine.opened.client.records(PREFIX))

    def _adds(self, machine: Machine, group: RaftGroup, *, born: bool) -> None:
        run = self._run
        run.note(f"{machine.number} {'makes' if born else 'hears of'} group {group}")
        if not born:
            silent = METADATA_GROUP in machine.opened.store.consensus.healing.patients
            run.count("group heard of after a loss" if silent else "group heard of")
            return
        run.count("group born")
        record = self.known(machine).get(group)
        named = record[1].directory if record is not None else ""
        if group in self.there or named != machine.directory:
            run.broken("born_once", f"group {group} is made by {machine.number}, for {named}")
        self._hit(machine, f"group {group} was made")

    def _hears(self, machine: Machine, key: str) -> None:
        """A record has changed, as a store sees it."""
        if key.startswith(PREFIX) and machine.runs:
            there = begun(list(self.known(machine)), self.known(machine))
            for group in map(RaftGroup, there):
                if group not in self.there:
                    self.there[group] = None
                    self._hit(machine, f"group {group} is there")

    def _hit(self, machine: Machine, why: str) -> None:
        chance = self._chance
        hits = self._hits < HITS_MAX and chance.random() < HIT
        if hits and self._run.faults.hit(machine, chance, why):
            self._hits += 1
            self._run.count("hit in a birth")

    def wipes(self, machine: Machine) -> bool:
        """Whether a store that has nothing any more comes back with an empty disk."""
        bad = self._run.flipped == machine.number
        return self.happens and not bad and self._chance.random() < WIPES

    def made_one(self, store: int) -> bool:
        """Whether the register says that a group was made there."""
        leader = self._run.leader(METADATA_GROUP)
        added = self.known(leader) if leader is not None else {}
        return any(group.store == store for _, group in added.values())

    def look(self) -> None:
        """What holds at any time: `homes_unchanged`."""
        for machine in self._run.machines.values():
            if machine.runs:
                homes = machine.opened.store.home_groups
                if homes != self._run.founding()[1:]:
                    what = f"{machine.number} finds homes {homes}"
                    self._run.broken("homes_unchanged", what)

    # --- The manager ------------------------------------------------------------------------

    async def manage(
        self,
        manager: Machine,
        stores: Mapping[int, NodeRecord],
        answering: set[int],
        reported: Mapping[int, GroupReport],
        replicas: int,
        ask: Callable[[Towards], Awaitable[StepProgress | None]],
    ) -> dict[int, GroupReport]:
        """Add groups, perhaps, and have those that were added grow; those of the groups reported
        that may be given members.
        """
        run = self._run
        added = self.known(manager)
        if self.happens and not run.peaceful and self._chance.random() < BIRTHS:
            count = min(self._chance.choice(AT_ONCE), GROUPS_MAX - len(added))
            with contextlib.suppress(KernelError):
                voters = [each.voters for each in reported.values()]
                for group in wanted(added, stores, answering, voters, count):
                    run.note(f"is wanted: {group}")
                    work = self._tried(self._put(manager, group, 0))
                    self._tasks.append(run.loop.create_task(work))

        async def asked(step: Towards) -> StepProgress:
            progress = await ask(step)
            if progress is None:
                raise KernelError(Code.UNAVAILABLE, "it is not known what came of it")
            return progress

        if added:
            growing = Growing(lambda group, version: self._put(manager, group, version), asked)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S_MAX):
                    await growing.look(added, stores, replicas, reported)
        return {each: reported[each] for each in begun(reported, added)}

    async def _put(self, manager: Machine, group: AddedGroup, version: int) -> None:
        if not manager.runs or manager.opened.store.serving(METADATA_GROUP) is None:
            raise KernelError(Code.NOT_LEADER, "it manages no more")
        change = PutRecord(key_of(group.number), encode(group), version)
        await manager.opened.client.administer(change)
        self._run.count(f"group {group.state}")

    async def _tried(self, work: Awaitable[None]) -> None:
        with contextlib.suppress(KernelError):
            await work

    def why_not(self) -> str:
        """Which group has not grown yet, as whoever leads group 0 knows."""
        leader = self._run.leader(METADATA_GROUP)
        for number, (_, group) in (self.known(leader) if leader else {}).items():
            if group.state in (GroupState.WANTED, GroupState.GROWING):
                return f"group {number} is {group.state}"
        return ""
