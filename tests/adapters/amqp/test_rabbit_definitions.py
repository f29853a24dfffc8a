"""RabbitMQ's definitions.json, read: what it comes to here, and what has no equal.

tests/fixtures/rabbitmq-3.10.8-definitions.json is what `GET /api/definitions` of Debian 12's
rabbitmq-server 3.10.8 gave, which was told two virtual hosts, five users and the rest before.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from adapters.amqp.importing.name_patterns import is_found, patterns_of, tree_pattern_of
from adapters.amqp.importing.rabbit_definitions import read
from adapters.definitions import Foreign, said
from kernel.common.errors import KernelError

FIXTURE = Path(__file__).parents[2] / "fixtures" / "rabbitmq-3.10.8-definitions.json"
TENANTS = {"/": "default", "acme": "acme"}


def read_of(document: Any) -> Foreign:
    found = read(json.dumps(document).encode(), TENANTS)
    assert found is not None
    return found


@pytest.fixture(scope="module")
def foreign() -> Foreign:
    return read_of(json.loads(FIXTURE.read_text()))


@pytest.mark.parametrize(
    ("expression", "patterns"),
    [
        ("", ()),
        ("^$", ()),
        (".*", ("*",)),
        ("^.*$", ("*",)),
        (r"^orders\.new$", ("orders.new",)),
        (r"^orders\.", ("orders.*",)),
        ("orders", ("*orders*",)),
        (r"^(orders|audit)\.new$", ("orders.new", "audit.new")),
        ("^(a|b(c|d))x$", ("ax", "bcx", "bdx")),
        (r"^amq\.topic$|^orders\..*", ("amq.topic", "orders.*")),
        ("^q[0-9]+$", None),
        ("^a.$", None),
        ("^a*$", None),
        ("^a+$", None),
        ("^(a)?$", None),
        ("^(?i)a$", None),
        (r"^\w$", None),
        (r"^a\*$", None),
        ("(", None),
        ("a)", None),
        ("\\", None),
        ("(a|b)" * 9, None),
    ],
)
def test_an_expression_becomes_patterns_that_match_the_same_names_or_none(
    expression: str, patterns: tuple[str, ...] | None
) -> None:
    assert patterns_of(expression) == patterns


def test_an_expression_is_looked_for_in_linear_time() -> None:
    assert is_found("a.*" * 40 + "b", "a" * 255) is False
    assert is_found("orders", "new-orders-1") is True
    assert is_found("[a]", "a") is None


def test_expressions_of_routing_keys_become_filters_of_the_tree() -> None:
    assert tree_pattern_of(r"^sensors\.hall\..*") == ("sensors/hall/#",)
    assert tree_pattern_of(".*") == ("#",)
    assert tree_pattern_of("^a$") == ("a",)
    assert tree_pattern_of("^a.*z$") is None


def test_queues_and_exchanges_are_as_if_clients_had_declared_them(foreign: Foreign) -> None:
    tenant = foreign.definitions.tenants["default"]
    assert set(tenant.topics) == {"orders.new", "audit.new", "lost"}
    orders = said(tenant.topics["orders.new"])
    assert (orders["message_ttl_ms"], orders["priority_max"]) == (600_000, 5)
    assert orders["groups"]["default"]["dead_letter"] == {"router": "dead", "key": None}
    assert said(tenant.topics["audit.new"])["groups"]["default"]["attempts_max"] == 4
    assert set(tenant.routers) == {"shop", "dead", "by-header", "inner", "amq.topic"}
    shop = [(each.key, each.topic, each.router) for each in tenant.routers["shop"].routes]
    assert shop == [
        ("#", "audit.new", None),
        ("order/#", None, "inner"),
        ("order/+/new", "orders.new", None),
    ]
    by_header = tenant.routers["by-header"]
    assert (by_header.alternate, by_header.routes[0].attributes) == (
        "dead",
        {"colour": "red", "size": 3},
    )


def test_what_policies_say_of_a_queue_becomes_its_own_and_of_numbers_the_lowest(
    foreign: Foreign,
) -> None:
    lost = foreign.definitions.tenants["default"].topics["lost"]
    assert (lost.message_ttl_ms, lost.messages_max) == (86_400_000, 50_000)


def test_permissions_become_policies_that_grant_no_more(foreign: Foreign) -> None:
    tenant = foreign.definitions.tenants["default"]
    rules = tenant.policies["rabbitmq-worker"].rules
    assert "allow publish tree:sensors/#" in rules
    assert not [rule for rule in rules if "configure" in rule or "consume tree" in rule]
    assert tenant.users["watcher"].policies == []
    assert tenant.users["watcher"].password_hash.startswith("$rabbitmq-sha256$VC3qYGuE")
    assert tenant.users["robot"].password_hash == ""
    assert tenant.policies["rabbitmq-alice"].rules[-1] == ("allow administer node:admin tenant:*")
    acme = foreign.definitions.tenants["acme"]
    assert acme.users["worker"].policies == ["rabbitmq-worker"]
    assert acme.limits == {
        "user:worker": {"connections": 10},
        "tenant": {"connections": 20, "topics": 100},
    }


def test_a_password_hashed_by_md5_is_named_and_none_is_set() -> None:
    hashed = {"password_hash": "AAAA", "hashing_algorithm": "rabbit_password_hashing_md5"}
    found = read_of({"rabbit_version": "3.5.0", "users": [{"name": "u", "tags": [], **hashed}]})
    assert found.definitions.tenants["default"].users["u"].password_hash == ""
    (told,) = found.unlike
    assert told.what == "password of user u"
    assert "rabbit_password_hashing_md5" in told.why


def test_everything_without_an_equal_is_named(foreign: Foreign) -> None:
    named = {each.what for each in foreign.unlike}
    assert named == {
        "exchange passing in vhost /",
        "queue history in vhost /",
        "queue passing in vhost /",
        "user guest",
        "user worker in vhost acme",
        "tag monitoring of user watcher",
        "permission read of user watcher in vhost /",
        "global parameter colour",
        "policy ttl in vhost /",
        "policy cap in vhost /",
    }
    history = next(each for each in foreign.unlike if "history" in each.what)
    assert "'stream' is not one of classic, quorum" in history.why


def test_a_key_of_another_exchange_is_denied_with_the_exchange() -> None:
    row = {"user": "u", "vhost": "/"}
    found = read_of(
        {
            "rabbit_version": "4.1.0",
            "vhosts": [{"name": "/"}],
            "users": [{"name": "u", "tags": []}],
            "permissions": [{**row, "configure": "", "write": ".*", "read": ""}],
            "topic_permissions": [{**row, "exchange": "shop", "write": "^a", "read": ""}],
            "parameters": [
                {"vhost": "/", "component": "shovel", "name": "s", "value": {}},
                {"vhost": "/", "component": "federation-upstream", "name": "f", "value": {}},
            ],
            "bindings": [
                {"vhost": "/", "source": "no", "destination": "q", "destination_type": "queue"}
            ],
        }
    )
    policy = found.definitions.tenants["default"].policies["rabbitmq-u"]
    assert "deny publish,consume router:shop" in policy.rules
    assert [each.what for each in found.unlike] == [
        "binding no -> queue q by '' in vhost /",
        "topic permission of user u for exchange shop in /",
        "parameter shovel s in vhost /",
        "parameter federation-upstream f in vhost /",
    ]


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'"x"', b"{}", b'{"format": "x"}', b"\xff", b"[" * 9999]
)
def test_what_rabbitmq_did_not_write_is_left_to_others(data: bytes) -> None:
    assert read(data, TENANTS) is None


@pytest.mark.parametrize(
    "part",
    [
        {"queues": [1]},
        {"users": "x"},
        {"policies": [{"definition": {"max-length": "x"}}, 3]},
    ],
)
def test_what_is_not_as_rabbitmq_writes_it_is_refused(part: dict[str, Any]) -> None:
    with pytest.raises(KernelError, match=r"not as RabbitMQ writes definitions\.json"):
        read_of({"rabbit_version": "3.10.8", **part})


def test_odd_values_are_named_and_never_a_traceback() -> None:
    odd = [None, 3, True, "x" * 300, "\ud800", [], {}, -1, 2**70]
    for value in odd:
        queue = {"name": value, "vhost": "/", "durable": True, "arguments": {"x-max-length": value}}
        binding = {"source": value, "destination": value, "arguments": value, "vhost": "/"}
        policy = {"vhost": "/", "pattern": value, "definition": value, "priority": value}
        user = {"name": value, "tags": value, "limits": {"max-connections": value}}
        document = {"rabbit_version": "1", "queues": [queue], "bindings": [binding]}
        document |= {"policies": [policy], "users": [user], "exchanges": [queue, binding]}
        try:
            read(json.dumps(document).encode(), TENANTS)
        except KernelError:
            pass


def test_what_is_reserved_here_is_named_and_keeps_nothing_else_out() -> None:
    """A queue that RabbitMQ has named, and a permission that it takes and never looks at."""
    names = ("amq.gen-qFx", "__x", "$x", "%x", "orders")
    user = {"name": "ann", "password_hash": "", "tags": []}
    granted = {"user": "ann", "vhost": "/", "configure": "", "write": ".*", "read": ""}
    topic = {"user": "ann", "vhost": "/", "exchange": "", "write": ".*", "read": ".*"}
    found = read_of(
        {
            "rabbit_version": "3.10.8",
            "users": [user],
            "permissions": [granted],
            "topic_permissions": [topic],
            "queues": [{"name": each, "vhost": "/", "durable": True} for each in names],
            "exchanges": [{"name": "weir.x", "vhost": "/", "type": "fanout", "durable": True}],
        }
    )
    default = found.definitions.tenants["default"]
    assert (list(default.topics), list(default.routers)) == (["orders"], [])
    whats = [each.what for each in found.unlike]
    assert [f"queue {each} in vhost /" in whats for each in names] == [True] * 4 + [False]
    assert "exchange weir.x in vhost /" in whats
    assert "topic permission of user ann for the default exchange in /" in whats
    assert not any("deny" in rule for rule in default.policies["rabbitmq-ann"].rules)


def test_a_policy_for_queues_of_one_type_holds_for_these() -> None:
    queues = [
        {"name": name, "vhost": "/", "durable": True, "arguments": {"x-queue-type": name}}
        for name in ("classic", "quorum")
    ]
    policies = [
        {
            "name": kind,
            "vhost": "/",
            "pattern": ".*",
            "apply-to": f"{kind}_queues",
            "definition": {"message-ttl": ttl_ms},
        }
        for kind, ttl_ms in (("classic", 1_000), ("quorum", 2_000), ("stream", 3_000))
    ]
    found = read_of({"rabbit_version": "3.13.0", "queues": queues, "policies": policies})
    topics = found.definitions.tenants["default"].topics
    assert {name: each.message_ttl_ms for name, each in topics.items()} == {
        "classic": 1_000,
        "quorum": 2_000,
    }
