"""Who may use which route of the admin API: every route that the application has, and every kind of
caller. Without sockets, and over a kernel that does nothing: who is let in meets that.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.registry import Collector
from starlette.routing import Mount, Route

import gateway.admin.resources.users
from auth.errors import AuthCode, AuthError
from auth.policies.policy_decisions import PolicyBook
from auth.policies.policy_rules import Policy, parse_rule
from auth.principal import split_login
from auth.users.directory import Directory
from auth.users.records import AccessKey, Create, Record, User
from auth.users.store import AuthStore
from gateway.access.tenant_book import TenantBook
from gateway.admin.app import AdminParts, StoreParts, build_app, build_store_app, build_waiting_app
from gateway.admin.console.browser_sessions import BrowserSessions
from gateway.admin.health import HealthRoutes
from gateway.admin.http.callers import Right
from gateway.admin.operations import API, TOP
from gateway.admin.resources.backups import Pinning
from gateway.admin.resources.declared_shapes import DeclaredShapes
from gateway.admin.resources.principals import Principals
from gateway.config.declared import declared_in
from gateway.config.loading import load
from gateway.config.schema import Listener, Tenant
from kernel.common.errors import Code, KernelError
from kernel.store.drivers.system import SystemClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from starlette.types import ASGIApp, Message

    from auth.policies.policy_decisions import Access

NODE, TENANT, SOME, OPEN = Right.NODE, Right.TENANT, Right.SOME, Right.OPEN

DECIDED = {
    "": OPEN,
    "static": OPEN,
    "console": SOME,
    "history": TENANT,
    "node": NODE,
    "settings": NODE,
    "access": TENANT,
    "livez": OPEN,
    "readyz": OPEN,
    "metrics": NODE,
    "openapi.json": OPEN,
    "health": NODE,
    "metering": NODE,
    "backups": NODE,
    "events": NODE,
    "definitions": TENANT,
    "audit": NODE,
    "limits": NODE,
    "cluster": NODE,
    "tenants": SOME,
    "topics": TENANT,
    "groups": TENANT,
    "dead-letters": TENANT,
    "routers": TENANT,
    "sessions": TENANT,
    "connections": TENANT,
    "users": TENANT,
    "keys": TENANT,
    "policies": TENANT,
}
"""By the first word of a path. A new word is a decision, made in `gateway.admin.operations`."""

TOP_PATHS = tuple(each.path for each in TOP)

APART = {
    "GET /limits": TENANT,
    "GET /metering/bill": TENANT,
    "POST /tenants": NODE,
    "PATCH /tenants/{tenant}": NODE,
    "DELETE /tenants/{tenant}": NODE,
}
"""Operations that have another right than others of their word."""


def decided(name: str) -> Right:
    return APART.get(name) or DECIDED[name.split("/")[1]]


TOKEN = "the operator's token"

CALLERS: dict[str, tuple[str, str | None, dict[Right, bool]]] = {
    "operator": ("", None, {NODE: True, TENANT: True, SOME: True}),
    "operator on acme": ("", "acme", {NODE: True, TENANT: True, SOME: True}),
    "administrator of default": ("root", None, {NODE: True, TENANT: True, SOME: True}),
    "administrator of default on acme": ("root", "acme", {NODE: True, TENANT: True, SOME: True}),
    "administrator of acme": ("acme:alice", None, {NODE: False, TENANT: True, SOME: True}),
    "administrator of acme, named": ("acme:alice", "acme", {NODE: False, TENANT: True, SOME: True}),
    "administrator of acme by a rule": ("acme:ann", None, {NODE: False, TENANT: True, SOME: True}),
    "administrator of acme on globex": (
        "acme:alice",
        "globex",
        {NODE: False, TENANT: False, SOME: True},
    ),
    "administrator of acme on default": (
        "acme:alice",
        "default",
        {NODE: False, TENANT: False, SOME: True},
    ),
    "administrator of acme on nobody": (
        "acme:alice",
        "nobody",
        {NODE: False, TENANT: False, SOME: True},
    ),
    "administrator of acme on an empty name": (
        "acme:alice",
        "",
        {NODE: False, TENANT: False, SOME: True},
    ),
    "who may do everything but administer": (
        "acme:worker",
        None,
        {NODE: False, TENANT: False, SOME: False},
    ),
    "who is denied it": ("acme:denied", None, {NODE: False, TENANT: False, SOME: False}),
    "who grabs": ("acme:grabber", "default", {NODE: False, TENANT: False, SOME: False}),
    "user of default": ("plain", None, {NODE: False, TENANT: False, SOME: False}),
    "user of default with a say in acme": (
        "helper",
        "acme",
        {NODE: False, TENANT: True, SOME: True},
    ),
    "the same on globex": ("helper", "globex", {NODE: False, TENANT: False, SOME: True}),
    # Users of `default` may be given rights over the node: who administers it does that.
    "user of default with a say in every tenant, on default": (
        "steward",
        None,
        {NODE: False, TENANT: False, SOME: True},
    ),
    "the same on acme": ("steward", "acme", {NODE: False, TENANT: True, SOME: True}),
}
"""Login (empty: the token), ?tenant=, and what is let in."""

RULES = {
    ("acme", "keeper"): ["allow administer tenant:acme"],
    ("acme", "denied"): ["allow * *", "deny administer tenant:*"],
    ("acme", "grabber"): [
        "allow administer node:* tenant:default tenant:globex",
        "deny administer tenant:acme",
    ],
    ("default", "helper"): ["allow administer tenant:acme"],
    ("default", "steward"): ["allow administer tenant:*"],
}
USERS = {
    "root": "administrator",
    "plain": "full",
    "helper": "helper",
    "steward": "steward",
    "acme:alice": "administrator",
    "acme:ann": "keeper",
    "acme:worker": "full",
    "acme:denied": "denied",
    "acme:grabber": "grabber",
    "globex:bob": "full",
}


def records() -> Iterator[Record]:
    for (tenant, name), rules in RULES.items():
        yield Policy(tenant=tenant, name=name, rules=tuple(map(parse_rule, rules)))
    for login, policy in USERS.items():
        tenant, name = split_login(login)
        yield User(tenant=tenant, name=name, policies=(policy,))
    yield AccessKey(key_id="BOBS", tenant="globex", user="bob", sealed_secret=b"x")


class Nothing:
    """Whatever is asked of it is not there."""

    def __getattr__(self, name: str) -> Any:
        raise KernelError(Code.UNAVAILABLE, f"there is no {name} here")


class Keys:
    def seal(self, secret: bytes, context: bytes) -> bytes:
        return context + secret


class Unaudited:
    async def note(self, **facts: object) -> None:
        """Who may do what is not what it is about."""

    async def read(self, first: int, since_ms: int, most: int) -> tuple[list[Any], int, int]:
        return [], 0, 0


class Clock:
    def wall_ms(self) -> int:
        return 1

    def monotonic_ms(self) -> int:
        return 1


class Random:
    def bits(self, count: int) -> int:
        return count


class Token:
    def matches(self, shown: bytes) -> bool:
        return shown == TOKEN.encode()


class Figures(Collector):
    def collect(self) -> Iterator[Any]:
        return iter(())


class SignIn:
    """Everybody's password is `pass:word`."""

    def __init__(self, store: AuthStore) -> None:
        self._directory = Directory(store, lambda envelope, _context: envelope)
        self._policies = PolicyBook(self._directory)

    async def sign_in(
        self, login: str, password: bytes, address: str, client_id: str | None = None
    ) -> Access:
        principal = self._directory.principal(*split_login(login))
        if principal is None or password != b"pass:word":
            raise AuthError(AuthCode.BAD_CREDENTIALS, f"login refused from {address}")
        return self._policies.access(principal, client_id)


