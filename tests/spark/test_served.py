"""`weir bill` on the data directory of a node that was killed: the whole way, once."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pika
import pytest

from gateway.commands.tools.bill import refreshed_archive
from spark import bill
from spark.pricebook import load_price_book
from tests.gateway.serving import serving
from tests.metering.served.drivers import DRIVERS, Tally
from tests.metering.served.reading import growth_of, periods_of, records_of, tally_of, usage_of
from tests.spark.reconcile import check_proof, check_routed, check_run, load_usage

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.gateway.serving import Process

pytestmark = pytest.mark.spark

BOOK = """
schema: 1
name: by-the-message
currency: EUR
skus:
  - id: store.published
    title: Messages accepted
    meter: {kind: store, action: publish, measure: messages}
    prices: [{id: p1, from: 2020-01-01, to: null, model: flat, per: 1, price: "1.00"}]
  - id: any.delivered
    title: Messages delivered
    meter: {action: deliver, measure: messages}
    prices: [{id: p2, from: 2020-01-01, to: null, model: flat, per: 1, price: "0.01"}]
"""


OTHER = "acme"
OTHER_MESSAGES = 7


def publish_as_other(node: Process, tally: Tally) -> None:
    """Messages of another tenant, in a queue that is called like one of the tenant `default`."""
    user = {"name": "ann", "password": "ann's password", "policies": ["full"]}
    assert node.api("POST", f"/users?tenant={OTHER}", user).status == 201
    login = pika.PlainCredentials(f"{OTHER}:ann", "ann's password")
    port = node.listeners["amqp.tcp"]
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, OTHER, login)) as at:
        channel = at.channel()
        channel.confirm_delivery()
        channel.queue_declare("am-one", durable=True)
        for _ in range(OTHER_MESSAGES):
            channel.basic_publish("", "am-one", b"of acme", pika.BasicProperties(delivery_mode=2))
    for what in ("publish", "route"):
        tally["amqp", what, "store"] += OTHER_MESSAGES


def test_a_killed_node_is_billed_to_the_cent(spark: SparkSession, tmp_path: Path) -> None:
    data, out, book = tmp_path / "data", tmp_path / "out", tmp_path / "book.yaml"
    book.write_text(BOOK)
    tally: Tally = Counter()
    config = tmp_path / "weir.yaml"
    config.write_text(f"tenants: {{{OTHER}: {{}}}}")
    settings = "node.metering.flush_interval_s=3600"
    with serving(data, settings, config=config) as node:
        for driver in (make() for make in DRIVERS):
            if driver.name in node.protocols:
                driver.drive(node, tally)
        publish_as_other(node, tally)
        growth = [*growth_of(node), *growth_of(node, OTHER)]
        node.kill()

    # As `weir bill --data` does it, in the session that the other tests have: one JVM less.
    month = f"{datetime.now(UTC):%Y-%m}"
    archive = refreshed_archive(data)
    summary = bill.run(month, archive, out, book, session=spark)
    records = records_of(archive)

    # The kill has cost what no log holds, and not one message more.
    stored = {key: count for key, count in tally.items() if key[2] == "store"}
    assert dict(tally_of(usage_of(records), without="")) == stored
    usage = load_usage(summary)
    known = {
        (each.tenant, each.topic) for each in growth
    }  # reference lists of MQTT's patterns are no topics
    assert check_routed([row for row in usage if (row.tenant, row.topic) in known], growth) == []
    assert check_proof(records, periods_of(records)[0]) == []
    assert check_run(summary, load_price_book(book)) == []

    published = sum(count for (_, what, _), count in stored.items() if what == "publish")
    delivered = sum(count for (_, what, _), count in stored.items() if what == "deliver")
    total = Decimal(published) + Decimal(delivered) / 100
    assert summary.total == total
    totals = {invoice.tenant: invoice.total for invoice in bill.load_invoices(summary)}
    assert totals == {OTHER: OTHER_MESSAGES, "default": total - OTHER_MESSAGES}
    assert summary.problems == ()
