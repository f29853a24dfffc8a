"""The driver over a kernel in memory: coming, publishing, live delivery, retained, leaving."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from adapters.mqtt.codec.packet_types import PacketType
from adapters.mqtt.codec.packets import Disconnect, FilterOptions, Publish, Suback
from tests.adapters.mqtt.broker import Broker, serving
from tests.adapters.mqtt.fake_kernel import FakeClient


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with serving(FakeClient()) as running:
        yield running


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_message_reaches_a_live_subscriber(broker: Broker, level: int, qos: int) -> None:
    taker = await broker.connect("taker", level)
    assert await taker.subscribe("a/+", qos=2) == (2,)
    giver = await broker.connect("giver", level)
    await giver.publish("a/b", b"hello", qos)
    message = await taker.take()
    assert (message.topic, message.payload, message.qos) == ("a/b", b"hello", qos)
    await taker.nothing()
