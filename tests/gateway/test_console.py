"""The console over HTTP: its files, who may sign in with a browser, and until when."""

from __future__ import annotations

import http.client
import json
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from gateway.admin.console import browser_sessions
from gateway.admin.console.browser_sessions import BrowserSessions
from gateway.admin.console.pages import FILES
from gateway.admin.http.callers import OPERATOR
from gateway.admin.shared_room import SharedRoom
from tests.gateway.serving import Answer, Process, serving
from tests.gateway.test_admin_health import basic

if TYPE_CHECKING:
    from collections.abc import Iterator

CONFIG = "tenants:\n  acme: {}\n  globex: {}\n"


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("console")
    config = folder / "weir.yaml"
    config.write_text(CONFIG)
    with serving(folder / "data", config=config) as process:
        for tenant, user in (("acme", "alice"), ("globex", "bob")):
            body = {"name": user, "password": f"{user}'s", "policies": ["administrator"]}
            assert process.api("POST", f"/users?tenant={tenant}", body).status == 201
        yield process


@dataclass
class Browser:
    """As much of one as the console's API sees."""

    node: Process
    cookies: dict[str, str] = field(default_factory=dict)
    key: str = ""

    def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Answer:
        sent = {"cookie": "; ".join(f"{n}={v}" for n, v in self.cookies.items())}
        if self.key:
            sent["x-weir-key"] = self.key
        return self.node.http(
            method, f"/api/v1{path}", body, token=None, headers=sent | (headers or {})
        )

    def sign_in(self, authorization: str) -> Answer:
        connection = http.client.HTTPConnection(self.node.admin_url.removeprefix("http://"))
        try:
            headers = {"authorization": authorization}
            connection.request("POST", "/api/v1/console/session", None, headers)
            response = connection.getresponse()
            found = Answer(response.status, response.read())
            self.set_cookie = response.getheader("set-cookie") or ""
        finally:
            connection.close()
        if found.status == 201:
            name, _, value = self.set_cookie.partition(";")[0].partition("=")
            self.cookies[name], self.key = value, found.json["key"]
        return found


def signed_in(node: Process, login: str = "", password: str = "") -> Browser:
    browser = Browser(node)
    shown = basic(login, password)["Authorization"] if login else f"Bearer {node.token}"
    assert browser.sign_in(shown).status == 201
    return browser


# --- Files -------------------------------------------------------------------------------------


