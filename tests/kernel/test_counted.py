"""What is counted for the bill is what the queues grew by, whatever clients did: many short runs.

The crash sweep holds the same at every power cut of its one run; here are other runs, without cuts.
"""

from __future__ import annotations

from collections import defaultdict

import pytest

from kernel.broker.group_state.usage import Verb
from kernel.common.ids import queue_id
from tests.kernel.counted import check_growth, check_nothing_uncounted, everything, routed_series
from tests.kernel.ledger import Ledger
from tests.kernel.sweep_run import Run
from tests.simulator.peer import Draft
from tests.simulator.world import World, simulated

SEEDS = range(5, 25)
STEPS = 25


def groups_alike(world: World) -> int:
    """Topics whose counters began at the same log index in two Raft groups."""
    groups: dict[tuple[int, int], set[int]] = defaultdict(set)
    for group, topic, since in routed_series(world):
        groups[topic, since].add(group)
    return sum(len(each) > 1 for each in groups.values())


def test_what_is_counted_is_what_the_queues_grew_by_after_every_operation() -> None:
    done: set[str] = set()
    alike = 0
    for seed in SEEDS:
        with World(seed, slice_records=1) as world:
            run = Run(world, Ledger(), seed)
            world.run(world.settle_down())
            world.run(run.prepare())
            for _ in range(STEPS):
                world.run(run.step())
                check_growth(world)
                check_nothing_uncounted(world)
            world.run(run.end())
            check_growth(world)
            check_nothing_uncounted(world)
            done |= set(run.done)
            alike += groups_alike(world)
    assert len(done) == 17, done
    assert alike, "no run had counters of two Raft groups that began at the same index"


@simulated()
async def test_a_count_that_is_off_and_one_that_is_missing_are_found(world: World) -> None:
    peer = world.peer()
    topic = await peer.topic("orders")
    await peer.publish(topic, Draft(b"1"), Draft(b"2"))
    state = world.opened.store.replica(topic.queues[0].group).state
    usage = state.topics[topic.id].usage
    usage.sent_tally.messages -= 1
    with pytest.raises(AssertionError):
        check_growth(world)

    usage.sent_tally.messages += 1
    check_growth(world)
    check_nothing_uncounted(world)
    state.ledger.counted.pop()
    usage.sent_key = -1
    assert not [each for each in everything(world) if each.verb is Verb.ROUTED]
    with pytest.raises(AssertionError, match=str(queue_id(topic.id, 0))):
        check_nothing_uncounted(world)
