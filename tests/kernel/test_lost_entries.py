"""A log entry that does not read is given up, whoever asks for it, and all else goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kernel.api.client import ReceiveSpec, Settlement
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    DeadLetter,
    GroupOptions,
    Start,
    TopicInfo,
    TopicKind,
    TopicOptions,
)
from kernel.broker.snapshots.snapshot import state_hash
from kernel.common.ids import Offset, RaftGroup
from kernel.log.errors import JournalError, RecordDamaged
from kernel.log.format.files import segment_name
from kernel.log.format.record import HEADER_BYTES
from kernel.log.reading.aside import lost_name
from kernel.store.recovery import losses
from kernel.store.recovery.losses import Losses
from tests.kernel.test_half_messages import prepare
from tests.kernel.tree_client import SubscriberClient, retained, tell
from tests.simulator.peer import Draft
from tests.simulator.world import READER, World, simulated

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.simulator.disk import SimulatedDisk

DURABLE_SECONDS = 15
"""After so long a checkpoint has followed."""


def entry_of(world: World, topic: TopicInfo, offset: int) -> tuple[RaftGroup, int]:
    """The log entry in which a message of a topic's only queue stands."""
    ref = topic.queues[0]
    queue = world.opened.store.replica(ref.group).state.queues.get(ref.id)
    assert queue is not None
    return ref.group, queue.index.find(offset).index


def damage(world: World, group: RaftGroup, index: int) -> Callable[[], None]:
    """Change a bit of an entry's last byte, and have memory forget it; what changes it back."""
    journal = world.opened.store.journal
    segment, offset, length = journal._locations.locate(group, index)
    assert length > HEADER_BYTES
    place = segment_name(segment.number), offset + length - 1
    world.disk.flip(*place)
    journal.forget(group, index)
    return lambda: world.disk.flip(*place)


async def rewrite_over_damage(
    world: World, harm: Callable[[tuple[RaftGroup, int]], object]
) -> TopicInfo:
    """A topic whose only message a rewrite of its segment finds harmed: nobody takes it, and it
    would keep its segment for ever.
    """
    peer = world.peer()
    world.opened.housekeeper.sparse_bytes_min = 0
    topic, busy = await peer.topic("stuck"), await peer.topic("busy")
    await peer.publish(topic, b"stuck")
    key = entry_of(world, topic, 0)
    spoilt = asyncio.Event()
    rewrite = world.opened.store.journal.rewrite

    def damaged(*what: object) -> object:
        if not spoilt.is_set():
            harm(key)
            spoilt.set()
        return rewrite(*what)  # type: ignore[arg-type]

    world.opened.store.journal.rewrite = damaged  # type: ignore[method-assign,assignment]
    recorder = peer.attach(busy, credit=1_000_000)
    while not spoilt.is_set():
        await peer.publish(busy, *[b"x" * 1_000] * 20)
        await recorder.ack()
        await asyncio.sleep(1)
    return topic


def lost(world: World) -> list[tuple[str, tuple[tuple[int, int], ...]]]:
    """(topic, ranges of offsets) of everything that was given up, also as the files say it."""
    known = world.opened.store.unreadable.losses
    assert known.all() == Losses(world.disk).all()
    return [(each.topic, each.offsets) for loss in known.all() for each in loss.queues]


def hashes(world: World) -> list[bytes]:
    return [state_hash(each.state) for each in world.opened.store.replicas()[:-1]]


async def three(world: World, name: str = "hurt", **options: object) -> TopicInfo:
    """A topic with three messages, an entry each."""
    peer = world.peer()
    topic = await peer.topic(name, group=GroupOptions(**options))  # type: ignore[arg-type]
    for body in (b"one", b"two", b"three"):
        await peer.publish(topic, body)
    return topic


