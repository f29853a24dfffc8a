from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metering.counters import (
    ACTIVITY_SPAN_WINDOWS,
    WINDOW_US,
    Meter,
    units_4k,
    units_64k,
)
from metering.schema import HOUR_US, OTHER
from metering.window import RowKey, RowValues, Window
from tests.metering.samples import START_US, key


def rolled(meter: Meter, windows: int = 1) -> Window | None:
    return meter.roll(meter.window_start_us() + windows * WINDOW_US)


@pytest.mark.parametrize(
    ("size_bytes", "of_4k", "of_64k"),
    [(0, 1, 1), (1, 1, 1), (4096, 1, 1), (4097, 2, 1), (65_536, 16, 1), (65_537, 17, 2)],
)
def test_units_round_up_and_are_at_least_one(size_bytes: int, of_4k: int, of_64k: int) -> None:
    assert (units_4k(size_bytes), units_64k(size_bytes)) == (of_4k, of_64k)


def test_a_window_holds_what_was_counted_in_it() -> None:
    meter = Meter(START_US)
    published = meter.counter(key())
    delivered = meter.counter(key(action="deliver"))
    received = meter.counter(key(action="receive", api_action="ReceiveMessage", outcome="empty"))
    published.count_one(5000)
    published.count(3, 300, 3)
    delivered.count_one(10)
    received.call(200, 70_000)
    window = rolled(meter)
    assert window == Window(
        START_US,
        START_US + WINDOW_US,
        {
            key(): RowValues(messages=4, bytes_in=5300, units_4k=5),
            key(action="deliver"): RowValues(messages=1, bytes_out=10, units_4k=1),
            received.key: RowValues(requests=1, units_64k=2, bytes_in=200, bytes_out=70_000),
        },
    )


def test_a_handle_starts_from_zero_in_the_next_window() -> None:
    meter = Meter(START_US)
    handle = meter.counter(key())
    handle.count_one(1)
    rolled(meter)
    assert rolled(meter) is None
    handle.count_one(2)
    window = rolled(meter)
    assert window is not None
    assert window.rows[key()] == RowValues(messages=1, bytes_in=2, units_4k=1)


def test_a_window_stays_open_until_its_end() -> None:
    meter = Meter(START_US + 3)
    meter.counter(key()).count_one(1)
    assert meter.window_start_us() == START_US
    assert meter.roll(START_US + WINDOW_US - 1) is None
    assert meter.roll(START_US + WINDOW_US) is not None


@given(st.lists(st.integers(-3 * HOUR_US, 3 * HOUR_US), max_size=30))
def test_no_window_leaves_its_hour_and_no_count_is_lost(steps: list[int]) -> None:
    """Whatever the clock does: late ticks, jumps ahead, jumps back."""
    now_us = START_US
    meter = Meter(now_us)
    handle = meter.counter(key())
    windows = []
    for step in steps:
        handle.count_one(1)
        now_us += step
        window = meter.roll(now_us)
        if window is not None:
            windows.append(window)
        assert meter.window_start_us() <= now_us < meter.window_start_us() + WINDOW_US
    last = meter.close(now_us)
    windows += [] if last is None else [last]
    assert sum(window.rows[key()].messages for window in windows) == len(steps)
    for window in windows:
        assert window.start_us < window.end_us <= (window.hour + 1) * HOUR_US


def test_closing_early_keeps_the_window_within_its_bounds() -> None:
    meter = Meter(START_US)
    handle = meter.counter(key())
    for now_us, end_us in [
        (START_US - 5, START_US + 1),
        (START_US + 9, START_US + 9),
        (START_US + HOUR_US, START_US + WINDOW_US),
    ]:
        handle.count_one(1)
        window = meter.close(now_us)
        assert window is not None
        assert (window.start_us, window.end_us) == (START_US, end_us)


