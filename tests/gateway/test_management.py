"""RabbitMQ's management API: what its tools ask, and what they get.

The shapes are those that Debian 12's rabbitmq-server 3.10.8 answered to the same requests.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from adapters.amqp.management import messages
from adapters.amqp.management.requests import Refused, UnderWay
from tests.gateway.management import ask, managed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.gateway.serving import Process

RABBITMQADMIN = shutil.which("rabbitmqadmin")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("management")
    with managed(folder, "tenants: {acme: {}}") as process:
        api = process.api
        api("PUT", "/policies/some", {"rules": ["allow inspect,consume topic:orders-*"]})
        password = {"password": "a long password"}
        api("POST", "/users", {"name": "some", "policies": ["some"], **password})
        api("POST", "/users", {"name": "none", **password})
        api("POST", "/users", {"name": "root", "policies": ["administrator"], **password})
        worker = {"name": "worker", "policies": ["full"], **password}
        api("POST", "/users?tenant=acme", worker)
        yield process


def test_a_queue_comes_is_bound_shown_purged_and_goes(node: Process) -> None:
    assert ask(node, "PUT", "/queues/%2F/q", {"arguments": {"x-max-length": 9}}).status == 201
    assert ask(node, "PUT", "/queues/%2F/q", {"arguments": {"x-max-length": 9}}).status == 204
    other = ask(node, "PUT", "/queues/%2F/q", {"durable": False})
    assert (other.status, other.json["error"]) == (400, "bad_request")
    assert other.json["reason"].startswith("inequivalent arg 'durable' for queue 'q'")
    assert ask(node, "PUT", "/exchanges/%2F/x", {"type": "topic"}).status == 201
    assert ask(node, "POST", "/bindings/%2F/e/x/q/q", {"routing_key": "a.*"}).status == 201
    with node.amqp() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for _ in range(3):
            channel.basic_publish("x", "a.b", b"one")
        channel.basic_get("q")
        shown = ask(node, "GET", "/queues/%2F/q").json
        figures = ("messages", "messages_ready", "messages_unacknowledged")
        assert [shown[each] for each in figures] == [3, 2, 1]
    assert (shown["name"], shown["vhost"], shown["type"]) == ("q", "/", "classic")
    assert shown["arguments"] == {"x-max-length": 9}
    assert shown["message_stats"]["publish"] == 3
    (bound,) = ask(node, "GET", "/bindings/%2F/e/x/q/q").json
    assert bound == {
        "source": "x",
        "vhost": "/",
        "destination": "q",
        "destination_type": "queue",
        "routing_key": "a.*",
        "arguments": {},
        "properties_key": "a.%2A",
    }
    assert bound in ask(node, "GET", "/queues/%2F/q/bindings").json
    assert bound in ask(node, "GET", "/exchanges/%2F/x/bindings/source").json
    assert bound in ask(node, "GET", "/bindings/%2F").json
    assert ask(node, "DELETE", "/bindings/%2F/e/x/q/q/a.%252A").status == 204
    assert ask(node, "DELETE", "/bindings/%2F/e/x/q/q/a.%252A").status == 404
    assert ask(node, "DELETE", "/queues/%2F/q/contents").status == 204
    assert ask(node, "GET", "/queues/%2F/q").json["messages_ready"] == 0
    for path in ("/queues/%2F/q", "/exchanges/%2F/x"):
        assert ask(node, "DELETE", path).status == 204
        gone = ask(node, "GET", path)
        assert (gone.status, gone.json["reason"]) == (404, "Not Found")


def test_lists_are_filtered_sorted_and_cut(node: Process) -> None:
    for number in range(5):
        ask(node, "PUT", f"/queues/%2F/orders-{number}", {})
    ask(node, "PUT", "/queues/%2F/new-orders", {})
    found = ask(node, "GET", "/queues?page=2&page_size=2&name=orders-&use_regex=false").json
    assert [each["name"] for each in found["items"]] == ["orders-2", "orders-3"]
    del found["items"]
    assert found == {
        "filtered_count": 5,
        "item_count": 2,
        "page": 2,
        "page_count": 3,
        "page_size": 2,
        "total_count": found["total_count"],
    }
    assert ask(node, "GET", "/queues?page=9").json["error"] == "page_out_of_range"
    for query in ("page=0", "page=x", "page=1&page_size=501", "page=1&page_size=-1"):
        bad = ask(node, "GET", f"/queues?{query}")
        assert (bad.status, bad.json["error"]) == (400, "invalid_pagination_parameters")
    down = ask(node, "GET", "/queues?sort=name&sort_reverse=true&columns=name,vhost").json
    assert down[0] == {"name": "orders-4", "vhost": "/"}


def test_kedas_requests_are_answered(node: Process) -> None:
    # KEDA's RabbitMQ scaler, protocol http: one queue, and several by an expression.
    ask(node, "PUT", "/queues/%2F/orders-1", {})
    one = ask(node, "GET", "/queues/%2F/orders-1").json
    assert {"messages", "messages_unacknowledged", "message_stats", "name"} <= set(one)
    assert one["message_stats"]["publish_details"]["rate"] == 0.0
    query = "page=1&use_regex=true&pagination=false&name=%5Eorders-%5B0-9%5D%2B%24&page_size=100"
    several = ask(node, "GET", f"/queues/%2F?{query}").json
    names = [each["name"] for each in several["items"]]
    assert "orders-1" in names
    assert "new-orders" not in names


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("(a%2B)%2B", "it repeats a group"),
        ("a*a*a*b", "it repeats more than 2 things"),
        ("(%3F%3Da)", "it looks around"),
        ("(a)%5C1", "it refers back"),
        ("%5B", "is no regular expression"),
    ],
)
def test_an_expression_that_could_take_for_ever_is_refused(
    node: Process, expression: str, says: str
) -> None:
    found = ask(node, "GET", f"/queues?use_regex=true&name={expression}")
    assert found.status == 400
    assert says in found.json["reason"]


def test_a_user_sees_and_does_what_it_may_through_amqp(node: Process) -> None:
    password = "a long password"
    ask(node, "PUT", "/queues/%2F/orders-1", {})
    ask(node, "PUT", "/queues/%2F/secret", {})
    some = f"some:{password}"
    names = {each["name"] for each in ask(node, "GET", "/queues", login=some).json}
    assert "orders-1" in names
    assert "secret" not in names
    assert ask(node, "GET", "/queues/%2F/secret", login=some).status == 404
    refused = ask(node, "DELETE", "/queues/%2F/orders-1", login=some)
    assert (refused.status, refused.json["error"]) == (401, "not_authorised")
    assert "access to queue 'orders-1' in vhost '/' refused" in refused.json["reason"]
    nobody = f"none:{password}"
    assert ask(node, "GET", "/queues", login=nobody).json == []
    assert ask(node, "GET", "/connections", login=nobody).json == []
    wrong = ask(node, "GET", "/queues", login="guest:wrong")
    assert (wrong.status, wrong.json) == (
        401,
        {"error": "not_authorized", "reason": "Login failed"},
    )
    # The checks of Nagios sign in for this realm alone.
    assert wrong.headers["www-authenticate"] == 'Basic realm="RabbitMQ Management"'


def test_another_virtual_host_is_seen_by_its_users_and_by_administrators(node: Process) -> None:
    worker, root = "acme:worker:a long password", "root:a long password"
    assert ask(node, "PUT", "/queues/acme/inside", {}, login=worker).status == 201
    assert ask(node, "GET", "/queues/%2F", login=worker).status == 404
    assert ask(node, "GET", "/queues/acme/inside").status == 404
    hosts = [each["name"] for each in ask(node, "GET", "/vhosts", login=worker).json]
    assert hosts == ["acme"]
    assert ask(node, "GET", "/queues/acme/inside", login=root).json["vhost"] == "acme"
    assert ask(node, "GET", "/whoami", login=root).json["tags"] == ["administrator"]
    assert [each["name"] for each in ask(node, "GET", "/vhosts").json] == ["/"]


def test_connections_channels_and_consumers_are_those_of_ones_own(node: Process) -> None:
    ask(node, "PUT", "/queues/%2F/orders-1", {})
    with node.amqp() as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=7)
        tag = channel.basic_consume("orders-1", lambda *_: None)
        (shown,) = ask(node, "GET", "/connections").json
        assert (shown["user"], shown["vhost"], shown["channels"]) == ("guest", "/", 1)
        (seen,) = ask(node, "GET", "/channels").json
        assert seen["consumer_count"] == 1
        (consumer,) = ask(node, "GET", "/consumers/%2F").json
        assert (consumer["consumer_tag"], consumer["queue"]["name"]) == (tag, "orders-1")
        assert consumer["prefetch_count"] == 7
        assert ask(node, "GET", "/connections", login="none:a long password").json == []
        assert len(ask(node, "GET", "/connections", login="root:a long password").json) == 1


def test_the_whole_and_its_health(node: Process) -> None:
    found = ask(node, "GET", "/overview").json
    assert found["object_totals"]["queues"] >= 1
    assert found["management_version"]
    assert ask(node, "GET", "/nodes").json[0]["running"] is True
    port = node.listeners["amqp.tcp"]
    for path in (
        *("/aliveness-test/%2F", "/healthchecks/node", "/health/checks/alarms"),
        *(f"/health/checks/port-listener/{port}", "/health/checks/protocol-listener/amqp"),
    ):
        assert ask(node, "GET", path).json["status"] == "ok", path
    assert ask(node, "GET", "/health/checks/port-listener/1").status == 503
    assert ask(node, "GET", "/aliveness-test/nope").status == 404


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nope", 404),
        ("GET", "/queues/nope/nope", 404),
        ("PATCH", "/overview", 405),
        ("GET", "/queues/%2F/q/get", 405),
        ("POST", "/queues/%2F/nope/get", 400),
        ("POST", "/exchanges/%2F/amq.default/publish", 400),
        ("PATCH", "/queues/%2F/users", 405),
        ("POST", "/queues/%2F/q/actions", 400),
        ("PUT", "/parameters/shovel/%2F/x", 400),
        ("GET", "/users", 401),
        ("PUT", "/policies/%2F/x", 400),
        ("DELETE", "/policies/%2F/x", 400),
        ("PUT", "/operator-policies/%2F/x", 400),
        ("GET", "/feature-flags", 501),
        ("GET", "/policies/%2F/x", 501),
        ("PUT", "/queues/%2F/amq.q", 401),
        ("PUT", "/exchanges/%2F/x", 400),
    ],
)
def test_what_is_not_served_is_refused_with_a_reason(
    node: Process, method: str, path: str, status: int
) -> None:
    found = ask(node, method, path, {})
    assert found.status == status
    assert set(found.json) == {"error", "reason"}


PUBLISH = {"properties": {}, "routing_key": "m-q", "payload": "x", "payload_encoding": "string"}
GET = {"count": 5, "ackmode": "ack_requeue_false", "encoding": "auto"}


def test_messages_are_published_and_got_as_rabbitmq_does_it(node: Process) -> None:
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "m-dead"}
    assert ask(node, "PUT", "/queues/%2F/m-dead", {}).status == 201
    assert ask(node, "PUT", "/queues/%2F/m-q", {"arguments": dead}).status == 201
    said = {
        "delivery_mode": 2,
        "priority": 1,
        "content_type": "text/plain",
        "timestamp": 1_700_000_000,
        "headers": {"n": 7, "list": [1, "two"], "inner": {"yes": True}},
    }
    path = "/exchanges/%2F/amq.default/publish"
    sent = ask(node, "POST", path, {**PUBLISH, "properties": said, "payload": "gr\u00fc\u00df"})
    assert (sent.status, sent.json) == (200, {"routed": True})
    bytes_ = {**PUBLISH, "payload": base64.b64encode(b"\xff\x00").decode()}
    assert ask(node, "POST", path, {**bytes_, "payload_encoding": "base64"}).json["routed"]
    assert ask(node, "POST", path, {**PUBLISH, "routing_key": "nobody"}).json == {"routed": False}

    def got(**fields: Any) -> Any:
        found = ask(node, "POST", "/queues/%2F/m-q/get", {**GET, **fields})
        assert found.status == 200, found.body
        return found.json

    first, second = got(ackmode="ack_requeue_true", truncate=3)
    assert (first["payload_bytes"], first["redelivered"]) == (6, False)
    assert (first["payload"], first["payload_encoding"]) == ("Z3LD", "base64"), "cut in a letter"
    assert first["properties"] == said
    assert (first["exchange"], first["routing_key"]) == ("", "m-q")
    assert (second["payload"], second["payload_encoding"]) == ("/wA=", "base64")
    (again,) = got(count=1, ackmode="reject_requeue_false", encoding="base64")
    assert again["redelivered"] is True
    assert base64.b64decode(again["payload"]).decode() == "gr\u00fc\u00df"
    (last,) = got()
    assert (last["payload"], last["message_count"]) == ("/wA=", 0)
    assert got() == []
    with node.amqp() as connection:
        method, fields, body = connection.channel().basic_get("m-dead", auto_ack=True)
        assert (method is not None, body.decode()) == (True, "gr\u00fc\u00df")
        assert fields.headers["x-death"][0]["reason"] == "rejected"


@pytest.mark.parametrize(
    "fields",
    [
        {"payload_encoding": "hex"},
        {"payload_encoding": "base64", "payload": "?"},
        {"payload": 7},
        {"routing_key": "k" * 256},
        {"routing_key": None},
        {"properties": []},
        {"properties": {"color": "red"}},
        {"properties": {"priority": 256}},
        {"properties": {"headers": 1}},
        {"properties": {"headers": {"n" * 300: 1}}},
        {"properties": {"headers": {"n": 1 << 70}}},
        {"properties": {"content_type": "t" * 300}},
        {"properties": {"expiration": "soon"}},
        {"properties": {"user_id": "somebody else"}},
        {"properties": {"reply_to": "amq.rabbitmq.reply-to"}},
    ],
)
def test_a_message_that_cannot_be_is_refused_with_a_reason(
    node: Process, fields: dict[str, Any]
) -> None:
    found = ask(node, "POST", "/exchanges/%2F/amq.default/publish", {**PUBLISH, **fields})
    assert (found.status, set(found.json)) == (400, {"error", "reason"}), found.body


async def test_only_so_many_requests_get_messages_at_once() -> None:
    async def queue(_caller: object, _name: str) -> Any:
        return SimpleNamespace(name="q", groups=["default"], options=SimpleNamespace(tree=False))

    def anything(*_: object) -> None:
        """It may."""

    broker = SimpleNamespace(
        declarations=SimpleNamespace(queue=queue),
        under_way=UnderWay(gets=messages.GETS_MAX),
        limiter=None,
    )
    caller = SimpleNamespace(require=anything, require_all=anything)
    asked: Any = SimpleNamespace(
        host=lambda: caller,
        account=lambda _caller: None,
        names={"name": "q"},
        read=lambda _names: GET,
        broker=broker,
    )
    with pytest.raises(Refused, match="4 requests get messages already") as refused:
        await messages.get(asked)
    assert (refused.value.status, broker.under_way.gets) == (503, messages.GETS_MAX)


def test_messages_need_the_rights_that_a_channel_needs(node: Process) -> None:
    for name in ("orders-m", "others-m"):
        assert ask(node, "PUT", f"/queues/%2F/{name}", {}).status == 201
    login = "some:a long password"
    path = "/exchanges/%2F/amq.default/publish"
    assert ask(node, "POST", path, {**PUBLISH, "routing_key": "orders-m"}, login).status == 401
    assert ask(node, "POST", path, {**PUBLISH, "routing_key": "orders-m"}).json["routed"]
    assert len(ask(node, "POST", "/queues/%2F/orders-m/get", GET, login).json) == 1
    assert ask(node, "POST", "/queues/%2F/others-m/get", GET, login).status == 401
    assert ask(node, "POST", "/exchanges/%2F/no-such/publish", PUBLISH).status == 404
    for fields in ({"count": 0}, {"count": 1_001}, {"ackmode": "maybe"}, {"encoding": "hex"}):
        assert ask(node, "POST", "/queues/%2F/orders-m/get", {**GET, **fields}).status == 400
    assert ask(node, "POST", path, {**PUBLISH, "payload": "y" * (5 << 20)}).status == 413


def test_a_page_of_another_name_cannot_ask_with_the_login_that_everybody_knows(
    node: Process,
) -> None:
    assert ask(node, "GET", "/queues", host="evil.example.org").json["error"]["code"] == (
        "wrong_host"
    )
    assert ask(node, "PUT", "/queues/%2F/big", {"x": "y" * 70_000}).status == 413


@pytest.mark.skipif(RABBITMQADMIN is None, reason="Debian's rabbitmq-server is not installed")
def test_rabbitmqadmin_declares_and_lists(node: Process) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        assert RABBITMQADMIN is not None
        return subprocess.run(
            [
                *(sys.executable, "-W", "ignore", RABBITMQADMIN),
                *("-P", str(node.listeners["management"]), *arguments),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    def admin(*arguments: str) -> str:
        ran = run(*arguments)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout

    policy = ("name=p", "pattern=.*", 'definition={"max-length": 5}')
    refused = run("declare", "policy", *policy)
    assert refused.returncode == 1
    assert "a queue has its settings itself" in refused.stdout + refused.stderr
    assert "Traceback" not in refused.stdout + refused.stderr
    admin("declare", "queue", "name=by-admin", "durable=true")
    admin("declare", "exchange", "name=by-admin", "type=direct")
    admin("declare", "binding", "source=by-admin", "destination=by-admin", "routing_key=k")
    assert "by-admin" in admin("list", "queues", "name", "messages")
    assert "by-admin" in admin("list", "bindings")
    assert "by-admin" in admin("list", "exchanges")
    for kind in ("connections", "channels", "consumers", "vhosts", "nodes"):
        admin("list", kind)
    admin("show", "overview")
    said = 'properties={"delivery_mode": 2, "headers": {"n": 1}}'
    sent = admin("publish", "exchange=by-admin", "routing_key=k", "payload=by hand", said)
    assert "Message published" in sent
    assert "NOT routed" in admin("publish", "routing_key=nobody", "payload=by hand")
    for mode in ("ack_requeue_true", "reject_requeue_true", "ack_requeue_false"):
        assert "by hand" in admin("get", "queue=by-admin", "count=3", f"ackmode={mode}")
    assert "by hand" not in admin("get", "queue=by-admin")
    admin("purge", "queue", "name=by-admin")
    admin("delete", "queue", "name=by-admin")
    admin("delete", "exchange", "name=by-admin")
