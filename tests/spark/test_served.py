"""`weir bill` on the data directory of a node that was killed: the whole way, once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest

from spark import bill
from spark.pricebook import load_price_book
from spark.reconcile import check_proof, check_routed, check_run, load_usage
from spark.session import check_available
from tests.gateway.serving import environment, serving
from tests.metering.served.drivers import DRIVERS, Tally
from tests.metering.served.reading import growth_of, periods_of, records_of, tally_of, usage_of

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
    prices: [{id: p1, from: 2020-01-01, to: null, model: flat, per: 1, price: "1.00"}]
  - id: any.delivered
    title: Messages delivered
    meter: {action: deliver, measure: messages}
    prices: [{id: p2, from: 2020-01-01, to: null, model: flat, per: 1, price: "0.01"}]
"""

RUN_SECONDS_MAX = 240


def test_a_killed_node_is_billed_to_the_cent(tmp_path: Path) -> None:
    check_available()
    data, out, book = tmp_path / "data", tmp_path / "out", tmp_path / "book.yaml"
    book.write_text(BOOK)
    tally: Tally = Counter()
    with serving(data, "node.metering.flush_interval_s=3600") as node:
        for driver in (make() for make in DRIVERS):
            if driver.name in node.protocols:
                driver.drive(node, tally)
        growth = growth_of(node)
        node.kill()

    month = f"{datetime.now(UTC):%Y-%m}"
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "gateway", "bill", "--period", month, "-o", "json"),
            *("--data", str(data), "--out", str(out), "--price-book", str(book)),
        ],
        env=environment(PYTHONPATH=os.pathsep.join(sys.path)),
        capture_output=True,
        text=True,
        check=False,
        timeout=RUN_SECONDS_MAX,
    )
    assert ran.returncode == 0, ran.stderr
    records = records_of(data / "metering")

    # The kill has cost what no log holds, and not one message more.
    stored = {key: count for key, count in tally.items() if key[2] == "store"}
    assert dict(tally_of(usage_of(records), without="")) == stored
    summary = bill.load_summary(out, month)
    usage = load_usage(summary)
    assert check_routed(usage, growth) == []
    assert check_proof(records, periods_of(records)[0]) == []
    assert check_run(summary, load_price_book(book)) == []

    published = sum(count for (_, what, _), count in stored.items() if what == "publish")
    delivered = sum(count for (_, what, _), count in stored.items() if what == "deliver")
    total = Decimal(published) + Decimal(delivered) / 100
    assert summary.total == total
    assert json.loads(ran.stdout)["total"] == f"{total:.2f}"
    assert summary.problems == ()