class Api:
    def __init__(self) -> None:
        self.store = AuthStore()
        for record in records():
            assert self.store.apply(Create(record)) is None
        fakes: Any = {
            "client": Nothing(),
            "principals": Principals(Nothing(), self.store, Keys(), Clock(), Random()),  # type: ignore[arg-type]
            "identity": SignIn(self.store),
            "token": Token(),
            "clock": Clock(),
            "cluster_admin": Nothing(),
            "pinning": Pinning(Nothing(), Path(), Path()),  # type: ignore[arg-type]
            "disconnects": Nothing(),
            "node_name": "here",
            "sessions": BrowserSessions(Clock(), Random()),  # type: ignore[arg-type]
            "limits": Nothing(),
            "quotas": Nothing(),
            "removal": Nothing(),
            "audit": Unaudited(),
        }
        self.listener = Listener(host="192.0.2.1", port=1)
        self.health = HealthRoutes(list, Figures())
        protocols = load(environ={}).settings.protocols
        declared = declared_in(protocols)
        tenants = {"default": Tenant(), "acme": Tenant(), "globex": Tenant()}
        self.app = build_app(
            self.listener,
            AdminParts(
                health=self.health,
                tenants=TenantBook(tenants, declared, SystemClock()),
                declared=declared,
                shapes=DeclaredShapes(declared, protocols),
                **fakes,
            ),
        )

    async def call(
        self, login: str, method: str, path: str, tenant: str | None = None, body: Any = None
    ) -> tuple[int, str]:
        """Status, and the message of an error; `login` empty: with the token."""
        shown = f"Bearer {TOKEN}"
        if login:
            shown = "Basic " + base64.b64encode(f"{login}:pass:word".encode()).decode()
        query = "" if tenant is None else f"tenant={tenant}"
        status, answer = await exchange(self.app, method, path, query, shown, body)
        if status < 400 or method == "HEAD" or path in TOP_PATHS:
            return status, ""
        return status, json.loads(answer)["error"]["message"]


