"""Users, permissions, limits, virtual hosts and definitions over RabbitMQ's management API."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from typing import TYPE_CHECKING, Any

import pika
import pika.exceptions
import pytest

from tests.gateway.management import ask, managed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.gateway.serving import Process

PASSWORD = "a long password"
ROOT = f"root:{PASSWORD}"
HEAD = f"acme:head:{PASSWORD}"
"""Administers the tenant acme."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with managed(tmp_path_factory.mktemp("users"), "tenants: {acme: {}}") as process:
        password = {"password": PASSWORD}
        api = process.api
        api("POST", "/users", {"name": "root", "policies": ["administrator"], **password})
        api("POST", "/users", {"name": "plain", "policies": ["full"], **password})
        api("PUT", "/policies/head?tenant=acme", {"rules": ["allow administer tenant:acme"]})
        api("POST", "/users?tenant=acme", {"name": "head", "policies": ["head"], **password})
        yield process


def root(node: Process, method: str, path: str, body: Any = None) -> Any:
    """What an administrator is answered, which is no error."""
    answer = ask(node, method, path, body, ROOT)
    assert answer.status < 300, answer.body
    return answer.json if answer.body else answer.status


def opens(node: Process, name: str, password: str) -> pika.BlockingConnection | None:
    port = node.listeners["amqp.tcp"]
    credentials = pika.PlainCredentials(name, password)
    try:
        return pika.BlockingConnection(
            pika.ConnectionParameters("127.0.0.1", port, credentials=credentials)
        )
    except pika.exceptions.AMQPConnectionError:
        return None


def test_a_user_is_made_signs_in_is_changed_and_goes(node: Process) -> None:
    asked = {"password": "first", "tags": ""}
    assert ask(node, "PUT", "/users/mia", asked, ROOT).status == 201
    assert ask(node, "PUT", "/users/mia", asked, ROOT).status == 204
    shown = root(node, "GET", "/users/mia")
    assert (shown["name"], shown["tags"]) == ("mia", ["management"])
    assert shown["hashing_algorithm"] == "argon2id"
    assert shown in root(node, "GET", "/users")
    assert shown in root(node, "GET", "/users/without-permissions")
    connection = opens(node, "mia", "first")
    assert connection is not None
    connection.close()
    root(node, "PUT", "/users/mia", {"password": "second", "tags": []})
    assert opens(node, "mia", "first") is None
    assert ask(node, "DELETE", "/users/mia", login=ROOT).status == 204
    assert ask(node, "DELETE", "/users/mia", login=ROOT).status == 404
    for name in ("one", "two"):
        root(node, "PUT", f"/users/{name}", asked)
    root(node, "POST", "/users/bulk-delete", {"users": ["one", "two"]})
    assert not {"one", "two"} & {each["name"] for each in root(node, "GET", "/users")}


@pytest.mark.parametrize("kind", ["sha256", "sha512"])
def test_a_password_hash_of_rabbitmq_is_taken_and_reads_back(node: Process, kind: str) -> None:
    salt = b"salt"
    digest = hashlib.new(kind, salt + b"brought along").digest()
    hashed = base64.b64encode(salt + digest).decode()
    told = {"password_hash": hashed, "hashing_algorithm": f"rabbit_password_hashing_{kind}"}
    root(node, "PUT", f"/users/{kind}", {**told, "tags": ""})
    shown = root(node, "GET", f"/users/{kind}")
    assert {name: shown[name] for name in told} == told
    connection = opens(node, kind, "brought along")
    assert connection is not None
    connection.close()


EXPRESSIONS = [
    (".*", ".*", ".*"),
    (r"^orders\..*", r"^(orders|audit)\.new$", ""),
    ("^$", "^$", "^$"),
    ("", "", ""),
    ("", "^amq\\.default$", r"^a\.b$"),
]


