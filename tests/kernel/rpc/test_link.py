"""Channels over real sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from auth.private_files.tls import CertificateFiles, client_context, server_context
from kernel.common.errors import KernelError
from kernel.common.listening import ListeningSockets
from kernel.rpc import link
from kernel.rpc.channel import Channel
from kernel.rpc.frame import FRAGMENT_BYTES, HEAD, RpcFrameKind
from kernel.rpc.handshake import Admit
from kernel.rpc.link import (
    CLOSED_UNHEARD,
    CLOSED_UNHEARD_TLS,
    CROWDED,
    Acceptor,
    Dialer,
    Turned,
)
from kernel.store.drivers.system import SystemClock
from tests.certificates import Authority
from tests.kernel.rpc.pair import SECRET, Notes, anybody, hello

CLOCK = SystemClock()


class Side:
    """Makes the channels of one process."""

    def __init__(
        self, node: int, *, is_dialer: bool, secret: bytes = SECRET, admit: Admit = anybody
    ) -> None:
        self.notes = Notes()
        self._node = node
        self._is_dialer = is_dialer
        self._secret = secret
        self._admit = admit

    def make(self, wake: Callable[[], None]) -> Channel:
        own = hello(self._node)
        now = CLOCK.monotonic_ms()
        about = own, self._secret, self._admit, self.notes
        return Channel(*about, wake, now, is_dialer=self._is_dialer)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Dialer, Side, Acceptor, Side]]:
    there = Side(2, is_dialer=False)
    acceptor = Acceptor(there.make, CLOCK, None, 4)
    host, port = await acceptor.start("127.0.0.1", 0)
    here = Side(1, is_dialer=True)
    dialer = Dialer(host, port, here.make, CLOCK, None)
    dialer.start()
    try:
        await until(lambda: dialer.channel)
        yield dialer, here, acceptor, there
    finally:
        await dialer.stop()
        await acceptor.stop()


async def test_what_is_said_to_who_has_connected_leaves_at_once() -> None:
    accepted: list[socket.socket] = []
    listening = ListeningSockets(
        asyncio.get_running_loop(), lambda each, _: accepted.append(each), 16
    )
    await listening.start("127.0.0.1", 0)
    with socket.create_connection(listening.sockets[0].getsockname()):
        await until(lambda: accepted)
        assert accepted[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        accepted[0].close()
    listening.stop()


async def test_calls_and_answers_of_any_size_pass() -> None:
    async with connected() as (dialer, _here, _acceptor, there):
        answers: list[bytes | KernelError] = []
        assert dialer.channel is not None
        bodies = [b"small", bytes(range(256)) * (40 * FRAGMENT_BYTES // 256)]
        for body in bodies:
            dialer.channel.call(1, [body], answers.append, 10_000)
        await until(lambda: len(answers) == 2)
        assert answers == [body[::-1] for body in bodies]
        assert [payload for _, payload in there.notes.calls] == bodies


async def test_a_dialer_comes_back_after_the_other_end_was_gone() -> None:
    async with connected() as (dialer, here, acceptor, _there):
        await acceptor.stop()
        await until(lambda: here.notes.closed_for)
        assert dialer.channel is None
        again = Side(2, is_dialer=False)
        second = Acceptor(again.make, CLOCK, None, 4)
        host, port = dialer.address
        await second.start(host, port)
        try:
            await until(lambda: dialer.channel)
            assert [each.node for each in again.notes.opened_by] == [1]
        finally:
            await second.stop()


async def test_a_stranger_is_cut_off_and_members_go_on() -> None:
    async with connected() as (dialer, _here, _acceptor, there):
        stranger = socket.create_connection(dialer.address)
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 10)
        await until(lambda: there.notes.closed_for)
        stranger.close()
        answers: list[bytes | KernelError] = []
        assert dialer.channel is not None
        dialer.channel.call(1, [b"ok"], answers.append, 5_000)
        await until(lambda: answers)
        assert answers == [b"ko"]


class Leaping:
    """A clock that can be put forward."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def monotonic_ms(self) -> int:
        return CLOCK.monotonic_ms() + self.ahead_ms

    def wall_ms(self) -> int:
        return CLOCK.wall_ms()


@asynccontextmanager
async def watched(
    limit: int = 4, admit: Admit = anybody
) -> AsyncIterator[tuple[tuple[str, int], list[tuple[str, str]], Leaping]]:
    """A listener; the (host, reason) of each that it has turned away."""
    told: list[tuple[str, str]] = []
    there = Side(2, is_dialer=False, admit=admit)
    clock = Leaping()

    def turned_away(address: tuple[str, int], reason: str) -> None:
        assert address[1] > 0
        told.append((address[0], reason))

    acceptor = Acceptor(there.make, clock, None, limit, turned_away)
    address = await acceptor.start("127.0.0.1", 0)
    try:
        yield address, told, clock
    finally:
        await acceptor.stop()


