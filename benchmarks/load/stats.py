"""A histogram of durations with a bounded error and a bounded size.

Buckets are logarithmic: 64 to each power of two, so a reported percentile is at most 1/64
(1.6 %) above the true one, whatever its magnitude. The lowest 128 ns are exact.

    value (ns)   0 .. 127   128 .. 255   256 .. 511   ...   up to 2**42 (73 minutes)
    bucket       0 .. 127   128 .. 191   192 .. 255   ...   2431
"""

from __future__ import annotations

import math

SUB_BITS = 6  # 64 buckets a power of two: 1.6 % is finer than any run repeats itself.
SUB_BUCKETS = 1 << SUB_BITS
VALUE_BITS_MAX = 42  # 73 minutes in ns: longer than any benchmark waits for one message.
VALUE_MAX_NS = (1 << VALUE_BITS_MAX) - 1
BUCKETS = ((VALUE_BITS_MAX - SUB_BITS - 1) << SUB_BITS) + 2 * SUB_BUCKETS


def bucket_of(value_ns: int) -> int:
    """The bucket that counts `value_ns` (0..VALUE_MAX_NS)."""
    shift = max(value_ns.bit_length() - SUB_BITS - 1, 0)
    return (shift << SUB_BITS) + (value_ns >> shift)


def bucket_top_ns(bucket: int) -> int:
    """The largest value that `bucket` counts."""
    if bucket < 2 * SUB_BUCKETS:
        return bucket
    shift = (bucket >> SUB_BITS) - 1
    low = (SUB_BUCKETS + (bucket & (SUB_BUCKETS - 1))) << shift
    return low + (1 << shift) - 1


class Histogram:
    """Counts durations in ns; negative ones (a clock that stepped) count as 0."""

    __slots__ = ("_counts", "max_ns", "total")

    def __init__(self) -> None:
        self._counts = [0] * BUCKETS
        self.total = 0
        self.max_ns = 0

    def record(self, value_ns: int, count: int = 1) -> None:
        """Count `count` equal durations; one above VALUE_MAX_NS counts as VALUE_MAX_NS."""
        if value_ns > self.max_ns:
            value_ns = min(value_ns, VALUE_MAX_NS)
            self.max_ns = value_ns
        elif value_ns < 0:
            value_ns = 0
        shift = value_ns.bit_length() - SUB_BITS - 1
        if shift > 0:
            self._counts[(shift << SUB_BITS) + (value_ns >> shift)] += count
        else:
            self._counts[value_ns] += count
        self.total += count

    def percentile_ns(self, percent: float) -> int:
        """The smallest bucket top that `percent` (0..100) of the durations do not exceed.

        0 when nothing was recorded.
        """
        rank = max(math.ceil(self.total * percent / 100), 1)
        seen = 0
        for bucket, count in enumerate(self._counts):
            seen += count
            if seen >= rank:
                return min(bucket_top_ns(bucket), self.max_ns)
        return 0

    def to_pairs(self) -> list[tuple[int, int]]:
        """The filled buckets as (bucket, count), for another process to add up."""
        return [(bucket, count) for bucket, count in enumerate(self._counts) if count]

    def add_pairs(self, pairs: list[tuple[int, int]], max_ns: int) -> None:
        """Add what `to_pairs` of another histogram gave, and its maximum."""
        for bucket, count in pairs:
            self._counts[bucket] += count
            self.total += count
        self.max_ns = max(self.max_ns, max_ns)
