"""The adapter over a real store: coming, publishing, live delivery, retained messages, leaving."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.adapters.mqtt.broker import Broker, serving


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with serving(tmp_path) as running:
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


@pytest.mark.parametrize("level", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
async def test_a_message_reaches_a_stored_subscriber(broker: Broker, level: int, qos: int) -> None:
    session = {"clean": False, "expiry": 60 if level == 5 else None}
    taker = await broker.connect("taker", level, **session)
    assert await taker.subscribe("a/+", qos=2) == (2,)
    giver = await broker.connect("giver", level, **session)
    await giver.publish("a/b", b"hello", qos)
    message = await taker.take()
    assert (message.topic, message.payload, message.qos) == ("a/b", b"hello", qos)
    await taker.nothing()
    await taker.disconnect()
    await giver.publish("a/c", b"later", qos)
    taker = await broker.connect("taker", level, **session)
    assert taker.connack.session_present
    message = await taker.take()
    assert (message.topic, message.payload, message.qos) == ("a/c", b"later", qos)
    await taker.nothing()
