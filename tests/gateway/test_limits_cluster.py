"""Limits of a cluster: two gateways together allow what one would, with a real client at each."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from tests.gateway.cluster import gateways_of_one_store, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.serving import Process

LIMIT = 300
SECONDS = 10


class Publisher(threading.Thread):
    """Publishes as fast as it may, and counts what was confirmed."""

    def __init__(self, gateway: Process, queue: str) -> None:
        super().__init__(daemon=True)
        self._gateway = gateway
        self._queue = queue
        self.count = 0
        self.is_over = False

    def run(self) -> None:
        with self._gateway.amqp() as connection:
            channel = connection.channel()
            channel.queue_declare(self._queue, durable=True)
            channel.confirm_delivery()
            while not self.is_over:
                channel.basic_publish("", self._queue, b"a body")
                self.count += 1


def stored_at(gateway: Process) -> int:
    """Messages that are stored, as a gateway shows."""
    used = gateway.api("GET", "/limits").json["used"]
    return sum(each["used"] for each in used if each["kind"] == "stored_messages")


def test_two_gateways_share_what_a_tenant_may_use(tmp_path: Path) -> None:
    with gateways_of_one_store(tmp_path) as gateways:
        first, second = gateways
        made = first.api("PATCH", "/limits/tenant/default", {"published_messages": LIMIT})
        assert made.status == 200, made.body
        until(lambda: second.api("GET", "/limits").json["limits"], "the other gateway knows")
        publishers = [
            Publisher(gateway, f"queue-{number}-{other}")
            for number, gateway in enumerate(gateways)
            for other in range(3)
        ]
        for each in publishers:
            each.start()
        time.sleep(3)
        before = sum(each.count for each in publishers)
        time.sleep(SECONDS)
        allowed = sum(each.count for each in publishers) - before
        shares = [each.api("GET", "/limits").json["used"][0]["share"] for each in gateways]
        for each in publishers:
            each.is_over = True
        for each in publishers:
            each.join(20)
        stored = {"published_messages": None, "stored_messages": 10**6}
        assert first.api("PATCH", "/limits/tenant/default", stored).status == 200
        for each in gateways:
            until(lambda each=each: 0 < stored_at(each) < 10**6, "the manager tells what is stored")
    assert 0.9 * LIMIT * SECONDS <= allowed <= 1.1 * LIMIT * SECONDS, shares
    assert 0.3 < shares[0] < 0.7, shares
