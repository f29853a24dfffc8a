"""The console in a real browser: each page and action, the keyboard, dark and light, 400 px, axe.

Takes Debian's `chromium`; skipped where there is none. WEIR_SCREENSHOTS=DIR keeps pictures.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pika
import pytest

from tests.gateway import browser
from tests.gateway.browser import checked, go, sign_in, window
from tests.gateway.cluster import until
from tests.gateway.serving import Process, serving

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.filterwarnings("default::ResourceWarning")

chromium = browser.chromium

NASTY = "<img src=x onerror=window.pwned=1>"

PAGES = {
    "overview": "Alarms",
    "topics": "orders",
    "topics/orders": "Groups",
    "routers": "door",
    "routers/door": "Routes",
    "connections": NASTY,
    "sessions": "No session is kept",
    "users": "Access keys",
    "policies": "built in",
    "may": "May the user",
    "tenants": "Used of limits",
    "cluster": "Feature levels",
    "bill": "Rows counted",
    "settings": "node.admin.port",
    "events": "newest first",
}
"""By address: what is there once it is shown."""


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    folder = tmp_path_factory.mktemp("pages")
    config = folder / "weir.yaml"
    config.write_text("tenants:\n  acme: {}\n")
    with serving(folder / "data", config=config) as process:
        made = [
            ("POST", "/topics", {"name": "orders", "type": "work"}),
            ("POST", "/topics", {"name": NASTY}),
            ("POST", "/topics/orders/messages", {"body": NASTY, "attributes": {NASTY: NASTY}}),
            ("POST", "/topics/orders/messages", {"body": '{"drink": "espresso"}'}),
            ("POST", "/routers", {"name": "door"}),
            ("POST", "/routers/door/routes", {"topic": "orders", "key": NASTY}),
            ("PUT", "/policies/readers", {"rules": ["allow consume topic:orders"]}),
            ("POST", "/users", {"name": "ann", "password": "a good one", "policies": ["readers"]}),
            ("POST", "/keys", {"user": "ann"}),
            ("POST", "/topics?tenant=acme", {"name": "theirs"}),
            (
                "POST",
                "/users?tenant=acme",
                {"name": "alice", "password": "alice's", "policies": ["administrator"]},
            ),
        ]
        for method, path, body in made:
            assert process.api(method, path, body).status == 201, path
        assert process.api("PATCH", "/limits/tenant/acme", {"topics": 100}).status == 200
        yield process


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_page_is_shown_wide_and_narrow_and_axe_finds_nothing(
    chromium: Any, node: Process, scheme: str
) -> None:
    kept = os.environ.get("WEIR_SCREENSHOTS")
    amqp = node.amqp()
    amqp.close()
    with window(chromium, node, color_scheme=scheme) as page, _nasty_client(node):
        page.goto(node.admin_url)
        page.get_by_role("heading", name="With a login").wait_for()
        checked(page, "sign in")
        sign_in(page, node)
        for path, shown in PAGES.items():
            page.set_viewport_size({"width": 1280, "height": 800})
            go(page, node, path, shown)
            checked(page, path)
            if kept:
                name = path.replace("/", "-")
                page.screenshot(path=str(Path(kept) / f"console-{name}-{scheme}.png"))
            page.set_viewport_size({"width": 400, "height": 800})
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= 400, (path, wide)
            if scheme == "light":
                checked(page, f"{path}, narrow")


@contextlib.contextmanager
def _nasty_client(node: Process) -> Iterator[None]:
    """A connection whose client calls itself something that would be markup."""
    import pika

    parameters = pika.ConnectionParameters(
        "127.0.0.1",
        node.listeners["amqp.tcp"],
        client_properties={"connection_name": NASTY, "product": NASTY},
    )
    connection = pika.BlockingConnection(parameters)
    try:
        yield
    finally:
        connection.close()


def test_topics_are_made_searched_filled_looked_at_and_deleted(
    chromium: Any, node: Process
) -> None:
    with window(chromium, node) as page:
        sign_in(page, node)
        go(page, node, "topics", "orders")
        page.get_by_role("button", name="New topic").click()
        page.get_by_label("name", exact=True).fill("fresh/made")
        page.get_by_label("type", exact=True).fill("work")
        page.get_by_role("button", name="Create").click()
        page.get_by_role("dialog").wait_for(state="detached")
        page.get_by_role("searchbox").fill("FRESH")
        page.get_by_text("1 in all").wait_for()
        page.get_by_role("link", name="fresh/made").click()
        page.get_by_role("button", name="Send a message").click()
        page.get_by_label("body", exact=True).fill(NASTY)
        page.get_by_label("attributes").fill("no json")
        page.get_by_role("button", name="Send", exact=True).click()
        page.get_by_text("this is no JSON").wait_for()
        page.get_by_label("attributes").fill('{"shop": "north"}')
        page.get_by_role("button", name="Send", exact=True).click()
        page.get_by_text("Stored at offset 0").wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Peek").click()
        page.locator("details.message summary").click()
        page.get_by_text("As sqs has it").wait_for()
        assert page.locator("details.message pre").text_content() == NASTY
        page.get_by_role("button", name="Purge").click()
        page.get_by_role("dialog").get_by_role("button", name="Purge").click()
        page.get_by_text("1 messages dropped").wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Size", exact=True).click()
        page.get_by_label("min", exact=True).fill('"small"')
        page.get_by_label("max", exact=True).fill('"large"')
        page.get_by_label("by key", exact=True).select_option("yes")
        page.get_by_role("dialog").get_by_role("button", name="Set").click()
        page.get_by_text("from 500 messages").wait_for()
        page.get_by_role("button", name="Keep its queues").click()
        page.get_by_role("dialog").get_by_role("button", name="Keep").click()
        page.get_by_text("from 500 messages").wait_for(state="detached")
        page.locator(".content > div > .actions").get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        page.get_by_role("heading", name="Topics and queues").wait_for()
        assert node.api("GET", "/topics/fresh%2Fmade").status == 404
        page.get_by_role("button", name="Ready").click()
        page.locator("th[aria-sort=descending]").wait_for()
        assert page.locator("tbody th").first.text_content() == "orders"


def test_a_messages_history_names_who_had_a_part_in_it(chromium: Any, node: Process) -> None:
    make(node, "/topics", name="followed", type="work")
    with node.amqp() as connection, window(chromium, node) as page:
        sign_in(page, node)
        go(page, node, "topics/followed", "Groups")
        page.get_by_role("button", name="Trace").click()
        page.get_by_label("mode", exact=True).select_option("all")
        page.get_by_role("dialog").get_by_role("button", name="Set").click()
        page.get_by_text("all messages", exact=True).wait_for()
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", "followed", b"one", pika.BasicProperties(delivery_mode=2))
        channel.basic_get("followed")
        (shown,) = node.api("GET", "/topics/followed/messages").json["messages"]
        asked = f"/topics/followed/history/{shown['uid']}"
        until(lambda: len(node.api("GET", asked).json["events"]) == 5, "it is noted")
        page.get_by_role("button", name="Peek").click()
        page.locator("details.message summary").click()
        page.get_by_role("button", name="History").click()
        table = page.get_by_role("region", name="History of the message")
        table.get_by_role("rowheader").nth(4).wait_for()
        address = "{}:{}".format(*connection._impl._transport._sock.getsockname())
        for what in ("stored", "published", "handed out", "taken"):
            table.get_by_text(what, exact=True).wait_for()
        assert table.get_by_text(f"guest of default over amqp from {address}").count() == 2
        checked(page, "history, wide")
        page.set_viewport_size({"width": 400, "height": 800})
        checked(page, "history, narrow")
        assert page.evaluate("document.documentElement.scrollWidth") <= 400


def dialog_of(page: Any, button: str) -> Any:
    """Press a button; the dialog that it opens."""
    page.get_by_role("button", name=button, exact=True).first.click()
    return page.get_by_role("dialog")


def outcome(page: Any, button: str) -> str:
    """Press what a dialog does, read what came of it, and close it."""
    box = page.get_by_role("dialog")
    box.get_by_role("button", name=button, exact=True).click()
    box.get_by_role("status").or_(box.get_by_role("alert").filter(has_text=" ")).wait_for()
    assert box.get_by_role("status").count(), box.text_content()
    found = box.get_by_role("status").text_content()
    page.keyboard.press("Escape")
    box.wait_for(state="detached")
    assert isinstance(found, str)
    return found


def make(node: Process, path: str, **body: Any) -> None:
    assert node.api("POST", path, body).status == 201, path


def test_a_streams_group_is_replayed_from_the_earliest_a_time_and_an_offset(
    chromium: Any, node: Process
) -> None:
    make(node, "/topics", name="told", queues=1)
    make(node, "/topics/told/groups", name="readers")
    for body in "abc":
        make(node, "/topics/told/messages", body=body)

    def ready() -> int:
        return int(node.api("GET", "/topics/told/groups/readers").json["ready"])

    with window(chromium, node) as page:
        sign_in(page, node)
        go(page, node, "topics/told", "readers")
        dialog_of(page, "Replay").get_by_text("comes again, in every consumer").wait_for()
        page.get_by_label("offset", exact=True).fill("2")
        assert "offset 2 of queue 0" in outcome(page, "Replay")
        assert ready() == 1
        dialog_of(page, "Replay").get_by_label("time ms").fill("2020-02-03T04:05:06")
        assert "offset 0 of queue 0" in outcome(page, "Replay")
        assert ready() == 3
        dialog_of(page, "Replay").get_by_label("to", exact=True).select_option("latest")
        assert "offset 3 of queue 0" in outcome(page, "Replay")
        assert ready() == 0
        box = dialog_of(page, "Replay")
        box.get_by_label("to", exact=True).select_option("earliest")
        box.get_by_label("offset", exact=True).fill("1")
        box.get_by_role("button", name="Replay").click()
        box.get_by_role("alert").get_by_text("one of to, time_ms").wait_for()
        assert ready() == 0
        box.get_by_label("offset", exact=True).fill("")
        assert "offset 0 of queue 0" in outcome(page, "Replay")
        assert ready() == 3


def test_a_work_topic_says_that_what_was_acked_is_gone(chromium: Any, node: Process) -> None:
    make(node, "/topics", name="done", type="work")
    with window(chromium, node) as page:
        sign_in(page, node)
        go(page, node, "topics/done", "Groups")
        box = dialog_of(page, "Replay")
        box.get_by_text("has acked is gone").wait_for()
        assert box.get_by_role("button").all_text_contents() == ["Close"]
        checked(page, "nothing to replay")
        page.keyboard.press("Enter")
        box.wait_for(state="detached")


WITH_BUTTONS = {
    "topics": "orders",
    "topics/orders": "Groups",
    "topics/kept": "Groups",
    "routers": "door",
    "routers/door": "Routes",
    "users": "Access keys",
    "policies": "built in",
    "tenants": "Used of limits",
    "cluster": "Feature levels",
    "bill": "Rows counted",
}
"""By address: what is there once it is shown."""

DIALOGS_MIN = 25


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_dialog_fits_a_narrow_screen_and_axe_finds_nothing(
    chromium: Any, node: Process, scheme: str
) -> None:
    node.api("POST", "/topics", {"name": "kept"})
    node.api("POST", "/topics/kept/groups", {"name": "readers"})
    opened = 0
    with window(chromium, node, color_scheme=scheme) as page:
        sign_in(page, node)
        for path, shown in WITH_BUTTONS.items():
            page.set_viewport_size({"width": 1280, "height": 800})
            go(page, node, path, shown)
            page.set_viewport_size({"width": 400, "height": 800})
            found = page.locator(".actions, .tools").get_by_role("button").all_text_contents()
            for button in dict.fromkeys(each for each in found if each not in {"Peek", ""}):
                box = dialog_of(page, button)
                box.wait_for()
                what = f"{path}: {button}"
                checked(page, what)
                width = box.evaluate("each => Math.max(each.scrollWidth, each.offsetWidth)")
                assert width <= 400, what
                page.keyboard.press("Escape")
                box.wait_for(state="detached")
                opened += 1
    assert opened >= DIALOGS_MIN


def test_a_topic_is_resized_and_its_messages_moved(chromium: Any, node: Process) -> None:
    for name in ("jobs", "aside"):
        make(node, "/topics", name=name, type="work")
    make(node, "/topics/jobs/messages", body="x")
    with window(chromium, node) as page:
        sign_in(page, node)
        go(page, node, "topics/jobs", "Groups")
        dialog_of(page, "Resize").get_by_label("queues", exact=True).fill("2")
        page.get_by_label("by key", exact=True).select_option("yes")
        outcome(page, "Resize")
        found = node.api("GET", "/topics/jobs").json
        assert sum(not each.get("sealed") for each in found["queues"]) == 2
        dialog_of(page, "Move or redrive").get_by_label("to", exact=True).fill("aside")
        assert "begun" in outcome(page, "Begin")
        page.get_by_role("region", name="Moves").get_by_text("completed").wait_for()
        page.get_by_role("region", name="Moves").get_by_text("1 of 1").wait_for()
        assert node.api("GET", "/topics/aside").json["groups"][0]["ready"] == 1


def test_dead_letters_are_redriven_and_a_move_is_stopped(chromium: Any, node: Process) -> None:
    make(node, "/topics", name="dead", type="work")
    make(node, "/topics", name="source", type="work")
    target = {"attempts_max": 1, "dead_letter": {"router": None, "key": "dead"}}
    assert node.api("PATCH", "/topics/source/groups/default", target).status == 200
    for number in range(20):
        make(node, "/topics/source/messages", body=str(number))
    connection = node.amqp()
    channel = connection.channel()
    for _ in range(20):
        method, _properties, _body = channel.basic_get("source")
        channel.basic_reject(method.delivery_tag, requeue=False)
    channel.basic_get("source")  # once it answers, what came before is done
    connection.close()

    def ready(topic: str) -> int:
        return int(node.api("GET", f"/topics/{topic}").json["groups"][0]["ready"])

    until(lambda: ready("dead") == 20, "they have come to the topic of dead letters")
    with window(chromium, node) as page:
        sign_in(page, node)
        go(page, node, "topics/dead", "Groups")
        moves = page.get_by_role("region", name="Moves")
        dialog_of(page, "Move or redrive").get_by_label("limit").fill("2")
        outcome(page, "Begin")
        moves.get_by_text("completed").wait_for()
        assert (ready("dead"), ready("source")) == (18, 2)
        dialog_of(page, "Move or redrive").get_by_label("per second").fill("1")
        outcome(page, "Begin")
        moves.get_by_role("button", name="Stop").click()
        page.get_by_role("dialog").get_by_role("button", name="Stop").click()
        moves.get_by_text("cancelled").wait_for()
        assert ready("source") < 20


def test_routers_and_routes_are_made_and_deleted(chromium: Any, node: Process) -> None:
    with window(chromium, node) as page:
        sign_in(page, node)
        go(page, node, "routers", "door")
        dialog_of(page, "New router").get_by_label("name", exact=True).fill("gate")
        page.get_by_role("dialog").get_by_role("button", name="Create").click()
        page.get_by_role("link", name="gate").click()
        dialog_of(page, "New route").get_by_label("topic", exact=True).fill("orders")
        page.get_by_role("dialog").get_by_role("button", name="Create").click()
        page.get_by_role("region", name="Routes").get_by_text("orders").wait_for()
        routes = page.get_by_role("region", name="Routes")
        routes.get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Delete").click()
        page.get_by_text("No route leads from here").wait_for()
        dialog_of(page, "Delete").get_by_role("button", name="Delete").click()
        page.get_by_role("heading", name="Routers and routes", exact=True).wait_for()
        assert node.api("GET", "/routers/gate").status == 404


def test_limits_are_set_and_tenants_made(chromium: Any, node: Process) -> None:
    with window(chromium, node) as page:
        sign_in(page, node)
        go(page, node, "tenants", "Used of limits")
        dialog_of(page, "New tenant").get_by_label("name", exact=True).fill("initech")
        page.get_by_role("dialog").get_by_role("button", name="Create").click()
        page.get_by_role("rowheader", name="initech", exact=True).wait_for()
        dialog_of(page, "Set limits").get_by_label("Name").fill("initech")
        page.get_by_role("dialog").get_by_role("button", name="Go on").click()
        page.get_by_label("Limits, as JSON").fill('{"topics": 7}')
        page.get_by_role("dialog").get_by_role("button", name="Set").click()
        page.get_by_role("region", name="Limits", exact=True).get_by_text("topics: 7").wait_for()
        found = node.api("GET", "/limits?tenant=initech").json["limits"]
        assert any(each["limits"].get("topics") == 7 for each in found)


def test_users_and_policies_are_made_and_asked_about(chromium: Any, node: Process) -> None:
    with window(chromium, node) as page:
        sign_in(page, node)
        go(page, node, "policies", "readers")
        page.get_by_role("button", name="New policy").click()
        page.get_by_label("Name", exact=True).fill("writers")
        page.get_by_role("button", name="Go on").click()
        page.get_by_role("textbox", name="rules").fill(
            "allow publish topic:orders\ndeny publish topic:secret"
        )
        page.get_by_role("button", name="Create").click()
        page.get_by_text("deny publish topic:secret").wait_for()
        go(page, node, "users", "ann")
        page.get_by_role("button", name="New user").click()
        page.get_by_label("name", exact=True).fill("will")
        page.get_by_label("password").fill("a good one")
        page.get_by_label("policies").fill("writers")
        page.get_by_role("button", name="Create").click()
        page.locator("tbody th", has_text="will").wait_for()
        page.locator("tr", has_text="will").get_by_role("button", name="New key").click()
        page.get_by_role("button", name="Make it").click()
        page.get_by_text("secret", exact=True).wait_for()
        page.keyboard.press("Escape")
        go(page, node, "may", "May the user")
        page.get_by_label("May the user").fill("will")
        page.get_by_label("of the name").fill("orders")
        page.get_by_role("button", name="Ask").click()
        page.get_by_text("allow publish topic:orders").wait_for()
        assert page.locator(".verdict strong").text_content() == "Yes: "
        page.get_by_label("of the name").fill("secret")
        page.get_by_role("button", name="Ask").click()
        page.get_by_text("a deny beats every allow").wait_for()


def test_a_month_is_worked_out(chromium: Any, node: Process) -> None:
    with window(chromium, node) as page:
        sign_in(page, node)
        go(page, node, "bill", "Nothing has been worked out yet")
        page.get_by_role("button", name="Work out a month").click()
        page.get_by_role("dialog").get_by_role("button", name="Begin").click()
        page.get_by_text("is being worked out").or_(
            page.get_by_text("The bill of")
        ).first.wait_for()


def test_connections_are_closed(chromium: Any, node: Process) -> None:
    with window(chromium, node) as page:
        sign_in(page, node)
        with contextlib.suppress(Exception), _nasty_client(node):
            go(page, node, "connections", NASTY)
            page.locator("tbody th a").first.click()
            page.get_by_role("button", name="Close", exact=True).click()
            page.get_by_role("dialog").get_by_role("button", name="Close").click()
            page.get_by_text("Nobody is connected").wait_for()
        page.get_by_text("Nobody is connected").wait_for()


def test_a_tenants_administrator_signs_in_by_a_form_and_sees_that_tenant_only(
    chromium: Any, node: Process
) -> None:
    with window(chromium, node) as page:
        page.goto(node.admin_url)
        page.get_by_label("Login").fill("acme:alice")
        page.get_by_label("Password").fill("wrong")
        page.get_by_label("Password").press("Enter")
        page.get_by_text("login refused").wait_for()
        page.get_by_label("Password").fill("alice's")
        page.get_by_label("Password").press("Enter")
        page.get_by_role("heading", name="Overview").wait_for()
        go(page, node, "topics", "theirs")
        assert page.get_by_text("1 in all").count() == 1
        assert page.get_by_role("navigation").get_by_role("link", name="Settings").count() == 0
        for path in (
            "connections",
            "sessions",
            "users",
            "policies",
            "tenants",
            "routers",
            "topics/theirs",
            "bill",
        ):
            page.goto(f"{node.admin_url}/#/{path}")
            page.wait_for_selector(".content:not([aria-busy])")
            assert page.locator("main > .wrong").text_content() == "", path
        body = {"policies": ["full"]}
        assert node.api("PATCH", "/users/alice?tenant=acme", body).status == 200
        page.goto(f"{node.admin_url}/#/topics")
        page.get_by_text("you are signed out: sign in again").wait_for()


def test_the_keyboard_is_enough(chromium: Any, node: Process) -> None:
    with window(chromium, node) as page:
        sign_in(page, node)
        page.keyboard.press("g")
        page.keyboard.press("t")
        page.get_by_role("heading", name="Topics and queues").wait_for()
        page.get_by_text("in all").wait_for()
        page.keyboard.press("/")
        page.keyboard.type("order")
        page.get_by_text("1 in all").wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("link", name="orders").focus()
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="orders").wait_for()
        page.get_by_role("button", name="Peek").wait_for()
        page.get_by_role("button", name="Purge").focus()
        page.keyboard.press("Enter")
        page.get_by_role("dialog").wait_for()
        assert page.evaluate("document.activeElement.closest('dialog') !== null")
        page.keyboard.press("Escape")
        page.get_by_role("dialog").wait_for(state="detached")
        assert page.evaluate("document.activeElement.textContent") == "Purge"
        page.keyboard.press("?")
        page.get_by_role("heading", name="Keys").wait_for()
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Dark or light").click()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.reload()
        page.get_by_role("button", name="Sign out").wait_for()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("heading", name="With a login").wait_for()
        page.reload()
        page.get_by_role("heading", name="With a login").wait_for()
