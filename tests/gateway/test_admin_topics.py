"""Topics, groups, routers, routes and messages over the admin API."""

from __future__ import annotations

import base64
import time
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

if TYPE_CHECKING:
    from tests.gateway.serving import Answer, Process


def made(answer: Answer) -> Any:
    assert answer.status == 201, answer.body
    return answer.json


def error_of(answer: Answer) -> tuple[int, str]:
    return answer.status, answer.json["error"]["code"]


@pytest.mark.parametrize("kind", ["normal", "fifo", "delay", "transaction"])
def test_a_stream_has_eight_queues_and_three_days(node: Process, kind: str) -> None:
    topic = made(node.api("POST", "/topics", {"name": f"stream-{kind}", "type": kind}))
    assert (topic["type"], len(topic["queues"]), topic["groups"]) == (kind, 8, [])
    assert topic["options"]["kind"] == "stream"
    assert topic["options"]["retention_ms"] == 72 * 3_600_000
    assert topic["declared_by"] == ["rocketmq"]


def test_a_work_topic_has_one_queue_and_its_group(node: Process) -> None:
    topic = made(node.api("POST", "/topics", {"name": "work-1", "type": "work"}))
    assert (topic["type"], len(topic["queues"])) == ("work", 1)
    assert [group["name"] for group in topic["groups"]] == ["default"]
    assert error_of(node.api("POST", "/topics", {"name": "work-1", "type": "work"})) == (
        409,
        "already_exists",
    )


@pytest.mark.parametrize("name", ["a/b c%2F", "Größe", "..", "?x=1", "purge"])
def test_any_name_can_be_spelled_in_a_path(node: Process, name: str) -> None:
    made(node.api("POST", "/topics", {"name": name, "type": "work"}))
    path = "/topics/" + quote(name, safe="")
    assert node.api("GET", path).json["name"] == name
    assert node.api("POST", path + "/purge").json == {"messages": 0}
    assert node.api("DELETE", path).status == 200
    assert error_of(node.api("GET", path)) == (404, "not_found")


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({}, "name"),
        ({"name": ""}, "1 to 255 bytes"),
        ({"name": "x" * 256}, "1 to 255 bytes"),
        ({"name": "amq.mine"}, "reserved"),
        ({"name": "__metering"}, "reserved"),
        ({"name": "a\nb"}, "printable"),
        ({"name": "t", "queues": 0}, "queues"),
        ({"name": "t", "queues": 257}, "queues"),
        ({"name": "t", "type": "other"}, "other"),
        ({"name": "t", "colour": "red"}, "colour"),
        ([], "object"),
    ],
)
def test_a_bad_topic_is_refused_with_the_reason(node: Process, body: Any, says: str) -> None:
    found = node.api("POST", "/topics", body)
    assert error_of(found) == (400, "invalid_argument")
    assert says in found.json["error"]["message"]


def test_a_body_that_is_not_json_is_refused(node: Process) -> None:
    for body in ("{", "\x00", "nan"):
        found = node.http("PATCH", "/api/v1/topics/x", body, headers={"Content-Type": "x"})
        assert error_of(found) == (400, "invalid_argument")


def test_settings_change_one_by_one_and_null_clears(node: Process) -> None:
    made(node.api("POST", "/topics", {"name": "changing", "type": "work", "messages_max": 10}))
    found = node.api("PATCH", "/topics/changing", {"message_ttl_ms": 5000}).json
    assert (found["options"]["message_ttl_ms"], found["options"]["messages_max"]) == (5000, 10)
    found = node.api("PATCH", "/topics/changing", {"messages_max": None}).json
    assert (found["options"]["message_ttl_ms"], found["options"]["messages_max"]) == (5000, None)
    assert error_of(node.api("PATCH", "/topics/changing", {"queues": 3}))[0] == 400
    assert error_of(node.api("PATCH", "/topics/none", {}))[0] == 404


