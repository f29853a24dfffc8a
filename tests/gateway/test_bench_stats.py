"""The load testers' histogram: bounded error, bounded size, adds up."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.load.stats import (
    BUCKETS,
    SUB_BUCKETS,
    VALUE_MAX_NS,
    Histogram,
    bucket_of,
    bucket_top_ns,
)

durations = st.integers(0, VALUE_MAX_NS)


@given(durations)
def test_every_duration_lies_in_a_bucket_within_the_error(value: int) -> None:
    bucket = bucket_of(value)
    assert 0 <= bucket < BUCKETS
    assert value <= bucket_top_ns(bucket) <= value + value // SUB_BUCKETS


def test_buckets_are_contiguous_and_reach_the_maximum() -> None:
    tops = [bucket_top_ns(bucket) for bucket in range(BUCKETS)]
    assert all(bucket_of(top) == bucket for bucket, top in enumerate(tops))
    assert all(bucket_of(top + 1) == bucket + 1 for bucket, top in enumerate(tops[:-1]))
    assert tops[-1] == VALUE_MAX_NS


@given(st.lists(durations, min_size=1, max_size=200), st.sampled_from([1, 50, 90, 99, 100]))
def test_a_percentile_is_the_true_one_rounded_up(values: list[int], percent: int) -> None:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    true = sorted(values)[max(math.ceil(len(values) * percent / 100), 1) - 1]
    assert true <= histogram.percentile_ns(percent) <= min(true + true // SUB_BUCKETS, max(values))


def test_an_empty_histogram_has_zeros() -> None:
    histogram = Histogram()
    assert (histogram.total, histogram.max_ns, histogram.percentile_ns(99)) == (0, 0, 0)


def test_a_count_stands_for_that_many_equal_durations() -> None:
    histogram = Histogram()
    histogram.record(10, 99)
    histogram.record(1_000)
    assert histogram.total == 100
    assert histogram.percentile_ns(99) == 10
    assert histogram.percentile_ns(99.5) == 1_000


def test_a_stepped_clock_and_an_endless_wait_stay_in_range() -> None:
    histogram = Histogram()
    histogram.record(-5)
    histogram.record(VALUE_MAX_NS * 3)
    assert histogram.percentile_ns(50) == 0
    assert histogram.max_ns == VALUE_MAX_NS
    assert histogram.percentile_ns(100) == VALUE_MAX_NS


@given(st.lists(durations, max_size=50), st.lists(durations, max_size=50))
def test_histograms_of_two_processes_add_up(left: list[int], right: list[int]) -> None:
    parts = [Histogram(), Histogram()]
    whole, merged = Histogram(), Histogram()
    for part, values in zip(parts, (left, right), strict=True):
        for value in values:
            part.record(value)
            whole.record(value)
        merged.add_pairs(part.to_pairs(), part.max_ns)
    assert merged.to_pairs() == whole.to_pairs()
    assert (merged.total, merged.max_ns) == (whole.total, whole.max_ns)
