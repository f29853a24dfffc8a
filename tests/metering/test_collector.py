from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from metering import collector as module
from metering.collector import (
    AGE_LIMIT_US,
    WINDOWS_WAITING_MAX,
    Collector,
    CollectorError,
    Flush,
    State,
)
from metering.schema import OTHER, FlushId, decode
from metering.window import RowValues, Window
from tests.metering.samples import START_US, key, window


def topics_of(flush: Flush) -> dict[str, int]:
    batch = decode(flush.body)
    return dict(zip(batch.text["topic"], batch.numbers["messages"], strict=True))


def registered(epoch: int = 1, **limits: int) -> Collector:
    collector = Collector("n1", **limits)
    collector.registered(epoch)
    return collector


def sent(collector: Collector) -> Flush:
    flush = collector.next_flush(START_US)
    assert flush is not None
    return flush


def test_windows_become_flushes_with_dense_seq() -> None:
    collector = registered()
    collector.offer(window(0, a=1, b=2))
    collector.offer(window(1, a=3))
    first = sent(collector)
    assert first.flush_id == FlushId("n1", 1, 0, 1)
    assert collector.next_flush(START_US) is None
    collector.acknowledged(first.flush_id)
    second = sent(collector)
    assert second.flush_id == FlushId("n1", 1, 2, 2)
    collector.acknowledged(second.flush_id)
    assert collector.drained()
    assert collector.next_flush(START_US) is None


def test_a_large_window_goes_out_in_parts() -> None:
    collector = registered(rows_per_flush_max=2)
    collector.offer(window(0, a=1, b=2, c=3))
    first = sent(collector)
    collector.acknowledged(first.flush_id)
    second = sent(collector)
    assert (topics_of(first), topics_of(second)) == ({"a": 1, "b": 2}, {"c": 3})
    assert second.flush_id.first_seq == 2


def test_a_flush_in_doubt_is_sent_again_byte_for_byte() -> None:
    collector = registered()
    collector.offer(window(0, a=1))
    first = sent(collector)
    collector.outcome_unknown()
    collector.offer(window(1, a=5))
    again = collector.next_flush(START_US + 999)
    assert again == first
    collector.acknowledged(first.flush_id)
    assert topics_of(sent(collector)) == {"a": 5}
    assert collector.statistics(START_US).flushes_repeated == 1


def test_nothing_is_sent_before_registration_and_nothing_is_lost_by_it() -> None:
    collector = Collector("n1")
    collector.offer(window(0, a=1))
    assert collector.next_flush(START_US) is None
    collector.registered(8)
    assert sent(collector).flush_id == FlushId("n1", 8, 0, 0)


def test_a_refusal_of_the_first_sending_counts_again_under_the_new_epoch() -> None:
    collector = registered()
    collector.offer(window(0, a=1))
    sent(collector)
    collector.fenced()
    collector.registered(2)
    flush = sent(collector)
    assert flush.flush_id == FlushId("n1", 2, 0, 0)
    assert topics_of(flush) == {"a": 1}


def test_a_refusal_after_a_doubt_gives_up_what_may_be_in_the_log_already() -> None:
    collector = registered()
    item = window(0, a=1)
    cumulative = key("b", kind="store", raft_group=0)
    item.rows[cumulative] = RowValues(log_index=3, cum_messages=9)
    collector.offer(item)
    sent(collector)
    collector.outcome_unknown()
    sent(collector)
    collector.fenced()
    assert collector.statistics(START_US).rows_given_up == 1
    collector.registered(2)
    batch = decode(sent(collector).body)
    assert (batch.text["topic"], batch.numbers["cum_messages"]) == (["b"], (9,))


def test_waiting_windows_merge_by_hour_and_lose_nothing() -> None:
    collector = Collector("n1")
    for number in range(WINDOWS_WAITING_MAX + 1):
        collector.offer(window(360 - 3 + number, a=1, b=number))
    statistics = collector.statistics(START_US + 2 * AGE_LIMIT_US)
    assert statistics.windows_waiting == 2
    assert statistics.windows_merged == WINDOWS_WAITING_MAX - 1
    assert statistics.over_limit
    collector.registered(1)
    total: Counter[str] = Counter()
    while not collector.drained():
        flush = sent(collector)
        total.update(topics_of(flush))
        collector.acknowledged(flush.flush_id)
    assert total == {"a": 7, "b": sum(range(7))}


def test_too_many_rows_give_up_their_topics_and_not_their_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "ROWS_WAITING_MAX", 10)
    collector = registered()
    names = [f"q{number}" for number in range(11)]
    collector.offer(window(0, **dict.fromkeys(names, 2)))
    assert collector.statistics(START_US).rows_waiting == 1
    assert collector.statistics(START_US).windows_folded == 1
    assert topics_of(sent(collector)) == {OTHER: 22}


