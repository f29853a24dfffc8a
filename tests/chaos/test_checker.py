"""The checker on histories made by hand: a good one passes, and each mutant of it is found."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.chaos.checker import Promise, around, check, pauses, retried
from tests.chaos.history import Acked, Down, Event, Fault, Got, Note, Sent, key_of, read, spell

GRACE = 5.0
PLAIN = {"lane": Promise()}
BLOCKING = {"lane": Promise(blocking=True)}
ONCE = {"lane": Promise(stored_once=True)}
EXACT = {"lane": Promise(stored_once=True, comes_once=True)}


def sent(number: int, at: float, outcome: str = "ok", copies: int = 1, key: int = 0) -> Sent:
    return Sent("lane", f"lane/{key}/{number}", at, at + 0.1, outcome, copies)  # type: ignore[arg-type]


def got(
    number: int, at: float, *, marked: bool = False, link: int = 0, until: float = 0, key: int = 0
) -> Got:
    return Got("lane", f"lane/{key}/{number}", at, marked, link, until)


def acked(number: int, at: float, *, sure: bool = True) -> Acked:
    return Acked("lane", f"lane/0/{number}", at, at + 0.1, sure)


def down(at: float, link: int = 0) -> Down:
    return Down("lane", link, at)


def rules(history: list[Event], promises: dict[str, Promise] = PLAIN) -> set[str]:
    return {each.rule for each in check(history, promises, GRACE)}


GOOD: list[Event] = [
    sent(0, 0),
    got(0, 0.5, until=10),
    acked(0, 0.6),
    sent(1, 1, "unknown"),
    Fault("kill", 1, 2),
    sent(1, 1.5),
    got(1, 2, until=12),
    got(1, 2, until=12),  # both attempts were stored
    acked(1, 2.1),
    sent(2, 3, "refused"),
    sent(2, 3.2),
    got(2, 3.5, until=13),
    Note("lane", 3.6, "hello"),
    down(4),
    got(2, 20, marked=True, link=1, until=30),  # its lease ended
    acked(2, 20.1),
    sent(0, 30, key=1),
    got(0, 30.5, key=1),
    sent(1, 31, "unknown", key=1),  # never answered, never came
]


def test_a_good_history_passes() -> None:
    assert check(GOOD, PLAIN, GRACE) == []
    assert check(GOOD[:3], EXACT, GRACE) == []


MUTANTS: dict[str, tuple[str, Callable[[], list[Event]]]] = {
    "a message that was answered never comes": ("lost", lambda: [sent(0, 0)]),
    "one of two answered ones never comes": (
        "lost",
        lambda: [sent(0, 0), sent(1, 1), got(1, 2)],
    ),
    "an answer after an unknown attempt is an answer": (
        "lost",
        lambda: [sent(0, 0, "unknown"), sent(0, 1)],
    ),
    "what nobody sent comes": ("unsent", lambda: [got(7, 1)]),
    "what was refused comes": ("unsent", lambda: [sent(0, 0, "refused"), got(0, 1)]),
    "a copy without a mark": ("copied", lambda: [sent(0, 0), got(0, 1), got(0, 2)]),
    "a copy without a mark after a failover": (
        "copied",
        lambda: [sent(0, 0), got(0, 1), Fault("kill", 1.1, 2), got(0, 3)],
    ),
    "three copies of two attempts": (
        "copied",
        lambda: [sent(0, 0, "unknown"), sent(0, 1), got(0, 2), got(0, 2), got(0, 2)],
    ),
    "a refused attempt counts as a copy": (
        "copied",
        lambda: [sent(0, 0, "refused"), sent(0, 1), got(0, 2), got(0, 2)],
    ),
    "marked for no reason": ("unexplained", lambda: [sent(0, 0), got(0, 1, marked=True)]),
    "again while the lease holds": (
        "unexplained",
        lambda: [sent(0, 0), got(0, 1, until=10), got(0, 5, marked=True, until=14)],
    ),
    "again long after a fault, on a link that lives": (
        "unexplained",
        lambda: [sent(0, 0), Fault("kill", 0, 1), got(0, 1), got(0, 20, marked=True)],
    ),
    "another link's end is no cause before the first coming": (
        "unexplained",
        lambda: [down(0, link=7), sent(0, 1), got(0, 2), got(0, 3, marked=True)],
    ),
    "acked for sure, comes again at the lease's end": (
        "undone",
        lambda: [
            sent(0, 0),
            got(0, 1, until=10),
            acked(0, 2),
            got(0, 11, marked=True, until=20),
        ],
    ),
    "acked for sure, comes again after a failover": (
        "undone",
        lambda: [
            sent(0, 0),
            got(0, 1),
            acked(0, 2),
            Fault("kill", 3, 4),
            got(0, 5, marked=True),
        ],
    ),
    "two out of order": ("order", lambda: [sent(0, 0), sent(1, 1), got(1, 2), got(0, 3)]),
    "one late after a failover": (
        "order",
        lambda: [
            *(sent(number, number) for number in range(3)),
            got(0, 3),
            Fault("kill", 3, 4),
            got(2, 5),
            got(1, 6),
        ],
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_each_mutant_is_found(name: str) -> None:
    rule, history = MUTANTS[name]
    assert rule in rules(history())


def test_an_ack_that_nobody_answered_may_be_undone_by_a_failover() -> None:
    history: list[Event] = [
        sent(0, 0),
        got(0, 1),
        acked(0, 2, sure=False),
        Fault("kill", 3, 4),
        got(0, 5, marked=True),
    ]
    assert rules(history) == set()


def test_an_ack_answered_after_the_lease_proves_nothing() -> None:
    history: list[Event] = [
        sent(0, 0),
        got(0, 1, until=10),
        acked(0, 10),
        got(0, 10.5, marked=True, until=20),
    ]
    assert rules(history) == set()


def test_one_sure_ack_of_two_copies_leaves_the_other() -> None:
    history: list[Event] = [
        sent(0, 0, "unknown"),
        sent(0, 1),
        got(0, 2),
        acked(0, 2.1),
        got(0, 3),
        acked(0, 3.1),
    ]
    assert rules(history) == set()
    assert rules([*history, got(0, 4)]) == {"copied", "undone"}


def test_a_library_that_repeats_by_itself_is_believed() -> None:
    assert rules([sent(0, 0, copies=2), got(0, 1), got(0, 1)]) == set()


def test_what_is_stored_once_comes_unmarked_once() -> None:
    history: list[Event] = [sent(0, 0, "unknown"), sent(0, 1), got(0, 2), got(0, 3)]
    assert rules(history) == set()
    assert rules(history, ONCE) == {"copied"}


def test_what_comes_once_never_comes_marked_either() -> None:
    history: list[Event] = [sent(0, 0), got(0, 1), down(2), got(0, 3, marked=True)]
    assert rules(history, ONCE) == set()
    assert rules(history, EXACT) == {"copied"}


def test_a_blocking_key_waits_for_the_ack() -> None:
    history: list[Event] = [sent(0, 0), sent(1, 1), got(0, 2, until=9), got(1, 3, until=9)]
    assert rules(history, BLOCKING) == {"overtaken"}
    assert rules([*history, acked(0, 2.5, sure=False)], BLOCKING) == set()
    assert rules([*history, acked(0, 3.5)], BLOCKING) == {"overtaken"}


def test_a_run_of_a_blocking_key_comes_together() -> None:
    history: list[Event] = [sent(0, 0), sent(1, 1), got(0, 2, until=9), got(1, 2, until=9)]
    assert rules(history, BLOCKING) == set()


def test_a_returned_message_may_be_late_where_that_is_allowed() -> None:
    late = {"lane": Promise(late_returns=True)}
    history: list[Event] = [sent(0, 0), sent(1, 1), down(1.5), got(1, 2)]
    assert rules([*history, got(0, 3, marked=True)]) == {"order"}
    assert rules([*history, got(0, 3, marked=True)], late) == set()
    assert rules([*history, got(0, 3)], late) == set(), "its consumer never saw it"


@pytest.mark.parametrize("ended", [-0.5, 3.5])
def test_a_message_that_no_consumer_can_have_lost_is_not_late(ended: float) -> None:
    late = {"lane": Promise(late_returns=True)}
    history: list[Event] = [sent(0, 0), sent(1, 1), down(ended), got(1, 2), got(0, 3)]
    assert rules(history, late) == {"order"}


def test_order_is_of_one_key() -> None:
    history: list[Event] = [sent(0, 0), sent(1, 1), sent(0, 0, key=1), got(0, 2), got(1, 3)]
    assert rules([*history, got(0, 4, key=1)]) == set()


def test_messages_without_a_key_have_no_order() -> None:
    history: list[Event] = [sent(0, 0), sent(1, 1), got(1, 2), got(0, 3)]
    assert rules(history, {"lane": Promise()}) == {"order"}
    assert rules(history, {"lane": Promise(unordered=True)}) == set()


def test_second_retries_are_found_within_their_time() -> None:
    history: list[Event] = [sent(0, 1, "unknown"), sent(0, 2, "refused"), sent(0, 3)]
    assert [each.ident for each in retried(history, 0, 10)] == ["lane/0/0"]
    assert retried(history, 2, 10) == []
    assert retried(history[1:], 0, 10) == []


def test_the_longest_pause_is_seen_at_both_ends_and_between() -> None:
    history: list[Event] = [sent(0, 1), sent(1, 3, "unknown"), sent(1, 5)]
    assert pauses(history, ["lane"], 0, 6) == {"lane": pytest.approx(4.0)}
    assert pauses(history, ["lane"], 0, 20) == {"lane": pytest.approx(14.9)}
    assert pauses([], ["lane"], 2, 5) == {"lane": 3}


def test_what_is_told_of_a_message_holds_its_neighbours_links_and_faults() -> None:
    told = around(GOOD, "lane/0/1")
    assert {getattr(each, "ident", "") for each in told} == {
        "",
        "lane/0/0",
        "lane/0/1",
        "lane/0/2",
    }
    assert any(isinstance(each, Fault) for each in told)
    assert around(GOOD, "lane/9/9") == []


def test_events_are_lines_that_read_back() -> None:
    for event in GOOD:
        line = spell(event)
        assert line.endswith(b"\n")
        assert read(line) == event
    assert key_of("lane/2/17") == ("lane/2", 17)
