"""What a gateway costs beside a client in the process of the store: messages of 1 KB, published,
delivered as they come, and acked, all by the same client.

    python -m benchmarks.stream_rows [--profile near|far]

A store and a gateway's side in one process, over loopback TCP; the journal is in the temporary
directory. Published in batches of 1 and of 32, 64 of them under way; and message by message, the
next one when the last has been delivered.
CPU: of the whole process (both ends of the connection, store, disk thread), a message published,
delivered and acked; the best of five rounds, near and far in turns. Latency: from the call that
publishes to the delivery, messages alone, at 1,000 a second. RPC's part of it is what far adds.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import tempfile
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from statistics import median
from typing import Protocol, cast

from benchmarks.kernel_load import open_at
from gateway.app import loop_factory
from kernel.api import message as messages
from kernel.api.client import Client, Consumer, ConsumerSpec, Deliveries, PublishBatch, PutTopic
from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT, GroupOptions, TopicInfo, TopicOptions
from kernel.common.errors import KernelError
from kernel.store.drivers.system import SystemClock
from tests.adapters.kernels import far_client

WINDOW = 64
ROUND_MESSAGES = 20_000
ROUNDS = 5
PACED = 1_000
ALONE = 2_000
CREDIT = 2_000
BODY = bytes(1_000)


class _Counted(Protocol):
    def delivered(self, count: int) -> None:
        """So many messages more have come."""


class _Consumer:
    """Acks what comes, and gives its credit back, once a turn of the loop, as an adapter does."""

    def __init__(self, client: Client, topic: TopicInfo, load: _Counted) -> None:
        self._client = client
        self._load = load
        self._acks: dict[Consumer, list[int]] = {}
        self.session = client.open_session("rows")
        spec = ConsumerSpec(topic, DEFAULT_GROUP, self.session)
        self.consumer = client.attach(spec, self)

    async def start(self) -> None:
        """Return once it is attached."""
        await self._client.attached(self.consumer)
        self.consumer.grant(CREDIT)

    def deliver(self, consumer: Consumer, deliveries: Deliveries) -> None:
        """Ack later in this turn."""
        if not self._acks:
            asyncio.get_running_loop().call_soon(self._ack)
        self._acks.setdefault(consumer, []).extend(deliveries.offsets)
        self._load.delivered(len(deliveries.offsets))

    def _ack(self) -> None:
        acks, self._acks = self._acks, {}
        self.consumer.grant(sum(map(len, acks.values())))
        self._client.acknowledge(acks)

    def consumer_ended(self, consumer: Consumer, error: KernelError) -> None:
        """Not expected."""
        raise error


class _Load:
    """Publishes, and waits until all of it has been delivered."""

    def __init__(self, client: Client, topic: TopicInfo, size: int, window: int) -> None:
        self._client = client
        self._size = size
        self._window = window
        self._to = client.to_topic(topic)
        self._session = client.open_session("rows")
        self._left = (ROUND_MESSAGES if window > 1 else ALONE) // size
        self._count = self._to_come = self._left * size
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._is_paced = False
        self._sent: deque[float] = deque()
        self._took: list[float] = []

    async def run(self) -> float:
        """Microseconds of CPU a message."""
        begin = time.process_time()
        for _ in range(self._window):
            self.publish()
        await self._over
        return (time.process_time() - begin) / self._count * 1e6

    async def pace(self) -> float:
        """Median latency in ms of messages alone, one a millisecond."""
        loop = asyncio.get_running_loop()
        self._to_come = self._left = PACED
        self._is_paced = True
        begin = loop.time()
        for number in range(PACED):
            await asyncio.sleep(max(0.0, begin + number / 1_000 - loop.time()))
            self._sent.append(time.perf_counter())
            self.publish()
        await self._over
        return median(self._took) * 1_000

    def publish(self) -> None:
        """One batch."""
        if not self._left:
            return
        self._left -= 1
        batch = self._client.batch(self._session, self)
        size = messages.HEADER_BYTES + len(BODY)
        for _ in range(self._size):
            head = (1, 0, 0, 0, len(BODY), 0, 0, *batch.uid(), 0, 0, 0, 0, 0, 0)
            batch.add(self._to, (messages.HEADER.pack(*head), BODY), size)
        self._client.submit(batch)

    def published(self, batch: PublishBatch) -> None:
        """It is on disk."""
        assert batch.failures is None, batch.failures
        if not self._is_paced and self._window > 1:
            self.publish()

    def delivered(self, count: int) -> None:
        """So many have come."""
        if self._is_paced:
            now = time.perf_counter()
            self._took += [now - self._sent.popleft() for _ in range(count)]
        elif self._window == 1:
            self.publish()
        self._to_come -= count
        if self._to_come <= 0 and not self._over.done():
            self._over.set_result(None)


@asynccontextmanager
async def _running(path: Path) -> AsyncIterator[dict[str, Client]]:
    local = await open_at(path)
    async with far_client(local, SystemClock()) as far:
        yield {"near": local.client, "far": cast("Client", far)}
    await local.stop()


async def _topic(clients: dict[str, Client], number: int) -> TopicInfo:
    group = GroupOptions(in_flight_max=2_000_000)
    change = PutTopic(DEFAULT_TENANT, f"rows{number}", TopicOptions(), {DEFAULT_GROUP: group})
    topic = await clients["near"].administer(change)
    assert isinstance(topic, TopicInfo)
    return topic


class _Rows:
    """Rounds, each on a topic of its own."""

    def __init__(self, clients: dict[str, Client]) -> None:
        self._clients = clients
        self._number = 0

    async def round(
        self, where: str, size: int, window: int = WINDOW, *, paced: bool = False
    ) -> float:
        """Microseconds of CPU a message; `paced`: median latency in ms."""
        self._number += 1
        topic = await _topic(self._clients, self._number)
        load = _Load(self._clients[where], topic, size, window)
        taker = _Consumer(self._clients[where], topic, load)
        await taker.start()
        result = await (load.pace() if paced else load.run())
        taker.session.close()
        return result


async def _print(path: Path) -> None:
    async with _running(path) as clients:
        rows = _Rows(clients)
        for size, window in ((1, 1), (1, WINDOW), (32, WINDOW)):
            costs: dict[str, list[float]] = {"near": [], "far": []}
            for _ in range(ROUNDS):
                for where, figures in costs.items():
                    figures.append(await rows.round(where, size, window))
            near, far = min(costs["near"]), min(costs["far"])
            print(
                f"{window:2} batches of {size:2} under way: in the store's process {near:6.2f} us "
                f"CPU a message, through a gateway {far:6.2f}, added {far - near:6.2f}"
            )
        paced = [
            [await rows.round(where, 1, paced=True) for where in ("near", "far")]
            for _ in range(ROUNDS)
        ]
        near, far = (median(column) for column in zip(*paced, strict=True))
        print(
            f"1,000 messages/s: median from publish to delivery in the store's process {near:.2f} "
            f"ms, through a gateway {far:.2f} ms"
        )


async def _profile(path: Path, where: str) -> None:
    async with _running(path) as clients:
        rows = _Rows(clients)
        for size, window in ((1, 1), (1, WINDOW), (32, WINDOW)):
            await rows.round(where, size, window)
            profile = cProfile.Profile()
            profile.enable()
            await rows.round(where, size, window)
            profile.disable()
            print(f"--- {window} batches of {size} under way")
            pstats.Stats(profile).sort_stats("tottime").print_stats(30)


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--profile", choices=("near", "far"))
    where = parser.parse_args().profile
    with tempfile.TemporaryDirectory() as path, asyncio.Runner(loop_factory=loop_factory()) as run:
        run.run(_profile(Path(path), where) if where else _print(Path(path)))


if __name__ == "__main__":
    main()
