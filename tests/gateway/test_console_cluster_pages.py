"""The console's page of a cluster, in a real browser: each of its buttons is pressed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.gateway import browser
from tests.gateway.browser import checked, go, sign_in, window
from tests.gateway.cluster import Running, running, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.gateway.serving import Process

pytestmark = pytest.mark.filterwarnings("default::ResourceWarning")

chromium = browser.chromium


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with running(tmp_path_factory.mktemp("cluster")) as found:
        yield found


def press(page: Any, button: str, label: str, **fields: str) -> None:
    """The first button of that name, and its dialog."""
    page.get_by_role("button", name=button, exact=True).first.click()
    for name, value in fields.items():
        page.get_by_label(name, exact=True).fill(value)
    page.get_by_role("dialog").get_by_role("button", name=label).click()


def stages(gateway: Process) -> list[str]:
    found = gateway.api("GET", "/cluster/gateways").json["gateways"]
    return [each["stage"] for each in found]


def row_of(page: Any, table: str, first: str) -> Any:
    rows = page.get_by_role("table", name=table).locator("tbody tr")
    return rows.filter(has=page.locator("th", has_text=first)).first


def test_a_store_says_where_the_console_is(cluster: Running) -> None:
    store = cluster[0].stores[2]
    found = store.http("GET", "/")
    assert found.status == 404
    assert b"The console, with the bill" in found.body
    assert b"is at the gateways" in found.body


def test_leaders_gateways_and_stores_are_moved_from_the_page(
    chromium: Any, cluster: Running
) -> None:
    stores, gateways = cluster
    with window(chromium, gateways[0]) as page:
        sign_in(page, gateways[0])
        go(page, gateways[0], "cluster", "Raft groups")
        checked(page, "cluster")
        page.get_by_text(
            "Copies of groups take all they can get of each store, by its sett"
        ).wait_for()
        asked = {"copy_rate": 20 * 1024**2}
        assert stores.stores[1].api("PUT", "/cluster/replicas", asked).status == 200
        page.get_by_text("Copies of groups take 20.0 MiB a second of each store").wait_for()
        assert (
            stores.stores[1].api("PUT", "/cluster/replicas", {"copy_rate": "default"}).status == 200
        )
        leader = stores.leaders()[1]
        to = leader % 3 + 1
        row = row_of(page, "Raft groups", "1")
        row.get_by_role("button", name="Transfer").click()
        page.get_by_label("to", exact=True).fill(str(to))
        page.get_by_role("dialog").get_by_role("button", name="Transfer").click()
        page.get_by_role("dialog").wait_for(state="detached")
        until(lambda: stores.leaders()[1] == to, "the leader has moved")
        press(page, "Spread leaders", "Spread")
        page.get_by_role("dialog").wait_for(state="detached")
        press(page, "Drain", "Drain")
        page.get_by_role("dialog").wait_for(state="detached")
        take = page.get_by_role("table", name="Gateways").get_by_role("button", name="Take clients")
        take.wait_for()
        assert sorted(stages(gateways[0])) != ["serving", "serving"]
        take.click()
        page.get_by_role("dialog").get_by_role("button", name="Take clients").click()
        page.get_by_role("dialog").wait_for(state="detached")
        until(lambda: stages(gateways[0]) == ["serving", "serving"], "it takes clients again")
        press(page, "Turn on levels", "Turn on")
        page.get_by_role("dialog").wait_for(state="detached")
        # Who leads a group does not give up its replica: the page says what the server says.
        row = row_of(page, "Raft groups", "1")
        row.get_by_role("button", name="Move").click()
        page.get_by_label("to", exact=True).fill("9")
        page.get_by_role("dialog").get_by_role("button", name="Move").click()
        page.get_by_role("dialog").get_by_text("there is no store 9").wait_for()
        page.keyboard.press("Escape")
        row_of(page, "Stores", "3").get_by_role("button", name="Take out").click()
        page.get_by_role("dialog").get_by_role("button", name="Take out").click()
        page.get_by_role("dialog").wait_for(state="detached")

        def is_out() -> bool:
            states = {each["number"]: each["state"] for each in stores.status()["nodes"]}
            return states.get(3) != "member"

        until(is_out, "store 3 is taken out")
