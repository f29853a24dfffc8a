"""Clients that are to use another gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters import moving
from tests.adapters.heard_consumers import HeardConsumers
from tests.adapters.sqs.service import Service

if TYPE_CHECKING:
    import pytest


def test_a_client_that_is_moved_opens_another_connection(service: Service, sqs) -> None:

    async def opened() -> int:
        return service.adapter.counters.connections

    async def moved() -> int:
        return service.adapter.move(100, {})

    sqs.list_queues()
    before = service.run(opened)
    assert service.run(moved) > 0
    assert service.run(moved) == 0
    sqs.list_queues()
    assert service.run(opened) > before


def test_for_a_topic_the_connections_are_moved_that_receive_from_it(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of SQS clients the host is known, which all tests share: none of these has come back.
    monkeypatch.setattr(moving, "RETURN_MS", 0)
    heard = HeardConsumers(service.kernel, monkeypatch)
    clients = [service.client() for _ in range(3)]
    hot, cold = (clients[0].create_queue(QueueName=name)["QueueUrl"] for name in ("hot", "cold"))
    for client, url in zip(clients, (hot, hot, cold), strict=True):
        for _ in range(2):
            client.receive_message(QueueUrl=url)

    async def moved(topic: str, amount: int) -> int:
        return service.adapter.move(amount, {}, heard.pulling(topic))

    assert service.run(lambda: moved("hot", 1)) == 1
    assert service.run(lambda: moved("hot", 9)) == 1
    assert service.run(lambda: moved("hot", 9)) == 0
    assert service.run(lambda: moved("cold", 9)) == 1
    for client in clients:
        client.close()
