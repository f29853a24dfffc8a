"""A topic whose size is automatic, under the load of real clients: it grows, and shrinks again."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from tests.gateway.serving import Process, serving
from tests.sqs_client import sqs_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CALM_S = 5
KEYS = 5
FLOOD = bytes(100_000)
FLOOD_SECOND = 200
"""Messages: twice what one queue is meant for, by their bytes."""

PATIENCE_S = 90.0
LATE_S = 3.0
"""Beyond the 10 s: a second before it is looked at, one for the resize, and a slow machine."""


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    data = tmp_path_factory.mktemp("growing") / "data"
    with serving(data, WEIR_TEST_CALM_S=str(CALM_S)) as process:
        yield process


class Clients:
    """Who publishes by key (boto3), who floods (pika), and who consumes all of it (pika)."""

    def __init__(self, node: Process) -> None:
        self._node = node
        self._sqs: Any = sqs_client(f"http://127.0.0.1:{node.listeners['sqs.http']}")
        self._url = self._sqs.get_queue_url(QueueName="growing")["QueueUrl"]
        self.sent: dict[str, int] = defaultdict(int)
        self.flooded = 0
        self.got: dict[str, list[int]] = defaultdict(list)
        self.flood_got = 0
        self.floods, self.publishes, self.consumes = (threading.Event() for _ in range(3))
        self._threads = [
            threading.Thread(target=each, daemon=True)
            for each in (self._flood, self._publish, self._consume)
        ]

    def start(self) -> None:
        for each in (self.floods, self.publishes, self.consumes):
            each.set()
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        """Publish nothing more; return once all of it has come."""
        self.floods.clear()
        self.publishes.clear()
        for each in self._threads[:2]:
            each.join(PATIENCE_S)
        wait(lambda: self.flood_got >= self.flooded and self._have_all(), "all of it comes")
        self.consumes.clear()
        self._threads[2].join(PATIENCE_S)

    def _have_all(self) -> bool:
        return all(len(self.got[key]) >= count for key, count in self.sent.items())

    def _publish(self) -> None:
        at = 0
        while self.publishes.is_set():
            key = f"k{at % KEYS}"
            body = f"{key} {self.sent[key]}"
            self._sqs.send_message(QueueUrl=self._url, MessageBody=body, MessageGroupId=key)
            self.sent[key] += 1
            at += 1
            time.sleep(0.005)

    def _flood(self) -> None:
        with self._node.amqp() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            began = time.monotonic()
            while self.floods.is_set():
                channel.basic_publish("", "growing", FLOOD)
                self.flooded += 1
                early_s = self.flooded / FLOOD_SECOND - (time.monotonic() - began)
                if early_s > 0.01:
                    time.sleep(early_s)

    def _consume(self) -> None:
        with self._node.amqp() as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=200)
            for method, _, body in channel.consume("growing", inactivity_timeout=0.3):
                if method is not None:
                    if body.startswith(b"k"):
                        key, _, number = body.decode().partition(" ")
                        self.got[key].append(int(number))
                    else:
                        self.flood_got += 1
                    channel.basic_ack(method.delivery_tag)
                elif not self.consumes.is_set():
                    return


def wait(holds: Callable[[], object], what: str) -> None:
    until = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < until, what
        time.sleep(0.1)


def queues(node: Process) -> int:
    shown = node.api("GET", "/topics/growing").json["queues"]
    return sum(not each["sealed"] for each in shown)


def used_bytes(node: Process) -> float:
    """In the last second, as the node sees it."""
    name = 'weir_topic_size_used_bytes{tenant="default",topic="growing"} '
    lines = node.http("GET", "/metrics").body.decode().splitlines()
    return sum(float(each.removeprefix(name)) for each in lines if each.startswith(name))


def test_a_topic_grows_under_load_keeps_the_order_of_keys_and_shrinks_when_it_is_calm(
    node: Process,
) -> None:
    assert node.api("POST", "/topics", {"name": "growing", "type": "work"}).status == 201
    ordered = node.api("PATCH", "/topics/growing/groups/default", {"ordered": True})
    assert ordered.status == 200, ordered.body
    size = {"min": {"bytes": 1e6}, "max": {"bytes": 60e6}}
    assert node.api("PUT", "/topics/growing/size", size).status == 200
    assert queues(node) == 1
    clients = Clients(node)
    clients.start()
    above_since_s: float | None = None
    until = time.monotonic() + PATIENCE_S
    while queues(node) == 1:
        assert time.monotonic() < until, "it grows"
        above_since_s = (above_since_s or time.monotonic()) if used_bytes(node) > 10e6 else None
        time.sleep(0.1)
    if above_since_s is not None:
        assert time.monotonic() - above_since_s < 10 + LATE_S
    grown = queues(node)
    assert 2 <= grown <= 6
    clients.floods.clear()
    wait(lambda: queues(node) == 1, "it shrinks")
    clients.stop()
    assert clients.flood_got == clients.flooded
    assert clients.got == {key: list(range(number)) for key, number in clients.sent.items()}, (
        "in order, and all of it"
    )
    told = [
        each["facts"]["what"]
        for each in node.api("GET", "/events?limit=1000").json["events"]
        if each["event"] == "topic sized"
    ]
    assert sorted(told) == ["grow", "shrink"]
