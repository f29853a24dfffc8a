"""Fair pulls: of a queue whose messages name whose they are (their key), nobody's backlog keeps the
others waiting.

    noisy      who has at least NOISY_IN_FLIGHT messages in flight and more than NOISY_SHARE of all,
               or more than NOISY_SHARE of the recent time that consumers have spent; as long as the
               backlog lasts, or until nothing was sent for QUIET_AFTER_MS
    who next   the others, in the order of the queue; if none of them waits, of the noisy ones who
               has fewest in flight

A message without a key is somebody's of whom there is no other, and so never noisy. Nothing is kept
before the first message with a key is handed to a fair pull. What is met of noisy ones stays here,
8 bytes each, and is looked at once. All is transient: the next leader begins with what is in
flight.

Not fair, but plainly in order: queues with priorities, TTLs or limits (see `in_order`), and those
that push consumers take from as well, which wait for dispatch marks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import exp
from typing import TYPE_CHECKING, Final

from ..index.features import Feature
from ..index.run_page import Run
from .ordering_keys import Waiting

if TYPE_CHECKING:
    from ...api.client import ConsumerSpec
    from ..group_state.progress import GroupProgress
    from ..group_state.state import QueueState
    from .delays import Timekeeper
    from .in_order import Fresh
    from .ordering_keys import DispatchRound
    from .ready import Ready

NOISY_IN_FLIGHT: Final = 30
NOISY_SHARE: Final = 0.1
QUIET_AFTER_MS: Final = 5 * 60_000
"""What others who serve queues so document; the page of the protocol says who."""

RECENT_MS: Final = 60_000.0
"""Time spent counts for a third of what it was after so long: a fleet works through a minute's
messages in less, and one slow message is forgotten in a few minutes."""

SPENT_MS_MIN: Final = 30_000.0
"""With less time spent by all consumers together shares say nothing: everybody's first message has
all of it."""

TICK_MS: Final = 100
"""How fine the time is that counts."""

SPENT_MIN: Final = SPENT_MS_MIN * NOISY_SHARE / 10
"""Who has spent less than that, and has nothing in flight, is forgotten."""

SIFT_MAX: Final = 16_384
"""Messages of noisy ones looked at in one turn, at some 0.7 us each, before one is served."""

PARTIES_SLACK: Final = 1_024
"""Keys without anything in flight or waiting that are kept for the time they have cost, beyond as
many as have: 300 bytes each."""

_STEP: Final = 256


class _Spent:
    """Consumers' time, the more recent the more it counts."""

    __slots__ = ("_at_ms", "_spent_ms", "count")

    def __init__(self, now_ms: int) -> None:
        self.count = 0
        """Messages in flight now."""
        self._spent_ms = 0.0
        self._at_ms = now_ms

    def change(self, by: int, now_ms: int) -> None:
        """So many messages more are in flight (hot); what comes within TICK_MS comes at once."""
        if now_ms - self._at_ms >= TICK_MS:
            self._spent_ms = self.spent_ms(now_ms)
            self._at_ms = now_ms
        self.count += by

    def spent_ms(self, now_ms: int) -> float:
        """Time spent up to now."""
        kept = exp((self._at_ms - now_ms) / RECENT_MS) if now_ms > self._at_ms else 1.0
        return self._spent_ms * kept + self.count * RECENT_MS * (1.0 - kept)


class _Party(_Spent):
    """Whose messages have one key."""

    __slots__ = ("is_noisy", "looked_ms", "sent_ms", "waiting")

    def __init__(self, now_ms: int) -> None:
        super().__init__(now_ms)
        self.is_noisy = False
        self.looked_ms = now_ms
        """When its share of the time was looked at last."""
        self.waiting: Waiting | None = None
        """What was met of it while it was noisy."""
        self.sent_ms = 0
        """When the last of that was sent, or when it became noisy."""


