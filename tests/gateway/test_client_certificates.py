"""Clients that show a certificate are the user that its subject names."""

from __future__ import annotations

import itertools
import queue
import ssl
from typing import TYPE_CHECKING, Any, NamedTuple

import botocore.exceptions
import grpc
import paho.mqtt.client as paho
import pika
import pika.exceptions
import pytest

from adapters.rocketmq.errors import Code
from gateway.config.loading import load
from gateway.config.path import ConfigError
from tests.adapters.rocketmq.support import resource, service_pb2, signed
from tests.certificates import Authority
from tests.gateway.serving import Process, serving
from tests.sqs_client import sqs_client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

WAIT_S = 20
NUMBERS = itertools.count(1)
SERVICE = "/apache.rocketmq.v2.MessagingService/"


class Place(NamedTuple):
    node: Process
    authority: Authority


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("certified")
    authority = Authority(folder / "authority")
    chain, key = authority.issue(file="server-")
    asks = {"amqp.listeners.tls": "optional", "mqtt.listeners.tls": "optional"}
    asks |= {"sqs.listeners.tls": "required", "rocketmq.listeners.grpc": "required"}
    settings = [
        f"node.tls.certificate={chain}",
        f"node.tls.private_key={key}",
        f"node.tls.client_authority={authority.file}",
        "rocketmq.listeners.grpc.plain_too=false",
        *(f"{listener}.client_certificate={how}" for listener, how in asks.items()),
    ]
    with serving(folder / "data", *settings) as node:
        rules = ["allow * topic:own", "allow * tree:own/#", "allow * group:*"]
        assert node.api("PUT", "/policies/own", {"rules": rules}).status == 201
        for name in ("device", "gone"):
            asked = {"name": name, "policies": ["own"]}
            assert node.api("POST", "/users", asked).status == 201
        assert node.api("PATCH", "/users/gone", {"enabled": False}).status == 200
        for topic in ("own", "others"):
            assert node.api("POST", "/topics", {"name": topic, "type": "work"}).status == 201
        yield Place(node, authority)


# --- AMQP ---------------------------------------------------------------------------------------


def amqp(place: Place, name: str | None, listener: str = "amqp.tls") -> pika.BlockingConnection:
    context = ssl.create_default_context(cafile=place.authority.file)
    if name is not None:
        context.load_cert_chain(*place.authority.issue(name, f"{name}-"))
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            "127.0.0.1",
            place.node.listeners[listener],
            credentials=pika.credentials.ExternalCredentials(),
            ssl_options=pika.SSLOptions(context, "127.0.0.1"),
        )
    )


def test_amqp_takes_the_certificate_for_the_login(place: Place) -> None:
    connection = amqp(place, "device")
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", "own", b"x")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="user 'device'"):
        channel.basic_publish("", "others", b"x")
    connection.close()


def test_amqp_offers_external_to_nobody_else(place: Place) -> None:
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        amqp(place, None)


@pytest.mark.parametrize("name", ["nobody", "gone"])
def test_a_certificate_of_nobody_lets_nobody_in(place: Place, name: str) -> None:
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        amqp(place, name)


def test_a_certificate_of_another_authority_is_refused(place: Place, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "stranger")
    context = ssl.create_default_context(cafile=place.authority.file)
    context.load_cert_chain(*stranger.issue("device"))
    with pytest.raises(pika.exceptions.AMQPConnectionError):
        pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1",
                place.node.listeners["amqp.tls"],
                credentials=pika.credentials.ExternalCredentials(),
                ssl_options=pika.SSLOptions(context, "127.0.0.1"),
            )
        )


# --- MQTT ---------------------------------------------------------------------------------------


def mqtt(place: Place, certified: str | None, username: str = "", password: str | None = None):
    """The code of the CONNACK."""
    codes: queue.SimpleQueue[Any] = queue.SimpleQueue()
    version = paho.CallbackAPIVersion.VERSION2
    client = paho.Client(
        version, f"c{next(NUMBERS)}", protocol=paho.MQTTv5, reconnect_on_failure=False
    )
    files = place.authority.issue(certified, f"{certified}-") if certified else (None, None)
    client.tls_set(str(place.authority.file), *(str(each) if each else None for each in files))
    if username:
        client.username_pw_set(username, password)
    client.on_connect = lambda _c, _u, _f, code, _p: codes.put(code.value)
    client.connect("127.0.0.1", place.node.listeners["mqtt.tls"])
    client.loop_start()
    found = codes.get(timeout=WAIT_S)
    client.disconnect()
    client.loop_stop()
    return found


