"""Who has published, taken and settled a traced message, with a real client of each protocol."""

from __future__ import annotations

import contextlib
import json
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec
import pika
import pytest

from adapters.rocketmq.errors import Code
from gateway.admin.resources.topic_traces import BEFORE_MS, MessageSearch
from gateway.reporting.trace_stream import bodies_of
from kernel.api.tracing import ConnectedUser
from kernel.broker.tracing import Event, What
from tests.adapters.rocketmq.support import Wire, signed
from tests.adapters.rocketmq.test_transactions import COMMIT, ROLLBACK, end, prepare
from tests.gateway.test_topic_traces import PATIENCE_S, history, noted, taken, trace, words
from tests.matrix.amqp_peer import AmqpPeer
from tests.matrix.contract import Neutral, Peer
from tests.matrix.mqtt_peer import MqttPeer
from tests.matrix.rocketmq_peer import RocketmqPeer
from tests.matrix.sqs_peer import SqsPeer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.gateway.cluster import Running
    from tests.gateway.conftest import Ran
    from tests.gateway.serving import Process

PEERS: tuple[type[Peer], ...] = (SqsPeer, AmqpPeer, RocketmqPeer, MqttPeer)


def acts(page: Any) -> list[str]:
    """What was noted where the clients are connected, but that the tests have looked."""
    return [each["what"] for each in page["events"] if each["by"] and each["what"] != "read"]


def until(node: Process, topic: str, uid: str, done: Callable[[Any], bool]) -> Any:
    """The history of a message once it is so; each process writes its own once a second."""
    ends = time.monotonic() + PATIENCE_S
    while not done(page := history(node, topic, uid)):
        assert time.monotonic() < ends, page
        time.sleep(0.1)
    return page


@pytest.fixture
def made() -> Iterator[Callable[..., None]]:
    """Makes topics that are traced as long as the test runs: a tenant has no more than some."""
    done: list[tuple[Process, str]] = []

    def make(node: Process, topic: str, kind: str = "work", **more: int) -> None:
        assert node.api("POST", "/topics", {"name": topic, "type": kind, **more}).status == 201
        assert trace(node, topic, "all").status == 200
        done.append((node, topic))

    yield make
    for node, topic in done:
        trace(node, topic, "off")


def last_of(node: Process, topic: str) -> str:
    uid: str = node.api("GET", f"/topics/{topic}/messages").json["messages"][-1]["uid"]
    return uid


def check_names(page: Any, protocol: str) -> None:
    """Both sides are named."""
    named = [each for each in page["events"] if each["by"] and each["what"] != "read"]
    assert {each["by"]["protocol"] for each in named} == {protocol}
    assert {each["by"]["tenant"] for each in named} == {"default"}
    assert {each["by"]["user"] for each in named} == {"guest"}
    for each in named:
        host, _, port = each["by"]["address"].rpartition(":")
        assert host == "127.0.0.1"
        assert int(port) > 0
        assert each["by"]["connection"].startswith(f"{protocol}-"), each


@pytest.mark.parametrize("kind", PEERS, ids=lambda each: each.name)
def test_the_history_names_who_published_took_and_settled(
    node: Process, kind: type[Peer], tmp_path: Path, made: Callable[..., None]
) -> None:
    topic = f"tc-{kind.name}"
    made(node, topic)
    with contextlib.closing(kind(node, str(tmp_path))) as peer:
        peer.write(topic, Neutral(body=b"one"))
        uid = last_of(node, topic)
        listed = node.api("GET", "/connections").json["connections"]
        peer.read(topic)
    page = until(node, topic, uid, lambda page: "settled" in acts(page))
    peers = {each["id"]: each["peer"] for each in listed}
    publishing = next(each["by"] for each in page["events"] if each["what"] == "published")
    assert peers[publishing["connection"]] == publishing["address"]
    assert acts(page) == ["published", "taken", "settled"]
    assert page["events"][-1]["reason"] in {"ack", None}
    check_names(page, kind.name)
    assert {"stored", "acked"} <= set(words(page))


