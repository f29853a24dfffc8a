"""A tenant that is made, changed and removed while its clients are connected, in every protocol."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import botocore.exceptions
import pika
import pika.exceptions
import pyarrow.parquet as pq
import pytest

from metering.schema import parse_manifest
from metering.schema.manifest import MANIFEST_NAME
from tests.gateway.cluster import until
from tests.gateway.serving import Process, environment, serving
from tests.gateway.test_mqtt import Client
from tests.sqs_client import sqs_client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ROCKETMQ = """
import json, os, sys
from rocketmq import ClientConfiguration, Credentials, Message, Producer

address, key, secret, namespace = sys.argv[1:]
producer = Producer(ClientConfiguration(address, Credentials(key, secret), namespace, 5))
producer.startup()
for _ in sys.stdin:
    message = Message()
    message.topic, message.body = "orders", b"by rocketmq"
    try:
        producer.send(message)
        print(json.dumps("sent"), flush=True)
    except Exception as error:
        print(json.dumps(str(error)), flush=True)
os._exit(0)
"""

PASSWORD = "alice's password"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(
        tmp_path_factory.mktemp("run-time"), "node.metering.flush_interval_s=3600"
    ) as process:
        yield process


class Clients:
    """Alice of a tenant, by each protocol, with real clients that stay connected."""

    def __init__(self, node: Process, tenant: str, host: str) -> None:
        asked = {"name": "alice", "password": PASSWORD, "policies": ["full"]}
        assert node.api("POST", f"/users?tenant={tenant}", asked).status == 201
        key = node.api("POST", f"/keys?tenant={tenant}", {"user": "alice"}).json
        self.key = (key["key_id"], key["secret"])
        self.login, self.host, self.node = f"{tenant}:alice", host, node
        self.amqp = self.open_amqp()
        self.channel = self.amqp.channel()
        self.channel.confirm_delivery()
        self.channel.queue_declare("orders", durable=True)
        self.sqs = sqs_client(f"http://127.0.0.1:{node.listeners['sqs.http']}", *self.key)
        self.mqtt = Client(node, "oven", self.login, PASSWORD, kept=True)
        self.gone: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.mqtt.client.on_disconnect = lambda _c, _u, _f, code, _p: self.gone.put(code.value)
        address = f"127.0.0.1:{node.listeners['rocketmq.grpc']}"
        words = [sys.executable, "-c", ROCKETMQ, address, *self.key, host]
        self.rocketmq = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment(GRPC_VERBOSITY="NONE"),
            text=True,
        )

    def open_amqp(self) -> pika.BlockingConnection:
        port = self.node.listeners["amqp.tcp"]
        user = pika.PlainCredentials(self.login, PASSWORD)
        return pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", port, self.host, user)
        )

    def by_rocketmq(self) -> str:
        assert self.rocketmq.stdin is not None
        assert self.rocketmq.stdout is not None
        self.rocketmq.stdin.write("send\n")
        self.rocketmq.stdin.flush()
        said: str = json.loads(self.rocketmq.stdout.readline())
        return said

    def publish(self) -> str:
        """By each; the account of the queue."""
        self.channel.basic_publish("", "orders", b"by amqp")
        url: str = self.sqs.get_queue_url(QueueName="orders")["QueueUrl"]
        self.sqs.send_message(QueueUrl=url, MessageBody="by sqs")
        assert self.mqtt.publish("kitchen/oven", b"by mqtt", retain=True) in {0, 0x10}
        assert self.by_rocketmq() == "sent"
        return url.split("/")[3]

    def close(self) -> None:
        with self.rocketmq:
            self.rocketmq.kill()
        self.mqtt.client.disconnect()
        self.mqtt.client.loop_stop()
        self.sqs.close()
        if self.amqp.is_open:
            self.amqp.close()


def removed(node: Process, tenant: str) -> bool:
    return bool(node.api("GET", f"/tenants/{tenant}?wait=5").json["state"] == "gone")


def depth(node: Process, tenant: str) -> int:
    topic = node.api("GET", f"/topics/orders?tenant={tenant}").json
    return int(topic["groups"][0]["ready"])


def test_a_tenant_is_made_used_removed_and_made_again(node: Process) -> None:
    made = node.api(
        "POST",
        "/tenants",
        {
            "name": "acme",
            "known_as": {"amqp": "shop", "sqs": "111122223333", "rocketmq": "shop"},
            "limits": {"topics": 5},
        },
    )
    assert made.status == 201
    assert made.json["known_as"]["sqs"] == "111122223333"
    clients = Clients(node, "acme", "shop")
    try:
        assert clients.publish() == "111122223333"
        assert depth(node, "acme") == 3
        assert clients.mqtt.subscribe("kitchen/#") == 1

        # Removed: who is connected is sent away in all four, and nobody signs in any more.
        assert node.api("DELETE", "/tenants/acme").status == 202
        late = {"name": "bob", "policies": ["full"]}
        assert node.api("POST", "/users?tenant=acme", late).status in {404, 409}
        assert clients.gone.get(timeout=20) is not None
        with pytest.raises(pika.exceptions.AMQPError):
            clients.amqp.sleep(20)
        with pytest.raises(botocore.exceptions.ClientError) as refused:
            clients.sqs.list_queues()
        assert refused.value.response["Error"]["Code"] == "InvalidClientTokenId"
        assert "UNAUTHORIZED" in clients.by_rocketmq() or "40100" in clients.by_rocketmq()
        with pytest.raises(pika.exceptions.AMQPError):
            clients.open_amqp()
        until(lambda: removed(node, "acme"), "it is gone")
    finally:
        clients.close()
    assert node.api("GET", "/topics?tenant=acme").status == 404
    assert not [e for e in node.api("GET", "/tenants").json["tenants"] if e["name"] == "acme"]

    # Its name is on the bill of this month: made again for the same customer alone.
    again = {"name": "acme"}
    refusal = node.api("POST", "/tenants", again)
    assert refusal.status == 409
    assert "same_customer" in refusal.json["error"]["message"]
    made = node.api("POST", "/tenants", again | {"same_customer": True})
    assert (made.status, made.json["limits"]) == (201, {}), "nothing of the old one holds"
    clients = Clients(node, "acme", "acme")
    try:
        assert depth(node, "acme") == 0, "no old data"
        assert clients.mqtt.subscribe("kitchen/#") == 1
        assert clients.mqtt.messages.empty()
        assert clients.publish() == "acme"
        assert clients.mqtt.take().payload == b"by mqtt", "and nothing that was retained before"
    finally:
        clients.close()


def test_the_bill_has_what_both_have_used(node: Process) -> None:
    """After the test before."""
    assert node.api("POST", "/metering/export", {}).json["flushed"]
    archive = node.data / "metering"
    published: dict[tuple[str, int], int] = {}
    for entry in parse_manifest((archive / MANIFEST_NAME).read_bytes()):
        for row in pq.read_table(archive / entry.name).to_pylist():
            if (row["tenant"], row["kind"], row["action"]) == ("acme", "store", "publish"):
                series = row["protocol"], row["cum_since"]
                published[series] = max(published.get(series, 0), row["cum_messages"])
    for protocol in ("amqp", "sqs", "rocketmq"):
        assert sum(n for (of, _), n in published.items() if of == protocol) == 2


def test_names_and_signing_in_change_for_who_comes_next(node: Process) -> None:
    assert node.api("POST", "/tenants", {"name": "initech"}).status == 201
    clients = Clients(node, "initech", "initech")
    try:
        assert clients.publish() == "initech"
        changes = {"known_as": {"amqp": "office", "sqs": "444455556666", "rocketmq": "office"}}
        assert node.api("PATCH", "/tenants/initech", changes).status == 200
        url = clients.sqs.get_queue_url(QueueName="orders")["QueueUrl"]
        assert url.split("/")[3] == "444455556666"
        with pytest.raises(pika.exceptions.ProbableAccessDeniedError, match="530"):
            clients.open_amqp()
        clients.host = "office"
        clients.open_amqp().close()
        clients.channel.basic_publish("", "orders", b"who is connected stays")

        assert node.api("PATCH", "/tenants/initech", {"sign_in": False}).status == 200
        assert clients.gone.get(timeout=20) is not None
        with pytest.raises(pika.exceptions.AMQPError):
            clients.amqp.sleep(20)
        with pytest.raises(pika.exceptions.AMQPError):
            clients.open_amqp()
        assert node.api("PATCH", "/tenants/initech", {"sign_in": True}).status == 200
        clients.open_amqp().close()
        assert depth(node, "initech") >= 3, "what it has stays"
    finally:
        clients.close()


def test_what_is_refused(node: Process) -> None:
    def refusal(method: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, str]:
        answer = node.api(method, path, body)
        return answer.status, answer.json["error"]["message"]

    assert node.api("POST", "/tenants", {"name": "hooli", "known_as": {"amqp": "h"}}).status == 201
    taken = {"name": "other", "known_as": {"amqp": "h"}}
    assert refusal("POST", "/tenants", taken) == (
        400,
        "the virtual host 'h' is that of the tenant hooli too",
    )
    assert refusal("POST", "/tenants", {"name": "hooli"})[0] == 409
    assert refusal("POST", "/tenants", {"name": "a:b"})[0] == 400
    assert refusal("POST", "/tenants", {"name": "__own"})[0] == 400
    assert refusal("POST", "/tenants", {"name": "x", "known_as": {"sqs": "12"}})[0] == 400
    assert refusal("POST", "/tenants", {"name": "x", "limits": {"nothing": 1}})[0] == 400
    assert refusal("DELETE", "/tenants/default")[0] == 400
    assert refusal("PATCH", "/tenants/default", {"sign_in": False})[0] == 400
    assert refusal("DELETE", "/tenants/nobody")[0] == 404
    assert refusal("GET", "/tenants/nobody")[0] == 404
    assert refusal("PATCH", "/tenants/nobody", {"sign_in": False})[0] == 404


def test_a_removal_goes_on_after_a_crash(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        assert node.api("POST", "/tenants", {"name": "acme"}).status == 201
        user = {"name": "alice", "password": PASSWORD, "policies": ["full"]}
        assert node.api("POST", "/users?tenant=acme", user).status == 201
        for number in range(70):
            topic = {"name": f"t{number}", "type": "work"}
            assert node.api("POST", "/topics?tenant=acme", topic).status == 201
        assert node.api("DELETE", "/tenants/acme").json["topics"] == 70
        until(lambda: node.api("GET", "/tenants/acme").json["topics"] < 70, "it has begun")
        node.kill()
    with serving(tmp_path) as node:
        assert node.api("GET", "/tenants/acme").json["state"] == "leaving"
        until(lambda: removed(node, "acme"), "it is gone")
