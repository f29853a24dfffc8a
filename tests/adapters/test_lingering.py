"""What a connection said last arrives, however much its peer had under way; and what that costs is
bounded. On both event loops, in plain text and over TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import socket
import ssl
import struct
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path

import pytest

from adapters import lingering
from adapters.base import ListenerAddress
from adapters.lingering import LINGERING
from adapters.memory import GatewayMemory
from adapters.transport import Listeners, StreamProtocol
from kernel.store.drivers.system import SystemClock
from tests import certificates

LAST_WORDS = b"goodbye"
UNDER_WAY = bytes(100_000)
WAIT_S = 10.0

Scenario = Callable[["Server"], Coroutine[object, object, None]]


class Parting(StreamProtocol):
    """Says goodbye to whatever comes, once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: Server) -> None:
        super().__init__(loop, server.memory)
        self.server = server
        self.ended = 0

    def opened(self) -> None:
        self.server.listeners.entered(self)

    def received(self, data: bytes) -> None:
        assert not self.ended
        self.out.append(self.server.last_words)
        self.hold_reading("no matter what")
        self.close()
        self.close()

    def closed(self, error: Exception | None) -> None:
        self.ended += 1
        assert self.ended == 1
        self.server.listeners.left(self)
        self.server.gone.release()


class Server:
    """A listener of such connections."""

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        self.loop = asyncio.get_running_loop()
        self.memory = GatewayMemory(SystemClock()).listener("test", "tcp")
        self.last_words = LAST_WORDS
        self.gone = asyncio.Semaphore(0)
        address = ListenerAddress("tcp", "127.0.0.1", 0, tls=tls)
        self.listeners: Listeners[Parting] = Listeners(
            self.loop, [address], lambda _: Parting(self.loop, self), {"tcp": self.memory}, 1_000
        )

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[socket.socket]:
        """A connection whose goodbye has been said, and not read."""
        client = socket.socket()
        client.setblocking(False)
        with client:
            await self.loop.sock_connect(client, self.listeners.addresses()["tcp"])
            await self.loop.sock_sendall(client, b"hello")
            await asyncio.wait_for(self.gone.acquire(), WAIT_S)
            yield client

    async def rest(self, client: socket.socket) -> bytes:
        """What a client still hears, to the end."""
        heard = b""
        while data := await asyncio.wait_for(self.loop.sock_recv(client, 65_536), WAIT_S):
            heard += data
        return heard


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await asyncio.sleep(0.005)


async def _served(scenario: Scenario, tls: ssl.SSLContext | None) -> None:
    server = Server(tls)
    await server.listeners.start()
    try:
        await scenario(server)
    finally:
        await server.listeners.stop_accepting()
        server.listeners.abort_all()
        await server.listeners.wait_until_empty()
    assert not len(LINGERING)


@pytest.fixture(params=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest) -> Iterator[Callable[..., None]]:
    """Plays a scenario on one kind of event loop."""
    factory = None
    if request.param == "uvloop":
        if importlib.util.find_spec("uvloop") is None:
            pytest.skip("uvloop is not installed")
        factory = importlib.import_module("uvloop").new_event_loop
    with asyncio.Runner(loop_factory=factory) as runner:
        yield lambda scenario, tls=None: runner.run(_served(scenario, tls))


async def _arrives(server: Server) -> None:
    async with server.client() as client:
        assert server.listeners.connections == set()
        await server.loop.sock_sendall(client, UNDER_WAY)
        await server.loop.sock_sendall(client, UNDER_WAY)
        assert await server.rest(client) == LAST_WORDS
        assert len(LINGERING) == 1
    await until(lambda: not len(LINGERING))


def test_last_words_arrive_though_the_peer_goes_on_writing(play: Callable[..., None]) -> None:
    play(_arrives)


def test_who_has_reset_the_connection_already_is_let_go(play: Callable[..., None]) -> None:
    async def resets(server: Server) -> None:
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        client.connect(server.listeners.addresses()["tcp"])
        client.send(b"hello")
        client.close()
        async with asyncio.timeout(WAIT_S):
            await server.gone.acquire()
        await until(lambda: not len(LINGERING))

    play(resets)


