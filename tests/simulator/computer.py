"""A machine: one disk, one clock, and the process of a store, if it runs."""

from __future__ import annotations

import asyncio
from typing import Protocol

from kernel.common.errors import Code, KernelError
from kernel.common.ids import RaftGroup
from kernel.in_process.opening import LocalStore
from kernel.raft.messages import RaftMessage
from kernel.store.raft_groups.member import Member
from tests.simulator.disk import SimulatedDisk
from tests.simulator.loop import SimulatedClock
from tests.simulator.world import SimulatedWorkers


class Carrier(Protocol):
    """Carries messages between machines, or not."""

    def send(self, sender: int, group: int, message: RaftMessage) -> None:
        """A message leaves a machine."""

    async def ask(self, sender: int, to: int, question: bytes) -> bytes:
        """A call that may not get there, or not back: KernelError."""


class Wires:
    """`kernel.store.raft_groups.peers.Peers` of one process."""

    def __init__(self, network: Carrier, number: int) -> None:
        self._network = network
        self._number = number
        self.alive = True

    def send(self, group: int, message: RaftMessage) -> None:
        if self.alive:
            self._network.send(self._number, group, message)

    def flush(self) -> None:
        pass

    async def ask(self, node: int, question: bytes) -> bytes:
        if not self.alive:
            await asyncio.get_running_loop().create_future()
        return await self._network.ask(self._number, node, question)


class Computer:
    """See the module's head."""

    def __init__(self, loop: asyncio.AbstractEventLoop, network: Carrier, number: int) -> None:
        self._loop = loop
        self._network = network
        self.number = number
        self.disk = SimulatedDisk()
        self.clock = SimulatedClock(loop)
        self.workers = SimulatedWorkers(loop)
        self.wires = Wires(network, number)
        self._opened: LocalStore | None = None
        self._answering: dict[asyncio.Task[bytes], None] = {}

    @property
    def runs(self) -> bool:
        return self._opened is not None

    @property
    def opened(self) -> LocalStore:
        assert self._opened is not None, f"node {self.number} does not run"
        return self._opened

    def member(self, group: int) -> Member:
        """Its part in a group."""
        return self.opened.store.member(RaftGroup(group))

    async def answer(self, question: bytes) -> bytes:
        """Answer another machine. KernelError; UNKNOWN_OUTCOME once the process has ended, for then
        its connections break.
        """
        source = self.opened.source
        assert source is not None
        work = self._loop.create_task(source.answer(question))
        self._answering[work] = None
        try:
            await asyncio.wait([work])
        finally:
            work.cancel()  # whoever has asked may have ended
            del self._answering[work]
        if work.cancelled():
            raise KernelError(Code.UNKNOWN_OUTCOME, "the connection has broken")
        return work.result()

    def crash(self, seed: int | None = None) -> None:
        """Power loss: what was not synced is gone, or with a seed there in parts."""
        before = self.disk
        self.disk = before.crashed_copy(seed)
        before.stop()
        self.end()

    def kill(self) -> None:
        """The process is gone, the page cache stays."""
        before = self.disk
        self.disk = before.killed_copy()
        before.stop()
        self.end()

    def end(self) -> None:
        """Nothing of the process runs any more."""
        self.wires.alive = False
        self.workers.dead = True
        self.workers = SimulatedWorkers(self._loop)
        for work in self._answering:
            work.cancel()
        opened, self._opened = self._opened, None
        if opened is not None:
            _stop(opened)


def _stop(opened: LocalStore) -> None:
    """Timers and tasks of a dead process would queue what no disk will ever see."""
    store = opened.store
    store._ticker.stop()
    store.consensus.wall_clocks.stop()
    store.consensus.healing.stop()
    store.unreadable.stop()
    opened.housekeeper._stopping = True
    for timer in (opened.housekeeper._ticker, opened.client._second_timer):
        if timer is not None:
            timer.cancel()
    client = opened.client
    workers = [each.worker for each in client.moves._running.values()]
    running = (client.leader_tasks._running, client._predecessors._hearing)
    for work in (*workers, *client._background, *running[0].values(), *running[1].values()):
        if work is not None:
            work.cancel()
    if opened.receiver is not None:
        for task in opened.receiver._tasks.values():
            task.cancel()
