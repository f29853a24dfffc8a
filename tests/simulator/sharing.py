"""A gateway with a store whose clients flood it, in simulated time: what goes ahead of one message.

One turn of the machine is one of an event loop: first what was called for this turn, then whatever
is there is read from every socket that is read at all. What is read costs CPU time, by which both
the turn and the disk go on; a commit takes `COMMIT_S`, however much is in it, so that what a commit
takes of whom is decided by who was let in, and by nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from adapters.fair_scheduler import FairScheduler
from adapters.memory import GatewayMemory
from adapters.transport import StreamProtocol
from kernel.api.client import Client, Destinations, PublishBatch, Session
from tests.simulator.peer import ORIGIN, Draft
from tests.simulator.world import WRITER, World

COMMIT_S = 0.02
LARGE_COMMIT_BYTES = 1024 * 1024
READ_BYTES = 256 * 1024
"""What an event loop reads of a socket at once."""
TURN_COST_US = 50
"""Of a turn in which nothing is read."""


class Socket:
    """What has come of one client, and the transport of its connection."""

    def __init__(self) -> None:
        self.waiting = 0
        """Bytes that have come and were not read."""
        self.is_endless = False
        self.is_read = True
        self.protocol: asyncio.BaseProtocol | None = None

    def read(self) -> None:
        """Hand over what one read brings."""
        protocol = self.protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            buffer = cast("memoryview", protocol.get_buffer(-1))
            size = self._take(len(buffer))
            if size:
                protocol.buffer_updated(size)
        elif size := self._take(READ_BYTES):
            cast("asyncio.Protocol", protocol).data_received(bytes(size))

    def _take(self, most: int) -> int:
        size = most if self.is_endless else min(most, self.waiting)
        self.waiting = max(0, self.waiting - size)
        return size

    # What `StreamProtocol` asks of a transport.

    def set_write_buffer_limits(self, high: int) -> None: ...

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def is_closing(self) -> bool:
        return False

    def get_extra_info(self, name: str) -> object:
        return None


class Publishing(StreamProtocol):
    """Publishes what it reads: a message of each `message_bytes`, one batch of each read."""

    def __init__(self, machine: Machine, tenant: str, message_bytes: int) -> None:
        super().__init__(machine.world.loop, machine.memory.listener("test", "tcp"), machine.turns)
        self._machine = machine
        self._message_bytes = message_bytes
        self._rest = 0
        self.tenant = tenant
        self.socket = Socket()
        self.socket.protocol = self
        self.connection_made(cast("asyncio.BaseTransport", self.socket))
        self.shares_as(tenant)

    def received(self, data: bytes) -> None:
        self._machine.passes(len(data) * self._machine.cost_ns // 1_000)
        messages, self._rest = divmod(self._rest + len(data), self._message_bytes)
        if messages:
            self._machine.publish(self, messages, self._message_bytes)


class Waited:
    """What went ahead of one message of the victim."""

    def __init__(self, turn: int) -> None:
        self.came_in_turn = turn
        self.turns = -1
        """Until it was read."""
        self.bytes_ahead = -1
        """Of others, on their way to the disk when it was read."""
        self.commits_before = -1
        self.stored_before = 0
        self.bytes_meanwhile = -1
        """Of others, that came to the disk from then until it did."""
        self.commits = -1
        """From then until it was on the disk."""


class Machine:
    """See the module."""

    def __init__(self, world: World, cost_ns: int) -> None:
        """`cost_ns`: CPU time of a byte that is read."""
        self.world = world
        self.cost_ns = cost_ns
        self.us = 0
        self.turn = 0
        self.longest_us = 0
        self._soon: list[Callable[[], None]] = []
        self.memory = GatewayMemory(world.clock)
        self.small_commit_s: float = COMMIT_S
        """How long one takes of less than `LARGE_COMMIT_BYTES`."""
        world.workers.delay_of = self._delay_s
        client = world.client
        self.turns = FairScheduler(
            client.rounds, self._soon.append, world.loop.call_later, lambda: self.us
        )
        self.client: Client = client
        self._session: Session = client.open_session("test", ORIGIN)
        self.to: dict[str, Destinations] = {}
        """By tenant, if it has a topic of its own; "": those that have none."""
        self.connections: list[Publishing] = []
        self.on_the_way: dict[str, int] = {}
        """Bytes that were submitted and are not answered, by tenant."""
        self.stored: dict[str, int] = {}
        self.waited: list[Waited] = []
        self._asked: list[Waited] = []

    def passes(self, us: int) -> None:
        """CPU time."""
        self.us += us

    def connect(self, tenant: str, message_bytes: int) -> Publishing:
        connection = Publishing(self, tenant, message_bytes)
        self.connections.append(connection)
        return connection

    def ask(self, victim: Publishing, size: int) -> None:
        """A message of the victim comes."""
        victim.socket.waiting += size
        self._asked.append(Waited(self.turn))

    def publish(self, by: Publishing, messages: int, size: int) -> None:
        to = self.to.get(by.tenant, self.to[""])
        batch = self.client.batch(self._session, self)
        batch.tag = by, messages * size, []
        parts = Draft(bytes(size)).parts(batch.uid(), 0)
        for _ in range(messages):
            batch.add(to, parts, sum(map(len, parts)))
        if by.tenant == "victim":
            for _ in range(messages):
                waited = self._asked.pop(0)
                waited.turns = self.turn - waited.came_in_turn
                waited.bytes_ahead = sum(
                    size for tenant, size in self.on_the_way.items() if tenant != by.tenant
                )
                waited.commits_before = self.world.opened.store.commits
                waited.stored_before = self._stored_of_others(by)
                batch.tag[2].append(waited)
                self.waited.append(waited)
        self.on_the_way[by.tenant] = self.on_the_way.get(by.tenant, 0) + messages * size
        self.client.submit(batch)

    def published(self, batch: PublishBatch) -> None:
        by, size, waited = cast("tuple[Publishing, int, list[Waited]]", batch.tag)
        assert not batch.failures
        self.on_the_way[by.tenant] -= size
        self.stored[by.tenant] = self.stored.get(by.tenant, 0) + size
        for each in waited:
            each.commits = self.world.opened.store.commits - each.commits_before
            each.bytes_meanwhile = self._stored_of_others(by) - each.stored_before

    def _stored_of_others(self, by: Publishing) -> int:
        return sum(size for tenant, size in self.stored.items() if tenant != by.tenant)

    def _delay_s(self, runner: str) -> float:
        if runner != WRITER:
            return 0
        batch = self.world.opened.store.journal._writer.in_flight
        written = 0 if batch is None else sum(map(len, batch.bodies.values()))
        return COMMIT_S if written >= LARGE_COMMIT_BYTES else self.small_commit_s

    async def give_topic(self, tenant: str, name: str) -> None:
        """A topic of its own, in another group than the others'."""
        peer = self.world.peer()
        infos = [await peer.topic("load"), await peer.topic(name)]
        assert infos[0].queues[0].group != infos[1].queues[0].group
        self.to = {"": self.client.to_topic(infos[0]), tenant: self.client.to_topic(infos[1])}

    async def run(self, seconds: float, each_turn: Callable[[], None] = lambda: None) -> None:
        """Turns, until so much time has passed."""
        if not self.to:
            self.to[""] = self.client.to_topic(await self.world.peer().topic("load"))
        end_us = self.us + int(seconds * 1e6)
        while self.us < end_us:
            began_us = self.us
            self.turn += 1
            each_turn()
            due, self._soon[:] = list(self._soon), []
            for action in due:
                action()
            for connection in self.connections:
                if connection.socket.is_read:
                    connection.socket.read()
            self.passes(TURN_COST_US)
            self.longest_us = max(self.longest_us, self.us - began_us)
            await asyncio.sleep((self.us - began_us) / 1e6)
