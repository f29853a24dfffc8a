"""Users, access keys and policies over the admin API, and what they let clients do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import botocore.exceptions
import pika
import pika.exceptions
import pytest

from tests.gateway.serving import serving
from tests.sqs_client import sqs_client

if TYPE_CHECKING:
    from pathlib import Path

    from tests.gateway.serving import Process


def sqs(node: Process, key: dict[str, str]):
    url = f"http://127.0.0.1:{node.listeners['sqs.http']}"
    return sqs_client(url, key["key_id"], key["secret"])


def amqp(node: Process, name: str, password: str) -> pika.BlockingConnection:
    return pika.BlockingConnection(
        pika.ConnectionParameters(
            "127.0.0.1",
            node.listeners["amqp.tcp"],
            credentials=pika.PlainCredentials(name, password),
        )
    )


def test_a_user_comes_changes_and_goes(node: Process) -> None:
    asked = {"name": "alice", "password": "first password", "policies": ["full"]}
    found = node.api("POST", "/users", asked)
    assert found.status == 201
    version = found.json["version"]  # above 1 if there was one of that name before
    assert found.json | {"created_ms": 0} == {
        "name": "alice",
        "policies": ["full"],
        "enabled": True,
        "has_password": True,
        "keys": [],
        "created_ms": 0,
        "version": version,
    }
    assert node.api("POST", "/users", asked).status == 409
    amqp(node, "alice", "first password").close()
    assert (
        node.api("PATCH", "/users/alice", {"password": "second one"}).json["version"] == version + 1
    )
    amqp(node, "alice", "second one").close()
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        amqp(node, "alice", "first password")
    node.api("PATCH", "/users/alice", {"enabled": False})
    with pytest.raises(pika.exceptions.ProbableAuthenticationError):
        amqp(node, "alice", "second one")
    assert node.api("DELETE", "/users/alice").status == 204
    assert node.api("GET", "/users/alice").status == 404
    assert node.api("DELETE", "/users/alice").status == 404


def test_a_key_signs_requests_until_it_is_disabled(node: Process) -> None:
    node.api("POST", "/users", {"name": "signer", "policies": ["full"]})
    found = node.api("POST", "/keys", {"user": "signer"})
    assert found.status == 201
    key = found.json
    assert re.fullmatch("WEIR[A-Z2-7]{16}", key["key_id"])
    assert len(key["secret"]) == 40
    sqs(node, key).create_queue(QueueName="by-signer")
    shown = node.api("GET", f"/keys/{key['key_id']}")
    assert "secret" not in shown.json
    assert node.api("GET", "/keys?user=signer").json["keys"] == [shown.json]
    assert node.api("GET", "/users/signer").json["keys"] == [key["key_id"]]
    assert node.api("PATCH", f"/keys/{key['key_id']}", {"enabled": False}).status == 200
    with pytest.raises(botocore.exceptions.ClientError):
        sqs(node, key).list_queues()
    assert node.api("DELETE", f"/keys/{key['key_id']}").status == 204
    assert node.api("GET", f"/keys/{key['key_id']}").status == 404


def test_a_key_may_be_brought_along_and_belongs_to_one_user(node: Process) -> None:
    for name in ("from-aws", "other"):
        node.api("POST", "/users", {"name": name, "policies": ["full"]})
    asked = {"user": "from-aws", "key_id": "AKIDEXAMPLE", "secret": "s" * 40}
    assert node.api("POST", "/keys", asked).json["secret"] == "s" * 40
    sqs(node, asked).list_queues()
    assert node.api("POST", "/keys", asked | {"user": "other"}).status == 409
    assert node.api("POST", "/keys", {"user": "nobody"}).status == 404
    assert node.api("POST", "/keys", asked | {"key_id": "a b"}).status == 400
    assert node.api("POST", "/keys", {"user": "other", "secret": "x" * 600}).status == 400
    assert node.api("DELETE", "/users/from-aws").status == 204
    assert node.api("GET", "/keys/AKIDEXAMPLE").status == 404


def test_a_policy_rules_at_once_and_stays_while_it_is_held(node: Process) -> None:
    rules = ["allow inspect,publish topic:orders-*"]
    found = node.api("PUT", "/policies/senders", {"rules": rules})
    assert (found.status, found.json["rules"]) == (201, rules)
    version = found.json["version"]
    node.api("POST", "/topics", {"name": "orders-1", "type": "work", "tree": False})
    node.api("POST", "/users", {"name": "sender", "policies": ["senders"]})
    client = sqs(node, node.api("POST", "/keys", {"user": "sender"}).json)
    url = client.get_queue_url(QueueName="orders-1")["QueueUrl"]
    client.send_message(QueueUrl=url, MessageBody="x")
    denied = ["allow inspect topic:orders-*", "deny publish *"]
    assert node.api("PUT", "/policies/senders", {"rules": denied}).json["version"] == version + 1
    with pytest.raises(botocore.exceptions.ClientError, match="AccessDenied"):
        client.send_message(QueueUrl=url, MessageBody="x")
    found = node.api("DELETE", "/policies/senders")
    assert (found.status, found.json["error"]["code"]) == (409, "in_use")
    assert "sender" in found.json["error"]["message"]
    node.api("DELETE", "/users/sender")
    assert node.api("DELETE", "/policies/senders").status == 204


def test_built_in_policies_are_shown_and_stay(node: Process) -> None:
    listed = node.api("GET", "/policies").json["policies"]
    assert [each["name"] for each in listed if each["is_built_in"]] == ["administrator", "full"]
    assert node.api("GET", "/policies/full").json["is_built_in"] is True
    assert node.api("PUT", "/policies/full", {"rules": ["allow * *"]}).status == 400
    assert node.api("DELETE", "/policies/full").status == 404


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/users", {"name": ""}, 400),
        ("/users", {"name": "a:b"}, 400),
        ("/users", {"name": "x", "policies": ["none"]}, 404),
        ("/users", {"name": "x", "password": ""}, 400),
        ("/users", {"name": "x", "policies": ["full", "full"]}, 400),
    ],
)
def test_a_bad_user_is_refused(node: Process, path: str, body: object, status: int) -> None:
    assert node.api("POST", path, body).status == status
    assert node.api("GET", "/users/x").status == 404


def test_a_bad_rule_is_refused_with_the_reason(node: Process) -> None:
    found = node.api("PUT", "/policies/bad", {"rules": ["allow fly topic:*"]})
    assert found.status == 400
    assert "fly" in found.json["error"]["message"]
    assert node.api("PUT", "/policies/bad", {"rules": []}).status == 400


def test_a_user_has_a_bounded_number_of_keys(node: Process) -> None:
    node.api("POST", "/users", {"name": "many", "policies": []})
    statuses = [node.api("POST", "/keys", {"user": "many"}).status for _ in range(9)]
    assert statuses == [201] * 8 + [409]


def test_everything_is_there_again_after_a_kill(tmp_path: Path) -> None:
    with serving(tmp_path) as node:
        node.api("PUT", "/policies/p", {"rules": ["allow * *"]})
        node.api("POST", "/users", {"name": "u", "password": "password", "policies": ["p"]})
        node.api("PATCH", "/users/u", {"policies": ["p", "full"]})
        key = node.api("POST", "/keys", {"user": "u"}).json
        node.api("POST", "/users", {"name": "gone"})
        node.api("DELETE", "/users/gone")
        before = node.api("GET", "/users").body
        # The secret is sealed: neither journal nor snapshot holds it.
        for file in tmp_path.rglob("*"):
            assert not file.is_file() or key["secret"].encode() not in file.read_bytes(), file
        node.kill()
    with serving(tmp_path) as node:
        assert node.api("GET", "/users").body == before
        assert node.api("GET", "/policies/p").json["version"] == 1
        amqp(node, "u", "password").close()
        sqs(node, key).list_queues()
        assert node.api("PATCH", "/users/u", {"enabled": True}).json["version"] == 3


def test_what_is_made_again_under_the_same_name_can_be_changed_and_removed(node: Process) -> None:
    for _ in range(2):
        assert node.api("PUT", "/policies/again", {"rules": ["deny * *"]}).status == 201
        assert node.api("PUT", "/policies/again", {"rules": ["allow * *"]}).status == 200
        assert node.api("DELETE", "/policies/again").status == 204
