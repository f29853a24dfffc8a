"""`GroupProgress` against sets and dicts that say the same."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import hypothesis.strategies as st
from hypothesis import given, settings

from kernel.broker.group_state.progress import (
    FULL,
    GroupProgress,
    acked_by_all,
    stretches,
    unacked_by_any,
)

END = 1_100
"""Offsets of a test: a little over four pages."""

offsets = st.integers(0, END - 1)
ranges = st.tuples(offsets, st.integers(0, 600)).map(lambda pair: (pair[0], sum(pair)))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("ack"), ranges),
        st.tuples(st.just("failed"), offsets),
        st.tuples(st.just("lease"), st.tuples(offsets, st.integers(0, 3), st.integers(0, 1 << 50))),
        st.tuples(st.just("unlease"), offsets),
    ),
    max_size=40,
)


@dataclass
class Naive:
    """The same, one offset at a time."""

    acked: set[int] = field(default_factory=set)
    failures: dict[int, int] = field(default_factory=dict)
    leases: dict[int, tuple[int, int, bool]] = field(default_factory=dict)

    @property
    def floor(self) -> int:
        at = 0
        while at in self.acked:
            at += 1
        return at

    def kept(self) -> dict[int, tuple[int, int, bool]]:
        return {at: each for at, each in self.leases.items() if each[2]}


def flat(pairs: list[tuple[int, int]]) -> list[int]:
    return [at for start, end in pairs for at in range(start, end)]


def play(progress: GroupProgress, naive: Naive, script: list[tuple[str, object]]) -> None:
    for what, value in script:
        if what == "ack":
            start, end = value
            fresh = [at for at in range(start, end) if at not in naive.acked]
            assert flat(progress.ack(start, end)) == fresh
            naive.acked.update(fresh)
            for at in fresh:
                naive.failures.pop(at, None)
                naive.leases.pop(at, None)
        elif what == "failed" and value not in naive.acked:
            progress.failed(value)
            naive.failures[value] = naive.failures.get(value, 0) + 1
        elif what == "lease" and value[0] not in naive.acked:
            at, lease, deadline_ms = value
            progress.lease(at, lease, deadline_ms)
            naive.leases[at] = (lease, deadline_ms, True)
        elif what == "unlease":
            progress.unlease(value)
            if value in naive.leases:
                naive.leases[value] = (*naive.leases[value][:2], False)


@settings(max_examples=80, deadline=None)
@given(steps)
def test_progress_is_what_happened(script: list[tuple[str, object]]) -> None:
    progress, naive = GroupProgress(), Naive()
    play(progress, naive, script)
    floor = naive.floor
    assert progress.floor == floor
    assert progress.acked_above == sum(1 for at in naive.acked if at > floor)
    assert [at for at in range(END) if progress.is_acked(at)] == sorted(
        at for at in naive.acked if at < END
    )
    for at in range(floor, END):
        assert progress.failures(at) == naive.failures.get(at, 0)
        assert progress.holder(at) == naive.leases.get(at)
    kept = naive.kept()
    assert {at: (lease, due) for at, lease, due in progress.kept()} == {
        at: each[:2] for at, each in kept.items()
    }
    assert progress.leased == sum(1 for lease, _, _ in kept.values() if lease)
    assert progress.hidden == sum(1 for lease, _, _ in kept.values() if not lease)
    for page in range(END // 256):
        bits = sum(1 << at for at in range(256) if page * 256 + at in naive.acked)
        assert progress.acked_bits(page) == bits


@settings(max_examples=60, deadline=None)
@given(steps, ranges)
def test_what_is_open_is_what_is_neither_acked_nor_kept(
    script: list[tuple[str, object]], span: tuple[int, int]
) -> None:
    progress, naive = GroupProgress(), Naive()
    play(progress, naive, script)
    unacked = [at for at in range(*span) if at not in naive.acked]
    assert flat(list(progress.unacked(*span))) == unacked
    kept = naive.kept()
    assert flat(list(progress.free(*span))) == [at for at in unacked if at not in kept]


@settings(max_examples=60, deadline=None)
@given(st.lists(steps, min_size=1, max_size=3), ranges)
def test_several_groups_together(
    scripts: list[list[tuple[str, object]]], span: tuple[int, int]
) -> None:
    progresses, naives = [], []
    for script in scripts:
        progress, naive = GroupProgress(), Naive()
        play(progress, naive, script)
        progresses.append(progress)
        naives.append(naive)
    by_all = [at for at in range(*span) if all(at in each.acked for each in naives)]
    assert flat(acked_by_all(progresses, *span)) == by_all
    by_any = sorted(set(range(*span)) - set(by_all))
    assert flat(unacked_by_any(progresses, *span)) == by_any


@given(st.integers(0, 1 << 20), st.sets(st.integers(0, 300)))
def test_stretches_are_the_ones(base: int, ones: set[int]) -> None:
    bits = sum(1 << at for at in ones)
    found = list(stretches(base, bits))
    assert flat(found) == sorted(base + at for at in ones)
    assert all(low[1] < high[0] for low, high in itertools.pairwise(found))


def test_nothing_is_kept_of_what_is_acked_in_order() -> None:
    progress = GroupProgress()
    for at in range(0, 10_000, 100):
        assert progress.ack(at, at + 100) == [(at, at + 100)]
    assert (progress.floor, progress.pages, progress.acked_above) == (10_000, {}, 0)


def test_a_gap_that_closes_gives_its_pages_back() -> None:
    progress = GroupProgress()
    progress.ack(1, 2_000)
    assert len(progress.pages) == 8
    assert progress.acked_bits(1) == FULL
    progress.ack(0, 1)
    assert progress.floor == 2_000
    assert progress.acked_above == 0
    assert set(progress.pages) <= {2_000 >> 8}


def test_marks_only_rise_and_levels_begin_at_nothing() -> None:
    progress = GroupProgress(50)
    assert progress.mark() == 50
    assert progress.set_mark(2, 70)
    assert not progress.set_mark(2, 60)
    assert (progress.marks, progress.mark(1), progress.mark(9)) == ([50, 0, 70], 0, 0)
