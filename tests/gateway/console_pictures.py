"""The pictures of the console in the documents: a node under a load that rises and falls, for a
while, and a browser that looks at it.

    python -m tests.gateway.console_pictures [--minutes 10] [--folder docs/images]

Takes Debian's `chromium` and `make setup-browser`.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from math import sin
from pathlib import Path
from typing import TYPE_CHECKING

import pika

from tests.gateway import browser
from tests.gateway.browser import go, sign_in, window
from tests.gateway.serving import serving

if TYPE_CHECKING:
    from pika.adapters.blocking_connection import BlockingChannel

    from tests.gateway.serving import Process

SIZE = {"width": 1100, "height": 800}
PICTURES = {"overview": "Nodes and disk", "topics/orders": "Groups"}
"""By address: what is there once it is shown. The file is called by what comes first."""

TOPICS = {"orders": 0.8, "invoices": 0.2}
"""What part of the messages each is sent."""

HELD = 8
"""Messages that the consumer has in hand, at most."""

STEP_S = 0.1


def prepare(node: Process) -> None:
    """What a shop has, more or less."""
    for name in (*TOPICS, "shipments", "returns"):
        assert node.api("POST", "/topics", {"name": name, "type": "work"}).status == 201
    assert node.api("POST", "/topics", {"name": "clicks"}).status == 201
    assert node.api("POST", "/topics/clicks/groups", {"name": "statistics"}).status == 201


def load(channel: BlockingChannel, seconds: float) -> None:
    """Publish and consume, less and more in turns; the consumer of orders is late now and then, and
    nobody has come for the invoices.
    """
    held: list[int] = []
    ends = time.monotonic() + seconds
    while (left := ends - time.monotonic()) > 0:
        wave = 1 + sin(left / 40)
        for topic, part in TOPICS.items():
            for _ in range(round(part * (2 + 4 * wave))):
                channel.basic_publish("", topic, b'{"drink": "espresso"}')
        for _ in range(2 + round(4 * wave) + HELD):
            method, _properties, _body = channel.basic_get("orders")
            if method is None:
                break
            held.append(method.delivery_tag)
        keep = round(HELD * (1 + sin(left / 7)) / 2)
        while len(held) > keep:
            channel.basic_ack(held.pop(0))
        channel.connection.process_data_events(STEP_S)


def main() -> None:
    """See the module's head."""
    parser = argparse.ArgumentParser(description="Take the pictures of the console.")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--folder", type=Path, default=Path("docs/images"))
    asked = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as data,
        serving(Path(data) / "data") as node,
        browser.playwright.sync_playwright() as driver,
    ):
        prepare(node)
        url = f"amqp://guest:guest@127.0.0.1:{node.listeners['amqp.tcp']}/%2f"
        connection = pika.BlockingConnection(pika.URLParameters(url))
        load(connection.channel(), asked.minutes * 60)
        chromium = driver.chromium.launch(
            executable_path=browser.CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        with window(chromium, node, color_scheme="light") as page:
            page.set_viewport_size(SIZE)
            sign_in(page, node)
            for path, shown in PICTURES.items():
                go(page, node, path, shown)
                name = path.split("/")[0].removesuffix("s")
                page.screenshot(path=str(asked.folder / f"console-{name}.png"))
        chromium.close()
        connection.close()


if __name__ == "__main__":
    main()
