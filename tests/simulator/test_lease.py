"""A leader hands messages out only under a lease: as long as nobody else can lead."""

from __future__ import annotations

import asyncio

from kernel.api.client import ConsumerSpec
from kernel.api.model import DEFAULT_GROUP
from kernel.broker.delivery.consumers import DispatchedConsumer
from kernel.common.ids import QueueId
from kernel.raft.members.configuration import REMOVE, Change
from tests.simulator.cluster import Cluster, Node
from tests.simulator.test_cluster import GROUP, QUEUE, Consumer, Publisher, clustered, level


def attached(leader: Node) -> tuple[DispatchedConsumer, Consumer]:
    """A consumer that comes to the leader now, and what it gets."""
    member = leader.member(GROUP)
    queue = member.state.queues[QueueId(QUEUE)]
    spec = ConsumerSpec(queue.topic.info(), DEFAULT_GROUP, None, lease_ms=None, pull=False)
    sink = Consumer()
    return member.replica.dispatcher(QueueId(QUEUE), DEFAULT_GROUP).attach(spec, sink), sink


def consuming(leader: Node) -> Consumer:
    """What a consumer gets that comes to the leader now."""
    consumer, sink = attached(leader)
    consumer.grant(5)
    return sink


async def leading(cluster: Cluster) -> tuple[Node, Publisher]:
    """The leader, and who has made a topic there."""
    leader = await cluster.led()
    publisher = Publisher(cluster)
    await publisher.topic(leader)
    return leader, publisher


@clustered()
async def test_a_leader_that_may_have_been_followed_by_another_hands_nothing_out(
    cluster: Cluster,
) -> None:
    leader, publisher = await leading(cluster)
    await publisher.published(leader, [b"one", b"two"])
    member = leader.member(GROUP)
    consumer, sink = attached(leader)
    consumer.grant(1)
    await cluster.until(lambda: sink.offsets == [0])
    cluster.network.isolate([leader.number])

    def another_leads() -> bool:
        others = [node for node in cluster.nodes.values() if node is not leader]
        return any(node.member(GROUP).leads for node in others)

    await cluster.until(lambda: another_leads() or not member.leads)
    assert member.leads, "it notices later than others do, else this shows nothing"
    consumer.grant(1)
    await asyncio.sleep(0.01)
    assert sink.offsets == [0]


@clustered()
async def test_a_leader_that_was_cut_off_for_a_moment_hands_out_again(cluster: Cluster) -> None:
    leader, publisher = await leading(cluster)
    await publisher.published(leader, [b"one"])
    cluster.network.isolate([leader.number])
    await asyncio.sleep(0.95)
    cluster.network.heal()
    sink = consuming(leader)
    assert not leader.member(GROUP).replica.may_hand_out()
    await cluster.until(lambda: sink.offsets == [0])
    assert leader.member(GROUP).leads


@clustered()
async def test_a_leader_hands_out_again_after_a_transfer_that_came_to_nothing(
    cluster: Cluster,
) -> None:
    leader, publisher = await leading(cluster)
    await publisher.published(leader, [b"one"])
    away = next(node for node in cluster.nodes.values() if node is not leader)
    await level(cluster)
    away.kill()
    term = leader.member(GROUP).core.term
    leader.opened.store.consensus.transfer(GROUP, away.number)
    assert not leader.member(GROUP).core.holds_lease()
    await cluster.until(lambda: leader.member(GROUP).core.term > term)
    await cluster.until(lambda: leader.member(GROUP).serves)
    sink = consuming(leader)
    await cluster.until(lambda: sink.offsets == [0])


@clustered()
async def test_a_leader_that_lost_its_lease_just_before_its_group_rests_hands_out(
    cluster: Cluster,
) -> None:
    leader, publisher = await leading(cluster)
    await publisher.published(leader, [b"one"])
    member, quiescence = leader.member(GROUP), leader.opened.store.consensus.quiescence
    await cluster.until(lambda: member in quiescence._level and member.core.holds_lease())
    cluster.network.isolate([leader.number])
    await cluster.until(lambda: not member.core.holds_lease())
    cluster.network.heal()
    await cluster.until(lambda: member in quiescence.quiescent)
    sink = consuming(leader)
    await cluster.until(lambda: sink.offsets == [0])


