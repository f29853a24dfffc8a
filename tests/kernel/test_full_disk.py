"""A full disk: messages are refused, settlements go on, nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import errno

import pytest

from kernel.api.client import LeaseChange, LeaseVerb, PurgeTopic, PutRecord, ReceiveSpec, Settlement
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, DeadLetter, GroupOptions, TopicOptions
from kernel.common.errors import Code, KernelError
from kernel.store.space.disk_watch import DiskLevel
from tests.simulator.peer import Draft, Peer
from tests.simulator.world import HOUSEKEEPING, World, simulated

NO_SPACE = {Code.NO_SPACE}


class Scene:
    """A topic with a consumer that holds messages, and one with timed leases."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer

    async def prepare(self) -> None:
        peer = self.peer
        self.work = await peer.topic("work")
        self.other = await peer.topic("other")
        await peer.publish(self.work, *[b"%d" % number for number in range(20)])
        await peer.publish(self.other, *[b"%d" % number for number in range(5)])
        self.recorder = peer.attach(self.work, credit=6)
        await self.recorder.wait_for(6)
        got = await peer.client.receive(ReceiveSpec(self.other, DEFAULT_GROUP, messages=3))
        self.tokens = got.tokens

    async def can_settle(self) -> None:
        recorder, client = self.recorder, self.peer.client
        assert await recorder.ack(0) == {}
        await recorder.settle(Settlement.RELEASE, 1)
        change = LeaseChange(self.tokens[0], LeaseVerb.ACK)
        assert list(await client.settle_leases(self.other, DEFAULT_GROUP, [change])) == [None]
        recorder.grant(1)
        await recorder.wait_for(7)
        purged = await client.administer(PurgeTopic(DEFAULT_TENANT, "work", DEFAULT_GROUP))
        assert isinstance(purged, int)
        assert purged > 5


async def fill(world: World, scene: Scene) -> int:
    """Publish until the disk is full and beyond; the number refused."""
    world.disk.capacity = world.disk.used
    refused = 0
    for _ in range(100):
        sent = await scene.peer.publish(scene.work, b"x" * 1_000)
        refused += len(sent.failures)
        assert {each.code for each in sent.failures.values()} <= NO_SPACE
        await asyncio.sleep(0.01)
    return refused


@simulated(reserve_bytes=0)
async def test_a_disk_without_a_byte_left_refuses_messages_and_takes_settlements(
    world: World,
) -> None:
    """The reserve segment is for them. (A disk mark above zero makes this the rare case.)"""
    scene = Scene(world.peer())
    await scene.prepare()
    await world.settle_down()
    assert await fill(world, scene) > 30
    await scene.can_settle()
    assert world.fatal == []

    world.disk.capacity += 1_000_000
    await asyncio.sleep(3)
    assert world.client.accepting
    assert not (await scene.peer.publish(scene.work, b"x")).failures


@simulated(reserve_bytes=0)
async def test_a_burst_that_meets_a_full_disk_is_refused_not_fatal(world: World) -> None:
    """More in one turn of the loop than the prepared segments take."""
    peer = world.peer()
    topic = await peer.topic("work")
    await world.settle_down()
    world.disk.capacity = world.disk.used
    burst = [peer.submit(topic, *[b"x" * 1_000] * 20) for _ in range(20)]
    async with asyncio.timeout(10):
        for sent in burst:
            await sent.done
    codes = {each.code for sent in burst for each in sent.failures.values()}
    assert codes == NO_SPACE
    assert world.fatal == []


