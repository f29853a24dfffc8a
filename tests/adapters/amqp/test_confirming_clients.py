"""Many publishes in flight through real clients, to targets that answer at different times: a
durable queue (after the disk), an exclusive one and nowhere (at once). Every one is confirmed.
"""

from __future__ import annotations

import asyncio
import json
from itertools import count
from pathlib import Path

import aio_pika
import pika
import pytest
from pika.channel import Channel
from pika.spec import Basic

from tests import npm_clients
from tests.adapters.amqp.broker import Broker, broker_in_thread

ROUNDS = 50
WAIT_S_MAX = 30


@pytest.mark.interop
async def test_aio_pika_hears_of_every_publish(broker: Broker) -> None:
    async with await aio_pika.connect(broker.url()) as connection:
        channel = await connection.channel()
        await channel.declare_queue("durable", durable=True)
        exclusive = await channel.declare_queue("", exclusive=True)
        for _ in range(ROUNDS):
            sent = [
                channel.default_exchange.publish(
                    aio_pika.Message(b"x"),
                    key,
                    mandatory=bool(number % 2),
                )
                for number, key in zip(
                    range(100), ("durable", exclusive.name, "nowhere") * 34, strict=False
                )
            ]
            await asyncio.wait_for(asyncio.gather(*sent), WAIT_S_MAX)
        left = await channel.declare_queue("durable", passive=True)
        assert left.declaration_result.message_count == ROUNDS * 34


@pytest.mark.interop
def test_pika_hears_of_every_publish(threaded_broker: Broker) -> None:
    """With pika's callbacks, which give confirms as they come."""
    waiting: set[int] = set()
    named_again: list[int] = []
    tags = count(1)
    rounds = iter(range(ROUNDS))

    def publish(channel: Channel, exclusive: str) -> None:
        if next(rounds, None) is None:
            channel.connection.close()
            return
        for number in range(33):
            for key in ("durable", exclusive, "nowhere"):
                channel.basic_publish("", key, b"x", mandatory=bool(number % 2))
                waiting.add(next(tags))

    def opened(channel: Channel) -> None:
        channel.add_on_return_callback(lambda *_: None)
        channel.queue_declare("durable", durable=True)
        channel.queue_declare(
            "", exclusive=True, callback=lambda ok: begin(channel, ok.method.queue)
        )

    def begin(channel: Channel, exclusive: str) -> None:
        def confirmed(frame: pika.frame.Method[Basic.Ack]) -> None:
            tag = frame.method.delivery_tag
            if tag not in waiting:
                named_again.append(tag)
            if frame.method.multiple:
                waiting.difference_update({each for each in waiting if each <= tag})
            waiting.discard(tag)
            if not waiting:
                publish(channel, exclusive)

        channel.confirm_delivery(confirmed, callback=lambda _: publish(channel, exclusive))

    connection = pika.SelectConnection(
        pika.URLParameters(threaded_broker.url()),
        on_open_callback=lambda it: it.channel(on_open_callback=opened),
        on_close_callback=lambda it, _: it.ioloop.stop(),
    )
    connection.ioloop.call_later(WAIT_S_MAX, connection.ioloop.stop)
    connection.ioloop.start()
    connection.ioloop.close()
    assert connection.is_closed
    assert not waiting
    assert named_again == []
    assert next(tags) == ROUNDS * 99 + 1


@pytest.mark.parametrize("package", ["amqplib", "rabbitmq-client", "@cloudamqp/amqp-client"])
def test_clients_of_npm_hear_of_every_publish(package: str, tmp_path: Path) -> None:
    program = (npm_clients.FOLDER / "amqp_confirms.cjs").read_text()
    with broker_in_thread(tmp_path / "data") as broker:
        said = npm_clients.run_with(package, program, package, broker.url(), str(ROUNDS))
    assert json.loads(said) == {"confirmed": ROUNDS * 90}
