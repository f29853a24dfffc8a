"""A protocol in a folder of its own is served, authorised, metered, billed and moved, by nothing
but its declaration and its entry in protocols.yaml.
"""

from __future__ import annotations

import contextlib
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.loading import load
from gateway.serving.greeting import greeting
from metering.schema import Action
from spark.pricebook import PriceBookError, parse_price_book
from tests.gateway import cluster
from tests.gateway.serving import Process, serving
from tests.line_protocol.client import LineClient
from tests.metering.served.reading import periods_of, records_of, usage_of
from tests.spark.plain_rating import rate

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
SETTINGS = HERE / "protocols.yaml"
PORT = "line.port=0"
TOPIC = "orders"

BOOK = """
schema: 1
name: lines
currency: EUR
protocols: [line]
skus:
  - id: line.published
    title: Lines accepted
    meter: {protocol: line, action: publish, measure: messages}
    prices: [{id: p1, from: 2020-01-01, to: null, model: flat, per: 1, price: "1.00"}]
  - id: any.delivered
    title: Messages delivered
    meter: {action: deliver, measure: messages}
    prices: [{id: p2, from: 2020-01-01, to: null, model: flat, per: 1, price: "0.01"}]
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(tmp_path_factory.mktemp("line"), PORT, config=SETTINGS) as node:
        yield node


def make_topic(node: Process, name: str) -> str:
    assert node.api("POST", "/topics", {"name": name, "type": "work"}).status == 201
    return name


def client(node: Process, login: str = "guest", password: str = "guest") -> LineClient:
    return LineClient(node.listeners["line.tcp"], login, password)


# --- Served -------------------------------------------------------------------------------------


def test_what_is_published_is_delivered_until_it_is_acked(node: Process) -> None:
    topic = make_topic(node, "served")
    with client(node) as one:
        assert one.signed_in == "OK"
        assert [one.publish(topic, text) for text in ("first", "second")] == ["OK", "OK"]
        assert one.ask(f"SUB {topic}") == "OK"
        assert [one.message(), one.message()] == [(1, "first"), (2, "second")]
        assert one.ask("ACK 1") == "OK"
        assert one.ask("ACK 1").startswith("ERR lease_lost ")
    with client(node) as two:
        assert two.ask(f"SUB {topic}") == "OK"
        assert two.message() == (1, "second"), "the first one is done with"


def test_messages_go_from_it_to_other_protocols_and_back(node: Process) -> None:
    topic = make_topic(node, "crossing")
    with client(node) as lines, node.amqp() as connection:
        channel = connection.channel()
        assert lines.publish(topic, "by line") == "OK"
        assert channel.basic_get(topic, auto_ack=True)[2] == b"by line"
        channel.basic_publish("", topic, b"by frame")
        assert lines.ask(f"SUB {topic}") == "OK"
        assert lines.message()[1] == "by frame"


def test_it_is_named_wherever_protocols_are(node: Process) -> None:
    said = "".join(node.said)
    assert re.search(r"^  line +127\.0\.0\.1:\d+ \(tcp\)$", said, re.MULTILINE)
    topic = make_topic(node, "named")
    with client(node) as lines:
        assert lines.publish(topic, "who?") == "OK"
    (message,) = node.api("GET", f"/topics/{topic}/messages").json["messages"]
    assert message["writer"] == "line"
    assert node.api("GET", f"/topics/{topic}").json["unspelled_by"] == []
    make_topic(node, "two words")
    assert "line" in node.api("GET", "/topics/two%20words").json["unspelled_by"]
    assert 'weir_connections{protocol="line"}' in node.http("GET", "/metrics").body.decode()


def test_how_to_try_it_is_proposed_where_that_works() -> None:
    class Served:
        name = "line"

        def addresses(self) -> dict[str, tuple[str, int]]:
            return {"tcp": ("127.0.0.1", 7000)}

    served: list[Any] = [Served()]
    settings = load(SETTINGS, environ={}).settings
    said = greeting(settings, served, ["here"], None, lambda program: f"/usr/bin/{program}")
    assert r"try: printf 'LOGIN guest guest\n' | socat - TCP:127.0.0.1:7000" in said
    assert "guest/guest" in said
    assert "try:" not in greeting(settings, served, ["here"], None, lambda _: None)


# --- Authorised ---------------------------------------------------------------------------------


def test_nobody_comes_in_without_a_login(node: Process) -> None:
    with client(node, password="wrong") as stranger:
        assert stranger.signed_in.startswith("ERR bad_credentials ")
        assert stranger.line() == ""
    with client(node) as lines:
        assert lines.ask("PUB").startswith("ERR invalid_argument ")


def test_rights_hold_and_one_that_is_withdrawn_ends_what_it_allowed(node: Process) -> None:
    mine, others = make_topic(node, "mine"), make_topic(node, "others")
    policy = {"rules": [f"allow publish,consume topic:{mine}"]}
    assert node.api("PUT", "/policies/mine", policy).status < 300
    user = {"name": "ann", "password": "ann's-password", "policies": ["mine"]}
    assert node.api("POST", "/users", user).status == 201
    with client(node, "ann", "ann's-password") as ann:
        assert ann.publish(mine, "x") == "OK"
        assert ann.publish(others, "x").startswith("ERR not_allowed ")
        assert ann.ask(f"SUB {others}").startswith("ERR not_allowed ")
        assert ann.ask(f"SUB {mine}") == "OK"
        assert node.api("DELETE", "/users/ann").status == 204
        assert ann.line().startswith("ERR not_allowed ")
        assert ann.line() == ""


# --- Metered and billed -------------------------------------------------------------------------


def trade(node: Process) -> None:
    """Three messages published, two of them acked; and what AMQP makes of one more."""
    make_topic(node, TOPIC)
    with client(node) as lines:
        for text in ("a", "b", "c"):
            assert lines.publish(TOPIC, text) == "OK"
        assert lines.ask(f"SUB {TOPIC}") == "OK"
        for _ in range(2):
            assert lines.ask(f"ACK {lines.message()[0]}") == "OK"
        lines.message()
    with node.amqp() as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", TOPIC, b"by frame")


def test_what_it_serves_is_metered_and_billed_under_its_name(tmp_path: Path) -> None:
    with serving(tmp_path, PORT, config=SETTINGS) as node:
        trade(node)
        assert node.api("POST", "/metering/export", {}).json["flushed"]
    records = records_of(tmp_path / "metering")
    usage = [row for row in usage_of(records) if row.protocol == "line"]
    counted = Counter[tuple[str, str]]()
    for row in usage:
        counted[row.kind, row.action] += row.messages
    assert counted["store", "publish"] == counted["store", "route"] == 3
    assert counted["store", "ack"] == 2
    assert counted["api", "deliver"] == 3
    assert sum(row.requests for row in usage if row.action == Action.CONNECT) == 1
    quantities = Counter[str]()
    for period in periods_of(records):
        for line in rate(parse_price_book(BOOK), usage_of(records), period):
            quantities[line.sku] += line.quantity
    assert quantities == {"line.published": 3, "any.delivered": 3}


def test_a_price_book_that_does_not_name_the_protocol_cannot_ask_for_it() -> None:
    with pytest.raises(PriceBookError, match="nothing that Weir meters has messages"):
        parse_price_book(BOOK.replace("protocols: [line]\n", ""))


# --- Moved --------------------------------------------------------------------------------------


def test_a_server_that_stops_answers_what_was_asked_and_says_goodbye(tmp_path: Path) -> None:
    with serving(tmp_path, PORT, config=SETTINGS) as node:
        topic = make_topic(node, TOPIC)
        with client(node) as lines:
            assert lines.publish(topic, "kept") == "OK"
            assert node.terminate() == 0
            assert lines.line() == "BYE"
    with serving(tmp_path, PORT, config=SETTINGS) as node, client(node) as lines:
        assert lines.ask(f"SUB {TOPIC}") == "OK"
        assert lines.message() == (1, "kept")


def test_a_client_of_a_gateway_that_is_drained_is_sent_to_the_other(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        site = cluster.Cluster(tmp_path, stack)
        site.found()
        site.start_store(1, config=SETTINGS)
        started = [site.start_gateway(name, PORT, config=SETTINGS) for name in ("a", "b")]
        first, second = [each.serves() for each in started]

        def gateways() -> list[dict[str, str]]:
            found: list[dict[str, str]] = second.api("GET", "/cluster/gateways").json["gateways"]
            return found

        cluster.until(lambda: len(gateways()) == 2, "both gateways attend")
        topic = make_topic(first, TOPIC)
        port = str(first.listeners["line.tcp"])
        (name,) = [
            str(each["name"])
            for each in gateways()
            if each["listeners"]["line.tcp"].endswith(port)  # type: ignore[index]
        ]
        with client(first) as lines:
            assert lines.publish(topic, "before") == "OK"
            assert second.api("POST", f"/cluster/gateways/{name}/drain", {}).status == 204
            said = lines.line()
        place = f"127.0.0.1:{second.listeners['line.tcp']}"
        assert said == f"MOVE {place}"
        with client(second) as lines:
            assert lines.ask(f"SUB {topic}") == "OK"
            assert lines.message() == (1, "before")
        cluster.until(
            lambda: {each["name"]: each["stage"] for each in gateways()}[name] == "drained",
            "its client has gone",
        )


# --- By nothing else ----------------------------------------------------------------------------


def test_no_file_of_weir_knows_it() -> None:
    root = HERE.parent.parent
    packages = ("adapters", "auth", "gateway", "kernel", "metering", "spark")
    knows = re.compile(r"line_protocol|[\"']line[\"']|LineAdapter")
    found = [
        str(file.relative_to(root))
        for package in packages
        for file in (root / package).rglob("*.py")
        if knows.search(file.read_text())
    ]
    assert found == []
    assert "line_protocol" not in (root / "protocols.yaml").read_text()
