"""A tiny AMQP broker in memory: what the load tester is tested against.

It is written for its faults: it can lose, repeat or swap chosen messages, refuse them, or close
on a producer. It knows nothing of the tester's frames and parses its own.
"""

from __future__ import annotations

import asyncio
import struct
from collections import deque
from dataclasses import dataclass, field
from typing import Self

METHOD, HEADER, BODY = 1, 2, 3


def short(text: str) -> bytes:
    return bytes((len(text.encode()),)) + text.encode()


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + b"\xce"


def method(channel: int, class_id: int, method_id: int, arguments: bytes = b"") -> bytes:
    return frame(METHOD, channel, struct.pack(">HH", class_id, method_id) + arguments)


@dataclass(slots=True)
class Faults:
    """What to do wrong, by the number (from 0) of the message in its queue."""

    lose: set[int] = field(default_factory=set)
    repeat: set[int] = field(default_factory=set)
    swap: set[int] = field(default_factory=set)  # with the message after it
    refuse: set[int] = field(default_factory=set)  # basic.nack, by publish number; not stored
    silent_from: int = 1 << 62  # no answer to that publish and all behind it
    close_after: int = -1  # channel.close on that publish


class StoredQueue:
    def __init__(self, faults: Faults) -> None:
        self.messages: deque[tuple[bytes, bytes]] = deque()
        self.consumers: list[StoredConsumer] = []
        self._faults = faults
        self._held: tuple[bytes, bytes] | None = None
        self._taken = 0

    def put(self, header: bytes, body: bytes) -> None:
        number, self._taken = self._taken, self._taken + 1
        if number in self._faults.lose:
            return
        if number in self._faults.swap:
            self._held = (header, body)
            return
        self.messages.append((header, body))
        if number in self._faults.repeat:
            self.messages.append((header, body))
        if self._held is not None:
            self.messages.append(self._held)
            self._held = None

    def dispatch(self) -> None:
        for consumer in self.consumers:
            consumer.take(self.messages)


class StoredConsumer:
    def __init__(self, session: Session, channel: int, tag: str, *, no_ack: bool) -> None:
        self.session = session
        self.channel = channel
        self.tag = tag
        self.credit = 1 << 30 if no_ack else session.prefetch.get(channel, 0) or 1 << 30
        self.delivered = 0
        self.settled = 0

    def take(self, messages: deque[tuple[bytes, bytes]]) -> None:
        frames = []
        while messages and self.delivered - self.settled < self.credit:
            header, body = messages.popleft()
            self.delivered += 1
            arguments = short(self.tag) + struct.pack(">QB", self.delivered, 0)
            frames.append(method(self.channel, 60, 60, arguments + short("") + short("key")))
            frames.append(frame(HEADER, self.channel, header))
            frames.append(frame(BODY, self.channel, body))
        if frames:
            self.session.send(b"".join(frames))


class FakeBroker:
    """Listens on an ephemeral loopback port inside `async with`."""

    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.queues: dict[str, StoredQueue] = {}
        self.exchanges: dict[str, set[str]] = {}
        self.acks = 0
        self.sessions: set[Session] = set()
        self.url = ""

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Session(self), "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"amqp://guest:guest@127.0.0.1:{port}/"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for session in list(self.sessions):
            session.transport.abort()
        await self._server.wait_closed()
        await asyncio.sleep(0)

    def route(self, exchange: str, key: str) -> list[StoredQueue]:
        names = self.exchanges.get(exchange, set()) if exchange else {key}
        return [self.queues[name] for name in names if name in self.queues]


