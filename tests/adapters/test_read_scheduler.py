"""Much input from many connections is read in turns, so that others are heard in between."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from adapters.base import ListenerAddress
from adapters.memory import GatewayMemory
from adapters.read_scheduler import READ_MAX, ReadScheduler
from adapters.small_reads import READ_BYTES
from adapters.transport import Listeners, StreamProtocol
from kernel.store.drivers.system import SystemClock

PEERS = 4 * READ_MAX
SENT = 100_000


class Gathering(StreamProtocol):
    """Keeps what comes, and never has enough."""

    def __init__(self, loop: asyncio.AbstractEventLoop, memory: GatewayMemory) -> None:
        super().__init__(loop, memory.listener("test", "tcp"))
        self.reads = 0

    def received(self, data: bytes) -> None:
        self.reads += 1
        self.hold_input(self.bytes_in)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0)


class Waiting:
    def __init__(self) -> None:
        self.read = False

    def read_on(self) -> None:
        self.read = True


async def test_so_many_are_read_in_a_turn_and_those_first_that_wait_longest() -> None:
    scheduler = ReadScheduler(asyncio.get_running_loop())
    waiting = [Waiting() for _ in range(2 * READ_MAX + 1)]
    for each in waiting:
        scheduler.wait("a", each)
    for turn in range(4):
        read = min(turn * READ_MAX, len(waiting))
        assert [each.read for each in waiting] == [True] * read + [False] * (len(waiting) - read)
        assert len(scheduler) == len(waiting) - read
        await asyncio.sleep(0)


async def test_who_comes_from_another_address_does_not_wait_behind_all_of_the_first() -> None:
    scheduler = ReadScheduler(asyncio.get_running_loop())
    horde, other = [Waiting() for _ in range(10 * READ_MAX)], [Waiting(), Waiting()]
    for each in horde:
        scheduler.wait("a", each)
    for each in other:
        scheduler.wait("b", each)
    await asyncio.sleep(0)
    assert all(each.read for each in other)
    assert sum(each.read for each in horde) == READ_MAX - 2


class Unknown(Gathering):
    """Of a client that has not signed in."""

    def opened(self) -> None:
        self.read_little()


async def _served(
    memory: GatewayMemory, kind: type[Gathering] = Gathering
) -> tuple[Listeners[Gathering], list[Gathering]]:
    loop = asyncio.get_running_loop()
    made: list[Gathering] = []

    def make(_: ListenerAddress) -> Gathering:
        made.append(kind(loop, memory))
        return made[-1]

    wanted = ListenerAddress("tcp", "127.0.0.1", 0)
    listeners = Listeners(loop, [wanted], make, {}, PEERS)
    await listeners.start()
    return listeners, made


async def test_who_sends_much_waits_for_the_others_while_memory_is_tight() -> None:
    memory = GatewayMemory(SystemClock(), 2 * PEERS * SENT)
    listeners, made = await _served(memory)
    address = listeners.addresses()["tcp"]
    peers = [socket.create_connection(address) for _ in range(PEERS)]
    try:
        await until(lambda: len(made) == PEERS and all(each.transport for each in made))
        memory.input._tight_at = 0
        for each in made:
            each.take_turn()
        for peer in peers:
            peer.sendall(b"x" * SENT)
        most = before = 0
        while sum(each.bytes_in for each in made) < PEERS * SENT:
            await asyncio.sleep(0)
            reads = sum(each.reads for each in made)
            most, before = max(most, reads - before), reads
        assert 0 < most <= READ_MAX
        await until(lambda: not any(each.is_reading_held for each in made))
    finally:
        for peer in peers:
            peer.close()
        await listeners.stop_accepting()
        for each in made:
            each.abort()


async def test_nobody_waits_while_there_is_room() -> None:
    memory = GatewayMemory(SystemClock(), 2 * PEERS * SENT + 1)
    listeners, made = await _served(memory)
    peer = socket.create_connection(listeners.addresses()["tcp"])
    peer.sendall(b"x" * SENT)
    await until(lambda: made and made[0].bytes_in == SENT)
    assert not made[0].is_reading_held
    peer.close()
    await listeners.stop_accepting()
    made[0].abort()


async def test_of_whoever_is_not_known_little_is_read_at_once() -> None:
    memory = GatewayMemory(SystemClock())
    listeners, made = await _served(memory, Unknown)
    sizes: list[int] = []
    peer = socket.create_connection(listeners.addresses()["tcp"])
    await until(lambda: made and made[0].transport)
    connection = made[0]
    connection.received = lambda data: sizes.append(len(data))  # type: ignore[method-assign]
    peer.sendall(b"x" * SENT)
    await until(lambda: sum(sizes) == SENT)
    assert max(sizes) == READ_BYTES
    sizes.clear()
    connection.read_much()
    peer.sendall(b"x" * SENT)
    await until(lambda: sum(sizes) == SENT)
    assert max(sizes) > READ_BYTES
    peer.close()
    await listeners.stop_accepting()
    connection.abort()
