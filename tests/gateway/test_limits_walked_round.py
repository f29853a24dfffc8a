"""Who tries to get more than a limit allows: by connecting anew, by leaving, by another way in."""

from __future__ import annotations

import base64
import contextlib
import queue
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as paho
import pytest

from adapters.amqp.codec import spec
from adapters.amqp.codec.fields import EMPTY_TABLE
from adapters.amqp.codec.frames import PROTOCOL_HEADER, encode_content
from adapters.amqp.codec.methods import encode_method
from tests.gateway.cluster import until
from tests.gateway.limited import connect_311, limited, rocketmq
from tests.gateway.management import ask, managed
from tests.gateway.serving import Process, serving
from tests.gateway.test_mqtt import client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from adapters.amqp.codec.method_base import Method

FRAME_MAX = 131_072


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with managed(tmp_path_factory.mktemp("walked-round"), "") as process:
        yield process


@contextlib.contextmanager
def limit(node: Process, of: str, **limits: int) -> Iterator[None]:
    assert node.api("PATCH", f"/limits/{of}", limits).status == 200
    try:
        yield
    finally:
        assert node.api("DELETE", f"/limits/{of}").status == 204


def made(node: Process, queue: str) -> None:
    """A queue that MQTT's `QUEUE/it` and the default exchange lead to."""
    with node.amqp() as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        channel.queue_bind(queue, "amq.topic", f"{queue}.#")


def depth(node: Process, queue: str) -> int:
    return int(node.api("GET", f"/topics/{queue}").json["groups"][0]["ready"])


def connections(node: Process, protocol: str) -> list[dict[str, Any]]:
    found = node.api("GET", "/connections").json["connections"]
    return [each for each in found if each["protocol"] == protocol]


def mqtt(node: Process, name: str) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", node.listeners["mqtt.tcp"]))
    sock.sendall(connect_311(name))
    assert sock.recv(4)[3] == 0
    return sock


def mqtt_publish(queue: str, body: bytes, qos: int) -> bytes:
    name = f"{queue}/it".encode()
    rest = len(name).to_bytes(2, "big") + name + (b"\x00\x01" if qos else b"") + body
    size, length = b"", len(rest)
    while length > 127:
        size, length = size + bytes([length & 127 | 128]), length >> 7
    return bytes([0x30 | qos << 1]) + size + bytes([length]) + rest


def amqp(node: Process, *methods: Method) -> socket.socket:
    """A connection without heartbeats, with channel 1, on which these methods were sent."""
    sock = socket.create_connection(("127.0.0.1", node.listeners["amqp.tcp"]), timeout=20)
    login = spec.ConnectionStartOk(EMPTY_TABLE, "PLAIN", b"\0guest\0guest", "en_US")
    sock.sendall(PROTOCOL_HEADER)
    for answer in ((login,), (spec.ConnectionTuneOk(0, FRAME_MAX, 0), spec.ConnectionOpen("/"))):
        assert sock.recv(65_536)
        sock.sendall(b"".join(encode_method(0, each) for each in answer))
    assert sock.recv(65_536)
    opened = spec.ChannelOpen("")
    sock.sendall(b"".join(encode_method(1, each) for each in (opened, *methods)))
    assert sock.recv(65_536)
    return sock


def amqp_publish(queue: str, body: bytes) -> bytes:
    method = encode_method(1, spec.BasicPublish(0, "", queue))
    return method + b"".join(encode_content(1, b"\x00\x00", body, FRAME_MAX))


GOODBYE = encode_method(0, spec.ConnectionClose(200, "", 0, 0))


