"""An adapter on a loopback port, and a client made of our codec that sees every packet."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adapters.base import ListenerAddress, Rights
from adapters.mqtt.codec.decoder import Decoder
from adapters.mqtt.codec.encoder import encode
from adapters.mqtt.codec.packet_types import PacketType
from adapters.mqtt.codec.packets import (
    Ack,
    Connack,
    Connect,
    Disconnect,
    FilterOptions,
    Pingreq,
    Publish,
    Suback,
    Subscribe,
    Unsubscribe,
)
from adapters.mqtt.codec.properties import NO_PROPERTIES, Properties
from adapters.mqtt.environment import Login, MqttSettings, MqttSignIn
from adapters.mqtt.server import MqttAdapter
from auth.errors import AuthCode, AuthError
from auth.principal import Principal, split_login
from kernel.api.client import Client
from kernel.common.ports import Disk
from kernel.store.drivers.system import SystemClock, SystemRandom
from tests.adapters.in_process import EveryRight, running_store
from tests.adapters.kernels import kernel_of
from tests.adapters.mqtt.support import client_decoder, single

WAIT_S = 10
KEPT = 600
"""Seconds for which a session outlives its connection."""


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until that is so."""
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.01)


class Logins:
    """`MqttSignIn` over a dict of logins."""

    def __init__(self) -> None:
        self.passwords = {"guest": b"guest", "acme:alice": b"secret"}
        self.denied: set[tuple[int, str]] = set()
        self.given: list[EveryRight] = []
        self.seen: list[Login] = []
        self.failure: AuthError | None = None

    async def sign_in(self, login: Login) -> Rights:
        self.seen.append(login)
        if self.failure is not None:
            raise self.failure
        name = login.username or ""
        if self.passwords.get(name) != login.password:
            raise AuthError(AuthCode.BAD_CREDENTIALS, "wrong login or password")
        rights = EveryRight(Principal(*split_login(name)), self.denied)
        self.given.append(rights)
        return rights


class Totals:
    """Counters over all tenants, as they are when one is looked at."""

    def __init__(self, adapter: MqttAdapter) -> None:
        self._adapter = adapter

    def __getattr__(self, name: str) -> int:
        return int(self._adapter.statistics().counters[name])


@dataclass
class Broker:
    """A running adapter."""

    adapter: MqttAdapter
    kernel: Client
    """What the adapter talks to: the store's own client, or a hostile one before it."""
    logins: Logins
    port: int
    websocket_port: int
    clients: list[WireClient] = field(default_factory=list)

    @property
    def counters(self) -> Any:
        return Totals(self.adapter)

    async def connect(self, client_id: str = "c", level: int = 5, **fields: Any) -> WireClient:
        """A client that was let in."""
        client = await self.dial(level)
        await client.connect(client_id, **fields)
        return client

    def recheck(self) -> None:
        """Rights have changed."""
        for holder in self.adapter.holders():
            for _ in holder.recheck():
                pass

    async def until_connections(self, count: int) -> None:
        """Until no more than so many are left, and what they leave behind is written."""
        async with asyncio.timeout(WAIT_S):
            while self.adapter.statistics().connections > count:
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)

    async def dial(self, level: int = 5) -> WireClient:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        client = WireClient(reader, writer, level)
        self.clients.append(client)
        return client


