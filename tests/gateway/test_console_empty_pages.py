"""The console of a node that nobody has used yet, in a real browser: each page says what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.gateway import browser
from tests.gateway.browser import checked, go, sign_in, window
from tests.gateway.serving import serving

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.filterwarnings("default::ResourceWarning")

chromium = browser.chromium

PAGES = {
    "overview": "All is well",
    "topics": "There is no topic yet. A client that declares or publishes makes one",
    "topics/none": "no topic none",
    "routers": "There is no router yet",
    "routers/none": "no router none",
    "connections": "Nobody is connected",
    "connections/none": "there is no connection none",
    "sessions": "No session is kept",
    "sessions/none": "no client none",
    "users": "There is no user yet",
    "policies": "built in",
    "may": "May the user",
    "tenants": "No limit is set",
    "cluster": "belongs to no cluster",
    "bill": "Nothing has been worked out yet",
    "settings": "node.admin.port",
    "events": "newest first",
}
"""By address: what it says."""

NO_VALUES = ("undefined", "NaN", "null", "[object", "nothing here", "Asking")


def test_each_page_of_a_new_node_reads_well(chromium: Any, tmp_path: Path) -> None:
    with serving(tmp_path / "data") as node, window(chromium, node) as page:
        sign_in(page, node)
        for path, shown in PAGES.items():
            page.set_viewport_size({"width": 1280, "height": 800})
            go(page, node, path, shown)
            checked(page, path)
            said = page.locator("main").inner_text()
            assert not [each for each in NO_VALUES if each in said], path
            page.set_viewport_size({"width": 400, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= 400, path
        go(page, node, "topics", "There is no topic yet")
        page.get_by_role("searchbox").fill("espresso")
        page.get_by_text("Nothing matches.").wait_for()
