"""The answering side of what stores ask of each other (`peer_stores_wire`): by the leader of the
group
that a question names, or NOT_LEADER says who that is.

A question is a task; TASKS_MAX of them run at once, beyond which BUSY: the asker tries again. A
store that asks no more (its connection has closed) does not end them, since most change something.
"""

from __future__ import annotations

import asyncio
from heapq import nsmallest
from itertools import chain

from ...common.errors import Code, KernelError
from ...common.ids import QueueId, RaftGroup, TopicId, home_of
from ...definitions.clearing import REACHED_SECONDS
from ...definitions.sizing import used_in
from ...in_process.opening import LocalStore
from ...requests.peer_stores import Gone, MoveStep
from ...rpc.channel import Channel, Reply
from ...rpc.frame import RpcError
from ...rpc.handshake import Hello
from ...subscribers.list_readers import wanted_of
from ..definitions.feed_service import FeedService
from ..leader_calls import call_numbers as calls
from ..leader_calls.call_wire import WireError, decode
from . import peer_stores_wire

TASKS_MAX = 1_024
"""Questions under way: each a task of some KB."""


class PeerStoresService:
    """Answers what other stores ask of the leaders here (`sections.Section`)."""

    methods = (*calls.PEER_STORES, *calls.PEER_READERS)

    def __init__(
        self, local: LocalStore, feeds: FeedService, *, tasks_max: int = TASKS_MAX
    ) -> None:
        self._store = local.store
        self._client = local.client
        self._feeds = feeds
        self._loop = asyncio.get_running_loop()
        self._tasks_max = tasks_max
        self._tasks: set[asyncio.Task[None]] = set()
        self.over_tasks = 0
        """Refused at TASKS_MAX."""

    # --- sections.Section -------------------------------------------------------------------

    def opened(self, channel: Channel, peer: Hello) -> None:
        """Stores ask when they want something."""

    def closed(self, channel: Channel) -> None:
        """What was asked for is done."""

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """Everything here is asked."""
        raise RpcError(f"method {method} is not told to stores")

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """A question has come."""
        questions = peer_stores_wire.questions.get(method)
        if questions is None:
            raise RpcError(f"method {method} is not called")
        try:
            question = decode(questions, payload)
        except WireError as error:
            raise RpcError(str(error)) from None
        refusal = self._refusal(RaftGroup(question.group))
        if refusal is not None:
            reply(refusal)
            return
        task = self._loop.create_task(self._answer(question, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _refusal(self, group: RaftGroup) -> KernelError | None:
        if group not in self._store.groups or self._store.serving(group) is None:
            leads = self._store.standing(group)[1] if group in self._store.groups else 0
            return KernelError(Code.NOT_LEADER, f"this node does not serve group {group}", leads)
        if len(self._tasks) >= self._tasks_max:
            self.over_tasks += 1
            return KernelError(Code.BUSY, f"{self._tasks_max} questions of stores are under way")
        return None

    # --- Answers ----------------------------------------------------------------------------

    async def _answer(self, question: peer_stores_wire.Question, reply: Reply) -> None:
        try:
            reply(peer_stores_wire.encode(await self._find(question)))
        except KernelError as error:
            reply(error)

    async def _find(self, question: peer_stores_wire.Question) -> object:
        group = RaftGroup(question.group)
        if isinstance(question, peer_stores_wire.Defined):
            await self._level(group)
            return self._feeds.defined(group)
        if isinstance(question, peer_stores_wire.Parts):
            await self._level(group)
            return self._parts(group, question)
        if isinstance(question, peer_stores_wire.StoredSums):
            tallies = self._store.replica(group).state.stored.by_tenant
            return [(tenant, max(each[0], 0), max(each[1], 0)) for tenant, each in tallies.items()]
        if isinstance(question, peer_stores_wire.UsedOf):
            asked = map(TopicId, question.topics)
            found = used_in(self._store.replica(group).state, asked)
            return [(ident, *use) for ident, use in found.items()]
        if isinstance(question, peer_stores_wire.WantedOf):
            await self._level(group)
            return list(wanted_of(self._store.replica(group), question.readers))
        if isinstance(question, peer_stores_wire.Clear):
            return await self._clear(group, question)
        if isinstance(question, peer_stores_wire.Idle):
            return self._client.leader_tasks.idle_ms(TopicId(question.topic))
        step = MoveStep(
            question.tenant,
            QueueId(question.queue),
            question.name,
            question.destination,
            question.count,
            question.back_to,
        )
        moved = await self._client.moves.step_here(group, step)
        return moved.moved, moved.left, moved.failure

    async def _level(self, group: RaftGroup) -> None:
        """Whoever is deposed without knowing says nothing. Raises KernelError NOT_LEADER."""
        try:
            async with asyncio.timeout(REACHED_SECONDS):
                await self._store.consensus.awaited.level(group)
        except TimeoutError:
            message = f"this node does not hear a majority of group {group}"
            raise KernelError(Code.NOT_LEADER, message) from None

    def _parts(self, group: RaftGroup, question: peer_stores_wire.Parts) -> list[object]:
        state, homes = self._store.replica(group).state, set(question.homes)
        found: list[object] = []
        names = 0
        known = chain(state.topics, state.only_windows())
        later = (each for each in known if each > question.after and home_of(each) in homes)
        for ident in nsmallest(peer_stores_wire.PAGE_NAMES, later):
            topic = state.topics.get(ident)
            groups = list(topic.groups) if topic is not None else []
            tenant, name = (topic.tenant, topic.name) if topic is not None else ("", "")
            found.append((ident, tenant, name, groups))
            names += 1 + len(groups)
            if names >= peer_stores_wire.PAGE_NAMES:
                break
        return found

    async def _clear(self, group: RaftGroup, question: peer_stores_wire.Clear) -> dict[int, int]:
        name = question.tenant, question.kind, question.name
        gone = Gone(*name, RaftGroup(question.home), question.index)
        touched = await self._client.clear_here(group, gone)
        led = {each: self._feeds.defined(each) for each in self._store.groups if self._serves(each)}
        return {int(each): index for each, index in {**touched, **led}.items()}

    def _serves(self, group: RaftGroup) -> bool:
        return self._store.serving(group) is not None
