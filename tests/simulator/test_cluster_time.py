"""Log time in a cluster: no wrong clock moves it; time while everybody was down counts."""

from __future__ import annotations

import asyncio

import pytest

from kernel.broker.applying.clients import RESULTS_KEPT_MS
from kernel.common.ids import ADDED_FIRST, METADATA_GROUP
from kernel.common.ports import Clock
from kernel.store.raft_groups.wall_clocks import PATIENCE_SECONDS, agreed
from kernel.store.replicas.log_clock import GAP_MS_MAX, LogClock
from tests.simulator.cluster import Cluster, Node
from tests.simulator.test_cluster import GROUP, Publisher, bodies_at, clustered, level

DAY_MS = 24 * 3_600_000
START_MS = 1_700_000_000_000


class Hands(Clock):
    """A clock that is set by hand."""

    def __init__(self, wall_ms: int = START_MS) -> None:
        self.wall, self.mono = wall_ms, 5_000

    def monotonic_ms(self) -> int:
        return self.mono

    def wall_ms(self) -> int:
        return self.wall

    def passes(self, duration_ms: int) -> None:
        self.wall += duration_ms
        self.mono += duration_ms


def log_time(node: Node) -> int:
    return node.member(GROUP).replica.log_time_ms()


async def led_by(cluster: Cluster, node: Node) -> None:
    """Have a node lead, as soon as it can."""
    leader = await cluster.led()
    if leader is not node:
        leader.opened.store.consensus.transfer(GROUP, node.number)
    await cluster.until(lambda: cluster.leader(GROUP) is node)


# --- The clock of one leader ------------------------------------------------------------------


@pytest.mark.parametrize("ahead_ms", [-DAY_MS, -1_000, 0, GAP_MS_MAX])
def test_a_leader_believes_a_clock_that_is_near_or_behind(ahead_ms: int) -> None:
    clock = Hands(START_MS + ahead_ms)
    times = LogClock(clock, START_MS)
    assert times.start_at(START_MS, alone=False)
    assert times.now_ms() == START_MS + max(0, ahead_ms)


def test_a_clock_that_is_far_ahead_is_not_believed_and_does_not_slew() -> None:
    clock = Hands(START_MS + DAY_MS)
    times = LogClock(clock, START_MS)
    assert not times.start_at(START_MS, alone=False)
    clock.passes(100_000)
    assert times.now_ms() == START_MS + 100_000
    assert times.gap_ms() == DAY_MS
    times.agree(clock.wall - clock.mono)
    assert times.now_ms() == clock.wall
    assert times.gap_ms() == 0


def test_a_jump_while_it_leads_moves_nothing_but_a_minute_is_slewed() -> None:
    clock = Hands()
    times = LogClock(clock, START_MS)
    times.start_at(START_MS, alone=False)
    clock.wall += DAY_MS
    clock.passes(10_000)
    assert times.now_ms() == START_MS + 10_000
    clock.wall -= DAY_MS - GAP_MS_MAX // 2
    clock.passes(10_000)
    assert times.now_ms() == START_MS + 20_000 + 500


def test_a_node_without_others_and_a_new_log_believe_the_clock() -> None:
    assert LogClock(Hands(START_MS + DAY_MS), START_MS).now_ms() == START_MS + DAY_MS
    clock = Hands()
    times = LogClock(clock, 0)
    assert times.start_at(0, alone=False)
    assert times.now_ms() == START_MS


def test_log_time_reaches_what_an_earlier_leader_has_stamped() -> None:
    clock = Hands()
    times = LogClock(clock, START_MS)
    times.reach(START_MS + 700)
    assert times.now_ms() == START_MS + 700
    times.reach(START_MS)
    clock.passes(10)
    assert times.now_ms() == START_MS + 710


@pytest.mark.parametrize(
    ("ahead", "halves", "least"),
    [
        ({1: DAY_MS}, [(1, 2, 3)], None),
        ({1: DAY_MS, 2: 7}, [(1, 2, 3)], 7),
        ({1: DAY_MS, 2: DAY_MS + 5, 3: 0}, [(1, 2, 3)], DAY_MS),
        ({1: DAY_MS, 2: 7}, [(1, 2)], 7),
        ({1: 9, 2: 8, 3: 7}, [(1, 2, 3), (3, 4, 5)], None),
        ({1: 9, 2: 8, 3: 7, 4: 3}, [(1, 2, 3), (3, 4, 5)], 3),
    ],
)
def test_a_majority_of_each_half_says_what_time_it_is(
    ahead: dict[int, int], halves: list[tuple[int, ...]], least: int | None
) -> None:
    assert agreed(halves, ahead) == least