def test_a_connection_is_called_as_it_is_listed_and_what_it_asked_for_is_told(
    node: Process, weir: Callable[..., Ran], made: Callable[..., None]
) -> None:
    made(node, "tc-listed")
    with node.amqp() as publishing, node.amqp() as taking:
        ours = [
            "{}:{}".format(*each._impl._transport._sock.getsockname())
            for each in (publishing, taking)
        ]
        rows = {each["peer"]: each for each in node.api("GET", "/connections").json["connections"]}
        channel = publishing.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "tc-listed", b"one", pika.BasicProperties(delivery_mode=2))
        uid = last_of(node, "tc-listed")
        got = taking.channel()
        got.basic_reject(taken(got, "tc-listed").delivery_tag, requeue=True)
        got.basic_ack(taken(got, "tc-listed").delivery_tag)
        page = until(node, "tc-listed", uid, lambda page: acts(page).count("settled") == 2)
    named = [each for each in page["events"] if each["by"] and each["what"] != "read"]
    told = [(each["what"], each["reason"], each["by"]["connection"]) for each in named]
    first, second = (rows[each]["id"] for each in ours)
    assert told == [
        ("published", None, first),
        ("taken", None, second),
        ("settled", "release", second),
        ("taken", None, second),
        ("settled", "ack", second),
    ]
    ran = weir("message", "trace", uid, "--topic", "tc-listed", "-o", "json")
    shown = json.loads(ran.out)["history"]
    assert [each["by"] for each in shown if each["by"] and each["what"] != "read"] == [
        each["by"] for each in named
    ]
    text = weir("message", "trace", uid, "--topic", "tc-listed").out
    where = f"from {ours[0]} (connection {first})"
    assert f"published at queue 0, offset 0 by guest of default over amqp {where}" in text
    assert f"guest of default over amqp from {ours[1]} (connection {second}), release" in text


def test_consumers_that_are_pushed_to_and_transactions_are_named(
    node: Process, made: Callable[..., None]
) -> None:
    made(node, "tc-pushed")
    with node.amqp() as connection:
        channel = connection.channel()
        channel.tx_select()
        channel.basic_publish("", "tc-pushed", b"one", pika.BasicProperties(delivery_mode=2))
        channel.tx_commit()
        uid = last_of(node, "tc-pushed")
        tags: list[int] = []
        channel.basic_consume(
            "tc-pushed", lambda _channel, method, *_: tags.append(method.delivery_tag)
        )
        while not tags:
            connection.process_data_events(1)
        channel.basic_ack(tags[0])
        channel.tx_commit()
        page = until(node, "tc-pushed", uid, lambda page: "settled" in acts(page))
    assert acts(page) == ["published", "taken", "settled"]
    check_names(page, "amqp")


def test_who_uses_the_admin_api_is_named(node: Process, made: Callable[..., None]) -> None:
    made(node, "tc-admin")
    node.api("POST", "/topics/tc-admin/groups", {"name": "default"})
    sent = node.api("POST", "/topics/tc-admin/messages", {"body": "x"})
    got = node.api("POST", "/topics/tc-admin/groups/default/receive", {"messages": 1})
    (leased,) = got.json["messages"]
    acked = node.api("POST", "/topics/tc-admin/groups/default/settle", {"acks": [leased["token"]]})
    assert acked.status == 200, acked.body
    page = until(node, "tc-admin", sent.json["uid"], lambda page: "settled" in acts(page))
    assert acts(page) == ["published", "taken", "settled"]
    named = [each["by"] for each in page["events"] if each["by"] is not None]
    assert {(each["user"], each["protocol"]) for each in named} == {("operator", "weir")}


def test_who_looks_without_taking_is_named(
    node: Process, weir: Callable[..., Ran], made: Callable[..., None]
) -> None:
    made(node, "tc-read", "normal", queues=1)
    sent = node.api("POST", "/topics/tc-read/messages", {"body": "x"}).json
    node.api("POST", "/topics/tc-read/messages", {"body": "another, further on"})
    wire = Wire(f"127.0.0.1:{node.listeners['rocketmq.grpc']}", signed("weir", "weir-secret"))
    try:
        pulled = wire.pull("tc-read", 0, 0, "billing", batch=1)
    finally:
        wire.close()
    assert [each.body for each in pulled.messages] == [b"x"]
    assert node.api("GET", "/topics/tc-read/messages?limit=1").status == 200
    assert node.api("GET", f"/topics/tc-read/trace/{sent['uid']}").json["found"]

    def read(page: Any) -> list[Any]:
        return [each for each in page["events"] if each["what"] == "read"]

    page = until(node, "tc-read", sent["uid"], lambda page: len(read(page)) >= 3)
    told = [(each["by"]["user"], each["protocol"], each["group"]) for each in read(page)]
    assert told == [
        ("guest", "rocketmq", "billing"),
        ("operator", "weir", None),
        ("operator", "weir", None),
    ]
    assert all(each["by"]["address"].startswith("127.0.0.1:") for each in read(page))
    text = weir("message", "trace", sent["uid"], "--topic", "tc-read").out
    assert "read for group billing by guest of default over rocketmq from 127.0.0.1:" in text


