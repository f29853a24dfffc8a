"""What a store of a run asks of the others (`kernel.requests.peer_stores`), and what it hears of
groups that it has no replica of. Questions are answered by the product's own service; lost is what
is asked of a machine that a cut parts from this one, or that ends meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from kernel.api.changes import Administration
from kernel.api.model import TopicStatistics
from kernel.broker.log_commands import commands
from kernel.common.errors import Code, KernelError
from kernel.common.ids import METADATA_GROUP, Offset, QueueId, RaftGroup, TopicId, home_of
from kernel.in_process.answering_keys import keys_here
from kernel.in_process.local_client import ASK_AGAIN
from kernel.in_process.opening import LocalStore
from kernel.remote.definitions.feed_service import FeedService
from kernel.remote.peer_stores import peer_stores_wire as wire
from kernel.remote.peer_stores.peer_stores_service import PeerStoresService
from kernel.requests.leader import Done, Identity, Leader
from kernel.requests.peer_stores import (
    Gone,
    KeysAnswer,
    KeysQuestion,
    ListReader,
    Moved,
    MoveStep,
    TopicPart,
    TopicUse,
    Used,
)
from kernel.requests.request_pipeline import Attempt, RequestPipeline

from .link import SimulatedLink

if TYPE_CHECKING:
    from .machines import Machine
    from .run import Run

PATIENCE_S = 5.0
"""For an answer; the product's is longer, but so much less happens in a run."""

TRY_S = 3.0
"""A question about keys is one try (`leaders.QUESTION_TRY_MS`)."""

PAUSE_S = 0.1


class _Feeds:
    """As much of `FeedService` as questions need: which entry has changed a definition last."""

    def __init__(self, local: LocalStore) -> None:
        self._store = local.store

    def defined(self, group: RaftGroup) -> int:
        return int(self._store.replica(group).state.applied)  # that one, or one before it


class _FarLeader:
    """`Leader` of a group, in another machine: as much of it as stores ask of each other."""

    def __init__(self, peers: SimulatedPeerStores, group: RaftGroup) -> None:
        self._peers = peers
        self._group = group

    def propose(self, change: commands.Control, identity: Identity, done: Done | None) -> None:
        """One try, by a connection that may break."""
        self._peers.link.send(
            self._group,
            lambda leader, heard: leader.propose(change, identity, heard),
            done or (lambda _result: None),
        )

    async def figures(
        self, queue: QueueId, group: str, offset: Offset | None = None
    ) -> TopicStatistics:
        return await self._leader().figures(queue, group, offset)

    async def span(self, queue: QueueId) -> tuple[int, int]:
        return await self._leader().span(queue)

    def _leader(self) -> Leader:
        return self._peers.machine_of(self._group).opened.store.leader(self._group)


