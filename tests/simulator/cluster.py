"""Several stores in one thread, with a network between them that a seed makes unpleasant.

Virtual time, simulated disks and workers (`world`), messages through bytes. Each store is a whole
one: journal, Raft groups, state machines, housekeeping.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Self

from kernel.common.errors import Code, KernelError
from kernel.common.ids import RaftGroup
from kernel.in_process.opening import open_store
from kernel.raft import message_wire as wire
from kernel.raft.members.configuration import Change, ConfigurationChange
from kernel.raft.messages import RaftMessage
from kernel.store.raft_groups.consensus import RaftTiming
from tests.simulator.computer import Computer, Wires
from tests.simulator.loop import VirtualLoop
from tests.simulator.world import SMALL, SeededRandom

TIMING = RaftTiming(tick_ms=100, election_ticks=10)


@dataclass
class Trouble:
    """How unpleasant the network is: chances of each message, and its delay in seconds."""

    loss: float = 0.0
    repeat: float = 0.0
    delay_max: float = 0.005


class Network:
    """Carries messages between nodes, or not."""

    def __init__(self, loop: VirtualLoop, seed: int) -> None:
        self._loop = loop
        self._chance = random.Random(seed)
        self.trouble = Trouble()
        self.nodes: dict[int, Node] = {}
        self._cut: set[tuple[int, int]] = set()
        self.carried = 0
        self.asked = 0
        self.answers = True
        """Off: no question to another store is answered, while messages still go."""

    def isolate(self, nodes: Iterable[int], *, one_way: bool = False) -> None:
        """Cut these nodes off from all others (only what they send, if `one_way`)."""
        inside = set(nodes)
        for other in set(self.nodes) - inside:
            for node in inside:
                self._cut.add((node, other))
                if not one_way:
                    self._cut.add((other, node))

    def cut(self, ways: Iterable[tuple[int, int]]) -> None:
        """Lose what goes these ways: (from, to)."""
        self._cut.update(ways)

    def heal(self) -> None:
        self._cut.clear()

    def send(self, sender: int, group: int, message: RaftMessage) -> None:
        if (sender, message.to) in self._cut or self._chance.random() < self.trouble.loss:
            return
        payload = b"".join(wire.encode(group, message))
        copies = 2 if self._chance.random() < self.trouble.repeat else 1
        for _ in range(copies):
            delay = self._chance.uniform(0.0005, self.trouble.delay_max)
            self._loop.call_later(delay, self._deliver, sender, message.to, payload)

    async def ask(self, sender: int, to: int, question: bytes) -> bytes:
        """A call that may not get there, or not back."""
        for way in ((sender, to), (to, sender)):
            await asyncio.sleep(self._chance.uniform(0.0005, self.trouble.delay_max))
            lost = way in self._cut or self._chance.random() < self.trouble.loss
            if lost or not self.nodes[to].runs or not self.answers:
                raise KernelError(Code.UNKNOWN_OUTCOME, "the connection has broken")
            if way == (sender, to):
                answer = await self.nodes[to].answer(question)
                self.asked += 1
        return answer

    def _deliver(self, sender: int, to: int, payload: bytes) -> None:
        node = self.nodes[to]
        if (sender, to) in self._cut or not node.runs:
            return
        self.carried += 1
        for group, message in wire.decode(payload):
            node.opened.store.consensus.receive(RaftGroup(group), message)


class Node(Computer):
    """A machine with one disk, and the store that runs on it."""

    def __init__(self, cluster: Cluster, number: int, *, joins: bool = False) -> None:
        super().__init__(cluster.loop, cluster.network, number)
        self._cluster = cluster
        self._joins = joins
        self.fatal: list[tuple[str, BaseException]] = []

    async def start(self) -> None:
        cluster = self._cluster
        self.wires = Wires(cluster.network, self.number)
        self._opened = open_store(
            self.disk,
            self.clock,
            SeededRandom(cluster.seed * 1_000 + self.number),
            self.workers,
            lambda sentence, error: self.fatal.append((sentence, error)),
            options=SMALL,
            data_groups=cluster.data_groups,
            node=self.number,
            members=() if self._joins else cluster.members if len(cluster.members) > 1 else None,
            peers=self.wires,
            timing=TIMING,
            reserve_bytes=0,
            sparse_bytes_min=0,
            slice_records=4_096,
        )
        await self._opened.start()


class Cluster:
    """Nodes 1 to n, each a voter of every group."""

    def __init__(self, nodes: int = 3, data_groups: int = 1, seed: int = 1) -> None:
        self.loop = VirtualLoop()
        self.seed = seed
        self.data_groups = data_groups
        self.members = tuple(range(1, nodes + 1))
        self.network = Network(self.loop, seed)
        self.nodes = {number: Node(self, number) for number in self.members}
        self.network.nodes = self.nodes

    async def start(self) -> None:
        for node in self.nodes.values():
            await node.start()

    def add(self, number: int) -> Node:
        """A machine that is a member of nothing yet."""
        node = self.nodes[number] = Node(self, number, joins=True)
        return node

    async def change(self, group: int, *changes: Change) -> None:
        """Change the members of a group, whoever leads it, and wait until it is done."""
        leader = await self.led(group)
        before = leader.member(group).state.membership
        leader.opened.store.consensus.change_members(RaftGroup(group), ConfigurationChange(changes))
        await self.until(lambda: leader.member(group).state.membership != before)
        await self.until(lambda: not leader.member(group).core.tracker.members.voters_outgoing)

    def running(self) -> list[Node]:
        return [node for node in self.nodes.values() if node.runs]

    def leader(self, group: int) -> Node | None:
        """The node that serves a group (of the highest term, if an old one has not noticed)."""
        found = [node for node in self.running() if node.member(group).serves]
        return max(found, key=lambda node: node.member(group).core.term, default=None)

    async def until(self, condition: Callable[[], object], seconds: float = 60) -> None:

        end = self.loop.time() + seconds
        while not condition():
            assert self.loop.time() < end, "it did not come about in time"
            await asyncio.sleep(0.02)

    async def led(self, group: int = 1) -> Node:
        """The group's leader, as soon as there is one."""
        await self.until(lambda: self.leader(group))
        leader = self.leader(group)
        assert leader is not None
        return leader

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_about: object) -> None:
        for node in self.running():
            node.kill()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.close()
