"""A log entry whose sectors fail with EIO is as one that does not match its sum: given up, and all
else goes on. A disk that has gone away is none that may have everything given up.
"""

from __future__ import annotations

import asyncio
import errno
import math

import pytest

from gateway.admin.metrics.store_metrics import damage_check
from kernel.api.model import TopicInfo
from kernel.broker.snapshots.snapshot import state_hash
from kernel.common.ids import RaftGroup
from kernel.log.errors import JournalDamaged
from kernel.log.format.checkpoint import CHECKPOINT_NAME
from kernel.log.format.files import locations_name, segment_name
from kernel.log.format.mark import MARK_NAME
from kernel.log.format.meta import META_NAME
from kernel.log.format.record import HEADER_BYTES
from kernel.log.reading.aside import lost_name
from kernel.store.entry_reader import PAUSES_SECONDS
from kernel.store.recovery.examination import examine
from tests.kernel.test_lost_entries import DURABLE_SECONDS, entry_of, lost, rewrite_over_damage
from tests.simulator.disk import SECTOR_BYTES
from tests.simulator.world import World, simulated

LARGE = 3 * 4096
"""Bytes of a message that has pages of its own."""

PATIENCE_SECONDS = sum(PAUSES_SECONDS)
LONG_SECONDS = 2 * PATIENCE_SECONDS


async def large(world: World, name: str = "hurt") -> TopicInfo:
    """A topic with three messages, an entry and some pages each."""
    peer = world.peer()
    topic = await peer.topic(name)
    for mark in (b"1", b"2", b"3"):
        await peer.publish(topic, mark * LARGE)
    return topic


def place(world: World, group: RaftGroup, index: int) -> tuple[str, int, int]:
    """(file, offset, length) of an entry's record; memory forgets it."""
    journal = world.opened.store.journal
    segment, offset, length = journal._locations.locate(group, index)
    journal.forget(group, index)
    return segment_name(segment.number), offset, length


