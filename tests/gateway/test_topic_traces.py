"""Topics that are traced: set by the API, followed by clients of several protocols, read again."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import msgspec
import pika

from gateway.reporting.trace_stream import TraceWriter, events_in, stream_of
from kernel.api.tracing import ConnectedUser
from kernel.broker.tracing import SAMPLE_ONE_IN, Event, TraceBuffer, What
from kernel.common.errors import Code, KernelError
from kernel.common.ids import TopicId
from kernel.definitions.topic_traces import TENANT_TRACES_MAX
from tests.gateway.serving import environment, serving
from tests.simulator.world import World, simulated
from tests.sqs_client import sqs_client

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.gateway.cluster import Running
    from tests.gateway.serving import Process

PATIENCE_S = 60


def trace(node: Process, topic: str, mode: str, query: str = "") -> Any:
    return node.api("PUT", f"/topics/{topic}/trace{query}", {"mode": mode})


def send(node: Process, topic: str) -> str:
    sent = node.api("POST", f"/topics/{topic}/messages", {"body": "x"})
    assert sent.status == 201, sent.body
    uid: str = sent.json["uid"]
    return uid


def history(node: Process, topic: str, uid: str, query: str = "") -> Any:
    answer = node.api("GET", f"/topics/{topic}/history/{uid}?{query}")
    assert answer.status == 200, answer.body
    return answer.json


def noted(page: Any) -> list[Any]:
    """What leaders have noted."""
    return [each for each in page["events"] if each["by"] is None]


def words(page: Any) -> list[str]:
    return [each["what"] for each in noted(page)]


def until(node: Process, topic: str, uid: str, done: Callable[[list[str]], bool]) -> Any:
    """The history of a message once it is so; it is written once a second."""
    ends = time.monotonic() + PATIENCE_S
    while not done(words(page := history(node, topic, uid))):
        assert time.monotonic() < ends, page
        time.sleep(0.1)
    return page


def taken(channel: Any, topic: str) -> Any:
    method = None
    while method is None:
        method, _, _ = channel.basic_get(topic)
    return method


def test_a_message_over_amqp_is_followed_from_store_to_ack_though_it_is_gone(node: Process) -> None:
    with node.amqp() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("tt-amqp", durable=True)
        before = send(node, "tt-amqp")
        assert trace(node, "tt-amqp", "all").json == {"topic": "tt-amqp", "mode": "all"}
        assert node.api("GET", "/topics/tt-amqp").json["trace"] == "all"
        channel.basic_ack(taken(channel, "tt-amqp").delivery_tag)
        channel.basic_publish("", "tt-amqp", b"one", pika.BasicProperties(delivery_mode=2))
        (shown,) = node.api("GET", "/topics/tt-amqp/messages").json["messages"]
        channel.basic_nack(taken(channel, "tt-amqp").delivery_tag, requeue=True)
        channel.basic_ack(taken(channel, "tt-amqp").delivery_tag)
        page = until(node, "tt-amqp", shown["uid"], lambda found: "acked" in found)
    expected = ["stored", "handed_out", "released", "handed_out", "acked"]
    assert words(page) == expected
    assert {each["protocol"] for each in noted(page)[:2]} == {"amqp"}
    assert [each["group"] for each in noted(page)] == [None, *["default"] * 4]
    assert page["place"] == [shown["queue"], shown["offset"]]
    assert page["next"] is None
    assert words(history(node, "tt-amqp", before)) == []
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "gateway", "message", "trace", shown["uid"]),
            *("--topic", "tt-amqp", "--data", str(node.data), "-o", "json"),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env=environment(),
    )
    assert ran.returncode == 0, ran.stderr
    assert words({"events": json.loads(ran.stdout)["history"]}) == expected


def test_consumers_that_are_pushed_to_are_noted(node: Process) -> None:
    with node.amqp() as connection:
        channel = connection.channel()
        channel.queue_declare("tt-push", durable=True)
        trace(node, "tt-push", "all")
        tags: list[int] = []

        def came(_channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
            tags.append(method.delivery_tag)

        channel.basic_consume("tt-push", came)
        uid = send(node, "tt-push")
        while not tags:
            connection.process_data_events(1)
        channel.basic_reject(tags[0], requeue=False)
        connection.process_data_events(0)
        page = until(node, "tt-push", uid, lambda found: "given_up" in found)
    assert words(page) == ["stored", "handed_out", "given_up"]
    assert page["events"][0]["protocol"] == "weir"
    assert noted(page)[2]["reason"] == "rejected"


def test_a_message_over_sqs_is_followed_through_its_leases(node: Process) -> None:
    client = sqs_client(f"http://127.0.0.1:{node.listeners['sqs.http']}")
    url = client.create_queue(QueueName="tt-sqs")["QueueUrl"]
    assert trace(node, "tt-sqs", "all").status == 200
    client.send_message(QueueUrl=url, MessageBody="x")
    (shown,) = node.api("GET", "/topics/tt-sqs/messages").json["messages"]
    (got,) = client.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
    handle = got["ReceiptHandle"]
    client.change_message_visibility(QueueUrl=url, ReceiptHandle=handle, VisibilityTimeout=600)
    client.delete_message(QueueUrl=url, ReceiptHandle=handle)
    page = until(node, "tt-sqs", shown["uid"], lambda found: "acked" in found)
    assert words(page) == ["stored", "leased", "extended", "acked"]
    leased = noted(page)[1]
    assert leased["until_ms"] > leased["time_ms"]
    assert leased["protocol"] == "sqs"


def test_one_in_a_hundred_is_followed_and_only_while_it_is_asked_for(node: Process) -> None:
    node.api("POST", "/topics", {"name": "tt-sample"})
    trace(node, "tt-sample", "sample")
    with node.amqp() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for _ in range(2 * SAMPLE_ONE_IN):
            channel.basic_publish("", "tt-sample", b"x", pika.BasicProperties(delivery_mode=2))
    shown = node.api("GET", "/topics/tt-sample/messages?limit=200").json["messages"]
    uids = [each["uid"] for each in shown]
    assert len(uids) == 2 * SAMPLE_ONE_IN
    ends = time.monotonic() + PATIENCE_S
    found: list[int] = []
    while len(found) < 2:
        assert time.monotonic() < ends
        found = [at for at, each in enumerate(uids) if words(history(node, "tt-sample", each))]
    assert [at // SAMPLE_ONE_IN for at in found] == [0, 1]
    trace(node, "tt-sample", "off")
    assert node.api("GET", "/topics/tt-sample").json["trace"] == "off"
    trace(node, "tt-sample", "all")
    marked = send(node, "tt-sample")
    until(node, "tt-sample", marked, lambda found: "stored" in found)
    trace(node, "tt-sample", "off")
    unmarked = send(node, "tt-sample")
    time.sleep(2.5)
    assert words(history(node, "tt-sample", unmarked)) == []


def test_the_next_topic_of_the_name_is_not_traced_and_reads_nothing(node: Process) -> None:
    node.api("POST", "/topics", {"name": "tt-again"})
    trace(node, "tt-again", "all")
    uid = send(node, "tt-again")
    until(node, "tt-again", uid, lambda found: "stored" in found)
    node.api("DELETE", "/topics/tt-again")
    node.api("POST", "/topics", {"name": "tt-again"})
    assert node.api("GET", "/topics/tt-again").json["trace"] == "off"
    assert words(history(node, "tt-again", uid)) == []
    assert trace(node, "tt-again", "all").status == 200
    assert trace(node, "tt-again", "off").status == 200


def test_what_cannot_be_traced_is_refused_by_name(node: Process) -> None:
    with node.amqp() as connection:
        connection.channel().queue_declare("tt-memory", durable=False, exclusive=True)
        refused = trace(node, "tt-memory", "all")
        assert refused.status in {403, 409}, refused.body
        assert "in memory" in refused.body.decode()
    assert trace(node, "tt-none", "all").status == 404
    node.api("POST", "/topics", {"name": "tt-plain"})
    assert trace(node, "tt-plain", "some").status == 400
    assert node.api("GET", "/topics/tt-plain/history/nonsense").status == 400
    made = [f"tt-many-{each}" for each in range(11)]
    traced = []
    for name in made:
        node.api("POST", "/topics", {"name": name})
        traced.append(trace(node, name, "sample").status)
    assert traced[-1] != 200
    for name in made:
        trace(node, name, "off")


def test_the_setting_and_what_was_noted_outlive_the_process(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        node.api("POST", "/topics", {"name": "tt-kept"})
        trace(node, "tt-kept", "all")
        first = send(node, "tt-kept")
        node.terminate()
    with serving(tmp_path) as node:
        # Nothing waited for: what was noted last was written when the process was told to stop.
        assert words(history(node, "tt-kept", first)) == ["stored"]
        second = send(node, "tt-kept")
        until(node, "tt-kept", second, lambda found: found == ["stored"])


def test_leaders_of_a_cluster_note_what_clients_of_a_gateway_do(running: Running) -> None:
    _, (gateway, _) = running
    with gateway.amqp() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("tt-cluster", durable=True)
        assert trace(gateway, "tt-cluster", "all").status == 200
        # Its leader hears of it by the register: until then nothing is noted.
        ends = time.monotonic() + PATIENCE_S
        found: list[str] = []
        while not found:
            assert time.monotonic() < ends
            channel.basic_publish("", "tt-cluster", b"x", pika.BasicProperties(delivery_mode=2))
            shown = gateway.api("GET", "/topics/tt-cluster/messages").json["messages"][-1]
            channel.basic_ack(taken(channel, "tt-cluster").delivery_tag)
            time.sleep(1.5)
            found = words(history(gateway, "tt-cluster", shown["uid"]))
        page = until(gateway, "tt-cluster", shown["uid"], lambda found: "acked" in found)
    assert words(page) == ["stored", "handed_out", "acked"]
    assert page["events"][0]["process"].startswith("store ")
    assert page["events"][0]["protocol"] == "amqp"


def test_a_killed_process_goes_on_tracing_and_so_many_topics_may_be_traced(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        for number in range(TENANT_TRACES_MAX + 1):
            assert node.api("POST", "/topics", {"name": f"tt-{number}"}).status == 201
        for number in range(TENANT_TRACES_MAX):
            assert trace(node, f"tt-{number}", "all").status == 200
        refused = trace(node, f"tt-{TENANT_TRACES_MAX}", "all")
        assert refused.status == 429, refused.body
        assert f"{TENANT_TRACES_MAX} topics of the tenant" in refused.json["error"]["message"]
        assert trace(node, "tt-0", "sample").status == 200, "one that is traced already"
        assert trace(node, "tt-1", "off").status == 200
        assert trace(node, f"tt-{TENANT_TRACES_MAX}", "all").status == 200
        before = send(node, "tt-2")
        until(node, "tt-2", before, bool)
        node.kill()
    with serving(tmp_path) as node:
        assert words(history(node, "tt-2", before)) == ["stored"]
        after = send(node, "tt-2")
        until(node, "tt-2", after, bool)


@simulated()
async def test_what_cannot_be_written_is_counted_and_the_next_is(world: World) -> None:
    buffer = TraceBuffer()
    writer = TraceWriter(world.client, world.clock, buffer, "here")
    who = ConnectedUser("t", "bob", "amqp", "127.0.0.1:7", "amqp-1")
    event = Event(int(What.ACKED), 1, 0, "default", 1, "", 0, [(0, 5)], b"", who)

    async def refuses(_body: bytes) -> KernelError | None:
        raise KernelError(Code.NO_SPACE, "no room")

    store, writer._stream.store = writer._stream.store, refuses  # type: ignore[method-assign]
    buffer.add(TopicId(7), event)
    await writer.flush()
    assert (buffer.dropped, writer.written) == (1, 0)
    writer._stream.store = store  # type: ignore[method-assign]
    buffer.add(TopicId(7), event)
    await writer.flush()
    assert (buffer.dropped, writer.written) == (1, 1)
    ((_, body),), *_ = await stream_of(world.client, world.clock).read(0, 0, 10)
    assert events_in(body, 7) == ("here", [event])
    damaged = body[:9] + bytes([body[9] ^ 0xFF]) + body[10:]
    for other in (damaged, body[:12], b"", body[:4]):
        assert events_in(other, 7)[1] in ([], [event])
    assert events_in(body, 8) == ("", [])


def test_what_was_written_before_connections_were_named_is_read() -> None:
    event = [int(What.ACKED), 1, 0, "default", 1, "", 0, [[0, 5]], b""]
    body = (7).to_bytes(8, "little") + msgspec.msgpack.encode([1, "here", [event]])
    process, (read,) = events_in(body, 7)
    assert (process, read.ranges, read.by) == ("here", [(0, 5)], None)


def test_what_comes_to_the_queues_of_a_resize_is_noted_where_it_lies(node: Process) -> None:
    """A queue that begins above 0 is no queue whose first messages were not noted."""
    assert node.api("POST", "/topics", {"name": "tt-grows", "type": "work"}).status == 201
    for _ in range(5):
        send(node, "tt-grows")
    trace(node, "tt-grows", "all")
    resized = node.api("POST", "/topics/tt-grows/resize", {"queues": 3, "by_key": True})
    assert resized.status == 200, resized.body
    for _ in range(9):
        uid = send(node, "tt-grows")
        page = until(node, "tt-grows", uid, bool)
        found = node.api("GET", f"/topics/tt-grows/trace/{uid}").json["found"]
        (shown,) = (each["message"] for each in found)
        assert words(page) == ["stored"]
        assert page["place"] == [shown["queue"], shown["offset"]]
    trace(node, "tt-grows", "off")
