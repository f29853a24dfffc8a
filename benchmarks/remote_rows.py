"""What a connection between a client and the leader of its group costs: messages of 1 KB.

    python -m benchmarks.remote_rows

A store and a gateway's side in one process, over loopback TCP; the journal is in the temporary
directory. CPU: of the whole process (gateway, both ends of the connection, store, disk thread), a
message, with 64 batches under way; the best of five rounds. Latency: from the call to the answer,
messages alone, at 1,000 a second; near and far in turns, since the disk is not the same from one
second to the next. So what RPC adds is better seen in the last row: the same way to a leader that
answers in the next turn of the loop, without a disk.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import cast

from kernel import message as messages
from kernel.client import PutTopic
from kernel.ids import Offset, RaftGroup
from kernel.leader import NO_IDENTITY, Done, Identity, Leader
from kernel.model import DEFAULT_TENANT, QueueRef, TopicInfo, TopicOptions
from kernel.publish_part import Part
from kernel.remote.lane_service import GatewayService
from kernel.remote.leaders import RemoteLeaders
from kernel.rpc.channel import Channel
from kernel.rpc.handshake import Hello
from kernel.rpc.link import Acceptor
from kernel.rpc.roles import GATEWAY, STORE
from kernel.store.disk import DirectoryDisk
from kernel.store.node import Store
from kernel.store.opening import open_store
from kernel.store.peer_links import new_nonce
from kernel.store.system import SystemClock, SystemRandom
from kernel.store.worker import Worker

CLOCK, RANDOM = SystemClock(), SystemRandom()
SECRET = b"benchmark"
WINDOW = 64
ROUND_MESSAGES = 20_000
ROUNDS = 5
PACED = 1_000
SLOT = messages.encode(
    messages.Message(1, 0, messages.Flag(0), bytes(16), 1, 0, 0, 0, 0, {}, b"", bytes(1_000))
)


def _fail(text: str, error: BaseException) -> None:
    raise SystemExit(f"{text}: {error!r}")


def _hello(node: int, role: str) -> Hello:
    return Hello((1, 1), "benchmark", node, role, role, "", new_nonce(RANDOM.bits))


class _NoDisk:
    """A store's leaders, which answer a publish in the next turn of the loop when `at_once`."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.groups = store.groups
        self.standing = store.standing
        self.at_once = False

    def serving(self, group: RaftGroup) -> Leader | None:
        return cast("Leader", self) if self.at_once else self._store.serving(group)

    def publish(self, _identity: Identity, _part: Part, done: Done, _origin: int) -> None:
        """See `Leader.publish`."""
        asyncio.get_running_loop().call_soon(done, ([0],))


@asynccontextmanager
async def _running(path: Path) -> AsyncIterator[tuple[QueueRef, Leader, Leader, _NoDisk]]:
    """A queue, and its leader near and far."""
    loop = asyncio.get_running_loop()
    opened = open_store(DirectoryDisk(path), CLOCK, RANDOM, partial(Worker, loop), _fail)
    await opened.start()
    options = TopicOptions(messages_max=1_000)
    topic = await opened.client.administer(PutTopic(DEFAULT_TENANT, "rows", options, {}))
    assert isinstance(topic, TopicInfo)
    ref = topic.queues[0]
    host = _NoDisk(opened.store)
    service = GatewayService(host, loop.call_soon)

    def accepted(wake: Callable[[], None]) -> Channel:
        own, now_ms = _hello(1, STORE), CLOCK.monotonic_ms()
        return Channel(own, SECRET, lambda _: None, service, wake, now_ms, is_dialer=False)

    acceptor = Acceptor(accepted, CLOCK, None, 4)
    address = await acceptor.start("127.0.0.1", 0)
    remote = RemoteLeaders(lambda: _hello(0, GATEWAY), SECRET, {1: address}, CLOCK)
    remote.start()
    await remote.leader(ref.group).peek(ref.id, Offset(0), 1)  # once it is connected
    try:
        yield ref, opened.store.leader(ref.group), remote.leader(ref.group), host
    finally:
        await remote.stop()
        await acceptor.stop()
        await opened.stop()


class _Load:
    """Publishes to one queue, WINDOW batches at a time."""

    def __init__(self, leader: Leader, ref: QueueRef, size: int) -> None:
        self._leader = leader
        self._size = size
        self._runs = [(ref.id, 0, size, 0)]
        self._to_send = ROUND_MESSAGES // size
        self._to_hear = self._to_send
        self._over = asyncio.get_running_loop().create_future()

    async def run(self) -> float:
        """Microseconds of CPU a message."""
        begin = time.process_time()
        for _ in range(WINDOW):
            self._send()
        await self._over
        return (time.process_time() - begin) / ROUND_MESSAGES * 1e6

    def _send(self) -> None:
        if self._to_send:
            self._to_send -= 1
            size = self._size
            publish(self._leader, self._runs, size, self._heard)

    def _heard(self, result: object) -> None:
        if not isinstance(result, tuple):
            self._over.set_exception(RuntimeError(repr(result)))
            return
        self._to_hear -= 1
        if not self._to_hear:
            self._over.set_result(None)
        self._send()


def publish(leader: Leader, runs: Sequence[Sequence[int]], size: int, done: Done) -> None:
    """One batch."""
    part = Part(runs, [len(SLOT)] * size, [SLOT] * size)
    leader.publish(NO_IDENTITY, part, done, 1)


async def _latency_ms(leader: Leader, ref: QueueRef) -> float:
    """Median of messages alone, one a millisecond."""
    loop = asyncio.get_running_loop()
    runs = [(ref.id, 0, 1, 0)]
    took: list[float] = []
    begin = loop.time()
    for number in range(PACED):
        await asyncio.sleep(max(0.0, begin + number / 1_000 - loop.time()))
        sent = time.perf_counter()
        publish(leader, runs, 1, partial(_heard, took, sent))
    await asyncio.sleep(2)
    if len(took) < PACED:
        raise RuntimeError(f"{len(took)} of {PACED} answers")
    return median(took) * 1_000


def _heard(took: list[float], sent: float, _result: object) -> None:
    took.append(time.perf_counter() - sent)


async def _rows(path: Path) -> None:
    async with _running(path) as (ref, near, far, host):
        for size in (1, 32):
            costs: dict[str, list[float]] = {"near": [], "far": []}
            for _ in range(ROUNDS):
                costs["near"].append(await _Load(near, ref, size).run())
                costs["far"].append(await _Load(far, ref, size).run())
            nearest, farthest = min(costs["near"]), min(costs["far"])
            print(
                f"batches of {size:2}: local {nearest:6.2f} us CPU a message, "
                f"through RPC {farthest:6.2f}, added {farthest - nearest:6.2f}"
            )
        pairs = [(await _latency_ms(near, ref), await _latency_ms(far, ref)) for _ in range(ROUNDS)]
        print(
            f"1,000 messages/s, on disk: median latency local {median(x for x, _ in pairs):.2f} ms"
            f", through RPC {median(y for _, y in pairs):.2f} ms"
        )
        host.at_once = True
        added = median([await _latency_ms(far, ref) for _ in range(ROUNDS)])
        print(f"1,000 messages/s, answered at once: median latency through RPC {added:.2f} ms")


def main() -> None:
    """Print the rows."""
    with tempfile.TemporaryDirectory() as path:
        asyncio.run(_rows(Path(path)))


if __name__ == "__main__":
    main()
