"""Confirms in any order, singly or multiple, cut anywhere."""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.load.amqp_confirms import ConfirmTracker
from benchmarks.load.amqp_wire import BASIC_ACK, BASIC_NACK, CHANNEL_CLOSE, frame, method
from benchmarks.load.errors import BenchError


def answer(tag: int, *, multiple: bool = False, nack: bool = False) -> bytes:
    number = BASIC_NACK if nack else BASIC_ACK
    return method(1, number, struct.pack(">QB", tag, multiple))


def tracker(*batches: tuple[int, int]) -> ConfirmTracker:
    """A tracker with batches of (count, time) published."""
    made = ConfirmTracker()
    for count, sent_ns in batches:
        made.published(count, sent_ns)
    return made


def test_a_multiple_ack_answers_everything_up_to_its_tag() -> None:
    confirms = tracker((10, 0), (10, 50))
    confirms.feed(answer(15, multiple=True), 100)
    assert (confirms.open, confirms.answered) == (5, 15)
    assert dict(confirms.latency.to_pairs()) == {100: 10, 50: 5}


def test_an_ack_of_zero_multiple_answers_everything() -> None:
    confirms = tracker((10, 0))
    confirms.feed(answer(0, multiple=True), 1)
    assert confirms.open == 0


def test_acks_out_of_order_are_each_counted_once() -> None:
    confirms = tracker((5, 0))
    for tag in (3, 5, 1, 4):
        confirms.feed(answer(tag), 7)
        assert confirms.latency.total == confirms.answered
    assert confirms.open == 1
    confirms.feed(answer(5, multiple=True), 9)
    assert (confirms.open, confirms.latency.total) == (0, 5)


def test_a_multiple_ack_skips_what_was_answered_early() -> None:
    confirms = tracker((4, 0), (4, 0))
    confirms.feed(answer(3) + answer(6) + answer(5, multiple=True), 2)
    assert (confirms.open, confirms.latency.total) == (2, 6)
    confirms.feed(answer(7) + answer(8), 3)
    assert (confirms.open, confirms.latency.total) == (0, 8)


def test_a_nack_frees_the_window_and_is_remembered() -> None:
    confirms = tracker((6, 0))
    confirms.feed(answer(2) + answer(3, multiple=True, nack=True) + answer(5, nack=True), 1)
    assert list(confirms.nacked) == [1, 3, 5]
    assert confirms.open == 2


@pytest.mark.parametrize("tag", [2, 9])
def test_a_confirm_of_what_is_not_open_is_refused(tag: int) -> None:
    confirms = tracker((4, 0))
    confirms.feed(answer(2, multiple=True), 1)
    with pytest.raises(BenchError, match=f"tag {tag}"):
        confirms.feed(answer(tag), 2)
    with pytest.raises(BenchError, match=f"tag {tag}"):
        confirms.feed(answer(tag, multiple=True), 2)


def test_a_second_early_ack_of_one_tag_is_refused() -> None:
    confirms = tracker((4, 0))
    with pytest.raises(BenchError, match="tag 3"):
        confirms.feed(answer(3) + answer(3), 1)


def test_heartbeats_and_other_methods_are_passed_over() -> None:
    confirms = tracker((2, 0))
    confirms.feed(answer(1) + frame(8, 0, b"") + method(0, 10 << 16 | 61) + answer(2), 1)
    assert confirms.open == 0


def test_a_trailing_heartbeat_does_not_hide_what_follows() -> None:
    confirms = tracker((2, 0))
    confirms.feed(answer(1) + frame(8, 0, b""), 1)
    confirms.feed(answer(2), 1)
    assert confirms.open == 0


def test_the_brokers_reason_for_closing_is_told() -> None:
    reason = b"NOT_FOUND - no exchange"
    close = method(1, CHANNEL_CLOSE, struct.pack(">HB", 404, len(reason)) + reason + bytes(4))
    with pytest.raises(BenchError, match="404 NOT_FOUND - no exchange"):
        tracker((1, 0)).feed(close, 1)


def test_a_frame_without_its_end_is_refused() -> None:
    with pytest.raises(BenchError, match="end octet"):
        tracker((1, 0)).feed(answer(1)[:-1] + b"\x00", 1)


@given(
    order=st.permutations(range(1, 13)),
    cuts=st.lists(st.integers(0, 300), max_size=12),
    multiples=st.sets(st.integers(1, 12)),
)
def test_any_order_and_any_cut_answers_every_tag_once(
    order: list[int], cuts: list[int], multiples: set[int]
) -> None:
    confirms = tracker((5, 0), (4, 0), (3, 0))
    done: set[int] = set()
    data = b""
    for tag in order:
        if tag in done:
            continue
        data += answer(tag, multiple=tag in multiples) + frame(8, 0, b"")
        done |= set(range(1, tag + 1)) if tag in multiples else {tag}
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for start, end in pairwise(places):
        confirms.feed(data[start:end], 1)
    assert (confirms.open, confirms.answered, confirms.latency.total) == (0, 12, 12)
