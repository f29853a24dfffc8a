"""The exchange `weir.topics`, as aio-pika uses it."""

from __future__ import annotations

import aio_pika
import aiormq
import pytest

from tests.adapters.amqp.broker import Broker

pytestmark = pytest.mark.interop


async def test_a_queue_bound_by_a_topics_name_gets_copies(broker: Broker) -> None:
    async with await aio_pika.connect(broker.url()) as connection:
        channel = await connection.channel()
        source = await channel.declare_queue("orders.eu", durable=True)
        copies = await channel.declare_queue("audit", exclusive=True)
        topics = await channel.get_exchange("weir.topics")
        await copies.bind(topics, "orders.eu")
        await topics.publish(aio_pika.Message(b"by name"), "orders.eu")
        await channel.default_exchange.publish(aio_pika.Message(b"straight"), "orders.eu")
        for queue in (source, copies):
            for body in (b"by name", b"straight"):
                message = await queue.get(no_ack=True)
                assert message is not None
                assert message.body == body
        await copies.unbind(topics, "orders.eu")
        await topics.publish(aio_pika.Message(b"alone"), "orders.eu")
        assert await copies.get(no_ack=True, fail=False) is None


async def test_a_name_that_is_no_topic_is_unroutable(broker: Broker) -> None:
    async with await aio_pika.connect(broker.url()) as connection:
        channel = await connection.channel(on_return_raises=True)
        topics = await channel.get_exchange("weir.topics")
        with pytest.raises(aio_pika.exceptions.DeliveryError):
            await topics.publish(aio_pika.Message(b"x"), "nowhere")


async def test_it_is_neither_deleted_nor_declared_as_another_kind(broker: Broker) -> None:
    async with await aio_pika.connect(broker.url()) as connection:
        channel = await connection.channel()
        with pytest.raises(aiormq.exceptions.ChannelAccessRefused):
            await channel.exchange_delete("weir.topics")
        channel = await connection.channel()
        with pytest.raises(aiormq.exceptions.ChannelClosed):
            await channel.declare_exchange("weir.topics", "fanout", durable=True)
