"""What is asked of leaders to have a window known elsewhere, and what becomes of odd answers."""

from __future__ import annotations

import pytest

from kernel.api.model import QueueRef
from kernel.broker.group_state.deduplication import Seen
from kernel.broker.log_commands import commands
from kernel.broker.log_commands.resize_commands import AddWindow, ReadWindow, Seal, WindowPart
from kernel.common.errors import Code, KernelError
from kernel.common.ids import QueueId, RaftGroup
from kernel.definitions.window_hand_over import TRIES_MAX, WindowHandOver

HERE, THERE = RaftGroup(1), RaftGroup(2)
QUEUE = QueueId(1 << 40)
ROWS: list[Seen] = [(b"%d" % each, each, b"", 0) for each in range(10)]


class Leaders:
    """Of both groups."""

    def __init__(self, *ends: int) -> None:
        """`ends`: where the queue ends, as each question in turn is answered; the last for ever."""
        self.ends = list(ends)
        self.known: list[Seen] = []
        self.asked: list[type] = []
        self.forgets = False

    async def propose(self, group: RaftGroup, command: commands.Control) -> object:
        self.asked.append(type(command))
        if isinstance(command, AddWindow):
            assert group == THERE
            self.known += command.rows
            return len(self.known)
        assert group == HERE
        if isinstance(command, ReadWindow):
            if self.forgets:
                self.forgets = False
                return None
            end = self.ends.pop(0) if len(self.ends) > 1 else self.ends[0]
            rows = ROWS[command.first : command.first + 4]
            return WindowPart(end, len(ROWS) - command.first - len(rows), rows)
        return [10]

    def hand_over(self) -> WindowHandOver:
        return WindowHandOver(self.propose, {QueueRef(QUEUE, HERE): [THERE]})


async def test_what_came_before_is_not_sent_again() -> None:
    leaders = Leaders(-1, -1, -1, 10)
    windows = leaders.hand_over()
    await windows.hand_over()
    await windows.hand_over({QUEUE: 10})
    assert leaders.known == ROWS
    assert leaders.asked.count(ReadWindow) == 4
    assert Seal not in leaders.asked


async def test_a_leader_that_does_not_know_of_seal_has_it_asked_for_again() -> None:
    leaders = Leaders(-1, -1, -1, -1, 10)
    await leaders.hand_over().hand_over({QUEUE: 10})
    assert leaders.known == ROWS
    assert leaders.asked.count(Seal) == 2


async def test_it_is_given_up_if_nobody_knows_of_seal() -> None:
    leaders = Leaders(-1)
    with pytest.raises(KernelError, match="is sealed") as caught:
        await leaders.hand_over().hand_over({QUEUE: 10})
    assert caught.value.code is Code.BUSY
    assert leaders.asked.count(Seal) == TRIES_MAX - 1


async def test_an_answer_that_is_forgotten_is_asked_for_again() -> None:
    leaders = Leaders(10)
    leaders.forgets = True
    await leaders.hand_over().hand_over({QUEUE: 10})
    assert leaders.known == ROWS
