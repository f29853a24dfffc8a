"""Connections that come while their listener is closed are served or refused, and never lost."""

from __future__ import annotations

import asyncio
import gc
import importlib
import socket
import warnings

import pytest

from kernel.common.listening import stop_listening

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
    server = await loop.create_server(lambda: Served(transports), "127.0.0.1", 0)
    with socket.create_connection(server.sockets[0].getsockname()) as client:
        client.setblocking(False)
        for _ in range(turns):
            await asyncio.sleep(0)
        await stop_listening(server)
        served = len(transports)
        for each in transports:
            each.close()
        async with asyncio.timeout(10):
            try:
                assert await loop.sock_recv(client, 1) == b""
            except ConnectionResetError:
                assert not served
    await server.wait_closed()
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
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Served([]), "127.0.0.1", 0)
    for _ in range(2):
        await stop_listening(server)
        assert not server.is_serving()
