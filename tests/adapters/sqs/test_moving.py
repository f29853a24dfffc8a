"""Clients that are to use another gateway."""

from __future__ import annotations

from tests.adapters.sqs.service import Service


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
