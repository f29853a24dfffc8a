"""Gateways of one cluster in one thread and in virtual time, with connections that come late and
break.

Each is a whole client, and finds and dials the others as it would; only its sockets are not there.
Nor are stores: that they hear a gateway is told by hand (`are_heard`), and nobody asks them whose a
name is.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from kernel.common.ids import RaftGroup
from kernel.remote.client import ClusterClient
from kernel.remote.leader_calls.leaders import RemoteLeaders
from kernel.remote.mesh import mesh_wire
from kernel.remote.mesh.meeting import Address, MeetingPoint
from kernel.rpc.channel import Channel, Handler
from kernel.rpc.handshake import VERSIONS, Hello
from kernel.rpc.link import TICK_SECONDS, WRITE_BYTES, Dialer, MakeChannel
from kernel.rpc.roles import GATEWAY
from kernel.store.raft_groups.peer_links import new_nonce
from tests.simulator.world import SeededRandom, World

SECRET = b"of this cluster"
DELAY_S_MAX = 0.02
HEARD_S_MAX = 0.3
"""An end hears by then that its connection has broken, if it does."""
REDIAL_S_MAX = 0.5


class Break:
    """How a connection breaks: who hears of it. Who does not finds out by the silence."""

    BOTH = (True, True)
    DIALER = (True, False)
    ACCEPTOR = (False, True)
    NEITHER = (False, False)
    ALL = (BOTH, DIALER, ACCEPTOR, NEITHER)


class _End:
    """One end of a connection: what `rpc.link` does, without a socket."""

    def __init__(self, network: SimulatedGateways, make: MakeChannel) -> None:
        self._network = network
        self._loop = network.world.loop
        self.channel = make(self._wake)
        self.other: _End | None = None
        self.lost: Callable[[], None] = lambda: None
        self.is_cut = False
        """Nothing comes or goes any more."""
        self.is_gone = False
        self._is_flushing = False
        self._last = 0.0
        """When the last of what it has said arrives."""
        self._ticker: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self.channel.start()
        self._tick()

    def _wake(self) -> None:
        if not self._is_flushing:
            self._is_flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._is_flushing = False
        while not self.is_gone and self.channel.has_output:
            self._carry(b"".join(self.channel.take(WRITE_BYTES)))
        self._end_if_over()

    def _carry(self, data: bytes) -> None:
        if self.other is not None:
            self._later(self.other.hear, data)

    def _later(self, action: Callable[..., None], *args: object) -> None:
        due = self._loop.time() + self._network.chance.uniform(0.0005, DELAY_S_MAX)
        due = self._last = max(due, self._last + 1e-6)
        self._loop.call_at(due, action, *args)

    def hear(self, data: bytes) -> None:
        if not self.is_cut and not self.is_gone:
            self.channel.receive(data, self._network.world.clock.monotonic_ms())
            self._end_if_over()

    def _tick(self) -> None:
        self._ticker = self._loop.call_later(TICK_SECONDS, self._tick)
        self.channel.tick(self._network.world.clock.monotonic_ms())
        self._end_if_over()

    def _end_if_over(self) -> None:
        if self.channel.is_closed and not self.is_gone:
            if self.channel.has_output:
                self._carry(b"".join(self.channel.take(WRITE_BYTES)))
            if self.other is not None:
                self._later(self.other.ended, "closed by the other end")
            self.gone("")

    def ended(self, reason: str) -> None:
        """The other end has closed it."""
        if not self.is_cut:
            self.gone(reason)

    def gone(self, reason: str) -> None:
        """The transport is."""
        if self.is_gone:
            return
        self.is_gone = True
        if self._ticker is not None:
            self._ticker.cancel()
        self.channel.broken(reason)
        self.lost()


class _SimulatedDialer(Dialer):
    """`Dialer` to another gateway of this thread."""

    def __init__(self, network: SimulatedGateways, ways: tuple[str, str], like: Dialer) -> None:
        super().__init__(*like.address, like._make, network.world.clock, None)
        self._network = network
        self._ways = ways
        self._end: _End | None = None
        self._is_stopped = False

    def start(self) -> None:
        if not self._is_stopped:
            self._end = self._network.connect(*self._ways, self._make)
            if self._end is None:
                self._again()
            else:
                self._end.lost = self._again

    def _again(self) -> None:
        self._end = None
        network = self._network
        network.world.loop.call_later(network.chance.uniform(0.05, REDIAL_S_MAX), self.start)

    @property
    def channel(self) -> Channel | None:
        return self._end.channel if self._end is not None and self._end.channel.is_open else None

    async def stop(self) -> None:
        self._is_stopped = True
        if self._end is not None:
            self._end.gone("shutting down")


class _SimulatedMeeting(MeetingPoint):
    """`MeetingPoint` without a listener."""

    def __init__(self, network: SimulatedGateways, own: Callable[[], Hello]) -> None:
        super().__init__(own, SECRET, network.world.clock)
        self._network = network

    def dialer(self, process: str, address: Address, handler: Handler) -> Dialer:
        like = super().dialer(process, address, handler)
        return _SimulatedDialer(self._network, (self.own, process), like)


class SimulatedGateways:
    """Gateways, and the network between them. Made in the loop of its world."""

    def __init__(self, world: World, seed: int, count: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self._random = SeededRandom(seed)
        self._stores = Channel.__new__(Channel)
        self._apart: set[frozenset[str]] = set()
        self._connections: list[tuple[tuple[str, str], _End, _End]] = []
        self._meetings: dict[str, _SimulatedMeeting] = {}
        self.clients = [self._client(str(number)) for number in range(1, count + 1)]
        self.are_heard(*self.clients)

    def _client(self, process: str) -> ClusterClient:
        def hello() -> Hello:
            nonce = new_nonce(self._random.bits)
            return Hello(VERSIONS, "test", 0, process, GATEWAY, "", nonce)

        clock = self.world.clock
        meeting = self._meetings[process] = _SimulatedMeeting(self, hello)
        leaders = RemoteLeaders(hello, SECRET, {}, clock)
        client = ClusterClient(leaders, [RaftGroup(1)], clock, self._random, meeting)
        client.local.reserve = None
        client._each_second()
        return client

    def are_heard(self, *clients: ClusterClient) -> None:
        """Stores hear these gateways, and tell so."""
        addresses = {each.mesh.process: "127.0.0.1:1" for each in clients}
        for client in self.clients:
            client.mesh.told(self._stores, mesh_wire.MEET, b"".join(mesh_wire.encode(addresses)))

    # --- Connections ------------------------------------------------------------------------

    def connect(self, dialer: str, acceptor: str, make: MakeChannel) -> _End | None:
        """A connection, of which the dialer's end is told; None: there is no way."""
        if frozenset((dialer, acceptor)) in self._apart:
            return None
        near = _End(self, make)
        far = _End(self, self._meetings[acceptor]._accepted)
        near.other, far.other = far, near
        self._connections = [each for each in self._connections if not each[1].is_gone]
        self._connections.append(((dialer, acceptor), near, far))
        for end in (far, near):
            end.start()
        return near

    def cut(self, one: ClusterClient, other: ClusterClient, how: tuple[bool, bool]) -> None:
        """Break what there is between two gateways; what is on its way is lost."""
        between = {one.mesh.process, other.mesh.process}
        for ways, *ends in self._connections:
            if set(ways) == between:
                for end, hears in zip(ends, how, strict=True):
                    end.is_cut = True
                    if hears:
                        later = self.chance.uniform(0, HEARD_S_MAX)
                        self.world.loop.call_later(later, end.gone, "cut")

    def part(self, one: ClusterClient, other: ClusterClient) -> None:
        """Let them not connect."""
        self._apart.add(frozenset((one.mesh.process, other.mesh.process)))

    def heal(self) -> None:
        """Let all connect."""
        self._apart.clear()

    # --- Waiting ----------------------------------------------------------------------------

    async def until(self, condition: Callable[[], object], seconds: float = 60) -> None:
        """Return once a condition holds, within so much virtual time."""
        end = self.world.loop.time() + seconds
        while not condition():
            assert self.world.loop.time() < end, "it did not come about in time"
            await asyncio.sleep(0.02)

    async def all_connected(self) -> None:
        """Return once each of them hears all others."""
        others = len(self.clients) - 1
        await self.until(
            lambda: all(
                len(each.mesh.peers) == len(each.mesh.remote_memory._by_channel) == others
                for each in self.clients
            )
        )
