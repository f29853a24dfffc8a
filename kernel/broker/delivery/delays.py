"""Time, for one (queue, group): what is delayed, leased until, or expires.

In the leader's memory only: rebuilt from the state by a new leader. Log time only. A lease or delay
that has ended becomes a CHANGE command, an expired message a dead letter; the dispatcher hears of
both when they are applied.

A TTL of 0, *at once*, is no matter of the clock: however long the log took, whoever waits for the
message gets it. It has expired as soon as the dispatcher had nobody to give it to: at once if the
group has no consumers, and else AT_ONCE_WAIT_MS later, since consumers of whole batches ask for
more only behind what they were handed. One that came back has had its chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...api.client import LeaseVerb
from ...api.message import TTL_AT_ONCE
from ...api.model import Reason
from ..group_state.progress import GroupProgress
from ..group_state.state import QueueState
from ..index.features import Feature
from ..index.run_page import Run
from ..log_commands.commands import Change
from .due_times import Buckets
from .ready import Ready

AT_ONCE_WAIT_MS = 20
"""A consumer's next request is a turn of its event loop away, in a cluster a round trip."""


class Timekeeper:
    """Looks after the deadlines of one (queue, group)."""

    __slots__ = (
        "_asked",
        "_cancel_wake",
        "_delays",
        "_drop",
        "_leases",
        "_missed",
        "_now_ms",
        "_progress",
        "_queue",
        "_ready",
        "_sifted",
        "_wake",
        "_wake_at_ms",
    )

    def __init__(
        self,
        queue: QueueState,
        progress: GroupProgress,
        ready: Ready,
        now_ms: Callable[[], int],
        wake: Callable[[int], Callable[[], None]],
        drop: Callable[[Sequence[int]], None],
    ) -> None:
        """`wake(delay_ms)` has `Dispatcher.woken` called, and returns what takes that back;
        `drop(offsets)` dead-letters expired messages.
        """
        self._queue = queue
        self._progress = progress
        self._ready = ready
        self._now_ms = now_ms
        self._wake = wake
        self._drop = drop
        self._leases = Buckets()
        """When what a lease or delay in the log keeps back is due; see `GroupProgress.kept`."""
        self._delays = Buckets()
        """When what `Ready` withholds is due."""
        self._wake_at_ms: int | None = None
        self._cancel_wake: Callable[[], None] | None = None
        self._sifted = progress.floor
        self._missed = queue.index.tail
        """Below it messages whose TTL is 0 have found nobody."""
        self._asked: tuple[int, int] | None = None
        """(tail then, when that is to be `_missed`): consumers are there, and ask for nothing."""
        for offset, _lease, deadline_ms in progress.kept():
            self._leases.add(offset, deadline_ms)
        self.sift_delayed()

    def add(self, offset: int, due_ms: int) -> None:
        """A lease or delay of a message, in the log, ends at a log time."""
        self._leases.add(offset, due_ms)

    def woken(self) -> None:
        """A wake-up has come (perhaps early: clocks differ, or others asked for it); ask anew. One
        is under way at most: else each would ask for its like, and they would only get more.
        """
        self._wake_at_ms = None
        if self._cancel_wake is not None:
            self._cancel_wake()
            self._cancel_wake = None

    def sift_delayed(self) -> None:
        """Keep back the messages among the new ones that are not due."""
        index = self._queue.index
        if not index.delays:
            self._sifted = index.tail
            return
        at, self._sifted = max(self._sifted, index.head), index.tail
        now = self._now_ms()
        while at < index.tail:
            run = index.find(at)
            if run.features & Feature.DELAY:
                for offset in range(at, run.end):
                    due_ms = run.time_ms + run.value(Feature.DELAY, offset)
                    if due_ms > now and not self._progress.is_acked(offset):
                        self._ready.withhold(offset)
                        self._delays.add(offset, due_ms)
            at = run.end

    def _deadline_ms(self, run: Run, offset: int) -> int | None:
        """Log time at which a message expires; None: never, or that is not settled yet."""
        ttl = run.value(Feature.LONG_TTL, offset) or run.value(Feature.TTL, offset)
        topic_ttl = self._queue.topic.options.message_ttl_ms
        if ttl == TTL_AT_ONCE or topic_ttl == 0:
            is_late = offset < self._missed or self._progress.failures(offset)
            return run.time_ms if is_late else None
        if topic_ttl is not None:
            ttl = min(ttl, topic_ttl) if ttl else topic_ttl
        elif not ttl:
            return None
        return run.time_ms + ttl

    def handed_out(self, *, is_wanted: bool, has_consumers: bool) -> None:
        """The dispatcher has handed out what it could. `is_wanted`: there are consumers that would
        take more; `has_consumers`: there are some that may ask for more.
        """
        tail = self._queue.index.tail
        if is_wanted:
            self._asked = None
        elif not has_consumers or not self._ready.may_have():
            self._missed, self._asked = tail, None
        else:
            now = self._now_ms()
            if self._asked is not None and self._asked[1] <= now:
                self._missed, self._asked = self._asked[0], None
            if self._asked is None and self._missed < tail:
                self._asked = (tail, now + AT_ONCE_WAIT_MS)

    def drop_expired(self, run: Run, offsets: Sequence[int]) -> Sequence[int]:
        """Dead-letter those of the messages that have expired; the others."""
        now = self._now_ms()
        fresh: list[int] = []
        expired: list[int] = []
        for offset in offsets:
            deadline = self._deadline_ms(run, offset)
            (expired if deadline is not None and deadline <= now else fresh).append(offset)
        if expired:
            self._drop(expired)
        return fresh

    def _expire(self) -> int | None:
        """Drop expired messages from the front of each level; when the next is due."""
        now = self._now_ms()
        next_ms: int | None = None
        for level in range(self._ready.levels):
            while (front := self._ready.peek(level)) is not None:
                run, offset = front
                deadline = self._deadline_ms(run, offset)
                if deadline is not None and deadline > now:
                    next_ms = deadline if next_ms is None else min(next_ms, deadline)
                if deadline is None or deadline > now:
                    break
                self._ready.skip(level)
                self._drop((offset,))
        return next_ms

    def ended(self, is_last_attempt: Callable[[int], bool]) -> list[Change]:
        """Let go of the messages that are due; the changes that end leases and delays which are
        in the log.
        """
        now = self._now_ms()
        changes: list[Change] = []
        for offset in self._delays.due(now):
            self._ready.admit(offset)
        for offset in self._leases.due(now):
            holder = self._progress.holder(offset)
            if holder is None or not holder[2] or holder[1] > now:
                continue
            verb = LeaseVerb.RETURN if not holder[0] else LeaseVerb.RELEASE
            if verb is LeaseVerb.RELEASE and is_last_attempt(offset):
                verb = LeaseVerb.DEAD_LETTER
            changes.append((offset, holder[0], verb, Reason.ATTEMPTS, 0, 0))
        return changes

    def schedule(self) -> None:
        """Drop what has expired, and deadlines that no longer hold if there are many; be woken when
        the next message is due or expires.
        """
        progress = self._progress
        self._leases.sweep(progress.leased + progress.hidden, self._holds)
        self._delays.sweep(self._ready.withheld_count, self._is_withheld)
        expires_ms = self._expire() if self.may_expire() else None
        asked_ms = self._asked[1] if self._asked is not None else None
        if asked_ms is not None and asked_ms <= self._now_ms():
            asked_ms = None  # looked at by the next `handed_out`, which something else holds up
        dues = [self._leases.next_ms(), self._delays.next_ms(), expires_ms, asked_ms]
        due_ms = min((each for each in dues if each is not None), default=None)
        if due_ms is not None and (self._wake_at_ms is None or due_ms < self._wake_at_ms):
            self.woken()
            self._wake_at_ms = due_ms
            self._cancel_wake = self._wake(max(1, due_ms - self._now_ms()))

    def stop(self) -> None:
        """Be woken no more."""
        self.woken()

    def _holds(self, offset: int, bucket: int) -> bool:
        """Whether a lease or delay in the log ends when an entry of `_leases` says."""
        holder = self._progress.holder(offset)
        return holder is not None and holder[2] and self._leases.bucket_of(holder[1]) == bucket

    def _is_withheld(self, offset: int, _bucket: int) -> bool:
        return self._ready.is_withheld(offset)

    @property
    def deadline_count(self) -> int:
        """Deadlines kept, those that no longer hold included."""
        return len(self._leases) + len(self._delays)

    def may_expire(self) -> bool:
        """Whether anything here could have a TTL."""
        return self._queue.index.ttls or self._queue.topic.options.message_ttl_ms is not None
