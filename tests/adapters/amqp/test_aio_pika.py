"""aio-pika, unmodified: confirms in flight, robust reconnects, several consumers."""

from __future__ import annotations

import asyncio
import contextlib

import aio_pika
import aiormq
import pytest

from tests.adapters.amqp.broker import Broker

pytestmark = pytest.mark.interop


async def test_many_confirms_in_flight_and_every_message_once_in_order(broker: Broker) -> None:
    count = 2_000
    async with await aio_pika.connect(broker.url()) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=100)
        queue = await channel.declare_queue("q", durable=True)
        received: list[int] = []
        done = asyncio.Event()

        async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            received.append(int(message.body))
            await message.ack()
            if len(received) == count:
                done.set()

        await queue.consume(take)
        await asyncio.gather(
            *(
                channel.default_exchange.publish(
                    aio_pika.Message(
                        b"%d" % number, delivery_mode=aio_pika.DeliveryMode.PERSISTENT
                    ),
                    "q",
                )
                for number in range(count)
            )
        )
        await asyncio.wait_for(done.wait(), 30)
        assert received == list(range(count))


async def test_returned_messages_raise(broker: Broker) -> None:
    async with await aio_pika.connect(broker.url()) as connection:
        channel = await connection.channel(on_return_raises=True)
        with pytest.raises(aio_pika.exceptions.DeliveryError):
            await channel.default_exchange.publish(aio_pika.Message(b"x"), "nowhere")


async def test_two_consumers_share_a_queue(broker: Broker) -> None:
    async with (
        await aio_pika.connect(broker.url()) as first,
        await aio_pika.connect(broker.url()) as second,
    ):
        counts = [0, 0]
        total = asyncio.Semaphore(0)
        for place, connection in enumerate((first, second)):
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=5)
            queue = await channel.declare_queue("shared", durable=True)

            async def take(
                message: aio_pika.abc.AbstractIncomingMessage, place: int = place
            ) -> None:
                counts[place] += 1
                await message.ack()
                total.release()

            await queue.consume(take)
        for number in range(200):
            await channel.default_exchange.publish(aio_pika.Message(b"%d" % number), "shared")
        for _ in range(200):
            await asyncio.wait_for(total.acquire(), 10)
        assert sum(counts) == 200
        assert min(counts) > 20


async def test_topics_headers_and_exchange_bindings(broker: Broker) -> None:
    async with await aio_pika.connect(broker.url()) as connection:
        channel = await connection.channel()
        topic = await channel.declare_exchange("t", aio_pika.ExchangeType.TOPIC, durable=True)
        headers = await channel.declare_exchange("h", aio_pika.ExchangeType.HEADERS, durable=True)
        await headers.bind(topic, "orders.#")
        queue = await channel.declare_queue("q", durable=True)
        await queue.bind(headers, "", arguments={"x-match": "any", "region": "eu", "vip": True})
        await topic.publish(aio_pika.Message(b"1", headers={"region": "eu"}), "orders.new")
        await topic.publish(aio_pika.Message(b"2", headers={"region": "us"}), "orders.new")
        await topic.publish(aio_pika.Message(b"3", headers={"vip": True}), "orders.a.b")
        await topic.publish(aio_pika.Message(b"4", headers={"vip": True}), "bills.a.b")
        bodies = [(await queue.get(no_ack=True)).body for _ in range(2)]
        assert bodies == [b"1", b"3"]
        assert await queue.get(fail=False) is None


async def test_a_soft_error_closes_the_channel_only(broker: Broker) -> None:
    async with await aio_pika.connect(broker.url()) as connection:
        channel = await connection.channel()
        await channel.declare_queue("q", durable=True)
        with pytest.raises(aiormq.exceptions.ChannelPreconditionFailed):
            await channel.declare_queue("q", durable=False)
        other = await connection.channel()
        await other.declare_queue("q", durable=True)
        with pytest.raises(aiormq.exceptions.ChannelNotFoundEntity):
            await other.get_queue("missing", ensure=True)