@simulated(reserve_bytes=0)
async def test_a_burst_larger_than_the_prepared_segments_is_stored_if_there_is_room(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await world.settle_down()
    burst = [peer.submit(topic, *[b"x" * 1_000] * 20) for _ in range(20)]
    large = peer.submit(topic, b"y" * 200_000)
    for sent in (*burst, large):
        await sent.done
        assert not sent.failures
    await world.crash()
    assert world.figures(topic, DEFAULT_GROUP).ready == 401
    assert world.client.accepting


@simulated(reserve_bytes=0)
async def test_what_was_answered_on_a_full_disk_survives_and_what_was_refused_does_not_come_back(
    world: World,
) -> None:
    scene = Scene(world.peer())
    await scene.prepare()
    await world.settle_down()
    refused = await fill(world, scene)
    await scene.recorder.ack(0, 1, 2)
    # The reserve of this tiny store is as small as a segment can be: a few bytes for `ckpt`.
    world.disk.capacity += 4_096
    await world.crash()
    topic = world.client.topic(DEFAULT_TENANT, "work")
    assert topic is not None
    ready = world.figures(topic, DEFAULT_GROUP).ready
    assert ready == 20 - 3 + 100 - refused


@simulated(reserve_bytes=0)
async def test_when_the_reserve_is_full_too_settlements_wait_for_room(world: World) -> None:
    scene = Scene(world.peer())
    await scene.prepare()
    await world.settle_down()
    assert await fill(world, scene) > 30
    client = world.client
    answered = 0

    async def write() -> None:
        nonlocal answered
        for number in range(40):
            await client.administer(PutRecord(f"r/{number}", b"x" * 1_000))
            answered += 1

    writing = asyncio.ensure_future(write())
    await asyncio.sleep(5)
    assert 5 < answered < 40
    stopped_at = answered
    late = scene.recorder.settling(Settlement.ACK, 5)
    refused = scene.peer.submit(scene.work, b"x")
    await asyncio.sleep(5)
    assert (answered, late.done(), world.fatal) == (stopped_at, False, [])
    assert {each.code for each in refused.failures.values()} == NO_SPACE

    world.disk.capacity += 1_000_000
    await asyncio.sleep(3)
    await writing
    assert await late == {}
    assert not (await scene.peer.publish(scene.work, b"x")).failures
    await world.crash()
    assert len(world.client.records("r/")) == 40


@simulated(reserve_bytes=0)
async def test_dead_letters_wait_for_room(world: World) -> None:
    peer = world.peer()
    dead = await peer.topic("dead")
    topic = await peer.topic("work", None, GroupOptions(dead_letter=DeadLetter(None, "dead")))
    await peer.publish(topic, *[b"x" * 4_000] * 8)
    recorder = peer.attach(topic, credit=8)
    await recorder.wait_for(8)
    await world.settle_down()
    scene = Scene(peer)
    scene.work = topic
    assert await fill(world, scene) > 30
    await recorder.settle(Settlement.DEAD_LETTER, *range(8))
    await asyncio.sleep(3)
    world.disk.capacity += 1_000_000
    await asyncio.sleep(3)
    assert world.figures(dead, DEFAULT_GROUP).ready == 8


@simulated(reserve_bytes=0)
async def test_space_that_acks_set_free_is_given_back_while_no_segment_can_be_made(
    world: World,
) -> None:
    """A try for a segment that fails each second must not keep the other work from its turn."""
    peer = world.peer()
    topic = await peer.topic("work", TopicOptions())
    await peer.publish(topic, *[b"x" * 1_000] * 100)
    await world.settle_down()
    await asyncio.sleep(1)
    # No room for the next segment, but some for a snapshot: it sets free what was acked.
    world.disk.capacity = world.disk.used + 16_000
    for _ in range(300):
        if not world.opened.store.journal.can_accept:
            break
        await peer.publish(topic, b"x" * 1_000)
        await asyncio.sleep(0.02)  # the housekeeping looks now and then
    assert not world.opened.store.journal.can_accept
    await world.client.administer(PurgeTopic(DEFAULT_TENANT, "work", DEFAULT_GROUP))
    await asyncio.sleep(30)
    assert world.client.accepting
    assert not (await peer.publish(topic, b"x")).failures


@simulated(reserve_bytes=0)
async def test_what_was_acked_is_freed_though_others_filled_the_disk_and_the_reserve_is_full(
    world: World,
) -> None:
    """No byte is left anywhere but in the spare file, which is there for this checkpoint."""
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, *[b"x" * 1_000] * 100)
    await world.settle_down()
    await asyncio.sleep(1)
    world.disk.capacity = world.disk.used
    while not (await peer.publish(topic, b"x" * 1_000)).failures:
        await asyncio.sleep(0.02)
    await world.client.administer(PurgeTopic(DEFAULT_TENANT, "work", DEFAULT_GROUP))
    room = world.opened.store.room
    writing: list[asyncio.Future[object]] = []
    while not room.starved:
        put = PutRecord(f"r/{len(writing) % 2}", b"x" * 1_000)
        writing.append(asyncio.ensure_future(world.client.administer(put)))
        while not (writing[-1].done() or room.starved):
            await asyncio.sleep(0.001)
    assert len(writing) > 5
    assert world.opened.store.journal.statistics().ready_segments == 0
    world.disk.capacity = world.disk.used
    checkpoints = world.opened.housekeeper.checkpoints
    await asyncio.sleep(30)
    assert world.opened.housekeeper.checkpoints > checkpoints
    assert all(each.done() for each in writing)
    assert world.client.accepting
    assert not (await peer.publish(topic, b"x")).failures
    assert world.fatal == []
    assert world.disk.content("snap/spare")  # made again


@simulated(reserve_bytes=0)
async def test_a_checkpoint_that_finds_no_room_leaves_nothing_behind(world: World) -> None:
    """Or each try would take the room of the next."""
    peer = world.peer()
    topic = await peer.topic("work")
    await asyncio.sleep(15)
    await peer.publish(topic, b"x")
    housekeeper, disk = world.opened.housekeeper, world.disk
    before = {*disk.names("snap")} - {"spare"}
    # The snapshot of the group gets its name, and `ckpt` does not.
    disk.fail("rename", OSError(errno.ENOSPC, "full"), after=1)
    checkpoints = housekeeper.checkpoints
    while not housekeeper.failures:
        await asyncio.sleep(0.1)
    assert housekeeper.checkpoints == checkpoints
    assert len({*disk.names("snap")} - before - {"spare"}) == 1
    await asyncio.sleep(10)
    assert housekeeper.checkpoints > checkpoints
    kept = {each.snapshot for each in world.opened.store.journal.last_checkpoint.groups.values()}
    assert {f"snap/{name}" for name in disk.names("snap")} == kept | {"snap/spare"}


