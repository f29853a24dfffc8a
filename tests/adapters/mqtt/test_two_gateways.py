"""MQTT clients at two gateways of one cluster see one broker: live subscriptions, and one
connection of a client id.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

import pytest

from adapters.mqtt.codec.packets import Disconnect
from adapters.mqtt.codec.reason_codes import ReasonCode
from kernel.api.client import Client
from tests.adapters.mqtt.broker import Broker, serving_over
from tests.kernel.remote import cluster

Pair = tuple[Broker, Broker]


@pytest.fixture(params=[1, 3])
async def brokers(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(cluster.running_stores(tmp_path, request.param))
        one, other = await stack.enter_async_context(cluster.two_gateways_of(nodes))
        yield (
            await stack.enter_async_context(serving_over(cast("Client", one))),
            await stack.enter_async_context(serving_over(cast("Client", other))),
        )


@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_clean_subscriber_hears_what_is_published_at_the_other_gateway(
    brokers: Pair, qos: int
) -> None:
    here, there = brokers
    recorder = await here.connect("taker")
    giver = await there.connect("giver")
    for number in range(10):  # suback is the promise: what is published from now on comes
        await recorder.subscribe(f"a/{number}/+", qos=qos)
        await giver.publish(f"a/{number}/x", b"%d" % number, qos=qos)
        packet = await recorder.take()
        assert (packet.topic, packet.payload) == (f"a/{number}/x", b"%d" % number)
    await recorder.disconnect()
    await giver.disconnect()


async def test_order_and_count_hold_between_gateways(brokers: Pair) -> None:
    here, there = brokers
    recorder = await here.connect("taker")
    await recorder.subscribe("a", qos=0)
    giver = await there.connect("giver")
    for number in range(200):
        await giver.publish("a", b"%d" % number, qos=number % 2)
    got = [int((await recorder.take()).payload) for _ in range(200)]
    assert got == list(range(200))


@pytest.mark.parametrize("clean", [True, False])
async def test_a_client_id_has_one_connection_in_the_cluster(brokers: Pair, clean: bool) -> None:
    here, there = brokers
    first = await here.connect("c", clean=clean)
    await there.connect("c", clean=clean)
    packet = await first.next(Disconnect)
    assert packet.reason_code == ReasonCode.SESSION_TAKEN_OVER
    again = await here.connect("c", clean=clean)
    await again.subscribe("a", qos=0)
    await again.disconnect()


@pytest.mark.parametrize("persistent", [False, True])
async def test_no_matching_subscribers_is_said_only_if_there_are_none_anywhere(
    brokers: Pair, persistent: bool
) -> None:
    """Reason code 16 (MQTT 5, 3.4.2.1): who is elsewhere, absent or sharing is a subscriber."""
    here, there = brokers
    giver = await there.connect("giver", clean=not persistent, expiry=600 * persistent)
    nobody = ReasonCode.NO_MATCHING_SUBSCRIBERS

    async def answers(topic: str) -> list[int]:
        return [await giver.publish(topic, b"x", qos=qos) for qos in (1, 2)]

    for number, kept, pattern in (
        (1, False, "{}/+"),
        (2, True, "{}/#"),
        (3, True, "$share/g/{}/a"),
    ):
        topic = f"{number}/a"
        assert await answers(topic) == [nobody, nobody]
        recorder = await here.connect(f"taker{number}", clean=not kept, expiry=600 * kept)
        await recorder.subscribe(pattern.format(number), qos=1)
        assert await answers(topic) == [0, 0]
        if kept:
            recorder.drop()
            assert await answers(topic) == [0, 0]
            recorder = await here.connect(f"taker{number}", clean=False, expiry=600)
        await recorder.unsubscribe(pattern.format(number))
        async with asyncio.timeout(10):  # that nobody is left, the other gateway hears later
            while await answers(topic) != [nobody, nobody]:
                pass
    assert there.counters.nobody >= 12
