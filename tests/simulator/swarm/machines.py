"""Machines, their disks and clocks, and the network between them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kernel.broker.group_state.state import GroupState
from kernel.cluster.births import Births
from kernel.common.errors import Code, KernelError
from kernel.common.feature_levels import LATEST
from kernel.common.ids import ADDED_FIRST, RaftGroup
from kernel.in_process.opening import LocalStore, open_store
from kernel.log.errors import FormatError, JournalError
from kernel.log.format.checkpoint import Position
from kernel.log.format.mark import MARK_NAME
from kernel.log.journal import JournalOptions
from kernel.raft import message_wire as wire
from kernel.raft.messages import HEARTBEAT, HEARTBEAT_ANSWER, RaftMessage
from kernel.store.raft_groups.consensus import RaftTiming
from kernel.store.recovery.damage import Others
from tests.simulator.computer import Computer, Wires
from tests.simulator.disk import Crash, SimulatedDisk
from tests.simulator.world import WRITER, SeededRandom

from .peer_stores import SimulatedPeerStores

if TYPE_CHECKING:
    from .raft_rules import Record, Synced
    from .run import Run

TIMING = RaftTiming(tick_ms=200, election_ticks=5)
DATA_GROUPS = 3
CLAIM_S = 1.0
TOLD_S = 0.25
LOOK_AGAIN_S = 4.0
"""Of a leader for what was left half done: in the product it is a minute."""


OPTIONS = JournalOptions(
    segment_bytes=16 * 1024,
    reserve_bytes=16 * 1024,
    long_bytes=2 * 1024,
    cache_bytes=32 * 1024,
    cold_bytes=32 * 1024,
)
_SILENT = frozenset({HEARTBEAT, HEARTBEAT_ANSWER})


class Network:
    """Carries messages between machines, or not."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._chance = random.Random(run.seed + 1)
        self._cut: set[tuple[int, int]] = set()
        self._last: dict[tuple[int, int], float] = {}
        """By way: when the last message that keeps its place arrives."""
        self.heal()

    def cut(self, ways: Iterable[tuple[int, int]]) -> None:
        """Nothing goes these ways any more."""
        self._cut.update(ways)

    def parts(self, one: Machine, other: Machine) -> bool:
        """Whether they hear nothing of each other, at least one way."""
        ways = {(one.number, other.number), (other.number, one.number)}
        return not ways.isdisjoint(self._cut)

    def heal(self) -> None:
        """Everything does."""
        self._cut.clear()
        levels = self._run.levels
        self.loss, self.repeat, self.reorder = levels.loss, levels.repeat, levels.reorder
        self.delay_s_max = levels.delay_s_max

    def be_pleasant(self) -> None:
        """Nothing is lost, repeated or overtaken any more."""
        self.loss = self.repeat = self.reorder = 0.0

    def send(self, sender: int, group: int, message: RaftMessage) -> None:
        """A message leaves a machine."""
        self._run.raft.sent(self._run.machines[sender], group, message)
        chance = self._chance
        if (sender, message.to) in self._cut or chance.random() < self.loss:
            return
        payload = b"".join(wire.encode(group, message))
        silent = message.kind in _SILENT
        way = (sender, message.to)
        loop = self._run.loop
        for _ in range(2 if chance.random() < self.repeat else 1):
            due = loop.time() + chance.uniform(0.0005, self.delay_s_max)
            if chance.random() >= self.reorder:
                due = self._last[way] = max(due, self._last.get(way, 0.0) + 1e-6)
            loop.call_at(due, self._deliver, *way, payload, silent)

    def _deliver(self, sender: int, to: int, payload: bytes, silent: bool) -> None:
        machine = self._run.machines[to]
        if (sender, to) in self._cut or not machine.runs:
            return
        if not silent:
            self._run.events += 1
        for group, message in wire.decode(payload):
            machine.opened.store.consensus.receive(RaftGroup(group), message)
            if machine.runs and group in machine.opened.store.groups:
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
                self._run.events += 1
                answer = await machine.answer(question)
        return answer


