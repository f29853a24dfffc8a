"""Everything that is defined, as one document: written, compared, applied."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest
import yaml

import gateway.cli
from tests.gateway.serving import Process, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("settings") / "weir.yaml"
    file.write_text("tenants: {acme: {}}")
    return file


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory, config: Path) -> Iterator[Process]:
    with serving(tmp_path_factory.mktemp("definitions"), config=config) as process:
        fill(process)
        yield process


@pytest.fixture
def weir(
    node: Process, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., str]:
    """The command `weir definitions` in this process; what it writes to stdout."""
    monkeypatch.setenv("WEIR_URL", node.admin_url)
    monkeypatch.setenv("WEIR_TOKEN", node.token)

    def run(*arguments: str) -> str:
        with pytest.raises(SystemExit, match="0"):
            gateway.cli.main(("definitions", *arguments))
        return capsys.readouterr().out

    return run


def fill(node: Process) -> None:
    """One of each kind, and what documents leave out."""
    api = node.api
    api("PUT", "/policies/senders", {"rules": ["allow publish topic:orders-*"]})
    asked = {"name": "alice", "password": "first password", "policies": ["senders", "full"]}
    assert api("POST", "/users", asked).status == 201
    assert api("POST", "/keys", {"user": "alice"}).status == 201
    api("PATCH", "/limits/user/alice", {"published_messages": 100})
    api("PATCH", "/limits/listener/amqp.tcp", {"connections": 1000})
    api("POST", "/topics", {"name": "sensors", "type": "normal", "queues": 2})
    api("POST", "/topics/sensors/groups", {"name": "billing", "attempts_max": 3})
    api("POST", "/topics?tenant=acme", {"name": "orders", "type": "work"})
    with node.amqp() as connection:
        channel = connection.channel()
        arguments = {"x-dead-letter-exchange": "dead", "x-message-ttl": 60_000}
        channel.queue_declare("orders", durable=True, arguments=arguments)
        channel.queue_declare("passing", auto_delete=True)
        channel.exchange_declare("dead", "fanout", durable=True)
        channel.exchange_declare("shop", "topic", durable=True)
        channel.exchange_declare("by-header", "headers", durable=True)
        channel.queue_bind("orders", "shop", "order.*.new")
        channel.queue_bind("orders", "by-header", "", {"x-match": "any", "size": 3, "odd": [1]})
        channel.queue_bind("passing", "shop", "#")
        channel.queue_bind("orders", "amq.topic", "a.#")
        channel.queue_bind("orders", "weir.topics", "sensors")
        channel.exchange_bind("dead", "shop", "#")


def exported(node: Process, query: str = "") -> dict[str, Any]:
    found = node.api("GET", "/definitions" + query)
    assert found.status == 200, found.body
    return found.json


def applied(node: Process, document: Any, query: str = "") -> dict[str, Any]:
    found = node.api("POST", "/definitions" + query, document)
    assert found.status == 200, found.body
    return found.json


def test_a_document_has_all_kinds_and_not_what_lives_in_memory(node: Process) -> None:
    document = exported(node)
    own = document["tenants"]["default"]
    assert document["limits"] == {"listener:amqp.tcp": {"connections": 1000}}
    assert own["limits"] == {"user:alice": {"published_messages": 100}}
    assert own["policies"] == {"senders": {"rules": ["allow publish topic:orders-*"]}}
    assert own["users"]["alice"]["password_hash"].startswith("$argon2id$")
    assert [each["user"] for each in own["keys"].values()] == ["alice"]
    assert set(own["topics"]) == {"orders", "sensors", "dlq.billing"}
    assert own["topics"]["sensors"]["groups"]["billing"]["attempts_max"] == 3
    assert set(own["routers"]) >= {"shop", "dead", "by-header", "amq.topic", "weir.topics"}
    routes = {name: each.get("routes", []) for name, each in own["routers"].items()}
    assert [each.get("topic") for each in routes["shop"]] == [None, "orders"]
    assert routes["by-header"][0]["attributes"]["size"] == 3
    assert set(document["tenants"]["acme"]["topics"]) == {"orders"}
    node.api("GET", "/definitions?secrets=false")
    bare = exported(node, "?secrets=false")["tenants"]["default"]
    assert not {"users", "keys"} & set(bare)
    assert set(exported(node, "?only=topics&tenant=acme")["tenants"]) == {"acme"}


def test_what_was_written_is_had_again_elsewhere_and_applied_twice_changes_nothing(
    node: Process, config: Path, tmp_path: Path
) -> None:
    document = exported(node)
    # Keys are sealed: the other server has the same key file.
    (tmp_path / "secrets.key").write_bytes((node.data / "secrets.key").read_bytes())
    (tmp_path / "secrets.key").chmod(0o600)
    with serving(tmp_path, config=config) as other:
        planned = applied(other, document, "?dry_run=true")
        assert planned["faults"] == []
        assert set(exported(other)["tenants"].get("default", {}).get("topics", {})) == set()
        done = applied(other, document)
        assert (done["faults"], done["remaining"]) == ([], 0)
        assert len(done["changes"]) == planned["remaining"]
        assert exported(other) == document
        again = applied(other, document)
        assert (again["changes"], again["same"]) == ([], done["same"] + len(done["changes"]))
        # As if its own clients had made it.
        port = other.listeners["amqp.tcp"]
        with pika.BlockingConnection(
            pika.ConnectionParameters(
                "127.0.0.1", port, credentials=pika.PlainCredentials("alice", "first password")
            )
        ) as connection:
            channel = connection.channel()
            arguments = {"x-dead-letter-exchange": "dead", "x-message-ttl": 60_000}
            channel.queue_declare("orders", durable=True, arguments=arguments)
            channel.confirm_delivery()
            channel.basic_publish("shop", "order.7.new", b"x", mandatory=True)


def test_tenants_are_made_with_all_that_they_have_and_changed(node: Process) -> None:
    settings = {"known_as": {"amqp": "fresh-host"}, "sign_in": False}
    own = {
        "limits": {"tenant": {"topics": 9}},
        "policies": {"senders": {"rules": ["allow publish topic:orders-*"]}},
        "users": {"bob": {"policies": ["senders"]}},
        "topics": {"orders": {"kind": "work"}},
    }

    def of(**fields: Any) -> dict[str, Any]:
        return {"format": "weir-definitions/1", "tenants": {"fresh": fields}}

    for document, query in ((of(**own), ""), (of(**own, tenant=settings), "&only=topics")):
        found = applied(node, document, f"?dry_run=true{query}")
        reasons = {each["reason"] for each in found["faults"]}
        assert reasons == {"there is no tenant fresh here, or it is being removed"}
    wrong = of(tenant={"known_as": {"amqp": "acme"}})
    (fault,) = applied(node, wrong, "?dry_run=true")["faults"]
    assert (fault["kind"], "acme" in fault["reason"]) == ("tenant", True)
    planned = applied(node, of(**own, tenant=settings), "?dry_run=true")
    assert planned["faults"] == []
    assert node.api("GET", "/tenants/fresh").status == 404
    done = applied(node, of(**own, tenant=settings))
    assert [each["kind"] for each in done["changes"]] == [
        *("tenant", "policy", "user", "limits", "topic")
    ]
    shown = node.api("GET", "/tenants/fresh").json
    assert (shown["sign_in"], shown["limits"]) == (False, {"topics": 9})
    assert (shown["known_as"]["amqp"], shown["users"], shown["topics"]) == ("fresh-host", 1, 1)
    assert exported(node)["tenants"]["fresh"]["tenant"] == settings
    assert applied(node, of(**own, tenant=settings))["changes"] == []
    changed = applied(node, of(tenant={}))["changes"]
    assert changed[0]["fields"] == {
        "known_as": [{"amqp": "fresh-host"}, None],
        "sign_in": [False, None],
    }
    shown = node.api("GET", "/tenants/fresh").json
    assert (shown["sign_in"], shown["known_as"]["amqp"]) == (True, "fresh")
    assert node.api("DELETE", "/tenants/fresh").status == 202
    assert node.api("GET", "/tenants/fresh?wait=20").json["state"] == "gone"
    (fault,) = applied(node, of(tenant=settings), "?dry_run=true")["faults"]
    assert "fresh" in fault["reason"], "its bill is not told yet"


def test_a_difference_is_shown_exactly_and_a_secret_is_not(node: Process) -> None:
    document = exported(node)
    own = document["tenants"]["default"]
    own["topics"]["orders"]["message_ttl_ms"] = 5_000
    known = own["users"]["alice"]["password_hash"]
    own["users"]["alice"]["password_hash"] = known[:-1] + ("B" if known.endswith("A") else "A")
    own["topics"]["sensors"]["groups"] = {"new": {}}
    del own["limits"], own["policies"]
    planned = applied(node, document, "?dry_run=true")
    assert planned["faults"] == []
    shown = [(each["kind"], each["name"], each["fields"]) for each in planned["changes"]]
    assert shown == [
        ("user", "alice", {"password_hash": ["(hidden)", "(hidden)"]}),
        ("topic", "orders", {"message_ttl_ms": [60_000, 5_000]}),
        ("topic", "sensors", {"groups.new": [None, {}]}),
    ]
    only = applied(node, document, "?dry_run=true&only=routers,users")
    assert [each["name"] for each in only["changes"]] == ["alice"]


def test_a_password_and_a_declaration_that_are_left_out_stay(node: Process) -> None:
    before = exported(node)
    document = {
        "format": "weir-definitions/1",
        "tenants": {
            "default": {
                "users": {"alice": {"policies": ["senders", "full"]}},
                "topics": {"orders": {"message_ttl_ms": 61_000}},
            }
        },
    }
    done = applied(node, document)
    assert [(each["name"], list(each["fields"])) for each in done["changes"]] == [
        ("orders", ["message_ttl_ms"])
    ]
    after = exported(node)
    own = before["tenants"]["default"]["topics"]["orders"]
    own["message_ttl_ms"] = 61_000
    assert after == before
    own["message_ttl_ms"] = 60_000
    applied(node, before)


def test_a_trace_is_had_with_its_topic_and_stays_if_it_is_left_out(node: Process) -> None:
    document = wrong(topics={"followed": {"trace": "sample"}})
    assert len(applied(node, document)["changes"]) == 1
    assert node.api("GET", "/topics/followed").json["trace"] == "sample"
    assert applied(node, document)["changes"] == []
    assert exported(node)["tenants"]["default"]["topics"]["followed"]["trace"] == "sample"
    assert applied(node, wrong(topics={"followed": {}}))["changes"] == []
    (changed,) = applied(node, wrong(topics={"followed": {"trace": "all"}}))["changes"]
    assert changed["fields"] == {"trace": ["sample", "all"]}
    assert node.api("GET", "/topics/followed").json["trace"] == "all"
    assert node.api("DELETE", "/topics/followed").status == 200


def test_a_size_is_had_with_its_topic_and_stays_if_it_is_left_out(node: Process) -> None:
    size = {"min": "small", "max": {"messages": 20_000, "bytes": 1e8}, "by_key": True}
    document = wrong(topics={"growing": {"size": {**size, "above": "wait"}}})
    (made,) = applied(node, document)["changes"]
    assert (made["name"], made["is_new"]) == ("growing", True)
    shown = node.api("GET", "/topics/growing").json["size"]
    assert (shown["min"], shown["above"]) == ({"messages": 500, "bytes": 1e6}, "wait")
    assert applied(node, document)["changes"] == [], "a class is its figures"
    written = exported(node)["tenants"]["default"]["topics"]["growing"]
    assert written["size"] == {
        "min": {"messages": 500, "bytes": 1e6},
        "max": {"messages": 20_000, "bytes": 1e8},
        "by_key": True,
        "above": "wait",
    }
    assert applied(node, wrong(topics={"growing": {}}))["changes"] == []
    changed = applied(node, wrong(topics={"growing": {"size": {**size, "min": "medium"}}}))
    (fields,) = (each["fields"] for each in changed["changes"])
    assert fields["size"][1]["min"] == {"messages": 5_000, "bytes": 1e7}
    topic = node.api("GET", "/topics/growing").json
    assert (topic["size"]["above"], len(topic["queues"]) > 1) == ("serve", True)
    assert node.api("DELETE", "/topics/growing").status == 200


def test_routes_of_routers_that_are_always_there_are_written_by_hand(node: Process) -> None:
    routers = {
        "amq.fanout": {"match": "all", "routes": [{"topic": "orders"}]},
        "weir.topics": {"routes": [{"key": "orders", "topic": "dlq.billing"}]},
    }
    document = wrong(routers=routers)
    made = [(each["kind"], each["name"]) for each in applied(node, document)["changes"]]
    assert made == [
        ("router", "amq.fanout"),
        ("route", "amq.fanout '' to topic orders"),
        ("route", "weir.topics 'orders' to topic dlq.billing"),
    ]
    assert applied(node, document)["changes"] == []


SIZE = {"min": "small", "max": "large"}


def wrong(**of_tenant: Any) -> dict[str, Any]:
    return {"format": "weir-definitions/1", "tenants": {"default": of_tenant}}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, "required field format"),
        ({"format": "weir-definitions/9"}, "this Weir reads weir-definitions/1"),
        (wrong(topics={"x": {"messages_mx": 1}}), "messages_mx"),
        (wrong(topics={"orders": {"queues": 3}}), "topic orders: queues is fixed: it is 1 here"),
        (wrong(topics={"x": {"durable": False}}), "topic x: it lives in the memory"),
        (
            wrong(topics={"x": {"size": {"min": "tiny", "max": "large"}}}),
            "topic x: there is no size",
        ),
        (wrong(topics={"x": {"size": {"min": "large", "max": "small"}}}), "in both, rising"),
        (wrong(topics={"x": {"size": {"max": "small"}}}), "required field min"),
        (wrong(topics={"orders": {"size": SIZE}}), "topic orders: topic orders cannot be resized"),
        (
            wrong(topics={"x": {"groups": {"g": {}}, "size": SIZE}}),
            "topic x cannot be resized: its",
        ),
        (wrong(topics={"__x": {}}), "topic __x: the name of a topic may not begin with __"),
        (wrong(topics={"x": {"message_bytes_max": 0}}), "message_bytes_max must be 1 to"),
        (wrong(routers={"amq.mine": {}}), "router amq.mine: a name that begins so"),
        (wrong(routers={"shop": {"match": "all"}}), "router shop: match is fixed: it is pattern"),
        (wrong(routers={"shop": {"routes": [{"topic": "no"}]}}), "there is no topic no, here or"),
        (wrong(users={"x": {"policies": ["no"]}}), "user x: there is no policy no, here or"),
        (wrong(users={"x": {"password_hash": "md5"}}), "user x: a password hash is argon2id"),
        (wrong(policies={"x": {"rules": ["allow fly topic:*"]}}), "policy x: 'fly' is no action"),
        (wrong(policies={"full": {"rules": ["allow * *"]}}), "policy full: this policy is built"),
        (wrong(keys={"K": {"user": "alice"}}), "key K: the document has no secret for it"),
        (wrong(keys={"K": {"user": "no", "sealed_secret": ""}}), "there is no user no, here or"),
        (wrong(limits={"user:x": {"topics": 1}}), "limits user:x: topics is no limit of a user"),
        (wrong(limits={"group:x": {"topics": 1}}), "limits group:x: limits of a tenant are of"),
        ({"format": "weir-definitions/1", "tenants": {"no": {"topics": {"x": {}}}}}, "no tenant"),
    ],
)
def test_a_document_that_cannot_be_had_is_refused_by_name_and_nothing_is_done(
    node: Process, document: dict[str, Any], message: str
) -> None:
    before = exported(node)
    if document.get("tenants", {}).get("default"):
        document["tenants"]["default"].setdefault("topics", {})["fine"] = {}
    found = node.api("POST", "/definitions", document)
    assert found.status == 400
    assert message in found.json["error"]["message"]
    assert exported(node) == before


def test_a_key_that_another_server_sealed_is_refused_and_the_rest_can_be_had(
    node: Process, config: Path, tmp_path: Path
) -> None:
    document = exported(node)
    with serving(tmp_path, config=config) as other:
        found = other.api("POST", "/definitions", document)
        assert found.status == 400
        assert "which is not in the key file: add that line" in found.json["error"]["message"]
        assert applied(other, document, "?only=policies,users,topics")["faults"] == []
        kinds = {"tenant", "policies", "users", "topics"}
        assert set(exported(other)["tenants"]["default"]) == kinds


def test_a_tenants_administrator_gets_and_applies_its_own_and_no_more(node: Process) -> None:
    asked = {"name": "ann", "password": "her password", "policies": ["administrator"]}
    node.api("POST", "/users?tenant=acme", asked)
    login = {"Authorization": "Basic YWNtZTphbm46aGVyIHBhc3N3b3Jk"}

    def as_ann(method: str, query: str = "", body: Any = None) -> Any:
        path = "/api/v1/definitions" + query
        return node.http(method, path, body, token=None, headers=login)

    own = as_ann("GET").json
    assert (set(own), set(own["tenants"])) == ({"format", "tenants"}, {"acme"})
    assert as_ann("GET", "?tenant=default").status == 403
    own["tenants"]["acme"]["topics"]["more"] = {}
    assert as_ann("POST", "", own).json["changes"][0]["name"] == "more"
    refused = {
        "limits of no tenant take": {"limits": {"listener:amqp.tcp": {"connections": 1}}},
        "and the request is about acme": {"tenants": {"default": {"topics": {"x": {}}}}},
        "to change limits takes": {"tenants": {"acme": {"limits": {"tenant": {"topics": 9}}}}},
        "to choose the id of an access key": {
            "tenants": {"acme": {"keys": {"K": {"user": "ann", "sealed_secret": "eHg="}}}}
        },
    }
    for message, part in refused.items():
        found = as_ann("POST", "", {"format": "weir-definitions/1", **part})
        assert found.status in {400, 403}
        assert message in found.json["error"]["message"]


def test_the_commands_write_compare_and_apply_files(
    node: Process, weir: Callable[..., str], tmp_path: Path
) -> None:
    file = tmp_path / "weir.yaml"
    weir("export", str(file))
    assert file.stat().st_mode & 0o777 == 0o600
    document = yaml.safe_load(file.read_text())
    assert document == exported(node)
    shown = weir("diff", str(file), "-o", "json")
    assert json.loads(shown)["changes"] == []
    document["tenants"]["acme"]["topics"]["from-a-file"] = {"messages_max": 7}
    file.write_text(yaml.safe_dump(document))
    assert "from-a-file" in weir("diff", str(file))
    assert "from-a-file" in weir("apply", str(file), "--yes")
    found = node.api("GET", "/topics/from-a-file?tenant=acme").json
    assert found["options"]["messages_max"] == 7


def test_rabbitmqs_definitions_are_applied_and_its_clients_find_what_they_declared(
    node: Process,
) -> None:
    fixture = Path(__file__).parents[1] / "fixtures" / "rabbitmq-3.10.8-definitions.json"
    document = json.loads(fixture.read_text())
    done = applied(node, document)
    assert (done["faults"], done["remaining"]) == ([], 0)
    assert "queue history in vhost /" in [each["what"] for each in done["unlike"]]
    assert applied(node, document)["changes"] == []
    with node.amqp() as connection:
        channel = connection.channel()
        for queue in document["queues"]:
            if queue["vhost"] == "/" and queue["name"] in {"orders.new", "audit.new", "lost"}:
                arguments = queue["arguments"]
                channel.queue_declare(queue["name"], durable=True, arguments=arguments)
        for exchange in document["exchanges"]:
            if exchange["vhost"] == "/" and exchange["durable"]:
                channel.exchange_declare(
                    exchange["name"],
                    exchange["type"],
                    durable=True,
                    internal=exchange["internal"],
                    arguments=exchange["arguments"],
                )
        channel.confirm_delivery()
        channel.basic_publish("shop", "order.7.new", b"one", mandatory=True)
        assert channel.basic_get("orders.new", auto_ack=True)[2] == b"one"
    node.api("PATCH", "/users/worker?tenant=acme", {"password": "worker-password"})
    parameters = pika.URLParameters(
        f"amqp://acme%3Aworker:worker-password@127.0.0.1:{node.listeners['amqp.tcp']}/acme"
    )
    with pika.BlockingConnection(parameters) as connection:
        assert (
            connection.channel().queue_declare("orders.new", passive=True).method.message_count == 0
        )