def head_of(node: Process, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection(node.admin_url.removeprefix("http://"))
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        named = {name.lower(): value for name, value in response.getheaders()}
        return response.status, named, response.read()
    finally:
        connection.close()


def test_its_files_are_open_and_say_what_a_page_may_do(node: Process) -> None:
    for path, kind in (("/", "text/html"), ("/static/app.js", "text/javascript")):
        status, headers, body = head_of(node, path)
        assert (status, headers["content-type"].partition(";")[0]) == (200, kind)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert "require-trusted-types-for 'script'" in policy
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        again = head_of(node, path, **{"if-none-match": headers["etag"]})
        assert (again[0], again[2]) == (304, b"")
        assert body


@pytest.mark.parametrize(
    "path", ["/static/..%2f__init__.py", "/static/nobody.js", "/static/../pages.py", "/static/"]
)
def test_nothing_else_is_served(node: Process, path: str) -> None:
    assert head_of(node, path)[0] == 404


def test_a_page_of_another_name_gets_nothing(node: Process) -> None:
    assert head_of(node, "/", host="evil.example")[0] == 400


def test_no_file_makes_markup_of_text_or_fetches_from_elsewhere() -> None:
    for file in FILES.iterdir():
        text = file.read_text()
        found = re.findall(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function"
            r"|DOMParser|srcdoc|javascript:|(?:src|href)=\"(?:https?:)?//",
            text,
        )
        assert found == [], file.name
        assert "<script>" not in text
        assert "style=" not in text


# --- Sessions over HTTP ------------------------------------------------------------------------


def test_the_token_and_a_login_open_a_session(node: Process) -> None:
    browser = signed_in(node)
    assert re.fullmatch(
        r"weir_\d+=[0-9a-f]{64}; HttpOnly; Path=/api/v1; SameSite=strict", browser.set_cookie
    )
    me = browser.call("GET", "/console/session").json
    assert me["administers_node"] is True
    assert me["tenants"] == ["acme", "default", "globex"]
    assert me["key"] is None, "told once"
    alice = signed_in(node, "acme:alice", "alice's").call("GET", "/console/session").json
    assert (alice["user"], alice["tenant"], alice["tenants"]) == ("alice", "acme", ["acme"])
    assert alice["administers_node"] is False


@pytest.mark.parametrize(
    ("authorization", "status"),
    [
        ("Bearer wrong", 401),
        ("Code 1234", 401),
        (basic("acme:alice", "wrong")["Authorization"], 401),
        (basic("guest", "guest")["Authorization"], 403),
    ],
)
def test_who_may_not_administer_gets_no_session(
    node: Process, authorization: str, status: int
) -> None:
    browser = Browser(node)
    assert browser.sign_in(authorization).status == status
    assert browser.set_cookie == ""


def test_neither_the_cookie_nor_the_key_is_enough(node: Process) -> None:
    browser = signed_in(node)
    cookie, key = browser.cookies, browser.key
    assert browser.call("GET", "/topics").status == 200
    other = signed_in(node)
    for cookies, shown in (({}, key), (cookie, ""), (cookie, other.key), (cookie, "é")):
        found = Browser(node, dict(cookies), shown.encode().decode("latin-1"))
        assert found.call("GET", "/topics").status == 401
        assert found.call("POST", "/topics", {"name": "forged"}).status == 401
        assert found.call("DELETE", "/console/session").status == 401
    assert node.api("GET", "/topics/forged").status == 404
    assert browser.call("GET", "/topics").status == 200


def test_a_session_is_always_a_new_one_and_opens_no_other(node: Process) -> None:
    fixed = "0" * 64
    browser = Browser(node, {f"weir_{node.admin_url.rpartition(':')[2]}": fixed}, "k")
    browser.sign_in(f"Bearer {node.token}")
    assert fixed not in browser.cookies.values()
    assert browser.call("POST", "/console/session").status == 400


def test_signing_out_ends_it(node: Process) -> None:
    browser = signed_in(node)
    kept = dict(browser.cookies)
    assert browser.call("DELETE", "/console/session").status == 204
    browser.cookies = kept
    assert browser.call("GET", "/console/session").status == 401
    assert browser.call("DELETE", "/console/session").status == 401


def test_a_code_signs_in_once(node: Process) -> None:
    code = signed_in(node, "acme:alice", "alice's").call("POST", "/console/codes").json["code"]
    found = Browser(node).sign_in(f"Code {code}")
    assert (found.status, found.json["user"]) == (201, "alice")
    assert Browser(node).sign_in(f"Code {code}").status == 401


def test_a_tenants_administrator_sees_that_tenant_only(node: Process) -> None:
    for tenant in ("acme", "globex", "default"):
        assert node.api("POST", f"/topics?tenant={tenant}", {"name": f"of-{tenant}"}).status == 201
    alice = signed_in(node, "acme:alice", "alice's")
    names = [each["name"] for each in alice.call("GET", "/topics").json["topics"]]
    assert names == ["of-acme"]
    assert alice.call("GET", "/history").status == 200
    assert alice.call("GET", "/history?topic=of-acme").status == 200
    assert alice.call("GET", "/history?topic=of-globex").status == 404
    for path in ("/topics", "/history", "/connections", "/users"):
        assert alice.call("GET", f"{path}?tenant=globex").status == 403
    for path in ("/node", "/health", "/events", "/cluster", "/metering"):
        assert alice.call("GET", path).status == 403


def test_a_session_ends_with_the_right_that_it_came_by(node: Process) -> None:
    def dave() -> Browser:
        return signed_in(node, "acme:dave", "dave's")

    body = {"name": "dave", "password": "dave's", "policies": ["administrator"]}
    assert node.api("POST", "/users?tenant=acme", body).status == 201
    for change in ({"policies": ["full"]}, {"sign_out": True}, {"enabled": False}):
        browser = dave()
        assert browser.call("GET", "/topics").status == 200
        assert node.api("PATCH", "/users/dave?tenant=acme", change).status == 200
        assert browser.call("GET", "/topics").status == 401, change
        back = {"policies": ["administrator"], "enabled": True}
        assert node.api("PATCH", "/users/dave?tenant=acme", back).status == 200
        assert browser.call("GET", "/topics").status == 401, "it does not come back"
    browser = dave()
    assert node.api("DELETE", "/users/dave?tenant=acme").status == 204
    assert browser.call("GET", "/topics").status == 401


def test_what_is_done_by_a_session_is_done_in_its_users_name(node: Process) -> None:
    alice = signed_in(node, "acme:alice", "alice's")
    assert alice.call("POST", "/topics", {"name": "hers"}).status == 201
    found = node.api("GET", "/events?limit=1000").json["events"]
    assert "user alice of tenant acme" in {
        each["facts"]["by"] for each in found if each["facts"].get("path") == "/api/v1/topics"
    }


def test_names_and_bodies_come_as_json_whatever_they_hold(node: Process) -> None:
    name = "<img src=x onerror=alert(1)>"
    assert node.api("POST", "/topics", {"name": name}).status == 201
    status, headers, body = head_of(
        node, "/api/v1/topics?prefix=%3C", Authorization=f"Bearer {node.token}"
    )
    assert (status, headers["content-type"]) == (200, "application/json")
    assert [each["name"] for each in json.loads(body)["topics"]] == [name]


# --- Sessions by themselves --------------------------------------------------------------------


class Clock:
    now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms


class Random:
    drawn = 0

    def bits(self, count: int) -> int:
        self.drawn += 1
        return self.drawn


class Somebody:
    """A caller by name."""

    is_alive = True

    def __init__(self, name: str) -> None:
        self.name = name
        self.rules = object()

    def __str__(self) -> str:
        return self.name


def sessions() -> tuple[BrowserSessions, Clock]:
    clock: Any = Clock()
    return BrowserSessions(clock, Random()), clock  # type: ignore[arg-type]


def test_a_session_ends_when_nobody_uses_it_and_at_the_end_of_the_day() -> None:
    found, clock = sessions()
    cookie, session = found.begin(OPERATOR)
    for _ in range(13):
        clock.now_ms += browser_sessions.IDLE_S * 1_000 - 1
        if clock.now_ms < browser_sessions.WHOLE_S * 1_000:
            assert found.find(cookie, session.key, bool) is session
    assert found.find(cookie, session.key, bool) is None
    cookie, session = found.begin(OPERATOR)
    clock.now_ms += browser_sessions.IDLE_S * 1_000
    assert found.find(cookie, session.key, bool) is None
    assert len(found) == 0


def test_a_hundred_thousand_sessions_take_room_from_who_opens_them() -> None:
    found, _ = sessions()
    one: Any = Somebody("one")
    cookie, session = found.begin(one)
    crowd: Any = [Somebody(f"user {number}") for number in range(2_000)]
    for number in range(100_000):
        found.begin(crowd[number % 20])
    assert found.find(cookie, session.key, bool) is session
    assert len(found) == 1 + 20 * browser_sessions.OF_ONE_MAX
    for each in crowd:
        found.begin(each)
    assert len(found) <= browser_sessions.SESSIONS_MAX


def test_whether_somebody_administers_is_asked_only_when_rights_have_changed() -> None:
    found, _ = sessions()
    caller: Any = Somebody("ann")
    asked = []
    cookie, session = found.begin(caller)

    def administers(_caller: Any) -> bool:
        asked.append(1)
        return len(asked) < 2

    assert found.find(cookie, session.key, administers) is session
    assert asked == []
    caller.rules = object()
    assert found.find(cookie, session.key, administers) is session
    assert found.find(cookie, session.key, administers) is session
    assert asked == [1]
    caller.rules = object()
    assert found.find(cookie, session.key, administers) is None
    assert found.find(cookie, session.key, administers) is None


def test_a_code_is_good_for_an_hour_and_while_its_user_is() -> None:
    found, clock = sessions()
    caller: Any = Somebody("ann")
    late, gone = found.code(caller), found.code(caller)
    caller.is_alive = False
    assert found.redeem(gone) is None
    caller.is_alive = True
    assert found.redeem(gone) is None, "it was used"
    clock.now_ms += browser_sessions.CODE_S * 1_000
    assert found.redeem(late) is None


def test_a_place_is_given_up_by_whoever_has_most() -> None:
    room: SharedRoom[int, str] = SharedRoom(4, 3)
    for key in (1, 2, 3, 4):
        room.put("a", key, "a")
    assert [key for key, _ in room.items()] == [2, 3, 4]
    room.put("b", 5, "b")
    assert room.use(2) == "a"
    room.put("b", 6, "b")
    assert [key for key, _ in room.items()] == [4, 5, 2, 6]
    assert (room.remove(5), room.remove(5), room.use(3)) == ("b", None, None)
    assert len(room) == 3


# --- What its pages ask ------------------------------------------------------------------------


def test_may_x_do_y_is_answered_with_the_rule_that_decides(node: Process) -> None:
    rules = ["allow publish topic:orders-*", "deny publish topic:orders-secret"]
    assert node.api("PUT", "/policies/writers?tenant=acme", {"rules": rules}).status == 201
    body = {"name": "will", "password": "will's", "policies": ["writers"]}
    assert node.api("POST", "/users?tenant=acme", body).status == 201
    alice = signed_in(node, "acme:alice", "alice's")
    ask = "/access?user=will&action=publish&kind=topic&name="
    told = alice.call("GET", f"{ask}orders-1").json
    assert (told["allowed"], told["policy"], told["rule_number"]) == (True, "writers", 1)
    assert alice.call("GET", f"{ask}orders-secret").json["rule"] == rules[1]
    assert alice.call("GET", f"{ask}other").json["reason"] == "no rule allows it"
    assert alice.call("GET", ask.replace("will", "nobody")).status == 404
    assert alice.call("GET", ask.replace("publish", "eat")).status == 400
    assert node.api("PATCH", "/users/will?tenant=acme", {"enabled": False}).status == 200
    told = alice.call("GET", f"{ask}orders-1").json
    assert (told["allowed"], told["reason"][:26]) == (False, "there is no such principal")
    assert node.api("GET", f"{ask}orders-1").status == 404, "of the caller's own tenant"


def test_settings_come_with_their_origin(node: Process) -> None:
    found = {each["name"]: each for each in node.api("GET", "/settings").json["settings"]}
    assert found["node.admin.port"] == {
        "name": "node.admin.port",
        "value": 0,
        "origin": "--set node.admin.port",
    }
    assert found["node.metrics.top"]["origin"] == "default"


def test_topics_are_searched_and_sorted_by_the_server(node: Process) -> None:
    for name in ("deep", "shallow"):
        topic = {"name": f"{name}-water", "type": "work"}
        assert node.api("POST", "/topics?tenant=globex", topic).status == 201
    for _ in range(3):
        sent = node.api("POST", "/topics/deep-water/messages?tenant=globex", {"body": "x"})
        assert sent.status == 201
    bob = signed_in(node, "globex:bob", "bob's")
    first = bob.call("GET", "/topics?search=WATER&sort=-ready&limit=1").json
    assert [each["name"] for each in first["topics"]] == ["deep-water"]
    assert first["total"] == 2
    second = bob.call("GET", f"/topics?search=WATER&sort=-ready&limit=1&after={first['next']}").json
    assert [each["name"] for each in second["topics"]] == ["shallow-water"]
    assert second["next"] is None
    assert bob.call("GET", "/topics?sort=color").status == 400