def test_one_tenant_cannot_use_up_the_keys_of_others() -> None:
    meter = Meter(START_US, keys_max=100, keys_per_tenant_max=3)
    for number in range(10):
        meter.counter(key(f"t{number}", group="g")).count_one(1)
    meter.counter(key("mine", tenant="zebra")).count_one(1)
    window = rolled(meter)
    assert window is not None
    by_topic = {row.topic: values.messages for row, values in window.rows.items()}
    assert by_topic == {"t0": 1, "t1": 1, "t2": 1, OTHER: 7, "mine": 1}
    assert meter.statistics().folded == 7


def test_keys_of_all_tenants_together_have_a_bound() -> None:
    meter = Meter(START_US, keys_max=5, keys_per_tenant_max=100)
    handles = [meter.counter(key("q", tenant=f"t{number}")) for number in range(9)]
    assert [handle.key.topic for handle in handles] == ["q"] * 5 + [OTHER] * 4
    assert [handle.key.tenant for handle in handles] == [f"t{number}" for number in range(9)]


def test_keys_without_activity_make_room() -> None:
    meter = Meter(START_US, keys_per_tenant_max=2)
    for name in ("a", "b", "c"):
        meter.counter(key(name)).count_one(1)
    for _ in range(2 * ACTIVITY_SPAN_WINDOWS):
        rolled(meter)
    assert meter.statistics().keys == 0
    assert meter.counter(key("c")).key.topic == "c"


def test_a_handle_of_a_forgotten_key_goes_on_counting_into_the_same_row() -> None:
    meter = Meter(START_US)
    old = meter.counter(key())
    for _ in range(2 * ACTIVITY_SPAN_WINDOWS):
        rolled(meter)
    new = meter.counter(key())
    assert new is not old
    old.count_one(1)
    new.count_one(1)
    window = rolled(meter)
    assert window is not None
    assert window.rows == {key(): RowValues(messages=2, bytes_in=2, units_4k=2)}


def test_a_busy_handle_is_never_forgotten() -> None:
    meter = Meter(START_US)
    handle = meter.counter(key())
    for _ in range(5 * ACTIVITY_SPAN_WINDOWS):
        handle.count_one(1)
        rolled(meter)
    assert meter.counter(key()) is handle


def test_a_topic_that_no_record_can_hold_is_folded() -> None:
    meter = Meter(START_US)
    assert meter.counter(key("ü" * 128)).key.topic == OTHER


@pytest.mark.parametrize(
    "wrong", [key(outcome="fine"), key(kind="guess"), key(tenant="x" * 256), key(region="x" * 256)]
)
def test_a_key_that_no_record_can_hold_is_refused_at_once(wrong: RowKey) -> None:
    with pytest.raises(ValueError, match=r"unknown|longer"):
        Meter(START_US).counter(wrong)


def test_a_gauge_gives_peak_and_integral() -> None:
    meter = Meter(START_US)
    gauge = meter.gauge(key("", kind="gauge", action="connections"), START_US)
    gauge.set(10, START_US + 1_000_000)
    gauge.set(2, START_US + 3_000_000)
    first, second = rolled(meter), rolled(meter)
    assert first is not None
    assert second is not None
    assert first.rows[gauge.key] == RowValues(gauge_max=10, gauge_integral=10 * 2 + 2 * 7)
    assert second.rows[gauge.key] == RowValues(gauge_max=2, gauge_integral=20)
    gauge.set(0, START_US + 2 * WINDOW_US)
    rolled(meter)
    assert rolled(meter) is None


@given(st.lists(st.tuples(st.integers(0, 5_000_000), st.integers(0, 9)), max_size=20))
def test_the_integral_loses_no_part_of_a_second(steps: list[tuple[int, int]]) -> None:
    meter = Meter(START_US)
    gauge = meter.gauge(key("", kind="gauge", action="queues"), START_US)
    now_us = START_US
    area = level = total = 0
    for wait_us, new_level in steps:
        now_us += wait_us
        area += level * wait_us
        level = new_level
        gauge.set(level, now_us)
    window = meter.close(max(now_us, START_US + 1))
    if window is not None:
        total = window.rows[gauge.key].gauge_integral
    assert area // 1_000_000 <= total + level * 10
    assert total <= area // 1_000_000 + level * 10
