"""The gateway's side of the tests: a request pipeline over leaders far away, and messages with a
number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import count

from kernel.api import message as messages
from kernel.api.model import DEFAULT_GROUP, GroupOptions, TopicInfo, TopicOptions
from kernel.broker.log_commands import commands
from kernel.common.ids import Offset, QueueId, RaftGroup, TopicId, queue_id
from kernel.remote.leader_calls.leaders import CALL_MS, QUESTION_MS, RemoteLeaders
from kernel.requests.leader import Done, Identity, Leader
from kernel.requests.proposer import Proposer
from kernel.requests.publish_part import Part
from kernel.requests.request_pipeline import RequestPipeline
from kernel.rpc.handshake import VERSIONS, Hello
from kernel.rpc.roles import GATEWAY
from kernel.store.raft_groups.peer_links import new_nonce
from tests.kernel.three_stores import CLOCK, RANDOM, SECRET, Node, until

GROUP = RaftGroup(1)
CLIENT = 77


def slot(body: bytes) -> bytes:
    """A plain message."""
    uid = RANDOM.bits(128).to_bytes(16, "big")
    message = messages.Message(1, 0, messages.Flag(0), uid, 1, 0, 0, 0, 0, {}, b"", body)
    return messages.encode(message)


def body_of(stored: bytes) -> bytes:
    return messages.decode(stored).body


class Gateway:
    """A process that leads nothing."""

    def __init__(
        self,
        addresses: dict[int, tuple[str, int]],
        *,
        secret: bytes = SECRET,
        call_ms: int = CALL_MS,
        question_ms: int = QUESTION_MS,
    ) -> None:
        self.process = str(RANDOM.bits(64))
        self.remote = RemoteLeaders(
            self._hello, secret, addresses, CLOCK, call_ms=call_ms, question_ms=question_ms
        )
        self.request_pipeline = RequestPipeline(self.remote, CLOCK, asyncio.get_running_loop())
        self._sequence = count(1)
        self.proposer = Proposer(self.identity, self.request_pipeline.send)

    def _hello(self) -> Hello:
        nonce = new_nonce(RANDOM.bits)
        return Hello(VERSIONS, "test", 0, self.process, GATEWAY, "", nonce)

    def identity(self) -> Identity:
        return CLIENT, 1, next(self._sequence)

    def publish(self, queue: QueueId, bodies: Sequence[bytes], done: Done) -> None:
        """Have messages stored in one batch, once."""
        slots = [slot(each) for each in bodies]
        part = Part([(queue, 0, len(slots), 0)], list(map(len, slots)), slots)
        identity = self.identity()

        def attempt(leader: Leader, heard: Done) -> None:
            leader.publish(identity, part, heard, 1)

        self.request_pipeline.send(GROUP, attempt, done)

    async def stored(self, queue: QueueId, bodies: Sequence[bytes]) -> object:
        """`publish`, awaited."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.publish(queue, bodies, future.set_result)
        return await asyncio.wait_for(future, 20)

    async def topic(self, name: str, queues: int = 1, number: int = 1) -> list[QueueId]:
        """Make a topic; its queues."""
        ident = TopicId(GROUP << 32 | number)
        options = TopicOptions(queues=queues)
        groups = {DEFAULT_GROUP: GroupOptions()}
        placement = (int(GROUP),) * queues
        change = commands.PutTopic("default", name, options, groups, True, ident, placement)
        info = await self.proposer.propose(GROUP, change)
        assert isinstance(info, TopicInfo)
        return [queue_id(ident, each) for each in range(queues)]

    async def bodies(self, queue: QueueId) -> list[bytes]:
        found = await self.remote.leader(GROUP).peek(queue, Offset(0), 1 << 20)
        assert [offset for offset, _ in found] == list(range(len(found)))
        return [body_of(each) for _, each in found]


@asynccontextmanager
async def started(gateway: Gateway, nodes: Sequence[Node]) -> AsyncIterator[Gateway]:
    gateway.remote.start()
    try:
        await until(partial(_is_connected, gateway, nodes))
        yield gateway
    finally:
        await gateway.remote.stop()


def _is_connected(gateway: Gateway, nodes: Sequence[Node]) -> bool:
    return gateway.remote.connected == [node.number for node in nodes if node.runs]
