"""AMQP clients over a bad network between gateway and store (`tests.simulator.hostile`).

The tests are those of the real clients, unchanged: whatever the network does, a client sees what it
sees without it. These stand for all; WEIR_HOSTILE=<seed> runs every test of the adapter so.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aio_pika
import pytest

from tests.adapters.amqp import test_aio_pika, test_pika, test_pika_transactions
from tests.adapters.amqp.broker import Broker, broker_in_thread, running_broker
from tests.simulator.hostile import HostileClient

SEED = 7


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Broker]:
    async with running_broker(tmp_path / "data", hostile=SEED) as running:
        yield running


@pytest.fixture
def threaded_broker(tmp_path: Path) -> Iterator[Broker]:
    with broker_in_thread(tmp_path / "data", hostile=SEED) as running:
        yield running


test_topics_headers_and_exchange_bindings = test_aio_pika.test_topics_headers_and_exchange_bindings
test_a_robust_connection_comes_back = (
    test_aio_pika.test_a_robust_connection_comes_back_and_redeclares
)
test_consumer_priority = test_aio_pika.test_consumer_priority_and_exclusive_consumers
test_publish_confirm_consume_ack = test_pika.test_publish_confirm_consume_ack
test_nack_requeues_in_place = test_pika.test_nack_requeues_in_place_and_marks
test_a_closed_channel_gives_back = test_pika.test_a_closed_channel_gives_its_messages_back
test_rejected_messages = test_pika.test_rejected_messages_go_to_the_dead_letter_exchange
test_priorities = test_pika.test_priorities_are_served_first
test_an_exclusive_queue = test_pika.test_an_exclusive_queue_is_its_connections_own
test_an_auto_delete_queue = test_pika.test_an_auto_delete_queue_goes_with_its_last_consumer
test_purge_and_conditional_deletion = test_pika.test_purge_and_conditional_deletion
test_a_single_active_consumer = test_pika.test_a_single_active_consumer_and_its_successor
test_a_delivery_limit = test_pika.test_a_delivery_limit_dead_letters
other = test_pika_transactions.other
test_a_transaction = test_pika_transactions.test_a_transaction_takes_effect_at_its_commit
test_a_rollback = (
    test_pika_transactions.test_what_is_rolled_back_was_never_published_and_can_be_acked_again
)
test_a_deleted_queue = test_pika.test_a_deleted_queue_cancels_its_consumers


async def test_confirmed_messages_come_once_and_in_order(broker: Broker) -> None:
    count = 400
    connection = await aio_pika.connect(broker.url())
    async with connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=20)
        queue = await channel.declare_queue("work", durable=True)
        got: list[int] = []
        done = asyncio.Event()

        async def take(message: aio_pika.abc.AbstractIncomingMessage) -> None:
            got.append(int(message.body))
            assert not message.redelivered
            await message.ack()
            if len(got) == count:
                done.set()

        await queue.consume(take)
        publish = channel.default_exchange.publish
        async with asyncio.timeout(60):
            for start in range(0, count, 20):
                await asyncio.gather(
                    *[
                        publish(aio_pika.Message(b"%d" % number), "work")
                        for number in range(start, start + 20)
                    ]
                )
            await done.wait()
        await asyncio.sleep(0.2)
    assert got == list(range(count))
    client = broker.client
    assert isinstance(client, HostileClient)
    assert sum(client.link.failures.values()) > 0
    assert client.resets > 0
