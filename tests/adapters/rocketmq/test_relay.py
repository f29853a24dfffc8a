"""One port with and without TLS: who is sent where, and what strangers can make it hold."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from adapters.memory import INPUT_BYTES_MAX, GatewayMemory, ListenerMemory
from adapters.rocketmq.server import GrpcListener
from adapters.rocketmq.transport import relay as relay_module
from adapters.rocketmq.transport.relay import GREETING_WRITES, WAITING_BYTES_MAX, Relay
from auth.private_files.certificates import open_loopback_certificate, read_pem_pair
from kernel.store.drivers.system import SystemClock
from tests.adapters.rocketmq.support import Wire, broker_in_thread
from tests.adapters.rocketmq.test_real_client import SETTINGS, run

WAIT_S = 10

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def a_memory(input_bytes_max: int = INPUT_BYTES_MAX) -> ListenerMemory:
    return GatewayMemory(SystemClock(), input_bytes_max).listener("rocketmq", "grpc")


@asynccontextmanager
async def relaying(
    serve: Serve, connections_max: int = 10, input_bytes_max: int = INPUT_BYTES_MAX
) -> AsyncIterator[tuple[Relay, int]]:
    """A relay before a server that stands for gRPC, with and without TLS."""
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    relay = Relay(port, port, connections_max, a_memory(input_bytes_max), {})
    try:
        yield relay, await relay.start("127.0.0.1", 0, reuse_port=False)
    finally:
        await relay.stop()
        server.close()
        await server.wait_closed()


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
    writer.write(b"the end")
    writer.close()


@pytest.mark.interop
def test_clients_come_with_and_without_tls_on_one_port(tmp_path: Path) -> None:
    pair = read_pem_pair(open_loopback_certificate(tmp_path / "tls", datetime.now(UTC)))
    listeners = [GrpcListener("grpc", "127.0.0.1", 0, pair, plain_too=True)]
    with broker_in_thread(tmp_path / "data", SETTINGS, listeners) as both:
        for name in ("simple", "tags"):
            both.topic(name, queues=2)
        roots = str(tmp_path / "tls" / "loopback.crt")
        secret = run("tls", both.address, tmp_path, GRPC_DEFAULT_SSL_ROOTS_FILE_PATH=roots)
        assert secret == ["secret"]
        assert run("tags", both.address, tmp_path) == ["Aa", "c"]
        assert both.do(both.adapter.statistics).counters["connections_refused"] == 0


def test_calls_under_way_end_in_order_when_it_is_drained(tmp_path: Path) -> None:
    pair = read_pem_pair(open_loopback_certificate(tmp_path / "tls", datetime.now(UTC)))
    listeners = [GrpcListener("grpc", "127.0.0.1", 0, pair, plain_too=True)]
    with broker_in_thread(tmp_path / "data", SETTINGS, listeners) as both:
        both.topic("drained")
        wire = Wire(both.address)
        call = wire.stream("ReceiveMessage", _long_poll("drained"))
        while both.do(both.adapter.statistics).gauges["polls"] == 0:
            pass
        both.run(both.adapter.drain)
        assert [each.WhichOneof("content") for each in call] == ["status"]
        wire.close()


def _long_poll(topic: str) -> bytes:
    from tests.adapters.rocketmq.support import receive_request

    data: bytes = receive_request(topic, "g", wait_s=15).SerializeToString()
    return data


async def test_whose_connection_it_is_that_the_server_sees_is_known_while_it_is_there() -> None:
    async def tell(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write("{}:{}\n".format(*writer.get_extra_info("peername")).encode())
        await echo(reader, writer)

    async with relaying(tell) as (relay, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"P")
        seen = (await asyncio.wait_for(reader.readline(), WAIT_S)).decode().strip()
        ours = "{}:{}".format(*writer.get_extra_info("sockname"))
        assert relay.relayed == {seen: ours}
        writer.close()
        async with asyncio.timeout(WAIT_S):
            while relay.relayed:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("first", [b"\x16", b"P", b"\x00"])
async def test_the_first_byte_decides_and_is_not_lost(first: bytes) -> None:
    ports: list[bytes] = []

    async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ports.append(b"plain")
        await echo(reader, writer)

    async def tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ports.append(b"tls")
        await echo(reader, writer)

    async with (
        await asyncio.start_server(plain, "127.0.0.1", 0) as one,
        await asyncio.start_server(tls, "127.0.0.1", 0) as other,
    ):
        numbers = [each.sockets[0].getsockname()[1] for each in (one, other)]
        relay = Relay(*numbers, 10, a_memory(), {})
        port = await relay.start("127.0.0.1", 0, reuse_port=False)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(first)
        assert await asyncio.wait_for(reader.readexactly(1), WAIT_S) == first
        writer.write(b"more")
        writer.write_eof()
        assert await asyncio.wait_for(reader.read(), WAIT_S) == b"morethe end"
        writer.close()
        await relay.stop()
    assert ports == [b"tls" if first == b"\x16" else b"plain"]


async def test_who_says_nothing_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(relay_module, "FIRST_BYTE_S", 0.1)
    async with relaying(echo) as (relay, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(_rest(reader), WAIT_S) == b""
        assert len(relay) == 0
        writer.close()


async def test_a_connection_that_both_ends_have_ended_in_order_is_gone() -> None:
    async with relaying(echo) as (relay, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"a")
        assert await asyncio.wait_for(reader.readexactly(1), WAIT_S) == b"a"
        writer.write_eof()
        assert await asyncio.wait_for(_rest(reader), WAIT_S) == b"the end"
        async with asyncio.timeout(WAIT_S):
            while len(relay):
                await asyncio.sleep(0.01)
        writer.close()


async def test_connections_above_the_limit_are_closed_at_once() -> None:
    async with relaying(echo, connections_max=1) as (relay, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"a")
        assert await asyncio.wait_for(reader.readexactly(1), WAIT_S) == b"a"
        second, closing = await asyncio.open_connection("127.0.0.1", port)
        assert await asyncio.wait_for(_rest(second), WAIT_S) == b""
        assert (len(relay), relay.refused) == (1, 1)
        writer.write(b"b")
        assert await asyncio.wait_for(reader.readexactly(1), WAIT_S) == b"b"
        for each in (writer, closing):
            each.close()


async def test_what_a_client_does_not_read_is_not_held_here() -> None:
    written = 0

    async def pour(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal written
        while True:
            writer.write(bytes(65_536))
            written += 65_536
            await writer.drain()

    async with relaying(pour) as (relay, port):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"a")
        before = -1
        while written != before:
            before = written
            await asyncio.sleep(0.2)
        (client,) = relay._clients
        held = client.transport.get_write_buffer_size()
        # One read of the other side may come on top of what makes it pause.
        assert 0 < held <= WAITING_BYTES_MAX + 256 * 1024
        writer.transport.abort()


async def test_a_server_that_is_gone_closes_its_clients() -> None:
    async with relaying(echo) as (relay, port):
        relay._ports = {False: 1, True: 1}
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"a")
        assert await asyncio.wait_for(_rest(reader), WAIT_S) == b""
        writer.close()


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionResetError:
        return b""


async def test_what_is_passed_on_and_not_answered_counts_as_unfinished_input() -> None:
    """gRPC keeps it: of 10,000 connections with half a message 600 MB."""
    heard = 0

    async def grpc(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal heard
        for _ in range(GREETING_WRITES):
            writer.write(b"a" * 91)
            await asyncio.sleep(0.05)
        while data := await reader.read(65_536):
            heard += len(data)
            writer.write(b"a" * (100 if data.endswith(b".") else 17))
        writer.close()

    async with relaying(grpc) as (relay, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for size, text in ((4_096, b"x"), (16_384, b"x"), (16_384, b".")):
            passed = heard + size
            writer.write(text * size)
            async with asyncio.timeout(WAIT_S):
                while heard < passed:
                    await asyncio.sleep(0.01)
            kept = {4_096: 0, 16_384: 20_480 if text == b"x" else 0}[size]
            async with asyncio.timeout(WAIT_S):
                while relay.memory.input.bytes != kept:
                    await asyncio.sleep(0.01)
        writer.close()
        assert await asyncio.wait_for(_rest(reader), WAIT_S)


async def test_of_those_whose_requests_never_end_the_oldest_go() -> None:
    async with relaying(_never_answers, input_bytes_max=128 * 1024) as (relay, port):
        pool = relay.memory.input
        peers = []
        for _ in range(9):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"x" * 60 * 1024)
            await writer.drain()
            peers.append((reader, writer))
        async with asyncio.timeout(WAIT_S):
            assert await _rest(peers[0][0]) == b""
            while pool.bytes > 2 * pool.bytes_max:
                await asyncio.sleep(0.01)
        assert len(relay) > 0
        for _, writer in peers:
            writer.close()


async def _never_answers(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while await reader.read(65_536):
            pass
    writer.close()