@pytest.mark.parametrize("ordered", [False, True], ids=["plain", "ordered"])
@simulated()
async def test_what_cannot_be_read_is_given_up_and_the_queue_goes_on(
    world: World, ordered: bool
) -> None:
    topic = await three(world, ordered=ordered)
    other = await three(world, "other")
    uid = (await world.client.peek(topic, 0, Offset(1), 1))[0][1][16:32]
    key = entry_of(world, topic, 1)
    damage(world, *key)

    recorder = world.peer().attach(topic, credit=10)
    await recorder.wait_for(2)
    assert recorder.bodies == [b"one", b"three"]
    others = world.peer().attach(other, credit=10)
    await others.wait_for(3)
    await recorder.ack()

    assert lost(world) == [("hurt", ((1, 1),))]
    assert world.disk.content(lost_name(*key, "entry"))
    (loss,) = world.opened.store.unreadable.losses.all()
    (uid_said,) = loss.queues[0].uids
    assert bytes.fromhex(uid_said) == uid[7::-1] + uid[:7:-1]
    assert world.figures(topic).ready == world.figures(topic).leased == 0
    assert not world.fatal


@simulated()
async def test_replay_comes_to_the_same_state_and_a_start_finds_nothing_new(world: World) -> None:
    topic = await three(world)
    damage(world, *entry_of(world, topic, 1))
    recorder = world.peer().attach(topic, credit=10)
    await recorder.wait_for(2)
    await asyncio.sleep(DURABLE_SECONDS)  # the damage is below a checkpoint
    await world.peer().publish(topic, b"four")
    await world.settle_down()
    before = hashes(world)
    world.kill()
    world.open()
    assert hashes(world) == before
    await world.opened.start()
    again = world.peer().attach(topic, credit=10)
    await again.wait_for(3)
    assert sorted(again.bodies) == [b"four", b"one", b"three"]
    assert lost(world) == [("hurt", ((1, 1),))]


@simulated()
async def test_a_start_that_finds_it_gives_it_up_before_anybody_asks(world: World) -> None:
    """There is no index of the segment, so all of it is read."""
    topic = await three(world)
    key = entry_of(world, topic, 1)
    await asyncio.sleep(DURABLE_SECONDS)
    world.opened.store.journal.forget(*key)
    segment, offset, length = world.opened.store.journal._locations.locate(*key)
    await world.stop()
    world.disk.flip(segment_name(segment.number), offset + length - 1)
    await world.start()
    assert lost(world) == [("hurt", ((1, 1),))]
    recorder = world.peer().attach(topic, credit=10)
    await recorder.wait_for(2)
    assert recorder.bodies == [b"one", b"three"]
    await world.restart()
    assert lost(world) == [("hurt", ((1, 1),))]


@simulated()
async def test_its_segment_stays_until_it_is_given_up(world: World) -> None:
    """Nothing else stands in that one, and it cannot be told any more what did: a start that ends
    before is not the last.
    """
    peer = world.peer()
    topic = await peer.topic("hurt")
    for mark in (b"1", b"2", b"3"):
        await peer.publish(topic, mark * 20_000)
    await peer.publish(await peer.topic("busy"), *[b"x" * 10_000] * 4)
    await asyncio.sleep(DURABLE_SECONDS)
    segment, offset, _ = world.opened.store.journal._locations.locate(*entry_of(world, topic, 1))
    await world.stop()
    name = segment_name(segment.number)
    world.disk.flip(name, offset + 8)  # its header, so that nothing tells what stood there
    world.disk.remove(name.replace(".seg", ".loc"))
    world.open()
    world.workers.hold(READER)  # the thread that gives it up
    starting = asyncio.ensure_future(world.opened.start())
    await asyncio.sleep(DURABLE_SECONDS)
    assert not starting.done()
    world.kill()
    await world.start()
    assert lost(world) == [("hurt", ((1, 1),))]
    await asyncio.sleep(DURABLE_SECONDS)
    assert name.rpartition("/")[2] not in world.disk.names("journal"), "by now it is needed no more"
    recorder = world.peer().attach(topic, credit=10)
    await recorder.wait_for(2)
    assert [body[:1] for body in recorder.bodies] == [b"1", b"3"]


@simulated()
async def test_pulls_and_peeks_go_on_behind_it(world: World) -> None:
    topic = await three(world)
    damage(world, *entry_of(world, topic, 0))
    assert [offset for offset, _ in await world.client.peek(topic, 0, Offset(0), 10)] == [1, 2]
    damage(world, *entry_of(world, topic, 1))
    spec = ReceiveSpec(topic, DEFAULT_GROUP, lease_ms=60_000, messages=10)
    received = await world.client.receive(spec)
    assert received.deliveries is not None
    assert list(received.deliveries.offsets) == [2]
    assert lost(world) == [("hurt", ((0, 1),)), ("hurt", ((1, 1),))]