async def exchange(
    app: ASGIApp, method: str, path: str, query: str, authorization: str, body: Any = None
) -> tuple[int, bytes]:
    path = path if path in TOP_PATHS else f"/api/v1{path}"
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"192.0.2.1"), (b"authorization", authorization.encode())],
        "client": ("192.0.2.9", 1),
    }
    sent: list[Message] = []

    async def receive() -> Message:
        data = b"" if body is None else json.dumps(body).encode()
        return {"type": "http.request", "body": data, "more_body": False}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    data = b"".join(each.get("body", b"") for each in sent)
    return sent[0]["status"], data


@pytest.fixture
def api() -> Api:
    return Api()


def routes_of(app: Any) -> set[str]:
    """`METHOD PATH` of every route that an application has, below /api/v1 without that."""
    found = set()
    todo = list(app.application.routes)
    while todo:
        each = todo.pop()
        if isinstance(each, Mount):
            todo += each.routes
        else:
            assert isinstance(each, Route)
            found |= {f"{method} {each.path}" for method in each.methods or () if method != "HEAD"}
    return found


def test_there_is_a_decision_for_every_route_and_none_for_others() -> None:
    operations = {each.name: each.right for each in (*TOP, *API)}
    assert len(operations) == len(TOP) + len(API)
    assert routes_of(Api().app) == set(operations)
    for name, right in operations.items():
        assert decided(name) is right, name


@pytest.mark.parametrize("name", sorted(routes_of(Api().app)))
async def test_a_route_lets_in_whom_it_is_for_and_nobody_else(api: Api, name: str) -> None:
    method, _, template = name.partition(" ")
    right = decided(name)
    path = template.replace("{number}", "7").replace("{group}", "7")
    # The one that every caller with SOME administers.
    path = path.replace("{tenant}", "acme").replace("{", "").replace("}", "")
    found, wanted = {}, {}
    for who, (login, tenant, rights) in CALLERS.items():
        status, message = await api.call(login, method, path, tenant)
        assert status != 401, who
        found[who] = status != 403
        wanted[who] = right is OPEN or rights[right]
        if status == 403 and path not in TOP_PATHS:
            login = login if ":" in login else f"default:{login}"
            of, _, user = login.partition(":")
            assert message.endswith(f"you are user {user} of tenant {of}")
            assert "administer" in message
    assert found == wanted


@pytest.mark.parametrize(
    ("host", "advertised", "is_open"),
    [
        ("127.0.0.1", None, True),
        ("192.0.2.1", None, False),
        ("127.0.0.1", "weir.example.org:443", False),
    ],
)
async def test_metrics_are_open_where_only_this_machine_can_ask(
    host: str, advertised: str | None, is_open: bool
) -> None:
    token: Any = Token()
    listener = Listener(host=host, port=1, advertised=advertised)
    app = build_waiting_app(listener, token, HealthRoutes(list, Figures()))
    status, _ = await exchange(app, "GET", "/metrics", "", "")
    assert status == (200 if is_open else 401)


async def test_head_asks_for_the_same_right_as_get(api: Api) -> None:
    assert (await api.call("acme:worker", "HEAD", "/topics"))[0] == 403
    assert (await api.call("acme:alice", "HEAD", "/cluster"))[0] == 403
    assert (await api.call("acme:alice", "HEAD", "/users"))[0] == 200


async def test_a_tenant_that_is_there_is_refused_as_one_that_is_not(api: Api) -> None:
    told = {}
    for tenant in ("globex", "nobody", "a:b", "x" * 200):
        for login in ("acme:alice", "helper"):
            status, message = await api.call(login, "GET", "/topics", tenant)
            assert status == 403
            told[tenant, login] = message.replace(tenant, "IT")
    assert len(set(told.values())) == 2


async def test_a_tenant_that_is_not_there_tells_of_no_others(api: Api) -> None:
    status, message = await api.call("", "GET", "/topics", "nobody")
    assert (status, "known: acme, default, globex" in message) == (404, True)
    status, message = await api.call("steward", "GET", "/topics", "nobody")
    assert (status, "known: acme, globex" in message) == (404, True)


