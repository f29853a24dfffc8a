"""Debian's Mosquitto beside a running adapter: its bridge, both ways, and its own clients.

Skipped where it is not installed (`apt-get install mosquitto mosquitto-clients`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from adapters.mqtt.codec.packets import Publish
from tests.adapters.mqtt.broker import WAIT_S, Broker, WireClient, eventually

SBIN = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
MOSQUITTO = shutil.which("mosquitto", path=SBIN)
CLIENTS = shutil.which("mosquitto_pub") and shutil.which("mosquitto_sub")

needs_broker = pytest.mark.skipif(MOSQUITTO is None, reason="Mosquitto is not installed")
needs_clients = pytest.mark.skipif(not CLIENTS, reason="Mosquitto's clients are not installed")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@dataclass
class Bridge:
    """A Mosquitto with a bridge to the adapter."""

    port: int
    log: Path
    clients: list[WireClient]
    """Closed at the end of the test, with the others."""

    async def connect(self, client_id: str, level: int = 4) -> WireClient:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        client = WireClient(reader, writer, level)
        self.clients.append(client)
        await client.connect(client_id)
        return client


@contextlib.asynccontextmanager
async def bridged(broker: Broker, directory: Path, *options: str) -> AsyncIterator[Bridge]:
    port, log = free_port(), directory / "mosquitto.log"
    lines = [
        f"listener {port} 127.0.0.1",
        "allow_anonymous true",
        "connection weir",
        f"address 127.0.0.1:{broker.port}",
        "remote_username guest",
        "remote_password guest",
        "remote_clientid bridge",
        "topic out/# out 1",
        "topic in/# in 1",
        "topic both/# both 1",
        *options,
    ]
    # Started by root it would become the user `mosquitto`, who may not read this directory.
    user = ["user root"] if os.geteuid() == 0 else []
    config = directory / "mosquitto.conf"
    config.write_text("\n".join([*user, *lines]) + "\n")
    assert MOSQUITTO is not None
    with log.open("wb") as out:
        server = await asyncio.create_subprocess_exec(
            MOSQUITTO, "-v", "-c", str(config), stdout=out, stderr=out
        )
    try:
        yield Bridge(port, log, broker.clients)
    finally:
        server.terminate()
        await server.wait()


async def until_bridged(broker: Broker, bridge: Bridge) -> None:
    """Until the bridge has subscribed at the adapter."""
    await eventually(lambda: broker.adapter.statistics().gauges["subscriptions"] >= 2)
    assert b"CONNACK" in bridge.log.read_bytes()


@needs_broker
@pytest.mark.parametrize(
    "options",
    [(), ("cleansession true",), ("bridge_protocol_version mqttv50",), ("try_private false",)],
    ids=["default", "clean", "v5", "plain"],
)
async def test_a_bridge_carries_messages_both_ways_and_once(
    broker: Broker, tmp_path: Path, options: tuple[str, ...]
) -> None:
    async with bridged(broker, tmp_path, *options) as bridge:
        await until_bridged(broker, bridge)
        assert broker.counters.connections == 1, "it was let in at its first try"
        here, there = await broker.connect("here"), await bridge.connect("there")
        for client in (here, there):
            await client.subscribe("in/#", "out/#", "both/#")
        await there.publish("out/1", b"from there")
        await here.publish("in/1", b"from here")
        await here.publish("both/1", b"one")
        await there.publish("both/2", b"two")
        wanted = {b"from there", b"from here", b"one", b"two"}
        for client in (here, there):
            got = [(await client.take()).payload for _ in wanted]
            assert sorted(got) == sorted(wanted)
        if options != ("try_private false",):  # a plain client echoes what it has brought
            await asyncio.sleep(0.3)
            for client in (here, there):
                await client.nothing()


@needs_broker
async def test_what_is_retained_stays_retained_over_a_bridge(
    broker: Broker, tmp_path: Path
) -> None:
    before = await broker.connect("before")
    await before.publish("in/old", b"old", retain=True)
    async with bridged(broker, tmp_path) as bridge:
        await until_bridged(broker, bridge)
        await before.publish("in/new", b"new", retain=True)
        there = await bridge.connect("there")
        await there.publish("out/x", b"x", retain=True)
        async with asyncio.timeout(WAIT_S):
            while await kept_at(bridge, "in/#") != {b"old", b"new"}:
                await asyncio.sleep(0.05)
            while await kept_at(broker, "out/#") != {b"x"}:
                await asyncio.sleep(0.05)


async def kept_at(place: Broker | Bridge, pattern: str) -> set[bytes]:
    """Bodies of what a new subscriber is sent as retained."""
    client = await place.connect(f"late-{os.urandom(4).hex()}")
    await client.subscribe(pattern)
    found: set[bytes] = set()
    with contextlib.suppress(TimeoutError):
        while True:
            packet = await client.next(Publish, 0.3)
            assert packet.retain
            found.add(packet.payload)
    client.drop()
    return found


@needs_broker
async def test_a_bridge_goes_on_after_its_connection_broke(broker: Broker, tmp_path: Path) -> None:
    async with bridged(broker, tmp_path, "restart_timeout 1 1") as bridge:
        await until_bridged(broker, bridge)
        there = await bridge.connect("there")
        await there.subscribe("in/#")
        for protocol in list(broker.adapter._listeners.connections):
            protocol.transport.abort()
        here = await broker.connect("here")
        for number in range(20):  # its session keeps them
            await here.publish("in/x", b"%d" % number)
        got = [int((await there.take()).payload) for _ in range(20)]
        assert got == list(range(20))


async def run(*words: str) -> tuple[int, bytes]:
    process = await asyncio.create_subprocess_exec(
        *words, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(WAIT_S):
        out, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out


@needs_clients
@pytest.mark.parametrize("version", ["mqttv31", "mqttv311", "mqttv5"])
@pytest.mark.parametrize("qos", ["0", "1", "2"])
async def test_mosquittos_own_clients_are_served(broker: Broker, version: str, qos: str) -> None:
    place = ["-h", "127.0.0.1", "-p", str(broker.port), "-u", "guest", "-P", "guest", "-V", version]
    place += ["-q", qos]
    reading = asyncio.create_task(
        run("mosquitto_sub", *place, "-t", "home/+/t", "-C", "3", "-F", "%t %p", "-i", "reader")
    )
    await eventually(lambda: broker.adapter.statistics().gauges["subscriptions"] == 1)
    for room in ("a", "b", "c"):
        code, out = await run("mosquitto_pub", *place, "-t", f"home/{room}/t", "-m", f"in {room}")
        assert code == 0, out
    code, out = await run("mosquitto_sub", *place, "-t", "$SYS/broker/messages/#", "-C", "3")
    assert (code, len(out.split())) == (0, 3)
    code, out = await reading
    assert (code, out.decode().split("\n")[:3]) == (
        0,
        ["home/a/t in a", "home/b/t in b", "home/c/t in c"],
    )