def said(sock: socket.socket) -> bytes:
    """All that comes until the server closes."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := sock.recv(65_536):
            parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize("of", ["topic", "tenant"])
@pytest.mark.parametrize("protocol", ["amqp", "mqtt, QoS 0", "mqtt, QoS 1"])
def test_nobody_publishes_more_by_connecting_anew_for_each_read(
    node: Process, protocol: str, of: str
) -> None:
    queue = f"anew-{of}-{protocol[-1]}"
    made(node, queue)
    whose = f"topic/{queue}" if of == "topic" else "tenant/default"
    with limit(node, whose, published_messages=100):
        began = time.monotonic()
        for number in range(20):
            if protocol == "amqp":
                with amqp(node) as sock:
                    sock.sendall(amqp_publish(queue, b"abc") * 500)
                    time.sleep(0.02)
            else:
                with mqtt(node, f"anew-{number}") as sock:
                    sock.sendall(mqtt_publish(queue, b"abc", int(protocol[-1])) * 500)
                    time.sleep(0.02)
        seconds = time.monotonic() - began
        # The first connection's read, and a second that may be owed before it.
        assert 1 <= depth(node, queue) < 500 + 200 + 100 * seconds, f"10,000 sent in {seconds} s"
        until(lambda: not connections(node, protocol[:4]), "they are not waited for")
        assert limited(node, f"{of}.published_messages", "dropped") > 0


@pytest.mark.parametrize("protocol", ["amqp", "mqtt"])
def test_whoever_leaves_while_held_leaves_no_connection_behind(
    node: Process, protocol: str
) -> None:
    queue = f"left-{protocol}"
    made(node, queue)
    with limit(node, "tenant/default", published_bytes=1_000):
        socks = []
        for number in range(5):
            body = bytes(1_000_000 if not number else 10)
            if protocol == "amqp":
                socks.append(amqp(node))
                socks[-1].sendall(amqp_publish(queue, body))
            else:
                socks.append(mqtt(node, f"left-{number}"))
                socks[-1].sendall(mqtt_publish(queue, body, 1))
            until(lambda: depth(node, queue) == 1, "the first one always passes")
        until(lambda: len(held(node, protocol)) == 5, "all are held: 1,000 s are owed")
        for sock in socks:
            sock.close()
        until(lambda: not connections(node, protocol), "a closed connection is seen to be closed")
        assert depth(node, queue) == 1


def held(node: Process, protocol: str) -> list[dict[str, Any]]:
    return [each for each in connections(node, protocol) if "limits" in each["waits_for"]]


def test_whoever_says_goodbye_in_amqp_has_published_what_came_before(node: Process) -> None:
    made(node, "goodbye")
    with limit(node, "topic/goodbye", published_messages=100):
        with amqp(node) as first, amqp(node) as second:
            first.sendall(amqp_publish("goodbye", b"abc") * 350)
            until(lambda: depth(node, "goodbye") == 350, "one read passes")
            began = time.monotonic()
            second.sendall(amqp_publish("goodbye", b"abc") * 50 + GOODBYE)
            assert said(second).endswith(encode_method(0, spec.ConnectionCloseOk()))
        assert time.monotonic() - began > 1, "2.5 s are owed"
        assert depth(node, "goodbye") == 400


def test_a_transaction_waits_and_is_no_way_round(node: Process) -> None:
    made(node, "committed")
    with limit(node, "topic/committed", published_messages=100):
        start = time.monotonic()
        transaction = amqp_publish("committed", b"abc") * 300 + encode_method(1, spec.TxCommit())
        with amqp(node, spec.TxSelect()) as first:
            first.sendall(transaction)
            until(lambda: depth(node, "committed") == 300, "the first one passes")
            for _ in range(5):
                with amqp(node, spec.TxSelect()) as other:
                    other.sendall(transaction)
                    time.sleep(0.1)
            with amqp(node, spec.TxSelect()) as patient:
                began = time.monotonic()
                patient.sendall(transaction + GOODBYE)
                assert said(patient).endswith(encode_method(0, spec.ConnectionCloseOk()))
                assert time.monotonic() - began > 1
        until(lambda: not connections(node, "amqp"), "they are not waited for")
        seconds = time.monotonic() - start
        # A second's worth at once, another that is owed, and the last one.
        assert depth(node, "committed") <= 100 * seconds + 500, f"2,100 sent in {seconds} s"


@pytest.mark.parametrize("protocol", ["amqp", "mqtt"])
def test_messages_for_nobody_are_charged_as_well(node: Process, protocol: str) -> None:
    with limit(node, "tenant/default", published_messages=100):
        before = limited(node, "tenant.published_messages", "delayed")
        with amqp(node) if protocol == "amqp" else mqtt(node, "for-nobody") as sock:
            if protocol == "amqp":
                sock.sendall(amqp_publish("nowhere", b"abc") * 300)
            else:
                sock.sendall(mqtt_publish("nowhere", b"abc", 1) * 300)
            until(lambda: held(node, protocol), "300 at 100 a second, of which 100 at once")
        assert limited(node, "tenant.published_messages", "delayed") > before


PASSWORD = "a long password"


@pytest.fixture(scope="module")
def shop(node: Process) -> Process:
    """A node with the tenant `shop`, its administrator ann, and its queue `by-http`."""
    assert node.api("POST", "/tenants", {"name": "shop"}).status == 201
    user = {"name": "ann", "password": PASSWORD, "policies": ["administrator", "full"]}
    assert node.api("POST", "/users?tenant=shop", user).status == 201
    declared = by_ann(node, "/queues/shop/by-http", {"durable": True}, "PUT")
    assert declared == 201
    return node


def by_ann(node: Process, path: str, body: Any, method: str = "POST") -> int:
    """The status of what she asks of the management API."""
    return ask(node, method, path, body, f"shop:ann:{PASSWORD}").status


def by_ann_here(node: Process, path: str, body: Any) -> int:
    """The same, of the admin API."""
    login = base64.b64encode(f"shop:ann:{PASSWORD}".encode()).decode()
    headers = {"Authorization": f"Basic {login}"}
    return node.http("POST", path, body, token=None, headers=headers).status


def managed_publish(node: Process, payload: str = "abc") -> int:
    body = {"properties": {}, "routing_key": "by-http", "payload": payload}
    path = "/exchanges/shop/amq.default/publish"
    return by_ann(node, path, {**body, "payload_encoding": "string"})


def admin_publish(node: Process, payload: str = "abc") -> int:
    return by_ann_here(node, "/api/v1/topics/by-http/messages", {"body": payload})


WHOSE = ["tenant/shop", "topic/by-http?tenant=shop", "user/ann?tenant=shop", "listener"]


@pytest.mark.parametrize("of", WHOSE)
@pytest.mark.parametrize("publish", [managed_publish, admin_publish])
def test_no_administrator_of_a_tenant_publishes_past_its_limits_by_http(
    shop: Process, publish: Callable[..., int], of: str
) -> None:
    if of == "listener":
        of += "/amqp.management" if publish is managed_publish else "/admin.http"
    with limit(shop, of, published_messages=4):
        began = time.monotonic()
        told = [publish(shop) for _ in range(12)]
        assert time.monotonic() - began > 1.2, "12 at 4 a second, of which 4 at once, are delayed"
        assert set(told) == {OK[publish]}
        with ThreadPoolExecutor(16) as pool:
            together = list(pool.map(lambda _: publish(shop), range(16)))
        assert 429 in together, "more than a second over is refused"
        path = "/topics/by-http/messages?tenant=shop"
        by_hand = [shop.api("POST", path, {"body": "abc"}).status for _ in range(10)]
        assert by_hand == [201] * 10, "the operator is not limited"


OK = {managed_publish: 200, admin_publish: 201}


@pytest.mark.parametrize("publish", [managed_publish, admin_publish])
def test_the_largest_message_is_that_of_the_tenant_by_http_too(
    shop: Process, publish: Callable[..., int]
) -> None:
    with limit(shop, "tenant/shop", message_bytes=100):
        assert publish(shop, "." * 100) == OK[publish]
        assert publish(shop, "." * 101) == 413


@pytest.mark.parametrize(
    ("asks", "path", "body"),
    [
        (
            by_ann_here,
            "/api/v1/topics/by-http/groups/default/receive",
            {"messages": 10, "lease_ms": 1_000},
        ),
        (
            by_ann,
            "/queues/shop/by-http/get",
            {"count": 10, "ackmode": "ack_requeue_true", "encoding": "auto"},
        ),
    ],
)
def test_nobody_gets_more_than_is_allowed_by_http(
    shop: Process, asks: Callable[..., int], path: str, body: Any
) -> None:
    for _ in range(20):
        assert admin_publish(shop) == 201
    with limit(shop, "tenant/shop", delivered_messages=3):
        assert asks(shop, path, body) == 200
        assert asks(shop, path, body) == 429, "ten at three a second are owed"


ROCKETMQ = """
import json, sys, time
from rocketmq import ClientConfiguration, Credentials, Message, Producer

