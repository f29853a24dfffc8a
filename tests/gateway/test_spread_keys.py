"""Keys of a topic that is spread over Raft groups, in a cluster of processes (ADR 31): a successor
holds back those that its predecessor, which another store leads, has unsettled, and no others.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.gateway.cluster import until
from tests.sqs_client import sqs_client

if TYPE_CHECKING:
    from tests.gateway.cluster import Running
    from tests.gateway.serving import Process

NAME = "spread-keys"
FREE = [f"free-{number}" for number in range(6)]
STUCK = [f"stuck-{number}" for number in range(6)]
HOLD_S = 600
"""Longer than the test: nothing comes back by itself."""

CALM_S = 3.0
"""So long nothing of a key comes that is held back. Where it fails this is what it takes to see it;
nothing that has to come is waited for by it."""


class Reader:
    """A client of SQS at one gateway, that settles what it is told to."""

    def __init__(self, gateway: Process) -> None:
        self._sqs: Any = sqs_client(
            f"http://127.0.0.1:{gateway.listeners['sqs.http']}", retries={"total_max_attempts": 9}
        )
        self._url = self._sqs.create_queue(QueueName=NAME)["QueueUrl"]
        self.handles: dict[str, str] = {}
        """By body: of what it has got and not settled."""

    def read(self) -> None:
        """Whatever is to be had."""
        found = self._sqs.receive_message(
            QueueUrl=self._url, MaxNumberOfMessages=10, VisibilityTimeout=HOLD_S, WaitTimeSeconds=1
        )
        for each in found.get("Messages", ()):
            assert each["Body"] not in self.handles, "it is handed out twice"
            self.handles[each["Body"]] = each["ReceiptHandle"]

    def read_until(self, *bodies: str) -> None:
        def came() -> bool:
            self.read()
            return self.handles.keys() >= set(bodies)

        until(came, lambda: f"{sorted(set(bodies) - self.handles.keys())} come")

    def settle(self, *bodies: str) -> None:
        for each in bodies:
            self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=self.handles.pop(each))


def publish(gateway: Process, keys: list[str], what: str) -> dict[str, int]:
    """A message of each key, `KEY WHAT`; the queue of each."""
    queues = {}
    for key in keys:
        message = {"body": f"{key} {what}", "ordering_key": key}
        sent = gateway.api("POST", f"/topics/{NAME}/messages", message)
        assert sent.status < 300, sent.body
        queues[key] = sent.json["queue"]
    return queues


def test_a_successor_led_by_another_store_holds_back_what_is_unsettled_and_nothing_else(
    running: Running,
) -> None:
    cluster, gateways = running
    writer, other = gateways
    reader = Reader(other)
    group = f"/topics/{NAME}/groups/default"
    assert writer.api("PATCH", group, {"ordered": True}).status == 200
    ((home,),) = [
        {each["raft_group"] for each in writer.api("GET", f"/topics/{NAME}").json["queues"]}
    ]
    publish(writer, [*FREE, *STUCK], "1")
    reader.read_until(*(f"{key} 1" for key in (*FREE, *STUCK)))
    reader.settle(*(f"{key} 1" for key in FREE))

    spread = {"queues": 4, "by_key": True, "spread": True}
    resized = writer.api("POST", f"/topics/{NAME}/resize", spread)
    assert resized.status == 200, resized.body
    places = {each["number"]: each["raft_group"] for each in resized.json["queues"]}
    queues = publish(writer, [*FREE, *STUCK], "2")
    elsewhere = [key for key in STUCK if places[queues[key]] != home]
    assert elsewhere
    assert any(places[queues[key]] != home for key in FREE)
    leaders = cluster.leaders()
    assert len({leaders[group] for group in set(places.values())}) > 1

    reader.read_until(*(f"{key} 2" for key in FREE))
    cluster.stores[leaders[home]].kill()
    reader.settle(*(f"{key} 2" for key in FREE))
    until(lambda: cluster.leaders()[home] not in {0, leaders[home]}, "another one leads")
    publish(writer, FREE, "3")
    reader.read_until(*(f"{key} 3" for key in FREE))
    calm = time.monotonic() + CALM_S
    while time.monotonic() < calm:
        reader.read()
    held_back = {body for body in reader.handles if body.startswith("stuck")}
    assert held_back == {f"{key} 1" for key in STUCK}

    first = elsewhere[0]
    reader.settle(f"{first} 1")
    reader.read_until(f"{first} 2")
    held_back = {body for body in reader.handles if body.startswith("stuck")}
    assert held_back == {f"{key} 1" for key in STUCK if key != first} | {f"{first} 2"}
    left = [key for key in STUCK if key != first]
    reader.settle(*(f"{key} 1" for key in left))
    reader.read_until(*(f"{key} 2" for key in left))
    writer.api("DELETE", f"/topics/{NAME}")