@simulated()
async def test_a_stream_goes_on_for_every_group_that_comes_to_it(world: World) -> None:
    peer = world.peer()
    options = TopicOptions(kind=TopicKind.STREAM, retention_ms=3_600_000)
    topic = await peer.topic("stream", options)
    for body in (b"one", b"two", b"three"):
        await peer.publish(topic, body)
    damage(world, *entry_of(world, topic, 1))
    recorder = peer.attach(topic, credit=10)
    await recorder.wait_for(2)
    groups = {"late": GroupOptions(start=Start.EARLIEST)}
    topic = await peer.topic("stream", options, groups=groups)
    late = peer.attach(topic, credit=10, group="late")
    await late.wait_for(2)
    assert recorder.bodies == late.bodies == [b"one", b"three"]
    assert [slot[-3:] for _, slot in await world.client.peek(topic, 0, Offset(0), 9)] == [
        b"one",
        b"ree",
    ]
    assert len(lost(world)) == 1


@simulated()
async def test_retained_half_and_dead_messages_let_go_of_it(world: World) -> None:
    await tell(world, "a/1", b"kept", retain=True)
    await tell(world, "a/2", b"lost", retain=True)
    stores = world.opened.store.replicas()
    (held,) = [
        (each.group, found.index)
        for each in stores
        if (found := each.state.retained.get(DEFAULT_TENANT, "a/2")) is not None
    ]
    damage(world, *held)
    assert await retained(world, "a/+") == [("a/1", b"kept")]

    peer = world.peer()
    topic = await peer.topic("halves", group=GroupOptions(dead_letter=DeadLetter(None, "dead")))
    token = await prepare(peer, topic, b"half")
    replica = world.opened.store.replica(topic.queues[0].group)
    (half,) = replica.state.halves.waiting.values()
    await peer.publish(topic, b"bad")
    recorder = peer.attach(topic, credit=10)
    await recorder.wait_for(1)
    # The topic of dead letters is missing, so that this one waits.
    await recorder.settle(Settlement.DEAD_LETTER, 0)
    await world.settle_down()
    (dead_letter,) = replica.state.outbox.values()
    for index in (half.index, dead_letter.index):
        damage(world, replica.group, index)
        await world.opened.store.fetched(replica.group, index)
    await world.settle_down()

    assert not replica.state.outbox
    assert not replica.state.halves.waiting
    assert token
    found = world.opened.store.unreadable.losses.all()
    assert sorted((each.retained, each.half_messages, each.dead_letters) for each in found) == [
        ((), 0, 1),
        ((), 1, 0),
        (((DEFAULT_TENANT, "a/2"),), 0, 0),
    ]
    assert [each.messages for each in found] == [1, 1, 1]
    assert not world.fatal


@simulated()
async def test_what_reads_the_second_time_is_not_lost(world: World) -> None:
    topic = await three(world)
    mend = damage(world, *entry_of(world, topic, 1))
    store = world.opened.store
    failed = store.unreadable.failed

    def mended(*found: object) -> None:
        mend()
        failed(*found)  # type: ignore[arg-type]

    store._reader._failed = mended
    recorder = world.peer().attach(topic, credit=10)
    await recorder.wait_for(3)
    assert recorder.bodies == [b"one", b"two", b"three"]
    assert lost(world) == []