# --- A cluster --------------------------------------------------------------------------------


@clustered()
async def test_a_clock_a_day_ahead_forgets_no_result_and_ends_no_lease(cluster: Cluster) -> None:
    leader = await cluster.led()
    publisher = Publisher(cluster)
    await publisher.topic(leader)
    await publisher.published(leader, [b"once"])
    await level(cluster)
    before = log_time(leader)
    wrong = next(node for node in cluster.nodes.values() if node is not leader)
    wrong.clock.wall_offset_ms = DAY_MS
    await led_by(cluster, wrong)
    assert DAY_MS > RESULTS_KEPT_MS
    publisher.sequence -= 1
    publisher.outcomes.clear()
    await publisher.published(wrong, [b"once"])
    assert await bodies_at(wrong) == [b"once"]
    assert log_time(wrong) - before < GAP_MS_MAX
    assert wrong.member(GROUP).replica.clock.gap_ms() > GAP_MS_MAX
    assert wrong.opened.store.clock_gap_ms() > GAP_MS_MAX
    # The next leader goes on from there.
    await led_by(cluster, leader)
    assert log_time(leader) - before < GAP_MS_MAX


@clustered()
async def test_time_that_passed_while_everybody_was_down_counts(cluster: Cluster) -> None:
    publisher = Publisher(cluster)
    leader = await cluster.led()
    await publisher.topic(leader)
    before = log_time(leader)
    for node in cluster.nodes.values():
        node.crash()
        node.clock.wall_offset_ms = DAY_MS
    for node in cluster.nodes.values():
        await node.start()
    leader = await cluster.led()
    assert log_time(leader) - before >= DAY_MS
    await publisher.published(leader, [b"the day after"])
    assert leader.member(GROUP).state.time_ms - before >= DAY_MS


@clustered()
async def test_a_leader_that_cannot_ask_goes_on_with_the_logs_time(cluster: Cluster) -> None:
    leader = await cluster.led()
    publisher = Publisher(cluster)
    await publisher.topic(leader)
    await publisher.published(leader, [b"before"])
    await level(cluster)
    before = log_time(leader)
    wrong = next(node for node in cluster.nodes.values() if node is not leader)
    wrong.clock.wall_offset_ms = DAY_MS
    cluster.network.answers = False
    began = cluster.loop.time()
    await led_by(cluster, wrong)
    assert cluster.loop.time() - began >= PATIENCE_SECONDS
    await publisher.published(wrong, [b"after"])
    assert wrong.member(GROUP).state.time_ms - before < GAP_MS_MAX


@clustered()
async def test_a_new_leader_is_never_behind_what_it_has_applied(cluster: Cluster) -> None:
    """Entries whose commit it learns only by leading bear times that its own clock has not seen."""
    leader = await cluster.led()
    for node in cluster.nodes.values():
        node.clock.wall_offset_ms = 0 if node is leader else -30_000
    publisher = Publisher(cluster)
    await publisher.topic(leader)
    await level(cluster)
    await asyncio.sleep(3)
    others = [node for node in cluster.nodes.values() if node is not leader]
    last = leader.member(GROUP).core.log.last_index
    publisher.publish(leader, b"the last word")
    while any(node.member(GROUP).core.log.last_index == last for node in others):
        await asyncio.sleep(0.0002)
    # They have it, and are never told that it is committed.
    cluster.network.isolate([leader.number], one_way=True)
    await cluster.until(lambda: any(node.member(GROUP).serves for node in others))
    following = next(node for node in others if node.member(GROUP).serves)
    assert following.member(GROUP).state.applied > last
    assert log_time(following) >= following.member(GROUP).state.time_ms


@clustered()
async def test_a_group_that_is_added_begins_with_the_time_that_the_others_know(
    cluster: Cluster,
) -> None:
    leader = await cluster.led(METADATA_GROUP)
    await level(cluster)
    leader.clock.wall_offset_ms = DAY_MS
    leader.opened.store.add_group(ADDED_FIRST, born=True)
    added = leader.member(ADDED_FIRST)
    await cluster.until(lambda: added.serves)
    assert abs(added.replica.log_time_ms() - leader.clock.wall_ms() + DAY_MS) < GAP_MS_MAX
