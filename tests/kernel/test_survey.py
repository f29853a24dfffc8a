"""After a start: what is sparse is found to be, and rewritten."""

from __future__ import annotations

import asyncio

from kernel.api.model import DEFAULT_GROUP
from kernel.log.format import entry
from tests.simulator.peer import Peer
from tests.simulator.world import World, simulated

ENTRIES = 40
BATCH = 10
BODY = b"x" * 1_000


async def fill(peer: Peer) -> None:
    """Entries of 10 KB with one message each that nobody acks."""
    topic = await peer.topic("work")
    recorder = peer.attach(topic, credit=ENTRIES * BATCH)
    for _ in range(ENTRIES):
        await peer.publish(topic, *[BODY] * BATCH)
    await recorder.wait_for(ENTRIES * BATCH)
    await recorder.ack(*(each for each in recorder.got if each.offset % BATCH))


@simulated()
async def test_segments_that_were_sparse_before_a_start_are_rewritten_after_it(
    world: World,
) -> None:
    world.opened.housekeeper.sparse_bytes_min = 1 << 40
    await fill(world.peer())
    await world.stop()
    await world.start()
    journal = world.opened.store.journal
    # Each entry counts as wholly alive: all that is known is who refers to it.
    assert journal.statistics().live_bytes > 0.9 * ENTRIES * BATCH * len(BODY)
    world.opened.housekeeper.sparse_bytes_min = 0
    await asyncio.sleep(15)
    statistics = journal.statistics()
    assert statistics.rewrites > 5
    assert statistics.live_bytes < 3 * ENTRIES * len(BODY)
    assert statistics.bytes_on_disk < 0.5 * ENTRIES * BATCH * len(BODY)
    await world.crash()
    assert world.opened.store.journal.statistics().live_bytes < 3 * ENTRIES * len(BODY)
    topic = world.client.topic("default", "work")
    assert topic is not None
    assert world.figures(topic, DEFAULT_GROUP).ready == ENTRIES
    again = world.peer().attach(topic, credit=ENTRIES)
    await again.wait_for(ENTRIES)
    assert [each.body for each in again.got] == [BODY] * ENTRIES


@simulated()
async def test_an_entry_is_rewritten_by_its_own_body_whatever_else_has_its_index(
    world: World,
) -> None:
    world.opened.housekeeper.sparse_bytes_min = 1 << 40
    journal = world.opened.store.journal
    peer = world.peer()
    topic = await peer.topic("work")
    group = topic.queues[0].group
    recorder = peer.attach(topic, credit=ENTRIES * BATCH)
    job = journal.install(
        group, 1 << 40
    )  # a snapshot of another store begins to come, and is given up
    assert job is not None
    for _ in range(ENTRIES):
        await peer.publish(topic, *[BODY] * BATCH)
        job.append(0, journal.last_index(group), entry.build(0, [], [], []))
    await recorder.wait_for(ENTRIES * BATCH)
    await recorder.ack(*(each for each in recorder.got if each.offset % BATCH))
    assert job.is_placed
    journal.give_up_install(job)
    world.opened.housekeeper.sparse_bytes_min = 0
    await asyncio.sleep(15)
    assert journal.statistics().rewrites > 5
    await world.crash()
    again = world.peer().attach(topic, credit=ENTRIES)
    await again.wait_for(ENTRIES)
    assert [each.body for each in again.got] == [BODY] * ENTRIES


@simulated()
async def test_a_segment_that_dies_before_its_survey_is_let_go(world: World) -> None:
    await fill(world.peer())
    await world.stop()
    world.workers.hold("weir-housekeeping")
    await world.start()
    topic = world.client.topic("default", "work")
    assert topic is not None
    recorder = world.peer().attach(topic, credit=ENTRIES)
    await recorder.wait_for(ENTRIES)
    await recorder.ack(*recorder.got)
    world.workers.release("weir-housekeeping")
    await asyncio.sleep(30)
    assert world.fatal == []
    assert world.opened.store.journal.statistics().live_entries == 0