# --- The volume -----------------------------------------------------------------------------


@simulated(reserve_bytes=100_000)
async def test_an_alarm_comes_at_twice_the_mark(world: World) -> None:
    housekeeper, disk = world.opened.housekeeper, world.disk
    await asyncio.sleep(15)  # past the first checkpoint: what is used stays as it is
    for free_bytes, level, accepting in (
        (200_000, DiskLevel.OK, True),
        (199_999, DiskLevel.LOW, True),
        (100_000, DiskLevel.LOW, True),
        (99_999, DiskLevel.FULL, False),
        (250_000, DiskLevel.OK, True),
    ):
        disk.capacity = disk.used + free_bytes
        await asyncio.sleep(1.1)
        assert housekeeper.disk_space.level is level, free_bytes
        assert world.client.accepting is accepting


@simulated(reserve_bytes=None)
async def test_the_mark_is_a_share_of_the_volume_and_at_most_five_gib(world: World) -> None:
    world.disk.capacity = 10 * 1024**3
    await asyncio.sleep(1.1)
    assert world.opened.housekeeper.disk_space.mark_bytes == int(1.5 * 1024**3)
    world.disk.capacity = 1 << 40
    await asyncio.sleep(1.1)
    assert world.opened.housekeeper.disk_space.mark_bytes == 5 * 1024**3


@simulated()
async def test_a_volume_that_does_not_answer_stalls_no_client(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing asks the volume but the housekeeping thread, and once at a time."""
    await world.settle_down()
    world.workers.hold(HOUSEKEEPING)
    asked: list[float] = []
    free_bytes = world.disk.free_bytes

    def ask() -> int:
        asked.append(world.loop.time())
        return free_bytes()

    monkeypatch.setattr(world.disk, "free_bytes", ask)
    peer = world.peer()
    topic = await peer.topic("work")
    for _ in range(5):
        await asyncio.sleep(1)
        assert not (await peer.publish(topic, b"x")).failures
    assert asked == []
    world.workers.release(HOUSEKEEPING)
    await asyncio.sleep(0.1)
    assert len(asked) == 1


@simulated(reserve_bytes=0)
async def test_a_store_that_waits_for_room_can_be_stopped(world: World) -> None:
    """What waits was never answered, so that nothing is broken by leaving it out."""
    scene = Scene(world.peer())
    await scene.prepare()
    await world.settle_down()
    assert await fill(world, scene) > 30
    client = world.client
    writing = [
        asyncio.ensure_future(client.administer(PutRecord(f"r/{number}", b"x" * 1_000)))
        for number in range(40)
    ]
    await asyncio.sleep(5)
    done = sum(each.done() for each in writing)
    world.disk.capacity += 4_096  # for the mark of an orderly end
    async with asyncio.timeout(10):
        await world.stop()
    for each in writing:
        each.cancel()
    world.disk.capacity += 1_000_000
    await world.start()
    assert len(world.client.records("r/")) == done < 40


@simulated(reserve_bytes=0)
async def test_a_half_message_that_meets_a_full_disk_is_refused(world: World) -> None:
    """Whole: a command that spoke of a message left out would break the state machine."""
    peer = world.peer()
    topic = await peer.topic("work")
    await world.settle_down()
    world.disk.capacity = world.disk.used
    preparing = []
    for number in range(40):
        parts = Draft(b"%d" % number + b"x" * 2_000).parts((1, number), 1)
        preparing.append(
            asyncio.ensure_future(world.client.halves.prepare(topic, "producers", parts))
        )
    results = await asyncio.gather(*preparing, return_exceptions=True)
    refused = [each for each in results if isinstance(each, KernelError)]
    assert {each.code for each in refused} == NO_SPACE
    tokens = [each for each in results if isinstance(each, bytes)]
    assert len(refused) + len(tokens) == 40
    for token in tokens:
        await world.client.halves.end(topic, token, commit=True)
    assert world.fatal == []
    world.disk.capacity += 1_000_000
    await world.crash()
    topic_now = world.client.topic(DEFAULT_TENANT, "work")
    assert topic_now is not None
    assert world.figures(topic_now, DEFAULT_GROUP).ready == len(tokens)


@simulated(reserve_bytes=0)
async def test_a_checkpoint_without_room_goes_before_the_reserve(world: World) -> None:
    """Without a checkpoint nothing is ever freed, not even when everything has been acked."""
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, *[b"x" * 1_000] * 100)
    await world.settle_down()
    await asyncio.sleep(1)
    world.disk.capacity = world.disk.used + 16_000
    while not (await peer.publish(topic, b"x" * 1_000)).failures:
        await asyncio.sleep(0.02)
    await world.client.administer(PurgeTopic(DEFAULT_TENANT, "work", DEFAULT_GROUP))
    world.disk.capacity = world.disk.used
    await asyncio.sleep(30)
    assert world.client.accepting
    assert not (await peer.publish(topic, b"x")).failures
    assert world.fatal == []