async def test_a_robust_connection_comes_back_and_redeclares(broker: Broker) -> None:
    connection = await aio_pika.connect_robust(broker.url(), reconnect_interval=0.1)
    async with connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("transient", durable=False)
        own = await channel.declare_queue("", exclusive=True)
        received: asyncio.Queue[bytes] = asyncio.Queue()

        async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            await message.ack()
            received.put_nowait(message.body)

        await queue.consume(take)
        await own.consume(take)
        reconnected = asyncio.Event()
        connection.reconnect_callbacks.add(lambda *_: reconnected.set())
        for protocol in list(broker.adapter._listeners.connections):
            protocol.abort()
        await asyncio.wait_for(reconnected.wait(), 10)
        await asyncio.sleep(0.2)
        for name in ("transient", own.name):
            await channel.default_exchange.publish(aio_pika.Message(name.encode()), name)
        got = {await asyncio.wait_for(received.get(), 10) for _ in range(2)}
        assert got == {b"transient", own.name.encode()}


async def test_a_connection_that_is_lost_again_and_again_leaves_no_channel_behind(
    broker: Broker,
) -> None:
    """How many channels aio-pika opens again is its affair, and no other with RabbitMQ; of those
    that it has lost none is left here.
    """
    connection = await aio_pika.connect_robust(broker.url(), reconnect_interval=0.01)
    async with connection:
        channels = [await connection.channel() for _ in range(4)]

        async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            await message.ack()

        for number, channel in enumerate(channels):
            queue = await channel.declare_queue(f"q{number}", exclusive=number % 2 == 0)
            await queue.consume(take)
        for _ in range(8):
            again = asyncio.Event()
            connection.reconnect_callbacks.add(lambda *_, again=again: again.set())
            for protocol in list(broker.adapter._listeners.connections):
                protocol.abort()
            for number, channel in enumerate(channels):
                with contextlib.suppress(Exception):
                    async with asyncio.timeout(0.05):
                        await channel.default_exchange.publish(aio_pika.Message(b"x"), f"q{number}")
            await asyncio.wait_for(again.wait(), 10)
        assert connection.transport is not None

        def is_settled() -> bool:
            figures = broker.adapter.statistics()
            inner = connection.transport.connection.channels  # type: ignore[union-attr]
            theirs = sum(1 for number, each in inner.items() if number and each is not None)
            return (figures.connections, figures.gauges["channels"]) == (1, theirs)

        async with asyncio.timeout(10):
            while not is_settled():
                await asyncio.sleep(0.01)
    async with asyncio.timeout(10):
        while broker.adapter.statistics().connections:
            await asyncio.sleep(0.01)
    assert broker.adapter.statistics().gauges["channels"] == 0
    assert broker.store.client.topic("default", "q0") is None


async def test_heartbeats_keep_an_idle_connection(broker: Broker) -> None:
    url = broker.url() + "?heartbeat=1"
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await asyncio.sleep(3.5)
        await channel.declare_queue("still here", durable=True)


async def test_consumer_priority_and_exclusive_consumers(broker: Broker) -> None:
    async with await aio_pika.connect(broker.url()) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=100)
        queue = await channel.declare_queue("q", durable=True)
        seen: list[str] = []
        total = asyncio.Semaphore(0)

        def recorder(name: str):  # type: ignore[no-untyped-def]
            async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
                seen.append(name)
                await message.ack()
                total.release()

            return take

        await queue.consume(recorder("low"), arguments={"x-priority": -1})
        await queue.consume(recorder("high"), arguments={"x-priority": 5})
        for _ in range(20):
            await channel.default_exchange.publish(aio_pika.Message(b"x"), "q")
        for _ in range(20):
            await asyncio.wait_for(total.acquire(), 10)
        assert seen == ["high"] * 20
        other = await connection.channel()
        again = await other.declare_queue("q", durable=True)
        with pytest.raises(aiormq.exceptions.ChannelAccessRefused):
            await again.consume(recorder("exclusive"), exclusive=True)


async def test_a_transaction_is_committed_or_rolled_back(broker: Broker) -> None:
    async with await aio_pika.connect(broker.url()) as connection:
        channel = await connection.channel(publisher_confirms=False)
        queue = await channel.declare_queue("q", durable=True)
        transaction = channel.transaction()
        await transaction.select()
        await channel.default_exchange.publish(aio_pika.Message(b"dropped"), "q")
        await transaction.rollback()
        async with channel.transaction():
            await channel.default_exchange.publish(aio_pika.Message(b"kept"), "q")
            assert await queue.get(fail=False) is None
        message = await queue.get()
        assert message.body == b"kept"