async def dialed(address: tuple[str, int], here: Side) -> None:
    """Dial once, and end when that has failed."""
    dialer = Dialer(*address, here.make, CLOCK, None)
    dialer.start()
    await until(lambda: here.notes.closed_for)
    await dialer.stop()


async def test_a_listener_tells_whom_it_has_turned_away_and_why() -> None:
    async with watched(admit=lambda peer: f"no room for node {peer.node}") as (address, told, _):
        await dialed(address, Side(1, is_dialer=True, secret=b"guessed"))
        await dialed(address, Side(1, is_dialer=True))
        await dialed(address, Side(1, is_dialer=True, admit=lambda _: "a stranger"))
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.read()
        writer.close()
        await until(lambda: len(told) >= 4)
    reasons = [reason for host, reason in told if host == "127.0.0.1"]
    assert reasons[0] == "the cluster's secret is not the same here and there"
    assert reasons[1] == "no room for node 1"
    assert reasons[2].startswith("no room for node 1"), "the listener is asked first"
    assert "frame" in reasons[3]


async def test_who_says_nothing_in_time_or_comes_too_many_is_told_of() -> None:
    async with watched(limit=1) as (address, told, clock):
        _, silent = await asyncio.open_connection(*address)
        await asyncio.sleep(0.05)
        clock.ahead_ms = 10_000
        await until(lambda: told)
        assert told == [("127.0.0.1", "no handshake within 5000 ms")]
        clock.ahead_ms = 0
        here = Side(1, is_dialer=True)
        dialer = Dialer(*address, here.make, CLOCK, None)
        dialer.start()
        await until(lambda: dialer.channel)
        _, second = await asyncio.open_connection(*address)
        await until(lambda: len(told) == 2)
        assert told[1] == ("127.0.0.1", "too many connections")
        assert dialer.channel is not None
        await dialer.stop()
        silent.close()
        second.close()


async def test_no_refusal_is_a_mere_look_nor_the_end_of_what_was_open_nor_a_shutdown() -> None:
    async with watched() as (address, told, _):
        for _ in range(3):  # as the health checks of load balancers do
            socket.create_connection(address).close()
        here = Side(1, is_dialer=True)
        dialer = Dialer(*address, here.make, CLOCK, None)
        dialer.start()
        await until(lambda: dialer.channel)
        await dialer.stop()
        _, half = await asyncio.open_connection(*address)
        await asyncio.sleep(0.05)
    assert told == []
    half.close()


def strangers(address: tuple[str, int], count: int, say: bytes = b"") -> list[socket.socket]:
    """Connections of one other host, which say so much and then nothing."""
    made = []
    for _ in range(count):
        stranger = socket.socket()
        stranger.bind(("127.0.1.1", 0))
        stranger.settimeout(5)
        stranger.connect(address)
        stranger.sendall(say)
        made.append(stranger)
    return made


def is_gone(stranger: socket.socket) -> bool:
    stranger.setblocking(False)
    try:
        return not stranger.recv(65_536)
    except BlockingIOError:
        return False
    except OSError:
        return True


@pytest.mark.parametrize(
    "say", [b"", HEAD.pack(4_000, RpcFrameKind.HELLO, 0, 0, 0) + b"half of it"]
)
async def test_strangers_push_out_only_each_other_and_members_get_in(say: bytes) -> None:
    there = Side(2, is_dialer=False)
    told: list[str] = []
    acceptor = Acceptor(there.make, CLOCK, None, 4, lambda _, why: told.append(why), 20)
    address = await acceptor.start("127.0.0.1", 0)
    horde = strangers(address, 120, say)
    try:
        await until(lambda: acceptor.turned[Turned.CROWDED] == 100)
        assert acceptor.unproven == 20
        assert told == [CROWDED] * 100
        here = Side(1, is_dialer=True)
        dialer = Dialer(*address, here.make, CLOCK, None)
        dialer.start()
        await until(lambda: dialer.channel)
        assert dialer.failures == 0, "at its first try"
        assert acceptor.unproven == 19, "it has taken the place of one"
        horde += strangers(address, 30, say)
        await until(lambda: acceptor.turned[Turned.CROWDED] == 130)
        assert [is_gone(each) for each in horde] == [True] * 130 + [False] * 20, "the oldest go"
        assert dialer.channel is not None, "who has proved itself stays"
        await dialer.stop()
    finally:
        for each in horde:
            each.close()
        await acceptor.stop()


async def test_who_announces_more_than_a_hello_is_cut_off_before_it_comes() -> None:
    async with watched() as (address, told, _):
        (stranger,) = strangers(address, 1, HEAD.pack(FRAGMENT_BYTES, RpcFrameKind.HELLO, 0, 0, 0))
        await until(lambda: told)
        assert told == [("127.0.1.1", "a message of more than 4096 bytes")]
        stranger.close()


