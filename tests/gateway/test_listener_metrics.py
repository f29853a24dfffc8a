"""Figures of listeners, of a node that real clients use."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pika
import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.matrix.amqp_peer import AmqpPeer
from tests.matrix.contract import Neutral, Peer
from tests.matrix.mqtt_peer import MqttPeer
from tests.matrix.rocketmq_peer import RocketmqPeer
from tests.matrix.sqs_peer import SqsPeer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.serving import Process

LISTENERS = {
    "amqp.tcp": AmqpPeer,
    "mqtt.tcp": MqttPeer,
    "sqs.http": SqsPeer,
    "rocketmq.grpc": RocketmqPeer,
}


def figures(node: Process) -> dict[tuple[str, str, str], float]:
    """By name, listener, and reason or bound."""
    text = node.http("GET", "/metrics").body.decode()
    return {
        (
            each.name,
            each.labels["listener"],
            each.labels.get("reason", each.labels.get("le", "")),
        ): (each.value)
        for metric in text_string_to_metric_families(text)
        for each in metric.samples
        if "listener" in each.labels
    }


@pytest.mark.parametrize(("listener", "kind"), LISTENERS.items(), ids=LISTENERS)
def test_a_publish_is_timed_and_its_connection_told_of(
    node: Process, listener: str, kind: type[Peer], tmp_path: Path
) -> None:
    node.api("POST", "/topics", {"name": "clocked"})
    before = figures(node)
    after = node.api("GET", "/events?after=999999999").json["next"]
    peer = kind(node, str(tmp_path))
    try:
        peer.write("clocked", Neutral(body=b"x"))
        now = figures(node)
        for name, least in (
            ("weir_listener_connections", 1),
            ("weir_listener_connections_opened_total", 1),
            ("weir_listener_connections_signed_in_total", 1),
            ("weir_listener_publish_seconds_count", 1),
        ):
            row = (name, listener, "")
            assert now[row] - before[row] >= least, row
        buckets = [value for row, value in now.items() if row[:2] == (BUCKET, listener)]
        assert buckets == sorted(buckets)
        assert buckets[-1] == now["weir_listener_publish_seconds_count", listener, ""]
    finally:
        peer.close()
    events = node.api("GET", f"/events?after={after}&limit=1000").json["events"]
    opened = [each["facts"] for each in events if each["event"] == "connection opened"]
    assert listener in {each["listener"] for each in opened}
    (told, *_) = [each for each in opened if each["listener"] == listener]
    assert told["tenant"] == "default"
    assert told["user"] in {"guest", "weir"}
    deadline = time.monotonic() + 20
    while (
        figures(node)["weir_listener_connections", listener, ""]
        > before["weir_listener_connections", listener, ""]
    ):
        assert time.monotonic() < deadline, "it is gone, and not counted any more"
        time.sleep(0.05)


BUCKET = "weir_listener_publish_seconds_bucket"


def test_a_refused_login_of_amqp_is_counted_by_its_listener(node: Process) -> None:
    row = ("weir_refused_total", "amqp.tcp", "login")
    before = figures(node)[row]
    wrong = pika.ConnectionParameters(
        "127.0.0.1",
        node.listeners["amqp.tcp"],
        credentials=pika.PlainCredentials("guest", "no such password"),
    )
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        pika.BlockingConnection(wrong)
    assert figures(node)[row] == before + 1
