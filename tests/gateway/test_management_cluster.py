"""RabbitMQ's management API of a cluster: connections of all gateways, at each of them."""

from __future__ import annotations

import contextlib
import signal
from typing import TYPE_CHECKING, Any

import pika
import pika.exceptions
import pytest

from tests.gateway.cluster import Cluster, until
from tests.gateway.management import ask, find_management

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.gateway.serving import Process

PASSWORD = "a long password"
ROOT, SOME, OTHER = (f"{name}:{PASSWORD}" for name in ("root", "some", "other"))


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Process]]:
    settings = ("node.management.enabled=true", "node.management.port=0")
    with contextlib.ExitStack() as stack:
        cluster = Cluster(tmp_path_factory.mktemp("cluster"), stack, stores=(1,))
        cluster.found()
        cluster.start_store(1).serves()
        found = [cluster.start_gateway(name, *settings) for name in ("a", "b")]
        for gateway in found:
            gateway.serves()
            find_management(gateway)
        password = {"password": PASSWORD, "policies": ["full"]}
        for name in ("some", "other"):
            found[0].api("POST", "/users", {"name": name, **password})
        administrator = {**password, "policies": ["administrator"]}
        found[0].api("POST", "/users", {"name": "root", **administrator})
        until(lambda: found[1].api("GET", "/users/root").status == 200, "b knows the users")
        yield found


def connected(gateway: Process, name: str) -> pika.BlockingConnection:
    parameters = pika.ConnectionParameters(
        "127.0.0.1",
        gateway.listeners["amqp.tcp"],
        credentials=pika.PlainCredentials(name, PASSWORD),
    )
    return pika.BlockingConnection(parameters)


def users(gateway: Process, login: str) -> list[str]:
    return sorted(each["user"] for each in ask(gateway, "GET", "/connections", login=login).json)


def test_connections_of_all_gateways_are_listed_and_closed_at_any(
    gateways: list[Process],
) -> None:
    a, b = gateways
    with connected(a, "some"), connected(b, "other") as far:
        channel = far.channel()
        channel.queue_declare("cluster-q", durable=True)
        tag = channel.basic_consume("cluster-q", lambda *_: None)
        until(lambda: users(a, ROOT) == ["other", "some"], lambda: str(users(a, ROOT)))
        assert users(b, ROOT) == ["other", "some"]
        assert users(a, OTHER) == ["other"], "its own, wherever it is"
        assert users(b, SOME) == ["some"]
        (consumer,) = ask(a, "GET", "/consumers", login=ROOT).json
        assert (consumer["consumer_tag"], consumer["queue"]["name"]) == (tag, "cluster-q")
        assert ask(a, "GET", "/channels", login=OTHER).json[0]["consumer_count"] == 1
        assert ask(a, "GET", "/channels", login=SOME).json == []
        rows = ask(a, "GET", "/connections", login=ROOT).json
        (row,) = (each for each in rows if each["user"] == "other")
        path = f"/connections/{row['name'].replace(':', '%3A')}"
        assert ask(a, "DELETE", path, login=SOME).status == 404, "it is not its own"
        assert ask(a, "GET", path, login=ROOT).json == row
        assert ask(a, "DELETE", path, login=ROOT).status == 204
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            far.process_data_events(time_limit=20)
        assert "Closed via management plugin" in closed.value.reply_text


def totals(gateway: Process, login: str) -> dict[str, int]:
    found: dict[str, int] = ask(gateway, "GET", "/overview", login=login).json["object_totals"]
    return {name: found[name] for name in ("connections", "channels", "consumers")}


def test_the_overview_counts_what_all_gateways_have(gateways: list[Process]) -> None:
    a, b = gateways
    with connected(a, "some"), connected(b, "other") as far:
        channel = far.channel()
        channel.queue_declare("counted-q", durable=True)
        channel.basic_consume("counted-q", lambda *_: None)
        whole = {"connections": 2, "channels": 1, "consumers": 1}
        until(lambda: totals(a, ROOT) == whole, lambda: str(totals(a, ROOT)))
        assert totals(b, ROOT) == whole
        assert totals(a, OTHER) == {**whole, "connections": 1}, "its own, wherever it is"
        assert totals(a, SOME) == {"connections": 1, "channels": 0, "consumers": 0}


def test_the_totals_of_a_gateway_have_transient_topics_of_another(gateways: list[Process]) -> None:
    with connected(gateways[1], "some") as far:
        channel = far.channel()
        channel.confirm_delivery()
        channel.queue_declare("passing", durable=False)
        channel.basic_publish("", "passing", b"x")

    def ready(gateway: Process) -> list[Any]:
        found = gateway.api("GET", "/history").json
        return [found["series"]["ready"][-1], *found["without"]]

    for gateway in gateways:
        until(lambda at=gateway: 1 in ready(at), lambda at=gateway: str(ready(at)))


def test_a_client_is_told_the_reason_that_was_given(gateways: list[Process]) -> None:
    a, b = gateways
    with connected(b, "some") as far:
        until(lambda: users(a, SOME) == ["some"], "it is listed")
        (row,) = ask(a, "GET", "/connections", login=SOME).json
        path = f"/connections/{row['name'].replace(':', '%3A')}"
        reason = "the flat is being moved " + "ä" * 300
        sent = {"X-Reason": reason.encode().decode("latin-1")}
        assert ask(a, "DELETE", path, login=ROOT, **sent).status == 204
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
            far.process_data_events(time_limit=20)
        assert "the flat is being moved ä" in closed.value.reply_text
    events = b.api("GET", "/events").json["events"]
    told = {each["event"] for each in events if "the flat is being moved" in str(each)}
    assert "connection closed by hand" in told


def test_who_closes_its_own_connection_needs_no_right(gateways: list[Process]) -> None:
    a, b = gateways
    with connected(b, "some") as far:
        until(lambda: users(a, SOME) == ["some"], "it is listed")
        (row,) = ask(a, "GET", "/connections", login=SOME).json
        path = f"/connections/{row['name'].replace(':', '%3A')}"
        assert ask(a, "DELETE", path, login=SOME).status == 204
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker):
            far.process_data_events(time_limit=20)


def test_a_gateway_that_does_not_answer_is_named(gateways: list[Process]) -> None:
    a, b = gateways
    b.process.send_signal(signal.SIGSTOP)
    try:
        found = ask(a, "GET", "/connections", login=ROOT)
        assert found.status == 200
        named = found.headers["x-weir-silent"]
        assert named.startswith("127.0.0.1:")
        hidden = ask(a, "GET", "/connections", login=SOME).headers["x-weir-silent"]
        assert hidden.startswith("(one of the cluster)")
        gone = ask(a, "GET", "/connections/127.0.0.1%3A1", login=ROOT)
        assert gone.status == 503
        assert "may be at a gateway that has not answered" in gone.json["reason"]
    finally:
        b.process.send_signal(signal.SIGCONT)
    until(
        lambda: "x-weir-silent" not in ask(a, "GET", "/connections", login=ROOT).headers,
        "b answers again",
    )
    assert ask(a, "GET", "/connections/127.0.0.1%3A1", login=ROOT).status == 404