class SimulatedPeerStores:
    """`kernel.requests.peer_stores.PeerStores` of one process."""

    def __init__(self, run: Run, machine: Machine, opened: LocalStore) -> None:
        self._run = run
        self._machine = machine
        self._opened = opened
        self._sequence = 0
        self._identity = run.seed * 1_000 + 7 << 20 | machine.number << 10 | machine.process
        seed = run.seed * 100 + 60 + machine.number
        self.link = SimulatedLink(run, seed)
        self._service = PeerStoresService(opened, cast("FeedService", _Feeds(opened)))
        self._pipeline = RequestPipeline(self.link, run.clock, run.loop)

    @property
    def _is_alive(self) -> bool:
        return self._machine.runs and self._machine.opened is self._opened

    def machine_of(self, group: RaftGroup) -> Machine:
        """Who leads a group, and can be reached. KernelError UNAVAILABLE."""
        run = self._run
        if not self._is_alive:
            raise KernelError(Code.UNAVAILABLE, "its process has ended")
        machine = run.leader(group)
        if machine is None or run.network.parts(self._machine, machine):
            raise KernelError(Code.UNAVAILABLE, f"nobody who leads group {group} is reached")
        return machine

    # --- PeerStores -------------------------------------------------------------------------

    def send(self, group: RaftGroup, attempt: Attempt, done: Done) -> None:
        """A process that has ended sends nothing, and hears nothing."""
        if self._is_alive:
            self._pipeline.send(group, attempt, done)

    def leader(self, group: RaftGroup) -> Leader:
        return cast("Leader", _FarLeader(self, group))

    def next_identity(self) -> Identity:
        self._sequence += 1
        return self._identity, 1, self._sequence

    async def administer(self, change: Administration, identity: Identity | None = None) -> object:
        identity = identity or self.next_identity()
        group = self._opened.client.administrator.decides(change)
        ends = self._run.loop.time() + PATIENCE_S
        while self._run.loop.time() < ends:
            try:
                client = self.machine_of(group).opened.client
                async with asyncio.timeout(PATIENCE_S):
                    result, touched = await client.administer_for(identity, change)
            except (KernelError, TimeoutError) as error:
                if isinstance(error, KernelError) and error.code not in {
                    Code.UNAVAILABLE,
                    *ASK_AGAIN,
                }:
                    raise
                await asyncio.sleep(PAUSE_S)
                continue
            await self.reached(touched)
            if isinstance(result, KernelError):
                raise result
            return result
        raise KernelError(Code.UNAVAILABLE, "not made within the deadline, or not known")

    async def level(self, groups: Iterable[RaftGroup]) -> None:
        store = self._opened.store
        elsewhere = [each for each in groups if store.serving(each) is None]
        await self._in_time(asyncio.gather(*map(self._level, elsewhere)))

    async def _level(self, group: RaftGroup) -> None:
        store = self._opened.store
        if store.holds(group):
            await store.consensus.awaited.level(group)
            return
        machine = self.machine_of(group)
        if group == METADATA_GROUP:  # no feed tells of that one: it comes to every store
            raise KernelError(Code.UNAVAILABLE, "it is not here yet")
        await machine.opened.store.consensus.awaited.level(group)
        self._hear(machine, group)

    async def reached(self, indexes: Mapping[RaftGroup, int]) -> None:
        async def reached(group: RaftGroup, index: int) -> None:
            store = self._opened.store
            if store.holds(group):
                await store.consensus.awaited.reached(group, index)
            else:
                self._hear(self.machine_of(group), group)

        known = self._opened.store.groups
        some = [reached(*each) for each in indexes.items() if each[0] in known]
        await self._in_time(asyncio.gather(*some))

    async def _in_time(self, work: asyncio.Future[list[None]]) -> None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await work
        except TimeoutError:
            raise KernelError(Code.UNAVAILABLE, "it is too far behind") from None

    async def defined(self, group: RaftGroup) -> int:
        found = await self._ask(wire.Defined(group))
        assert isinstance(found, int)
        return found

    async def parts(self, group: RaftGroup, homes: Collection[RaftGroup]) -> Sequence[TopicPart]:
        found = await self._ask(wire.Parts(group, sorted(homes), 0))
        assert isinstance(found, list)
        return [TopicPart(TopicId(ident), *about) for ident, *about in found]

    async def clear(self, group: RaftGroup, gone: Gone) -> Mapping[RaftGroup, int]:
        about = gone.tenant, gone.kind, gone.name, gone.home, gone.index
        found = await self._ask(wire.Clear(group, *about))
        assert isinstance(found, dict)
        return {RaftGroup(each): index for each, index in found.items()}

    async def used(self, group: RaftGroup, topics: Collection[TopicId]) -> Used:
        found = await self._ask(wire.UsedOf(group, list(topics)))
        assert isinstance(found, list)
        return {TopicId(ident): TopicUse(size, tails) for ident, size, tails in found}

    async def wanted(self, home: RaftGroup, readers: Collection[ListReader]) -> set[ListReader]:
        found = await self._ask(wire.WantedOf(home, list(readers)))
        assert isinstance(found, list)
        return set(found)

    async def idle_ms(self, group: RaftGroup, topic: TopicId) -> int:
        found = await self._ask(wire.Idle(group, topic))
        assert isinstance(found, int)
        return found

    async def move(self, group: RaftGroup, step: MoveStep) -> Moved:
        about = step.tenant, step.queue, step.group, step.destination, step.count, step.back_to
        found = await self._ask(wire.LeaderMove(group, *about))
        assert isinstance(found, tuple)
        self._run.count("moved in another group", min(found[0], 1))
        return Moved(*found)

    async def unsettled_keys(self, group: RaftGroup, question: KeysQuestion) -> KeysAnswer:
        """Of any that takes itself for the leader: it may have been deposed."""
        run = self._run
        leading = [
            each
            for each in run.machines.values()
            if each.runs and each.serves(group) and not run.network.parts(self._machine, each)
        ]
        if not leading:
            raise KernelError(Code.UNAVAILABLE, "nobody who leads it is reached")
        machine = leading[question.version[2] % len(leading)]
        try:
            async with asyncio.timeout(TRY_S):
                answer = await keys_here(machine.opened.store, group, question)
        except TimeoutError:
            raise KernelError(Code.UNKNOWN_OUTCOME, "it has ended meanwhile") from None
        if run.network.parts(self._machine, machine):
            raise KernelError(Code.UNKNOWN_OUTCOME, "the answer is lost")
        run.count("all keys told" if answer.is_all else "free keys told")
        return answer

    async def _ask(self, question: wire.Question) -> object:
        """Of whoever leads the group. KernelError UNAVAILABLE, and what the answer is."""
        machine = self.machine_of(RaftGroup(question.group))
        peers = machine.peer_stores
        assert peers is not None
        try:
            async with asyncio.timeout(PATIENCE_S):
                found = await peers._service._find(question)
        except TimeoutError:
            raise KernelError(Code.UNAVAILABLE, "no answer came in time") from None
        if self._run.network.parts(self._machine, machine):
            raise KernelError(Code.UNAVAILABLE, "the answer is lost")
        return found

    # --- Groups without a replica here ------------------------------------------------------

    def look(self) -> None:
        """As a feed, tell the client what has changed in groups that it holds no replica of."""
        for group in self._opened.store.data_groups:
            if not self._opened.store.holds(group):
                try:
                    self._hear(self.machine_of(group), group)
                except KernelError:
                    continue  # the feed is broken

    def _hear(self, machine: Machine, group: RaftGroup) -> None:
        client, state = self._opened.client, machine.member(group).state
        known = client.topology.topics
        defined = {ident: state.topics[ident].info() for ident in state.topic_names.everything()}
        for topic in [e for e in known.everything() if home_of(e.id) == group]:
            if topic.id not in defined:
                client.topic_changed(topic, removed=True)
        for info in defined.values():
            if known.get((info.tenant, info.name)) != info:
                client.topic_changed(info, removed=False)