def test_moves_and_dead_letters_are_noted_at_both_ends(
    node: Process, weir: Callable[..., Ran], made: Callable[..., None]
) -> None:
    for name in ("tc-dead", "tc-source"):
        made(node, name)
    weir("group", "set", "tc-source", "default", "--attempts", "1", "--dead-letter", "tc-dead")
    with node.amqp() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "tc-source", b"one", pika.BasicProperties(delivery_mode=2))
        uid = last_of(node, "tc-source")
        channel.basic_reject(taken(channel, "tc-source").delivery_tag, requeue=False)
        page = until(node, "tc-source", uid, lambda page: "moved" in words(page))
    moved = noted(page)[-1]
    assert (moved["what"], moved["uid"]) == ("moved", uid)
    assert moved["reason"] == "to topic tc-dead, queue 0, offset 0: rejected"
    assert next(each["reason"] for each in page["events"] if each["what"] == "settled") == (
        "rejected"
    )
    page = until(node, "tc-dead", uid, lambda page: "came" in words(page))
    came = next(each for each in noted(page) if each["what"] == "came")
    assert (came["reason"], came["uid"]) == (
        "from topic tc-source, queue 0, offset 0: rejected",
        uid,
    )
    assert weir("dead-letters", "redrive", "tc-dead").code == 0
    page = until(node, "tc-dead", uid, lambda page: "moved" in words(page))
    moved = noted(page)[-1]
    assert moved["reason"] == "to topic tc-source, queue 0, offset 1: moved"
    assert moved["uid"] != uid, "a message that is moved on is a new one"
    page = until(node, "tc-source", moved["uid"], lambda page: "came" in words(page))
    came = next(each for each in noted(page) if each["what"] == "came")
    assert (came["reason"], came["uid"]) == ("from topic tc-dead, queue 0, offset 0: moved", uid)
    text = weir("message", "trace", moved["uid"], "--topic", "tc-source").out
    assert f"from topic tc-dead, queue 0, offset 0: moved, as {uid}" in text


def test_a_half_message_is_known_by_its_uid_once_it_is_committed(
    node: Process, made: Callable[..., None]
) -> None:
    name = "tc-half"
    made(node, name, "transaction")
    wire = Wire(f"127.0.0.1:{node.listeners['rocketmq.grpc']}", signed("weir", "weir-secret"))
    try:
        for commits in (False, True):
            transaction = prepare(wire, name)
            assert end(wire, name, transaction, COMMIT if commits else ROLLBACK).code == Code.OK
        (shown,) = node.api("GET", f"/topics/{name}/messages").json["messages"]
        page = until(node, name, shown["uid"], lambda page: "published" in acts(page))
        received = wire.receive(name, "g")
        assert len(received.messages) == 1
    finally:
        wire.close()
    assert words(page) == ["stored"]
    assert page["place"] == [shown["queue"], shown["offset"]]
    (published,) = [each for each in page["events"] if each["what"] == "published"]
    assert (published["reason"], published["by"]["user"]) == ("committed", "guest")
    assert published["by"]["address"].startswith("127.0.0.1:")
    assert published["by"]["connection"] is None, "it has no telemetry stream"


def test_gateways_name_who_published_at_one_and_took_at_another(
    running: Running, tmp_path: Path, made: Callable[..., None]
) -> None:
    _, (first, second) = running
    for kind in PEERS:
        made(first, f"tc-far-{kind.name}")
    for kind in PEERS:
        topic = f"tc-far-{kind.name}"
        with (
            contextlib.closing(kind(first, str(tmp_path))) as writer,
            contextlib.closing(kind(second, str(tmp_path))) as reader,
        ):
            ends = time.monotonic() + PATIENCE_S
            while True:  # until all have heard that it is traced
                writer.write(topic, Neutral(body=b"one"))
                uid = last_of(first, topic)
                reader.read(topic)
                time.sleep(2.5)
                page = history(first, topic, uid)
                # Each process writes once a second, when it is its time.
                page["events"].sort(key=lambda each: each["time_ms"])
                if acts(page) == ["published", "taken", "settled"]:
                    break
                assert time.monotonic() < ends, page
        check_names(page, kind.name)
        named = [each for each in page["events"] if each["by"] and each["what"] != "read"]
        by = [each["by"]["connection"].partition("@")[2] for each in named]
        assert by[0] != by[1] == by[2], "each gateway its own client"
        leaders = {each["process"] for each in noted(page)}
        assert all(each.startswith("store ") for each in leaders), leaders


