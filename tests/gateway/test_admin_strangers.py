"""The admin listener and people who connect to it and do not get on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from starlette.types import Receive, Scope, Send

from gateway.admin.http import server
from gateway.admin.http.server import CONNECTIONS_MAX, HEAD_BYTES_MAX, AdminServer
from gateway.config.schema import Listener

LOOK = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    body = b""
    while (message := await receive()).get("more_body"):
        body += message.get("body", b"")
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"here"})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with asyncio.TaskGroup() as tasks:
        admin = AdminServer(Listener(host="127.0.0.1", port=0), app)
        await admin.start(tasks)
        yield int(admin.url.rpartition(":")[2])
        await admin.stop()


@contextmanager
def strangers(port: int, count: int, said: bytes) -> Iterator[list[socket.socket]]:
    with ExitStack() as stack:
        peers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(count)
        ]
        for peer in peers:
            peer.sendall(said)
        yield peers


async def ask(port: int, *, times: int = 1) -> None:
    async with asyncio.timeout(10):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(times):
            writer.write(LOOK)
            answer = b""
            while b"here" not in answer:
                part = await reader.read(4_096)
                assert part, answer
                answer += part
            assert answer.startswith(b"HTTP/1.1 200 ")
        writer.close()


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nA: b"], ids=["nothing", "half a head"])
async def test_strangers_who_say_nothing_keep_nobody_out(port: int, said: bytes) -> None:
    with strangers(port, CONNECTIONS_MAX + 20, said):
        await ask(port, times=3)


@pytest.mark.parametrize(
    ("before", "said"),
    [
        (b"", b""),
        (b"", b"GET / HT"),
        (b"", b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\n\r\nhalf"),
        (LOOK, b"GE"),
    ],
    ids=["nothing", "half a head", "half a body", "half a second request"],
)
async def test_a_request_that_does_not_come_ends_the_connection(
    port: int, before: bytes, said: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_S_MAX", 0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    if before:
        writer.write(before)
        assert b"200 OK" in await reader.readuntil(b"here")
    writer.write(said)
    await until_closed(reader)
    writer.close()
    await ask(port)


async def test_a_head_without_end_is_not_kept(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nA: " + b"x" * 2 * HEAD_BYTES_MAX)
    await until_closed(reader)
    writer.close()
    await ask(port)


async def test_a_body_that_comes_with_its_head_may_be_longer(port: int) -> None:
    body = b"x" * 3 * HEAD_BYTES_MAX
    head = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % len(body)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(2):
        writer.write(head + body)
        async with asyncio.timeout(3):
            assert (await reader.readuntil(b"here\r\n0\r\n\r\n")).startswith(b"HTTP/1.1 200")
    writer.close()
    await writer.wait_closed()


async def until_closed(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(3):
        try:
            while await reader.read(4_096):
                pass
        except ConnectionResetError:
            pass