async def test_what_is_turned_away_is_counted_by_reason() -> None:
    there = Side(2, is_dialer=False)
    acceptor = Acceptor(there.make, CLOCK, None, 4)
    address = await acceptor.start("127.0.0.1", 0)
    await dialed(address, Side(1, is_dialer=True, secret=b"guessed"))
    horde = strangers(address, 2, b"GET / HTTP/1.1\r\n\r\n")
    await until(lambda: acceptor.turned[Turned.MALFORMED] == 2)
    assert {why for why, count in acceptor.turned.items() if count} == {
        Turned.NOT_LET_IN,
        Turned.MALFORMED,
    }
    for each in horde:
        each.close()
    await acceptor.stop()


async def test_connections_beyond_the_limit_are_closed() -> None:
    async with connected() as (dialer, _here, _acceptor, there):
        others = [Dialer(*dialer.address, _here.make, CLOCK, None) for _ in range(5)]
        for each in others:
            each.start()
        await until(lambda: "too many connections" in there.notes.closed_for)
        assert dialer.channel is not None
        for each in others:
            await each.stop()


@pytest.fixture
def contexts(tmp_path: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of a listener that wants certificates, and of a dialer that has one."""
    authority = Authority(tmp_path / "tls")
    files = CertificateFiles(*authority.issue())
    listens = server_context(files, client_authority=authority.file)
    return listens, client_context(files, authority.file)


async def test_who_fails_in_the_tls_handshake_does_not_count_as_a_connection(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    there, here = Side(2, is_dialer=False), Side(1, is_dialer=True)
    acceptor = Acceptor(there.make, CLOCK, contexts[0], 1)
    host, port = await acceptor.start("127.0.0.1", 0)
    for _ in range(3):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        await reader.read()
        writer.close()
    dialer = Dialer(host, port, here.make, CLOCK, contexts[1])
    dialer.start()
    await until(lambda: dialer.channel)
    await dialer.stop()
    await acceptor.stop()


async def test_handshakes_of_tls_that_never_end_are_bounded_and_members_get_in(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext],
) -> None:
    there, here = Side(2, is_dialer=False), Side(1, is_dialer=True)
    acceptor = Acceptor(there.make, CLOCK, contexts[0], 4, unproven_max=8)
    address = await acceptor.start("127.0.0.1", 0)
    horde = strangers(address, 30, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
    await until(lambda: acceptor.turned[Turned.CROWDED] == 22)
    assert acceptor.unproven == 8
    await until(lambda: sum(map(is_gone, horde)) == 22)
    dialer = Dialer(*address, here.make, CLOCK, contexts[1])
    dialer.start()
    await until(lambda: dialer.channel)
    assert dialer.failures == 0
    for each in horde:
        each.close()
    await until(lambda: not acceptor.unproven)
    assert acceptor.turned[Turned.CROWDED] == 23, "the member has taken the place of one"
    assert acceptor.turned[Turned.TLS] == 7
    await dialer.stop()
    await acceptor.stop()


async def test_who_does_not_answer_the_end_of_tls_is_gone_soon(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(link, "CLOSE_SECONDS", 0.2)
    files = CertificateFiles(*Authority(tmp_path / "tls").issue())
    acceptor = Acceptor(Side(2, is_dialer=False).make, CLOCK, server_context(files), 4)
    address = await acceptor.start("127.0.0.1", 0)
    careless = ssl.create_default_context()
    careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE

    def garble() -> ssl.SSLSocket:
        stranger = careless.wrap_socket(socket.create_connection(address, timeout=5))
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        return stranger

    stranger = await asyncio.to_thread(garble)
    await until(lambda: acceptor.turned[Turned.MALFORMED])
    assert not acceptor.unproven
    stranger.close()
    await acceptor.stop()


@pytest.mark.parametrize("has_tls", [False, True])
async def test_a_dialer_that_is_cut_off_without_a_word_says_what_may_be_wrong(
    contexts: tuple[ssl.SSLContext, ssl.SSLContext], has_tls: bool
) -> None:
    stranger = ssl.create_default_context(cafile=None)
    stranger.check_hostname, stranger.verify_mode = False, ssl.CERT_NONE
    there, here = Side(2, is_dialer=False), Side(1, is_dialer=True)
    acceptor = Acceptor(there.make, CLOCK, contexts[0], 4)
    dialer = Dialer(
        *await acceptor.start("127.0.0.1", 0), here.make, CLOCK, stranger if has_tls else None
    )
    dialer.start()
    await until(lambda: dialer.last_error)
    assert dialer.last_error == (CLOSED_UNHEARD_TLS if has_tls else CLOSED_UNHEARD)
    await dialer.stop()
    await acceptor.stop()