class Machine(Computer):
    """A machine of a run."""

    def __init__(self, run: Run, number: int, members: tuple[int, ...] | None) -> None:
        super().__init__(run.loop, run.network, number)
        self._run = run
        self._members = members
        self.lives = 1
        self.directory = f"disk-{number}"
        """Id of its data directory."""
        self.understands = 0 if run.levels.old else LATEST
        """The features that the build which is started here knows."""
        self.peer_stores: SimulatedPeerStores | None = None
        """By which its process reaches leaders elsewhere."""
        self.process = 0
        """Counts the processes that have run here."""
        self.hurt: set[int] = set()
        """Groups that were found damaged here, and were not healed when it last started."""
        self.synced: dict[int, Synced] = {}
        self.pending: list[Record] = []
        self.proven = Position(0, 0)
        """Where the last batch that is on its disk begins. What stands before it was synced, and
        its disk tells; the batch itself was not for certain (`kernel.log.recovering.scan`).
        """

    async def start(self) -> None:
        """Start a process. OSError if the disk is full."""
        run = self._run
        self.wires = Wires(run.network, self.number)
        self.process += 1
        self.pending = []
        random_s = SeededRandom(run.seed * 10_000 + self.number * 100 + self.process)
        self.disk.beside = self.workers(WRITER) if (run.seed + self.number) % 2 else None
        workers = self.workers

        def fatal(sentence: str, error: BaseException) -> None:
            if workers is self.workers:  # else its process has ended before
                self._fatal(sentence, error)

        opened = open_store(
            self.disk,
            self.clock,
            random_s,
            workers,
            fatal,
            options=OPTIONS,
            data_groups=DATA_GROUPS,
            node=self.number,
            members=self._members,
            peers=self.wires,
            timing=TIMING,
            reserve_bytes=0,
            sparse_bytes_min=0,
            slice_records=64,
            understands=self.understands,
        )
        self._opened = opened
        self._reach_others(opened)
        self._diagnose(opened)
        opened.store.awaits_claims = True
        if self.number % 2:
            opened.client.note_active("*")
            opened.store.scheduler.part, opened.store.scheduler.few = 3, 1
        births = run.newborn.started(self)
        opened.store.consensus.leaders_changed = lambda: self._await_claims(opened)
        self.workers.delay_s[WRITER] = run.levels.write_s
        # What was not proven was copied, and the checkpoint says so.
        self.proven = opened.store.journal._writer.synced_end()
        run.raft.recovered(self)
        run.features.recovered(self)
        if run.levels.nodes == 1:
            run.same_state_in(self)
        process = self.process
        try:
            await opened.start()
        except asyncio.CancelledError:
            if self._opened is opened:
                raise
            return  # the process has ended while it gave up what it had found
        self._be_told(births, process)
        assert process == self.process

    def _be_told(self, births: Births, process: int) -> None:
        """As `cluster.manager` has it look."""
        if self.runs and process == self.process:
            births.look()
            if self.peer_stores is not None:
                self.peer_stores.look()
            self._run.loop.call_later(TOLD_S, self._be_told, births, process)

    def _reach_others(self, opened: LocalStore) -> None:
        """It asks other stores, as in a cluster."""
        run = self._run
        if run.levels.nodes > 1:
            self.peer_stores = SimulatedPeerStores(run, self, opened)
            opened.client.join(self.peer_stores)
            opened.client.leader_tasks.look_again_seconds = LOOK_AGAIN_S
        opened.client.sizing.tell = lambda _topic, what, _why: run.beside.sized(what)

    async def try_start(self) -> bool:
        """Start, unless the disk has no room."""
        if self.runs:
            return True
        try:
            await self.start()
        except OSError:
            self._not_started()
        except FormatError:
            if self.understands == LATEST:
                raise
            self._too_old()
            self._not_started()
        return self.runs

    def wipe(self) -> None:
        """It has an empty disk from now on, and is another store than before."""
        run = self._run
        run.count("store wiped")
        run.note(f"{self.number} is wiped")
        if self.runs:
            self.kill()
        self.disk = SimulatedDisk()
        self._members = ()
        self.lives += 1
        self.directory = f"disk-{self.number}-{self.lives}"
        self.hurt = set()
        run.raft.wiped(self)

    def _not_started(self) -> None:
        self.end()
        self.disk = self.disk.killed_copy()

    def _too_old(self) -> None:
        """The build does not understand what is on: next time it is a newer one."""
        self._run.count("old build ended by what it does not understand")
        self.understands = LATEST

    def _await_claims(self, opened: LocalStore) -> None:
        """Those who hold something of the last leader may claim it for a while."""
        for replica in opened.store.replicas():
            if replica.awaits_claims:
                self._run.loop.call_later(CLAIM_S, replica.claims_over)

    def _diagnose(self, opened: LocalStore) -> None:
        damaged = set(map(int, opened.store.consensus.healing.lost))
        if damaged - self.hurt:
            self._run.count("corrupt synced record")
            what = f"node {self.number} has lost groups {sorted(damaged - self.hurt)}"
            self._run.note(what)
            if self._run.flipped != self.number:
                self._run.broken("a good disk loses nothing", what)
        self.hurt = damaged

    @property
    def mends(self) -> bool:
        """Whether it looks for what was left half done in a group that it leads."""
        tasks = self.opened.client.leader_tasks._running.values()
        return not all(each.done() for each in tasks)

    def has_something_of(self, group: RaftGroup) -> bool:
        """Whether a manager would tell it to leave, once it is no member."""
        store = self.opened.store
        return group in store.groups and not store.has_nothing_of(group)

    def serves(self, group: int) -> bool:
        """Whether it says that it leads a group."""
        return self.opened.store.serving(RaftGroup(group)) is not None

    @property
    def heals(self) -> dict[int, bool]:
        """Groups that it has lost, and whether nothing is heard of it there."""
        healing = self.opened.store.consensus.healing
        return {int(group): group in healing.silent for group in healing.lost}

    @property
    def shows_others(self) -> bool:
        """By its snapshots others can heal every group, and another one still reads if one of them
        is lost: else it would refuse to start.
        """
        shown = 0
        for group in self.opened.store.groups:
            snapshot = self.member(group).log.snapshot()
            if snapshot is not None:
                state = GroupState(group)
                state.membership = snapshot.membership
                if not Others(self.number, None, {group: state}).have(group):
                    return False
                shown += 1
            elif self._members is None and group not in self.heals:
                return False
            elif group >= ADDED_FIRST and self.opened.store.holds(group):
                return False  # it has begun here, and nobody else has it yet
        return shown > 1 or self._members is not None

    def _fatal(self, sentence: str, error: BaseException) -> None:
        """The process ends here and now: nothing of it is heard any more."""
        if isinstance(error, FormatError) and self.understands < LATEST:
            self._too_old()
        elif isinstance(error, OSError):
            self._run.count("process ended by a failed sync")
        elif isinstance(error, JournalError) and self._run.flipped == self.number:
            self._run.count("process ended by an unreadable record")
        elif not isinstance(error, Crash):
            self._run.crashed(f"node {self.number}: {sentence}: {error!r}")
        self.workers.dead = True
        self.wires.alive = False
        self._run.loop.call_soon(self._end_of, self.process)

    def _end_of(self, process: int) -> None:
        if self.process == process and self.runs:
            self.kill()

    def crash(self, seed: int | None = None) -> None:
        super().crash(seed)
        if self.disk.torn:
            self._run.count("torn tail")

    def power_off_in_write(self, boundaries: int, seed: int) -> None:
        """The same, after so many boundaries of its disk."""
        left = [boundaries]

        def boundary(_count: int, what: str) -> None:
            left[0] -= 1
            # Not while the mark is noted: that is a timer's, which no runner reports of.
            late = left[0] < -40 and MARK_NAME not in what
            if left[0] <= 0 and ("seg" in what or late):
                self.disk.on_boundary = None
                self.workers.dead = True
                self.wires.alive = False
                self._run.loop.call_soon(self._off, process, seed)
                raise Crash

        process = self.process
        self.disk.on_boundary = boundary

    def _off(self, process: int, seed: int) -> None:
        if self.process == process and self.runs:
            self.crash(seed)

    def end(self) -> None:
        opened = self._opened
        if opened is not None and self._run.levels.nodes == 1:
            self._run.same_state_in(self)  # what replay has to come to
        super().end()
        if opened is not None:
            self._run.left_behind.append(opened)
            self._run.journals.pop(opened.store.journal, None)
            self._run.ended(self)
