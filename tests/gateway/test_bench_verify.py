"""Loss, duplicates and order: the ledger against a naive account of the same deliveries."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from benchmarks.load.verify import Arrivals, Coverage, Ledger, Verdict, arrivals, first_key, judge


def received(ledger: Ledger, keys: list[int]) -> dict[int, list[tuple[int, int]]]:
    """Feed keys as the hot loop does; return the runs."""
    expected = ledger.expected
    for key in keys:
        expected = expected + ledger.stride if key == expected else ledger.turn(key, expected)
    return ledger.runs(expected)


def seen(sequences: list[int], stride: int = 1, first: int = 0) -> Arrivals:
    keys = [first_key(0) + sequence for sequence in sequences]
    return arrivals(received(Ledger(stride), keys).get(0, []), first, stride)


def test_messages_in_order_make_one_run_and_a_clean_verdict() -> None:
    part = seen(list(range(1000)))
    assert part == Arrivals([(0, 1000)], duplicated=0, disordered=0, misrouted=0)
    assert judge([part], 1000) == Verdict(received=1000)


def test_a_missing_message_is_lost() -> None:
    assert judge([seen([0, 1, 3, 4])], 5) == Verdict(received=4, lost=1)


def test_missing_last_messages_are_lost() -> None:
    assert judge([seen([0, 1])], 5) == Verdict(received=2, lost=3)
    assert judge([], 5) == Verdict(lost=5)


def test_nothing_is_lost_when_nobody_knows_what_was_sent() -> None:
    assert judge([seen([3, 4, 6])], None) == Verdict(received=3)


def test_a_repeated_message_is_a_duplicate_and_not_disorder() -> None:
    assert judge([seen([0, 1, 1, 2, 0, 3])], 4) == Verdict(received=6, duplicated=2)


def test_a_late_message_is_disorder_and_not_loss() -> None:
    assert judge([seen([0, 2, 1, 3])], 4) == Verdict(received=4, disordered=1)


def test_a_message_at_two_consumers_is_a_duplicate() -> None:
    parts = [seen([0, 2, 4]), seen([1, 2, 3])]
    assert judge(parts, 5) == Verdict(received=6, duplicated=1)


def test_consumers_that_share_a_queue_are_each_in_order() -> None:
    assert judge([seen([0, 3, 4, 9]), seen([1, 2, 5, 6, 7, 8])], 10) == Verdict(received=10)


def test_a_refused_message_may_be_missing_or_not() -> None:
    assert judge([seen([0, 1, 4])], 5, excused=[2, 3]) == Verdict(received=3, excused=2)
    assert judge([seen([0, 1, 2, 3, 4])], 5, excused=[2, 3]) == Verdict(received=5)
    assert judge([seen([0, 1])], 5, excused=[2, 3]) == Verdict(received=2, lost=1, excused=2)


def test_a_message_that_was_never_sent_is_misrouted() -> None:
    assert judge([seen([0, 1, 2])], 2) == Verdict(received=3, misrouted=1)


def test_a_message_of_another_queue_is_misrouted() -> None:
    part = seen([1, 5, 6, 9], stride=4, first=1)
    assert (part.intervals, part.misrouted) == ([(0, 3)], 1)
    assert seen([0], stride=4, first=1).misrouted == 1


def test_producers_that_take_turns_are_kept_apart() -> None:
    keys = [first_key(p) + s for s in range(50) for p in (0, 7, 1023)]
    runs = received(Ledger(), keys)
    assert {p: arrivals(r, 0, 1).intervals for p, r in runs.items()} == {
        0: [(0, 50)],
        7: [(0, 50)],
        1023: [(0, 50)],
    }


def test_a_foreign_message_is_counted_and_breaks_no_run() -> None:
    ledger = Ledger()
    runs = received(ledger, [first_key(0), 0x6869, first_key(0) + 1])
    assert runs == {0: [(first_key(0), first_key(0) + 2)]}
    assert ledger.foreign == 1


def test_an_untouched_ledger_has_no_runs() -> None:
    ledger = Ledger()
    assert ledger.runs(ledger.expected) == {}


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), max_size=120),
    st.integers(1, 3),
    st.integers(0, 31),
)
def test_the_verdict_agrees_with_a_naive_account(
    deliveries: list[tuple[int, int]], consumers: int, published: int
) -> None:
    """Any deliveries of one producer's messages (consumer, position), judged both ways."""
    streams: list[list[int]] = [[] for _ in range(3)]
    for consumer, position in deliveries:
        streams[consumer % consumers].append(position)
    verdict = judge([seen(stream) for stream in streams], published)
    distinct = {position for stream in streams for position in stream}
    disordered = sum(
        position not in stream[:at] and any(other > position for other in stream[:at])
        for stream in streams
        for at, position in enumerate(stream)
    )
    assert verdict == Verdict(
        received=len(deliveries),
        lost=len(set(range(published)) - distinct),
        duplicated=len(deliveries) - len(distinct),
        disordered=disordered,
        misrouted=len([position for position in distinct if position >= published]),
    )


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)), max_size=40))
def test_coverage_is_a_set_of_integers(spans: list[tuple[int, int]]) -> None:
    coverage = Coverage()
    naive: set[int] = set()
    for start, length in spans:
        span = set(range(start, start + length))
        assert coverage.add(start, start + length) == len(span & naive)
        naive |= span
    assert coverage.size() == len(naive)
    assert {n for a, b in coverage.intervals() for n in range(a, b)} == naive
    assert all(
        end < start
        for (_, end), (start, _) in zip(
            coverage.intervals(), coverage.intervals()[1:], strict=False
        )
    )
    assert all(coverage.holds(n) == (n in naive) for n in range(80))
