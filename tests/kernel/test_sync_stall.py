"""What clients hear while the disk is slow, broken or full: nothing that is not on it."""

from __future__ import annotations

import asyncio
import errno
import threading
from collections.abc import Awaitable, Callable

import pytest

from kernel.api.client import (
    DeleteTopic,
    LeaseChange,
    LeaseVerb,
    PurgeTopic,
    PutRecord,
    PutRoute,
    PutRouter,
    ReceiveSpec,
    Settlement,
)
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    Match,
    Route,
    RouterOptions,
    TopicOptions,
)
from kernel.common.errors import Code
from kernel.common.limits import PUBLISH_DEADLINE_MS
from kernel.in_process.opening import open_store
from kernel.store.drivers.system import SystemClock, SystemRandom
from kernel.store.drivers.worker import Worker
from tests.simulator.disk import SimulatedDisk
from tests.simulator.peer import Peer
from tests.simulator.world import SMALL, WRITER, World, simulated

STALL_S = 2.0
TRANSIENT = TopicOptions(durable=False)


class Scene:
    """A store with a message of each kind at hand, and every durable operation on them."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.client = peer.client

    async def prepare(self) -> None:
        peer, client = self.peer, self.client
        self.work = await peer.topic("work")
        self.spread = await peer.topic("spread", TopicOptions(queues=4))
        self.other = await peer.topic("other")
        await client.administer(PutRouter(DEFAULT_TENANT, "news", RouterOptions(match=Match.ALL)))
        for name in ("work", "other"):
            await client.administer(PutRoute(DEFAULT_TENANT, "news", Route(topic=name)))
        await peer.publish(self.work, *[b"%d" % number for number in range(20)])
        await peer.publish(self.other, *[b"%d" % number for number in range(5)])
        self.recorder = peer.attach(self.work, credit=6)
        await self.recorder.wait_for(6)
        got = await client.receive(ReceiveSpec(self.other, DEFAULT_GROUP, messages=3))
        self.tokens = got.tokens
        assert len(self.tokens) == 3

    def durable(self) -> dict[str, Callable[[], Awaitable[object]]]:
        """Every call whose answer says that something is on disk."""
        client, peer, recorder = self.client, self.peer, self.recorder
        (ack, extend, release) = self.tokens
        settle = recorder.settle
        return {
            "publish": lambda: peer.publish(self.work, b"x"),
            "publish to several queues": lambda: peer.publish(self.spread, *[b"x"] * 4),
            "publish to a router": lambda: peer.publish(
                client.to_router(DEFAULT_TENANT, "news", ""), b"x"
            ),
            "ack": lambda: settle(Settlement.ACK, 0),
            "release": lambda: settle(Settlement.RELEASE, 1),
            "dead letter": lambda: settle(Settlement.DEAD_LETTER, 2),
            "return": lambda: settle(Settlement.RETURN, 3),
            "ack of nothing": lambda: settle(Settlement.ACK),
            "lease": lambda: client.receive(ReceiveSpec(self.other, DEFAULT_GROUP)),
            "ack by token": lambda: self._change(LeaseChange(ack, LeaseVerb.ACK)),
            "extend": lambda: self._change(LeaseChange(extend, LeaseVerb.EXTEND, 60_000)),
            "release by token": lambda: self._change(LeaseChange(release, LeaseVerb.RELEASE)),
            "new topic": lambda: peer.topic("new"),
            "changed topic": lambda: peer.topic("work", TopicOptions(message_ttl_ms=1_000_000)),
            "new router": lambda: client.administer(
                PutRouter(DEFAULT_TENANT, "fresh", RouterOptions())
            ),
            "new route": lambda: client.administer(
                PutRoute(DEFAULT_TENANT, "news", Route(topic="spread"))
            ),
            "purge": lambda: client.administer(PurgeTopic(DEFAULT_TENANT, "spread", DEFAULT_GROUP)),
            "record": lambda: client.administer(PutRecord("user/x", b"1")),
        }

    async def _change(self, change: LeaseChange) -> None:
        (result,) = await self.client.settle_leases(self.other, DEFAULT_GROUP, [change])
        assert result is None


@simulated()
async def test_no_durable_answer_comes_before_its_sync(world: World) -> None:
    scene = Scene(world.peer())
    await scene.prepare()
    await world.settle_down()
    world.workers.delay_s[WRITER] = STALL_S
    operations = scene.durable()
    began_s = world.loop.time()
    journal = world.opened.store.journal
    syncs = journal.statistics().syncs
    heard: dict[str, tuple[float, int]] = {}

    async def call(name: str) -> None:
        await operations[name]()
        heard[name] = (world.loop.time() - began_s, journal.statistics().syncs - syncs)

    async with asyncio.TaskGroup() as group:
        for name in operations:
            group.create_task(call(name))
        await asyncio.sleep(STALL_S - 0.001)
        assert heard == {}
        assert journal.statistics().syncs == syncs

    assert heard.keys() == operations.keys()
    assert min(passed for passed, _ in heard.values()) >= STALL_S
    assert all(synced >= passed // STALL_S for passed, synced in heard.values())
    assert max(passed for passed, _ in heard.values()) <= 4 * STALL_S


@simulated()
async def test_what_needs_no_disk_goes_on_during_a_stall(world: World) -> None:
    peer = world.peer()
    scene = Scene(peer)
    await scene.prepare()
    await peer.topic("transient", TRANSIENT)
    await world.settle_down()
    world.workers.delay_s[WRITER] = STALL_S
    stuck = peer.submit(scene.work, b"durable")
    began_s = world.loop.time()

    transient = await peer.topic("another", TRANSIENT)
    await peer.publish(transient, b"1", b"2", b"3")
    recorder = peer.attach(transient, credit=5)
    await recorder.wait_for(3)
    assert await recorder.ack(0) == {}
    await recorder.settle(Settlement.RELEASE, 1)
    await recorder.wait_for(4)
    assert world.figures(scene.work, DEFAULT_GROUP).ready == 14
    assert world.client.topic(DEFAULT_TENANT, "work") is not None
    assert world.client.to_router(DEFAULT_TENANT, "news", "").count == 2
    scene.recorder.grant(3)
    await scene.recorder.wait_for(9)
    await world.client.administer(DeleteTopic(DEFAULT_TENANT, "another"))

    assert world.loop.time() == pytest.approx(began_s)
    assert not stuck.done.done()
    await stuck.done
    assert world.loop.time() >= began_s + STALL_S


@simulated()
async def test_messages_reach_consumers_only_once_they_are_synced(world: World) -> None:
    """A consumer that shows a message which a power loss takes back has shown a ghost."""
    peer = world.peer()
    topic = await peer.topic("work")
    recorder = peer.attach(topic, credit=10)
    await world.settle_down()
    world.workers.delay_s[WRITER] = STALL_S
    sent = peer.submit(topic, b"x")
    await asyncio.sleep(STALL_S - 0.01)
    assert (recorder.got, sent.done.done()) == ([], False)
    await asyncio.sleep(0.02)
    assert (len(recorder.got), sent.done.done()) == (1, True)


@simulated()
async def test_a_publish_that_the_disk_never_takes_fails_at_its_deadline(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    world.workers.hold(WRITER)
    sent = peer.submit(topic, b"x", b"y")
    await asyncio.sleep(PUBLISH_DEADLINE_MS / 1000 - 1)
    assert not sent.done.done()
    await asyncio.sleep(2.5)
    assert {at: each.code for at, each in sent.failures.items()} == {
        0: Code.TIMEOUT,
        1: Code.TIMEOUT,
    }
    world.workers.release(WRITER)
    later = await peer.publish(topic, b"z")
    assert not later.failures
    assert len(peer.completed) == 2, "answered once, although it was stored after all"


async def test_the_answer_waits_for_the_real_thread_too() -> None:
    """The same with the store's own threads, held inside the disk port's fdatasync."""
    loop = asyncio.get_running_loop()
    disk = SimulatedDisk()
    store = open_store(
        disk,
        SystemClock(),
        SystemRandom(),
        lambda name: Worker(loop, name),
        lambda sentence, error: pytest.fail(sentence),
        options=SMALL,
        reserve_bytes=0,
    )
    gate = threading.Event()
    gate.set()
    disk.sync_gate = gate.wait
    await store.start()
    peer = Peer(store.client, SystemClock(), "peer")
    scene = Scene(peer)
    await scene.prepare()
    await asyncio.sleep(0.05)
    gate.clear()
    try:
        calls = {name: asyncio.ensure_future(call()) for name, call in scene.durable().items()}
        await asyncio.sleep(0.3)
        assert [name for name, call in calls.items() if call.done()] == []
        transient = await peer.topic("transient", TRANSIENT)
        await peer.publish(transient, b"x")
    finally:
        gate.set()
    async with asyncio.timeout(10):
        await asyncio.gather(*calls.values())
    await store.stop()


# --- Errors of the disk ---------------------------------------------------------------------


@pytest.mark.parametrize("what", ["fdatasync", "pwritev"])
@simulated()
async def test_after_a_failed_write_the_store_calls_for_its_end_and_answers_nobody(
    world: World, what: str
) -> None:
    scene = Scene(world.peer())
    await scene.prepare()
    await world.settle_down()
    # Only the journal's: the housekeeper's files may fail and be tried again.
    world.disk.fail(what, OSError(errno.EIO, "Input/output error"), times=1_000)
    calls = {name: asyncio.ensure_future(call()) for name, call in scene.durable().items()}
    await asyncio.sleep(PUBLISH_DEADLINE_MS / 1000 - 1)

    assert [name for name, call in calls.items() if call.done()] == []
    sentence, error = world.fatal[0]
    assert "journal" in sentence
    assert isinstance(error, OSError)

    writes: list[str] = []
    world.disk.on_boundary = lambda number, name: writes.append(name)
    late = world.peer().submit(scene.work, b"late")
    await asyncio.sleep(1)
    assert not late.done.done()
    assert not [each for each in writes if each.startswith(f"{what} journal/")]
    for call in calls.values():
        call.cancel()


# --- A full disk ----------------------------------------------------------------------------


async def _can_settle(world: World, scene: Scene) -> None:
    assert await scene.recorder.ack(0) == {}
    await scene.recorder.settle(Settlement.RELEASE, 1)
    change = LeaseChange(scene.tokens[0], LeaseVerb.ACK)
    assert list(await world.client.settle_leases(scene.other, DEFAULT_GROUP, [change])) == [None]
    scene.recorder.grant(1)
    await scene.recorder.wait_for(7)
    purged = await world.client.administer(PurgeTopic(DEFAULT_TENANT, "work", DEFAULT_GROUP))
    assert isinstance(purged, int)
    assert purged > 5


@simulated(reserve_bytes=1_000_000)
async def test_below_the_mark_new_messages_are_refused_and_settlements_go_on(
    world: World,
) -> None:
    peer = world.peer()
    scene = Scene(peer)
    await scene.prepare()
    transient = await peer.topic("transient", TRANSIENT)
    world.disk.capacity = world.disk.used + 999_999
    await asyncio.sleep(1.1)

    assert not world.client.accepting
    sent = await peer.publish(scene.work, b"x", b"y")
    assert {each.code for each in sent.failures.values()} == {Code.NO_SPACE}
    assert len(sent.failures) == 2
    assert not (await peer.publish(transient, b"x")).failures
    await _can_settle(world, scene)

    world.disk.capacity += 1_000_000
    await asyncio.sleep(1.1)
    assert world.client.accepting
    assert not (await peer.publish(scene.work, b"x")).failures
    assert world.fatal == []
