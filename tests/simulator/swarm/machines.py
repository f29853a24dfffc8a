"""Machines, their disks and clocks, and the network between them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kernel.errors import Code, KernelError
from kernel.ids import RaftGroup
from kernel.log.errors import JournalDamaged
from kernel.log.journal import JournalOptions
from kernel.raft import wire
from kernel.raft.messages import HEARTBEAT, HEARTBEAT_ANSWER, Message
from kernel.store.consensus import RaftTiming
from kernel.store.member import Member
from kernel.store.opening import LocalStore, open_store
from tests.simulator.disk import Crash, SimulatedDisk
from tests.simulator.loop import SimulatedClock
from tests.simulator.world import WRITER, SeededRandom, SimulatedWorkers

if TYPE_CHECKING:
    from .raft_rules import Synced
    from .run import Run

TIMING = RaftTiming(tick_ms=200, election_ticks=5)
DATA_GROUPS = 3
OPTIONS = JournalOptions(
    segment_bytes=16 * 1024, reserve_bytes=16 * 1024, cache_bytes=32 * 1024, cold_bytes=32 * 1024
)
_SILENT = frozenset({HEARTBEAT, HEARTBEAT_ANSWER})


class Network:
    """Carries messages between machines, or not."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._chance = random.Random(run.seed + 1)
        self._cut: set[tuple[int, int]] = set()
        self.loss = run.levels.loss
        self.repeat = run.levels.repeat
        self.delay_s_max = run.levels.delay_s_max

    def cut(self, ways: Iterable[tuple[int, int]]) -> None:
        """Nothing goes these ways any more."""
        self._cut.update(ways)

    def heal(self) -> None:
        """Everything does."""
        self._cut.clear()
        levels = self._run.levels
        self.loss, self.repeat = levels.loss, levels.repeat
        self.delay_s_max = levels.delay_s_max

    def send(self, sender: Machine, group: int, message: Message) -> None:
        """A message leaves a machine."""
        self._run.raft.sent(sender, group, message)
        chance = self._chance
        if (sender.number, message.to) in self._cut or chance.random() < self.loss:
            return
        payload = b"".join(wire.encode(group, message))
        silent = message.kind in _SILENT
        for _ in range(2 if chance.random() < self.repeat else 1):
            delay = chance.uniform(0.0005, self.delay_s_max)
            self._run.loop.call_later(
                delay, self._deliver, sender.number, message.to, payload, silent
            )

    def _deliver(self, sender: int, to: int, payload: bytes, silent: bool) -> None:
        machine = self._run.machines[to]
        if (sender, to) in self._cut or not machine.runs:
            return
        if not silent:
            self._run.events += 1
        for group, message in wire.decode(payload):
            machine.opened.store.consensus.receive(RaftGroup(group), message)
            if machine.runs:
                self._run.raft.stepped(machine, group)

    async def ask(self, sender: int, to: int, question: bytes) -> bytes:
        """A call that may not get there, or not back."""
        answer = b""
        for way in ((sender, to), (to, sender)):
            await asyncio.sleep(self._chance.uniform(0.0005, self.delay_s_max))
            machine = self._run.machines[to]
            lost = way in self._cut or self._chance.random() < self.loss
            if lost or not machine.runs:
                raise KernelError(Code.UNKNOWN_OUTCOME, "the connection has broken")
            if way == (sender, to):
                source = machine.opened.source
                assert source is not None
                self._run.events += 1
                answer = await source.answer(question)
        return answer


class Wires:
    """`kernel.store.peers.Peers` of one process."""

    def __init__(self, network: Network, machine: Machine) -> None:
        self._network = network
        self._machine = machine
        self.alive = True

    def send(self, group: int, message: Message) -> None:
        if self.alive:
            self._network.send(self._machine, group, message)

    def flush(self) -> None:
        pass

    async def ask(self, node: int, question: bytes) -> bytes:
        if not self.alive:
            await asyncio.get_running_loop().create_future()
        return await self._network.ask(self._machine.number, node, question)


