"""What other processes ask of the memory of this one, by connections that it has opened.

    FRAME (once: `link.Inbox`) -> runs -> transient group -> DONE
                                    -> live -> live routes of this process
    ADMINISTER -> a change of what lives here;  FIGURES -> of a queue that does

Bounds: what the transient group may hold (`publisher.transient_refusal`), CHANGES_MAX changes at
once. A frame of which a topic has no room for some is refused as a whole.

Durability: none; DONE tells that memory has the messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Protocol

from ...api.changes import Administration, DeleteGroup, DeleteTopic, PurgeTopic, PutRecord, PutTopic
from ...common.errors import Code, KernelError
from ...common.ids import QueueId, RaftGroup
from ...common.ports import Clock
from ...requests.leader import Done
from ...requests.publish_part import Part
from ...requests.publisher import Publisher
from ...routing.topology import Topology
from ...rpc.channel import Channel, Reply
from ...rpc.frame import RpcError
from ...store.leading.topic_room import DECIDED
from ...store.transient import TransientGroup
from ..definitions import administration_wire
from ..leader_calls.call_wire import WireError, decode, encode_figures
from ..tree.tree import ClusterTree
from . import mesh_wire as wire
from .link import LinkInbox
from .local_definitions import LocalDefinitions

CHANGES_MAX = 256
"""Changes and questions of others under way: each a task, some 10 KB."""

Sender = tuple[int, str]


class InboxProcess(Protocol):
    """What is asked of the client in this process."""

    topology: Topology
    transient: TransientGroup
    local: LocalDefinitions
    publisher: Publisher
    home_groups: list[RaftGroup]

    @property
    def tree(self) -> ClusterTree:
        """The topic tree."""


class Inboxes:
    """Takes in what other processes send to the memory of this one."""

    def __init__(self, process: InboxProcess, clock: Clock, forget_ms: int) -> None:
        """`forget_ms`: a sender that was not heard for so long has given its links up."""
        self._process = process
        self._clock = clock
        self._forget_ms = forget_ms
        self._inboxes: dict[Sender, LinkInbox] = {}
        self._late: dict[Sender, int] = {}
        """When an inbox is forgotten, of senders that cannot be reached."""
        self._loop = asyncio.get_running_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self.over_changes = 0
        """Changes and questions refused at CHANGES_MAX."""

    async def stop(self) -> None:
        """Answer nothing more."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def closed(self, channel: Channel) -> None:
        """A sender cannot be reached by this connection any more."""
        for sender, inbox in self._inboxes.items():
            if inbox.channel is channel:
                inbox.channel = None
                self._late[sender] = self._clock.monotonic_ms() + self._forget_ms

    def each_second(self) -> None:
        """Forget what nobody will ask for."""
        now_ms = self._clock.monotonic_ms()
        for sender in [each for each, due_ms in self._late.items() if due_ms <= now_ms]:
            del self._late[sender], self._inboxes[sender]

    # --- Messages ---------------------------------------------------------------------------

    def frame(self, channel: Channel, payload: bytes) -> None:
        """A FRAME has come (hot). Raises RpcError."""
        try:
            link, number, heard, head, at = wire.decode_frame(payload)
        except WireError as error:
            raise RpcError(str(error)) from None
        sender = channel.peer.node, channel.peer.store
        inbox = self._inboxes.get(sender)
        if inbox is None or inbox.link != link:
            inbox = self._inboxes[sender] = LinkInbox(link, number)
        self._late.pop(sender, None)
        inbox.channel = channel
        if not inbox.is_new(number, heard):
            return
        if head.live:
            self._hand_over(head, payload, at)
        if head.runs:
            self._publish(inbox, number, head, payload[at:])
        else:
            inbox.done(number, None)

    def _hand_over(self, head: wire.Messages, payload: bytes, at: int) -> None:
        starts = list(accumulate(head.lengths, initial=at))
        tree = self._process.topology.tree
        for tenant, name, first, count in head.live:
            watches = tree.to(tenant, name, retain=False).watches
            slots = [
                payload[starts[each] : starts[each + 1]] for each in range(first, first + count)
            ]
            for watch in watches:
                if watch.sink is not None:
                    watch.sink.published_live(watch, slots)

    def _publish(self, inbox: LinkInbox, number: int, head: wire.Messages, slots: bytes) -> None:
        """Store what a frame brings, all of it or nothing."""
        part = Part(head.runs, head.lengths, [slots])
        transient, publisher = self._process.transient, self._process.publisher

        def done(results: object) -> None:
            inbox.done(number, results if isinstance(results, KernelError) else None)

        heard: Done = done
        try:
            if (refusal := publisher.transient_refusal(len(slots))) is not None:
                raise refusal
            heard = transient.topic_room.limit_whole(transient.replica, part, done)
        except KernelError as error:
            self._loop.call_soon(done, error)
            return
        transient.leader.publish(DECIDED, part, heard, head.origin)

    # --- Questions --------------------------------------------------------------------------

    def question(self, method: int, payload: bytes, reply: Reply) -> None:
        """ADMINISTER or FIGURES. Raises RpcError."""
        with _checked():
            if method == wire.ADMINISTER:
                _, _, change = administration_wire.decode_question(payload)
                self._answer(self._administer(change), reply)
            elif method == wire.FIGURES:
                asked = decode(wire.figures, payload)
                self._answer(self._figures(QueueId(asked.queue), asked.name), reply)
            else:
                raise RpcError(f"method {method} is not called")

    async def _administer(self, change: Administration) -> Sequence[bytes]:
        result: object = self._refusal(change)
        if result is None:
            try:
                result = await self._process.local.administer(change)
            except KernelError as error:
                result = error
        return administration_wire.encode_answer({}, result)

    def _refusal(self, change: Administration) -> KernelError | None:
        """A topic of a session is that session's alone, which is not where a change comes from."""
        if isinstance(change, PutRecord) or not self._process.local.is_local(change):
            return KernelError(Code.NOT_FOUND, "it does not live in the memory of this gateway")
        if isinstance(change, PutTopic | DeleteTopic | PurgeTopic | DeleteGroup):
            topic = self._process.topology.topics.get((change.tenant, change.name))
            if topic is not None and topic.options.owner is not None:
                return KernelError(Code.LOCKED, f"topic {change.name} is another session's")
        return None

    async def _figures(self, queue: QueueId, name: str) -> Sequence[bytes]:
        return encode_figures(await self._process.transient.leader.figures(queue, name))

    def _answer(self, work: Coroutine[object, object, Sequence[bytes]], reply: Reply) -> None:
        if len(self._tasks) >= CHANGES_MAX:
            work.close()
            self.over_changes += 1
            reply(KernelError(Code.BUSY, f"{CHANGES_MAX} questions of others are under way"))
            return
        task = self._loop.create_task(_reply(work, reply))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _reply(work: Coroutine[object, object, Sequence[bytes]], reply: Reply) -> None:
    try:
        reply(await work)
    except KernelError as error:
        reply(error)


@contextmanager
def _checked() -> Iterator[None]:
    """What is wrong with bytes closes the connection."""
    try:
        yield
    except WireError as error:
        raise RpcError(str(error)) from None
