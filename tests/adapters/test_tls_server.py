"""Handshakes that are begun and never ended are bounded, and others get through theirs."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from adapters.memory import GatewayMemory
from adapters.tls_server import HANDSHAKE_BYTES, TlsServer
from auth.private_files.tls import CertificateFiles, server_context
from kernel.store.drivers.system import SystemClock
from tests.certificates import Authority

PLACES = 10
STRANGERS = 200
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"


@asynccontextmanager
async def serving(folder: Path) -> AsyncIterator[tuple[TlsServer, GatewayMemory, tuple[str, int]]]:
    memory = GatewayMemory(SystemClock(), PLACES * HANDSHAKE_BYTES)
    context = server_context(CertificateFiles(*Authority(folder / "tls").issue()))
    listener = memory.listener("test", "tls")
    server = TlsServer(asyncio.get_running_loop(), context, listener, asyncio.Protocol)
    await server.start("127.0.0.1", 0)
    try:
        yield server, memory, server.sockets[0].getsockname()
    finally:
        await server.stop()


def strangers(address: tuple[str, int]) -> list[socket.socket]:
    made = []
    for _ in range(STRANGERS):
        peer = socket.socket()
        peer.bind(("127.0.1.1", 0))
        peer.connect(address)
        peer.sendall(HELLO)
        peer.setblocking(False)
        made.append(peer)
    return made


def is_gone(peer: socket.socket) -> bool:
    try:
        return not peer.recv(65_536)
    except BlockingIOError:
        return False
    except OSError:
        return True


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


async def test_who_never_ends_a_handshake_goes_and_who_does_gets_in(tmp_path: Path) -> None:
    careless = ssl.create_default_context()
    careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE
    async with serving(tmp_path) as (_, memory, address):
        horde = strangers(address)
        _, writer = await asyncio.open_connection(*address, ssl=careless)
        await until(lambda: sum(map(is_gone, horde)) >= STRANGERS - 2 * PLACES)
        assert memory.input.bytes <= 2 * PLACES * HANDSHAKE_BYTES
        writer.close()
        for each in horde:
            each.close()
        await until(lambda: not memory.input.bytes)


@pytest.mark.parametrize("turns", range(5))
async def test_the_end_of_the_listener_is_that_of_all_handshakes(
    tmp_path: Path, turns: int
) -> None:
    async with serving(tmp_path) as (server, memory, address):
        memory.input.bytes_max = memory.input._relieve_at = 1 << 30
        horde = strangers(address)
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.stop()
        assert not memory.input.bytes
        await until(lambda: all(map(is_gone, horde)))
        for each in horde:
            each.close()
