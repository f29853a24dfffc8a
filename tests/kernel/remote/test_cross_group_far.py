"""Transactions over several Raft groups of a gateway, while a store or the gateway dies between
their two steps: messages are stored before anything is settled.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from kernel.api.atomic import Settle, Transaction
from kernel.api.client import Settlement
from kernel.api.model import TopicInfo
from kernel.remote.client import ClusterClient
from tests.kernel.remote.cluster import gateway_of, running_stores
from tests.kernel.remote.test_transact_far import batch_of, bodies, holding, left
from tests.kernel.three_stores import CLOCK, leader_of, until
from tests.simulator.peer import Peer


async def apart(peer: Peer) -> tuple[TopicInfo, TopicInfo]:
    """Two topics whose queues live in two Raft groups."""
    first = await peer.topic("first")
    for number in range(100):
        other = await peer.topic(f"other{number}")
        if other.queues[0].group != first.queues[0].group:
            return first, other
    raise AssertionError("unreachable")


def between_parts(
    monkeypatch: pytest.MonkeyPatch, client: ClusterClient, action: Callable[[], Awaitable[None]]
) -> None:
    steps = client._transactor._cross_group
    settle_all = steps._settle_all

    async def settling(settlements: Sequence[Settle]) -> None:
        await action()
        await settle_all(settlements)

    monkeypatch.setattr(steps, "_settle_all", settling)


@pytest.mark.parametrize("dies", ["source", "target"])
async def test_it_is_done_once_though_a_leader_dies_between_its_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    async with running_stores(tmp_path, 3) as nodes, gateway_of(nodes) as client:
        peer = Peer(client, CLOCK, "peer")
        source, target = await apart(peer)
        await peer.publish(source, b"1", b"2")
        recorder, consumer = await holding(peer, source, 2)

        async def kill() -> None:
            group = (source if dies == "source" else target).queues[0].group
            leader = leader_of(nodes, group)
            assert leader is not None
            await leader.kill()

        between_parts(monkeypatch, client, kill)
        settle = Settle(consumer, Settlement.ACK, [0])
        wanted = Transaction(batch_of(peer, target, b"a"), [settle], whole=False)
        async with asyncio.timeout(20):
            await client.transact(wanted)
        assert await bodies(client, target) == [b"a"]
        assert await left(client, source) == 1  # what it holds is still its own
        assert not await recorder.ack(1)
        assert await left(client, source) == 0


async def test_what_a_gateway_has_not_settled_any_more_comes_again_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as other:
        nodes[0].service.streams._away_ms = 100
        peer = Peer(other, CLOCK, "peer")
        source, target = await apart(peer)
        await peer.publish(source, b"1")
        async with gateway_of(nodes) as client:
            await until(lambda: client.topic("default", source.name))
            lost = Peer(client, CLOCK, "lost")
            _, consumer = await holding(lost, source, 1)
            reached = asyncio.Event()

            async def dies() -> None:
                reached.set()
                await asyncio.Event().wait()

            between_parts(monkeypatch, client, dies)
            settle = Settle(consumer, Settlement.ACK, [0])
            batch = batch_of(lost, target, b"a")
            task = asyncio.create_task(client.transact(Transaction(batch, [settle], whole=False)))
            await reached.wait()
            task.cancel()
            for each in client.leaders._dialers.values():
                if each._task is not None:
                    each._task.cancel()
                if each._wire is not None:
                    each._wire.abort()
            recorder, _ = await holding(peer, source, 1)
        assert list(zip(recorder.bodies, recorder.attempts, strict=True)) == [(b"1", 2)]
        assert await bodies(other, target) == [b"a"]
