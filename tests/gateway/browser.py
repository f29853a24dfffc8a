"""A real browser with the console in it. Takes Debian's `chromium`; who imports this is skipped
where there is none.
"""

from __future__ import annotations

import contextlib
import shutil
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.gateway.serving import Process

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if CHROMIUM is None:
    pytest.skip(
        "no chromium here (Debian: apt-get install chromium): the console's pages are not tested",
        allow_module_level=True,
    )
playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed here")
axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe here")

WAIT_MS = 10_000


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        # Without its own sandbox: tests run as root, too, and it is shown nothing but our pages.
        browser = driver.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu", "--disable-extensions"]
        )
        yield browser
        browser.close()


@contextlib.contextmanager
def window(chromium: Any, node: Process, **options: Any) -> Iterator[Any]:
    """A page of a browser without cookies; whatever goes wrong in it fails the test."""
    context = chromium.new_context(viewport={"width": 1280, "height": 800}, **options)
    page = context.new_page()
    page.set_default_timeout(WAIT_MS)
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on(
        "request", lambda asked: asked.url.startswith(node.admin_url) or wrong.append(asked.url)
    )
    page.on(
        "console",
        lambda said: (
            wrong.append(said.text)
            if said.type == "error" and "the server responded with a status" not in said.text
            else None
        ),
    )
    yield page
    assert page.evaluate("window.pwned") is None
    context.close()
    assert wrong == []


def code_of(node: Process) -> str:
    found = node.api("POST", "/console/codes", {}).json["code"]
    assert isinstance(found, str)
    return found


def go(page: Any, node: Process, path: str, shown: str) -> None:
    page.goto(f"{node.admin_url}/#/{path}")
    page.wait_for_selector(".content:not([aria-busy])")
    page.get_by_text(shown).first.wait_for()


def sign_in(page: Any, node: Process) -> None:
    page.goto(f"{node.admin_url}/#code={code_of(node)}")
    page.get_by_role("heading", name="Overview").wait_for()
    assert "code" not in page.url


def checked(page: Any, what: str) -> None:
    """No violation that axe knows of."""
    found = axe.Axe().run(page)
    told = [
        (each["id"], [node["html"][:200] for node in each["nodes"][:2]])
        for each in found.response["violations"]
    ]
    assert told == [], what
