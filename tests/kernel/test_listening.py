"""Connections that come while their listener is closed are served or refused, and never lost."""

from __future__ import annotations

import asyncio
import gc
import importlib
import socket
import warnings
from pathlib import Path

import pytest

from kernel.common.listening import BACKLOG, PlainServer

LOOPS = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": importlib.import_module("uvloop").new_event_loop,
}


class Served(asyncio.Protocol):
    """Notes its transport."""

    def __init__(self, transports: list[asyncio.BaseTransport]) -> None:
        self._transports = transports

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transports.append(transport)


async def close_after(turns: int) -> int:
    """Connections served of one that comes so many turns of the loop before the listener closes."""
    loop = asyncio.get_running_loop()
    transports: list[asyncio.BaseTransport] = []
    server = PlainServer(loop, lambda: Served(transports))
    await server.start("127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()) as client:
        client.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await server.stop()
        served = len(transports)
        for each in transports:
            each.close()
        async with asyncio.timeout(10):
            try:
                assert await loop.sock_recv(client, 1) == b""
            except ConnectionResetError:
                assert not served
    await asyncio.sleep(0)
    assert len(transports) == served
    return served


@pytest.mark.parametrize("turns", range(5))
@pytest.mark.parametrize("loop", LOOPS)
def test_who_comes_while_the_listener_is_closed_is_served_or_refused(loop: str, turns: int) -> None:
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        with asyncio.Runner(loop_factory=LOOPS[loop]) as runner:
            served = runner.run(close_after(turns))
        gc.collect()
    assert not [str(each.message) for each in warned]
    assert served == 1 or turns < 3


async def test_closing_twice_is_closing_once() -> None:
    server = PlainServer(asyncio.get_running_loop(), lambda: Served([]))
    await server.start("127.0.0.1", 0)
    for _ in range(2):
        await server.stop()
        assert not server.sockets


async def test_a_literal_address_is_not_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up is done by a thread, for which a world of virtual time does not wait."""
    loop = asyncio.get_running_loop()
    monkeypatch.setattr(loop, "run_in_executor", None)
    for host in ("127.0.0.1", ""):
        server = PlainServer(loop, lambda: Served([]))
        await server.start(host, 0)
        assert server.sockets
        await server.stop()


async def test_a_name_is_looked_up() -> None:
    server = PlainServer(asyncio.get_running_loop(), lambda: Served([]))
    await server.start("localhost", 0)
    assert server.sockets
    await server.stop()


@pytest.mark.skipif(
    int(Path("/proc/sys/net/core/somaxconn").read_text()) < BACKLOG,
    reason="this system keeps fewer connections waiting",
)
async def test_a_fleet_that_comes_while_the_process_is_busy_waits_in_the_backlog() -> None:
    """Else the system drops their SYN, and they try again a second later."""
    transports: list[asyncio.BaseTransport] = []
    server = PlainServer(asyncio.get_running_loop(), lambda: Served(transports))
    await server.start("127.0.0.1", 0)
    fleet = [socket.socket() for _ in range(3_000)]
    try:
        for each in fleet:  # in one turn of the loop
            each.settimeout(0.9)
            each.connect(server.sockets[0].getsockname())
        async with asyncio.timeout(10):
            while len(transports) < len(fleet):
                await asyncio.sleep(0)
    finally:
        for one in fleet:
            one.close()
        await server.stop()
        for transport in transports:
            transport.close()