@simulated()
async def test_too_many_of_them_are_for_somebody_to_see_to(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(losses, "LOST_ENTRIES_MAX", 1)
    topic = await three(world)
    for offset in (0, 1):
        damage(world, *entry_of(world, topic, offset))
    world.peer().attach(topic, credit=10)
    await asyncio.sleep(1)
    ((sentence, error),) = world.fatal
    assert "could not be read" in sentence
    assert isinstance(error, RecordDamaged)
    assert lost(world) == [("hurt", ((0, 1),))]
    world.kill()
    with pytest.raises(JournalError, match="take the files in lost/ away"):
        await world.start()
    for name in world.disk.names("lost"):
        world.disk.remove(f"lost/{name}")
    monkeypatch.setattr(losses, "LOST_ENTRIES_MAX", 2)
    await world.start()


@simulated()
async def test_on_a_full_disk_nothing_is_given_up_that_is_not_kept_aside(world: World) -> None:
    topic = await three(world)
    damage(world, *entry_of(world, topic, 0))
    capacity, world.disk.capacity = world.disk.capacity, world.disk.used
    recorder = world.peer().attach(topic, credit=10)
    await asyncio.sleep(5)
    assert recorder.bodies == []
    world.disk.capacity = capacity
    await recorder.wait_for(2)
    assert recorder.bodies == [b"two", b"three"]
    assert not world.fatal


@simulated()
async def test_what_somebody_took_away_is_said_no_more(world: World) -> None:
    topic = await three(world)
    damage(world, *entry_of(world, topic, 0))
    await world.peer().attach(topic, credit=10).wait_for(2)
    known = world.opened.store.unreadable.losses
    assert (len(known), known.messages) == (1, 1)
    for name in world.disk.names("lost"):
        world.disk.remove(f"lost/{name}")
    await asyncio.sleep(3)
    assert (len(known), known.messages) == (0, 0)


@simulated()
async def test_a_message_with_many_in_its_entry_takes_them_all_along(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("many")
    await peer.publish(topic, *[Draft(b"%d" % each) for each in range(50)])
    await peer.publish(topic, b"behind")
    damage(world, *entry_of(world, topic, 7))
    recorder = peer.attach(topic, credit=100)
    await recorder.wait_for(1)
    assert recorder.bodies == [b"behind"]
    assert lost(world) == [("many", ((0, 50),))]
    (loss,) = world.opened.store.unreadable.losses.all()
    assert len(loss.queues[0].uids) == 50


@simulated()
async def test_a_rewrite_that_meets_it_gives_it_up(world: World) -> None:
    topic = await rewrite_over_damage(world, lambda key: damage(world, *key))
    await asyncio.sleep(DURABLE_SECONDS)
    assert lost(world) == [("stuck", ((0, 1),))]
    assert world.figures(topic).ready == 0
    assert not world.fatal


@simulated()
async def test_a_subscribers_list_goes_on_for_each_of_its_members(world: World) -> None:
    """Of a reference list, which many read, the messages are counted off one by one."""
    all_subscribed = [
        await SubscriberClient.open(world, name, expiry_ms=3_600_000) for name in ("a", "b")
    ]
    for subscribed in all_subscribed:
        await subscribed.subscribe("room/+")
    for body in (b"one", b"two", b"three"):
        await tell(world, "room/1", body)
    stores = world.opened.store.replicas()
    ((replica, queue),) = [
        (each, queue)
        for each in stores
        for queue in map(each.state.queues.get, each.state.queues)
        if queue is not None and queue.pending_acks is not None and queue.index.tail == 3
    ]
    damage(world, replica.group, queue.index.find(1).index)
    for subscribed in all_subscribed:
        subscribed.consumer.grant(10)
        await subscribed.recorder.wait_for(2)
        assert subscribed.bodies == [b"one", b"three"]
        await subscribed.recorder.ack()
    await world.settle_down()
    assert queue.pending_acks is not None
    assert queue.pending_acks.ranges() == []
    assert [offsets for _topic, offsets in lost(world)] == [((1, 1),)]


def test_wherever_the_power_fails_meanwhile_the_next_run_comes_to_the_same() -> None:
    """While the entry is kept aside, written down, given up in the log, checkpointed."""
    copies: list[SimulatedDisk] = []

    async def give_up(world: World) -> None:
        topic = await three(world)
        await asyncio.sleep(DURABLE_SECONDS)
        damage(world, *entry_of(world, topic, 1))
        disk = world.disk
        disk.on_boundary = lambda number, _what: copies.append(disk.crashed_copy(number))
        recorder = world.peer().attach(topic, credit=10)
        await recorder.wait_for(2)
        await asyncio.sleep(DURABLE_SECONDS)
        disk.on_boundary = None

    async def go_on(world: World) -> None:
        (topic,) = [each for each in world.client.topics(DEFAULT_TENANT) if each.name == "hurt"]
        recorder = world.peer().attach(topic, credit=10)
        await recorder.wait_for(2)
        await asyncio.sleep(1)
        assert recorder.bodies == [b"one", b"three"]
        assert lost(world) == [("hurt", ((1, 1),))]
        assert not world.fatal

    with World() as world:
        world.run(give_up(world))
    assert len(copies) > 20
    for disk in copies[:: max(1, len(copies) // 60)]:
        with World(disk=disk) as world:
            world.run(go_on(world))
