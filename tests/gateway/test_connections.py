"""Connections as operators see them, and close them."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as mqtt
import pika
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from adapters.connections import ConnectionShown
from auth.principal import Principal
from gateway.access.disconnects import Disconnects
from gateway.admin.http.callers import OPERATOR, Caller, set_caller
from gateway.admin.http.errors import http_error, kernel_or_auth_error
from gateway.admin.http.operations import bound, route
from gateway.admin.operations import API
from gateway.admin.resources import local_connections
from gateway.admin.resources.connections import ConnectionRoutes
from gateway.admin.resources.local_connections import LocalConnections
from gateway.process import slices
from kernel.api.client import PutRecord
from kernel.common.errors import KernelError
from kernel.remote.mesh.questions import Silent
from tests.gateway.cluster import until
from tests.gateway.serving import Process
from tests.matrix.amqp_peer import AmqpPeer
from tests.matrix.contract import Neutral, Peer
from tests.matrix.mqtt_peer import MqttPeer
from tests.matrix.rocketmq_peer import RocketmqPeer
from tests.matrix.sqs_peer import SqsPeer
from tests.simulator.world import World, simulated

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from adapters.connections import ChannelShown


def listed(node: Process, query: str = "") -> list[dict[str, Any]]:
    found = node.api("GET", f"/connections?{query}")
    assert found.status == 200
    rows: list[dict[str, Any]] = found.json["connections"]
    return rows


# --- One of each protocol -----------------------------------------------------------------------


def test_an_amqp_connection_is_shown_with_its_channels_and_closed(node: Process) -> None:
    connection = node.amqp()
    channel = connection.channel()
    channel.queue_declare("watched")
    channel.confirm_delivery()
    channel.basic_publish("", "watched", b"x")
    channel.basic_consume("watched", lambda *_: None, consumer_tag="mine")
    connection.process_data_events(time_limit=0.2)
    (row,) = listed(node, "protocol=amqp&user=guest")
    assert [each["id"] for each in listed(node, "consumes=watched")] == [row["id"]]
    assert listed(node, "consumes=another") == []
    assert (row["tenant"], row["user"], row["state"]) == ("default", "guest", "open")
    assert (row["channels"], row["consumers"], row["messages_unacknowledged"]) == (1, 1, 1)
    assert row["client"].startswith("Pika")
    assert row["peer"].startswith("127.0.0.1:")
    assert row["recv_oct"] > 0
    assert row["connected_s"] > 0

    found = node.api("GET", f"/connections/{row['id']}").json
    assert found["connection"]["rates"].keys() == {"recv_oct", "send_oct"}
    (shown,) = found["channels"]
    assert shown["confirm"] is True
    (consumer,) = shown["consumers"]
    assert (consumer["consumer_tag"], consumer["queue"]) == ("mine", "watched")

    assert node.api("DELETE", f"/connections/{row['id']}?reason=time%20to%20go").status == 204
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        connection.process_data_events(time_limit=5)
    assert closed.value.reply_code == 320
    assert "time to go" in closed.value.reply_text
    assert node.api("GET", f"/connections/{row['id']}").status == 404


def test_an_mqtt_connection_is_shown_with_its_subscriptions_and_closed(node: Process) -> None:
    subscribed, gone = threading.Event(), threading.Event()
    reasons: list[int] = []
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, "watched-device", protocol=mqtt.MQTTv5)
    client.username_pw_set("guest", "guest")
    client.on_connect = lambda *_: client.subscribe("watched/#", qos=1)
    client.on_subscribe = lambda *_: subscribed.set()

    def on_disconnect(_client: object, _data: object, _flags: object, code: Any, *_: Any) -> None:
        reasons.append(code.value)
        gone.set()
        client.loop_stop()

    client.on_disconnect = on_disconnect
    client.connect("127.0.0.1", node.listeners["mqtt.tcp"])
    client.loop_start()
    assert subscribed.wait(20)
    (row,) = listed(node, "client_id=watched-device")
    assert (row["protocol"], row["user"], row["consumers"]) == ("mqtt", "guest", 1)
    (channel,) = node.api("GET", f"/connections/{row['id']}").json["channels"]
    assert [each["queue"] for each in channel["consumers"]] == ["watched/#"]
    assert node.api("DELETE", "/connections?user=guest&tenant=default").status == 204
    assert gone.wait(20)
    assert reasons[0] == 0x98  # administrative action
    client.disconnect()


def test_an_http_connection_is_shown_and_closed(node: Process) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", node.listeners["sqs.http"], timeout=20)
    connection.request("GET", "/", headers={"Connection": "keep-alive"})
    connection.getresponse().read()
    assert connection.sock is not None
    local = "{}:{}".format(*connection.sock.getsockname())
    (row,) = [each for each in listed(node, "protocol=sqs") if each["peer"] == local]
    assert (row["tenant"], row["user"]) == ("", "")
    assert node.api("DELETE", f"/connections/{row['id']}").status == 204
    assert connection.sock.recv(1) == b""
    connection.close()


@pytest.mark.parametrize(
    ("kind", "library"),
    [(AmqpPeer, "Pika"), (MqttPeer, ""), (RocketmqPeer, "PYTHON"), (SqsPeer, "Boto3")],
    ids=lambda each: getattr(each, "name", None),
)
def test_a_client_of_each_protocol_is_listed_with_who_it_is_and_its_library(
    node: Process, tmp_path: Path, kind: type[Peer], library: str
) -> None:
    topic = f"listed-{kind.name}"
    assert node.api("POST", "/topics", {"name": topic, "type": "work"}).status == 201
    told = contextlib.suppress(pika.exceptions.ConnectionClosedByBroker)  # as pika says goodbye
    with told, contextlib.closing(kind(node, str(tmp_path))) as peer:
        peer.write(topic, Neutral(body=b"one"))
        rows = [each for each in listed(node, f"protocol={kind.name}") if each["user"]]
        assert rows
        for row in rows:
            assert (row["tenant"], row["user"]) == ("default", "guest")
            assert row["peer"].startswith("127.0.0.1:")
            assert f"{kind.name}.{row['listener']}" in node.listeners
            assert row["client"].startswith(library)
            assert row["ssl"] == (row["listener"] == "tls")
            assert row["connected_s"] >= 0
        found = node.api("GET", f"/connections/{rows[0]['id']}").json["connection"]
        assert found["rates"].keys() == {"recv_oct", "send_oct"}
        assert node.api("DELETE", f"/connections/{rows[0]['id']}").status == 204
        until(
            lambda: node.api("GET", f"/connections/{rows[0]['id']}").status == 404, "it is closed"
        )
    gone = [each for each in listed(node, f"protocol={kind.name}") if each["user"]]
    assert rows[0]["id"] not in {each["id"] for each in gone}


# --- Whom they are shown to, in which order -----------------------------------------------------


@dataclass
class Fake:
    """`adapters.connections.OpenConnection`."""

    number: int
    owner: tuple[str, str]
    recv_oct: int = 0
    reasons: list[str] = field(default_factory=list)

    def shown(self) -> ConnectionShown:
        return ConnectionShown(
            id=f"fake-{self.number}",
            protocol="fake",
            listener="tcp",
            peer=f"192.0.2.1:{self.number}",
            ssl=False,
            tenant=self.owner[0],
            user=self.owner[1],
            client_id="",
            client="",
            state="open",
            waits_for="",
            connected_s=1.0,
            channels=0,
            consumers=0,
            messages_unacknowledged=0,
            recv_oct=self.recv_oct,
            send_oct=0,
        )

    def channels_shown(self) -> Iterator[ChannelShown]:
        return iter(())

    def end(self, reason: str) -> None:
        self.reasons.append(reason)


class FakeAdapter:
    def __init__(self, *found: Fake) -> None:
        self.found = found

    def connections(self) -> list[Fake]:
        return list(self.found)


class FakeAccess:
    """Rights of an administrator of one tenant."""

    principal = Principal("acme", "alice")

    def allows(self, number: int, name: str) -> bool:
        return name == "acme"


class FakeTenants:
    def of(self, request: Any) -> str:
        return str(request.query_params.get("tenant", "acme"))


ALICE: Any = Caller(FakeAccess())  # type: ignore[arg-type]


async def ask(found: list[Fake], query: str = "", caller: Caller = OPERATOR) -> Any:
    return await call(local(found, "here", in_cluster=False), None, "/connections?" + query, caller)


def local(found: list[Fake], node: str, *, in_cluster: bool = True) -> LocalConnections:
    adapters: Any = [FakeAdapter(*found)]
    return LocalConnections(adapters, node, in_cluster=in_cluster)


async def call(
    own: LocalConnections,
    questions: Any,
    target: str,
    caller: Caller = OPERATOR,
    method: str = "GET",
) -> Any:
    """The JSON that a gateway answers; None: it has none to tell."""
    tenants: Any = FakeTenants()
    disconnects: Any = None
    path, _, query = target.partition("?")
    resource = ConnectionRoutes(own, tenants, disconnects, questions)
    routes = [route(*each) for each in bound(API, (resource,))]
    handlers: Any = {KernelError: kernel_or_auth_error, HTTPException: http_error}
    app = Starlette(routes=routes, exception_handlers=handlers)
    scope: Any = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [],
    }
    set_caller(scope, caller)
    sent: list[Any] = []

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return json.loads(b"".join(each.get("body", b"") for each in sent) or b"null")


async def ids(found: list[Fake], query: str = "", caller: Caller = OPERATOR) -> list[str]:
    return [each["id"] for each in (await ask(found, query, caller))["connections"]]


FAKES = [
    Fake(1, ("acme", "bob"), 5),
    Fake(2, ("globex", "bob"), 9),
    Fake(10, ("acme", "ann"), 7),
    Fake(11, ("", "")),
]


async def test_an_administrator_of_a_tenant_sees_its_connections_and_no_others() -> None:
    assert await ids(FAKES) == ["fake-1", "fake-2", "fake-10", "fake-11"]
    assert await ids(FAKES, caller=ALICE) == ["fake-1", "fake-10"]
    assert await ids(FAKES, "tenant=globex") == ["fake-2"]
    assert await ids(FAKES, "user=bob", caller=ALICE) == ["fake-1"]


async def test_connections_are_sorted_by_a_column_and_paged() -> None:
    assert await ids(FAKES, "sort=-recv_oct") == ["fake-2", "fake-10", "fake-1", "fake-11"]
    for sort in ("id", "-id", "recv_oct", "-recv_oct", "user", "tenant"):
        everything = await ids(FAKES, f"sort={sort}")
        seen: list[str] = []
        after: str | None = ""
        while after is not None:
            page = await ask(FAKES, f"sort={sort}&limit=1&after={after}")
            seen += [each["id"] for each in page["connections"]]
            after = page["next"]
        assert seen == everything


@pytest.mark.parametrize("query", ["sort=colour", "after=abc", "after=WzFd", "limit=0"])
async def test_what_cannot_be_asked_is_refused_by_name(query: str) -> None:
    assert (await ask(FAKES, query))["error"]["code"] == "invalid_argument"


async def test_the_event_loop_has_its_turn_while_very_many_are_listed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slices, "SLICE_S", 0)
    monkeypatch.setattr(slices, "SHARE", 0)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.get_running_loop().create_task(count())
    await ids([Fake(number, ("acme", "bob")) for number in range(50)])
    counting.cancel()
    assert turns >= 50


# --- At all gateways ----------------------------------------------------------------------------


class FakeQuestions:
    """`kernel.remote.mesh.questions.Questions` to gateways in this process."""

    def __init__(self, *others: LocalConnections) -> None:
        self.answerers: list[dict[str, Any]] = []
        for each in others:
            self.answerers.append({})
            each.answer(self)  # type: ignore[arg-type]
        self.silent: list[Silent] = []

    def serve(self, kind: str, answerer: Any) -> None:
        self.answerers[-1][kind] = answerer

    async def ask(self, kind: str, asked: bytes, _within_s: float, heard: Any) -> list[Silent]:
        for each in self.answerers:
            heard(await each[kind](asked))
        return self.silent


async def test_connections_of_all_gateways_are_listed_in_one_order_page_by_page() -> None:
    own, other = local(FAKES[:2], "here"), local(FAKES[2:], "there")
    questions = FakeQuestions(other)
    seen: list[str] = []
    after: str | None = ""
    while after is not None:
        page = await call(own, questions, f"/connections?sort=-recv_oct&limit=1&after={after}")
        seen += [each["id"] for each in page["connections"]]
        after = page["next"]
    assert seen == ["fake-2@here", "fake-10@there", "fake-1@here", "fake-11@there"]

    async def found(query: str, caller: Caller = OPERATOR) -> list[str]:
        page = await call(own, questions, f"/connections?{query}", caller)
        return [each["id"] for each in page["connections"]]

    for query, caller, connections in (
        ("", OPERATOR, 4),
        ("", ALICE, 2),
        ("user=bob", OPERATOR, 2),
    ):
        totals = await call(own, questions, f"/connections/totals?{query}", caller)
        assert totals["connections"] == connections, query
    assert await found("", ALICE) == ["fake-1@here", "fake-10@there"]
    assert await found("node=there") == ["fake-10@there", "fake-11@there"]
    assert await found("node=here&user=bob") == ["fake-1@here", "fake-2@here"]
    questions.silent = [Silent("192.0.2.7:1", "it is of an older version")]
    page = await call(own, questions, "/connections")
    assert page["silent"] == [{"gateway": "192.0.2.7:1", "reason": "it is of an older version"}]
    for path in ("/connections", "/connections/totals"):
        page = await call(own, questions, path, ALICE)
        assert [each["gateway"] for each in page["silent"]] == ["(one of the cluster)"]


async def test_a_connection_of_another_gateway_is_shown_and_closed_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(local_connections, "RATE_S", 0.0)
    here, there = Fake(1, ("acme", "bob")), Fake(1, ("acme", "ann"))
    own, other = local([here], "here"), local([there], "there")
    questions = FakeQuestions(other)
    found = await call(own, questions, "/connections/fake-1@there")
    assert (found["connection"]["user"], found["connection"]["node"]) == ("ann", "there")
    refused = await call(own, questions, "/connections/fake-1@there?tenant=globex", method="DELETE")
    assert refused["error"]["code"] == "not_found"
    closing = "/connections/fake-1@there?reason=enough"
    assert await call(own, questions, closing, ALICE, "DELETE") is None
    assert (here.reasons, there.reasons) == ([], ["enough"])
    assert await call(own, questions, "/connections/fake-1", method="DELETE") is None
    assert len(here.reasons) == 1
    questions.silent = [Silent("192.0.2.7:1", "it is not connected")]
    refused = await call(own, questions, "/connections/fake-1@elsewhere")
    assert refused["error"]["code"] == "unavailable"
    assert "192.0.2.7:1 (it is not connected)" in refused["error"]["message"]


async def test_what_no_gateway_asks_is_refused_and_no_answer_is_taken_for_one() -> None:
    questions = FakeQuestions(local(FAKES, "there"))
    for answerer in questions.answerers[0].values():
        with pytest.raises(KernelError):
            await answerer(b"\xc1")
    for read in (local_connections.rows_of, local_connections.named_of):
        with pytest.raises(KernelError):
            read(b"\xc1")


# --- All of a user, everywhere ------------------------------------------------------------------


@simulated()
async def test_all_connections_of_a_user_are_closed_at_every_gateway(world: World) -> None:
    random: Any = world.random
    here, there = Fake(1, ("acme", "bob")), Fake(2, ("acme", "bob"))
    other = [Fake(number, ("acme", "ann")) for number in range(3, 2_000)]
    gateways: Any = [
        Disconnects([FakeAdapter(here, *other)], random),  # type: ignore[list-item]
        Disconnects([FakeAdapter(there)], random),  # type: ignore[list-item]
    ]
    for each in gateways:
        each.follow(world.client)
    await world.client.administer(PutRecord("disconnect/0", b"\xc1"))
    await gateways[0].tell("acme", "bob", "enough")
    await world.settle_down()
    assert (here.reasons, there.reasons) == (["enough"], ["enough"])
    assert not any(each.reasons for each in other)
    assert list(world.client.records("disconnect/")) == ["disconnect/0"]