def spoil(world: World, key: tuple[RaftGroup, int], *, reads: float = math.inf) -> str:
    """A sector in the middle of an entry reads no more; the name of the file."""
    name, offset, length = place(world, *key)
    world.disk.spoil(name, offset + length // 2, reads=reads)
    return name


def marks(bodies: list[bytes]) -> list[bytes]:
    return [each[:1] for each in bodies]


@pytest.mark.parametrize("ends_short", [True, False], ids=["short", "whole"])
@simulated()
async def test_what_the_disk_does_not_read_is_given_up_and_the_queue_goes_on(
    world: World, ends_short: bool
) -> None:
    world.disk.ends_short = ends_short
    topic, other = await large(world), await large(world, "other")
    key = entry_of(world, topic, 1)
    spoil(world, key)
    length = place(world, *key)[2]

    others = world.peer().attach(other, credit=10)
    recorder = world.peer().attach(topic, credit=10)
    await others.wait_for(3)
    await recorder.wait_for(2, LONG_SECONDS)
    assert marks(recorder.bodies) == [b"1", b"3"]
    assert marks(others.bodies) == [b"1", b"2", b"3"]

    assert lost(world) == [("hurt", ((1, 1),))]
    (loss,) = world.opened.store.unreadable.losses.all()
    kept = world.disk.content(lost_name(*key, "entry"))
    unread = kept.count(b"\xff")
    assert 0 < unread <= 4096
    assert loss.reason.startswith(f"the disk does not read {unread} of its {length} bytes (EIO)")
    assert kept.count(b"2") > LARGE // 2
    assert len(loss.queues[0].uids) == 1, "it stands before that"
    assert world.figures(topic).ready == world.figures(topic).leased - 2 == 0
    assert not world.fatal


@simulated()
async def test_what_begins_to_read_again_in_time_is_not_lost(world: World) -> None:
    topic = await large(world)
    # Each try is a few reads, the first of all in it.
    spoil(world, entry_of(world, topic, 1), reads=20)
    began = asyncio.get_running_loop().time()
    assert not damage_check(world.opened).reason
    recorder = world.peer().attach(topic, credit=10)
    await asyncio.sleep(PAUSES_SECONDS[0] / 2)
    assert "does not read 1 log entries (EIO)" in damage_check(world.opened).reason
    await recorder.wait_for(3, LONG_SECONDS)
    assert not damage_check(world.opened).reason
    assert world.opened.store.read_errors[0] >= 1
    assert marks(recorder.bodies) == [b"1", b"2", b"3"]
    assert PAUSES_SECONDS[0] <= asyncio.get_running_loop().time() - began < PATIENCE_SECONDS
    assert lost(world) == []
    assert not world.fatal


@simulated()
async def test_a_bad_sector_behind_an_entry_is_none_of_it(world: World) -> None:
    """What is read ahead brings the error; nobody has asked for that."""
    world.disk.ends_short = False
    topic = await large(world)
    spoil(world, entry_of(world, topic, 1))
    place(world, *entry_of(world, topic, 0))
    recorder = world.peer().attach(topic, credit=1)
    await recorder.wait_for(1)
    await asyncio.sleep(2 * PATIENCE_SECONDS)
    assert marks(recorder.bodies) == [b"1"]
    assert lost(world) == []


@simulated()
async def test_of_what_does_not_read_at_all_nothing_is_kept_and_that_is_said(world: World) -> None:
    topic = await large(world)
    key = entry_of(world, topic, 1)
    name, offset, length = place(world, *key)
    world.disk.spoil(name, offset, length)
    recorder = world.peer().attach(topic, credit=10)
    # The sectors that it shares with its neighbours are theirs, too.
    await asyncio.sleep(3 * PATIENCE_SECONDS)
    assert b"2" not in marks(recorder.bodies)
    (loss, *_) = [
        each for each in world.opened.store.unreadable.losses.all() if each.index == key[1]
    ]
    assert loss.reason == "the disk reads nothing of it (EIO): nothing is kept"
    assert loss.queues[0].uids == ()
    assert lost_name(*key, "entry")[5:] not in world.disk.names("lost")
    assert not world.fatal


@simulated()
async def test_of_a_disk_that_has_gone_away_nothing_is_given_up(world: World) -> None:
    topic = await large(world)
    place(world, *entry_of(world, topic, 1))
    world.disk.reads_fail = True
    world.peer().attach(topic, credit=10)
    await asyncio.sleep(PATIENCE_SECONDS + 1)
    ((sentence, error),) = world.fatal
    assert "could not be given up" in sentence
    assert isinstance(error, OSError)
    assert error.errno == errno.EIO
    assert lost(world) == []


@simulated()
async def test_replay_comes_to_the_same_state_after_it_was_given_up(world: World) -> None:
    topic = await large(world)
    spoil(world, entry_of(world, topic, 1))
    recorder = world.peer().attach(topic, credit=10)
    await recorder.wait_for(2, LONG_SECONDS)
    await asyncio.sleep(DURABLE_SECONDS)
    await world.peer().publish(topic, b"4")
    await world.settle_down()
    before = [state_hash(each.state) for each in world.opened.store.replicas()[:-1]]
    world.kill()
    world.open()
    assert [state_hash(each.state) for each in world.opened.store.replicas()[:-1]] == before
    await world.opened.start()
    again = world.peer().attach(topic, credit=10)
    await again.wait_for(3)
    assert sorted(marks(again.bodies)) == [b"1", b"3", b"4"]
    assert lost(world) == [("hurt", ((1, 1),))]


async def below_a_checkpoint(world: World) -> tuple[TopicInfo, tuple[RaftGroup, int], str]:
    """A spoilt entry that a checkpoint has behind it, in a store that has stopped."""
    topic = await large(world)
    await asyncio.sleep(DURABLE_SECONDS)
    await world.peer().publish(await world.peer().topic("behind"), b"x" * LARGE, b"y" * LARGE)
    await asyncio.sleep(DURABLE_SECONDS)
    key = entry_of(world, topic, 1)
    name = spoil(world, key)
    await world.stop()
    return topic, key, name


@pytest.mark.parametrize("index", ["with its index", "without", "with one that does not read"])
@simulated()
async def test_a_start_over_it_gives_up_that_entry_and_no_more(world: World, index: str) -> None:
    topic, key, name = await below_a_checkpoint(world)
    places = locations_name(int(name[-12:-4]))
    if places.rpartition("/")[2] in world.disk.names("journal"):
        if index == "without":
            world.disk.remove(places)
        elif index != "with its index":
            world.disk.spoil(places, 0)
    found = examine(world.disk)
    assert found.lost == {key[0]: [key[1]]}
    await world.start()
    recorder = world.peer().attach(topic, credit=10)
    await recorder.wait_for(2, LONG_SECONDS)
    await asyncio.sleep(1)
    assert marks(recorder.bodies) == [b"1", b"3"]
    assert lost(world) == [("hurt", ((1, 1),))]
    assert not world.fatal


@simulated()
async def test_what_a_start_could_not_read_and_then_can_is_not_lost(world: World) -> None:
    topic, _key, name = await below_a_checkpoint(world)
    places = locations_name(int(name[-12:-4]))
    if places.rpartition("/")[2] in world.disk.names("journal"):
        world.disk.remove(places)
    world.open()
    assert world.opened.lost
    world.disk.mend(name)
    await world.opened.start()
    assert lost(world) == []
    journal = world.opened.store.journal
    for cold in (False, True):
        if cold:
            for offset in range(3):
                place(world, *entry_of(world, topic, offset))
        assert [each[-1:] for _, each in await world.client.peek(topic, 0, 0, 9)] == [  # type: ignore[arg-type]
            b"1",
            b"2",
            b"3",
        ]
    assert not journal.damaged
    assert not world.fatal


@simulated()
async def test_above_the_checkpoint_the_start_is_refused_and_the_place_is_said(
    world: World,
) -> None:
    topic = await large(world)
    name, offset, length = place(world, *entry_of(world, topic, 1))
    world.kill()
    world.disk.spoil(name, offset + length // 2)
    number = int(name[-12:-4])
    said = rf"segment {number} at {offset}, which the disk does not read \(EIO at \d+\)"
    for _ in range(2):
        with pytest.raises(JournalDamaged, match=said):
            world.open()
    (finding,) = examine(world.disk).findings
    assert finding.where == "journal"
    assert f"segment {number} at {offset}, which the disk does not read" in finding.what
    assert finding.repairable


@pytest.mark.parametrize("how", ["unread", "changed"])
@simulated()
async def test_of_an_orderly_end_that_snapshots_cover_only_entries_are_lost(
    world: World, how: str
) -> None:
    """Nothing whole follows. And nothing can be written to that page, whose rest has to be read."""
    topic = await large(world)
    name, offset, length = place(world, *entry_of(world, topic, 2))
    await world.stop()
    if how == "unread":
        world.disk.spoil(name, offset + length - 1)
    else:
        end = len(world.disk.content(name).rstrip(b"\0"))
        for at in (offset + length - 1, end - 1):
            world.disk.flip(name, at)
    assert all(each.repairable for each in examine(world.disk).findings)
    await world.start()
    recorder = world.peer().attach(topic, credit=10)
    await recorder.wait_for(2, LONG_SECONDS)
    assert marks(recorder.bodies) == [b"1", b"2"]
    assert lost(world) == [("hurt", ((2, 1),))]
    await world.peer().publish(topic, b"4")
    for _ in range(2):
        await world.restart()
        again = world.peer().attach(topic, credit=10)
        await again.wait_for(3)
        assert sorted(marks(again.bodies)) == [b"1", b"2", b"4"]
    assert not world.fatal


@simulated()
async def test_an_end_that_does_not_read_is_not_taken_for_one_that_was_never_written(
    world: World,
) -> None:
    """Zeros in front of it do not make it so: nobody can tell what stood there."""
    topic = await large(world)
    name, offset, length = place(world, *entry_of(world, topic, 2))
    world.kill()
    world.disk.remove(MARK_NAME)
    first = -(-(offset + HEADER_BYTES) // SECTOR_BYTES) * SECTOR_BYTES
    world.disk.overwrite(name, first, bytes(SECTOR_BYTES))
    world.disk.overwrite(name, offset + length, bytes(4096))
    world.disk.spoil(name, offset + length - SECTOR_BYTES)
    with pytest.raises(JournalDamaged, match="does not read"):
        world.open()


@pytest.mark.parametrize("name", [CHECKPOINT_NAME, META_NAME, "snap"])
@simulated()
async def test_what_there_is_one_of_is_named(world: World, name: str) -> None:
    await below_a_checkpoint(world)
    if name == "snap":
        name = max(
            (f"snap/{each}" for each in world.disk.names("snap") if each.endswith(".snap")),
            key=lambda each: len(world.disk.content(each)),
        )
    world.disk.spoil(name, 0)
    finding = examine(world.disk).findings[0]
    assert finding.where == name
    assert "does not read" in finding.what
    assert not finding.repairable
    with pytest.raises((OSError, JournalDamaged)) as failed:
        world.open()
    assert name in str(failed.value)


@simulated()
async def test_a_mark_that_does_not_read_costs_nothing(world: World) -> None:
    topic = await large(world)
    await world.stop()
    world.disk.spoil(MARK_NAME, 0, 1024)
    assert not examine(world.disk).findings
    await world.start()
    recorder = world.peer().attach(topic, credit=10)
    await recorder.wait_for(3)
    await world.restart()
    assert not world.fatal


@simulated()
async def test_a_rewrite_that_meets_it_gives_it_up(world: World) -> None:
    topic = await rewrite_over_damage(world, lambda key: spoil(world, key))
    await asyncio.sleep(PATIENCE_SECONDS + DURABLE_SECONDS)
    assert lost(world) == [("stuck", ((0, 1),))]
    assert world.figures(topic).ready == 0
    assert not world.fatal