class Session(asyncio.Protocol):
    """One connection."""

    transport: asyncio.Transport

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.prefetch: dict[int, int] = {}
        self.consumers: dict[int, StoredConsumer] = {}
        self._rest = b""
        self._greeted = False
        self._publishes: dict[int, tuple[str, str]] = {}
        self._contents: dict[int, tuple[bytes, int, list[bytes]]] = {}
        self._published = 0
        self._confirmed = 0
        self._touched: list[StoredQueue] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        self.broker.sessions.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.broker.sessions.discard(self)
        for queue in self.broker.queues.values():
            queue.consumers = [c for c in queue.consumers if c.session is not self]

    def send(self, data: bytes) -> None:
        self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        at = 0
        if not self._greeted:
            if len(data) < 8:
                self._rest = data
                return
            assert data[:8] == b"AMQP\x00\x00\x09\x01"
            self._greeted = True
            at = 8
            about = short("product") + b"S" + struct.pack(">I", 4) + b"Fake"
            table = struct.pack(">I", len(about)) + about
            plain = struct.pack(">I", 5) + b"PLAIN" + struct.pack(">I", 5) + b"en_US"
            self.send(method(0, 10, 10, b"\x00\x09" + table + plain))
        while len(data) - at >= 8:
            kind, channel, size = struct.unpack_from(">BHI", data, at)
            if len(data) - at < size + 8:
                break
            payload = data[at + 7 : at + 7 + size]
            assert data[at + 7 + size] == 0xCE
            self._frame(kind, channel, payload)
            at += size + 8
        self._rest = data[at:]
        self._confirm()
        for queue in self._touched:
            queue.dispatch()
        self._touched.clear()

    def _confirm(self) -> None:
        answered = min(self._published, self.broker.faults.silent_from)
        if answered > self._confirmed:
            self._confirmed = answered
            self.send(method(1, 60, 80, struct.pack(">QB", self._confirmed, 1)))

    def _frame(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == METHOD:
            self._method(channel, *struct.unpack_from(">HH", payload), payload[4:])
        elif kind == HEADER:
            size = struct.unpack_from(">Q", payload, 4)[0]
            self._contents[channel] = (payload, size, [])
        else:
            header, size, parts = self._contents[channel]
            parts.append(payload)
            if sum(map(len, parts)) == size:
                self._publish(channel, header, b"".join(parts))

    def _publish(self, channel: int, header: bytes, body: bytes) -> None:
        number, self._published = self._published, self._published + 1
        faults = self.broker.faults
        if number == faults.close_after:
            reason = struct.pack(">H", 406) + short("PRECONDITION_FAILED - enough") + bytes(4)
            self.send(method(channel, 20, 40, reason))
            return
        if number in faults.refuse:
            if number > self._confirmed:
                self.send(method(1, 60, 80, struct.pack(">QB", number, 1)))
            self.send(method(1, 60, 120, struct.pack(">QB", number + 1, 0)))
            self._confirmed = number + 1
            return
        for queue in self.broker.route(*self._publishes[channel]):
            queue.put(header, body)
            if queue not in self._touched:
                self._touched.append(queue)

    def _method(self, channel: int, class_id: int, method_id: int, arguments: bytes) -> None:
        match class_id, method_id:
            case 60, 40:
                exchange, rest = take_short(arguments[2:])
                self._publishes[channel] = (exchange, take_short(rest)[0])
            case 60, 80:
                tag, multiple = struct.unpack(">QB", arguments)
                consumer = self.consumers[channel]
                assert multiple or tag == consumer.settled + 1
                consumer.settled = tag
                self.broker.acks += 1
                self._touched += [q for q in self.broker.queues.values() if consumer in q.consumers]
            case 60, 20:
                name, rest = take_short(arguments[2:])
                tag_text, rest = take_short(rest)
                queue = self.broker.queues[name]
                consumer = StoredConsumer(self, channel, tag_text, no_ack=bool(rest[0] & 2))
                self.consumers[channel] = consumer
                queue.consumers.append(consumer)
                self._touched.append(queue)
            case 60, 10:
                self.prefetch[channel] = struct.unpack_from(">IH", arguments)[1]
                self.send(method(channel, 60, 11))
            case _:
                self._declare(channel, class_id, method_id, arguments)

    def _declare(self, channel: int, class_id: int, method_id: int, arguments: bytes) -> None:
        broker = self.broker
        answer = b""
        match class_id, method_id:
            case 10, 11:
                self.send(method(0, 10, 30, struct.pack(">HIH", 2047, 131072, 60)))
                return
            case 10, 31:
                return
            case (10, 40) | (20, 10) | (85, 10):
                answer = b"\x00" if class_id == 10 else bytes(4) if class_id == 20 else b""
            case 10, 50:
                self.send(method(0, 10, 51))
                self.transport.close()
                return
            case 50, 10:
                name = take_short(arguments[2:])[0]
                queue = broker.queues.setdefault(name, StoredQueue(broker.faults))
                answer = short(name) + struct.pack(">II", len(queue.messages), 0)
            case 50, 20:
                name, rest = take_short(arguments[2:])
                broker.exchanges[take_short(rest)[0]].add(name)
            case 50, 40:
                broker.queues.pop(take_short(arguments[2:])[0], None)
                answer = bytes(4)
            case 40, 10:
                broker.exchanges[take_short(arguments[2:])[0]] = set()
            case 40, 20:
                broker.exchanges.pop(take_short(arguments[2:])[0], None)
            case _:
                raise AssertionError((class_id, method_id))
        self.send(method(channel, class_id, method_id + 1, answer))


def take_short(data: bytes) -> tuple[str, bytes]:
    return data[1 : 1 + data[0]].decode(), data[1 + data[0] :]