class WireClient:
    """One connection from the client's side. It answers nothing by itself."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, level: int
    ) -> None:
        self.reader = reader
        self.writer = writer
        self.level = level
        self.decoder: Decoder = client_decoder(level)
        self.packets: list[Any] = []
        self.connack: Connack | None = None
        self._last_id = 0

    def send(self, packet: Any) -> None:
        self.writer.write(encode(packet, self.level))

    async def connect(
        self,
        client_id: str = "c",
        *,
        clean: bool = True,
        expiry: int | None = None,
        login: tuple[str, bytes] = ("guest", b"guest"),
        properties: Properties = NO_PROPERTIES,
        **fields: Any,
    ) -> Connack:
        if expiry is not None:
            properties = Properties(session_expiry_interval=expiry)
        self.send(
            Connect(
                client_id,
                self.level,
                clean,
                username=login[0],
                password=login[1],
                properties=properties,
                **fields,
            )
        )
        self.connack = await self.next(Connack)
        return self.connack

    async def _read(self) -> None:
        data = await self.reader.read(65_536)
        if not data:
            raise EOFError("the server has closed the connection")
        found: list[Any] = []
        self.decoder.receive(data, found)
        self.packets += single(found)

    async def answer(self, kind: PacketType, packet_id: int) -> int:
        """The code of an acknowledgement, whatever else comes before it."""
        async with asyncio.timeout(WAIT_S):
            while True:
                for place, packet in enumerate(self.packets):
                    if isinstance(packet, tuple) and packet[:2] == (kind, packet_id):
                        return int(self.packets.pop(place)[2])
                await self._read()

    async def next(self, kind: type | PacketType | None = None, wait_s: float = WAIT_S) -> Any:
        """The next packet, which must be of that kind. Acknowledgements are
        (type, packet id, code, properties)."""
        async with asyncio.timeout(wait_s):
            while not self.packets:
                await self._read()
        packet = self.packets.pop(0)
        if isinstance(kind, PacketType):
            assert isinstance(packet, tuple), packet
            assert packet[0] == kind, packet
        elif kind is not None:
            assert isinstance(packet, kind), packet
        return packet

    async def nothing(self) -> None:
        """Asserts that nothing comes that was under way."""
        for _ in range(3):
            await self.ping()

    async def ping(self) -> None:
        self.send(Pingreq())
        packet = await self.next()
        assert getattr(packet, "type", None) == PacketType.PINGRESP, packet

    async def closed(self) -> list[Any]:
        """What comes until the server closes."""
        with contextlib.suppress(EOFError, ConnectionError):
            async with asyncio.timeout(WAIT_S):
                while True:
                    await self._read()
        found, self.packets = self.packets, []
        return found

    def packet_id(self) -> int:
        self._last_id += 1
        return self._last_id

    async def subscribe(
        self, *filters: str | FilterOptions, qos: int = 1, properties: Properties = NO_PROPERTIES
    ) -> tuple[int, ...]:
        """The codes of the SUBACK."""
        wanted = tuple(
            FilterOptions(each, qos) if isinstance(each, str) else each for each in filters
        )
        self.send(Subscribe(self.packet_id(), wanted, properties))
        answer = await self.next(Suback)
        return tuple(answer.reason_codes)

    async def unsubscribe(self, *filters: str) -> Any:
        self.send(Unsubscribe(self.packet_id(), filters))
        return await self.next()

    async def publish(
        self, topic: str, payload: bytes = b"x", qos: int = 1, **fields: Any
    ) -> int | None:
        """Publishes to the end of the exchange; the reason code."""
        packet_id = self.packet_id() if qos else 0
        self.send(Publish(topic, payload, qos, packet_id=packet_id, **fields))
        if not qos:
            return None
        kind = PacketType.PUBACK if qos == 1 else PacketType.PUBREC
        code = await self.answer(kind, packet_id)
        if qos == 2 and code < 0x80:
            self.send(Ack(PacketType.PUBREL, packet_id))
            await self.answer(PacketType.PUBCOMP, packet_id)
        return code

    def ack(self, packet: Publish, kind: PacketType = PacketType.PUBACK, code: int = 0) -> None:
        self.send(Ack(kind, packet.packet_id, code))

    async def take(self) -> Publish:
        """The next message, acknowledged by its QoS."""
        packet = await self.next(Publish)
        assert isinstance(packet, Publish)
        if packet.qos == 1:
            self.ack(packet)
        elif packet.qos == 2:
            self.ack(packet, PacketType.PUBREC)
            await self.answer(PacketType.PUBREL, packet.packet_id)
            self.ack(packet, PacketType.PUBCOMP)
        return packet

    async def disconnect(self, code: int = 0, properties: Properties = NO_PROPERTIES) -> None:
        """A goodbye, and the end as the server makes it."""
        self.send(Disconnect(code, properties))
        assert await self.closed() == []
        self.writer.close()

    def drop(self) -> None:
        """The connection breaks."""
        self.writer.transport.abort()


@contextlib.asynccontextmanager
async def serving(
    disk: Disk | Path,
    settings: MqttSettings | None = None,
    *,
    reserve_bytes: int = 0,
    sign_in: MqttSignIn | None = None,
    **extra: Any,
) -> AsyncIterator[Broker]:
    """An adapter on free loopback ports, over the store on `disk`; over a hostile network, if
    WEIR_HOSTILE in the environment has a seed for it.
    """
    clock = SystemClock()
    async with (
        running_store(disk, clock, reserve_bytes=reserve_bytes) as store,
        kernel_of(store, clock) as kernel,
        serving_over(kernel, settings, sign_in=sign_in, **extra) as broker,
    ):
        yield broker


@contextlib.asynccontextmanager
async def serving_over(
    kernel: Client,
    settings: MqttSettings | None = None,
    *,
    sign_in: MqttSignIn | None = None,
    **extra: Any,
) -> AsyncIterator[Broker]:
    """An adapter on free loopback ports, over a kernel client."""
    logins = Logins()
    adapter = MqttAdapter(
        kernel,
        sign_in or logins,
        [
            ListenerAddress("tcp", "127.0.0.1", 0),
            ListenerAddress("websocket", "127.0.0.1", 0),
        ],
        clock=SystemClock(),
        random=SystemRandom(),
        settings=settings,
        **extra,
    )
    await adapter.start()
    addresses = adapter.addresses()
    ports = (addresses["tcp"][1], addresses["websocket"][1])
    broker = Broker(adapter, kernel, logins, *ports)
    try:
        yield broker
    finally:
        await adapter.stop()
        for client in broker.clients:
            client.writer.close()


async def kept(broker: Broker, name: str = "kept", level: int = 5, **fields) -> WireClient:
    expiry = KEPT if level == 5 else None
    return await broker.connect(name, level, clean=False, expiry=expiry, **fields)


def present(client: WireClient) -> bool:
    assert client.connack is not None
    return client.connack.session_present
