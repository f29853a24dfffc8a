"""While the disk holds its syncs, no client hears ok for anything durable; the rest goes on."""

from __future__ import annotations

import asyncio
import threading

import pytest

from adapters.mqtt.codec.packet_types import PacketType
from adapters.mqtt.codec.packets import (
    Ack,
    Connack,
    Connect,
    FilterOptions,
    Publish,
    Suback,
    Subscribe,
    Unsuback,
    Unsubscribe,
)
from adapters.mqtt.codec.properties import Properties
from adapters.mqtt.codec.reason_codes import ReasonCode
from tests.adapters.mqtt.broker import Broker, WireClient, serving
from tests.simulator.disk import SimulatedDisk

KEPT = Properties(session_expiry_interval=600)
LOGIN = {"username": "guest", "password": b"guest"}


async def kept(broker: Broker, name: str) -> WireClient:
    return await broker.connect(name, clean=False, expiry=600)


async def answers(client: WireClient, packet) -> list:
    """What a client hears within a moment, besides the answer to its ping."""
    client.send(packet)
    await client.nothing()
    found, client.packets = client.packets, []
    return found


async def test_no_durable_answer_comes_before_its_sync() -> None:
    disk = SimulatedDisk()
    gate = threading.Event()
    gate.set()
    disk.sync_gate = gate.wait
    async with serving(disk) as broker:
        recorder = await kept(broker, "taker")
        await recorder.subscribe("a/#", qos=2)
        clients = {name: await kept(broker, name) for name in ("p1", "p2", "rel", "s", "u")}
        await clients["u"].subscribe("b")
        clients["rel"].send(Publish("a/rel", b"x", 2, packet_id=1))
        await clients["rel"].answer(PacketType.PUBREC, 1)
        twice = await recorder.next(Publish)
        await asyncio.sleep(0.1)
        newcomer = await broker.dial()

        gate.clear()
        packets = {
            "p1": Publish("a/1", b"x", 1, packet_id=1),
            "p2": Publish("a/2", b"x", 2, packet_id=1),
            "rel": Ack(PacketType.PUBREL, 1),
            "s": Subscribe(1, (FilterOptions("c/#", 1),)),
            "u": Unsubscribe(2, ("b",)),
        }
        try:
            for name, packet in packets.items():
                assert await answers(clients[name], packet) == []
            recorder.ack(twice, PacketType.PUBREC)
            await recorder.nothing()
            newcomer.send(Connect("new", clean_start=False, properties=KEPT, **LOGIN))
            with pytest.raises(TimeoutError):
                await newcomer.next(wait_s=0.2)

            clean = await broker.connect("clean")
            assert await clean.subscribe("d", qos=1) == (1,)
            other = await broker.connect("other")
            assert await other.publish("d", b"live", qos=1) == 0
            assert (await clean.take()).payload == b"live"
            for client in clients.values():
                await client.ping()
                assert client.packets == []
        finally:
            gate.set()

        assert await clients["p1"].answer(PacketType.PUBACK, 1) == 0
        assert await clients["p2"].answer(PacketType.PUBREC, 1) == 0
        assert await clients["rel"].answer(PacketType.PUBCOMP, 1) == 0
        assert isinstance(await clients["s"].next(), Suback)
        assert isinstance(await clients["u"].next(), Unsuback)
        assert await recorder.answer(PacketType.PUBREL, twice.packet_id) == 0
        assert isinstance(await newcomer.next(), Connack)


async def test_a_full_disk_refuses_messages_and_goes_on_delivering() -> None:
    disk = SimulatedDisk()
    async with serving(disk, reserve_bytes=1_000_000) as broker:
        recorder = await kept(broker, "taker")
        await recorder.subscribe("a", qos=1)
        giver = await broker.connect("giver")
        old = await broker.connect("old", 4)
        await giver.publish("a", b"before")
        disk.capacity = disk.used + 999_999
        async with asyncio.timeout(5):
            while broker.kernel.accepting:
                await asyncio.sleep(0.02)
        assert await giver.publish("a", b"refused") == ReasonCode.QUOTA_EXCEEDED
        old.send(Publish("a", b"refused", 1, packet_id=1))
        assert await old.closed() == []
        assert (await recorder.take()).payload == b"before"
        await recorder.nothing()
        newcomer = await broker.dial()
        answer = await newcomer.connect("new", clean=False, expiry=60)
        assert answer.reason_code == ReasonCode.QUOTA_EXCEEDED
        assert broker.counters.publish_refused == 2