def test_mqtt_takes_the_certificate_for_user_name_and_password(place: Place) -> None:
    assert mqtt(place, "device") == 0
    assert mqtt(place, "device", "device") == 0
    assert mqtt(place, "device", "guest", "guest") == 0, "a login beside it counts"
    assert mqtt(place, "device", "gone") == 0x86
    assert mqtt(place, "nobody") == 0x86
    assert mqtt(place, None) == 0x86
    assert mqtt(place, None, "guest", "guest") == 0


# --- SQS and RocketMQ ---------------------------------------------------------------------------


def test_sqs_can_demand_a_certificate_besides_the_signature(place: Place) -> None:
    url = f"https://127.0.0.1:{place.node.listeners['sqs.tls']}"
    trusted = str(place.authority.file)
    with pytest.raises(botocore.exceptions.BotoCoreError):
        sqs_client(url, verify=trusted).list_queues()
    chain, key = place.authority.issue("device", "sqs-")
    client = sqs_client(url, verify=trusted, client_cert=(str(chain), str(key)))
    assert "ResponseMetadata" in client.list_queues()


def route(place: Place, certified: str, topic: str, headers: dict[str, str]) -> int:
    """The code of a QueryRoute."""
    chain, key = place.authority.issue(certified, "grpc-")
    credentials = grpc.ssl_channel_credentials(
        place.authority.file.read_bytes(), key.read_bytes(), chain.read_bytes()
    )
    address = f"127.0.0.1:{place.node.listeners['rocketmq.grpc']}"
    with grpc.secure_channel(address, credentials) as channel:
        ask = channel.unary_unary(
            SERVICE + "QueryRoute",
            service_pb2.QueryRouteRequest.SerializeToString,
            service_pb2.QueryRouteResponse.FromString,
        )
        request = service_pb2.QueryRouteRequest(topic=resource(topic))
        answer = ask(request, metadata=tuple(headers.items()), timeout=WAIT_S)
    return int(answer.status.code)


def test_rocketmq_takes_the_certificate_for_the_signature(place: Place) -> None:
    unsigned = signed(authorization=None)
    empty = unsigned | {
        "authorization": "MQv2-HMAC-SHA1 Credential=, SignedHeaders=x-mq-date-time, Signature=00"
    }
    for headers in (unsigned, empty):
        assert route(place, "device", "own", headers) == Code.OK
        assert route(place, "device", "others", headers) == Code.FORBIDDEN
        assert route(place, "nobody", "own", headers) == Code.UNAUTHORIZED
    assert route(place, "guest", "others", signed()) == Code.OK
    assert route(place, "device", "own", signed()) == Code.UNAUTHORIZED, "guest has signed"


def test_rocketmq_lets_nobody_in_without_one(place: Place) -> None:
    credentials = grpc.ssl_channel_credentials(place.authority.file.read_bytes())
    address = f"127.0.0.1:{place.node.listeners['rocketmq.grpc']}"
    with grpc.secure_channel(address, credentials) as channel:
        ask = channel.unary_unary(SERVICE + "Heartbeat")
        with pytest.raises(grpc.RpcError) as refused:
            ask(b"", metadata=tuple(signed().items()), timeout=WAIT_S)
    assert refused.value.code() == grpc.StatusCode.UNAVAILABLE


# --- Settings -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignments", "said"),
    [
        (["amqp.listeners.tcp.client_certificate=optional"], "listeners with `tls: true`"),
        (["amqp.listeners.tls.client_certificate=required"], "node.tls.client_authority"),
        (["rocketmq.listeners.grpc.client_certificate=required"], "`plain_too: false`"),
        (["node.admin.client_certificate=required"], "is for the listeners of protocols"),
    ],
)
def test_a_listener_that_cannot_ask_says_so(assignments: list[str], said: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        load(assignments=assignments, environ={})
    assert said in str(refusal.value)
