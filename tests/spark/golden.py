"""Invoices worked out by hand: what a tenant used in November 2026, and what it owes.

Each case is one tenant, so that all of them make one archive and one run. The totals in the
comments are sums that a reader can do without a machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from metering.counters import Meter
from metering.schema import Record
from metering.window import RowKey
from spark.pricebook import PriceBook, parse_price_book
from tests.spark.samples import HOUR_US, NOVEMBER, record

DAY_US = 24 * HOUR_US

PRICES = """
schema: 1
name: golden
currency: USD
skus:
  # 5 free, the next 10 at 0.37, then 0.11; from the 16th on a flat 0.20. A batch weighs 5.
  - id: calls
    title: Calls of 64 KiB
    meter:
      measure: units_64k
      kind: api
      protocol: sqs
      action: [publish, receive]
      outcome: [ok, empty]
    multiplier: {api_action: {SendMessageBatch: "5"}}
    prices:
      - {id: calls@1, from: 2026-01-01, to: 2026-11-16, model: graduated, per: 1, free: 5,
         tiers: [{up_to: 10, price: "0.37"}, {up_to: null, price: "0.11"}]}
      - {id: calls@2, from: 2026-11-16, to: 2027-01-01, model: flat, per: 1, free: 5, price: "0.20"}
  - id: published
    title: Published
    meter: {measure: messages, protocol: amqp, action: publish}
    prices: [{id: published@1, from: 2026-01-01, to: null, model: flat, per: 10, price: "1.00"}]
  - id: delivered
    title: Delivered
    meter: {measure: messages, protocol: amqp, action: deliver}
    prices: [{id: delivered@1, from: 2026-01-01, to: null, model: flat, per: 100, price: "1.00"}]
  - id: devices
    title: Device messages
    meter: {measure: messages, protocol: mqtt, action: [publish, deliver]}
    multiplier: {queue_class: {qos1: "2", qos2: "5"}}
    prices: [{id: devices@1, from: 2026-01-01, to: null, model: flat, per: 1, price: "0.05"}]
  - id: units
    title: Units of 4 KiB
    meter: {measure: units_4k, protocol: rocketmq, action: publish}
    prices: [{id: units@1, from: 2026-01-01, to: null, model: flat, per: 1, price: "0.005"}]
  - id: egress
    title: Bytes out
    meter: {measure: bytes_out, protocol: rocketmq, action: deliver}
    prices:
      - {id: egress@1, from: 2026-01-01, to: null, model: flat, per: 1000000000, price: "0.005"}
  - id: extensions
    title: Extensions
    meter: {measure: requests, protocol: rocketmq, action: extend}
    prices: [{id: extensions@1, from: 2026-01-01, to: null, model: flat, per: 1, price: "0.005"}]
"""


@dataclass
class Case:
    """What one tenant used, and its invoice: the total, and (SKU, quantity, amount) by line."""

    tenant: str
    total: str | None
    lines: list[tuple[str, int, str]]
    rows: list[dict[str, object]] = field(default_factory=list)

    def uses(self, day: int = 1, hour: int = 0, **columns: object) -> Case:
        at_us = NOVEMBER.start_us + (day - 1) * DAY_US + hour * HOUR_US
        self.rows.append({"tenant": self.tenant, "at_us": at_us, **columns})
        return self

    def records(self, first_seq: int) -> list[Record]:
        return [record(first_seq + number, **row) for number, row in enumerate(self.rows)]


def calls(units: int, **columns: object) -> dict[str, object]:
    return {"action": "receive", "units_64k": units, **columns}


def amqp(action: str, cumulative: int, **columns: object) -> dict[str, object]:
    return {
        "kind": "store",
        "protocol": "amqp",
        "action": action,
        "raft_group": 0,
        "topic": "q",
        "cum_messages": cumulative,
        **columns,
    }


def sized_call(size_bytes: int) -> dict[str, object]:
    """One real call of that size as the gateway's meter counts it, and eight more units."""
    meter = Meter(NOVEMBER.start_us)
    meter.counter(RowKey(action="receive")).call(10, size_bytes)
    window = meter.close(NOVEMBER.start_us + 1)
    assert window is not None
    (values,) = window.rows.values()
    return calls(values.units_64k + 8)


