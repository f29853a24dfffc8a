"""Whoever looks after the cluster of a run: replaces old builds by new ones, then turns features on
(ADR 26), and writes records, some of which take that.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from kernel.broker.log_commands import commands
from kernel.cluster.features import check, lacking
from kernel.common.errors import Code, KernelError
from kernel.common.feature_levels import LATEST
from kernel.common.ids import METADATA_GROUP, RaftGroup
from kernel.requests.leader import Done, Leader
from kernel.requests.request_pipeline import RequestPipeline
from kernel.store.node import Store
from kernel.store.raft_groups.leaving import LeaveGroup

from .link import SimulatedLink

if TYPE_CHECKING:
    from .machines import Machine
    from .run import Run

CLIENT = 900
PAUSE_S = 0.2
"""Between two tries."""

WRITES = 0.02
"""Share of what happens that is a write of records."""

PENDING_MAX = 20

MISTAKES = 0.25
"""Share of the looks, once a feature is on, at which one is made."""

MISTAKES_MAX = 2
"""Old builds that are started by mistake."""

MOVES = 0.12
"""Share that is a step of a data group to other members."""

LEAVES = 0.08
"""Share of what happens that is a word to somebody that it is no member of a group."""

KEYS = ("one", "two", "three")


class Operator:
    """Of one run."""

    def __init__(self, run: Run, events_max: int) -> None:
        self._run = run
        self._chance = random.Random(run.seed + 4)
        self.link = SimulatedLink(run, run.seed * 100 + 90)
        self._request_pipeline = RequestPipeline(self.link, run.clock, run.loop)
        self._from = self._chance.uniform(0, 0.4) * events_max
        self._not_before = 0.0
        self._leaving = random.Random(run.seed + 6)
        """Apart from the other chances."""
        self._tasks: list[asyncio.Task[None]] = []
        self._sequence = 0
        self._mistakes = 0
        self.pending = 0

    @property
    def _is_on(self) -> bool:
        return self._run.features.level(METADATA_GROUP) >= LATEST

    def look(self) -> None:
        """Do what is to be done now, if anything is."""
        run = self._run
        if self._chance.random() < WRITES and self.pending < PENDING_MAX and not run.peaceful:
            groups = run.groups()
            self._write(groups[self._chance.randrange(len(groups))])
        if len(run.machines) > 1:
            if self._leaving.random() < LEAVES:
                groups = run.groups()[1:]
                for each in groups if run.peaceful else [self._leaving.choice(groups)]:
                    self._let_leave(each)
            moves = not run.levels.placed and not run.peaceful
            if moves and self._leaving.random() < MOVES:
                run.faults.change_members(self._leaving, 1)
        if not run.levels.old or run.loop.time() < self._not_before:
            return
        self._not_before = run.loop.time() + PAUSE_S
        if self._is_on and run.peaceful:
            self._lead_beside_group_0()
        elif self._is_on:
            self._err()
        elif run.events >= self._from or run.peaceful:
            self._enable()

    # --- Features ---------------------------------------------------------------------------

    def _enable(self) -> None:
        """As `ClusterService` does it: only if every process understands it."""
        run = self._run
        leader = run.leader(METADATA_GROUP)
        if leader is None:
            return
        others = [each for each in run.machines.values() if each is not leader]
        reached = [each for each in others if each.runs and not run.network.parts(leader, each)]
        understood = {f"store {each.number}": each.understands for each in reached}
        silent = [f"store {each.number}" for each in others if each not in reached]
        try:
            check(LATEST, leader.understands, lacking(LATEST, understood, silent))
        except KernelError:
            run.count("raise refused")
            self._renew()
            return
        self._tasks.append(run.loop.create_task(self._raise(leader)))

    def _renew(self) -> None:
        """One process ends, and starts again as a new build."""
        old = [each for each in self._run.machines.values() if each.understands < LATEST]
        if old:
            machine = self._chance.choice(old)
            machine.understands = LATEST
            if machine.runs:
                machine.kill()

    def renew_all(self) -> None:
        """So does every old one."""
        for machine in self._run.machines.values():
            if machine.understands < LATEST:
                machine.understands = LATEST
                if machine.runs:
                    machine.kill()

    async def _raise(self, leader: Machine) -> None:
        self._run.count("raise asked for")
        try:
            await leader.opened.client.raise_level(LATEST)
        except KernelError:
            return  # it has ended, or leads no more: asked again
        self._run.count("raise answered in peace" if self._run.peaceful else "raise answered")

    def _lead_beside_group_0(self) -> None:
        """Have stores lead that hold group 0: no other knows what is on there. (Of a real cluster
        every store holds every group, here the faults make any members.)
        """
        run = self._run
        holds = run.voters(METADATA_GROUP)
        for group in run.groups():
            leader = run.leader(group)
            able = sorted(holds & run.voters(group))
            if leader is not None and able and leader.number not in able:
                leader.opened.store.consensus.transfer(group, able[0])

    def _err(self) -> None:
        """An old build is started although something is on: it ends before it answers anything."""
        run = self._run
        mistaken = "kill" in run.levels.faults and not run.peaceful
        if not mistaken or self._mistakes >= MISTAKES_MAX or self._chance.random() > MISTAKES:
            return
        machine = self._chance.choice(list(run.machines.values()))
        if machine.runs:
            self._mistakes += 1
            run.note(f"{machine.number} becomes an old build")
            machine.understands = 0
            machine.kill()

    # --- Groups that are left -----------------------------------------------------------------

    def _let_leave(self, group: RaftGroup) -> None:
        """Tell somebody that it is no member of a group, as `cluster.manager` does it; late
        perhaps: then it may be one again.
        """
        run, chance = self._run, self._leaving
        leader = run.leader(group)
        if leader is None:
            return
        core = leader.member(group).core
        members = core.tracker.members
        outside = [each for each in run.machines.values() if not members.has(each.number)]
        if run.peaceful:  # whoever still has something: else it would take long
            outside = [each for each in outside if each.runs and each.has_something_of(group)]
        level = [each for each in core.tracker.incoming if each.match >= core.log.committed]
        if outside and not members.voters_outgoing and 2 * len(level) > len(members.voters):
            machine = chance.choice(outside)
            on = run.features.level(METADATA_GROUP)
            word = LeaveGroup(group, core.term, core.log.last_index, on)
            run.loop.call_later(chance.choice((0, 0.01, 3)), self._leave, machine, word)

    def _leave(self, machine: Machine, word: LeaveGroup) -> None:
        if machine.runs:
            self._run.note(f"{machine.number} is to leave group {word.group}")
            work = self._answered(machine.opened.store, word)
            self._tasks.append(self._run.loop.create_task(work))

    async def _answered(self, store: Store, word: LeaveGroup) -> None:
        try:
            await store.leave(word)
        except KernelError as error:
            self._run.count(f"leaving refused: {error.code.name}")

    # --- Records ----------------------------------------------------------------------------

    def _write(self, group: RaftGroup) -> None:
        """Change two records together; one by one where that is not understood yet."""
        first, second = self._chance.sample(KEYS, 2)
        write = self._sequence + 1
        value = None if self._chance.random() < 0.3 else b"%d" % write
        changes = (
            commands.PutRecord(first, value, None),
            commands.PutRecord(second, b"%d" % write, None),
        )

        def heard(result: object) -> None:
            assert isinstance(result, tuple)
            (found,) = result
            if isinstance(found, KernelError) and found.code is Code.NOT_ALLOWED:
                self._run.count("command refused before its level")
                for each in changes:
                    self._propose(group, each, lambda _result: None)
            elif isinstance(found, list):
                for key, version in zip((first, second), found, strict=True):
                    self._run.features.version_given(int(group), key, version, write)

        self._propose(group, commands.PutRecords(changes), heard)

    def _propose(self, group: RaftGroup, change: commands.Control, heard: Done) -> None:
        self._run.events += 1
        self._sequence += 1
        identity = (CLIENT, 1, self._sequence)
        self.pending += 1

        def attempt(leader: Leader, done: Done) -> None:
            leader.propose(change, identity, done)

        def done(result: object) -> None:
            self.pending -= 1
            heard(result)

        self._request_pipeline.send(group, attempt, done)