@pytest.mark.parametrize("expressions", EXPRESSIONS)
def test_a_permission_reads_back_as_the_same_three_expressions(
    node: Process, expressions: tuple[str, str, str]
) -> None:
    root(node, "PUT", "/users/reader", {"password": "x", "tags": ""})
    told = dict(zip(("configure", "write", "read"), expressions, strict=True))
    path = "/permissions/%2F/reader"
    assert ask(node, "PUT", path, told, ROOT).status in {201, 204}
    row = {"user": "reader", "vhost": "/", **told}
    assert root(node, "GET", path) == row
    assert root(node, "GET", "/users/reader/permissions") == [row]
    assert row in root(node, "GET", "/permissions")
    assert row in root(node, "GET", "/vhosts/%2F/permissions")
    assert ask(node, "PUT", path, told, ROOT).status == 204
    assert "reader" not in {e["name"] for e in root(node, "GET", "/users/without-permissions")}
    root(node, "DELETE", path)
    assert ask(node, "GET", path, login=ROOT).status == 404
    assert node.api("GET", "/policies/rabbitmq-reader").status == 404
    assert ask(node, "DELETE", path, login=ROOT).status == 404


def test_a_permission_holds_and_ends_for_who_is_connected(node: Process) -> None:
    root(node, "PUT", "/users/writer", {"password": "w", "tags": ""})
    row = {"configure": "^mine-", "write": "^mine-", "read": "^mine-"}
    root(node, "PUT", "/permissions/%2F/writer", row)
    connection = opens(node, "writer", "w")
    assert connection is not None
    channel = connection.channel()
    channel.queue_declare("mine-1", durable=True)
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        channel.queue_declare("other", durable=True)
    assert refused.value.reply_code == 403
    root(node, "PUT", "/permissions/%2F/writer", {**row, "configure": ""})
    channel = connection.channel()
    with pytest.raises(pika.exceptions.ChannelClosedByBroker):
        channel.queue_declare("mine-2", durable=True)
    connection.close()


@pytest.mark.parametrize(
    ("path", "body", "says"),
    [
        ("/permissions/%2F/sam", {"configure": "^q[0-9]+$"}, "has no equal among patterns"),
        ("/permissions/%2F/sam", {"configure": 7}, "configure is no text"),
        ("/permissions/acme/sam", {}, "make the user acme:sam"),
        ("/permissions/%2F/plain", {"configure": "a"}, "holds the policies full"),
        (
            "/topic-permissions/%2F/sam",
            {"exchange": "shop", "write": "a", "read": "b"},
            "keys are told apart for amq.topic only",
        ),
        ("/users/sam", {"password": "x", "tags": "monitoring"}, "the tag monitoring"),
        ("/users/acme%3Asam", {"password": "x", "tags": "administrator"}, "of the node"),
        ("/users/sam", {"password_hash": "", "tags": ""}, "is not taken away"),
        ("/users/sam", {"password_hash": "AAAA", "tags": ""}, "base64 of a salt"),
        ("/users/guest", {"password": "x", "tags": ""}, "choose another name"),
        ("/vhosts/new", {"tracing": True}, "no tracing"),
        ("/vhost-limits/acme/max-channels", {"value": 5}, "max-channels has no equal"),
        ("/vhost-limits/acme/max-queues", {"value": 0}, "from 1, or -1"),
        ("/user-limits/sam/max-queues", {"value": 5}, "max-queues has no equal"),
    ],
)
def test_what_cannot_be_had_is_refused_with_the_reason_and_nothing_changes(
    node: Process, path: str, body: dict[str, Any], says: str
) -> None:
    root(node, "PUT", "/users/sam", {"password": "before", "tags": ""})
    before = root(node, "GET", "/users"), root(node, "GET", "/permissions")
    every = {"configure": "", "write": "", "read": ""} if path.startswith("/perm") else {}
    refused = ask(node, "PUT", path, {**every, **body}, ROOT)
    assert (refused.status, refused.json["error"]) == (400, "bad_request"), refused.body
    assert says in refused.json["reason"]
    assert before == (root(node, "GET", "/users"), root(node, "GET", "/permissions"))


