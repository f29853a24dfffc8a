"""Passwords that RabbitMQ has hashed, on their way in, through every door, and out again."""

from __future__ import annotations

import base64
import hashlib
import time
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as mqtt
import pika
import pika.exceptions
import pytest

from tests.gateway.serving import Process, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def document(**passwords: str) -> dict[str, Any]:
    """definitions.json of users with all rights in `/`, hashed as RabbitMQ does it."""
    users, permissions = [], []
    for number, (name, password) in enumerate(passwords.items()):
        kind = ("sha256", "sha512")[number % 2]
        salt = bytes([number] * 4)
        digest = hashlib.new(kind, salt + password.encode()).digest()
        hashed = base64.b64encode(salt + digest).decode()
        algorithm = f"rabbit_password_hashing_{kind}"
        users.append(
            {"name": name, "tags": [], "password_hash": hashed, "hashing_algorithm": algorithm}
        )
        row = {"configure": ".*", "write": ".*", "read": ".*"}
        permissions.append({"user": name, "vhost": "/", **row})
    return {
        "rabbit_version": "4.1.0",
        "vhosts": [{"name": "/"}],
        "users": users,
        "permissions": permissions,
    }


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(tmp_path_factory.mktemp("passwords")) as process:
        yield process


def stored(node: Process, name: str) -> str:
    found = node.api("GET", "/definitions?only=users").json["tenants"]["default"]["users"]
    return str(found[name]["password_hash"])


def opens(node: Process, name: str, password: str) -> bool:
    """Whether AMQP lets somebody in."""
    port = node.listeners["amqp.tcp"]
    parameters = pika.ConnectionParameters(
        "127.0.0.1", port, credentials=pika.PlainCredentials(name, password)
    )
    try:
        pika.BlockingConnection(parameters).close()
    except pika.exceptions.AMQPConnectionError:
        return False
    return True


def mqtt_code(node: Process, name: str, password: str) -> str:
    heard: list[str] = []
    client = mqtt.Client(mqtt.CallbackAPIVersion.VERSION2, protocol=mqtt.MQTTv5)
    client.username_pw_set(name, password)
    client.on_connect = lambda _c, _u, _f, code, _p: heard.append(str(code))
    client.connect("127.0.0.1", node.listeners["mqtt.tcp"])
    deadline = time.monotonic() + 20
    while not heard and time.monotonic() < deadline:
        client.loop(0.1)
    client.disconnect()
    return heard[0]


def test_an_imported_password_opens_every_door_and_becomes_a_hash_of_our_own(
    node: Process,
) -> None:
    applied = node.api("POST", "/definitions", document(one="first", two="zweites"))
    assert applied.status == 200, applied.body
    assert applied.json["unlike"] == []
    assert stored(node, "one").startswith("$rabbitmq-sha256$")
    assert stored(node, "two").startswith("$rabbitmq-sha512$"), "exported as what it is"
    assert not opens(node, "one", "zweites")
    assert stored(node, "one").startswith("$rabbitmq-sha256$"), "a wrong one replaces nothing"
    assert opens(node, "one", "first")
    assert mqtt_code(node, "two", "zweites") == "Success"
    assert mqtt_code(node, "two", "first") != "Success"
    deadline = time.monotonic() + 30
    while any(stored(node, each).startswith("$rabbitmq") for each in ("one", "two")):
        assert time.monotonic() < deadline, "not replaced"
        time.sleep(0.05)
    assert opens(node, "one", "first")
    assert opens(node, "two", "zweites")
    assert not opens(node, "two", "first")


def test_what_was_exported_before_anybody_signed_in_is_had_elsewhere(
    node: Process, tmp_path: Path
) -> None:
    assert node.api("POST", "/definitions", document(kept="a password")).status == 200
    exported = node.api("GET", "/definitions?only=users,policies").json
    with serving(tmp_path / "other") as other:
        assert other.api("POST", "/definitions", exported).status == 200
        assert other.api("POST", "/definitions", exported).json["changes"] == []
        assert opens(other, "kept", "a password")


def test_while_the_feature_is_off_such_a_user_is_refused_by_name(tmp_path: Path) -> None:
    # A directory of the build before: no gateway of that one would follow such a record.
    with serving(tmp_path, WEIR_TEST_UNDERSTANDS="0"):
        pass
    with serving(tmp_path) as process:
        refused = process.api("POST", "/definitions", document(one="first"))
        assert refused.status == 403
        assert "the feature `hashes` of the log is off" in refused.json["error"]["message"]
        assert process.api("GET", "/users/one").status == 404
        assert process.api("POST", "/cluster/features", {}).status == 200
        assert process.api("POST", "/definitions", document(one="first")).status == 200
        assert opens(process, "one", "first")
