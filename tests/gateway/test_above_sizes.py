"""What becomes of publishers above the size of a topic, as real clients meet it."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import aiormq
import aiormq.exceptions
import botocore.exceptions
import paho.mqtt.client as mqtt
import pytest

from tests.gateway.cluster import gateways_of_one_store, until
from tests.gateway.limited import TOO_MUCH, limited, rocketmq
from tests.gateway.serving import Process, serving
from tests.gateway.test_limits import weir
from tests.gateway.test_limits_cluster import LIMIT, SECONDS, Publisher
from tests.gateway.test_mqtt import client
from tests.sqs_client import sqs_client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MESSAGES, BYTES = "size.published_messages", "size.published_bytes"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(tmp_path_factory.mktemp("sizes") / "data") as process:
        yield process


def give_size(node: Process, topic: str, above: str, **figures: float) -> dict[str, Any]:
    """A topic keeps a size."""
    body = {"min": figures, "max": figures, "above": above}
    given = node.api("PUT", f"/topics/{topic}/size", body)
    assert given.status == 200, given.body
    shown: dict[str, Any] = given.json["size"]
    return shown


def test_a_size_is_set_shown_and_lifted(node: Process) -> None:
    assert node.api("POST", "/topics", {"name": "shown", "type": "work"}).status == 201
    done = weir(node, "topic", "size", "shown", "--size", "small", "--above", "fail")
    assert done.returncode == 0, done.stderr
    size = node.api("GET", "/topics/shown").json["size"]
    small = {"messages": 500, "bytes": 1e6}
    assert size == {
        "min": small,
        "max": small,
        "now": small,
        "by_key": False,
        "spread": False,
        "above": "fail",
    }, "one that it keeps takes no word about its order"
    told = weir(node, "topic", "info", "shown").stdout
    assert "messages=500,bytes=1000000" in told
    assert "fail" in told
    (row,) = (each for each in weir(node, "topic", "ls").stdout.splitlines() if "shown" in each)
    assert row.split()[-1] == "messages=500,bytes=1000000"
    until(
        lambda: (
            b'weir_topic_size_messages{tenant="default",topic="shown",bound="largest"} 500'
            in node.http("GET", "/metrics").body
        ),
        "it is a metric",
    )
    for wrong in (["--size", "small", "--max", "large"], ["--above", "wait"], ["--min", "small"]):
        assert weir(node, "topic", "size", "shown", *wrong).returncode == 2
    refused = weir(node, "topic", "size", "shown", "--size", "large")
    assert "in the order of its one queue" in refused.stderr
    assert weir(node, "topic", "size", "shown", "--off").returncode == 0
    assert node.api("GET", "/topics/shown").json["size"] is None
    assert node.api("PATCH", "/limits/size/shown", {"published_messages": 1}).status == 404


def test_sqs_is_throttled_at_once_or_delayed(node: Process) -> None:
    client = sqs_client(f"http://127.0.0.1:{node.listeners['sqs.http']}")
    entries = [{"Id": str(number), "MessageBody": "a body"} for number in range(10)]
    queues = {
        each: client.create_queue(QueueName=f"parcels-{each}")["QueueUrl"]
        for each in ("fail", "wait", "serve")
    }
    for above in queues:
        give_size(node, f"parcels-{above}", above, messages=10)
    began = time.monotonic()
    assert len(client.send_message_batch(QueueUrl=queues["fail"], Entries=entries)["Successful"])
    client.send_message_batch(QueueUrl=queues["fail"], Entries=entries[:1])
    with pytest.raises(botocore.exceptions.ClientError) as raised:
        client.send_message(QueueUrl=queues["fail"], MessageBody="too much")
    assert raised.value.response["Error"]["Code"] == "RequestThrottled"
    assert time.monotonic() - began < 0.9, "nobody waits"
    assert limited(node, MESSAGES, "refused") == 1
    patient = sqs_client(client.meta.endpoint_url, retries={"total_max_attempts": 8})
    patient.send_message(QueueUrl=queues["fail"], MessageBody="in time")
    began = time.monotonic()
    for _ in range(25):
        client.send_message(QueueUrl=queues["wait"], MessageBody="a body")
    assert 1.2 < time.monotonic() - began < 8, "25 at 10 a second, of which 10 may come at once"
    assert limited(node, MESSAGES, "delayed") > 0
    for _ in range(5):
        client.send_message_batch(QueueUrl=queues["serve"], Entries=entries)


async def test_amqp_nacks_who_has_said_so_and_holds_others(node: Process) -> None:
    connection = await aiormq.connect(
        f"amqp://guest:guest@127.0.0.1:{node.listeners['amqp.tcp']}/%2f"
    )
    channel = await connection.channel(publisher_confirms=True)
    arguments = {"x-overflow": "reject-publish"}
    await channel.queue_declare("quick", durable=True, arguments=arguments)
    await asyncio.to_thread(give_size, node, "quick", "fail", messages=100)
    before = await asyncio.to_thread(limited, node, MESSAGES, "refused")
    told: list[Any] = []
    began = time.monotonic()
    while time.monotonic() - began < 2:
        told += await asyncio.gather(
            *(channel.basic_publish(b"a body", routing_key="quick") for _ in range(20)),
            return_exceptions=True,
        )
    seconds = time.monotonic() - began
    nacked = [each for each in told if isinstance(each, aiormq.exceptions.DeliveryError)]
    counted = await channel.queue_declare("quick", durable=True, passive=True)
    stored = counted.message_count
    assert stored == len(told) - len(nacked)
    assert 100 <= stored <= 100 * (seconds + 1) + 40, "nothing is owed beyond a batch"
    refused = await asyncio.to_thread(limited, node, MESSAGES, "refused")
    assert refused - before == len(nacked) > 0

    plain = await connection.channel(publisher_confirms=False)
    began = time.monotonic()
    for _ in range(200):
        await plain.basic_publish(b"a body", routing_key="quick")
    after = await plain.queue_declare("quick", durable=True, passive=True)
    assert after.message_count == stored + 200, "who has not said so loses nothing unheard"
    assert time.monotonic() - began > 0.8, "200 at 100 a second, of which 100 may come at once"
    await connection.close()


def test_mqtt_refuses_what_hears_no_drops_qos_0_and_holds_the_old(node: Process) -> None:
    with node.amqp() as amqp, client(node, "device") as device:
        channel = amqp.channel()
        channel.queue_declare("kitchen", durable=True)
        channel.queue_bind("kitchen", "amq.topic", "kitchen.oven")
        give_size(node, "kitchen", "fail", bytes=4_000)
        before = limited(node, BYTES, "refused"), limited(node, BYTES, "dropped")
        assert device.publish("kitchen/oven", bytes(20_000)) == 0, "one message always passes"
        began = time.monotonic()
        assert device.publish("kitchen/oven", b"refused") == TOO_MUCH
        assert device.publish("kitchen/hall", b"of another topic") in {0, 16}
        device.client.publish("kitchen/oven", b"dropped", 0)
        old, codes = old_client(node), []
        old.on_publish = lambda _c, _u, _m, code, _p: codes.append(code)
        old.publish("kitchen/oven", b"dropped too", 0)
        assert time.monotonic() - began < 3, "nobody was held for that"
        until(lambda: limited(node, BYTES, "dropped") - before[1] == 2, "both were dropped")
        assert limited(node, BYTES, "refused") - before[0] == 1
        old.publish("kitchen/oven", bytes(8_000), 1)
        until(lambda: codes[1:], "it is taken, and owed for")
        old.publish("kitchen/oven", b"late", 1)
        until(lambda: codes[2:], "the old client is held, and loses nothing")
        assert time.monotonic() - began > 4.5, "28,000 bytes, of which 4,000 may come at once"
        assert channel.queue_declare("kitchen", passive=True).method.message_count == 3
        assert old.is_connected()
        old.loop_stop()
        old.disconnect()


def old_client(node: Process) -> mqtt.Client:
    """Of MQTT 3.1.1, which has no word for no."""
    old = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "old", protocol=mqtt.MQTTv311)
    old.username_pw_set("guest", "guest")
    connected = threading.Event()
    old.on_connect = lambda *_: connected.set()
    old.connect("127.0.0.1", node.listeners["mqtt.tcp"])
    old.loop_start()
    assert connected.wait(20)
    return old


ROCKETMQ = """
import json, sys
from rocketmq import ClientConfiguration, Credentials, Message, Producer

