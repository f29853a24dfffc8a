from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.schema import HOUR_US, OTHER
from metering.window import RowKey, RowValues, Window, to_batch
from tests.metering.samples import START_US, key, window

topics = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.integers(1, 9), max_size=4)


def totals(window: Window) -> Counter[str]:
    sums: Counter[str] = Counter()
    for row, values in window.rows.items():
        sums[row.tenant] += values.messages
    return sums


@given(st.lists(topics, min_size=1, max_size=6))
def test_merging_and_folding_keep_every_total(parts: list[dict[str, int]]) -> None:
    first, *rest = [window(number, **part) for number, part in enumerate(parts)]
    for item in rest:
        first.absorb(item)
    expected = sum((Counter(part) for part in parts), Counter())
    assert {row.topic: values.messages for row, values in first.rows.items()} == expected
    before = totals(first)
    assert first.fold()
    assert totals(first) == before
    assert {row.topic for row in first.rows} <= {OTHER}
    assert not first.fold()


def test_a_merged_window_spans_both() -> None:
    merged = window(3, a=1)
    merged.absorb(window(1, a=1))
    assert (merged.start_us, merged.end_us) == (START_US + 10_000_000, START_US + 40_000_000)


def test_windows_of_two_hours_do_not_merge() -> None:
    with pytest.raises(AssertionError):
        window(0, a=1).absorb(window(360, a=1))
    assert window(360, a=1).hour == START_US // HOUR_US + 1


def test_a_cumulative_counter_keeps_its_later_state_whatever_the_order() -> None:
    row = key(kind="store", raft_group=1)
    early = Window(START_US, START_US + 1, {row: RowValues(log_index=5, cum_messages=50)})
    late = Window(START_US, START_US + 1, {row: RowValues(log_index=9, cum_messages=90)})
    for first, second in ((early, late), (late, early)):
        merged = Window(first.start_us, first.end_us, dict(first.rows))
        merged.absorb(second)
        assert merged.rows == late.rows
        merged.fold()
        assert merged.rows == late.rows


def test_a_level_keeps_its_peak_and_adds_its_integral() -> None:
    row = key(kind="gauge", action="connections")
    first = Window(START_US, START_US + 1, {row: RowValues(gauge_max=7, gauge_integral=30)})
    first.absorb(Window(START_US, START_US + 1, {row: RowValues(gauge_max=4, gauge_integral=5)}))
    assert first.rows == {row: RowValues(gauge_max=7, gauge_integral=35)}


def test_taking_rows_leaves_the_rest_in_order() -> None:
    item = window(0, a=1, b=2, c=3)
    assert [row.topic for row in item.take(2)] == ["a", "b"]
    assert [row.topic for row in item.take(2)] == ["c"]
    assert item.take(2) == {}


def test_rows_become_records_with_dense_seq() -> None:
    item = window(0, a=1, b=2)
    batch = to_batch(item, item.rows, node="n1", epoch=4, first_seq=10, emitted_at_us=99)
    records = list(batch.records())
    assert [(record.seq, record.topic, record.messages) for record in records] == [
        (10, "a", 1),
        (11, "b", 2),
    ]
    assert {(record.node, record.epoch, record.window_start_us) for record in records} == {
        ("n1", 4, START_US)
    }
    assert RowKey(*(getattr(records[0], name) for name in RowKey._fields)) == key("a")


def test_rows_that_prove_one_another_are_not_parted() -> None:
    origins = ("amqp", "sqs", "mqtt")
    rows = {
        key(topic, kind="store", action="route", protocol=origin, raft_group=1): RowValues()
        for topic in ("a", "b")
        for origin in origins
    }
    taken = Window(0, 1, rows).take(2)
    assert [(row.topic, row.protocol) for row in taken] == [("a", origin) for origin in origins]
