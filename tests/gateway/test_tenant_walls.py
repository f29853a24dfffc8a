"""Every operation of the API, asked about things that are there by who administers another tenant,
by a plain user and by nobody: what a tenant has is seen and changed by nobody else.
"""

from __future__ import annotations

import http.client
import json
import re
from base64 import b64encode
from typing import TYPE_CHECKING, Any
from urllib.parse import quote
from uuid import uuid4

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from gateway.admin.http.callers import Right
from gateway.admin.http.operations import Operation
from gateway.admin.operations import API
from tests.gateway.cluster import until
from tests.gateway.serving import Process, serving

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PASSWORD = "long enough"

THEIRS = "globex"
"""No answer to another tenant's administrator has this word, but as it was sent."""

ABOUT = ("", "?tenant=globex", "?tenant=default", "?tenant=acme&tenant=globex")


def make_things(node: Process, tenant: str) -> dict[str, str]:
    """One of each thing that paths name, by the name of the parameter."""

    def make(method: str, path: str, body: Any) -> Any:
        found = node.api(method, f"{path}?tenant={tenant}", body)
        assert found.status in {200, 201}, (path, found.body)
        return found.json

    topic = f"{tenant}-topic"
    make("POST", "/topics", {"name": topic, "type": "work"})
    make("POST", f"/topics/{topic}/groups", {"name": f"{tenant}-group"})
    make("POST", "/routers", {"name": f"{tenant}-router"})
    route = make("POST", f"/routers/{tenant}-router/routes", {"topic": topic, "key": "k"})
    make("PUT", f"/policies/{tenant}-policy", {"rules": ["allow * topic:*"]})
    for user, policy in (("boss", "administrator"), ("plain", f"{tenant}-policy")):
        body = {"name": f"{tenant}-{user}", "password": PASSWORD, "policies": [policy]}
        make("POST", "/users", body)
    key = make("POST", "/keys", {"user": f"{tenant}-boss"})
    make("PUT", f"/topics/{topic}/trace", {"mode": "all"})
    sent = make("POST", f"/topics/{topic}/messages", {"body": f"{tenant}-body"})
    return {
        "topic": topic,
        "group": f"{tenant}-group",
        "router": f"{tenant}-router",
        "route": route["id"],
        "policy": f"{tenant}-policy",
        "user": f"{tenant}-boss",
        "key": key["key_id"],
        "tenant": tenant,
        "scope": "tenant",
        "name": tenant,
        "client": f"{tenant}-client",
        "message": sent["uid"],
        "number": "1",
        "task": "1",
        "connection": "mqtt-1",
    }


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("walls")
    config = folder / "weir.yaml"
    config.write_text("tenants:\n  acme: {}\n  globex: {}\n")
    with serving(folder / "data", config=config) as process:
        yield process


@pytest.fixture(scope="module")
def theirs(node: Process) -> Iterator[dict[str, str]]:
    """Things of a tenant, with somebody connected who has a session."""
    make_things(node, "acme")
    things = make_things(node, THEIRS)
    client = mqtt.Client(CallbackAPIVersion.VERSION2, things["client"], clean_session=False)
    client.username_pw_set(f"{THEIRS}:{THEIRS}-boss", PASSWORD)

    def on_connect(*_: Any) -> None:
        client.subscribe(f"{THEIRS}/#", qos=1)

    client.on_connect = on_connect
    client.connect("127.0.0.1", node.listeners["mqtt.tcp"])
    client.loop_start()
    found: list[Any] = []

    def is_there() -> bool:
        found[:] = node.api("GET", f"/connections?tenant={THEIRS}").json["connections"]
        sessions = node.api("GET", f"/sessions?tenant={THEIRS}").json["sessions"]
        return bool(found) and any(each["subscriptions"] for each in sessions)

    until(is_there, "it has subscribed")
    yield things | {"connection": found[0]["id"]}
    client.disconnect()
    client.loop_stop()


def ask(node: Process, login: str | None, operation: Operation, path: str) -> tuple[int, str]:
    """Status and body; a body is sent where one is taken."""
    headers = {"Content-Type": "application/json"}
    if login is not None:
        headers["Authorization"] = "Basic " + b64encode(f"{login}:{PASSWORD}".encode()).decode()
    connection = http.client.HTTPConnection(node.admin_url.removeprefix("http://"), timeout=30)
    try:
        body = json.dumps({}) if operation.takes is not None else None
        connection.request(operation.method, f"/api/v1{path}", body, headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def path_of(operation: Operation, things: Mapping[str, str]) -> str:
    return re.sub(
        r"\{(\w+)\}", lambda name: quote(things.get(name[1], "1"), safe=""), operation.path
    )


@pytest.mark.parametrize("operation", API, ids=lambda each: each.name)
def test_another_tenants_things_are_as_those_that_are_not_there(
    node: Process, theirs: dict[str, str], operation: Operation
) -> None:
    # Of what is not there; and the name of a tenant is its own, or all would be about theirs.
    nothing = {name: f"nobody-{name}" for name in theirs} | {"message": str(uuid4())}
    nothing |= {name: theirs[name] for name in ("scope", "number", "task")}
    for about in ABOUT:
        answers = []
        for things in (theirs, nothing):
            path = path_of(operation, things) + about
            status, body = ask(node, "acme:acme-boss", operation, path)
            assert status < 500, (path, body)
            if "tenant=" in about and operation.right is Right.TENANT:
                assert status == 403, (path, body)
            for name in re.findall(r"\{(\w+)\}", operation.path):
                body = body.replace(things.get(name, "1"), "IT")
            body = body.replace(THEIRS, "IT") if THEIRS in about else body
            answers.append((status, body))
            assert THEIRS not in body, (path, body)
        if "{" in operation.path:
            assert answers[0] == answers[1]


@pytest.mark.parametrize("operation", API, ids=lambda each: each.name)
def test_who_administers_nothing_gets_nothing(
    node: Process, theirs: dict[str, str], operation: Operation
) -> None:
    if operation.right is Right.OPEN:
        pytest.skip("open to whoever has signed in")
    for about in ABOUT:
        path = path_of(operation, theirs) + about
        assert ask(node, None, operation, path)[0] == 401
        for login in (f"{THEIRS}:{THEIRS}-plain", "acme:acme-plain"):
            status, body = ask(node, login, operation, path)
            assert status == 403, (path, body)


def test_all_of_it_is_still_there(node: Process, theirs: dict[str, str]) -> None:
    kinds = {
        "topics": "topic",
        "routers": "router",
        "policies": "policy",
        "users": "user",
        "keys": "key",
        "connections": "connection",
        "sessions": "client",
    }
    for word, name in kinds.items():
        found = node.api("GET", f"/{word}/{quote(theirs[name], safe='')}?tenant={THEIRS}")
        assert found.status == 200, (word, found.body)
    page = node.api("GET", f"/topics/{theirs['topic']}/messages?tenant={THEIRS}").json
    assert [each["body"] for each in page["messages"]] == [f"{THEIRS}-body"]
