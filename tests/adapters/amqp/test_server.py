"""The driver and the adapter as a whole: sockets, flow control, drain, statistics."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import ssl
import warnings
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

import aio_pika
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from adapters.amqp.codec import spec
from adapters.amqp.codec.fields import EMPTY_TABLE
from adapters.amqp.codec.frames import PROTOCOL_HEADER, scan
from adapters.amqp.codec.method_base import Method
from adapters.amqp.codec.methods import decode_method, encode_method
from adapters.amqp.handshake import AmqpSettings
from adapters.amqp.server import AmqpAdapter
from adapters.base import Adapter, ListenerAddress
from kernel.store.drivers.system import SystemClock, SystemRandom
from tests.adapters.amqp.broker import Broker, running_broker
from tests.adapters.amqp.wire import CAPABILITIES, Wire
from tests.adapters.heard_consumers import HeardConsumers


def _is_adapter(adapter: AmqpAdapter) -> Adapter:
    """Type check only: AmqpAdapter is an Adapter."""
    return adapter


class RawClient:
    """A client that sends what a test wants, over a real socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._held = b""

    def send(self, number: int, *methods: Method) -> None:
        self.writer.write(b"".join(encode_method(number, method) for method in methods))

    async def receive(self) -> Method:
        while True:
            for frame in scan(self._held, 1 << 20):
                data, self._held = self._held, self._held[frame.end + 1 :]
                if frame.type == 1:
                    return decode_method(data, frame.start, frame.end)
                break
            else:
                data = await asyncio.wait_for(self.reader.read(65_536), 10)
                if not data:
                    raise EOFError
                self._held += data

    async def open(self) -> None:
        self.writer.write(PROTOCOL_HEADER)
        self.send(
            0,
            spec.ConnectionStartOk(CAPABILITIES, "PLAIN", b"\0guest\0guest", "en_US"),
            spec.ConnectionTuneOk(0, 0, 0),
            spec.ConnectionOpen("/"),
        )
        self.send(1, spec.ChannelOpen())
        while not isinstance(await self.receive(), spec.ChannelOpenOk):
            pass


@contextlib.asynccontextmanager
async def _raw(broker: Broker) -> AsyncIterator[RawClient]:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.port)
    try:
        yield RawClient(reader, writer)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_drain_says_goodbye_and_returns_when_all_have_gone(broker: Broker) -> None:
    connection = await aio_pika.connect(broker.url())
    channel = await connection.channel()
    await channel.declare_queue("q", durable=True)
    closed: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    connection.close_callbacks.add(lambda _, error: closed.done() or closed.set_result(error))
    await asyncio.wait_for(broker.adapter.drain(), 10)
    assert broker.adapter.statistics().connections == 0
    assert "broker is shutting down" in str(await asyncio.wait_for(closed, 5))
    with pytest.raises(OSError, match=r"refused|Connect"):
        await asyncio.open_connection("127.0.0.1", broker.port)


async def test_a_client_that_does_not_answer_our_goodbye_is_dropped(tmp_path: Path) -> None:
    settings = AmqpSettings(close_timeout_ms=100)
    async with running_broker(tmp_path, settings) as broker, _raw(broker) as client:
        await client.open()
        await asyncio.wait_for(broker.adapter.drain(), 10)
        assert isinstance(await client.receive(), spec.ConnectionClose)
        with pytest.raises((EOFError, ConnectionError)):
            await client.receive()


