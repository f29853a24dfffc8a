"""Clients of all protocols that are held above a limit: when their tenant goes, and on the bill."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import botocore.exceptions
import pika.exceptions
import pyarrow.parquet as pq
import pytest

from metering.schema import parse_manifest
from metering.schema.manifest import MANIFEST_NAME
from tests.gateway.cluster import until
from tests.gateway.limited import TOO_MUCH
from tests.gateway.serving import Process, serving
from tests.gateway.test_tenants_at_run_time import Clients
from tests.sqs_client import sqs_client

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    directory = tmp_path_factory.mktemp("limited-tenants")
    with serving(directory, "node.metering.flush_interval_s=3600") as process:
        yield process


def made(node: Process, tenant: str) -> Clients:
    assert node.api("POST", "/tenants", {"name": tenant}).status == 201
    return Clients(node, tenant, tenant)


def connections(node: Process, tenant: str) -> list[dict[str, Any]]:
    """But for those of SQS, which are nobody's between two requests."""
    found = node.api("GET", "/connections").json["connections"]
    return [each for each in found if each["tenant"] == tenant and each["protocol"] != "sqs"]


@pytest.mark.parametrize("how", ["sign-in off", "removed"])
def test_who_is_held_is_sent_away_with_its_tenant(node: Process, how: str) -> None:
    tenant = how.replace(" ", "-")
    clients = made(node, tenant)
    try:
        clients.publish()
        limits = {"published_bytes": 100, "requests": 10}
        assert node.api("PATCH", f"/limits/tenant/{tenant}", limits).status == 200
        clients.amqp.channel().basic_publish("", "orders", bytes(100_000))
        until(lambda: waits_for(node, tenant, "amqp") == "limits", "1,000 s are owed")
        assert clients.mqtt.publish("kitchen/oven", b"refused") == TOO_MUCH
        assert clients.by_rocketmq().startswith("42900")
        if how == "removed":
            assert node.api("DELETE", f"/tenants/{tenant}").status == 202
        else:
            asked = {"sign_in": False}
            assert node.api("PATCH", f"/tenants/{tenant}", asked).status == 200
        assert clients.gone.get(timeout=20) == 0x98
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            clients.amqp.sleep(20)
        with pytest.raises(botocore.exceptions.ClientError) as refused:
            clients.sqs.list_queues()
        assert refused.value.response["Error"]["Code"] == "InvalidClientTokenId"
        assert clients.by_rocketmq().startswith("401"), "not that it owes something"
        until(lambda: not connections(node, tenant), "nobody is left")
    finally:
        clients.close()
    if how == "removed":
        until(lambda: not limits_of(node, tenant), "its limits go with it")


def waits_for(node: Process, tenant: str, protocol: str) -> str:
    shown = connections(node, tenant)
    return "".join(each["waits_for"] for each in shown if each["protocol"] == protocol)


def limits_of(node: Process, tenant: str) -> list[Any]:
    told = node.api("GET", "/limits").json
    return [each for part in ("limits", "used") for each in told[part] if each["tenant"] == tenant]


def test_what_was_refused_is_not_billed_and_what_was_delayed_once(node: Process) -> None:
    clients = made(node, "billed")
    try:
        limits = {"published_messages": 5}
        assert node.api("PATCH", "/limits/tenant/billed", limits).status == 200
        queue = clients.sqs.get_queue_url(QueueName="orders")["QueueUrl"]
        entries = [{"Id": str(number), "MessageBody": "a body"} for number in range(5)]
        stored = throttled = 0
        for _ in range(6):
            address = f"http://127.0.0.1:{node.listeners['sqs.http']}"
            other = sqs_client(address, *clients.key, retries={"total_max_attempts": 1})
            try:
                other.send_message_batch(QueueUrl=queue, Entries=entries)
                stored += len(entries)
            except botocore.exceptions.ClientError:
                throttled += 1
        assert stored
        assert throttled
        assert clients.mqtt.publish("kitchen/oven", b"refused") == TOO_MUCH
        assert clients.by_rocketmq().startswith("42900")
        channel = clients.amqp.channel()
        began = time.monotonic()
        for _ in range(10):
            channel.basic_publish("", "orders", b"delayed")
        declared = channel.queue_declare("orders", durable=True, passive=True)
        assert time.monotonic() - began > 1
        assert declared.method.message_count == stored + 10
    finally:
        clients.close()
    assert node.api("POST", "/metering/export", {}).json["flushed"]
    rows = billed(node, "billed")
    published = {
        row["protocol"]: row["cum_messages"]
        for row in rows
        if (row["kind"], row["action"]) == ("store", "publish")
    }
    assert published == {"sqs": stored, "amqp": 10}
    calls = {
        row["protocol"]: row["requests"]
        for row in rows
        if (row["action"], row["outcome"]) == ("publish", "throttled")
    }
    assert calls == {"sqs": throttled, "rocketmq": 1}, "which no price asks for"


def billed(node: Process, tenant: str) -> list[dict[str, Any]]:
    archive = node.data / "metering"
    found: list[dict[str, Any]] = []
    for entry in parse_manifest((archive / MANIFEST_NAME).read_bytes()):
        found += pq.read_table(archive / entry.name).to_pylist()
    return [row for row in found if row["tenant"] == tenant]
