"""`weir bill` on the data directory of a node that was killed: the whole way, once."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from gateway.commands.bill import refreshed_archive
from spark import bill
from spark.pricebook import load_price_book
from spark.reconcile import check_proof, check_routed, check_run, load_usage
from tests.gateway.serving import serving
from tests.metering.served.drivers import DRIVERS, Tally
from tests.metering.served.reading import growth_of, periods_of, records_of, tally_of, usage_of

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

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


def test_a_killed_node_is_billed_to_the_cent(spark: SparkSession, tmp_path: Path) -> None:
    data, out, book = tmp_path / "data", tmp_path / "out", tmp_path / "book.yaml"
    book.write_text(BOOK)
    tally: Tally = Counter()
    with serving(data, "node.metering.flush_interval_s=3600") as node:
        for driver in (make() for make in DRIVERS):
            if driver.name in node.protocols:
                driver.drive(node, tally)
        growth = growth_of(node)
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
    known = {each.topic for each in growth}  # reference lists of MQTT's patterns are no topics
    assert check_routed([row for row in usage if row.topic in known], growth) == []
    assert check_proof(records, periods_of(records)[0]) == []
    assert check_run(summary, load_price_book(book)) == []

    published = sum(count for (_, what, _), count in stored.items() if what == "publish")
    delivered = sum(count for (_, what, _), count in stored.items() if what == "deliver")
    total = Decimal(published) + Decimal(delivered) / 100
    assert summary.total == total
    (invoice,) = bill.load_invoices(summary)
    assert (invoice.tenant, invoice.total) == ("default", total)
    assert summary.problems == ()
