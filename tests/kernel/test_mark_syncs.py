"""When the mark of what was synced is written and reaches the disk: soon, and never often."""

from __future__ import annotations

import asyncio

from kernel.log.format.mark import MARK_NAME, read_mark
from kernel.log.format.meta import read_meta
from kernel.store.space.housekeeper import NOTE_SECONDS
from tests.simulator.world import World, simulated


def marked(world: World, *, killed: bool = False) -> int:
    """What a power loss now would leave of it; or the process's end alone."""
    after = world.disk.killed_copy() if killed else world.disk.crashed_copy()
    meta = read_meta(after)
    assert meta is not None
    return read_mark(after, meta.store)[0].sequence


@simulated()
async def test_when_nothing_more_comes_the_mark_is_on_the_disk_within_two_seconds(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, b"one")
    await asyncio.sleep(2.1)
    assert marked(world) == world.opened.store.journal.synced_sequence


@simulated()
async def test_under_load_it_is_synced_once_a_second_and_written_behind_each_commit(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await asyncio.sleep(3)
    seen: list[str] = []
    world.disk.on_boundary = lambda _number, what: seen.append(what)
    commits = world.opened.store.commits
    for number in range(100):
        await peer.publish(topic, b"%d" % number)
        await asyncio.sleep(2 * NOTE_SECONDS)
        assert marked(world, killed=True) == world.opened.store.journal.synced_sequence
        await asyncio.sleep(0.1)
        assert marked(world) > world.opened.store.journal.synced_sequence - 50
    world.disk.on_boundary = None
    commits = world.opened.store.commits - commits
    assert 9 <= seen.count(f"fdatasync {MARK_NAME}") <= 11
    assert commits - 5 <= seen.count(f"pwritev {MARK_NAME}") <= commits + 5


@simulated()
async def test_many_commits_are_noted_together(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await asyncio.sleep(3)
    seen: list[str] = []
    world.disk.on_boundary = lambda _number, what: seen.append(what)
    commits, began = world.opened.store.commits, asyncio.get_running_loop().time()
    for number in range(500):
        await peer.publish(topic, b"%d" % number)
    world.disk.on_boundary = None
    took = asyncio.get_running_loop().time() - began
    assert world.opened.store.commits - commits >= 500
    assert 1 <= seen.count(f"pwritev {MARK_NAME}") <= took / NOTE_SECONDS + 2 <= 250