class Fairness:
    """Of one dispatcher: as `in_order.InOrder`."""

    def __init__(
        self,
        queue: QueueState,
        progress: GroupProgress,
        ready: Ready,
        time: Timekeeper,
        fresh: Fresh,
        now_ms: Callable[[], int],
        has_push: Callable[[], bool],
    ) -> None:
        """`fresh(count, timed)`: the next ready messages (`Dispatcher._fresh`); `has_push()`:
        whether push consumers take from the queue.
        """
        self._queue = queue
        self._ready = ready
        self._time = time
        self._fresh = fresh
        self._now_ms = now_ms
        self._parties: dict[int, _Party] = {}
        self._noisy: dict[int, _Party] = {}
        self._just_noisy: list[int] = []
        """Keys of those who are so since the last `next`."""
        self._key_of: dict[int, int] = {}
        """Key of each message in flight, 0 included."""
        self._all = _Spent(now_ms())
        self.waiting_count = 0
        self._has_push = has_push
        self._seen_ms = 0
        """All that was sent up to then has been looked at."""
        for offset, lease, _ in progress.kept():
            if lease:
                known = queue.index.head <= offset < queue.index.tail
                key = queue.index.find(offset).value(Feature.KEY, offset) if known else 0
                self._enter(key, offset)

    @property
    def has_free(self) -> bool:
        """Whether a message that is kept here might be handed out."""
        return self.waiting_count > 0

    @property
    def is_needless(self) -> bool:
        """Whether nobody has anything here any more."""
        return not (self._parties or self._key_of or self.waiting_count)

    def blocks(self, _offset: int) -> bool:
        """Nobody's holding keeps others from a message."""
        return False

    # --- In flight --------------------------------------------------------------------------

    def lock(self, _offset: int) -> None:
        """A session holds a message: only what is pulled is counted."""

    def _enter(self, key: int, offset: int) -> None:
        now_ms = self._now_ms()
        self._key_of[offset] = key
        self._all.change(1, now_ms)
        if not key:
            return
        party = self._parties.get(key)
        if party is None:
            party = self._parties[key] = _Party(now_ms)
            self._prune(now_ms)
        party.change(1, now_ms)
        if not party.is_noisy and self._is_noisy(party, now_ms):
            party.is_noisy = True
            party.sent_ms = now_ms
            self._noisy[key] = party
            self._just_noisy.append(key)

    def _is_noisy(self, party: _Party, now_ms: int) -> bool:
        if party.count >= NOISY_IN_FLIGHT and party.count > NOISY_SHARE * self._all.count:
            return True
        if now_ms - party.looked_ms < TICK_MS:
            return False
        party.looked_ms = now_ms
        spent_ms = self._all.spent_ms(now_ms)
        return spent_ms >= SPENT_MS_MIN and party.spent_ms(now_ms) > NOISY_SHARE * spent_ms

    def unlock(self, offsets: Iterable[int]) -> None:
        """Messages are in flight no more."""
        now_ms = self._now_ms()
        for offset in offsets:
            key = self._key_of.pop(offset, None)
            if key is None:
                continue
            self._all.change(-1, now_ms)
            party = self._parties.get(key) if key else None
            if party is not None:
                party.change(-1, now_ms)
                if not (party.count or party.is_noisy) and party.spent_ms(now_ms) < SPENT_MIN:
                    del self._parties[key]

    def put_back(self) -> None:
        """What `next` has brought is not handed out, for it has to be read first: it makes nobody
        noisy. It is unlocked next.
        """
        for key in self._just_noisy:
            party = self._noisy.get(key)
            if party is not None:
                party.looked_ms = 0
                self._calm(key, party)
        self._just_noisy.clear()

    def _prune(self, now_ms: int) -> None:
        """Forget who has nothing here any more, if they are many."""
        if len(self._parties) <= 2 * (len(self._key_of) + len(self._noisy)) + PARTIES_SLACK:
            return
        least_ms = self._all.spent_ms(now_ms) * NOISY_SHARE / 10
        self._parties = {
            key: each
            for key, each in self._parties.items()
            if each.count or each.is_noisy or each.spent_ms(now_ms) > max(least_ms, SPENT_MIN)
        }

    # --- What waits -------------------------------------------------------------------------

    def gather(self) -> None:
        """What is kept here goes back to `Ready`, and nobody is noisy."""
        for key, party in list(self._noisy.items()):
            self._calm(key, party)

    def _calm(self, key: int, party: _Party) -> None:
        del self._noisy[key]
        waiting, party.waiting = party.waiting, None
        party.is_noisy = False
        if not party.count and party.spent_ms(self._now_ms()) < SPENT_MIN:
            self._parties.pop(key, None)
        if waiting is not None:
            self.waiting_count -= len(waiting)
            self._ready.give_back(waiting)

    def forget(self, offset: int) -> bool:
        """A message that was ready again has been acked after all; whether it was kept here."""
        # The index may know it no more. Few are noisy at once: each is by a share of all.
        if not any(each.waiting and each.waiting.discard(offset) for each in self._noisy.values()):
            return False
        self.waiting_count -= 1
        return True

    def purged(self, is_acked: Callable[[int], bool]) -> None:
        """A purge was applied: forget what is acked by now."""
        self._keep(lambda each: not is_acked(each))
        self.unlock([each for each in self._key_of if is_acked(each)])

    def _keep(self, wanted: Callable[[int], bool]) -> int:
        gone = sum(each.waiting.keep(wanted) for each in self._noisy.values() if each.waiting)
        self.waiting_count -= gone
        return gone

    # --- Taking -----------------------------------------------------------------------------

    def next(
        self, _round_robin: DispatchRound, asking: ConsumerSpec, count: int
    ) -> tuple[Run, Sequence[int]] | None:
        """Some of the next up to `count` messages for a consumer, which lie in one run; perhaps
        none, though there are others. None: there is nothing for it.
        """
        if self._just_noisy:
            self._just_noisy.clear()
        timed = asking.lease_ms is not None
        if not (timed and asking.pull and asking.fair and self._may_wait):
            self.gather()
            return self._fresh(count, timed)
        for key, party in list(self._noisy.items()):
            if self._seen_ms - party.sent_ms >= QUIET_AFTER_MS:
                self._calm(key, party)
        looked_at = 0
        while looked_at < SIFT_MAX:
            taken = self._fresh(max(count, _STEP) if self._noisy else count, True)
            if taken is None:
                self._look_at_noisy()
                break
            run, offsets = taken
            self._seen_ms = max(self._seen_ms, run.time_ms)
            looked_at += len(offsets)
            admitted = self._admitted(run, offsets, count)
            if admitted:
                return run, admitted
        return self._noisy_next()

    @property
    def _may_wait(self) -> bool:
        limits = self._queue.topic.options
        is_limited = limits.messages_max is not None or limits.bytes_max is not None
        is_plain = self._ready.levels > 1 or is_limited or self._time.may_expire()
        return not (is_plain or self._has_push())

    def _admitted(self, run: Run, offsets: Sequence[int], count: int) -> list[int]:
        """Those of the quiet ones; the others wait here, or go back if they are too many."""
        admitted: list[int] = []
        noisy = self._noisy
        for at, offset in enumerate(offsets):
            if len(admitted) >= count:
                self._ready.give_back(offsets[at:])
                break
            key = run.value(Feature.KEY, offset)
            party = noisy.get(key) if key else None
            if party is None:
                self._enter(key, offset)
                admitted.append(offset)
                continue
            if party.waiting is None:
                party.waiting = Waiting()
            party.waiting.add(offset)
            party.sent_ms = max(party.sent_ms, run.time_ms)
            self.waiting_count += 1
        return admitted

    def _look_at_noisy(self) -> None:
        """All there is has been looked at: whose backlog is gone is noisy no more."""
        self._seen_ms = self._now_ms()
        for key, party in list(self._noisy.items()):
            if not party.waiting:
                self._calm(key, party)

    def _noisy_next(self) -> tuple[Run, Sequence[int]] | None:
        """The next of whoever has fewest in flight, one message; None if nobody waits."""
        able = [(each.count, key) for key, each in self._noisy.items() if each.waiting]
        if not able:
            return None
        key = min(able)[1]
        waiting = self._noisy[key].waiting
        assert waiting is not None
        offset = waiting.pop()
        self.waiting_count -= 1
        self._enter(key, offset)
        return self._queue.index.find(offset), (offset,)
