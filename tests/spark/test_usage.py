from __future__ import annotations

from dataclasses import replace

from metering.schema import Record
from tests.spark.plain_usage import Aggregation, aggregate
from tests.spark.samples import HOUR_US, NOVEMBER, record

START = NOVEMBER.start_us


def store(seq: int, hour: int, log_index: int, messages: int, **columns: object) -> Record:
    return record(
        seq,
        START + hour * HOUR_US,
        kind="store",
        raft_group=0,
        log_index=log_index,
        cum_messages=messages,
        cum_bytes=10 * messages,
        **columns,
    )


def messages_by_hour(result: Aggregation) -> dict[int, int]:
    return {(row.hour_us - START) // HOUR_US: row.messages for row in result.usage}


def test_a_repeat_counts_once_whenever_it_was_emitted() -> None:
    one = record(0, messages=5)
    result = aggregate([one, one, replace(one, emitted_at_us=9)], NOVEMBER)
    assert messages_by_hour(result) == {0: 5}
    assert (result.records, result.duplicates, result.conflicts) == (3, 2, ())


def test_an_identity_with_two_contents_counts_not_at_all() -> None:
    one = record(0, messages=5)
    result = aggregate([one, one, replace(one, messages=6), record(1, messages=1)], NOVEMBER)
    assert messages_by_hour(result) == {0: 1}
    assert result.conflicts == (("n1", 1, 0),)
    assert (result.duplicates, result.conflict_records) == (0, 3)


def test_the_same_seq_of_another_epoch_is_another_record() -> None:
    result = aggregate([record(0, messages=5), record(0, epoch=2, messages=5)], NOVEMBER)
    assert messages_by_hour(result) == {0: 10}


def test_cumulative_rows_add_their_growth_to_the_hour_of_the_later_row() -> None:
    rows = [store(0, -1, 10, 40), store(1, 0, 20, 45), store(2, 7, 30, 47)]
    for order in (rows, rows[::-1]):
        result = aggregate(order, NOVEMBER)
        assert messages_by_hour(result) == {0: 5, 7: 2}
        assert [row.bytes_in for row in result.usage] == [50, 20]


def test_a_lost_cumulative_row_is_made_good_by_the_next() -> None:
    assert messages_by_hour(aggregate([store(0, 0, 10, 40), store(2, 7, 30, 47)], NOVEMBER)) == {
        0: 40,
        7: 7,
    }


def test_cumulative_deliveries_are_egress() -> None:
    (row,) = aggregate([store(0, 0, 10, 4, action="deliver")], NOVEMBER).usage
    assert (row.bytes_in, row.bytes_out) == (0, 40)


def test_what_was_returned_is_taken_off_what_was_delivered() -> None:
    rows = [
        store(0, 0, 10, 17, action="deliver", cum_units_4k=20),
        store(1, 0, 10, 5, action="return", cum_units_4k=6),
        store(2, 1, 20, 7, action="return", cum_units_4k=8),
        record(3, action="deliver", messages=4, bytes_out=40, units_4k=4, topic="transient"),
        record(4, action="return", messages=1, bytes_out=10, units_4k=1, topic="transient"),
    ]
    usage = aggregate(rows, NOVEMBER).usage
    assert {row.action for row in usage} == {"deliver"}
    assert messages_by_hour(Aggregation(usage, 0, 0, (), 0, 0))[1] == -2
    assert sum(row.messages for row in usage) == 10 + 3
    assert sum(row.bytes_out for row in usage) == 100 + 30
    assert sum(row.units_4k for row in usage) == 12 + 3
    assert not any(row.bytes_in for row in usage)


def test_series_do_not_mix() -> None:
    rows = [
        store(0, 0, 10, 5),
        store(1, 0, 20, 3, topic="other"),
        store(2, 0, 30, 4, cum_since=25),
        replace(store(3, 0, 40, 2), raft_group=1),
    ]
    result = aggregate(rows, NOVEMBER)
    assert sum(row.messages for row in result.usage) == 5 + 3 + 4 + 2
    assert result.falls == 0


def test_a_counter_that_falls_is_reported_and_bills_only_what_is_new() -> None:
    rows = [store(0, 0, 10, 50), store(1, 1, 20, 30), store(2, 2, 30, 55)]
    result = aggregate(rows, NOVEMBER)
    assert result.falls == 1
    assert messages_by_hour(result) == {0: 50, 1: 0, 2: 5}


def test_a_move_of_the_account_in_mid_month_bills_nothing_twice() -> None:
    rows = [store(0, 0, 10, 50, account="a"), store(1, 1, 20, 60, account="b")]
    by_account = {row.account: row.messages for row in aggregate(rows, NOVEMBER).usage}
    assert by_account == {"a": 50, "b": 10}


def test_levels_add_their_integrals() -> None:
    gauge = {"kind": "gauge", "action": "connections", "gauge_max": 5}
    rows = [record(0, gauge_integral=50, **gauge), record(1, gauge_integral=7, **gauge)]
    (row,) = aggregate(rows, NOVEMBER).usage
    assert (row.gauge_integral, row.messages) == (57, 0)
