"""Gateways as processes of their own before three stores, with a real client of each protocol."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pika
import pika.exceptions
import pytest
from botocore.exceptions import BotoCoreError

from gateway.commands.common.output import CommandError
from gateway.commands.tools.bill import refreshed_archive
from gateway.reporting.node_metering import ARCHIVE_DIRECTORY
from metering.schema import Action, Kind
from metering.schema.manifest import sequence_gaps
from tests.adapters.rocketmq.support import Wire, definition_pb2, resource, service_pb2
from tests.adapters.rocketmq.test_clients import Telemetry
from tests.free_ports import free_ports
from tests.gateway import cluster
from tests.gateway.balancer import Balancer, balancing, is_ready
from tests.matrix.amqp_peer import AmqpPeer
from tests.matrix.contract import Neutral, Peer
from tests.matrix.mqtt_peer import MqttPeer
from tests.matrix.rocketmq_peer import RocketmqPeer
from tests.matrix.sqs_peer import SqsPeer
from tests.metering.served.once import ALL, ALL_UNITS, TRAFFIC
from tests.metering.served.reading import entries_of, growth_of, records_of, usage_of
from tests.spark.reconcile import check_routed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.gateway.cluster import Running
    from tests.gateway.serving import Process


class Subscriber(AmqpPeer):
    """Reads as AMQP clients do: what is pushed to it."""

    def _take(self, topic: str, seconds: float) -> tuple[Any, Any, bytes]:
        self._channel.basic_qos(prefetch_count=1)
        for method, properties, body in self._channel.consume(topic, inactivity_timeout=seconds):
            assert method is not None, f"nothing came over AMQP within {seconds} s"
            return method, properties, body
        raise AssertionError("the subscription has ended")


PEERS: tuple[type[Peer], ...] = (SqsPeer, AmqpPeer, RocketmqPeer, MqttPeer)
MESSAGES = 10


def make_topic(gateway: Process, name: str) -> str:
    made = gateway.api("POST", "/topics", {"name": name, "type": "work"})
    assert made.status == 201, made.body
    return name


def test_what_one_gateway_takes_another_hands_out_and_a_killed_leader_loses_nothing(
    running: Running, tmp_path: Path
) -> None:
    found, (first, second) = running
    home = str(tmp_path)
    writers = [kind(first, home) for kind in PEERS]
    readers = [kind(second, home) for kind in PEERS]
    topics = {kind.name: make_topic(first, f"kept-{kind.name}") for kind in PEERS}

    def write(start: int) -> None:
        for peer in writers:
            for number in range(start, start + MESSAGES):
                peer.write(topics[peer.name], Neutral(body=b"%d" % number))

    def read(peer: Peer, count: int) -> set[int]:
        return {int(peer.read(topics[peer.name]).body) for _ in range(count)}

    write(0)
    got = {peer.name: read(peer, MESSAGES // 2) for peer in readers}
    victim = found.leaders()[1]
    found.stores.pop(victim).kill()
    write(MESSAGES)
    for peer in readers:
        got[peer.name] |= read(peer, MESSAGES + MESSAGES // 2)
    assert got == {kind.name: set(range(2 * MESSAGES)) for kind in PEERS}
    for peer in (*writers, *readers):
        peer.close()


def test_what_lives_in_one_gateway_is_used_at_the_other(running: Running) -> None:
    _, gateways = running
    asking, answering = [each.amqp() for each in gateways]
    here, there = asking.channel(), answering.channel()
    queue = here.queue_declare("", exclusive=True).method.queue
    there.confirm_delivery()
    there.basic_publish("", queue, b"answer", mandatory=True)
    for _, _, body in here.consume(queue, inactivity_timeout=10):
        assert body == b"answer"
        break
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as caught:
        there.queue_delete(queue)
    assert caught.value.reply_code == 405
    figures = gateways[1].http("GET", "/metrics").body
    assert b"weir_gateway_peers 1.0" in figures
    asking.close()
    assert_listed_and_closed_from_elsewhere(gateways[0], answering)


def assert_listed_and_closed_from_elsewhere(
    elsewhere: Process, connection: pika.BlockingConnection
) -> None:
    """A connection is shown by the gateway that it is not connected to, and closed by it."""
    found = elsewhere.api("GET", "/connections?protocol=amqp").json
    assert found["silent"] == []
    ours = "{}:{}".format(*connection._impl._transport._sock.getsockname())
    (row,) = [each for each in found["connections"] if each["peer"] == ours]
    assert row["id"].endswith(f"@{row['node']}")
    shown = elsewhere.api("GET", f"/connections/{row['id']}").json
    assert shown["connection"]["peer"] == ours
    assert elsewhere.api("DELETE", f"/connections/{row['id']}").status == 204
    connection.process_data_events(time_limit=0)  # what came for its channel before
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        connection.process_data_events(time_limit=5)
    assert closed.value.reply_code == 320


def test_a_gateway_that_reaches_no_store_says_which_and_why_and_goes_on_trying(
    running: Running, tmp_path: Path
) -> None:
    found, _ = running
    number = next(iter(found.stores))
    (nobody,) = free_ports(1)
    known = f"{number}@127.0.0.1:{found.addresses[number][1]}"
    peers = f"node.cluster.peers={known},9@127.0.0.1:{nobody}"
    gateway = found.start_gateway("lost", peers, secret="another secret of the kind")
    reason = gateway.wait_for("waiting for the cluster")["reason"]
    assert reason.startswith(f"no store can be reached: store {number}: ")
    assert "secret" in reason
    assert f"store 9: 127.0.0.1:{nobody}: Connect" in reason, "without the system's number of that"
    assert gateway.http("GET", "/livez", token=None).status == 200
    ready = gateway.http("GET", "/readyz", token=None)
    assert (ready.status, ready.body.split(b":")[0]) == (503, b"no store can be reached")
    told = gateway.api("GET", "/topics")
    assert (told.status, told.json["error"]["retryable"]) == (503, True)
    assert "weir health" in told.json["error"]["message"]
    assert b"weir_gateway_stores_connected 0.0" in gateway.http("GET", "/metrics").body
    assert gateway.terminate() == 0
    assert not [each for each in gateway.logged() if each["level"] == "error"]


GONE = (OSError, pika.exceptions.AMQPError, BotoCoreError, AssertionError, RuntimeError)
"""What clients raise whose connection was closed."""


class Wanderer:
    """A client that connects anew, through the balancer, whenever it is told to go."""

    def __init__(self, kind: type[Peer], balancer: Balancer, home: str) -> None:
        self._make = lambda: kind(balancer, home)
        self._peer = self._make()
        self.name = kind.name
        self.topic = f"moved-{kind.name}"
        self.sent = 0
        self.got: set[int] = set()

    def _try(self, action: Callable[[Peer], object]) -> Any:
        for _ in range(10):
            try:
                return action(self._peer)
            except GONE as error:
                problem = error
                with contextlib.suppress(OSError, pika.exceptions.AMQPError):
                    self._peer.close()
                self._peer = self._make()
        raise problem

    def write(self) -> None:
        self._try(lambda peer: peer.write(self.topic, Neutral(body=b"%d" % self.sent)))
        self.sent += 1

    def read(self) -> None:
        # What was taken and not acked when the connection closed comes again.
        self.got.add(int(self._try(lambda peer: peer.read(self.topic)).body))

    def close(self) -> None:
        self._peer.close()


def test_a_gateway_that_is_drained_sends_its_clients_to_the_other_and_no_message_is_lost(
    running: Running, tmp_path: Path
) -> None:
    _, (first, second) = running
    moving = (Subscriber, SqsPeer, MqttPeer)
    for kind in (*moving, RocketmqPeer):
        make_topic(first, f"moved-{kind.name}")
    cluster.until(lambda: len(gateways(second)) == 2, "both gateways report")
    (name,) = [each["name"] for each in gateways(second) if at(each) == first.listeners["amqp.tcp"]]
    with contextlib.ExitStack() as stack:
        ports = ("amqp.tcp", "sqs.http", "mqtt.tcp")
        balancer = stack.enter_context(balancing([first, second], *ports))
        clients = [Wanderer(kind, balancer, str(tmp_path)) for kind in moving]
        wire = Wire(f"127.0.0.1:{first.listeners['rocketmq.grpc']}")
        telemetry = Telemetry(wire)
        telemetry.show(definition_pb2.Settings(client_type=1))
        assert route(wire) == first.listeners["rocketmq.grpc"]
        for client in clients:
            stack.callback(client.close)
            client.write()
        words = ("node", "drain", name, "--data", str(second.data))
        command = [sys.executable, "-m", "gateway", *words]
        draining = stack.enter_context(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        assert next(telemetry.answers).HasField("reconnect_endpoints_command")
        assert route(wire) == second.listeners["rocketmq.grpc"]
        telemetry.end()
        wire.close()
        while draining.poll() is None:
            for client in clients:
                client.write()
                client.read()
        said = draining.stderr.read()
        assert (draining.returncode, said) == (0, f"{name} has no clients: it can be stopped\n")
        found = {each["name"]: each for each in gateways(second)}
        assert found[name]["stage"] == "drained"
        assert found[name]["moved"] >= len(moving) + 1
        assert b"clients of this gateway move to others" in first.http("GET", "/readyz").body
        for client in clients:
            client.write()
            while len(client.got) < client.sent:
                client.read()
    refused = second.api("POST", f"/cluster/gateways/{other(found, name)}/drain", {})
    assert (refused.status, refused.json["error"]["code"]) == (403, "not_allowed")
    assert second.api("POST", f"/cluster/gateways/{name}/drain", {"undo": True}).status == 204
    cluster.until(lambda: is_ready(first), "the first gateway serves again")


def gateways(asked: Process) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = asked.api("GET", "/cluster/gateways").json["gateways"]
    return found


def at(gateway: dict[str, Any]) -> int:
    return int(gateway["listeners"]["amqp.tcp"].rpartition(":")[2])


def other(found: dict[str, Any], name: str) -> str:
    (rest,) = found.keys() - {name}
    return rest


def route(wire: Wire) -> int:
    """Where a RocketMQ client is told to send."""
    answer = wire.call(
        "QueryRoute", service_pb2.QueryRouteRequest(topic=resource("moved-rocketmq"))
    )
    ports = {each.broker.endpoints.addresses[0].port for each in answer.message_queues}
    (port,) = ports
    return int(port)


def test_what_is_billed_is_what_was_served_although_a_leader_was_killed(running: Running) -> None:
    _, (first, second) = running
    for number, gateway in enumerate((first, second)):
        assert gateway.api("POST", "/metering/export").json["flushed"]
        archive = gateway.data / ARCHIVE_DIRECTORY
        usage = usage_of(records_of(archive))
        growth = [each for each in growth_of(gateway) if each.topic.startswith("kept-")]
        kept = [row for row in usage if row.topic.startswith("kept-")]
        assert check_routed(kept, growth) == []
        assert sequence_gaps(entries_of(archive)) == []
        published = {
            (row.topic, row.protocol): row.messages for row in kept if row.action == Action.PUBLISH
        }
        assert published == {(f"kept-{kind.name}", kind.name): 2 * MESSAGES for kind in PEERS}
        calls = [row for row in usage if row.protocol == "sqs" and row.kind == Kind.API]
        # Only what was flushed is there: the calls of the second gateway come with its own export.
        assert bool(sum(row.requests for row in calls)) or not number


@pytest.mark.parametrize("protocol", ["rocketmq", "sqs"])
def test_each_message_received_once_at_a_gateway_is_billed_once(
    running: Running, protocol: str
) -> None:
    _, (first, _) = running
    inbox = TRAFFIC[protocol](first)
    assert set(inbox.got.values()) == {1}
    assert first.api("POST", "/metering/export").json["flushed"]
    usage = usage_of(records_of(first.data / ARCHIVE_DIRECTORY))
    topics = {"sqs": {"once"}, "rocketmq": {"rmq-once", "rmq-later"}}[protocol]
    rows = [each for each in usage if each.topic in topics and each.action == Action.DELIVER]
    assert sum(each.messages for each in rows) == ALL
    assert sum(each.units_4k for each in rows) == ALL_UNITS


def test_a_bill_is_made_from_a_gateway_s_directory(running: Running) -> None:
    found, (first, _) = running
    data = next(iter(found.stores.values())).data
    with pytest.raises(CommandError, match="a cluster's store, which keeps no archive"):
        refreshed_archive(data)
    assert refreshed_archive(first.data) == first.data / ARCHIVE_DIRECTORY