def test_topic_permissions_and_tags_stand_beside_a_permission(node: Process) -> None:
    root(node, "PUT", "/users/tess", {"password": "t", "tags": "administrator"})
    assert root(node, "GET", "/users/tess")["tags"] == ["administrator"]
    root(node, "PUT", "/permissions/%2F/tess", dict.fromkeys(("configure", "write", "read"), ".*"))
    told = {"exchange": "amq.topic", "write": r"^sensors\..*", "read": r"^sensors\..*"}
    root(node, "PUT", "/topic-permissions/%2F/tess", told)
    row = {"user": "tess", "vhost": "/", **told}
    assert root(node, "GET", "/topic-permissions/%2F/tess") == [row]
    assert row in root(node, "GET", "/topic-permissions")
    rules = node.api("GET", "/policies/rabbitmq-tess").json["rules"]
    assert "allow publish tree:sensors/#" in rules
    assert "allow publish tree:#" not in rules
    root(node, "PUT", "/users/tess", {"password": "t", "tags": ""})
    assert root(node, "GET", "/users/tess")["tags"] == ["management"]
    assert root(node, "GET", "/permissions/%2F/tess")["write"] == ".*"
    root(node, "DELETE", "/topic-permissions/%2F/tess")
    assert ask(node, "GET", "/topic-permissions/%2F/tess", login=ROOT).status == 404
    assert "allow publish tree:#" in node.api("GET", "/policies/rabbitmq-tess").json["rules"]


def test_a_policy_that_was_altered_by_hand_shows_no_permission_that_is_not_so(
    node: Process,
) -> None:
    root(node, "PUT", "/users/uwe", {"password": "u", "tags": ""})
    root(node, "PUT", "/permissions/%2F/uwe", dict.fromkeys(("configure", "write", "read"), "^a$"))
    node.api("PUT", "/policies/rabbitmq-uwe", {"rules": ["allow publish topic:b"]})
    shown = ask(node, "GET", "/permissions/%2F/uwe", login=ROOT)
    assert shown.status == 404
    assert "holds the policies rabbitmq-uwe" in shown.json["reason"]
    assert "uwe" not in {each["user"] for each in root(node, "GET", "/permissions")}
    full = root(node, "GET", "/permissions/%2F/plain")
    assert (full["configure"], full["write"], full["read"]) == (".*", ".*", ".*")


def test_only_who_administers_may_and_a_tenants_administrator_its_own(node: Process) -> None:
    asked = {"password": "p", "tags": ""}
    for method, path, body in (
        ("GET", "/users", None),
        ("GET", "/permissions", None),
        ("PUT", "/users/eve", asked),
        ("PUT", "/vhosts/eve", {}),
        ("GET", "/definitions", None),
        ("POST", "/definitions", {"users": []}),
        ("GET", "/vhost-limits", None),
        ("PUT", "/vhost-limits/%2F/max-queues", {"value": 5}),
    ):
        refused = ask(node, method, path, body, f"plain:{PASSWORD}")
        assert refused.status == 401, (path, refused.body)
    long = {"users": [], "padding": "x" * 200_000}
    assert ask(node, "POST", "/definitions", long, f"plain:{PASSWORD}").status == 401, "unread"
    assert ask(node, "POST", "/definitions", long, ROOT).status == 200
    assert ask(node, "PUT", "/users/worker", asked, HEAD).status == 201
    names = {each["name"] for each in ask(node, "GET", "/users", login=HEAD).json}
    assert names == {"acme:head", "acme:worker"}
    told = {"configure": "", "write": "^a$", "read": ""}
    assert ask(node, "PUT", "/permissions/acme/acme%3Aworker", told, HEAD).status == 201
    assert ask(node, "GET", "/permissions/acme/worker", login=HEAD).json["write"] == "^a$"
    assert ask(node, "GET", "/permissions/%2F/root", login=HEAD).status == 404
    assert ask(node, "PUT", "/users/default%3Aworker", asked, HEAD).status == 404
    assert ask(node, "PUT", "/vhosts/eve", {}, HEAD).status == 401
    limit = ask(node, "PUT", "/vhost-limits/acme/max-queues", {"value": 5}, HEAD)
    assert limit.status == 401, "its own limits are the node's matter, as in /api/v1"