async def test_the_list_of_tenants_has_those_that_the_caller_administers(api: Api) -> None:
    for login, names in (
        ("root", ["acme", "default", "globex"]),
        ("acme:alice", ["acme"]),
        ("helper", ["acme"]),
        ("steward", ["acme", "globex"]),
    ):
        basic = "Basic " + base64.b64encode(f"{login}:pass:word".encode()).decode()
        _, body = await exchange(api.app, "GET", "/tenants", "", basic)
        assert [each["name"] for each in json.loads(body)["tenants"]] == names


async def test_the_id_of_a_key_is_chosen_by_who_administers_the_node(api: Api) -> None:
    for key_id in ("BOBS", "free", "weir"):
        body = {"user": "alice", "key_id": key_id}
        status, message = await api.call("acme:alice", "POST", "/keys", body=body)
        assert (status, "leave out key_id" in message) == (403, True)
    body = {"user": "alice", "key_id": "BOBS"}
    assert (await api.call("", "POST", "/keys", "acme", body))[0] == 409
    assert (await api.call("", "POST", "/keys", "acme", body | {"key_id": "free"}))[0] == 503
    assert (await api.call("acme:alice", "POST", "/keys", body={"user": "alice"}))[0] == 503
    for key_id in ("BOBS", "free"):
        for method in ("GET", "PATCH", "DELETE"):
            found = await api.call("acme:alice", method, f"/keys/{key_id}", body={"enabled": True})
            assert found == (404, f"there is no access key {key_id} in tenant acme")


async def test_one_tenant_does_not_take_the_room_of_all(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    have = {"users": len(api.store.users("acme")), "policies": len(api.store.policies("acme"))}
    user, policy = {"name": "new"}, {"rules": ["allow * *"]}
    for bound, status in ((1, 503), (0, 409)):
        # At 503 the kernel was asked, which does nothing here.
        monkeypatch.setattr(gateway.admin.resources.users, "OWN_USERS_MAX", have["users"] + bound)
        monkeypatch.setattr(
            gateway.admin.resources.users, "OWN_POLICIES_MAX", have["policies"] + bound
        )
        assert (await api.call("acme:alice", "POST", "/users", body=user))[0] == status
        assert (await api.call("acme:alice", "PUT", "/policies/new", body=policy))[0] == status
    # A policy that is there may be replaced, and the operator may go on.
    assert (await api.call("acme:alice", "PUT", "/policies/keeper", body=policy))[0] == 503
    assert (await api.call("", "POST", "/users", "acme", user))[0] == 503
    assert (await api.call("", "PUT", "/policies/new", "acme", policy))[0] == 503


async def test_what_is_of_a_store_or_does_not_serve_yet_is_opened_by_the_token_alone(
    api: Api,
) -> None:
    fakes: Any = {
        "token": Token(),
        "cluster_admin": Nothing(),
        "admission": Nothing(),
        "pinning": Pinning(Nothing(), Path(), Path(), 1),  # type: ignore[arg-type]
        "clock": None,
    }
    store = build_store_app(api.listener, StoreParts(health=api.health, **fakes))
    waiting = build_waiting_app(api.listener, fakes["token"], api.health)
    login = "Basic " + base64.b64encode(b"root:pass:word").decode()
    for app, path, status in (
        (store, "/cluster", 503),
        (store, "/topics", 404),
        (store, "/health", 200),
        (waiting, "/topics", 503),
        (waiting, "/health", 200),
    ):
        assert (await exchange(app, "GET", path, "", f"Bearer {TOKEN}"))[0] == status
        assert (await exchange(app, "GET", path, "", login))[0] == 401


async def test_where_there_is_no_console_a_browser_is_told_where_it_is(api: Api) -> None:
    fakes: Any = {
        "token": Token(),
        "cluster_admin": Nothing(),
        "admission": Nothing(),
        "pinning": Pinning(Nothing(), Path(), Path(), 1),  # type: ignore[arg-type]
        "clock": None,
    }
    store = build_store_app(api.listener, StoreParts(health=api.health, **fakes))
    waiting = build_waiting_app(api.listener, fakes["token"], api.health)
    for app, status, words in ((store, 404, b"at the gateways"), (waiting, 503, b"once it has")):
        found, said = await exchange(app, "GET", "/", "", "")
        assert found == status
        assert words in said
        found, _ = await exchange(app, "GET", "/static/{file}", "", "")
        assert found == 404