class Machine:
    """One disk, one clock, and the process of a store, if it runs."""

    def __init__(self, run: Run, number: int, members: tuple[int, ...] | None) -> None:
        self._run = run
        self._members = members
        self.number = number
        self.disk = SimulatedDisk()
        self.clock = SimulatedClock(run.loop)
        self.workers = SimulatedWorkers(run.loop)
        self.wires = Wires(run.network, self)
        self.process = 0
        """Counts the processes that have run here."""
        self.gone = False
        """Its disk was damaged: it never comes back."""
        self.synced: dict[int, Synced] = {}
        self.pending: list[tuple[int, int, int, int]] = []
        self._opened: LocalStore | None = None

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

    async def start(self) -> None:
        """Start a process. OSError if the disk is full."""
        run = self._run
        self.wires = Wires(run.network, self)
        self.process += 1
        self.pending = []
        random_s = SeededRandom(run.seed * 10_000 + self.number * 100 + self.process)
        opened = open_store(
            *(self.disk, self.clock, random_s, self.workers, self._fatal),
            options=OPTIONS,
            data_groups=DATA_GROUPS,
            node=self.number,
            members=self._members,
            peers=self.wires,
            timing=TIMING,
            reserve_bytes=0,
            sparse_bytes_min=0,
            slice_records=64,
        )
        self._opened = opened
        self.workers.delay_s[WRITER] = run.levels.write_s
        run.raft.recovered(self)
        process = self.process
        await opened.start()
        assert process == self.process

    async def try_start(self) -> bool:
        """Start, unless the disk has no room, or is damaged."""
        if self.runs or self.gone:
            return self.runs
        try:
            await self.start()
        except JournalDamaged:
            self.gone = True
            self._run.damaged(self)
        except OSError:
            self.end()
            self.disk = self.disk.killed_copy()
            return False
        return self.runs

    def _fatal(self, sentence: str, error: BaseException) -> None:
        """The process ends here and now: nothing of it is heard any more."""
        if isinstance(error, OSError):
            self._run.count("process ended by a failed sync")
        elif not isinstance(error, Crash):
            self._run.crashed(f"node {self.number}: {sentence}: {error!r}")
        self.workers.dead = True
        self.wires.alive = False
        self._run.loop.call_soon(self._end_of, self.process)

    def _end_of(self, process: int) -> None:
        if self.process == process and self.runs:
            self.kill()

    def power_off(self, seed: int) -> None:
        """What was not synced is gone, or there in parts."""
        before = self.disk
        self.disk = before.crashed_copy(seed)
        if self.disk.torn:
            self._run.count("torn tail")
        before.stop()
        self.end()

    def power_off_in_write(self, boundaries: int, seed: int) -> None:
        """The same, after so many boundaries of its disk."""
        left = [boundaries]

        def boundary(_count: int, what: str) -> None:
            left[0] -= 1
            if left[0] <= 0 and ("seg" in what or left[0] < -40):
                self.disk.on_boundary = None
                self.workers.dead = True
                self.wires.alive = False
                self._run.loop.call_soon(self._off, process, seed)
                raise Crash

        process = self.process
        self.disk.on_boundary = boundary

    def _off(self, process: int, seed: int) -> None:
        if self.process == process and self.runs:
            self.power_off(seed)

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
        self.workers = SimulatedWorkers(self._run.loop)
        opened, self._opened = self._opened, None
        if opened is not None:
            # Timers of the dead process may still fire, and queue what no disk will ever see.
            self._run.journals.pop(opened.store.journal, None)
            opened.store._ticker.stop()
            opened.store.consensus.wall_clocks.stop()
            ticker = opened.housekeeper._ticker
            if ticker is not None:
                ticker.cancel()
            second = opened.client._second_timer
            if second is not None:
                second.cancel()
            if opened.receiver is not None:
                for task in opened.receiver._tasks.values():
                    task.cancel()
            self._run.ended(self)
