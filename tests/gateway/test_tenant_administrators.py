"""A tenant's own administrator at a node: what of that tenant is theirs, and nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

import gateway.cli
from gateway.commands.common.output import ExitCode
from tests.gateway.serving import Process, serving
from tests.gateway.test_admin_health import basic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.gateway.serving import Answer

    Call = Callable[..., Answer]

CONFIG = """
tenants:
  acme: {known_as: {amqp: acme-host, sqs: "111122223333", rocketmq: acme-space}}
  globex: {}
"""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("administrators")
    config = folder / "weir.yaml"
    config.write_text(CONFIG)
    with serving(folder / "data", config=config) as process:
        for tenant, name in (("acme", "alice"), ("globex", "bob")):
            body = {"name": name, "password": f"{name}'s", "policies": ["administrator"]}
            assert process.api("POST", f"/users?tenant={tenant}", body).status == 201
        yield process


def caller(node: Process, login: str, password: str) -> Call:
    def call(method: str, path: str, body: Any = None) -> Answer:
        headers = basic(login, password)
        return node.http(method, "/api/v1" + path, body, token=None, headers=headers)

    return call


@pytest.fixture
def alice(node: Process) -> Call:
    return caller(node, "acme:alice", "alice's")


@pytest.fixture
def bob(node: Process) -> Call:
    return caller(node, "globex:bob", "bob's")


def names(answer: Answer, kind: str, key: str = "name") -> list[str]:
    assert answer.status == 200, answer.body
    return [each[key] for each in answer.json[kind]]


def refused(answer: Answer) -> str:
    assert (answer.status, answer.json["error"]["code"]) == (403, "not_allowed"), answer.body
    return str(answer.json["error"]["message"])


def test_what_an_administrator_makes_is_of_their_tenant(
    node: Process, alice: Call, bob: Call
) -> None:
    assert alice("POST", "/topics", {"name": "desk", "type": "work"}).status == 201
    assert alice("POST", "/topics/desk/messages", {"body": "for acme"}).status == 201
    shown = alice("GET", "/topics/desk/messages").json["messages"]
    assert [each["body"] for each in shown] == ["for acme"]
    assert alice("POST", "/topics/desk/groups", {"name": "audit"}).status == 201
    assert names(alice("GET", "/groups?topic=desk"), "groups") == ["audit", "default"]
    assert alice("POST", "/routers", {"name": "fan"}).status == 201
    assert alice("POST", "/routers/fan/routes", {"topic": "desk"}).status == 201
    # The group has a topic for its dead letters.
    assert names(node.api("GET", "/topics?tenant=acme"), "topics") == ["desk", "dlq.audit"]
    for other in (bob, node.api):
        assert "desk" not in names(other("GET", "/topics"), "topics")
        assert other("GET", "/topics/desk").status == 404
        assert other("GET", "/routers/fan").status == 404
    assert alice("POST", "/topics/desk/purge", {}).json == {"messages": 1}
    assert alice("DELETE", "/routers/fan").status == 204
    assert alice("DELETE", "/topics/desk?tenant=acme").status == 200
    assert alice("DELETE", "/topics/dlq.audit").status == 200


def test_limits_are_seen_by_whom_they_are_about_and_set_by_the_operator(
    node: Process, alice: Call, bob: Call
) -> None:
    for scope, of, limits in (
        ("tenant", "acme", {"topics": 50, "stored_messages": 1_000}),
        ("tenant", "globex", {"topics": 7}),
        ("listener", "amqp.tcp", {"requests": 10**6}),
        ("tenant", "*", {"requests": 10**6}),
    ):
        assert node.api("PATCH", f"/limits/{scope}/{of}", limits).status == 200
    found = alice("GET", "/limits").json
    assert {(each["scope"], each["tenant"]) for each in found["limits"]} == {
        ("tenant", "acme"),
        ("tenant", "*"),
    }
    used = {(each["tenant"], each["kind"]) for each in found["used"]}
    assert ("acme", "topics") in used
    assert {tenant for tenant, _ in used} == {"acme"}
    assert {each["tenant"] for each in bob("GET", "/limits").json["limits"]} == {"globex", "*"}
    refused(bob("GET", "/limits?tenant=acme"))
    refused(alice("PATCH", "/limits/tenant/acme", {"topics": 99}))
    refused(alice("DELETE", "/limits/tenant/acme"))
    whole = node.api("GET", "/limits").json
    assert len(whole["limits"]) == 4
    assert len(node.api("GET", "/limits?tenant=acme").json["limits"]) == 2
    for scope, of in (("tenant", "acme"), ("tenant", "globex"), ("listener", "amqp.tcp")):
        assert node.api("DELETE", f"/limits/{scope}/{of}").status == 204
    assert node.api("DELETE", "/limits/tenant/*").status == 204


def test_users_policies_and_keys_are_of_their_tenant(node: Process, alice: Call, bob: Call) -> None:
    assert alice("PUT", "/policies/readers", {"rules": ["allow consume topic:*"]}).status == 201
    body = {"name": "carol", "password": "carol's", "policies": ["readers"]}
    assert alice("POST", "/users", body).status == 201
    made = alice("POST", "/keys", {"user": "carol"}).json
    assert names(alice("GET", "/users"), "users") == ["alice", "carol"]
    assert names(node.api("GET", "/users?tenant=acme"), "users") == ["alice", "carol"]
    for other in (bob, node.api):
        assert "carol" not in names(other("GET", "/users"), "users")
        assert other("GET", f"/keys/{made['key_id']}").status == 404
        assert other("GET", "/policies/readers").status == 404
    assert bob("DELETE", f"/keys/{made['key_id']}").status == 404
    assert bob("POST", "/keys", {"user": "carol"}).status == 404
    refused(caller(node, "acme:carol", "carol's")("GET", "/topics"))
    assert alice("DELETE", f"/keys/{made['key_id']}").status == 204
    assert alice("DELETE", "/users/carol").status == 204
    assert alice("DELETE", "/policies/readers").status == 204


@pytest.mark.parametrize("tenant", ["globex", "default", "nobody"])
def test_another_tenant_is_refused_whether_there_is_one_or_not(
    node: Process, alice: Call, tenant: str
) -> None:
    told = refused(alice("GET", f"/topics?tenant={tenant}"))
    assert told.startswith(f"to administer the tenant {tenant} takes ")
    assert told.endswith("; you are user alice of tenant acme")
    body = {"name": "mallory", "password": "mallory's", "policies": ["administrator"]}
    assert refused(alice("POST", f"/users?tenant={tenant}", body)) == told
    assert tenant == "nobody" or "mallory" not in names(
        node.api("GET", f"/users?tenant={tenant}"), "users"
    )


def test_no_policy_of_a_tenant_reaches_the_node_or_another_tenant(
    node: Process, alice: Call
) -> None:
    rules = [
        "allow * *",
        "allow administer node:* node:admin tenant:* tenant:default tenant:globex",
    ]
    assert alice("PUT", "/policies/greedy", {"rules": rules}).status == 201
    body = {"name": "mallory", "password": "mallory's", "policies": ["greedy", "administrator"]}
    assert alice("POST", "/users", body).status == 201
    assert alice("PATCH", "/users/alice", {"policies": ["administrator", "greedy"]}).status == 200
    for call in (alice, caller(node, "acme:mallory", "mallory's")):
        assert names(call("GET", "/tenants"), "tenants") == ["acme"]
        for path in ("/health", "/metering", "/cluster", "/cluster/gateways"):
            assert "it takes the token in DATA/admin.token" in refused(call("GET", path))
        for tenant in ("default", "globex"):
            refused(call("GET", f"/users?tenant={tenant}"))
    for name in ("default:mallory", ":mallory", "globex:mallory"):
        assert alice("POST", "/users", {"name": name}).status == 400
    assert alice("PATCH", "/users/alice", {"policies": ["administrator"]}).status == 200
    assert alice("DELETE", "/users/mallory").status == 204
    assert alice("DELETE", "/policies/greedy").status == 204


def test_the_development_key_is_not_taken_over(alice: Call) -> None:
    body = {"user": "alice", "key_id": "weir", "secret": "weir-secret"}
    assert "leave out key_id" in refused(alice("POST", "/keys", body))


def test_a_right_that_is_taken_away_ends_at_once(node: Process, alice: Call) -> None:
    body = {"name": "dave", "password": "dave's", "policies": ["administrator"]}
    assert alice("POST", "/users", body).status == 201
    dave = caller(node, "acme:dave", "dave's")
    assert dave("GET", "/topics").status == 200
    assert alice("PATCH", "/users/dave", {"policies": ["full"]}).status == 200
    told = refused(dave("GET", "/topics"))
    assert "a policy that allows `administer tenant:acme`" in told
    assert alice("PATCH", "/users/dave", {"enabled": False}).status == 200
    assert dave("GET", "/topics").status == 401
    assert alice("DELETE", "/users/dave").status == 204


def test_a_user_of_default_who_is_called_like_a_tenant_says_so_in_full(node: Process) -> None:
    for name, password in (("acme", "with:colon"), ("globex", "without")):
        body = {"name": name, "password": password, "policies": ["administrator"]}
        assert node.api("POST", "/users", body).status == 201
    for login, password, status in (
        ("default:acme", "with:colon", 200),
        ("default:globex", "without", 200),
        ("globex", "without", 200),
        ("acme", "with:colon", 401),
        ("default:acme", "with", 401),
        ("acme:alice", "alice's", 403),
    ):
        found = caller(node, login, password)("GET", "/health")
        assert found.status == status, login
    for name in ("acme", "globex"):
        assert node.api("DELETE", f"/users/{name}").status == 204


def test_the_command_line_signs_in_as_an_administrator_of_a_tenant(
    node: Process,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def weir(*words: str) -> tuple[int, str, str]:
        # Not the data directory of the node: its token is not there.
        where = ("--url", node.admin_url, "--data", str(tmp_path))
        with pytest.raises(SystemExit) as caught:
            gateway.cli.main([*words, *where])
        said = capsys.readouterr()
        assert isinstance(caught.value.code, int)
        return caught.value.code, said.out, said.err

    def ran(*words: str) -> Any:
        code, out, err = weir(*words, "--output", "json")
        assert code == 0, err
        return json.loads(out)

    monkeypatch.setenv("WEIR_LOGIN", "acme:alice")
    code, _, err = weir("queue", "ls")
    assert (code, "put it in the variable WEIR_PASSWORD" in err) == (ExitCode.USAGE, True)
    monkeypatch.setenv("WEIR_PASSWORD", "not hers")
    code, _, err = weir("queue", "ls")
    assert (code, "WEIR_PASSWORD that user's password" in err) == (ExitCode.FAILED, True)
    monkeypatch.setenv("WEIR_PASSWORD", "alice's")
    ran("queue", "create", "till")
    assert [each["name"] for each in ran("queue", "ls")["topics"]] == ["till"]
    assert [each["name"] for each in ran("queue", "ls", "--tenant", "acme")["topics"]] == ["till"]
    assert names(node.api("GET", "/topics?tenant=acme&prefix=till"), "topics") == ["till"]
    assert [each["name"] for each in ran("user", "ls")["users"]] == ["alice"]
    assert [each["name"] for each in ran("tenant", "ls")["tenants"]] == ["acme"]
    monkeypatch.setenv("WEIR_TENANT", "globex")
    code, out, err = weir("queue", "ls")
    assert (code, out) == (ExitCode.FAILED, "")
    assert "to administer the tenant globex takes a user of that tenant" in err
    monkeypatch.delenv("WEIR_TENANT")
    for words in (("node", "ls"), ("cluster", "status")):
        code, _, err = weir(*words)
        assert (code, "this is about the node, not about one tenant" in err) == (1, True)
    ran("queue", "rm", "till", "--yes")
