"""Transactions and settlements of consumers that are over, while connections and leaders change."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kernel.api.atomic import Settle, Transaction
from kernel.api.client import Consumer, Settlement
from kernel.api.model import TopicInfo
from kernel.common.errors import Code, KernelError
from kernel.remote.client import ClusterClient
from tests.kernel.remote.cluster import gateway_of, hand_over, running_stores
from tests.kernel.remote.gateway import GROUP
from tests.kernel.remote.test_streams import cut
from tests.kernel.remote.test_transact_far import batch_of, bodies, holding, left
from tests.kernel.three_stores import CLOCK, Node, leader_of, until
from tests.simulator.peer import Peer


def streams(nodes: list[Node]) -> int:
    return sum(node.service.streams.count for node in nodes if node.runs)


async def over(nodes: list[Node], peer: Peer, source: TopicInfo) -> Consumer:
    """A consumer that is cancelled and holds one message."""
    await peer.publish(source, b"1")
    recorder, consumer = await holding(peer, source, 1)
    recorder.cancel()
    leader = leader_of(nodes, GROUP)
    assert leader is not None
    await until(lambda: all(each.ended for each in leader.service.streams._streams))
    return consumer


def unanswered(client: ClusterClient) -> bool:
    lane = client.leaders.leader(GROUP)._lane
    return lane is not None and bool(lane.calls)


def break_lane(client: ClusterClient) -> None:
    """Another call of its group has failed: what is unanswered in the lane is sent again."""
    leader = client.leaders.leader(GROUP)
    assert leader._lane is not None
    leader._break(leader._lane, KernelError(Code.BUSY, "for a test"))


async def test_a_transaction_of_a_stream_that_it_has_ended_holds_up_nobody(tmp_path: Path) -> None:
    async with running_stores(tmp_path, data_groups=1) as nodes, gateway_of(nodes) as client:
        peer = Peer(client, CLOCK, "peer")
        source, target = await peer.topic("source"), await peer.topic("target")
        consumer = await over(nodes, peer, source)
        settle = Settle(consumer, Settlement.ACK, [0])
        wanted = Transaction(batch_of(peer, target, b"a"), [settle])
        task = asyncio.create_task(client.transact(wanted))
        await asyncio.sleep(0)
        assert unanswered(client)
        break_lane(client)
        await until(lambda: not streams(nodes))  # by the first try, whose answer is not heard
        async with asyncio.timeout(5):
            assert not (await peer.publish(target, b"b")).failures
            await task
        assert await bodies(client, target) == [b"a", b"b"]
        assert await left(client, source) == 0
        assert client.streams.count == 0


@pytest.mark.parametrize("change", ["cut", "transfer", "kill"])
@pytest.mark.parametrize("what", ["transact", "settle"])
async def test_what_is_over_is_forgotten_whatever_becomes_of_its_leader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str, change: str
) -> None:
    """The leader carries it out, and nobody hears of that; at the next one nothing is held."""
    async with running_stores(tmp_path, 3, data_groups=1) as nodes, gateway_of(nodes) as client:
        peer = Peer(client, CLOCK, "peer")
        source, target = await peer.topic("source"), await peer.topic("target")
        consumer = await over(nodes, peer, source)
        settle = Settle(consumer, Settlement.ACK, [0])
        batch = batch_of(peer, target, b"a") if what == "transact" else None
        steps = client._transactor._cross_group.carry_out
        wanted = client.transact(Transaction(batch, [settle])) if batch else steps(None, [settle])
        leader = leader_of(nodes, GROUP)
        assert leader is not None
        state = leader.opened.store.replica(GROUP).state
        task = asyncio.create_task(wanted)
        channel = client.leaders.channel_to(GROUP)
        assert channel is not None
        monkeypatch.setattr(channel, "receive", lambda *_: None)  # deaf
        (queue,) = source.queues
        await until(lambda: state.queues[queue.id].groups["default"].is_acked(0))
        if change == "cut":
            cut(leader)
        elif change == "transfer":
            await hand_over(nodes, GROUP)
            cut(leader)
        else:
            await leader.kill()
        async with asyncio.timeout(15):
            await task
        await until(lambda: not client.streams.count)
        await until(lambda: not streams(nodes))
        assert await left(client, source) == 0
        assert await bodies(client, target) == ([b"a"] if batch else [])
