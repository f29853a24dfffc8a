"""What no gateway says, said on the connections by which gateways consume from each other.

Whoever says it has the cluster's secret, and is broken. It loses its connection, or is not heeded;
nothing is raised, and others go on consuming from the gateway that hears it, and it from them.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from kernel.api.client import Client, Consumer, ConsumerSpec, Deliveries, ReceiveSpec, Settlement
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, TopicInfo, TopicOptions
from kernel.common.errors import KernelError
from kernel.common.ids import MEMORY_FIRST, TRANSIENT_GROUP
from kernel.remote.client import ClusterClient
from kernel.remote.leader_calls import call_numbers as calls
from kernel.remote.leader_calls.call_wire import WireError
from kernel.remote.mesh import mesh_wire
from kernel.remote.streams import stream_wire
from kernel.rpc.channel import Channel
from tests.kernel.remote.gateway import slot
from tests.kernel.remote.simulated_gateways import SimulatedGateways
from tests.simulator.peer import Peer, read
from tests.simulator.world import World

SEEDS = range(6)
ROUNDS = 150
METHODS = [*calls.STREAMS, *mesh_wire.CONSUMERS_OF_1]
NUMBERS = [0, 1, 2, 3, 4, 5, 6, 7, 1 << 16, 1 << 31, (1 << 32) - 1, 1 << 63, -1]
GROUPS = [1, int(MEMORY_FIRST), int(TRANSIENT_GROUP)]


class Sink:
    """A consumer that heeds every message of a good gateway, and none of the bad one."""

    def __init__(self, *, trusts: bool) -> None:
        self._trusts = trusts
        self.bodies: list[bytes] = []
        self.consumer: Consumer | None = None
        self.has_ended = False

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        if self._trusts:
            self.bodies += [each.body for each in read(deliveries, consumer)]

    def consumer_ended(self, consumer: Consumer, error: KernelError) -> None:
        assert not self._trusts, error
        self.has_ended = True


class Run:
    """A gateway that hears garbage of a bad one, and a good one that shares memory with both."""

    def __init__(self, world: World, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.net = SimulatedGateways(world, seed, 3)
        self.bad, self.hears, self.good = self.net.clients
        self.heard: dict[int, list[bytes]] = {}
        """What the bad one has said while it was good, by method."""
        self._is_good = True
        self.closed = 0
        self._numbers = 0
        listening = (self.hears.streams, self.hears.mesh.stream_service)
        for each in listening:
            setattr(each, "told", self._noting(each.told))  # noqa: B010 -- a method

    def _noting(
        self, told: Callable[[Channel, int, bytes], None]
    ) -> Callable[[Channel, int, bytes], None]:
        def note(channel: Channel, method: int, payload: bytes) -> None:
            if self._is_good and channel.peer.store == self.bad.mesh.process:
                self.heard.setdefault(method, []).append(payload)
            told(channel, method, payload)

        return note

    def topic(self, client: ClusterClient, name: str) -> TopicInfo:
        found = client.topic(DEFAULT_TENANT, name)
        assert found is not None
        return found

    def _consume(self, client: ClusterClient, name: str, *, trusts: bool) -> Sink:
        sink = Sink(trusts=trusts)
        session = client.open_session("x")
        spec = ConsumerSpec(self.topic(client, name), DEFAULT_GROUP, session, auto_ack=trusts)
        sink.consumer = client.attach(spec, sink)
        sink.consumer.grant(1_000_000)
        return sink

    async def _publish(self, client: ClusterClient, name: str, count: int = 1) -> list[bytes]:
        self._numbers += count
        bodies = [b"%d" % (self._numbers - each) for each in range(count)]
        peer = Peer(cast("Client", client), self.world.clock, "p")
        sent = await peer.publish(self.topic(client, name), *bodies)
        assert not sent.failures
        return bodies

    async def whole(self) -> None:
        await self.net.all_connected()
        for client, name in ((self.bad, "bad"), (self.hears, "hears"), (self.good, "good")):
            peer = Peer(cast("Client", client), self.world.clock, "p")
            for topic in (name, f"{name}, for itself"):
                await peer.topic(topic, TopicOptions(durable=False))
        await asyncio.sleep(1)
        await self._all_is_said()
        self._is_good = False
        there = self._consume(self.good, "hears", trusts=True)
        back = self._consume(self.hears, "good", trusts=True)
        for _ in range(ROUNDS):
            self._consume(self.hears, "bad", trusts=False)
            self._say_garbage()
            await asyncio.sleep(self.chance.uniform(0.05, 0.3))
            assert not self.world.loop.errors
            for client, name, sink in ((self.hears, "hears", there), (self.good, "good", back)):
                wanted = await self._publish(client, name)
                await self.net.until(lambda s=sink, w=wanted: set(w) <= set(s.bodies))  # type: ignore[misc]
            await self.net.all_connected()
        assert self.closed
        assert len(there.bodies) == len(back.bodies) == ROUNDS

    async def _all_is_said(self) -> None:
        """Everything that streams say, so that there is something to falsify."""
        pairs = ((self.hears, "bad, for itself"), (self.bad, "hears, for itself"))
        for client, name in pairs:
            session = client.open_session("x")
            topic = self.topic(client, name)
            receive = ReceiveSpec(topic, DEFAULT_GROUP, 5, 100, session)
            await client.receive(receive)
            await self._publish(client, name, 5)
            received = await client.receive(receive)
            assert received.deliveries is not None
            assert received.consumer is not None
            offsets = list(received.deliveries.offsets)
            for how, sink in ((Settlement.ACK, None), (Settlement.RELEASE, _Nobody())):
                offset = [offsets.pop()]
                client.settle(received.consumer, how, offset, sink=sink)
            await asyncio.sleep(1)
            session.close()
        await asyncio.sleep(1)
        assert {stream_wire.DELIVER, stream_wire.STREAM_BATCH} <= self.heard.keys()
        seldom: dict[int, object] = {
            stream_wire.GONE: [TRANSIENT_GROUP],
            stream_wire.ENDED: stream_wire.Ended(1, "not_found", "x"),
            stream_wire.LEFT: [],
        }
        for method, head in seldom.items():
            self.heard[method] = [b"".join(stream_wire.encode(head))]

    # --- Garbage ----------------------------------------------------------------------------

    def _say_garbage(self) -> None:
        process = self.hears.mesh.process
        accepted = next(
            channel
            for channel, each in self.bad.mesh.remote_memory._by_channel.items()
            if each.process[1] == process
        )
        dialled = self.bad.mesh._dialers[process].channel
        assert dialled is not None
        method = self.chance.choice([*self.heard, *self.heard, self.chance.choice(METHODS)])
        ends = (accepted, dialled) if method < stream_wire.SERVES else (dialled, accepted)
        channel = ends[self.chance.random() < 0.1]
        payload = self._garbage(method)
        if self.chance.random() < 0.05:
            channel.call(method, [payload], lambda _answer: None, 1_000)
        else:
            channel.cast(method, [payload], control=self.chance.random() < 0.5)
        self.world.loop.call_later(0.05, self._count, channel)

    def _count(self, channel: Channel) -> None:
        self.closed += channel.is_closed

    def _garbage(self, method: int) -> bytes:
        chance = self.chance
        known = self.heard.get(method) or self.heard[stream_wire.DELIVER]
        payload = chance.choice(known)
        match chance.randrange(8):
            case 0:
                return chance.randbytes(chance.randrange(60))
            case 1:
                return payload[: chance.randrange(len(payload))]
            case 2:
                at = chance.randrange(len(payload))
                return payload[:at] + chance.randbytes(1) + payload[at + 1 :]
            case _:
                return self._falsified(payload)

    def _falsified(self, payload: bytes) -> bytes:
        """Of the right form, with another value here and there."""
        size = int.from_bytes(payload[:4], "little")
        head = msgspec.msgpack.decode(payload[4 : 4 + size])
        share = self.chance.choice((0.05, 0.1, 0.4))
        head = msgspec.msgpack.encode(self._other(head, share))
        return len(head).to_bytes(4, "little") + head + payload[4 + size :]

    def _other(self, value: Any, share: float) -> Any:
        if isinstance(value, list):
            copies = [self._other(each, share) for each in value]
            if copies and self.chance.random() < share / 4:
                return copies + copies
            return copies
        if self.chance.random() >= share:
            return value
        match value:
            case bool():
                return not value
            case int():
                return self.chance.choice([*NUMBERS, *GROUPS, value + 1])
            case str():
                return self.chance.choice(["", "x", "\0", "default", "x" * 300])
            case _:
                return self.chance.choice([None, 1, [], {"sql": "((("}])


class _Nobody:
    def settled(self, tag: object, failures: object) -> None:
        """Nobody waits."""


@pytest.mark.parametrize("seed", SEEDS)
def test_garbage_ends_its_connection_or_nothing(seed: int) -> None:
    async def scenario() -> None:
        await Run(world, seed).whole()

    with World(seed, started=False) as world:
        world.run(scenario())


ONE = slot(b"1")


@pytest.mark.parametrize(
    ("head", "slots"),
    [
        ((1, 0, [], None, []), b""),
        ((1, 0, [1], None, []), b""),
        ((1, 0, [1, 2], None, [len(ONE)]), ONE),
        ((1, 0, [1], [], [len(ONE)]), ONE),
        ((1, 0, [1], None, [len(ONE)]), ONE[:-1]),
        ((1, 0, [1], None, [len(ONE)]), ONE + b"x"),
        ((1, 0, [1], None, [3]), b"abc"),
        ((1, 0, [-1], None, [len(ONE)]), ONE),
    ],
    ids=["nothing", "no length", "two offsets", "no attempts", "cut", "more", "short", "negative"],
)
def test_a_delivery_that_is_none_is_refused(head: tuple[object, ...], slots: bytes) -> None:
    with pytest.raises(WireError):
        stream_wire.decode_deliver(b"".join(stream_wire.encode_deliver([head], [slots])))