@clustered()
async def test_a_leader_that_has_rested_holds_a_lease_once_the_others_have_answered(
    cluster: Cluster,
) -> None:
    leader, publisher = await leading(cluster)
    await level(cluster)
    member, quiescence = leader.member(GROUP), leader.opened.store.consensus.quiescence
    await cluster.until(lambda: member in quiescence.quiescent)
    cluster.network.isolate([leader.number])
    publisher.publish(leader, b"one")
    await cluster.until(lambda: member not in quiescence.quiescent)
    assert not member.core.holds_lease()
    cluster.network.heal()
    await cluster.until(member.core.holds_lease)


@clustered()
async def test_a_process_that_was_held_up_hands_nothing_out_before_it_knows_how_long(
    cluster: Cluster,
) -> None:
    leader, publisher = await leading(cluster)
    await publisher.published(leader, [b"one", b"two"])
    consumer, sink = attached(leader)
    consumer.grant(1)
    await cluster.until(lambda: sink.offsets == [0])
    cluster.network.isolate([leader.number])
    ticker = leader.opened.store._ticker
    ticker._handle.cancel()  # type: ignore[union-attr]
    await asyncio.sleep(3)
    # A connection is read before the timers of the loop are looked at.
    consumer.grant(1)
    assert sink.offsets == [0]
    ticker._fire()
    assert sink.offsets == [0]
    cluster.network.heal()
    following = await cluster.led()
    assert following is not leader
    sink = consuming(following)
    await cluster.until(lambda: sink.offsets == [0, 1])


@clustered()
async def test_a_hiccup_of_a_leader_at_rest_ends_with_the_next_tick(cluster: Cluster) -> None:
    leader, publisher = await leading(cluster)
    await publisher.published(leader, [b"one", b"two"])
    consumer, sink = attached(leader)
    consumer.grant(1)
    member, quiescence = leader.member(GROUP), leader.opened.store.consensus.quiescence
    await cluster.until(lambda: member in quiescence.quiescent)
    member.replica.leased_until_ms = 0
    consumer.grant(1)
    assert sink.offsets == [0]
    await cluster.until(lambda: sink.offsets == [0, 1], seconds=0.2)
    assert member in quiescence.quiescent


@clustered(nodes=2)
async def test_a_leader_that_the_others_have_left_needs_no_lease(cluster: Cluster) -> None:
    leader, publisher = await leading(cluster)
    await publisher.published(leader, [b"one"])
    other = 3 - leader.number
    for group in leader.opened.store.groups:
        if not leader.member(group).leads:
            leader.member(group).core.campaign()
            await cluster.until(lambda group=group: leader.member(group).serves)
        await cluster.change(group, Change(REMOVE, other))
    await asyncio.sleep(5)
    sink = consuming(leader)
    await cluster.until(lambda: sink.offsets == [0])


@clustered()
async def test_a_voter_that_has_just_started_respects_the_lease_that_it_may_have_granted(
    cluster: Cluster,
) -> None:
    leader, _ = await leading(cluster)
    await level(cluster)
    voter, other = (node for node in cluster.nodes.values() if node is not leader)
    cluster.network.cut({(leader.number, other.number), (other.number, leader.number)})
    await asyncio.sleep(3)  # the other one has given up the leader by now
    voter.kill()
    await voter.start()
    cluster.network.isolate([leader.number])
    assert leader.member(GROUP).replica.may_hand_out()
    other.member(GROUP).core.campaign()
    other.opened.store.consensus.take(other.member(GROUP))
    while leader.member(GROUP).replica.may_hand_out():
        assert not other.member(GROUP).leads
        await asyncio.sleep(0.01)
    await cluster.until(lambda: other.member(GROUP).leads or voter.member(GROUP).leads)
