"""What can be changed and removed in the console, in a real browser: each button does what it says.

What is made there, and what the pages look like: `test_console_pages`.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from tests.gateway import browser
from tests.gateway.browser import go, sign_in, window
from tests.gateway.cluster import until
from tests.gateway.serving import Process, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings("default::ResourceWarning")

chromium = browser.chromium


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    with serving(tmp_path_factory.mktemp("actions")) as process:
        yield process


@pytest.fixture
def page(chromium: Any, node: Process) -> Iterator[Any]:
    with window(chromium, node) as found:
        sign_in(found, node)
        yield found


def make(node: Process, path: str, **body: Any) -> Any:
    found = node.api("POST", path, body)
    assert found.status == 201, (path, found.body)
    return found.json


def row_of(page: Any, table: str, first: str) -> Any:
    rows = page.get_by_role("region", name=table, exact=True).locator("tbody tr")
    return rows.filter(has=page.locator("th", has_text=first)).first


def press(page: Any, where: Any, button: str, label: str, **fields: str) -> None:
    """Open a dialog, fill in fields, and do it."""
    where.get_by_role("button", name=button, exact=True).first.click()
    box = page.get_by_role("dialog")
    for name, value in fields.items():
        field = box.get_by_label(name.replace("_", " "), exact=True)
        if field.evaluate("each => each.tagName") == "SELECT":
            field.select_option(value)
        else:
            field.fill(value)
    box.get_by_role("button", name=label, exact=True).click()


def done(page: Any) -> None:
    """The dialog has closed: nothing was wrong."""
    wrong = page.get_by_role("alert").filter(has_text=" ")

    def is_over() -> bool:
        return bool(page.get_by_role("dialog").count() == 0 or wrong.count() > 0)

    until(is_over, "it was answered")
    assert wrong.all_text_contents() == []


def test_a_topics_settings_are_changed_and_lifted(node: Process, page: Any) -> None:
    make(node, "/topics", name="kept", type="work")
    go(page, node, "topics/kept", "Groups")
    top = page.locator(".content > div > .actions")
    for shown, value in (("60000", 60_000), ("", None)):
        press(page, top, "Change", "Change", message_ttl_ms=shown)
        done(page)
        assert node.api("GET", "/topics/kept").json["options"]["message_ttl_ms"] == value
        page.reload()
        page.get_by_role("region", name="Groups").wait_for()
    press(page, top, "Change", "Change", message_bytes_max="")
    page.get_by_role("alert").get_by_text("message bytes max cannot be empty").wait_for()


def test_a_group_is_made_changed_and_deleted(node: Process, page: Any) -> None:
    make(node, "/topics", name="grouped", type="work")
    go(page, node, "topics/grouped", "Groups")
    press(page, page, "New group", "Create", name="billing")
    page.get_by_role("dialog").get_by_role("status").get_by_text("billing").wait_for()
    page.keyboard.press("Escape")
    row = row_of(page, "Groups", "billing")
    press(page, row, "Change", "Change", attempts_max="3", lease_ms="5000")
    done(page)
    found = node.api("GET", "/topics/grouped/groups/billing").json["options"]
    assert (found["attempts_max"], found["lease_ms"]) == (3, 5_000)
    press(page, row, "Delete", "Delete")
    done(page)
    row.wait_for(state="detached")
    assert node.api("GET", "/topics/grouped/groups/billing").status == 404


def test_messages_are_peeked_at_from_an_offset_and_page_by_page(node: Process, page: Any) -> None:
    make(node, "/topics", name="many", type="work")
    for number in range(45):
        make(node, "/topics/many/messages", body=f"body {number}")
    go(page, node, "topics/many", "Groups")
    page.get_by_label("From offset").fill("3")
    page.get_by_role("button", name="Peek").click()
    messages = page.locator("details.message")
    for shown in (20, 40, 42):
        messages.nth(shown - 1).wait_for()
        assert messages.count() == shown
        if shown < 42:
            page.get_by_role("button", name="More").click()
    texts = messages.all_text_contents()
    assert ("body 3" in texts[0], "body 44" in texts[-1]) == (True, True)
    assert page.get_by_role("button", name="More").is_hidden()


def test_users_and_keys_are_changed_and_removed(node: Process, page: Any) -> None:
    make(node, "/users", name="ann", password="a good one", policies=["full"])
    key = make(node, "/keys", user="ann")["key_id"]
    go(page, node, "users", "ann")
    row = row_of(page, "Users", "ann")
    # A right is taken by emptying the field: that must not leave what was there.
    press(page, row, "Change", "Change", policies="")
    done(page)
    assert node.api("GET", "/users/ann").json["policies"] == []
    press(page, row, "Change", "Change", enabled="false")
    done(page)
    row.get_by_text("disabled").wait_for()
    assert node.api("GET", "/users/ann").json["enabled"] is False
    keys = row_of(page, "Access keys", key)
    press(page, keys, "Change", "Change", enabled="false")
    done(page)
    keys.get_by_text("disabled").wait_for()
    press(page, keys, "Delete", "Delete")
    done(page)
    keys.wait_for(state="detached")
    assert node.api("GET", f"/keys/{key}").status == 404
    press(page, row, "Delete", "Delete")
    done(page)
    row.wait_for(state="detached")
    assert node.api("GET", "/users/ann").status == 404


def test_policies_are_changed_and_removed(node: Process, page: Any) -> None:
    assert node.api("PUT", "/policies/readers", {"rules": ["allow consume topic:a"]}).status == 201
    go(page, node, "policies", "readers")
    row = row_of(page, "Policies", "readers")
    press(page, row, "Change", "Change", rules="allow consume topic:b\ndeny * topic:c")
    done(page)
    row.get_by_text("deny * topic:c").wait_for()
    found = node.api("GET", "/policies/readers").json["rules"]
    assert found == ["allow consume topic:b", "deny * topic:c"]
    press(page, row, "Delete", "Delete")
    done(page)
    row.wait_for(state="detached")
    assert node.api("GET", "/policies/readers").status == 404


def test_a_tenant_is_changed_and_removed_and_its_limit(node: Process, page: Any) -> None:
    make(node, "/tenants", name="initech")
    assert node.api("PATCH", "/limits/tenant/initech", {"topics": 7}).status == 200
    go(page, node, "tenants", "initech")
    limits = page.get_by_role("region", name="Limits", exact=True).locator("tr")
    limit = limits.filter(has_text="initech")
    limit.get_by_role("button", name="Change").click()
    page.get_by_label("Limits, as JSON").fill('{"topics": 9')
    page.get_by_role("dialog").get_by_role("button", name="Set").click()
    page.get_by_role("alert").get_by_text("this is no JSON").wait_for()
    page.get_by_label("Limits, as JSON").fill('{"topics": 9}')
    page.get_by_role("dialog").get_by_role("button", name="Set").click()
    done(page)
    limit.get_by_text("topics: 9").wait_for()
    row = row_of(page, "Tenants", "initech")
    press(page, row, "Change", "Change", sign_in="false")
    done(page)
    assert node.api("GET", "/tenants/initech").json["sign_in"] is False
    press(page, row, "Remove", "Remove")
    done(page)
    # It leaves before it is gone (docs/adr/0033-a-tenant-leaves-before-it-is-gone.md).
    until(lambda: node.api("GET", "/tenants/initech").json.get("state") != "here", "it leaves")


@contextlib.contextmanager
def device(node: Process, name: str) -> Iterator[list[int]]:
    """A client with a kept session; how often it was disconnected."""
    gone: list[int] = []
    client = mqtt.Client(
        CallbackAPIVersion.VERSION2, name, clean_session=False, reconnect_on_failure=False
    )
    client.username_pw_set("guest", "guest")

    def on_connect(*_: Any) -> None:
        client.subscribe(f"{name}/#", qos=1)

    def on_disconnect(*_: Any) -> None:
        gone.append(1)

    client.on_connect, client.on_disconnect = on_connect, on_disconnect
    client.connect("127.0.0.1", node.listeners["mqtt.tcp"])
    client.loop_start()
    try:
        yield gone
    finally:
        client.disconnect()
        client.loop_stop()


def test_a_kept_session_is_shown_and_ended(node: Process, page: Any) -> None:
    with device(node, "sensor-7") as gone:
        asked = "/sessions/sensor-7"
        until(lambda: bool(node.api("GET", asked).json.get("subscriptions")), "it has subscribed")
        go(page, node, "sessions", "sensor-7")
        page.get_by_role("link", name="sensor-7").click()
        page.get_by_role("region", name="Subscriptions").get_by_text("sensor-7/#").wait_for()
        press(page, page, "End", "End it")
        page.get_by_text("No session is kept").wait_for()
        until(lambda: bool(gone), "its client is disconnected")
    assert node.api("GET", "/sessions/sensor-7").status == 404


def test_all_connections_of_a_user_are_closed(node: Process, page: Any) -> None:
    with device(node, "sensor-8") as first, device(node, "sensor-9") as second:
        until(
            lambda: len(node.api("GET", "/connections").json["connections"]) == 2, "both are here"
        )
        go(page, node, "connections", "sensor-9")
        row_of(page, "Connections", "mqtt").get_by_role("link").click()
        press(page, page, "Close all of guest", "Close all")
        page.get_by_text("Nobody is connected").wait_for()
        until(lambda: bool(first and second), "both have heard")


def test_what_was_counted_is_exported(node: Process, page: Any) -> None:
    go(page, node, "bill", "Rows counted")
    press(page, page, "Export now", "Export")
    box = page.get_by_role("dialog")
    box.get_by_role("status").or_(box.get_by_role("alert").filter(has_text=" ")).wait_for()
    assert "files" in box.text_content() or "archive" in box.text_content()


def test_settings_are_searched_and_events_come_as_they_happen(node: Process, page: Any) -> None:
    go(page, node, "settings", "node.admin.port")
    page.get_by_label("Search settings").fill("node.admin.p")
    page.get_by_text("node.metrics.top", exact=True).wait_for(state="detached")
    row = page.locator("tr").filter(has_text="node.admin.port")
    assert "--set" in row.text_content() or "flag" in row.text_content()
    go(page, node, "events", "newest first")
    make(node, "/topics", name="seen-at-once", type="work")
    page.locator("tbody tr").filter(has_text="path: /api/v1/topics,").first.wait_for()