@pytest.mark.parametrize("why", ["closed", "error"])
async def test_a_client_that_writes_on_hears_the_last_words(broker: Broker, why: str) -> None:
    """npm's amqplib hung: the socket went with close-ok, and its writes met a reset."""
    async with _raw(broker) as client:
        await client.open()
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        if why == "closed":
            client.send(0, spec.ConnectionClose(200, "bye", 0, 0))
        else:
            # The error and the close-ok that answers it: the connection is over for us.
            client.writer.write(b"\x01\x00\x00\x00\x00\x00\x00\x00")
            client.send(0, spec.ConnectionCloseOk())
        async with asyncio.timeout(10):
            while broker.adapter.statistics().connections:
                await asyncio.sleep(0.005)
        for _ in range(3):
            client.writer.write(Wire.publish_bytes(1, "", "q", bytes(50_000)))
            await client.writer.drain()
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        answer = await client.receive()
        expected = spec.ConnectionCloseOk if why == "closed" else spec.ConnectionClose
        assert isinstance(answer, expected)
        with pytest.raises(EOFError):
            await client.receive()


async def test_what_has_not_begun_when_a_connection_is_lost_leaves_no_trace(broker: Broker) -> None:
    """On uvloop a loss can come before the first step of the task; under fuzz 217 coroutines were
    never awaited.
    """
    async with _raw(broker) as client:
        await client.open()
        [protocol] = broker.adapter._listeners.connections
        protocol.data_received(encode_method(1, spec.QueueDeclare(0, "half", durable=True)))
        assert protocol._task is not None
        protocol._task.cancel()
        protocol.abort()
        with warnings.catch_warnings(record=True) as caught:
            async with asyncio.timeout(10):
                while broker.adapter.statistics().connections:
                    await asyncio.sleep(0.005)
            gc.collect()
    assert [str(each.message) for each in caught] == []
    assert broker.store.client.topic("default", "half") is None


async def test_stop_drops_connections_at_once_and_twice_is_fine(broker: Broker) -> None:
    async with _raw(broker) as client:
        await client.open()
        await broker.adapter.stop()
        await broker.adapter.stop()
        with pytest.raises((EOFError, ConnectionError)):
            await client.receive()


async def test_a_connection_that_is_cut_off_leaves_nothing_behind(broker: Broker) -> None:
    async with _raw(broker) as client:
        await client.open()
        client.send(1, spec.QueueDeclare(0, "mine", exclusive=True))
        assert isinstance(await client.receive(), spec.QueueDeclareOk)
        client.send(1, spec.QueueDeclare(0, "half", durable=True))
        client.writer.transport.abort()
    for _ in range(200):
        if (
            broker.adapter.statistics().connections == 0
            and broker.store.client.topic("default", "mine") is None
        ):
            return
        await asyncio.sleep(0.02)
    raise AssertionError(broker.adapter.statistics())


async def test_statistics_count_what_happened(broker: Broker) -> None:
    async with _raw(broker) as client:
        await client.open()
        client.send(1, spec.QueueDeclare(0, "q", durable=True), spec.ConfirmSelect())
        client.writer.write(Wire.publish_bytes(1, "", "q", b"x") * 3)
        client.writer.write(Wire.publish_bytes(1, "", "nowhere", b"x", mandatory=True))
        client.send(1, spec.BasicConsume(0, "q", "t"))
        while not isinstance(await client.receive(), spec.BasicConsumeOk):
            pass
        for _ in range(3):
            while not isinstance(await client.receive(), spec.BasicDeliver):
                pass
        async with asyncio.timeout(5):
            while broker.adapter.statistics().gauges["publish_bytes_in_flight"]:
                await asyncio.sleep(0.01)
        figures = broker.adapter.statistics()
        assert figures.connections == 1
        assert figures.gauges == {
            "channels": 1,
            "consumers": 1,
            "unacked": 3,
            "publish_bytes_in_flight": 0,
        }
        counters = figures.counters
        assert (counters["published"], counters["confirmed"]) == (3, 3)
        assert (counters["unroutable"], counters["returned"]) == (1, 1)
        assert (counters["delivered"], counters["acked"]) == (3, 0)
        client.send(1, spec.BasicAck(0, multiple=True))
        client.send(1, spec.BasicQos(0, 1, global_=False))
        async with asyncio.timeout(5):
            while broker.adapter.statistics().gauges["unacked"]:
                await asyncio.sleep(0.01)