producer = Producer(ClientConfiguration(sys.argv[1], Credentials("weir", "weir-secret")))
producer.startup()
began = time.monotonic()
for _ in range(6):
    message = Message()
    message.topic, message.body = "properties", b"."
    message.add_property("long", "." * 4_000)
    producer.send(message)
print(json.dumps(time.monotonic() - began), flush=True)
producer.shutdown()
"""


def test_properties_of_rocketmq_are_bytes_too(node: Process, tmp_path: Path) -> None:
    assert node.api("POST", "/topics", {"name": "properties"}).status == 201
    with limit(node, "topic/properties", published_bytes=8_000):
        assert rocketmq(node, tmp_path, ROCKETMQ) > 1, "24,000 at 8,000 a second"


@pytest.mark.parametrize("protocol", [paho.MQTTv311, paho.MQTTv5])
def test_a_will_is_no_larger_than_what_its_client_may_publish(
    node: Process, protocol: paho.MQTTProtocolVersion
) -> None:
    with limit(node, "tenant/default", message_bytes=100):
        told = [connects_with_a_will(node, protocol, size) for size in (100, 101)]
    assert told == [0, 0x97 if protocol == paho.MQTTv5 else 0x88]


def connects_with_a_will(node: Process, protocol: Any, size: int) -> int:
    """The reason that CONNACK gives, as paho tells it."""
    codes: queue.SimpleQueue[int] = queue.SimpleQueue()
    made = paho.Client(paho.CallbackAPIVersion.VERSION2, f"will-{size}", protocol=protocol)
    made.username_pw_set("guest", "guest")
    made.will_set("wills/it", bytes(size), 1)
    made.on_connect = lambda _c, _u, _f, code, _p: codes.put(code.value)
    made.connect("127.0.0.1", node.listeners["mqtt.tcp"])
    made.loop_start()
    try:
        return codes.get(timeout=20)
    finally:
        made.disconnect()
        made.loop_stop()


def test_qos_2_of_a_kept_session_waits_no_longer_than_is_owed(node: Process) -> None:
    made(node, "twice")
    with (
        limit(node, "topic/twice", published_bytes=100),
        client(node, "twice-1", kept=True) as first,
        client(node, "twice-2", kept=True) as second,
    ):
        first.client.publish("twice/it", bytes(400), 2)
        until(lambda: depth(node, "twice") == 1, "one message always passes")
        began = time.monotonic()
        second.client.publish("twice/it", b"abc", 2)
        assert second.codes.get(timeout=20) == 0
        assert 1.5 < time.monotonic() - began < 15, "3 s are owed, and nobody has to ping"


def test_what_is_kept_for_a_topic_that_is_deleted_goes_nowhere_and_its_debt_stays(
    node: Process,
) -> None:
    made(node, "again")
    with limit(node, "topic/again", published_messages=100), amqp(node) as first:
        with amqp(node, spec.ConfirmSelect()) as second:
            first.sendall(amqp_publish("again", b"abc") * 500)
            until(lambda: depth(node, "again") == 500, "one read passes")
            second.sendall(amqp_publish("again", b"abc") * 3)
            until(lambda: len(held(node, "amqp")) == 2, "4 s are owed")
            assert node.api("DELETE", "/topics/again").status == 200
            made(node, "again")
            heard = b""
            while not heard.endswith(b"\xce"):
                heard = second.recv(65_536)[-1:]
            until(lambda: len(held(node, "amqp")) == 1, "it was told, and is read again")
            assert depth(node, "again") == 0, "another topic"
            began = time.monotonic()
            with amqp(node) as third:
                third.sendall(amqp_publish("again", b"abc") + GOODBYE)
                said(third)
            assert time.monotonic() - began > 0.5, "the limit is of the name"
        node.read()
        assert not [line for line in node.said if "internal error" in line]


def test_who_leaves_behind_kept_messages_has_acked_nothing(node: Process) -> None:
    """It has published what it made of a message, and acks that then: never without the other."""
    made(node, "work")
    made(node, "results")
    with amqp(node) as first, amqp(node, spec.BasicQos(0, 1, False)) as worker:
        first.sendall(amqp_publish("work", b"work"))
        until(lambda: depth(node, "work") == 1, "there is work")
        consume = spec.BasicConsume(0, "work", "", False, False, False, False, EMPTY_TABLE)
        worker.sendall(encode_method(1, consume))
        heard = b""
        while b"work\xce" not in heard:
            heard += worker.recv(65_536)
        with limit(node, "topic/results", published_messages=10):
            first.sendall(amqp_publish("results", b"abc") * 500)
            until(lambda: depth(node, "results") == 500, "49 s are owed")
            ack = encode_method(1, spec.BasicAck(1, False))
            worker.sendall(amqp_publish("results", b"made of it") + ack)
            until(lambda: len(held(node, "amqp")) == 2, "both are held")
            worker.close()
            until(lambda: len(connections(node, "amqp")) == 1, "it is not waited for")
            until(lambda: depth(node, "work") == 1, "the work is there again")
            assert depth(node, "results") == 500


def test_a_server_that_stops_does_not_wait_for_what_is_owed(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server, contextlib.ExitStack() as clients:
        made(server, "q")
        assert server.api("PATCH", "/limits/topic/q", {"published_messages": 10}).status == 200
        first, second, third = (
            clients.enter_context(amqp(server, *methods))
            for methods in ((), (spec.ConfirmSelect(),), (spec.TxSelect(),))
        )
        first.sendall(amqp_publish("q", b"abc") * 500)
        until(lambda: depth(server, "q") == 500, "49 s are owed")
        second.sendall(amqp_publish("q", b"abc"))
        third.sendall(amqp_publish("q", b"abc") + encode_method(1, spec.TxCommit()))
        until(lambda: len(held(server, "amqp")) == 3, "and waited for")
        assert server.terminate() == 0
        assert not [each for each in server.logged() if each["event"] == "drain cut off"]
