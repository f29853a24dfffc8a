"""A right that is withdrawn, and a user that goes, reach who is connected: in every protocol, on a
node and on the gateway of a cluster whose other gateway was told.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import aio_pika
import botocore.exceptions
import paho.mqtt.client as paho
import pika
import pika.exceptions
import pytest

from tests.gateway.cluster import gateways_of_one_store
from tests.sqs_client import sqs_client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.gateway.serving import Process

WITHIN_S = 2.0
"""What is promised."""
SLACK = 4
WAIT_S = 20
NUMBERS = itertools.count(1)
RECEIVE = """
import sys
from rocketmq import ClientConfiguration, Credentials, FilterExpression, SimpleConsumer
address, key, secret, topic, group = sys.argv[1:]
configuration = ClientConfiguration(address, Credentials(key, secret))
consumer = SimpleConsumer(
    configuration, group, {topic: FilterExpression()}, await_duration=30
)
consumer.startup()
print("receiving", flush=True)
try:
    consumer.receive(1, 30)
except Exception as error:
    print(error, flush=True)
else:
    print("nothing", flush=True)
import os
os._exit(0)
"""


class Place(NamedTuple):
    """Where rights are changed, and where the client is connected."""

    admin: Process
    serves: Process


@pytest.fixture(scope="module", params=["node", "cluster"])
def place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    if request.param == "node":
        node = request.getfixturevalue("node")
        yield Place(node, node)
        return
    with gateways_of_one_store(tmp_path_factory.mktemp("cluster")) as (one, other):
        yield Place(one, other)


class Member:
    """A user with a policy and a key of its own, and a topic that it may consume."""

    def __init__(self, place: Place) -> None:
        number = next(NUMBERS)
        self.place = place
        self.api = place.admin.api
        self.name, self.topic = f"member-{number}", f"withdrawn-{number}"
        self._policy = f"consumes-{number}"
        assert self.api("POST", "/topics", {"name": self.topic, "type": "work"}).status == 201
        self.rule("allow consume,inspect,publish,configure *")
        asked = {"name": self.name, "password": "a password", "policies": [self._policy]}
        assert self.api("POST", "/users", asked).status == 201
        self.key = self.api("POST", "/keys", {"user": self.name}).json
        # The other gateway has heard of it.
        self._until(lambda: self.amqp().close())

    def rule(self, *rules: str) -> None:
        """Altered, as an operator does."""
        found = self.api("PUT", f"/policies/{self._policy}", {"rules": list(rules)})
        assert found.status in {200, 201}

    def withdraw(self) -> None:
        self.rule("allow inspect,publish,configure *")

    def disable(self) -> None:
        assert self.api("PATCH", f"/users/{self.name}", {"enabled": False}).status == 200

    def amqp(self, **capabilities: bool) -> pika.BlockingConnection:
        return pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1",
                self.place.serves.listeners["amqp.tcp"],
                credentials=pika.PlainCredentials(self.name, "a password"),
                client_properties={"capabilities": capabilities},
            )
        )

    def sqs(self) -> Any:
        port = self.place.serves.listeners["sqs.http"]
        return sqs_client(f"http://127.0.0.1:{port}", self.key["key_id"], self.key["secret"])

    @staticmethod
    def _until(attempt: Callable[[], object]) -> None:
        ends = time.monotonic() + WAIT_S
        while True:
            try:
                attempt()
            except pika.exceptions.AMQPError:
                assert time.monotonic() < ends
                time.sleep(0.05)
            else:
                return


@pytest.fixture
def member(place: Place) -> Member:
    return Member(place)


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    """What is in it happens within what is promised; while other tests run beside, in some more."""
    began = time.monotonic()
    yield
    assert time.monotonic() - began < WITHIN_S * SLACK


def serve(connection: pika.BlockingConnection, condition: Callable[[], object]) -> None:
    ends = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < ends
        connection.process_data_events(time_limit=0.05)


# --- AMQP ---------------------------------------------------------------------------------------


def test_an_amqp_consumer_is_cancelled_and_its_channel_goes_on(member: Member) -> None:
    connection = member.amqp(consumer_cancel_notify=True)
    channel = connection.channel()
    channel.confirm_delivery()
    cancelled: list[str] = []
    got: list[Any] = []
    channel.add_on_cancel_callback(lambda frame: cancelled.append(frame.method.consumer_tag))
    tag = channel.basic_consume(
        member.topic, lambda _c, method, _p, body: got.append((method.delivery_tag, body))
    )
    channel.basic_publish("", member.topic, b"while allowed")
    serve(connection, lambda: got)
    with in_time():
        member.withdraw()
        serve(connection, lambda: cancelled)
    assert cancelled == [tag]
    channel.basic_ack(got[0][0])
    channel.basic_publish("", member.topic, b"afterwards")
    connection.process_data_events(time_limit=0.3)
    assert [body for _, body in got] == [b"while allowed"]
    connection.close()


def test_an_amqp_client_that_cannot_be_told_loses_its_channel(member: Member) -> None:
    connection = member.amqp(consumer_cancel_notify=False)
    channel = connection.channel()
    channel.basic_consume(member.topic, lambda *_: None)
    with in_time():
        member.withdraw()
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as closed:
            channel.start_consuming()
    assert closed.value.reply_code == 403
    assert connection.is_open
    connection.close()


def test_a_consumer_of_aio_pika_hears_that_it_is_cancelled(member: Member) -> None:
    async def nothing(_message: object) -> None:
        """Nothing comes."""

    async def run() -> None:
        port = member.place.serves.listeners["amqp.tcp"]
        url = f"amqp://{member.name}:a password@127.0.0.1:{port}/"
        async with await aio_pika.connect(url) as connection:
            channel = await connection.channel()
            queue = await channel.get_queue(member.topic, ensure=False)
            underlay = await channel.get_underlay_channel()
            await queue.consume(nothing)
            with in_time():
                member.withdraw()
                while underlay.consumers:
                    await asyncio.sleep(0.02)

    asyncio.run(run())


def test_connections_of_a_disabled_user_are_closed_in_amqp(member: Member) -> None:
    idle = member.amqp(consumer_cancel_notify=True)
    with in_time():
        member.disable()
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            serve(idle, lambda: False)
    assert closed.value.reply_code == 320


def test_who_keeps_the_right_notices_nothing(member: Member) -> None:
    connection = member.amqp(consumer_cancel_notify=True)
    channel = connection.channel()
    got: list[bytes] = []
    channel.basic_consume(member.topic, lambda _c, _m, _p, body: got.append(body), auto_ack=True)
    topic = member.topic
    member.rule(f"allow consume,publish topic:{topic}", f"allow consume,publish tree:{topic}/#")
    time.sleep(0.5)  # longer than a round
    channel.basic_publish("", member.topic, b"still")
    serve(connection, lambda: got)
    connection.close()


def test_a_new_password_closes_connections_only_if_that_is_asked_for(member: Member) -> None:
    connection = member.amqp(consumer_cancel_notify=True)
    subscriber = Subscriber(member, paho.MQTTv5)
    user = f"/users/{member.name}"
    assert member.api("PATCH", user, {"password": "another password"}).status == 200
    time.sleep(0.5)  # longer than a round
    connection.process_data_events()
    assert not subscriber.ended
    with polling(member) as poll, in_time():
        asked = {"password": "a third password", "sign_out": True}
        assert member.api("PATCH", user, asked).status == 200
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            serve(connection, lambda: False)
        assert subscriber.wait() == 0x98
        assert not poll.done(), "a key is not a password"
        member.disable()
        with pytest.raises(botocore.exceptions.ClientError):
            poll.result(WAIT_S)


# --- MQTT ---------------------------------------------------------------------------------------


class Subscriber:
    """A paho client, and how its connection ended."""

    def __init__(self, member: Member, level: int) -> None:
        self.ended: list[Any] = []
        self._heard = threading.Event()
        ready = threading.Event()
        version = paho.CallbackAPIVersion.VERSION2
        self._client = paho.Client(
            version, f"c-{next(NUMBERS)}", protocol=level, reconnect_on_failure=False
        )
        self._client.username_pw_set(member.name, "a password")
        self._client.on_connect = lambda *_: self._client.subscribe("secret/#", 1)
        self._client.on_subscribe = lambda *_: ready.set()
        self._client.on_disconnect = self._disconnected
        self._client.connect("127.0.0.1", member.place.serves.listeners["mqtt.tcp"])
        self._client.loop_start()
        assert ready.wait(WAIT_S)

    def _disconnected(self, _c: Any, _u: Any, flags: Any, code: Any, _p: Any) -> None:
        if not self.ended:
            self.ended.append(code.value if flags.is_disconnect_packet_from_server else None)
            self._heard.set()

    def wait(self) -> Any:
        assert self._heard.wait(WAIT_S)
        self._client.loop_stop()
        return self.ended[0]


@pytest.mark.parametrize(("level", "code"), [(paho.MQTTv5, 0x87), (paho.MQTTv311, None)])
def test_an_mqtt_subscriber_is_disconnected(member: Member, level: int, code: int | None) -> None:
    subscriber = Subscriber(member, level)
    with in_time():
        member.withdraw()
        assert subscriber.wait() == code


def test_connections_of_a_removed_user_are_closed_in_mqtt(member: Member) -> None:
    subscriber = Subscriber(member, paho.MQTTv5)
    with in_time():
        assert member.api("DELETE", f"/users/{member.name}").status == 204
        assert subscriber.wait() == 0x98


@pytest.mark.parametrize("how", ["withdrawn", "removed"])
def test_a_will_is_published_only_if_its_user_still_may(member: Member, how: str) -> None:
    other = Member(member.place)
    port = member.place.serves.listeners["mqtt.tcp"]
    version = paho.CallbackAPIVersion.VERSION2
    got: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    ready = threading.Event()
    watcher = paho.Client(version, f"w-{next(NUMBERS)}")
    watcher.username_pw_set("guest", "guest")
    watcher.on_connect = lambda *_: watcher.subscribe("wills/#", 1)
    watcher.on_subscribe = lambda *_: ready.set()
    watcher.on_message = lambda _c, _u, message: got.put(message.payload)
    watcher.connect("127.0.0.1", port)
    watcher.loop_start()
    assert ready.wait(WAIT_S)
    left = []
    for each in (member, other):
        client = paho.Client(version, f"c-{next(NUMBERS)}", reconnect_on_failure=False)
        client.username_pw_set(each.name, "a password")
        client.will_set("wills/x", each.name.encode(), 1)
        connected = threading.Event()
        client.on_connect = lambda *_, connected=connected: connected.set()
        client.connect("127.0.0.1", port)
        client.loop_start()
        assert connected.wait(WAIT_S)
        left.append(client)
    if how == "withdrawn":
        member.rule("allow consume,inspect *")
        time.sleep(1)  # on its way to where the will is kept
    else:
        assert member.api("DELETE", f"/users/{member.name}").status == 204
        time.sleep(1)
    for client in left:
        dialled = client.socket()
        if dialled is not None:
            with contextlib.suppress(OSError):
                dialled.shutdown(socket.SHUT_RDWR)
        client.loop_stop()
    assert got.get(timeout=WAIT_S) == other.name.encode()
    with pytest.raises(queue.Empty):
        got.get(timeout=0.5)
    watcher.disconnect()
    watcher.loop_stop()


# --- SQS ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def polling(member: Member) -> Iterator[Any]:
    """A long poll that waits."""
    client = member.sqs()
    url = client.get_queue_url(QueueName=member.topic)["QueueUrl"]
    client.receive_message(QueueUrl=url)
    with ThreadPoolExecutor(1) as pool:
        poll = pool.submit(client.receive_message, QueueUrl=url, WaitTimeSeconds=20)
        time.sleep(0.5)
        assert not poll.done()
        yield poll


def test_a_long_poll_ends_with_access_denied(member: Member) -> None:
    with polling(member) as poll, in_time():
        member.withdraw()
        with pytest.raises(botocore.exceptions.ClientError, match="AccessDenied"):
            poll.result(WAIT_S)


@pytest.mark.parametrize("how", ["user disabled", "key disabled", "key removed"])
def test_a_long_poll_ends_with_its_key(member: Member, how: str) -> None:
    key = f"/keys/{member.key['key_id']}"
    with polling(member) as poll, in_time():
        if how == "user disabled":
            member.disable()
        elif how == "key disabled":
            assert member.api("PATCH", key, {"enabled": False}).status == 200
        else:
            assert member.api("DELETE", key).status == 204
        with pytest.raises(botocore.exceptions.ClientError, match="InvalidClientTokenId"):
            poll.result(WAIT_S)


# --- RocketMQ -----------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["withdrawn", "disabled"])
def test_a_waiting_receive_of_rocketmq_ends(member: Member, tmp_path: Path, how: str) -> None:
    port = member.place.serves.listeners["rocketmq.grpc"]
    arguments = (f"127.0.0.1:{port}", member.key["key_id"], member.key["secret"], member.topic)
    with subprocess.Popen(
        [sys.executable, "-c", RECEIVE, *arguments, "group"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(tmp_path)},
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "receiving\n"
        time.sleep(1)
        with in_time():
            if how == "withdrawn":
                member.withdraw()
            else:
                member.disable()
            said = process.stdout.readline()
    assert ("40300" if how == "withdrawn" else "40100") in said, said


def test_revocations_are_counted(place: Place) -> None:
    figures = place.serves.http("GET", "/metrics").body.decode()
    found = [line for line in figures.splitlines() if "revoked" in line and line[0] != "#"]
    assert len(found) >= 4, json.dumps(found)
