"""Connections that are not read for a while, and whether their clients are still there."""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import socket
from typing import TYPE_CHECKING

import pytest

from adapters.base import ListenerAddress
from adapters.memory import GatewayMemory
from adapters.pauses import HOLD_MS_MAX, LEFT_S_MAX, Pause
from adapters.transport import Listeners, StreamProtocol
from kernel.store.drivers.system import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

WAIT_S = 10.0


class Held:
    """A connection that owes."""

    def __init__(self) -> None:
        self.is_held = self.is_watched = self.has_left = False
        self.owes_ms = 60_000
        self.seconds: list[float] = []
        self.pause = Pause(self, self.later, lambda: self.owes_ms, self.leave)

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self.seconds.append(seconds)
        self.next = action

    def leave(self) -> None:
        self.owes_ms = 0

    def hold_reading(self, _reason: str) -> None:
        self.is_held = True

    def release_reading(self, _reason: str) -> None:
        self.is_held = False

    def watch_peer(self) -> None:
        self.is_watched = True

    def has_been_left(self) -> bool:
        return self.has_left


def test_who_owes_is_asked_each_second_however_long_that_is() -> None:
    held = Held()
    held.pause.begin(held.owes_ms)
    for _ in range(100):
        held.next()
    assert held.is_held
    assert set(held.seconds) == {HOLD_MS_MAX / 1_000}
    assert held.is_watched, "a peer that vanishes is found by the system"
    held.owes_ms = 0
    held.next()
    assert not held.is_held


def test_who_has_left_is_waited_for_a_little_and_is_read_to_its_end_then() -> None:
    held = Held()
    held.pause.begin(held.owes_ms)
    for _ in range(100):
        held.next()
    held.has_left = True
    asked = 0
    while held.is_held:
        held.next()
        asked += 1
    assert 1 <= asked <= LEFT_S_MAX + 1


class Deaf(StreamProtocol):
    """Is held from the first."""

    def opened(self) -> None:
        self.hold_reading("a test")


@pytest.fixture(params=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> asyncio.Runner:
    if request.param == "asyncio":
        return asyncio.Runner()
    if importlib.util.find_spec("uvloop") is None:
        pytest.skip("uvloop is not installed")
    return asyncio.Runner(loop_factory=importlib.import_module("uvloop").new_event_loop)


@pytest.mark.skipif(not hasattr(__import__("select"), "POLLRDHUP"), reason="no POLLRDHUP")
@pytest.mark.parametrize("how", ["close", "half", "reset"])
def test_a_peer_that_has_gone_is_seen_to_be_gone_though_nothing_is_read(
    runner: asyncio.Runner, how: str
) -> None:
    async def play() -> None:
        loop = asyncio.get_running_loop()
        memory = GatewayMemory(SystemClock()).listener("test", "tcp")
        made: list[Deaf] = []

        def factory(_address: ListenerAddress) -> Deaf:
            made.append(Deaf(loop, memory))
            return made[-1]

        address = ListenerAddress("tcp", "127.0.0.1", 0)
        listeners = Listeners(loop, [address], factory, {"tcp": memory}, 10)
        await listeners.start()
        client = socket.create_connection(listeners.addresses()["tcp"])
        client.sendall(b"what nobody reads")
        async with asyncio.timeout(WAIT_S):
            while not made or made[0].transport is None:
                await asyncio.sleep(0.005)
            (held,) = made
            held.watch_peer()
            seen = held.transport.get_extra_info("socket")  # type: ignore[union-attr]
            assert seen.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            assert not held.has_been_left()
            if how == "half":
                client.shutdown(socket.SHUT_WR)
            elif how == "reset":
                linger = (1).to_bytes(4, "little") + bytes(4)
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                client.close()
            else:
                client.close()
            while not held.has_been_left():
                await asyncio.sleep(0.005)
        client.close()
        held.abort()
        await listeners.stop_accepting()

    with runner:
        runner.run(play())
