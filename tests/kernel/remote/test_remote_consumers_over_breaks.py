"""Gateways that consume from each other's memory while the connections between them break.

A seed decides who publishes, takes, settles, ends and begins anew, which connections break when,
and who hears of it. Whatever it is, of the messages of a topic that lives in one gateway

- none is lost, and none comes again that was acked;
- one that comes again is marked as redelivered, and one client holds it at a time;
- no consumer gets more than it has asked for, and in the end all that it has asked for;
- nothing is left of who is gone.

Where two gateways give each other up, what one held then may have been acked in vain: it comes
again, marked.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Mapping
from typing import cast

import pytest

from kernel.api.client import (
    Client,
    Consumer,
    ConsumerSpec,
    Deliveries,
    ReceiveSpec,
    Session,
    Settlement,
)
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, TopicInfo, TopicOptions
from kernel.common.errors import Code, KernelError
from kernel.common.ids import QueueId, queue_there
from kernel.remote.client import ClusterClient
from kernel.remote.mesh.remote_memory import GONE_MS
from kernel.rpc.channel import SILENT_MS
from tests.kernel.remote.simulated_gateways import Break, SimulatedGateways
from tests.simulator.peer import Delivery, Peer, read
from tests.simulator.world import World

SEEDS = range(24)
EVENTS = 250
TAKERS = 2
"""At each gateway."""

SETTLED_IN_VAIN = {Code.UNAVAILABLE, Code.LEASE_LOST}
"""What it may come to where two gateways give each other up."""


Place = tuple[QueueId, int]
"""Queue, as its gateway knows it, and offset."""


def place_of(got: Delivery) -> Place:
    return queue_there(got.queue), got.offset


class Ledger:
    """What has become of every message."""

    def __init__(self) -> None:
        self.accepted: set[bytes] = set()
        """Bodies."""
        self.bodies: dict[Place, bytes] = {}
        """Of what has been given to a client."""
        self.holder: dict[Place, Taker] = {}
        self.acked: dict[Place, ClusterClient] = {}
        self.unsure: set[Place] = set()
        """Held by a gateway that was given up, or acked by it, and not known to be carried out."""
        self.redelivered = 0

    def gets(self, taker: Taker, got: Delivery) -> None:
        """A client has a message now."""
        place = place_of(got)
        assert place not in self.acked, f"{got} was acked, and has come again"
        assert got.attempt > 1 or place not in self.bodies, f"{got} has come again without a mark"
        assert place not in self.holder or place in self.unsure, f"{got} is held by another"
        self.redelivered += place in self.bodies
        self.bodies[place] = got.body
        self.holder[place] = taker

    def ends(self, taker: Taker, got: Delivery, *, acked: bool) -> None:
        """A client holds a message no more."""
        place = place_of(got)
        if self.holder.get(place) is taker:
            del self.holder[place]
        if acked and place not in self.unsure:
            self.acked[place] = taker.client

    def gives_up(self, client: ClusterClient, takers: list[Taker]) -> None:
        """What a gateway holds, and what it has acked lately, may be lost."""
        self.unsure.update(place_of(each) for taker in takers for each in taker.held)
        self.unsure.update(place for place, by in self.acked.items() if by is client)
        self.acked = {place: by for place, by in self.acked.items() if by is not client}


class Taker:
    """A client that consumes: by pushes, and by pulls of its session. `client.ConsumerSink`."""

    def __init__(self, run: Run, client: ClusterClient, chance: random.Random) -> None:
        self._run = run
        self.client = client
        self._chance = chance
        self.session: Session | None = None
        self.consumer: Consumer | None = None
        self.held: list[Delivery] = []
        self.granted = self.taken = 0
        self.lost = 0
        """Consumers that were ended because their gateway was given up."""

    # --- What it hears ----------------------------------------------------------------------

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        assert consumer.tag is self.session
        got = read(deliveries, consumer)
        self.taken += len(got)
        assert self.taken <= self.granted, f"{self.taken} of {self.granted}"
        for each in got:
            self._run.ledger.gets(self, each)
        self.held += got

    def consumer_ended(self, consumer: Consumer, error: KernelError) -> None:
        assert error.code is Code.UNAVAILABLE
        assert self._run.is_long, error
        self.lost += 1
        self.leave(how=None)

    def settled(self, tag: object, failures: Mapping[int, KernelError] | None) -> None:
        codes = {each.code for each in (failures or {}).values()}
        assert codes <= (SETTLED_IN_VAIN if self._run.is_long else set()), failures

    # --- What it does -----------------------------------------------------------------------

    def act(self) -> None:
        """Something, by chance."""
        topic = self._run.topic_at(self.client)
        if self.session is None:
            if topic is not None:
                self._begin(topic)
            return
        match self._chance.randrange(12):
            case 0 | 1 | 2:
                self.grant(self._chance.randint(1, 6))
            case 3 | 4 | 5 | 6 | 7:
                self._settle()
            case 8 | 9:
                if topic is not None:
                    self._run.begin(self._pull(self.session, topic))
            case 10:
                if self._chance.random() < 0.3:
                    self.leave(Settlement.RELEASE)
            case _:
                if self._chance.random() < 0.3:
                    self._change_consumer(topic)

    def _begin(self, topic: TopicInfo) -> None:
        self.session = self.client.open_session("taker")
        self._attach(topic)

    def _attach(self, topic: TopicInfo) -> None:
        self.granted = self.taken = 0
        spec = ConsumerSpec(topic, DEFAULT_GROUP, self.session, tag=self.session)
        self.consumer = self.client.attach(spec, self)
        self.grant(self._chance.randint(1, 6))

    def _change_consumer(self, topic: TopicInfo | None) -> None:
        """Cancel; what it holds stays held."""
        if self.consumer is not None:
            self.consumer.cancel()
            self.consumer = None
        elif topic is not None:
            self._attach(topic)

    def grant(self, messages: int) -> None:
        if self.consumer is not None:
            self.granted += messages
            self.consumer.grant(messages)

    def _settle(self) -> None:
        chance = self._chance
        for each in list(self.held):
            if chance.random() < 0.5:
                how = chance.choice((Settlement.ACK, Settlement.ACK, Settlement.RELEASE))
                self.settle(each, how, answered=chance.random() < 0.3)

    def settle(self, got: Delivery, how: Settlement, *, answered: bool = False) -> None:
        self.held.remove(got)
        self._run.ledger.ends(self, got, acked=how is Settlement.ACK)
        sink = self if answered else None
        try:
            self.client.settle(got.consumer, how, [got.offset], sink=sink, tag=got.body)
        except KernelError as error:
            if error.code is not Code.NOT_FOUND or not self._run.is_long:
                raise

    def ack_all(self) -> None:
        for each in list(self.held):
            self.settle(each, Settlement.ACK)

    async def _pull(self, session: Session, topic: TopicInfo) -> None:
        if session is not self.session:
            return
        wait_ms = self._chance.choice((0, 200, 3_000))
        spec = ReceiveSpec(
            topic,
            DEFAULT_GROUP,
            messages=self._chance.randint(1, 4),
            wait_ms=wait_ms,
            session=session,
        )
        try:
            received = await self.client.receive(spec)
        except KernelError as error:
            if error.code is Code.UNAVAILABLE or self._run.is_long:
                return
            raise
        if received.deliveries is None or session is not self.session:
            return
        assert received.consumer is not None
        for each in read(received.deliveries, received.consumer):
            self._run.ledger.gets(self, each)
            self.held.append(each)

    def leave(self, how: Settlement | None) -> None:
        """End the session; what it held returns."""
        for each in self.held:
            self._run.ledger.ends(self, each, acked=False)
        self.held.clear()
        session, self.session, self.consumer = self.session, None, None
        if session is not None:
            session.close()


class Run:
    """One topic in the memory of the first of three gateways, and clients at all of them."""

    def __init__(self, world: World, seed: int, *, is_long: bool) -> None:
        self.world = world
        self.is_long = is_long
        """Some connections stay broken until the gateways give each other up."""
        self.chance = random.Random(seed)
        self.ledger = Ledger()
        self.net = SimulatedGateways(world, seed, 3)
        self.home, *self.others = self.net.clients
        self.options = TopicOptions(durable=False, queues=1 + seed % 2)
        self.peers = {each: Peer(cast("Client", each), world.clock, "p") for each in self.clients}
        self.takers = [
            Taker(self, each, self.chance) for each in self.clients for _ in range(TAKERS)
        ]
        self._numbers = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def clients(self) -> list[ClusterClient]:
        return self.net.clients

    def topic_at(self, client: ClusterClient) -> TopicInfo | None:
        return client.topic(DEFAULT_TENANT, "v")

    def begin(self, work: Coroutine[None, None, None]) -> None:
        task = self.world.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()

    def publish(self, client: ClusterClient, count: int) -> None:
        topic = self.topic_at(client)
        if topic is None:
            return
        bodies = [b"%d" % (self._numbers + each) for each in range(count)]
        self._numbers += count
        sent = self.peers[client].submit(topic, *bodies)

        def heard(_done: object) -> None:
            assert self.is_long or not sent.failures
            for at, body in enumerate(bodies):
                if at not in sent.failures:
                    self.ledger.accepted.add(body)

        sent.done.add_done_callback(heard)

    # --- The run ----------------------------------------------------------------------------

    async def whole(self) -> None:
        await self.net.all_connected()
        await self.peers[self.home].topic("v", self.options)
        for number in range(EVENTS):
            self._something()
            await asyncio.sleep(self.chance.uniform(0, 0.15))
            if self.is_long and number % 80 == 40:
                await self._part()
        await self._calm()
        await self._all_credit_is_used()
        await self._nothing_is_lost()
        self._nothing_is_left()

    def _something(self) -> None:
        fate = self.chance.random()
        if fate < 0.25:
            self.publish(self.chance.choice(self.clients), self.chance.randint(1, 5))
        elif fate < 0.33:
            self.net.cut(self.home, self.chance.choice(self.others), self.chance.choice(Break.ALL))
        else:
            self.chance.choice(self.takers).act()

    async def _part(self) -> None:
        """One gateway cannot reach the home for so long that one of them, or both, give up."""
        other = self.chance.choice(self.others)
        self.net.part(self.home, other)
        self.net.cut(self.home, other, self.chance.choice(Break.ALL))
        takers = [each for each in self.takers if each.client is other]
        self.ledger.gives_up(other, takers)
        apart_s = self.chance.uniform(GONE_MS - 500, GONE_MS + SILENT_MS + 2_000) / 1_000
        until = self.world.loop.time() + apart_s
        while self.world.loop.time() < until:
            self.ledger.gives_up(other, takers)
            self._something()
            await asyncio.sleep(self.chance.uniform(0, 1.0))
        self.ledger.gives_up(other, takers)
        self.net.heal()
        await self.net.all_connected()
        await asyncio.sleep(2)
        self.ledger.gives_up(other, takers)

    async def _calm(self) -> None:
        """What is broken is found and mended, and what is on its way comes."""
        await asyncio.sleep((SILENT_MS + 3_000) / 1_000)
        await self.net.all_connected()
        await self.net.until(lambda: not self._tasks)

    async def _all_credit_is_used(self) -> None:
        """Each consumer gets all that it has asked for."""
        live = [each for each in self.takers if each.consumer is not None]
        for taker in self.takers:
            taker.ack_all()
        self.publish(self.home, sum(each.granted - each.taken for each in live) + 10)
        await self.net.until(lambda: all(each.taken == each.granted for each in live))

    async def _nothing_is_lost(self) -> None:
        for taker in self.takers:
            taker.leave(Settlement.RELEASE)
        last = Taker(self, self.chance.choice(self.others), self.chance)
        last.act()
        last.grant(1_000_000)
        while True:
            last.ack_all()
            await asyncio.sleep(1)
            if not last.held and await self._is_empty():
                break
        given = list(self.ledger.bodies.values())
        assert self.ledger.accepted <= set(given)
        if not self.is_long:
            assert sorted(self.ledger.accepted) == sorted(given)
            assert self.ledger.acked.keys() == self.ledger.bodies.keys()
        last.leave(Settlement.RELEASE)
        await asyncio.sleep(1)

    async def _is_empty(self) -> bool:
        topic = self.topic_at(self.home)
        assert topic is not None
        figures = await self.home.statistics(topic, DEFAULT_GROUP)
        return not figures.ready and not figures.leased

    def _nothing_is_left(self) -> None:
        service = self.home.mesh.stream_service
        assert not service.count
        assert not any(each.pools for each in service._gateways.values())
        assert not self.home.transient.log.count
        for client in self.others:
            assert not client.streams.count
            assert not client.streams._sessions


def run(seed: int, *, is_long: bool) -> Run:
    found: list[Run] = []

    async def scenario() -> None:
        found.append(Run(world, seed, is_long=is_long))
        await found[0].whole()

    with World(seed, started=False) as world:
        world.run(scenario())
    return found[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_or_comes_twice_while_connections_break(seed: int) -> None:
    done = run(seed, is_long=False)
    figures = done.home.mesh.stream_service.figures
    assert figures.returned + done.ledger.redelivered  # the seed has done what it is there for
    assert not any(each.lost for each in done.takers)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_held_comes_again_marked_when_gateways_give_each_other_up(seed: int) -> None:
    done = run(seed, is_long=True)
    assert any(each.lost for each in done.takers) or done.home.mesh.stream_service.figures.released
