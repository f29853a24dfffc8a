from __future__ import annotations

from dataclasses import replace

from metering.schema import Kind
from metering.store_meter import StoreCounter, StoreMeter
from tests.metering.samples import START_US

ROUTED = StoreCounter("acme", "orders", "sqs", "route", messages=5, size_bytes=500, units_4k=5)
ACKED = StoreCounter("acme", "orders", "sqs", "ack", messages=2, size_bytes=0, units_4k=2)


def test_only_counters_that_grew_become_rows() -> None:
    meter = StoreMeter(raft_group=3)
    first = meter.observe(START_US, START_US + 10, 100, [ROUTED, ACKED])
    assert first is not None
    assert len(first.rows) == 2
    assert meter.observe(START_US, START_US + 10, 120, [ROUTED, ACKED]) is None
    grown = meter.observe(START_US, START_US + 10, 140, [replace(ROUTED, messages=6), ACKED])
    assert grown is not None
    ((row, values),) = grown.rows.items()
    assert (row.kind, row.raft_group, row.action, row.topic) == (Kind.STORE, 3, "route", "orders")
    assert (values.log_index, values.cum_messages, values.cum_bytes) == (140, 6, 500)
    assert values.messages == 0


def test_a_counter_that_was_forgotten_and_began_again_is_another_row() -> None:
    meter = StoreMeter(raft_group=0)
    meter.observe(START_US, START_US + 10, 100, [ROUTED])
    meter.observe(START_US, START_US + 10, 110, [])
    again = meter.observe(START_US, START_US + 10, 200, [replace(ROUTED, cum_since=150)])
    assert again is not None
    assert [row.cum_since for row in again.rows] == [150]
