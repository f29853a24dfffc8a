"""Groups in which nothing happens rest, and wake in time."""

from __future__ import annotations

import asyncio
from collections import Counter

from kernel.common.ids import RaftGroup
from kernel.raft.messages import PREVOTE, VOTE, RaftMessage
from kernel.store.raft_groups.quiescence import BEATS, LEVEL_TICKS
from tests.simulator.cluster import Cluster, Node, Trouble
from tests.simulator.test_cluster import GROUP, Publisher, bodies_at, clustered, level

TICK_S = 0.1
REST_S = 3 * LEVEL_TICKS * TICK_S
"""Until a group is quiescent after its last message, with room."""

GROUPS = 4


def quiesces(node: Node, group: RaftGroup = GROUP) -> bool:
    return node.member(group) in node.opened.store.consensus.quiescence.quiescent


async def all_quiescent(cluster: Cluster) -> None:
    running = cluster.running()
    await cluster.until(
        lambda: all(
            len(consensus.quiescence.quiescent) == len(consensus.members)
            for consensus in (node.opened.store.consensus for node in running)
        ),
        seconds=30,
    )


def counted(cluster: Cluster) -> Counter[tuple[int, int]]:
    """(group, kind) of every message that is sent from now on."""
    found: Counter[tuple[int, int]] = Counter()
    send = cluster.network.send

    def counting(sender: int, group: int, message: RaftMessage) -> None:
        found[group, message.kind] += 1
        send(sender, group, message)

    cluster.network.send = counting  # type: ignore[method-assign]
    return found


@clustered(data_groups=GROUPS)
async def test_idle_groups_say_nothing_and_a_beat_a_tick_goes_each_way_between_two_nodes(
    cluster: Cluster,
) -> None:
    for group in range(GROUPS + 1):
        await cluster.led(group)
    await all_quiescent(cluster)
    sent = counted(cluster)
    await asyncio.sleep(100 * TICK_S)
    assert {group for group, _ in sent} == {BEATS}
    assert 6 * 98 <= sum(sent.values()) <= 6 * 102


@clustered(data_groups=GROUPS)
async def test_what_is_published_wakes_one_group_and_everybody_gets_it(cluster: Cluster) -> None:
    leader = await cluster.led()
    publisher = Publisher(cluster)
    await publisher.topic(leader)
    await all_quiescent(cluster)
    term = leader.member(GROUP).core.term
    await publisher.published(leader, [b"1"])
    assert [quiesces(node) for node in cluster.running()] == [False] * 3
    assert all(quiesces(node, RaftGroup(2)) for node in cluster.running())
    await all_quiescent(cluster)
    for node in cluster.running():
        assert await bodies_at(node) == [b"1"]
    assert leader.member(GROUP).core.term == term


@clustered()
async def test_a_leader_that_dies_while_its_group_rests_is_followed_as_soon_as_ever(
    cluster: Cluster,
) -> None:
    leader = await cluster.led()
    publisher = Publisher(cluster)
    await publisher.topic(leader)
    await all_quiescent(cluster)
    began = cluster.loop.time()
    leader.kill()
    following = await cluster.led()
    assert following is not leader
    assert cluster.loop.time() - began < 24 * TICK_S
    await publisher.published(following, [b"1"])
    await leader.start()
    await level(cluster)
    await all_quiescent(cluster)


@clustered()
async def test_a_node_that_starts_anew_takes_its_place_and_deposes_nobody(
    cluster: Cluster,
) -> None:
    leader = await cluster.led()
    await all_quiescent(cluster)
    term = leader.member(GROUP).core.term
    other = next(node for node in cluster.running() if node is not leader)
    other.crash()
    await asyncio.sleep(1)
    await other.start()
    await cluster.until(lambda: other.member(GROUP).core.leader == leader.number)
    await all_quiescent(cluster)
    assert leader.member(GROUP).core.term == term


@clustered()
async def test_a_node_that_is_away_keeps_its_groups_awake_and_has_all_when_it_is_back(
    cluster: Cluster,
) -> None:
    leader = await cluster.led()
    publisher = Publisher(cluster)
    await publisher.topic(leader)
    await all_quiescent(cluster)
    term = leader.member(GROUP).core.term
    other = next(node for node in cluster.running() if node is not leader)
    cluster.network.isolate([other.number])
    await asyncio.sleep(REST_S)
    assert not quiesces(leader)
    await publisher.published(leader, [b"meanwhile"])
    cluster.network.heal()
    await all_quiescent(cluster)
    assert await bodies_at(other) == [b"meanwhile"]
    assert leader.member(GROUP).core.term == term


@clustered()
async def test_who_is_woken_by_a_stranger_asks_its_leader_and_campaigns_not(
    cluster: Cluster,
) -> None:
    leader = await cluster.led()
    await all_quiescent(cluster)
    term = leader.member(GROUP).core.term
    one, two = (node for node in cluster.running() if node is not leader)
    sent = counted(cluster)
    stranger = RaftMessage(PREVOTE, one.number, two.number, term + 1)
    two.opened.store.consensus.receive(GROUP, stranger)
    assert not quiesces(two)
    await asyncio.sleep(5 * TICK_S)
    assert not quiesces(leader)
    await all_quiescent(cluster)
    assert leader.member(GROUP).core.term == term
    assert not [kind for _, kind in sent if kind in {VOTE, PREVOTE}]


@clustered(data_groups=2)
async def test_groups_come_to_rest_on_a_network_that_loses_messages(cluster: Cluster) -> None:
    leader = await cluster.led()
    publisher = Publisher(cluster)
    await publisher.topic(leader)
    cluster.network.trouble = Trouble(loss=0.1, repeat=0.1, delay_max=0.05)
    rested = 0
    for number in range(200):
        await asyncio.sleep(TICK_S)
        rested += quiesces(leader)
        if number % 50 == 0:
            await publisher.published(await cluster.led(), [b"%d" % number])
    assert rested > 20
    cluster.network.trouble = Trouble()
    await all_quiescent(cluster)
    await level(cluster)
