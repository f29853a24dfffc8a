"""x-max-length-bytes and x-overflow, as aio-pika asks for them."""

from __future__ import annotations

import asyncio

import aio_pika
import aiormq
import pytest

from tests.adapters.amqp.broker import Broker

pytestmark = pytest.mark.interop

KB = b"." * 1_000


async def bodies(queue: aio_pika.abc.AbstractQueue) -> list[bytes]:
    """Take what waits in a queue."""
    found = []
    while (message := await queue.get(no_ack=True, fail=False)) is not None:
        found.append(message.body)
    return found


async def test_the_head_goes_when_a_queue_has_too_many_bytes(broker: Broker) -> None:
    async with await aio_pika.connect(broker.url()) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue(
            "few", durable=True, arguments={"x-max-length-bytes": 2_500}
        )
        for number in range(4):
            message = aio_pika.Message(b"%d" % number + KB)
            await channel.default_exchange.publish(message, "few")
        assert [body[:1] for body in await bodies(queue)] == [b"2", b"3"]


async def test_a_publish_over_the_bytes_is_nacked(broker: Broker) -> None:
    async with await aio_pika.connect(broker.url()) as connection:
        channel = await connection.channel()
        arguments = {"x-max-length-bytes": 1_500, "x-overflow": "reject-publish"}
        queue = await channel.declare_queue("firm", durable=True, arguments=arguments)
        await channel.default_exchange.publish(aio_pika.Message(KB), "firm")
        with pytest.raises(aiormq.exceptions.DeliveryError):
            await channel.default_exchange.publish(aio_pika.Message(KB), "firm")
        assert await bodies(queue) == [KB]
        await channel.default_exchange.publish(aio_pika.Message(KB), "firm")


async def test_reject_publish_dlx_nacks_and_dead_letters(broker: Broker) -> None:
    async with await aio_pika.connect(broker.url()) as connection:
        channel = await connection.channel()
        exchange = await channel.declare_exchange("dlx", aio_pika.ExchangeType.FANOUT)
        dead = await channel.declare_queue("dead", durable=True)
        await dead.bind(exchange)
        arguments = {
            "x-max-length": 1,
            "x-overflow": "reject-publish-dlx",
            "x-dead-letter-exchange": "dlx",
        }
        await channel.declare_queue("full", durable=True, arguments=arguments)
        await channel.default_exchange.publish(aio_pika.Message(b"kept"), "full")
        with pytest.raises(aiormq.exceptions.DeliveryError):
            await channel.default_exchange.publish(aio_pika.Message(b"refused"), "full")
        letter = None
        async with asyncio.timeout(10):
            while letter is None:
                letter = await dead.get(no_ack=True, fail=False)
        assert letter.body == b"refused"
        (death,) = letter.headers["x-death"]
        assert (death["reason"], death["queue"], death["exchange"]) == ("maxlen", "full", "")
        assert death["routing-keys"] == ["full"]
