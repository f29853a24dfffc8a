"""Who places replicas in a run with more machines than replicas, as `cluster.manager` does: reports
of who answers, the planner, a step of each group; stores leave, and join again.

The register is here, for it is a few records of group 0: who manages it, the leader of that group
and so another one after each election, remembers nothing else. Some steps are taken late, as by a
manager that does not know yet that it is none any more.
"""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING

from msgspec.structs import replace

from kernel.cluster.cluster_admin import led
from kernel.cluster.membership_steps import MembershipSteps
from kernel.cluster.messages import Goal, GroupReport, ReplicaReport, Report, StepProgress, Towards
from kernel.cluster.placement.planner import wanted
from kernel.cluster.placing import Placing
from kernel.cluster.records import Facts, NodeRecord, NodeState
from kernel.cluster.replica_moves import ReplicaMove, is_void, steps
from kernel.common.errors import Code, KernelError
from kernel.common.ids import METADATA_GROUP, RaftGroup
from kernel.raft.members.progress import STATE_NAMES

if TYPE_CHECKING:
    from .machines import Machine
    from .run import Run

REPLICAS = 3
LOOK_S = 0.5
LATE_SHARE = 0.05
LATE_S_MAX = 4.0
COMES_OR_GOES = 0.15
"""Share of looks with which a store is to leave, or to join again."""
MOTHERS = 0.7
"""Share of those that leave, once a store has made a group, that are one of these: if it comes back
with an empty disk, it must not make it again."""
EVEN_SHARE = 0.3
"""Share of looks that find the cluster calm, so that something moves for the sake of load."""
GONE_S = 2.0
ROOM = 1 << 30