async def test_a_consumer_that_does_not_read_does_not_fill_the_memory(broker: Broker) -> None:
    size, count = 64 * 1024, 600
    async with _raw(broker) as slow, _raw(broker) as fast:
        await slow.open()
        slow.send(
            1, spec.QueueDeclare(0, "q", durable=True), spec.BasicConsume(0, "q", "t", no_ack=True)
        )
        assert isinstance(await slow.receive(), spec.QueueDeclareOk)
        assert isinstance(await slow.receive(), spec.BasicConsumeOk)
        slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await fast.open()
        fast.send(1, spec.ConfirmSelect())
        assert isinstance(await fast.receive(), spec.ConfirmSelectOk)
        body = bytes(size)
        for _ in range(count):
            fast.writer.write(Wire.publish_bytes(1, "", "q", body))
            await fast.writer.drain()
        confirmed = 0
        while confirmed < count:
            ack = await fast.receive()
            assert isinstance(ack, spec.BasicAck)
            confirmed = ack.delivery_tag
        delivered = broker.adapter.environment.counters.delivered
        buffered = max(
            protocol.transport.get_write_buffer_size()
            for protocol in broker.adapter._listeners.connections
            if protocol.transport is not None
        )
        assert delivered < count
        assert buffered < 12 * 1024 * 1024
        slow.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(count):
            assert isinstance(await slow.receive(), spec.BasicDeliver)
        assert broker.adapter.environment.counters.delivered == count


