"""What was handed out by the last leader is taken out of what is ready, by who claims it."""

from __future__ import annotations

from kernel.broker.delivery.ready import Ready
from kernel.broker.group_state.progress import GroupProgress
from kernel.broker.index.runs import RunIndex


def ready_of(messages: int) -> tuple[Ready, GroupProgress]:
    index, progress = RunIndex(), GroupProgress()
    index.append(1, 0, messages, 1)
    return Ready(index, progress, 1), progress


def test_what_is_claimed_is_not_handed_out_and_the_rest_comes_first_in_its_old_order() -> None:
    ready, _ = ready_of(10)

    assert sorted(ready.claim({1, 4})) == [1, 4]
    assert ready.count == 8
    order: list[int] = []
    while (taken := ready.take(0, 10, 3)) is not None:
        order += taken[1]
    assert order == [0, 2, 3, 5, 6, 7, 8, 9]


def test_what_is_acked_or_somebody_elses_cannot_be_claimed() -> None:
    ready, progress = ready_of(6)
    progress.ack(1, 2)
    ready = Ready(ready._index, progress, 1)
    assert ready.take(0, 6, 1) is not None  # offset 0 is handed out

    assert ready.claim({0, 1, 3}) == [3]
    ready.give_back([3])
    taken = ready.take(0, 6, 6)
    assert taken is not None
    assert list(taken[1]) == [2, 3]
