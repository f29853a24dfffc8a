r"""A link of a store's own client: to groups that are led here straight to their leader, to others
over the connections to other stores.

    request pipeline -> MixedLink -> LocalLeader              (served here)
                        \-> RemoteLeader -> store    (led elsewhere)

When leadership moves while something is unanswered, what is sent the new way could overtake it. So
that fails, unsent, and the request pipeline sends everything again in the old order
(`request_pipeline.LeaderLink`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from ...common.errors import Code, KernelError
from ...common.ids import RaftGroup
from ...requests.leader import Done, Leader
from ...requests.request_pipeline import Attempt


class Here(Protocol):
    """What is asked of the store (`store.node.Store`)."""

    def serving(self, group: RaftGroup) -> Leader | None:
        """The leader of a group, if it serves from here."""


class _Way:
    """Where commands for one group go."""

    __slots__ = ("failing", "leader", "number", "unanswered")

    def __init__(self) -> None:
        self.leader: Leader | None = None
        self.number = 0
        """Rises with each change of the way: what is heard of an earlier one does not count."""
        self.unanswered = 0
        self.failing: list[Done] = []
        """They will hear in a later turn that they were not sent."""


class MixedLink:
    """Sends calls to leaders here and in other stores (`request_pipeline.Link`)."""

    def __init__(
        self,
        here: Here,
        there: Callable[[RaftGroup], Leader],
        soon: Callable[[Callable[[], None]], object],
    ) -> None:
        """`there`: leaders in other stores; `soon(action)` calls it in a later turn of the loop."""
        self._here = here
        self._there = there
        self._soon = soon
        self._ways: dict[RaftGroup, _Way] = {}

    def send(self, group: RaftGroup, attempt: Attempt, answer: Done) -> None:
        """Have the attempt made by the group's leader, wherever it is (hot)."""
        way = self._ways.setdefault(group, _Way())
        leader = self._here.serving(group) or self._there(group)
        if way.failing:
            way.failing.append(answer)
        elif leader is not way.leader and way.unanswered:
            way.failing.append(answer)
            self._soon(partial(self._fail, way))
        else:
            way.leader = leader
            way.unanswered += 1
            attempt(leader, partial(_heard, way, way.number, answer))

    @staticmethod
    def _fail(way: _Way) -> None:
        failing, way.failing = way.failing, []
        way.number += 1
        way.unanswered = 0
        for answer in failing:
            answer(KernelError(Code.NOT_LEADER, "another store leads the group"))


def _heard(way: _Way, number: int, answer: Done, result: object) -> None:
    if number == way.number:
        way.unanswered -= 1
    answer(result)