def test_listings_are_paged_and_filtered(node: Process) -> None:
    for number in range(5):
        made(node.api("POST", "/topics", {"name": f"page-{number}", "type": "work"}))
    made(node.api("POST", "/topics", {"name": "page-stream"}))
    seen = []
    after = ""
    while after is not None:
        page = node.api("GET", f"/topics?prefix=page-&limit=2&after={after}").json
        assert len(page["topics"]) <= 2
        seen += [topic["name"] for topic in page["topics"]]
        after = page["next"]
    assert seen == [*(f"page-{number}" for number in range(5)), "page-stream"]
    streams = node.api("GET", "/topics?prefix=page-&type=normal").json["topics"]
    assert [topic["name"] for topic in streams] == ["page-stream"]
    for query in ("limit=0", "limit=1001", "limit=x", "limit=-1"):
        assert error_of(node.api("GET", f"/topics?{query}")) == (400, "invalid_argument")


def test_groups_live_on_topics(node: Process) -> None:
    made(node.api("POST", "/topics", {"name": "grouped", "type": "work"}))
    made(node.api("POST", "/topics", {"name": "dead", "type": "work"}))
    asked = {"name": "billing", "attempts_max": 3, "dead_letter": {"router": None, "key": "dead"}}
    group = made(node.api("POST", "/topics/grouped/groups", asked))
    assert group["options"]["attempts_max"] == 3
    assert group["options"]["dead_letter"] == {"router": None, "key": "dead"}
    assert error_of(node.api("POST", "/topics/grouped/groups", asked)) == (409, "already_exists")
    changed = node.api("PATCH", "/topics/grouped/groups/billing", {"lease_ms": 1000}).json
    assert (changed["options"]["lease_ms"], changed["options"]["attempts_max"]) == (1000, 3)
    listed = node.api("GET", "/groups?topic=grouped").json["groups"]
    assert [each["name"] for each in listed] == ["billing", "default"]
    assert "billing" in [each["name"] for each in node.api("GET", "/groups").json["groups"]]
    assert error_of(node.api("DELETE", "/topics/grouped/groups/default")) == (409, "in_use")
    assert node.api("DELETE", "/topics/grouped/groups/billing").status == 204
    assert error_of(node.api("GET", "/topics/grouped/groups/billing")) == (404, "not_found")
    assert error_of(node.api("GET", "/groups?topic=none")) == (404, "not_found")


def test_group_pages_reach_every_topic(node: Process) -> None:
    seen: list[str] = []
    after = ""
    while after is not None:
        page = node.api("GET", f"/groups?limit=3&after={quote(after, safe='')}").json
        seen += [f"{each['topic']} {each['name']}" for each in page["groups"]]
        after = page["next"]
    whole = node.api("GET", "/groups?limit=1000").json["groups"]
    assert seen == [f"{each['topic']} {each['name']}" for each in whole]


def test_a_new_group_begins_with_what_is_kept_and_has_what_consumers_count_on(
    node: Process,
) -> None:
    """As one that a RocketMQ client makes by use: 16 retries, and then a topic of dead letters."""
    made(node.api("POST", "/topics", {"name": "late", "type": "fifo"}))
    made(node.api("POST", "/topics/late/messages", {"body": "before"}))
    group = made(node.api("POST", "/topics/late/groups", {"name": "g"}))
    options = group["options"]
    assert (options["start"], options["ordered"]) == ("earliest", True)
    assert (options["attempts_max"], options["dead_letter"]["key"]) == (17, "dlq.g")
    assert group["ready"] == 1
    assert node.api("GET", "/topics/dlq.g").json["type"] == "work"
    bare = {"name": "e", "start": "latest", "attempts_max": None, "dead_letter": None}
    late = made(node.api("POST", "/topics/late/groups", bare))
    options = late["options"]
    assert (options["attempts_max"], options["dead_letter"]) == (None, None)
    assert late["ready"] == 0
    assert error_of(node.api("GET", "/topics/dlq.e")) == (404, "not_found")


