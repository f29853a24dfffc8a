"""AMQP clients on a gateway without a store, while the queues get other leaders: nobody is
cancelled, nothing is lost, and what comes for the first time comes in order.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage

from kernel.api.client import Client
from kernel.common.ids import RaftGroup
from tests.adapters.amqp.broker import Logins, serving
from tests.kernel.remote import cluster
from tests.kernel.three_stores import Node, until

GROUP = RaftGroup(1)
COUNT = 400


async def killed(nodes: list[Node]) -> None:
    """The leader dies without a word."""
    await (await cluster.serving(nodes, GROUP)).kill()
    await cluster.serving(nodes, GROUP)


async def handed_over(nodes: list[Node]) -> None:
    """The leader hands over, three times."""
    for _ in range(3):
        await cluster.hand_over(nodes, GROUP)
        await asyncio.sleep(0.1)


@pytest.mark.parametrize("change", [killed, handed_over])
async def test_a_consumer_goes_on_with_the_next_leader(
    tmp_path: Path, change: Callable[[list[Node]], Awaitable[None]]
) -> None:
    got: list[tuple[int, bool]] = []
    async with (
        cluster.running_stores(tmp_path, 3, data_groups=1) as nodes,
        cluster.gateway_of(nodes) as client,
        serving(cast("Client", client), Logins()) as adapter,
    ):
        port = adapter.addresses()["tcp"][1]
        connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/")
        async with connection:
            reading, writing = await connection.channel(), await connection.channel()
            await reading.set_qos(prefetch_count=50)
            queue = await reading.declare_queue("work", durable=True)
            cancelled: list[object] = []
            reading.close_callbacks.add(lambda *args: cancelled.append(args))

            async def take(message: AbstractIncomingMessage) -> None:
                got.append((int(message.body), bool(message.redelivered)))
                await message.ack()

            await queue.consume(take)

            async def publish() -> None:
                for start in range(0, COUNT, 50):
                    messages = [
                        aio_pika.Message(b"%d" % each, delivery_mode=2)
                        for each in range(start, start + 50)
                    ]
                    exchange = writing.default_exchange
                    await asyncio.gather(*[exchange.publish(each, "work") for each in messages])

            publishing = asyncio.create_task(publish())
            await until(lambda: len(got) > COUNT // 10)
            await change(nodes)
            await publishing
            await until(lambda: len({number for number, _ in got}) == COUNT)
            first_times = list(dict.fromkeys(number for number, _ in got))
            assert first_times == list(range(COUNT))
            again = [
                number
                for number, times in Counter(number for number, _ in got).items()
                if times > 1
            ]
            assert all((number, True) in got for number in again)
            assert not cancelled
            left = await reading.declare_queue("work", durable=True, passive=True)
            assert left.declaration_result.message_count == 0
            assert left.declaration_result.consumer_count == 1


@pytest.mark.parametrize("change", [killed, handed_over])
async def test_what_a_transaction_moves_is_moved_once(
    tmp_path: Path, change: Callable[[list[Node]], Awaitable[None]]
) -> None:
    """Each commit-ok stands: the message is there once, and its source never comes again."""
    count = 60
    async with (
        cluster.running_stores(tmp_path, 3, data_groups=1) as nodes,
        cluster.gateway_of(nodes) as client,
        serving(cast("Client", client), Logins()) as adapter,
    ):
        port = adapter.addresses()["tcp"][1]
        connection = await aio_pika.connect(f"amqp://guest:guest@127.0.0.1:{port}/")
        async with connection:
            channel = await connection.channel(publisher_confirms=False)
            source = await channel.declare_queue("source", durable=True)
            target = await channel.declare_queue("target", durable=True)
            async with channel.transaction():
                for number in range(count):
                    message = aio_pika.Message(b"%d" % number)
                    await channel.default_exchange.publish(message, "source")

            async def move() -> None:
                for _ in range(count):
                    async with channel.transaction():
                        message = await source.get()
                        copy = aio_pika.Message(message.body)
                        await channel.default_exchange.publish(copy, "target")
                        await message.ack()

            moving = asyncio.create_task(move())
            await asyncio.sleep(0.05)
            await change(nodes)
            await asyncio.wait_for(moving, 60)
            moved = [int((await target.get(no_ack=True)).body) for _ in range(count)]
            assert moved == list(range(count))
            assert await target.get(fail=False) is None
            assert await source.get(fail=False) is None
