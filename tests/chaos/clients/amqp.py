"""aio-pika: publisher confirms, and acks of what is pushed; and both in transactions."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import aio_pika
from aio_pika.abc import AbstractIncomingMessage
from aiormq.exceptions import DeliveryError

from tests.chaos.clients.port import ANSWER_SECONDS, POLL_SECONDS, Refused, Taken

PREFETCH = 20


class _Connection:
    """A channel with a loop of its own, which runs while it is asked something."""

    def __init__(self, ports: dict[str, int], *, transactional: bool) -> None:
        self._runner = asyncio.Runner()
        self._transactional = transactional
        self._url = f"amqp://guest:guest@127.0.0.1:{ports['amqp']}/?heartbeat=0"
        self.channel = self.run(self._open())

    async def _open(self) -> aio_pika.abc.AbstractChannel:
        self._connection = await aio_pika.connect(self._url, timeout=ANSWER_SECONDS)
        channel = await self._connection.channel(publisher_confirms=not self._transactional)
        if self._transactional:
            await (await channel.get_underlay_channel()).tx_select()
        return channel

    async def commit(self) -> None:
        """Have all since the last commit done."""
        await (await self.channel.get_underlay_channel()).tx_commit()

    def run(self, work: Any) -> Any:
        async def within() -> Any:
            async with asyncio.timeout(ANSWER_SECONDS):
                return await work

        return self._runner.run(within())

    def close(self) -> None:
        async def close() -> None:
            async with asyncio.timeout(0.5):
                await self._connection.close()

        try:
            self._runner.run(close())
        finally:
            self._runner.close()


class AmqpPublisher:
    copies = 1
    transactional = False

    def __init__(self, ports: dict[str, int], topic: str, lane: str) -> None:
        self._connection = _Connection(ports, transactional=self.transactional)
        self._topic = topic

    def _message(self, ident: str, key: str) -> aio_pika.Message:
        headers = {"x-message-group-id": key}
        return aio_pika.Message(ident.encode(), delivery_mode=2, headers=headers)

    def send(self, ident: str, key: str) -> None:
        exchange = self._connection.channel.default_exchange
        try:
            self._connection.run(
                exchange.publish(self._message(ident, key), self._topic, mandatory=True)
            )
        except DeliveryError as error:
            # A nack says that it may be stored in some places (docs/ok.md); a return says that it
            # is in none.
            if type(error) is DeliveryError:
                raise
            raise Refused(repr(error)) from error

    def close(self) -> None:
        self._connection.close()


class AmqpTxPublisher(AmqpPublisher):
    """What it publishes is there when tx.commit-ok has come."""

    transactional = True

    def send(self, ident: str, key: str) -> None:
        self._connection.run(self._publish(ident, key))

    async def _publish(self, ident: str, key: str) -> None:
        exchange = self._connection.channel.default_exchange
        await exchange.publish(self._message(ident, key), self._topic)
        await self._connection.commit()


class AmqpConsumer:
    transactional = False

    def __init__(self, ports: dict[str, int], topic: str, lane: str) -> None:
        self._connection = _Connection(ports, transactional=self.transactional)
        self._arrived: asyncio.Queue[Taken | None] = asyncio.Queue()
        self._connection.run(self._begin(topic))

    async def _begin(self, topic: str) -> None:
        channel = self._connection.channel
        await channel.set_qos(PREFETCH)
        queue = await channel.get_queue(topic, ensure=False)
        channel.close_callbacks.add(lambda *_: self._arrived.put_nowait(None))
        await queue.consume(self._came)

    def _came(self, message: AbstractIncomingMessage) -> None:
        at = time.monotonic()
        marked = bool(message.redelivered)
        self._arrived.put_nowait(Taken(message.body.decode(), marked, at, message))

    def take(self) -> list[Taken]:
        return self._connection.run(self._next())

    async def _next(self) -> list[Taken]:
        try:
            async with asyncio.timeout(POLL_SECONDS):
                found = [await self._arrived.get()]
        except TimeoutError:
            return []
        while not self._arrived.empty():
            found.append(self._arrived.get_nowait())
        if None in found:
            raise ConnectionError("the channel is closed")
        return [each for each in found if each is not None]

    def ack(self, taken: list[Taken]) -> bool:
        return self._connection.run(self._ack(taken))

    async def _ack(self, taken: list[Taken]) -> bool:
        await taken[-1].handle.ack(multiple=True)
        return False

    def close(self) -> None:
        self._connection.close()


class AmqpTxConsumer(AmqpConsumer):
    """What it has acked does not come again once tx.commit-ok has."""

    transactional = True

    async def _ack(self, taken: list[Taken]) -> bool:
        await super()._ack(taken)
        await self._connection.commit()
        return True
