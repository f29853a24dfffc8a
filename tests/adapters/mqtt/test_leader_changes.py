"""MQTT clients on a gateway without a store, while the lists of their subscriptions get other
leaders: no session is dropped, nothing is lost, and what comes for the first time comes in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest

from adapters.mqtt.codec.properties import Properties
from kernel.api.client import Client
from kernel.common.ids import RaftGroup
from tests.adapters.mqtt.broker import serving_over
from tests.kernel.remote import cluster
from tests.kernel.three_stores import Node, until

GROUPS = (RaftGroup(1), RaftGroup(2))
COUNT = 200
CONSUMER = Properties(session_expiry_interval=600, receive_maximum=20)


async def killed(nodes: list[Node]) -> None:
    """A leader dies without a word."""
    await (await cluster.serving(nodes, GROUPS[0])).kill()
    for group in GROUPS:
        await cluster.serving(nodes, group)


async def handed_over(nodes: list[Node]) -> None:
    """All leaders hand over, twice."""
    for _ in range(2):
        for group in GROUPS:
            await cluster.hand_over(nodes, group)
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("change", [killed, handed_over])
async def test_a_subscription_goes_on_with_the_next_leader(
    tmp_path: Path, change: Callable[[list[Node]], Awaitable[None]]
) -> None:
    async with (
        cluster.running_stores(tmp_path, 3, data_groups=2) as nodes,
        cluster.gateway_of(nodes) as client,
        serving_over(cast("Client", client)) as broker,
    ):
        recorder = await broker.connect("taker", clean=False, properties=CONSUMER)
        await recorder.subscribe("a/+", qos=1)
        giver = await broker.connect("giver")
        names = [f"a/{number}" for number in range(4)]
        got: dict[str, list[int]] = {name: [] for name in names}

        async def publish() -> None:
            for number in range(COUNT):
                code = await giver.publish(names[number % 4], b"%d" % number, qos=1)
                assert code == 0

        async def take() -> None:
            while sum(len(set(each)) for each in got.values()) < COUNT:
                packet = await recorder.take()
                got[packet.topic].append(int(packet.payload))

        taking, publishing = asyncio.create_task(take()), asyncio.create_task(publish())
        await until(lambda: sum(map(len, got.values())) > COUNT // 10)
        assert not publishing.done()
        await change(nodes)
        async with asyncio.timeout(30):
            await asyncio.gather(publishing, taking)
        for place, name in enumerate(names):
            assert list(dict.fromkeys(got[name])) == list(range(place, COUNT, 4))
        await recorder.disconnect()
