"""The console's bill so far says what `weir bill` says."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pika
import pytest

from tests.gateway.serving import serving

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.spark

BOOK = """
schema: 1
name: by-the-message
currency: EUR
skus:
  - id: store.published
    title: Messages accepted
    meter: {kind: store, action: publish, measure: messages}
    prices: [{id: p1, from: 2020-01-01, to: null, model: flat, per: 1, price: "0.25"}]
"""
MESSAGES = 9
WITHIN_S = 180


def test_what_was_served_so_far_is_priced_by_the_billing_jobs(tmp_path: Path) -> None:
    book = tmp_path / "book.yaml"
    book.write_text(BOOK)
    with serving(tmp_path / "data", f"node.metering.price_book={book}") as node:
        with node.amqp() as connection:
            channel = connection.channel()
            channel.queue_declare("orders", durable=True)
            channel.confirm_delivery()
            for _ in range(MESSAGES):
                properties = pika.BasicProperties(delivery_mode=2)
                channel.basic_publish("", "orders", b"x", properties)
        period = f"{datetime.now(UTC):%Y-%m}"
        assert node.api("POST", "/metering/bill", {"period": period}).status == 202
        assert node.api("POST", "/metering/bill", {"period": period}).status == 423
        ends = time.monotonic() + WITHIN_S
        while (found := node.api("GET", "/metering/bill").json)["state"] == "running":
            assert time.monotonic() < ends
            time.sleep(0.2)
    assert (found["state"], found["reason"], found["problems"]) == ("done", "", [])
    assert found["is_whole_month"] is False
    (invoice,) = found["invoices"]
    assert (invoice["tenant"], invoice["total"], invoice["currency"]) == ("default", "2.25", "EUR")
    (line,) = invoice["lines"]
    assert (line["title"], line["amount"]) == ("Messages accepted", "2.25")
