"""The network between processes: it carries, cuts one way, and knows who dials."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.chaos.proxy import Front, Network, inode_of, owner

SOON = 0.2


class Echo:
    """Answers every line by the same one."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []
        self.ended = asyncio.Event()
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while line := await reader.readline():
            self.lines.append(line)
            writer.write(line)
        self.ended.set()
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
        self.connections -= 1


Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@pytest.fixture
def echo() -> Echo:
    return Echo()


@pytest.fixture
def network() -> Network:
    return Network()


@pytest.fixture
async def port(echo: Echo, network: Network) -> AsyncIterator[int]:
    """Of a front whose diallers are all `here`, before a server `there`."""
    back = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    front = Front("there", back.sockets[0].getsockname()[1], network, lambda _port: "here")
    listening = await asyncio.start_server(front.accepted, "127.0.0.1", 0)
    yield listening.sockets[0].getsockname()[1]
    network.cut(set())
    for server in (listening, back):
        server.close()
        await server.wait_closed()
    async with asyncio.timeout(5):
        while echo.connections or front.connections:
            await asyncio.sleep(0.01)


@pytest.fixture
async def connection(port: int) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    yield reader, writer
    writer.close()


async def said(connection: Connection, line: bytes) -> bytes:
    reader, writer = connection
    writer.write(line)
    async with asyncio.timeout(5):
        return await reader.readline()


async def nothing_comes(reader: asyncio.StreamReader) -> bool:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SOON):
            await reader.readline()
            return False
    return True


async def test_bytes_are_carried_both_ways(connection: Connection) -> None:
    assert await said(connection, b"a\n") == b"a\n"


async def test_what_is_cut_waits_until_the_cut_is_mended(
    connection: Connection, network: Network, echo: Echo
) -> None:
    assert await said(connection, b"a\n") == b"a\n"
    network.cut({("here", "there")})
    connection[1].write(b"b\n")
    assert await nothing_comes(connection[0])
    assert echo.lines == [b"a\n"]
    network.cut(set())
    assert await connection[0].readline() == b"b\n"


async def test_one_direction_is_cut_alone(
    connection: Connection, network: Network, echo: Echo
) -> None:
    assert await said(connection, b"a\n") == b"a\n"
    network.cut({("there", "here")})
    connection[1].write(b"b\n")
    assert await nothing_comes(connection[0])
    assert echo.lines == [b"a\n", b"b\n"]


async def test_the_end_of_a_connection_waits_too(
    connection: Connection, network: Network, echo: Echo
) -> None:
    assert await said(connection, b"a\n") == b"a\n"
    network.cut({("here", "there")})
    connection[1].close()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(SOON):
            await echo.ended.wait()
    network.cut(set())
    async with asyncio.timeout(5):
        await echo.ended.wait()


async def test_a_new_connection_hears_nothing_while_cut(network: Network, port: int) -> None:
    network.cut({("here", "there")})
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"a\n")
    assert await nothing_comes(reader)
    network.cut(set())
    assert await reader.readline() == b"a\n"
    writer.close()


async def test_another_pair_is_not_cut(connection: Connection, network: Network) -> None:
    network.cut({("here", "elsewhere"), ("elsewhere", "there")})
    assert await said(connection, b"a\n") == b"a\n"


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="needs Linux's /proc")
async def test_a_dialler_is_known_by_its_process(connection: Connection) -> None:
    port = connection[1].get_extra_info("sockname")[1]
    assert owner(port, {"other": 1 << 30, "me": os.getpid()}) == "me"
    assert owner(port, {"other": 1 << 30}) is None


def test_a_socket_is_found_by_its_local_port() -> None:
    table = (
        "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout"
        " inode\n"
        "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 11\n"
        "   1: 0100007F:1F90 0100007F:9999 01 00000000:00000000 00:00000000 00000000 0 0 12\n"
    )
    assert inode_of(0x1F90, table) == "12"
    assert inode_of(0x9999, table) is None
