"""Records, windows and keys for the metering tests."""

from __future__ import annotations

from hypothesis import strategies as st

from metering.schema import (
    HOUR_US,
    Action,
    Kind,
    Network,
    Outcome,
    QueueClass,
    Record,
)
from metering.schema.record import NUMBER_COLUMNS
from metering.window import RowKey, RowValues, Window

# An hour's start in November 2026.
START_US = 497_832 * HOUR_US

texts = st.text(max_size=20)
counts = st.one_of(st.integers(0, 300), st.integers(0, 2**62))


@st.composite
def record_lists(draw: st.DrawFn) -> list[Record]:
    """Consecutive records of one node and epoch, with any content that is allowed."""
    size = draw(st.integers(1, 5))
    first_seq = draw(counts)
    shared = {"node": draw(texts), "epoch": draw(counts), "emitted_at_us": draw(counts)}
    return [draw(_records(first_seq + number, shared)) for number in range(size)]


@st.composite
def _records(draw: st.DrawFn, seq: int, shared: dict[str, object]) -> Record:
    hour_us = draw(st.integers(0, 600_000)) * HOUR_US
    start = draw(st.integers(0, HOUR_US - 1))
    numbers = {name: draw(counts) for name in NUMBER_COLUMNS}
    numbers["raft_group"] = draw(st.integers(-1, 64))
    numbers["window_start_us"] = hour_us + start
    numbers["window_end_us"] = hour_us + draw(st.integers(start + 1, HOUR_US))
    return Record(
        seq=seq,
        kind=draw(st.sampled_from(Kind)),
        tenant=draw(texts),
        account=draw(texts),
        protocol=draw(texts),
        action=draw(st.sampled_from(Action)),
        api_action=draw(texts),
        topic=draw(texts),
        group=draw(texts),
        queue_class=draw(st.sampled_from(QueueClass)),
        network=draw(st.sampled_from(Network)),
        region=draw(texts),
        outcome=draw(st.sampled_from(Outcome)),
        **shared,
        **numbers,
    )


def key(topic: str = "orders", **columns: object) -> RowKey:
    return RowKey(**{"tenant": "acme", "protocol": "sqs", "topic": topic, **columns})


def window(number: int = 0, **messages: int) -> Window:
    """The number-th window of 10 s from START_US, with counts by topic."""
    start_us = START_US + number * 10_000_000
    rows = {key(topic): RowValues(messages=count) for topic, count in messages.items()}
    return Window(start_us, start_us + 10_000_000, rows)