def test_the_age_is_that_of_the_oldest_count_not_acknowledged() -> None:
    collector = registered()
    assert collector.statistics(START_US).age_us == 0
    collector.offer(window(0, a=1))
    collector.offer(window(1, a=1))
    flush = sent(collector)
    later_us = START_US + 25_000_000
    assert collector.statistics(later_us).age_us == 25_000_000
    collector.acknowledged(flush.flush_id)
    assert collector.statistics(later_us).age_us == 15_000_000
    assert not collector.statistics(later_us).over_limit


def test_events_out_of_place_are_refused() -> None:
    collector = Collector("n1")
    with pytest.raises(CollectorError, match="OUTCOME_UNKNOWN in state UNREGISTERED"):
        collector.outcome_unknown()
    collector.registered(5)
    with pytest.raises(CollectorError, match="not under way"):
        collector.acknowledged(FlushId("n1", 5, 0, 0))
    with pytest.raises(CollectorError, match="REGISTERED in state READY"):
        collector.registered(6)
    with pytest.raises(CollectorError, match="epoch 5 does not follow 5"):
        collector.registered(5)


class CollectorAgainstALog(RuleBasedStateMachine):
    """Any order of windows, lost replies, losses, fences: the log never holds a count twice.

    The log is the model of the real one: it appends an identity once, and refuses old epochs.
    """

    @initialize()
    def begin(self) -> None:
        self.collector = Collector("n1", rows_per_flush_max=2)
        self.log: dict[tuple[int, int], tuple[str, int]] = {}
        self.log_epoch = 0
        self.offered: Counter[str] = Counter()
        self.number = 0
        self.flush: Flush | None = None

    def append(self) -> bool:
        """What the log does with the flush; False if it is fenced."""
        assert self.flush is not None
        if self.flush.flush_id.epoch < self.log_epoch:
            return False
        batch = decode(self.flush.body)
        for record in batch.records():
            content = (record.topic, record.messages)
            assert self.log.setdefault((record.epoch, record.seq), content) == content
        return True

    @rule(counts=st.dictionaries(st.sampled_from("abc"), st.integers(1, 9), min_size=1))
    def window_closes(self, counts: dict[str, int]) -> None:
        self.collector.offer(window(self.number, **counts))
        self.number += 50
        self.offered.update(counts)

    @rule()
    def another_registration_fences(self) -> None:
        self.log_epoch += 1

    @precondition(lambda self: self.collector.state is State.UNREGISTERED)
    @rule()
    def registration(self) -> None:
        self.log_epoch += 1
        self.collector.registered(self.log_epoch)

    @precondition(lambda self: self.flush is None)
    @rule()
    def send(self) -> None:
        self.flush = self.collector.next_flush(START_US)

    @precondition(lambda self: self.flush is not None)
    @rule(arrives=st.booleans(), reply_arrives=st.booleans())
    def answer(self, arrives: bool, reply_arrives: bool) -> None:
        assert self.flush is not None
        accepted = self.append() if arrives else None
        if accepted is None or not reply_arrives:
            self.collector.outcome_unknown()
        elif accepted:
            self.collector.acknowledged(self.flush.flush_id)
        else:
            self.collector.fenced()
        self.flush = None

    @invariant()
    def nothing_is_doubled_and_only_what_was_given_up_is_missing(self) -> None:
        if not hasattr(self, "collector"):
            return
        counted: Counter[str] = Counter()
        for topic, messages in self.log.values():
            counted[topic] += messages
        assert counted <= self.offered
        settled = self.collector.drained() and self.flush is None
        if settled and not self.collector.statistics(START_US).rows_given_up:
            assert counted == self.offered

    @invariant()
    def seqs_are_dense(self) -> None:
        if not hasattr(self, "collector"):
            return
        for epoch in {epoch for epoch, _ in self.log}:
            seqs = sorted(seq for other, seq in self.log if other == epoch)
            assert seqs == list(range(len(seqs)))


TestCollectorAgainstALog = CollectorAgainstALog.TestCase
TestCollectorAgainstALog.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


def test_windows_of_the_store_and_the_gateway_share_one_sequence() -> None:
    collector = registered()
    collector.offer(window(0, a=1))
    row = key("b", kind="store", raft_group=2)
    collector.offer(Window(START_US, START_US + 10, {row: RowValues(log_index=1, cum_messages=3)}))
    first = sent(collector)
    collector.acknowledged(first.flush_id)
    assert sent(collector).flush_id.first_seq == first.flush_id.last_seq + 1