producer = Producer(ClientConfiguration(sys.argv[1], Credentials("weir", "weir-secret")))
producer.startup()
came = []
for _ in range(14):
    message = Message()
    message.topic, message.body = "receipts-fail", b"a body"
    try:
        producer.send(message)
        came.append("sent")
    except Exception as error:
        came.append(str(error))
        break
print(json.dumps(came), flush=True)
producer.shutdown()
"""


def test_rocketmq_hears_too_many_requests_at_once(node: Process, tmp_path: Path) -> None:
    assert node.api("POST", "/topics", {"name": "receipts-fail"}).status == 201
    give_size(node, "receipts-fail", "fail", messages=5)
    came = rocketmq(node, tmp_path, ROCKETMQ)
    assert came[:5] == ["sent"] * 5
    assert "42900" in came[-1], came


def test_the_next_topic_of_a_name_is_not_bound_by_the_size_of_the_last(node: Process) -> None:
    client = sqs_client(f"http://127.0.0.1:{node.listeners['sqs.http']}")
    for above in ("fail", None):
        queue = client.create_queue(QueueName="reborn")["QueueUrl"]
        if above:
            give_size(node, "reborn", above, messages=1)
        sent = [attempt(client, queue) for _ in range(6)]
        assert all(sent) == (above is None), sent
        node.api("DELETE", "/topics/reborn")


def attempt(client: Any, queue: str) -> bool:
    try:
        client.send_message(QueueUrl=queue, MessageBody="a body")
    except botocore.exceptions.ClientError:
        return False
    return True


def test_two_gateways_share_the_size_of_a_topic(tmp_path: Path) -> None:
    with gateways_of_one_store(tmp_path) as gateways:
        first, second = gateways
        assert first.api("POST", "/topics", {"name": "shared", "type": "work"}).status == 201
        give_size(first, "shared", "wait", messages=LIMIT)
        until(lambda: second.api("GET", "/topics/shared").json["size"], "the other one knows")
        publishers = [Publisher(each, "shared") for each in gateways for _ in range(3)]
        for each in publishers:
            each.start()
        time.sleep(3)
        before = sum(each.count for each in publishers)
        time.sleep(SECONDS)
        allowed = sum(each.count for each in publishers) - before
        for each in publishers:
            each.is_over = True
        for each in publishers:
            each.join(20)
    assert 0.9 * LIMIT * SECONDS <= allowed <= 1.1 * LIMIT * SECONDS
