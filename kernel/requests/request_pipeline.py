"""The way of a client's commands to the leaders of their Raft groups, for what must be done once.

    client --send(group, attempt, done)--> RequestPipeline --LeaderLink.send--> leader

Every such command has a batch identity (client, epoch, sequence) under which the group executes
it once and answers repeats with the stored result (docs/design/delivery.md#publish). So trying
again belongs here: below the adapters, which never hear of an election or of a connection that
broke, and above the identity, which stays the same. A link that fails has executed a prefix of what
it was given; the request pipeline sends everything that is unanswered again, in the old order, so
that the order of one connection's messages in a queue survives a change of leader; fewer at a time
after each failure, so that every few tries get further.

A leader without room refuses messages; that is an answer, and what follows is carried out once
there is room. If the link fails under it, all is sent again, and the leader refuses once more what
has been overtaken: it knows by the sequences of identities, which rise in the order of what is sent
(`store.first_tries`).

What is not answered within the publish deadline ends with TIMEOUT: executed or not is not known.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import takewhile
from typing import Protocol

from ..common.errors import Code, KernelError
from ..common.ids import RaftGroup
from ..common.limits import PUBLISH_DEADLINE_MS, RESULTS_KEPT_PER_CLIENT
from ..common.ports import Clock
from .leader import Done, Leader

Attempt = Callable[[Leader, Done], None]
"""Puts a command before the leader of its group, always under the same identity."""

Send = Callable[[RaftGroup, Attempt, Done], None]
"""`RequestPipeline.send`, or that of a store which leads every group."""

RETRY_MS_MIN = 10
RETRY_MS_MAX = 1_000
"""Pause before everything unanswered is sent again; doubled by each failure in a row. An election
takes 1.5 s and more (docs/design/replication.md#elections)."""

WINDOW_MAX = RESULTS_KEPT_PER_CLIENT // 2
"""Commands on their way to one group: a repeat must still find its result there."""

AGAIN = frozenset({Code.NOT_LEADER, Code.UNKNOWN_OUTCOME})


class LeaderLink(Protocol):
    """A connection to the leaders."""

    def send(self, group: RaftGroup, attempt: Attempt, answer: Done) -> None:
        """Have the attempt made by the group's leader, after those sent before. `answer` hears its
        result, or a bare KernelError: NOT_LEADER (not executed) or UNKNOWN_OUTCOME (perhaps).

        After a failure nothing of the group that was sent before it was heard is executed any more,
        and each of these fails too.
        """


class Timers(Protocol):
    """What a request pipeline asks of the event loop."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> object:
        """Call back after so many seconds."""


class _Request:
    __slots__ = ("attempt", "deadline_ms", "done", "tries")

    def __init__(self, attempt: Attempt, done: Done, deadline_ms: int) -> None:
        self.attempt = attempt
        self.done = done
        self.deadline_ms = deadline_ms
        self.tries = 0


class _GroupRequests:
    """Commands for one group, oldest first."""

    __slots__ = ("broken", "pause_ms", "sent", "waiting", "window")

    def __init__(self) -> None:
        self.sent: dict[_Request, None] = {}
        """On their way."""
        self.waiting: dict[_Request, None] = {}
        """Behind these."""
        self.window = WINDOW_MAX
        """How many may be on their way: a quarter after a failure, one more with each answer."""
        self.broken = False
        """Waiting before everything is sent again."""
        self.pause_ms = RETRY_MS_MIN

    def forget(self, request: _Request) -> bool:
        """Take a command out; False if it was answered before."""
        known = request in self.sent or request in self.waiting
        self.sent.pop(request, None)
        self.waiting.pop(request, None)
        return known


class RequestPipeline:
    """Carries commands over a link until they are answered."""

    def __init__(self, link: LeaderLink, clock: Clock, timers: Timers) -> None:
        self._link = link
        self._clock = clock
        self._timers = timers
        self._lanes: dict[RaftGroup, _GroupRequests] = {}
        self.failures = 0
        """Times that a link has broken."""

    def send(self, group: RaftGroup, attempt: Attempt, done: Done) -> None:
        """Have a command executed once; `done` hears its results, or (KernelError TIMEOUT,)."""
        lane = self._lanes.setdefault(group, _GroupRequests())
        deadline_ms = self._clock.monotonic_ms() + PUBLISH_DEADLINE_MS
        lane.waiting[_Request(attempt, done, deadline_ms)] = None
        self._carry(group, lane)

    def _carry(self, group: RaftGroup, lane: _GroupRequests) -> None:
        """Send what may be sent."""
        while lane.waiting and not lane.broken and len(lane.sent) < lane.window:
            request = next(iter(lane.waiting))
            del lane.waiting[request]
            lane.sent[request] = None
            request.tries += 1
            answer = partial(self._answered, group, lane, request, request.tries)
            self._link.send(group, request.attempt, answer)

    def _answered(
        self, group: RaftGroup, lane: _GroupRequests, request: _Request, tries: int, result: object
    ) -> None:
        """An answer, perhaps to a try that was thought to have failed."""
        if isinstance(result, KernelError) and result.code in AGAIN:
            if request in lane.sent and tries == request.tries:
                self._broken(group, lane)
        elif lane.forget(request):
            lane.pause_ms = RETRY_MS_MIN
            lane.window = min(lane.window + 1, WINDOW_MAX)
            request.done((result,) if isinstance(result, KernelError) else result)
            self._carry(group, lane)

    def _broken(self, group: RaftGroup, lane: _GroupRequests) -> None:
        if not lane.broken:
            lane.broken = True
            self.failures += 1
            pause_ms, lane.pause_ms = lane.pause_ms, min(2 * lane.pause_ms, RETRY_MS_MAX)
            self._timers.call_later(pause_ms / 1_000, partial(self._again, group, lane))

    def _again(self, group: RaftGroup, lane: _GroupRequests) -> None:
        """Everything is waiting again, but what is too late."""
        # What was sent goes in front: the order of one connection's messages stays as it was.
        lane.waiting = {**lane.sent, **lane.waiting}
        lane.sent = {}
        lane.window = max(1, lane.window // 4)
        lane.broken = False
        now_ms = self._clock.monotonic_ms()
        late = list(takewhile(lambda each: each.deadline_ms <= now_ms, lane.waiting))
        for request in late:
            del lane.waiting[request]
        # Whoever hears of it may send something else at once.
        for request in late:
            error = KernelError(Code.TIMEOUT, "no answer of a leader within the deadline")
            request.done((error,))
        self._carry(group, lane)
