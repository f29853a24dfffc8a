"""The store's side of the topic tree: what gateways ask of the groups that are led here
(`wire`), and who they are.

A list with nothing in it costs a gateway no stream: the gateway says that it waits, and is told
when a message comes (`store.idle_lists`). What waits here ends with the connection, or when this
store leads the group no more; then the gateway says it again, to whoever leads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from ...broker.snapshots.tree_snapshot import index_queue
from ...common.errors import Code, KernelError
from ...common.ids import QueueId, RaftGroup
from ...routing.tree_table import check_pattern
from ...rpc.channel import Channel, Reply
from ...rpc.frame import RpcError
from ...rpc.handshake import Hello
from ...store.leading.group_use import note_use
from ...store.leading.retained_reading import read, retained_in
from ...store.node import Store
from ...store.replicas.replica import Replica
from ...subscribers.listing import readers_of, waiting_in
from ...subscribers.local_tree import LocalTree, subscribers_in, under_which
from ..leader_calls import call_numbers as calls
from ..leader_calls.call_wire import WireError, decode
from ..streams.gateways import Unconcerned
from . import tree_wire as wire

QUESTIONS_MAX = 64
"""Longer questions of one connection that are being answered; one more is refused with BUSY."""

QUESTION_SECONDS = 10.0

WAITING_MAX = 2_000_000
"""Lists that one connection waits for, some 200 bytes each; one more is refused with BUSY: as many
as 500,000 sessions with a filter of their own bring."""


class _Waiting:
    """A gateway that waits for one list. `store.idle_lists.Waiting`."""

    __slots__ = ("_gateway", "group", "key", "queue")

    def __init__(
        self, caller: _TreeGateway, group: RaftGroup, key: wire.Key, queue: QueueId
    ) -> None:
        self._gateway = caller
        self.group = group
        self.key = key
        self.queue = queue

    def filled(self) -> None:
        """A message has come."""
        del self._gateway.waiting[self.group, self.key]
        filled = wire.Filled(self.group, self.key, self.queue)
        self._gateway.channel.cast(wire.FILLED, wire.encode(filled), control=True)


class _TreeGateway:
    """One connection."""

    __slots__ = ("channel", "owner", "tasks", "waiting")

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.owner = 0
        self.waiting: dict[tuple[RaftGroup, wire.Key], _Waiting] = {}
        self.tasks: set[asyncio.Task[None]] = set()


class TreeService(Unconcerned):
    """`sections.Section`, and `store.listener.Listener`."""

    methods = calls.TREE

    def __init__(self, store: Store, tree: LocalTree) -> None:
        self._store = store
        self._owners = tree.owners
        self._gateways: dict[Channel, _TreeGateway] = {}
        self._by_owner: dict[int, _TreeGateway] = {}
        self._answers: dict[int, Callable[[_TreeGateway, bytes, Reply], None]] = {
            wire.CLAIM: self._claim,
            wire.RETAINED: self._retained,
            wire.RETAINS: self._retains,
            wire.NAMES: self._list_names,
            wire.READERS: self._list_readers,
            wire.UNACKED: self._count_unacked,
            wire.WAIT: self._wait,
        }
        tree.lost = self._lost

    # --- sections.Section -------------------------------------------------------------------

    def opened(self, channel: Channel, peer: Hello) -> None:
        """A gateway has come: it says at once who it is."""
        self._gateways[channel] = _TreeGateway(channel)

    def closed(self, channel: Channel) -> None:
        """It is gone, perhaps to come back."""
        caller = self._gateways.pop(channel)
        for waiting in caller.waiting.values():
            self._store.replica(waiting.group).idle_lists.remove(waiting.queue, waiting)
        for task in list(caller.tasks):
            task.cancel()
        if caller.owner:
            if self._by_owner.get(caller.owner) is caller:
                del self._by_owner[caller.owner]
            self._owners.went(caller.owner)

    def told(self, channel: Channel, method: int, payload: bytes) -> None:
        """OWNER or FORGET."""
        caller = self._gateways[channel]
        try:
            if method == wire.FORGET:
                self._forget(caller, decode(wire.waits, payload))
            elif method == wire.OWNER and not caller.owner:
                caller.owner = decode(wire.owners, payload)
                self._by_owner[caller.owner] = caller
                self._owners.came(caller.owner)
            else:
                raise RpcError(f"method {method} is not told to stores now")
        except WireError as error:
            raise RpcError(str(error)) from None

    def called(self, channel: Channel, method: int, payload: bytes, reply: Reply) -> None:
        """One of those that are asked."""
        answer = self._answers.get(method)
        if answer is None:
            raise RpcError(f"method {method} is not called")
        try:
            answer(self._gateways[channel], payload, reply)
        except WireError as error:
            raise RpcError(str(error)) from None
        except KernelError as error:
            reply(error)

    def _replica(self, group: int) -> Replica:
        """A group that is led here. Raises KernelError NOT_LEADER."""
        store, known = self._store, RaftGroup(group)
        if store.serving(known) is None:
            leads = store.standing(known)[1] if known in store.groups else 0
            message = f"this node does not serve group {group}"
            raise KernelError(Code.NOT_LEADER, message, leads)
        return store.replica(known)

    # --- store.listener.Listener ------------------------------------------------------------

    def leads(self, replica: Replica) -> None:
        """A group is served here: gateways ask by themselves."""

    def follows(self, replica: Replica) -> None:
        """A group is not served here any more: its next leader is told anew who waits."""
        for caller in self._gateways.values():
            for place in [each for each in caller.waiting if each[0] == replica.group]:
                del caller.waiting[place]

    # --- Subscribers ------------------------------------------------------------------------

    def _claim(self, caller: _TreeGateway, payload: bytes, reply: Reply) -> None:
        claim = decode(wire.claims, payload)
        subscribers = self._replica(claim.group).state.subscribers
        lost = []
        for number, epoch in claim.held:
            known = subscribers.get(number)
            claimed = (epoch, claim.owner, True)
            if known is None or (known.epoch, known.owner, known.connected) != claimed:
                lost.append(number)
        reply(wire.encode(lost))

    def _lost(self, owner: int, number: int, epoch: int) -> None:
        """A subscriber has another connection."""
        caller = self._by_owner.get(owner)
        if caller is not None:
            lost = wire.Lost(number, epoch)
            caller.channel.cast(wire.LOST, wire.encode(lost), control=True)

    def _list_names(self, caller: _TreeGateway, payload: bytes, reply: Reply) -> None:
        asked = decode(wire.names, payload)
        replica = self._replica(asked.group)
        found = subscribers_in(replica, asked.tenant, asked.begins, asked.after, asked.limit)
        self._begin(caller, found, reply)

    def _list_readers(self, _caller: _TreeGateway, payload: bytes, reply: Reply) -> None:
        asked = decode(wire.reading, payload)
        reply(wire.encode(readers_of(self._replica(asked.group), asked.tenant, asked.name)))

    def _count_unacked(self, _caller: _TreeGateway, payload: bytes, reply: Reply) -> None:
        asked = decode(wire.unacked, payload)
        reply(wire.encode(waiting_in(self._replica(asked.group), asked.keys)))

    # --- Lists that are waited for ----------------------------------------------------------

    def _wait(self, caller: _TreeGateway, payload: bytes, reply: Reply) -> None:
        wait = decode(wire.waits, payload)
        replica = self._replica(wait.group)
        if len(caller.waiting) + len(wait.keys) > WAITING_MAX:
            raise KernelError(Code.BUSY, f"a gateway waits for {WAITING_MAX} lists")
        filled: list[tuple[int, int]] = []
        for place, key in enumerate(wait.keys):
            ident = replica.state.indexes.get(key[:2])
            if ident is None:
                continue  # nothing is kept here
            queue = index_queue(ident)
            try:
                waits = replica.has_nothing_for(queue, key[2])
            except KernelError:
                continue  # nor for this reader
            if not waits:
                filled.append((place, queue))
                continue
            self._remove(caller, replica, key)
            waiting = _Waiting(caller, replica.group, key, queue)
            caller.waiting[replica.group, key] = waiting
            replica.idle_lists.add(queue, waiting)
            note_use(replica, queue, key[2])
        reply(wire.encode(filled))

    def _forget(self, caller: _TreeGateway, forget: wire.Wait) -> None:
        group = RaftGroup(forget.group)
        if group in self._store.groups:
            replica = self._store.replica(group)
            for key in forget.keys:
                self._remove(caller, replica, key)

    @staticmethod
    def _remove(caller: _TreeGateway, replica: Replica, key: wire.Key) -> None:
        known = caller.waiting.pop((replica.group, key), None)
        if known is not None:
            replica.idle_lists.remove(known.queue, known)

    # --- Retained messages ------------------------------------------------------------------

    def _retains(self, caller: _TreeGateway, payload: bytes, reply: Reply) -> None:
        question = decode(wire.retaining, payload)
        replica = self._replica(question.group)
        self._begin(caller, under_which(replica, question.tenant, question.patterns), reply)

    def _retained(self, caller: _TreeGateway, payload: bytes, reply: Reply) -> None:
        question = decode(wire.questions, payload)
        replica = self._replica(question.group)
        check_pattern(question.pattern)
        self._begin(caller, self._page(replica, question), reply)

    @staticmethod
    def _begin(caller: _TreeGateway, work: Coroutine[object, object, object], reply: Reply) -> None:
        if len(caller.tasks) >= QUESTIONS_MAX:
            work.close()
            raise KernelError(Code.BUSY, f"{QUESTIONS_MAX} questions of this gateway wait")
        task = asyncio.get_running_loop().create_task(_answer(work, reply))
        caller.tasks.add(task)
        task.add_done_callback(caller.tasks.discard)

    async def _page(self, replica: Replica, question: wire.Retained) -> wire.RetainedPage:
        tenant = question.tenant
        found = retained_in(replica, tenant, question.pattern, question.messages_max)
        behind = sorted((each for each in found if each[0] > question.after), key=_name_of)
        page: list[tuple[str, int, bytes]] = []
        size = 0
        for name, kept in behind:
            if size >= wire.PAGE_BYTES or len(page) >= wire.PAGE_MESSAGES:
                return wire.RetainedPage(page, page[-1][0])
            slot = await read(self._store, replica, tenant, name, kept)
            if slot:
                page.append((name, max(0, replica.log_time_ms() - kept.time_ms), slot))
                size += len(slot)
        return wire.RetainedPage(page, "")


async def _answer(work: Coroutine[object, object, object], reply: Reply) -> None:
    """Reply with what a question comes to."""
    try:
        async with asyncio.timeout(QUESTION_SECONDS):
            reply(wire.encode(await work))
    except KernelError as error:
        reply(error)
    except TimeoutError:
        reply(KernelError(Code.TIMEOUT, "the question could not be answered in time"))


def _name_of(each: tuple[str, object]) -> str:
    return each[0]