async def test_a_bug_in_the_state_machine_is_an_internal_error_and_logged(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a bug")

    async with _raw(broker) as client:
        await client.open()
        monkeypatch.setattr(broker.client, "statistics", broken)
        client.send(1, spec.QueueDeclare(0, "q", durable=True))
        close = await client.receive()
        assert isinstance(close, spec.ConnectionClose)
        assert close.reply_code == 541
    async with _raw(broker) as client:
        await client.open()
        monkeypatch.setattr(broker.client, "batch", broken)
        monkeypatch.undo()
        monkeypatch.setattr(broker.client, "to_topic", broken)
        client.send(1, spec.QueueDeclare(0, "q", durable=True))
        assert isinstance(await client.receive(), spec.QueueDeclareOk)
        client.writer.write(Wire.publish_bytes(1, "", "q", b"x"))
        close = await client.receive()
        assert isinstance(close, spec.ConnectionClose)
        assert close.reply_code == 541


async def test_a_port_that_is_taken_is_an_error_and_nothing_stays_bound(broker: Broker) -> None:
    adapter = AmqpAdapter(
        broker.store.client,
        broker.store.client.origins,
        broker.logins,
        [
            ListenerAddress("one", "127.0.0.1", 0),
            ListenerAddress("two", "127.0.0.1", broker.port),
        ],
        clock=SystemClock(),
        random=SystemRandom(),
    )
    with pytest.raises(OSError, match=r"(?i)address already in use"):
        await adapter.start()
    assert adapter.addresses() == {}
    await adapter.stop()


async def test_one_connection_too_many_is_dropped_at_once(tmp_path: Path) -> None:
    settings = AmqpSettings(connections_max=1)
    async with running_broker(tmp_path, settings) as broker, _raw(broker) as first:
        await first.open()
        async with _raw(broker) as second:
            with pytest.raises((EOFError, ConnectionError)):
                await second.receive()
        first.send(1, spec.BasicQos(0, 1, global_=False))
        assert isinstance(await first.receive(), spec.BasicQosOk)
        counters = broker.adapter.statistics().counters
        assert (counters["connections"], counters["connections_refused"]) == (1, 1)


async def test_a_silent_peer_is_dropped(tmp_path: Path) -> None:
    settings = AmqpSettings(handshake_timeout_ms=300)
    async with running_broker(tmp_path, settings) as broker, _raw(broker) as client:
        client.writer.write(PROTOCOL_HEADER[:3])
        assert await asyncio.wait_for(client.reader.read(100), 10) == b""


async def test_a_tls_hello_on_the_plain_port_is_answered_with_our_header(broker: Broker) -> None:
    async with _raw(broker) as client:
        client.writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        assert await asyncio.wait_for(client.reader.read(100), 10) == PROTOCOL_HEADER
        assert await asyncio.wait_for(client.reader.read(100), 10) == b""


async def test_a_login_without_failure_close_is_dropped_in_silence(tmp_path: Path) -> None:
    settings = AmqpSettings(refusal_delay_ms=200)
    async with running_broker(tmp_path, settings) as broker, _raw(broker) as client:
        client.writer.write(PROTOCOL_HEADER)
        assert isinstance(await client.receive(), spec.ConnectionStart)
        client.send(0, spec.ConnectionStartOk(EMPTY_TABLE, "PLAIN", b"\0guest\0no", ""))
        with pytest.raises(EOFError):
            await client.receive()


def _certificate(directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """(server context, client context) of a fresh self-signed certificate."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    path = directory / "server.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    return server, ssl.create_default_context(cafile=path)


async def test_a_tls_listener_serves_the_same(broker: Broker, tmp_path: Path) -> None:
    server, client = _certificate(tmp_path)
    adapter = AmqpAdapter(
        broker.store.client,
        broker.store.client.origins,
        broker.logins,
        [ListenerAddress("tls", "127.0.0.1", 0, tls=server)],
        clock=SystemClock(),
        random=SystemRandom(),
    )
    await adapter.start()
    try:
        port = adapter.addresses()["tls"][1]
        url = f"amqps://guest:guest@127.0.0.1:{port}/"
        connection = await aio_pika.connect(url, ssl_context=client)
        channel = await connection.channel()
        queue = await channel.declare_queue("q", durable=True)
        body = bytes(300_000)
        await channel.default_exchange.publish(aio_pika.Message(body), "q")
        message = await queue.get(no_ack=True)
        assert message.body == body
        await connection.close()
    finally:
        await adapter.stop()


async def test_clients_are_moved_with_320_and_the_rest_stay(broker: Broker) -> None:
    connections = [await aio_pika.connect(broker.url()) for _ in range(3)]
    closed: list[str] = []
    for each in connections:
        each.close_callbacks.add(lambda _, error: closed.append(str(error)))
    assert broker.adapter.move(2, {"tcp": "gate2:5672"}) == 2
    async with asyncio.timeout(10):
        while len(closed) < 2:
            await asyncio.sleep(0.01)
    assert all("gate2:5672 has room" in each and "320" in each for each in closed)
    assert broker.adapter.statistics().connections == 1
    assert broker.adapter.move(2, {}) == 1
    for each in connections:
        await each.close()


async def test_for_a_topic_those_are_moved_who_consume_it(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard = HeardConsumers(broker.client, monkeypatch)
    connections = [await aio_pika.connect(broker.url()) for _ in range(4)]
    closed: set[int] = set()

    async def ignored(_message: object) -> None:
        """Nothing is published."""

    for number, each in enumerate(connections):
        each.close_callbacks.add(lambda *_, number=number: closed.add(number))
        channel = await each.channel()
        queue = await channel.declare_queue("cold" if number == 0 else "hot", durable=True)
        for _ in range(3 if number == 1 else 1):
            await queue.consume(ignored)
    # The second one has more consumers than are to go.
    assert broker.adapter.move(2, {}, heard.of("hot")) == 2
    async with asyncio.timeout(10):
        while len(closed) < 2:
            await asyncio.sleep(0.01)
    assert closed == {2, 3}
    assert broker.adapter.move(2, {}, heard.of("hot")) == 0
    assert broker.adapter.move(2, {}, heard.of("nothing")) == 0
    assert broker.adapter.move(3, {}, heard.of("hot")) == 1
    for each in connections:
        await each.close()