def test_what_retention_drops_is_counted_and_shown(node: Process) -> None:
    made(node.api("POST", "/topics", {"name": "brief", "type": "work", "retention_ms": 86_400_000}))
    node.api("POST", "/topics/brief/messages", {"body": "old"})
    (group,) = node.api("GET", "/topics/brief").json["groups"]
    assert (group["ready"], group["expired"]) == (1, 0)
    changed = node.api("PATCH", "/topics/brief", {"retention_ms": 1}).json
    assert changed["options"]["retention_ms"] == 1
    deadline = time.monotonic() + 10
    while not (group := node.api("GET", "/topics/brief").json["groups"][0])["expired"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert (group["ready"], group["expired"]) == (0, 1)
    figures = node.http("GET", "/metrics", token=None).body.decode().splitlines()
    assert "weir_messages_expired_total 1.0" in figures


def test_a_message_can_be_sent_and_looked_at_again_and_again(node: Process) -> None:
    made(node.api("POST", "/topics", {"name": "looked-at", "type": "work"}))
    asked = {
        "body": "hällo",
        "attributes": {"colour": "red", "size": 3, "hot": True},
        "ordering_key": "k",
        "tag": "t",
        "message_id": "mine",
        "priority": 4,
    }
    sent = made(node.api("POST", "/topics/looked-at/messages", asked))
    assert (sent["queue"], sent["offset"], sent["is_duplicate"]) == (0, 0, False)
    for _ in range(2):
        (message,) = node.api("GET", "/topics/looked-at/messages").json["messages"]
        assert message["uid"] == sent["uid"]
        assert {name: message[name] for name in asked} == asked
        assert message["writer"] == "weir"
    (group,) = node.api("GET", "/topics/looked-at").json["groups"]
    assert (group["ready"], group["leased"]) == (1, 0)
    assert 0 <= group["oldest_age_ms"] < 60_000
    assert node.api("POST", "/topics/looked-at/purge").json == {"messages": 1}


def test_a_message_sent_here_is_delivered_over_amqp(node: Process) -> None:
    made(node.api("POST", "/topics", {"name": "over-amqp", "type": "work"}))
    node.api("POST", "/topics/over-amqp/messages", {"body": "x", "attributes": {"a": "b"}})
    connection = node.amqp()
    _method, properties, body = connection.channel().basic_get("over-amqp", auto_ack=True)
    connection.close()
    assert body == b"x"
    assert properties.headers == {"a": "b"}


def test_bytes_travel_as_base64(node: Process) -> None:
    made(node.api("POST", "/topics", {"name": "binary", "type": "work"}))
    data = base64.b64encode(bytes(range(256))).decode()
    made(node.api("POST", "/topics/binary/messages", {"body_base64": data}))
    (message,) = node.api("GET", "/topics/binary/messages").json["messages"]
    assert message["body_base64"] == data
    assert "body" not in message


def test_peeking_goes_by_pages_through_all_queues(node: Process) -> None:
    made(node.api("POST", "/topics", {"name": "wide", "queues": 3}))
    sent = [made(node.api("POST", "/topics/wide/messages", {"body": str(i)})) for i in range(9)]
    places = sorted((each["queue"], each["offset"]) for each in sent)
    seen: list[tuple[int, int]] = []
    at: tuple[int, int] | None = (0, 0)
    while at is not None:
        query = f"queue={at[0]}&offset={at[1]}&limit=2"
        page = node.api("GET", f"/topics/wide/messages?{query}").json
        seen += [(each["queue"], each["offset"]) for each in page["messages"]]
        at = tuple(page["next"]) if page["next"] else ((at[0] + 1, 0) if at[0] < 2 else None)
    assert seen == places
    assert len(node.api("GET", "/topics/wide/messages").json["messages"]) == 9
    assert error_of(node.api("GET", "/topics/wide/messages?queue=3")) == (400, "invalid_argument")


def test_peeking_begins_at_the_time_at_which_messages_were_stored(node: Process) -> None:
    made(node.api("POST", "/topics", {"name": "timed", "queues": 2}))
    marks: list[tuple[int, int]] = []
    for number in range(12):
        if number % 4 == 0:
            time.sleep(0.02)
            marks.append((number, int(time.time() * 1_000)))
            time.sleep(0.02)
        made(node.api("POST", "/topics/timed/messages", {"body": str(number)}))
    for number, since_ms in [(0, 1), *marks, (12, marks[-1][1] + 3_600_000)]:
        page = node.api("GET", f"/topics/timed/messages?limit=100&since_ms={since_ms}").json
        assert sorted(int(row["body"]) for row in page["messages"]) == list(range(number, 12))
    last = node.api("GET", "/topics/timed/messages?limit=100").json["messages"][-1]
    query = f"queue={last['queue']}&offset={last['offset']}&since_ms={marks[0][1]}"
    assert node.api("GET", f"/topics/timed/messages?{query}").json["messages"] == [last]
    assert error_of(node.api("GET", "/topics/timed/messages?since_ms=x"))[0] == 400


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"body": "x", "body_base64": "eA=="}, 400),
        ({"body_base64": "%"}, 400),
        ({"body": "x" * 11}, 413),
        ({"priority": 256}, 400),
        ({"colour": 1}, 400),
        ({"tag": "x" * 300_000}, 413),
    ],
)
def test_a_bad_message_is_refused(node: Process, body: Any, status: int) -> None:
    node.api("POST", "/topics", {"name": "small", "type": "work", "message_bytes_max": 10})
    assert node.api("POST", "/topics/small/messages", body).status == status