class Placed:
    """Of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._chance = random.Random(run.seed + 8)
        self._not_before = 0.0
        self._task: asyncio.Task[None] | None = None
        self._manager = 0
        self.records: dict[int, NodeRecord] = {}
        self.moving: dict[int, tuple[int, ReplicaMove]] = {}
        self._version = 0
        self._wiping: dict[int, float] = {}
        """Stores that are to be wiped, and since when they belong to no group; 0: not yet."""
        self._placing = Placing(self._put_move, self._ask, self._hand_over)

    # --- What the run asks ------------------------------------------------------------------

    def begin(self) -> None:
        """From now on it manages."""
        for number in self._run.machines:
            facts = Facts(f"disk-{number}", "host", 1, f"host-{number}")
            self.records[number] = NodeRecord(number, NodeState.MEMBER, facts)

    def look(self) -> None:
        """Do what is to be done now, if anything is."""
        run = self._run
        if not self.records or run.loop.time() < self._not_before:
            return
        if self._task is not None and not self._task.done():
            return
        self._not_before = run.loop.time() + LOOK_S
        manager = run.leader(METADATA_GROUP)
        if manager is not None:
            self._task = run.loop.create_task(self._manage(manager))

    def below(self) -> str:
        """Which group has not the voters that it should; empty: each has."""
        run = self._run
        stores = sum(each.state is NodeState.MEMBER for each in self.records.values())
        for group in run.groups() if self.records else ():
            voters, want = run.voters(group), wanted(group, REPLICAS, stores)
            if len(voters) != want:
                return f"group {group} has voters {sorted(voters)}, and should have {want}"
        return ""

    def why_not(self) -> str:
        """What is on its way, or waits."""
        for number, record in self.records.items():
            if record.state is not NodeState.MEMBER:
                return f"store {number} is {record.state}"
        for group, (_, move) in self.moving.items():
            return f"group {group} moves: {move}"
        return self.below()

    # --- A look -----------------------------------------------------------------------------

    async def _manage(self, manager: Machine) -> None:
        run, chance = self._run, self._chance
        if manager.number != self._manager:
            self._manager = manager.number
            self._placing.clear()
        for group, (version, move) in list(self.moving.items()):
            await self._move(group, version, move)
        reports = {
            each.number: _report(each)
            for each in run.machines.values()
            if each.runs and (each is manager or not run.network.parts(manager, each))
        }
        groups = led(reports)
        self._come_and_go(groups)
        for number in self.records:  # every store has group 0
            known = groups.get(METADATA_GROUP)
            if known is None or number in self._wiping:
                continue
            if number not in (*known.voters, *known.learners):
                await self._try(Towards(METADATA_GROUP, number, Goal.LEARNER))
        groups = await run.newborn.manage(
            manager, self.records, set(reports), groups, REPLICAS, self._try_soon
        )
        begun = self._placing.look(
            REPLICAS,
            self.records,
            reports,
            groups,
            dict(self.moving),
            set(),
            int(run.loop.time() * 1_000),
            is_calm=not run.peaceful and chance.random() < EVEN_SHARE,
        )
        await asyncio.gather(*begun)

    async def _move(self, group: int, version: int, move: ReplicaMove) -> None:
        if is_void(move, self.records):
            await self._put_move(replace(move, cancelled=True), version)
            return
        for asked in steps(move):
            progress = await self._try(asked)
            if progress is None or not progress.done:
                return
        del self.moving[group]
        self._run.count("replica moved")

    def _come_and_go(self, groups: dict[int, GroupReport]) -> None:
        """One store at a time leaves, and joins again once it has nothing."""
        run = self._run
        away = [each for each in self.records.values() if each.state is not NodeState.MEMBER]
        for record in away:
            if record.state is NodeState.JOINING:
                self.records[record.number] = replace(record, state=NodeState.MEMBER)
            elif record.number in self._wiping:
                self._wipe(record)
            elif not self._placing.still_held(record.number, run.groups()[1:], self.moving):
                run.count("store left")
                if run.newborn.wipes(run.machines[record.number]):
                    self._wiping[record.number] = 0.0
                else:
                    self.records[record.number] = replace(record, state=NodeState.JOINING)
        if not away and not run.peaceful and self._chance.random() < COMES_OR_GOES:
            mothers = [each for each in self.records.values() if run.newborn.made_one(each.number)]
            likely = mothers if mothers and self._chance.random() < MOTHERS else None
            record = self._chance.choice(likely or list(self.records.values()))
            run.note(f"store {record.number} is to leave")
            self.records[record.number] = replace(record, state=NodeState.LEAVING)

    def _wipe(self, record: NodeRecord) -> None:
        """A store that leaves group 0 too comes back with an empty disk, under its number: once
        what it has said before is with nobody any more.
        """
        run, number = self._run, record.number
        progress = self._step(Towards(METADATA_GROUP, number, Goal.GONE))
        if progress is None or not progress.done:
            return
        now = run.loop.time()
        since = self._wiping[number] = self._wiping[number] or now
        if now - since >= GONE_S:
            run.machines[number].wipe()
            facts = replace(record.facts, store=run.machines[number].directory)
            self.records[number] = replace(record, state=NodeState.JOINING, facts=facts)
            del self._wiping[number]

    # --- What a manager may do ----------------------------------------------------------------

    async def _put_move(self, move: ReplicaMove, version: int) -> None:
        known, _ = self.moving.get(move.group, (0, None))
        if known != version:
            raise KernelError(Code.ALREADY_EXISTS, "somebody was faster")
        self._version += 1
        self._run.note(f"is to move: {move}")
        self.moving[move.group] = self._version, move

    async def _ask(self, asked: Towards) -> None:
        await self._try(asked)

    async def _try_soon(self, asked: Towards) -> StepProgress | None:
        """A step of which it has to be known what came of it."""
        return self._step(asked)

    async def _try(self, asked: Towards) -> StepProgress | None:
        """Have the group's leader take a step, perhaps late."""
        run = self._run
        if self._chance.random() < LATE_SHARE and not run.peaceful:
            run.loop.call_later(self._chance.uniform(0, LATE_S_MAX), self._step, asked)
            return None
        return self._step(asked)

    def _step(self, asked: Towards) -> StepProgress | None:
        run = self._run
        leader, manager = run.leader(asked.group), run.machines.get(self._manager)
        if leader is None or manager is None or run.network.parts(leader, manager):
            return None
        reached = [
            each.number
            for each in run.machines.values()
            if each.runs and not run.network.parts(leader, each)
        ]
        opened = leader.opened
        taking = MembershipSteps(opened.store.consensus, lambda: reached, opened.housekeeper.hasten)
        try:
            return taking.towards(asked)
        except KernelError as error:
            run.count(f"step refused: {error.code.name}")
            return None

    async def _hand_over(self, group: RaftGroup, to: int) -> None:
        leader = self._run.leader(group)
        if leader is not None:
            leader.opened.store.consensus.transfer(group, to)


def _report(machine: Machine) -> Report:
    """As `ClusterService.report`."""
    store = machine.opened.store
    groups: list[GroupReport] = []
    for group in filter(store.holds, store.groups):
        member = machine.member(group)
        core, members = member.core, member.core.tracker.members
        replicas = [
            ReplicaReport(
                each.node, each.node in members.voters, each.match, STATE_NAMES[each.state]
            )
            for each in core.tracker.peers
            if member.leads
        ]
        groups.append(
            GroupReport(
                group=group,
                term=core.term,
                leader=core.leader,
                serves=member.serves,
                last=core.log.last_index,
                commit=core.log.committed,
                applied=member.state.applied,
                voters=list(members.voters),
                learners=list(members.learners),
                joint=bool(members.voters_outgoing),
                replicas=replicas,
            )
        )
    heals = [int(each) for each in store.consensus.healing.lost]
    return Report(
        machine.number, "", "", 0, False, True, [], {}, {}, groups, heals=heals, room=ROOM
    )