CASES = [
    # All within the free quota: an invoice of nothing.
    Case("free-all", "0.00", [("calls", 5, "0.00")]).uses(**calls(5)),
    # 1 x 0.37
    Case("free-and-one", "0.37", [("calls", 5, "0.00"), ("calls", 1, "0.37")]).uses(**calls(6)),
    # 9 x 0.37 = 3.33, one below the edge of the first tier
    Case("edge-below", "3.33", [("calls", 5, "0.00"), ("calls", 9, "3.33")]).uses(**calls(14)),
    # 10 x 0.37 = 3.70
    Case("edge", "3.70", [("calls", 5, "0.00"), ("calls", 10, "3.70")]).uses(**calls(15)),
    # 3.70 + 0.11
    Case(
        "edge-above", "3.81", [("calls", 5, "0.00"), ("calls", 10, "3.70"), ("calls", 1, "0.11")]
    ).uses(**calls(16)),
    # 64 KiB is one unit: 1 + 8 = 9 units, 4 x 0.37 = 1.48
    Case("64-kib", "1.48", [("calls", 5, "0.00"), ("calls", 4, "1.48")]).uses(**sized_call(65_536)),
    # One byte more is two: 10 units, 5 x 0.37 = 1.85
    Case("64-kib-and-1", "1.85", [("calls", 5, "0.00"), ("calls", 5, "1.85")]).uses(
        **sized_call(65_537)
    ),
    # 3 batches weigh 15: 10 x 0.37
    Case("batch", "3.70", [("calls", 5, "0.00"), ("calls", 10, "3.70")]).uses(
        **calls(3, api_action="SendMessageBatch")
    ),
    # Empty receives are billed: 4 + 4 = 8 units, 3 x 0.37 = 1.11. Errors of either side are not.
    Case("empty-receives", "1.11", [("calls", 5, "0.00"), ("calls", 3, "1.11")])
    .uses(**calls(4))
    .uses(**calls(4, outcome="empty"))
    .uses(**calls(100, outcome="client_error"))
    .uses(**calls(100, outcome="server_error")),
    # 10 before the 16th: 5 free, 5 x 0.37 = 1.85. 10 from the 16th on: 10 x 0.20 = 2.00.
    Case(
        "price-change", "3.85", [("calls", 5, "0.00"), ("calls", 5, "1.85"), ("calls", 10, "2.00")]
    )
    .uses(15, 23, **calls(10))
    .uses(16, 0, **calls(10)),
    # 3 free before the change, 2 after: the quota is the month's. 4 x 0.20 = 0.80
    Case(
        "free-across-change",
        "0.80",
        [("calls", 3, "0.00"), ("calls", 2, "0.00"), ("calls", 4, "0.80")],
    )
    .uses(1, 0, **calls(3))
    .uses(30, 23, **calls(6)),
    # The last hour of November counts, the hours around the month do not: 1 x 0.37
    Case("month-ends", "0.20", [("calls", 5, "0.00"), ("calls", 1, "0.20")])
    .uses(0, 23, **calls(100))
    .uses(30, 23, **calls(6))
    .uses(31, 0, **calls(100)),
    # One publish to three queues, ten times: 10 published at 0.10, 30 delivered at 0.01
    Case("fan-out", "1.30", [("published", 10, "1.00"), ("delivered", 30, "0.30")])
    .uses(**amqp("publish", 10))
    .uses(**amqp("route", 30))
    .uses(**amqp("deliver", 30))
    .uses(**amqp("route", 7, protocol="internal"))
    .uses(**amqp("publish", 7, protocol="internal")),
    # Cumulative: 40 at the end of October, 45 and 47 in November, 12 of another Raft group;
    # an unroutable message counted by the gateway: 7 + 12 + 1 = 20 at 0.10
    Case("cumulative", "2.00", [("published", 20, "2.00")])
    .uses(0, 12, **amqp("publish", 40, log_index=10))
    .uses(3, 0, **amqp("publish", 47, log_index=30))
    .uses(2, 0, **amqp("publish", 45, log_index=20))
    .uses(2, 0, **amqp("publish", 12, raft_group=1))
    .uses(31, 0, **amqp("publish", 99, log_index=40))
    .uses(2, 0, protocol="amqp", action="publish", messages=1),
    # 4 + 4 x 2 + 4 x 5 = 32 at 0.05
    Case("qos", "1.60", [("devices", 32, "1.60")])
    .uses(protocol="mqtt", action="publish", queue_class="qos0", messages=4)
    .uses(protocol="mqtt", action="deliver", queue_class="qos1", messages=4)
    .uses(protocol="mqtt", action="deliver", queue_class="qos2", messages=4),
    # 25 x 0.005 = 0.125, half to even: 0.12
    Case("half-down", "0.12", [("units", 25, "0.12")]).uses(
        protocol="rocketmq", action="publish", units_4k=25
    ),
    # 27 x 0.005 = 0.135, half to even: 0.14
    Case("half-up", "0.14", [("units", 27, "0.14")]).uses(
        protocol="rocketmq", action="publish", units_4k=27
    ),
    # Three halves of a cent are 0.015, half to even 0.02: a cent each for the first two lines
    Case(
        "remainders",
        "0.02",
        [("units", 1, "0.01"), ("egress", 1_000_000_000, "0.01"), ("extensions", 1, "0.00")],
    )
    .uses(protocol="rocketmq", action="extend", requests=1)
    .uses(protocol="rocketmq", action="deliver", bytes_out=1_000_000_000)
    .uses(protocol="rocketmq", action="publish", units_4k=1),
    # 0.005 + 0.000000005 rounds to 0.01, and the cent goes to the larger remainder
    Case("larger-remainder", "0.01", [("egress", 1, "0.00"), ("extensions", 1, "0.01")])
    .uses(protocol="rocketmq", action="deliver", bytes_out=1)
    .uses(protocol="rocketmq", action="extend", requests=1),
    # Used, but nothing that is for sale: no invoice
    Case("nothing-for-sale", None, []).uses(protocol="sqs", action="admin", requests=9),
]


@cache
def golden_book() -> PriceBook:
    return parse_price_book(PRICES)


def golden_records() -> list[Record]:
    """All cases as one dense sequence of node n1."""
    records: list[Record] = []
    for case in CASES:
        records += case.records(len(records))
    return records