def test_a_leader_that_is_killed_takes_nothing_along_that_was_noted_and_nothing_is_noted_twice(
    running: Running, tmp_path: Path, made: Callable[..., None]
) -> None:
    found, (first, second) = running
    made(first, "tc-killed")
    # Its leader and both gateways hear of it by the register: until then nothing is noted.
    with contextlib.closing(SqsPeer(first, str(tmp_path))) as writer:
        ends = time.monotonic() + PATIENCE_S
        while True:
            writer.write("tc-killed", Neutral(body=b"one"))
            uid = last_of(first, "tc-killed")
            time.sleep(2)
            before = history(first, "tc-killed", uid)
            if words(before) == ["stored"] and acts(before) == ["published"]:
                break
            assert time.monotonic() < ends, before
            writer.read("tc-killed")
        leader = int(noted(before)[0]["process"].removeprefix("store "))
        found.stores.pop(leader).kill()
        with contextlib.closing(AmqpPeer(second, str(tmp_path))) as reader:
            reader.read("tc-killed", seconds=60)
            page = until(
                second,
                "tc-killed",
                uid,
                lambda page: {"settled", "stored", "acked"} <= {*acts(page), *words(page)},
            )
    assert noted(page)[0] == noted(before)[0], "what the old leader has noted"
    assert acts(page) == ["published", "taken", "settled"]
    assert [each for each in words(page) if each != "handed_out"] == ["stored", "acked"]
    acked = next(each for each in noted(page) if each["what"] == "acked")
    assert acked["process"] not in {f"store {leader}", noted(before)[0]["process"]}
    by = [each["by"] for each in page["events"] if each["by"] and each["what"] != "read"]
    assert [each["protocol"] for each in by] == ["sqs", "amqp", "amqp"]
    gateways = [each["connection"].partition("@")[2] for each in by]
    assert gateways[0] != gateways[1] == gateways[2]
    assert all(each.startswith("gateway-") for each in gateways)


class Stream:
    """`SystemStream` of these messages."""

    def __init__(self, *bodies: bytes) -> None:
        self._bodies = bodies
        self.asked: list[tuple[int, int]] = []

    async def read(self, first: int, since_ms: int, most: int) -> Any:
        self.asked.append((first, since_ms))
        rows = list(enumerate(self._bodies))[first : first + most]
        return rows, first + len(rows), 0


async def test_what_was_written_before_it_was_known_where_the_message_lies_is_found() -> None:
    ours, who = UUID(int=5).bytes, ConnectedUser("default", "bob", "amqp", "127.0.0.1:7", "amqp-1")
    published = Event(int(What.PUBLISHED), 100_000, 0, "", 0, "", 0, [(3, 2)], b"", who)
    stored = Event(int(What.STORED), 100_000, 0, "", 1, "", 0, [(3, 2)], bytes(16) + ours)
    bodies = [
        body
        for event in (published, stored)
        for body, _ in bodies_of(7, "gateway-1", [msgspec.msgpack.encode(event)])
    ]
    topic: Any = SimpleNamespace(id=7, tenant="acme")
    for sees_all in (True, False):
        search = MessageSearch(topic, ours, {1: "amqp"}, sees_all=sees_all)
        stream: Any = Stream(*bodies)
        assert await search.read(stream, 0, 0, lambda: False) is None
        assert stream.asked[:2] == [(0, 0), (0, 100_000 - BEFORE_MS)]
        assert [each.what for each in search.events] == ["published", "stored"]
        by = search.events[0].by
        assert by is not None
        # Of another tenant's user nobody but who administers the node is told where he is.
        where = ("127.0.0.1:7", "amqp-1@gateway-1") if sees_all else (None, None)
        assert (by.user, by.address, by.connection) == ("bob", *where)
        assert search.place == (0, 4)