def test_virtual_hosts_come_and_go_and_have_limits(node: Process) -> None:
    assert ask(node, "PUT", "/vhosts/shop", {}, ROOT).status == 201
    assert ask(node, "PUT", "/vhosts/shop", {}, ROOT).status == 204
    assert "shop" in {each["name"] for each in root(node, "GET", "/vhosts")}
    root(node, "PUT", "/vhost-limits/shop/max-connections", {"value": 7})
    root(node, "PUT", "/vhost-limits/shop/max-queues", {"value": 9})
    value = {"max-connections": 7, "max-queues": 9}
    assert root(node, "GET", "/vhost-limits/shop") == [{"vhost": "shop", "value": value}]
    root(node, "DELETE", "/vhost-limits/shop/max-queues")
    assert root(node, "GET", "/vhost-limits")[-1]["value"] == {"max-connections": 7}
    root(node, "PUT", "/users/shop%3Aida", {"password": "i", "tags": ""})
    root(node, "PUT", "/user-limits/shop%3Aida/max-connections", {"value": 3})
    row = {"user": "shop:ida", "value": {"max-connections": 3}}
    assert root(node, "GET", "/user-limits/shop%3Aida") == [row]
    assert row in root(node, "GET", "/user-limits")
    root(node, "DELETE", "/user-limits/shop%3Aida/max-connections")
    assert root(node, "GET", "/user-limits/shop%3Aida") == []
    root(node, "DELETE", "/vhosts/shop")
    deadline = time.monotonic() + 60
    while "shop" in {each["name"] for each in root(node, "GET", "/vhosts")}:
        assert time.monotonic() < deadline, "it is still there"
        time.sleep(0.1)
    assert ask(node, "PUT", "/user-limits/nobody/max-connections", {"value": 3}, ROOT).status == 404


def test_definitions_are_written_and_had_again_elsewhere(
    node: Process, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root(node, "PUT", "/users/dora", {"password": "d", "tags": "administrator"})
    told = {"configure": "", "write": "^d", "read": ".*"}
    root(node, "PUT", "/permissions/%2F/dora", told)
    root(node, "PUT", "/users/acme%3Adan", {"password": "d", "tags": ""})
    root(node, "PUT", "/permissions/acme/acme%3Adan", told)
    root(node, "PUT", "/user-limits/acme%3Adan/max-connections", {"value": 3})
    root(node, "PUT", "/queues/%2F/d-q", {"arguments": {"x-max-length": 5}, "durable": True})
    root(node, "PUT", "/queues/%2F/passing", {"auto_delete": True})
    root(node, "PUT", "/exchanges/%2F/d-x", {"type": "topic"})
    root(node, "POST", "/bindings/%2F/e/d-x/q/d-q", {"routing_key": "a.*"})
    document = root(node, "GET", "/definitions")
    assert "passing" not in {each["name"] for each in document["queues"]}
    assert {"user": "acme:dan", "vhost": "acme", **told} in document["permissions"]
    assert "root" not in {each["name"] for each in document["users"]}, "no permission says it all"
    left_out = {each["name"]: each["reason"] for each in document["left_out"]}
    assert "holds other policies: administrator" in left_out["root"]
    assert left_out.keys().isdisjoint({each["name"] for each in document["users"]})
    json.dumps(document)
    assert root(node, "POST", "/definitions", document) == {"unlike": []}
    folder = tmp_path_factory.mktemp("elsewhere")
    with managed(folder, "tenants: {acme: {}}") as other:
        other.api(
            "POST", "/users", {"name": "root", "policies": ["administrator"], "password": PASSWORD}
        )
        assert root(other, "POST", "/definitions", document) == {"unlike": []}
        again = root(other, "GET", "/definitions")
        for kind in ("users", "permissions", "queues", "exchanges", "bindings", "parameters"):
            assert again[kind] == document[kind], kind
        connection = opens(other, "dora", "d")
        assert connection is not None
        connection.close()
        of_one = root(node, "GET", "/definitions/%2F")
        assert not {"users", "vhosts", "permissions"} & of_one.keys()
        assert "vhost" not in of_one["queues"][0]
        root(other, "POST", "/definitions/acme", of_one)
        assert root(other, "GET", "/queues/acme/d-q")["arguments"] == {"x-max-length": 5}


def test_a_document_that_cannot_be_had_changes_nothing_and_is_named(node: Process) -> None:
    bad = {"rabbit_version": "4.1.0", "vhosts": [{"name": "nowhere"}]}
    queue = {"name": "q", "vhost": "nowhere", "durable": True, "arguments": {}}
    refused = ask(node, "POST", "/definitions", {**bad, "queues": [queue]}, ROOT)
    assert refused.status == 400
    assert "there is no tenant nowhere" in refused.json["reason"]
    policy = {"name": "p", "vhost": "/", "pattern": ".*", "definition": {"max-age": "1D"}}
    told = root(node, "POST", "/definitions", {"rabbit_version": "4.1.0", "policies": [policy]})
    assert told["unlike"][0]["what"] == "policy p in vhost /"
