"""Keeps a store where it belongs in its cluster; on the leader of group 0, also all the others.

    every look    register -> file, addresses of peers, who is let in
    in draining   leadership of every group to others
    disk is full  leadership of every group to others that have room
    as manager    JOINING: learner of group 0, then of all groups; level: voter of all (`steps`)
                  LEAVING: out of every data group, then of group 0; then its record goes
                  replicas that are to be elsewhere: a step of each group (`replica_moves`)
                  groups that were added: until each has its voters (`growing`)
                  no member of a group any more: lets go of it (`outsiders`)
                  calm for a minute: leaders spread evenly, one each 10 s, but for those that an
                  operator has moved (`kept_leaders`)
    where the number of replicas is set (`replica_count`), the planner is asked for all that
    concerns data groups, and who votes in group 0 (`placing`):
                  JOINING: learner of group 0; then it is a member, and is given its share
                  LEAVING: once everything has been moved away

What is to be stands in the register, and each look does the next step towards it; so a manager that
dies is followed by another that knows as much. Group 0 comes first: a store that knows the register
lets in nobody whom the cluster does not know (`roster`).
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable
from functools import partial

from msgspec.structs import replace

from ..api.changes import PutRecord
from ..common.errors import KernelError
from ..common.feature_levels import REPLICAS
from ..common.ids import METADATA_GROUP, RaftGroup
from ..common.ports import Disk
from ..in_process.local_client import LocalClient
from ..remote.leader_calls.leaders import RemoteLeaders
from ..store.node import Store
from ..store.raft_groups.peer_links import PeerLinks
from . import added_groups, messages, replica_count, replica_moves, short_groups
from .births import Births
from .cluster_admin import ClusterAdmin, led
from .cluster_service import ClusterService
from .growing import Growing
from .leader_balance import Calm
from .messages import Admit, Goal, HandOver, StepProgress, Towards
from .placing import Placing
from .records import PREFIX, Facts, NodeRecord, NodeState, encode, key_of, read
from .replica_moves import ReplicaMove
from .roster import Roster, write_home
from .short_groups import ShortSince

LOOK_SECONDS = 0.25
"""Between two looks: people do not notice so little, and a look costs a few look-ups."""

MOVE_STEP_MS = 1_000
"""A step of a move that no leader answers within so long is asked for again: other groups wait."""

COMPARE_MS = 2_000
"""Between two comparisons of who belongs to groups, who has something of them and who should: a
question to each store. After a move has ended it is made at once."""

MAKE_WAY_MS = 2_000
"""Between two questions of a store without room, who has some: the room of all is measured once a
second, and a leader has moved by then."""


class Manager:
    """See the module's head. `run` until it is cancelled."""

    def __init__(
        self,
        store: Store,
        client: LocalClient,
        links: PeerLinks,
        remote: RemoteLeaders,
        roster: Roster,
        cluster_service: ClusterService,
        facts: Facts,
        disk: Disk,
    ) -> None:
        """`remote`: connections to all stores, as a gateway has them; `facts`: of this store."""
        self._store = store
        self._client = client
        self._links = links
        self._remote = remote
        self._roster = roster
        self._cluster_service = cluster_service
        self._facts = facts
        self._disk = disk
        self._cluster_admin = ClusterAdmin(roster.cluster, remote, lambda: roster.records)
        self.calm = Calm()
        """When leaders move by themselves."""
        self.replicas = 0
        """How many a cluster that begins here is to have of each group; 0: one in each store."""
        self._short = ShortSince()
        self.placing = Placing(cluster_service.put_move, self._step, self._hand_over)
        self._births = Births(store, client, facts.store)
        self._growing = Growing(cluster_service.put_added, self._step)
        self._told: Facts | None = None
        """Facts that the register has, or that were refused."""
        self._made_way_ms = -MAKE_WAY_MS
        self._compared_ms = -COMPARE_MS

    async def run(self) -> None:
        """Look at the cluster, again and again, and do what is to be done."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_SECONDS)

    async def look(self) -> None:
        """Look at the cluster once."""
        if self._roster.take(self._client.records(PREFIX)):
            await asyncio.to_thread(write_home, self._disk, self._roster.home())
        addresses = self._roster.addresses()
        self._links.update(addresses)
        if self._roster.records:
            self._remote.update({**addresses, self._store.node: self._own_address})
        self._cluster_service.let_go()
        self._births.look()
        if self._cluster_service.draining:
            self.lead_nothing()
        elif not self._client.accepting and self._leads:
            now_ms = self._cluster_service.now_ms()
            if now_ms - self._made_way_ms >= MAKE_WAY_MS:
                self._made_way_ms = now_ms
                await self.make_way()
        if self._store.serving(METADATA_GROUP) is None:
            self._cluster_service.problems.clear()
            self._cluster_service.moving.clear()
            self._tell_plan(clear=True)
        elif not self._roster.records:
            await self._begin()
        else:
            await self._manage()
            await self._grow_groups()
            await self._move_replicas()
            await self._compare()
            await self._balance()
        own = self._roster.own
        if own is not None and self._facts not in (own.facts, self._told):
            await self._tell_address()

    @property
    def _own_address(self) -> tuple[str, int]:
        return self._facts.host, self._facts.port

    def lead_nothing(self) -> bool:
        """Hand over what this store leads; whether there is nothing left that another could lead
        now.
        """
        under_way = False
        for member in self._store.consensus.members.values():
            if not member.leads:
                continue
            try:
                self._cluster_service.steps.hand_over(member.group, 0)
            except KernelError:
                continue  # nobody else can: then it goes on here
            under_way = True
        return not under_way

    @property
    def _leads(self) -> bool:
        return any(each.leads for each in self._store.consensus.members.values())

    async def make_way(self) -> None:
        """The disk is full: whoever has room leads what this store leads, so that publishers are
        served. If nobody has, they hear why they are not.
        """
        for number, before, to in await self._cluster_admin.wanted():
            group = RaftGroup(number)
            if before == self._store.node and self._store.consensus.members[group].leads:
                try:
                    self._cluster_service.steps.hand_over(group, to)
                except KernelError:
                    continue  # it has just gone: the next look finds another

    async def _tell_address(self) -> None:
        """The store is somewhere else than it was."""
        groups = len(self._store.home_groups)
        asked = Admit(self._store.node, self._facts, groups)
        try:
            await self._ask(METADATA_GROUP, messages.ADMIT, asked)
        except KernelError as error:
            if error.code.retryable:
                return
            self._cluster_service.problems[self._store.node] = error.message
        self._told = self._facts

    # --- The manager ------------------------------------------------------------------------

    async def _begin(self) -> None:
        """The first store of a cluster writes itself down."""
        if not self._roster.home().founder:
            return
        record = NodeRecord(self._store.node, NodeState.MEMBER, self._facts)
        changes = [PutRecord(key_of(record.number), encode(record), 0)]
        if self.replicas and self._store.feature_level >= REPLICAS:
            changes.append(PutRecord(replica_count.KEY, replica_count.encode(self.replicas), 0))
        try:
            await self._client.put_records(changes)
        except KernelError as error:
            self._cluster_service.problems[self._store.node] = error.message

    async def _manage(self) -> None:
        problems: dict[int, str] = {}
        for number, (version, record) in read(self._client.records(PREFIX)).items():
            if record.state is NodeState.MEMBER:
                continue
            try:
                text = await self._bring(record, version)
            except KernelError as error:
                text = error.message
            if text:
                problems[number] = text
        self._cluster_service.problems.clear()
        self._cluster_service.problems.update(problems)

    async def _grow_groups(self) -> None:
        """The next step of groups that were added and do not take queues yet."""
        service = self._cluster_service
        added = service.added()
        if added:
            records = self._roster.records
            await self._growing.look(added, records, service.replicas(), self.placing.groups)
        service.growing = self._growing.told if added else {}

    async def _move_replicas(self) -> None:
        """The next step of each group that is on its way to other members."""
        moves = self._cluster_service.moves()
        told = await asyncio.gather(*(self._move(*each) for each in moves.values()))
        self._cluster_service.moving.clear()
        self._cluster_service.moving.update(zip(moves, told, strict=True))

    async def _move(self, version: int, move: ReplicaMove) -> str:
        try:
            if replica_moves.is_void(move, self._roster.records):
                await self._cluster_service.put_move(replace(move, cancelled=True), version)
                return "is cancelled"
            for asked in replica_moves.steps(move):
                progress = await self._step(asked)
                if not progress.done:
                    return progress.what
            await self._cluster_service.end_move(move.group, version)
        except KernelError as error:
            return error.message
        self._compared_ms = -COMPARE_MS  # what it has waited for may begin
        return "is done"

    async def _compare(self) -> None:
        """Who has something of a group that it does not belong to any more lets go of it; and what
        is to be elsewhere begins to move.
        """
        now_ms, level = self._cluster_service.now_ms(), self._store.feature_level
        if level < REPLICAS or now_ms - self._compared_ms < COMPARE_MS:
            return
        self._compared_ms = now_ms
        reports = await self._cluster_admin.reports()
        await self._cluster_admin.let_leave(level, reports)
        replicas = self._cluster_service.replicas()
        if replicas:
            found = led(reports)
            known = added_groups.begun(found, self._cluster_service.added())
            begun = self.placing.look(
                replicas,
                self._roster.records,
                reports,
                {each: found[each] for each in known},
                self._cluster_service.moves(),
                self._cluster_service.kept(),
                now_ms,
                is_calm=self._is_calm(now_ms),
            )
            self._tell_plan()
            await asyncio.gather(*begun)
            await self._write_short(now_ms)

    async def _write_short(self, now_ms: int) -> None:
        """Have every store know which groups have too few replicas."""
        found = self._short.look(self.placing.plan, now_ms)
        version, known = self._cluster_service.short_groups()
        if found != known:
            change = PutRecord(short_groups.KEY, short_groups.encode(found), version)
            with contextlib.suppress(KernelError):  # the next look tries again
                await self._client.administer(change)

    def _tell_plan(self, *, clear: bool = False) -> None:
        """Have reports say what the last plan has said."""
        if clear:
            self.placing.clear()
            self._short = ShortSince()
        plan = self.placing.plan
        self._cluster_service.short = plan.short
        self._cluster_service.unmended = plan.problems

    def _is_calm(self, now_ms: int) -> bool:
        """Whether something may move for the sake of an even load, once in a while."""
        records = self._roster.records
        states = tuple((number, each.state) for number, each in sorted(records.items()))
        is_calm = self.calm.look((states, tuple(self._links.connected)), now_ms)
        return is_calm and all(each.state is NodeState.MEMBER for each in records.values())

    async def _balance(self) -> None:
        """Have the leader of one group move, once the cluster has been calm for a while."""
        try:
            if self._cluster_service.replicas():  # what moves is `placing`'s
                await self._cluster_service.forget_kept()
                return
            if not self._is_calm(self._cluster_service.now_ms()):
                return
            await self._cluster_service.forget_kept()
            await self._cluster_admin.rebalance(1, self._cluster_service.kept())
        except KernelError:
            return  # something has changed meanwhile: it is looked at again

    async def _bring(self, record: NodeRecord, version: int) -> str:
        """The next step of a store's way; what it waits for."""
        if record.state is NodeState.JOINING:
            return await self._join(record, version)
        return await self._leave(record, version)

    async def _join(self, record: NodeRecord, version: int) -> str:
        learner = partial(Towards, node=record.number, goal=Goal.LEARNER)
        waits = await self._all(learner, (METADATA_GROUP,))
        if self._cluster_service.replicas():
            if record.replaces in self._roster.records:
                waits = waits or await self._give_away(record.replaces)
            if not waits:
                await self._joined(record, version)
            return waits
        waits = waits or await self._all(learner, self._data_groups())
        voter = partial(Towards, node=record.number, goal=Goal.VOTER, replaces=record.replaces)
        waits = waits or await self._all(voter, self._cluster_service.begun())
        if not waits:
            await self._joined(record, version)
        return waits

    async def _joined(self, record: NodeRecord, version: int) -> None:
        member = replace(record, state=NodeState.MEMBER, replaces=0)
        changes = [PutRecord(key_of(record.number), encode(member), version)]
        if record.replaces and record.replaces in self._roster.records:
            changes.insert(0, PutRecord(key_of(record.replaces), None))
        await self._client.put_records(changes)

    async def _give_away(self, number: int) -> str:
        """Have a store belong to no group any more; what it waits for."""
        data_groups = self._data_groups()
        if self._cluster_service.replicas():
            moving = self._cluster_service.moves()
            waits = self.placing.still_held(number, data_groups, moving)
            if waits:
                return waits
        gone = partial(Towards, node=number, goal=Goal.GONE)
        waits = await self._all(gone, data_groups)
        return waits or await self._all(gone, (METADATA_GROUP,))

    def _data_groups(self) -> list[RaftGroup]:
        return [each for each in self._cluster_service.begun() if each != METADATA_GROUP]

    async def _leave(self, record: NodeRecord, version: int) -> str:
        waits = await self._give_away(record.number)
        if waits:
            return waits
        if record.then is not None:
            anew = NodeRecord(record.number, NodeState.JOINING, record.then)
            await self._cluster_service.put(anew, version)
        else:
            await self._client.administer(PutRecord(key_of(record.number), None, version))
        return ""

    async def _all(self, asked: partial[Towards], groups: Iterable[RaftGroup]) -> str:
        """Take a step in each of the groups; what is not done."""
        waits: list[str] = []
        for group in groups:
            progress = await self._ask(group, messages.TOWARDS, asked(group))
            if not progress.done:
                behind = f" ({progress.lag} entries behind)" if progress.lag else ""
                waits.append(f"group {group}: {progress.what}{behind}")
        return "; ".join(waits)

    async def _step(self, asked: Towards) -> StepProgress:
        return await self._ask(RaftGroup(asked.group), messages.TOWARDS, asked, MOVE_STEP_MS)

    async def _hand_over(self, group: RaftGroup, to: int) -> StepProgress:
        return await self._ask(group, messages.HAND_OVER, HandOver(group, to), MOVE_STEP_MS)

    async def _ask(
        self,
        group: RaftGroup,
        method: int,
        asked: Towards | Admit | HandOver,
        question_ms: int | None = None,
    ) -> StepProgress:
        def decode(payload: bytes) -> StepProgress:
            return messages.unpack(payload, StepProgress)

        parts = messages.pack(asked)
        return await self._remote.ask(group, method, parts, decode, question_ms=question_ms)