def test_last_words_arrive_over_tls(play: Callable[..., None], tmp_path: Path) -> None:
    authority = certificates.Authority(tmp_path / "authority")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue())
    trusting = ssl.create_default_context(cafile=str(authority.file))

    async def arrives(server: Server) -> None:
        heard: list[bytes] = []
        told, said = threading.Event(), threading.Event()

        def talk() -> None:
            with (
                socket.create_connection(server.listeners.addresses()["tcp"], WAIT_S) as plain,
                trusting.wrap_socket(plain, server_hostname="127.0.0.1") as client,
            ):
                client.sendall(b"hello")
                assert told.wait(WAIT_S)
                client.sendall(UNDER_WAY)
                client.sendall(UNDER_WAY)
                heard.append(client.recv(1_000))
                said.set()

        talking = server.loop.run_in_executor(None, talk)
        await asyncio.wait_for(server.gone.acquire(), WAIT_S)
        told.set()
        await talking
        assert heard == [LAST_WORDS]
        await until(lambda: not len(LINGERING))

    play(arrives, context)


def test_a_peer_that_does_not_close_is_closed_in_time(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering, "LINGER_S", 0.05)

    async def stays(server: Server) -> None:
        async with server.client() as client:
            assert await server.rest(client) == LAST_WORDS
            await until(lambda: not len(LINGERING))

    play(stays)


def test_a_peer_that_writes_on_and_on_is_cut_off(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering, "LINGER_BYTES_MAX", 1_000_000)

    async def floods(server: Server) -> None:
        async with server.client() as client:
            much = bytes(100_000_000)
            with pytest.raises(ConnectionError):
                await server.loop.sock_sendall(client, much)
            await until(lambda: not len(LINGERING))

    play(floods)


def test_who_reads_slowly_gets_it_all_and_who_does_not_read_is_cut_off(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering, "LINGER_S", 0.3)
    much = bytes(12_000_000)

    async def reads_late(server: Server) -> None:
        server.last_words = much
        async with server.client() as slow, server.client() as mute:
            heard = 0
            while heard < len(much):
                # More than one look at what is unsent passes before it has all of it.
                data = await asyncio.wait_for(server.loop.sock_recv(slow, 200_000), WAIT_S)
                assert data
                heard += len(data)
                await asyncio.sleep(0.01)
            assert await server.rest(slow) == b""
            await until(lambda: not len(LINGERING))
            assert len(await server.rest(mute)) < len(much)

    play(reads_late)


def test_who_sends_slowly_what_it_had_begun_may_end_it(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering, "LINGER_S", 0.1)

    async def sends_slowly(server: Server) -> None:
        async with server.client() as client:
            for _ in range(25):
                await server.loop.sock_sendall(client, UNDER_WAY)
                await asyncio.sleep(0.02)
            assert len(LINGERING) == 1
            assert await server.rest(client) == LAST_WORDS
            await until(lambda: not len(LINGERING))

    play(sends_slowly)


def test_who_sends_on_and_on_is_cut_off_after_some_rounds(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering, "LINGER_S", 0.05)
    monkeypatch.setattr(lingering, "LINGER_ROUNDS_MAX", 3)

    async def goes_on(server: Server) -> None:
        async with server.client() as client:

            async def send() -> None:
                while True:
                    await server.loop.sock_sendall(client, b"x")
                    await asyncio.sleep(0.01)

            with pytest.raises(ConnectionError):
                await asyncio.wait_for(send(), WAIT_S)
            await until(lambda: not len(LINGERING))

    play(goes_on)


def test_one_more_than_may_linger_is_closed_at_once(
    play: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lingering, "LINGERING_MAX", 1)

    async def two(server: Server) -> None:
        refused = LINGERING.refused
        async with server.client() as first, server.client() as second:
            assert len(LINGERING) == 1
            assert LINGERING.refused == refused + 1
            await server.loop.sock_sendall(first, UNDER_WAY)
            assert await server.rest(first) == LAST_WORDS
            assert await server.rest(second) == LAST_WORDS

    play(two)


def test_a_process_that_stops_closes_those_that_linger(play: Callable[..., None]) -> None:
    async def stops(server: Server) -> None:
        async with server.client():
            await server.listeners.stop_accepting()
            waiting = asyncio.ensure_future(server.listeners.wait_until_empty())
            await asyncio.sleep(0.05)
            assert not waiting.done()
            server.listeners.abort_all()
            await asyncio.wait_for(waiting, WAIT_S)

    play(stops)
