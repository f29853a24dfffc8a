"""The transient group of another process, as the clients of this one see it.

Publishes and figures only: consumers go another way (`streams`), and so do changes of what it is
(`remote_memory.RemoteMemory.administer`). Everything else is refused.

Durability: none; `done` hears that the memory of the other process has the messages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from ...api.model import TopicStatistics
from ...broker.log_commands import commands
from ...common.errors import Code, KernelError
from ...common.ids import Offset, QueueId, RaftGroup, queue_there
from ...requests.leader import Done, Identity, LeaseChanging, Together
from ...requests.publish_part import Part
from ..leader_calls.call_wire import decode_statistics
from . import mesh_wire as wire
from .link import MeshLink

Ask = Callable[[int, Sequence[bytes]], "asyncio.Future[bytes]"]


def elsewhere() -> KernelError:
    """What is refused from far away."""
    message = "the topic lives in the memory of another gateway, where only this can be done"
    return KernelError(Code.NOT_ALLOWED, message)


class RemoteMemoryLeader:
    """Stands for the leader of another process's transient group (`leader.Leader`)."""

    def __init__(
        self, group: RaftGroup, link: MeshLink, ask: Ask, refused: Callable[[], None]
    ) -> None:
        """`refused` is told of each frame that the link has no room for."""
        self._refused = refused
        self.group = group
        self._link = link
        self._ask = ask
        self._loop = asyncio.get_running_loop()

    def publish(self, identity: Identity, part: Part, done: Done, origin: int) -> None:
        """Have the other process store messages (hot): one frame a batch. Once, unless that process
        is given up while they are on their way.
        """
        size = part.size_bytes
        refusal = self._link.refusal(size)
        if refusal is not None:
            self._refused()
            self._loop.call_soon(done, refusal)
            return
        there = [
            (queue_there(QueueId(queue)), slot, count, features)
            for queue, slot, count, features in part.runs
        ]
        head = wire.encode_messages(there, (), part.lengths, origin)
        self._link.send(head, part.buffers, size, done)

    async def figures(
        self, queue: QueueId, group: str, offset: Offset | None = None
    ) -> TopicStatistics:
        """Figures of one queue and group. Raises KernelError: NOT_FOUND, UNAVAILABLE."""
        question = wire.encode(wire.ProcessFigures(queue_there(queue), group))
        return decode_statistics(await self._ask(wire.FIGURES, question))

    # --- What is refused --------------------------------------------------------------------

    def transact(self, identity: Identity, what: Together, done: Done, origin: int) -> None:
        """Refused: what lives in the memory of another process has no log."""
        self._loop.call_soon(done, (elsewhere(),))

    def prepare(
        self,
        identity: Identity,
        producers: str,
        queue: QueueId,
        parts: Sequence[bytes],
        done: Done,
    ) -> None:
        """Refused: what lives in the memory of another process has no log."""
        self._loop.call_soon(done, (elsewhere(),))

    def propose(self, change: commands.Control, identity: Identity, done: Done | None) -> None:
        """Refused: what lives in the memory of another process has no log."""
        if done is not None:
            self._loop.call_soon(done, elsewhere())

    def propose_all(
        self, changes: Sequence[commands.Control], identity: Identity, done: Done
    ) -> None:
        """Refused: what lives in the memory of another process has no log."""
        self._loop.call_soon(done, elsewhere())

    def change_leases(
        self,
        queue: QueueId,
        group: str,
        changes: Sequence[LeaseChanging],
        identity: Identity,
        done: Done,
        origin: int,
    ) -> None:
        """Refused: what lives in the memory of another process has no log."""
        self._loop.call_soon(done, elsewhere())

    def purge(
        self, queue: QueueId, group: str, identity: Identity, done: Done, *, in_flight: bool
    ) -> None:
        """Refused: what lives in the memory of another process has no log."""
        self._loop.call_soon(done, elsewhere())

    async def span(self, queue: QueueId) -> tuple[int, int]:
        """Refused. Raises KernelError NOT_ALLOWED."""
        raise elsewhere()

    async def offset_since(self, queue: QueueId, time_ms: int) -> Offset:
        """Refused. Raises KernelError NOT_ALLOWED."""
        raise elsewhere()

    async def peek(
        self, queue: QueueId, offset: Offset, messages: int
    ) -> Sequence[tuple[Offset, bytes]]:
        """Refused. Raises KernelError NOT_ALLOWED."""
        raise elsewhere()
