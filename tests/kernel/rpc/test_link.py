"""Channels over real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kernel.errors import KernelError
from kernel.rpc.channel import Channel
from kernel.rpc.frame import FRAGMENT_BYTES
from kernel.rpc.link import Acceptor, Dialer
from kernel.store.system import SystemClock
from tests.kernel.rpc.pair import SECRET, Notes, anybody, hello

CLOCK = SystemClock()


class Side:
    """Makes the channels of one process."""

    def __init__(self, node: int, *, is_dialer: bool) -> None:
        self.notes = Notes()
        self._node = node
        self._is_dialer = is_dialer

    def make(self, wake: Callable[[], None]) -> Channel:
        own = hello(self._node)
        now = CLOCK.monotonic_ms()
        return Channel(own, SECRET, anybody, self.notes, wake, now, is_dialer=self._is_dialer)


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


async def test_connections_beyond_the_limit_are_closed() -> None:
    async with connected() as (dialer, _here, _acceptor, there):
        others = [socket.create_connection(dialer.address) for _ in range(5)]
        await until(lambda: "too many connections" in there.notes.closed_for)
        for each in others:
            each.close()
        assert dialer.channel is not None