def test_a_full_topic_that_refuses_says_so(node: Process) -> None:
    made(
        node.api(
            "POST",
            "/topics",
            {"name": "full", "type": "work", "messages_max": 1, "overflow": "reject"},
        )
    )
    made(node.api("POST", "/topics/full/messages", {"body": "1"}))
    found = node.api("POST", "/topics/full/messages", {"body": "2"})
    assert error_of(found) == (429, "rejected")
    assert found.json["error"]["retryable"] is True


def test_duplicates_are_told(node: Process) -> None:
    body = {"name": "once", "type": "work", "deduplication_ms": 60_000}
    made(node.api("POST", "/topics", body))
    message = {"body": "1", "deduplication_id": "d"}
    first = made(node.api("POST", "/topics/once/messages", message))
    second = made(node.api("POST", "/topics/once/messages", message))
    assert (second["uid"], second["is_duplicate"]) == (first["uid"], True)


def test_routers_and_routes_lead_messages(node: Process) -> None:
    made(node.api("POST", "/topics", {"name": "routed", "type": "work"}))
    router = made(node.api("POST", "/routers", {"name": "hub", "match": "pattern"}))
    assert (router["match"], router["durable"], router["routes"]) == ("pattern", True, 0)
    assert error_of(node.api("POST", "/routers", {"name": "hub"})) == (409, "already_exists")
    route = made(node.api("POST", "/routers/hub/routes", {"key": "a/+", "topic": "routed"}))
    again = made(node.api("POST", "/routers/hub/routes", {"key": "a/+", "topic": "routed"}))
    assert again == route
    assert node.api("GET", f"/routers/hub/routes/{route['id']}").json == route
    assert node.api("GET", "/routers/hub/routes").json == {"routes": [route]}
    connection = node.amqp()
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("hub", "a.b", b"through")
    connection.close()
    (message,) = node.api("GET", "/topics/routed/messages").json["messages"]
    assert (message["body"], message["writer"]) == ("through", "amqp")
    assert node.api("DELETE", f"/routers/hub/routes/{route['id']}").status == 204
    assert error_of(node.api("GET", f"/routers/hub/routes/{route['id']}")) == (404, "not_found")
    names = [each["name"] for each in node.api("GET", "/routers?prefix=hub").json["routers"]]
    assert names == ["hub"]
    assert node.api("PATCH", "/routers/hub", {"internal": True}).json["internal"] is True
    assert node.api("DELETE", "/routers/hub").status == 204
    assert error_of(node.api("GET", "/routers/hub")) == (404, "not_found")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"key": "k"}, 400),
        ({"topic": "a", "router": "b"}, 400),
        ({"topic": "not-there"}, 404),
    ],
)
def test_a_route_to_nowhere_is_refused(node: Process, body: Any, status: int) -> None:
    node.api("POST", "/routers", {"name": "to-nowhere"})
    assert node.api("POST", "/routers/to-nowhere/routes", body).status == status
