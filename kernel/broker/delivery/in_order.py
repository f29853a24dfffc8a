"""Taking messages for a dispatcher of an ordered group: by the rule of `ordering_keys`.

Who holds messages for a session gets them in the order of their coming. A pull with a time gets as
many as it may of one key first, then of the next: so it blocks no more keys than it must. For that
LOOK_AHEAD messages that nobody keeps waiting are looked at ahead of what is handed out, and stay
here, by key, until their turn comes: each is looked at once.

Messages with priorities or a TTL, and those of topics that may hold only so many, are not looked at
ahead: `Ready` alone knows who comes first, has expired, or is one too many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from ...api.client import ConsumerSpec
from ..group_state.progress import GroupProgress
from ..group_state.state import QueueState
from ..index.features import Feature
from ..index.run_page import Run
from .delays import Timekeeper
from .ordering_keys import DispatchRound, Keys
from .ready import Ready

LOOK_AHEAD = 2_048
"""Enough to fill a batch of ten from the first of 200 keys whose messages come in turn; some 3 ms
for the first pull, and up to 0.5 MB of memory if every message has a key of its own."""

SIFT_MAX = 16_384
"""Messages looked at in one turn if none may be handed out, at some 0.7 us each: the loop goes on
with other work in between. A pull that does not wait comes back without any then; the next one goes
on from there."""

_STEP = 256
"""Taken out of `Ready` at once."""

Fresh = Callable[[int, bool], "tuple[Run, Sequence[int]] | None"]


class InOrder:
    """Takes the messages of one dispatcher by ordering key."""

    __slots__ = ("_fresh", "_keys", "_queue", "_ready", "_soon", "_time")

    def __init__(
        self,
        queue: QueueState,
        progress: GroupProgress,
        ready: Ready,
        time: Timekeeper,
        fresh: Fresh,
        soon: Callable[[], object],
    ) -> None:
        """`fresh(count, timed)`: the next ready messages (`Dispatcher._fresh`); `soon()` has the
        dispatcher go on in a later turn.
        """
        self._queue = queue
        self._ready = ready
        self._time = time
        self._fresh = fresh
        self._soon = soon

        def received(offset: int) -> bool:
            return progress.failures(offset) > 0 or progress.holder(offset) is not None

        self._keys = Keys(received)
        for offset, _lease, _until in progress.kept():
            self.lock(offset)

    @property
    def _looks_ahead(self) -> bool:
        limits = self._queue.topic.options
        is_limited = limits.messages_max is not None or limits.bytes_max is not None
        return not (self._ready.levels > 1 or is_limited or self._time.may_expire())

    @property
    def waiting_count(self) -> int:
        """Ready messages that are kept here, behind a blocked key or not."""
        return self._keys.waiting_count

    @property
    def has_free(self) -> bool:
        """Whether a message that is kept here might be handed out: False is certain."""
        return self._keys.has_free

    @property
    def is_needless(self) -> bool:
        """Whether nothing would be lost with it: an ordered group is one for ever."""
        return False

    def blocks(self, offset: int) -> bool:
        """Whether somebody else holds the ordering key of a message."""
        return self._keys.is_used(self._key_of(offset))

    def _key_of(self, offset: int) -> int:
        return self._queue.index.find(offset).value(Feature.KEY, offset)

    # --- Leased -----------------------------------------------------------------------------

    def lock(self, offset: int) -> None:
        """A message is leased."""
        self._keys.lock(self._key_of(offset), offset)

    def hold(self, key_of: Mapping[int, int]) -> None:
        """Messages of another queue, which this one has to wait for, are unsettled: the key of each
        by a token, which is below every offset.
        """
        for token, key in key_of.items():
            self._keys.lock(key, token)

    def unlock(self, offsets: Iterable[int]) -> None:
        """Messages are leased no more: others of their keys may be ready by that."""
        for offset in offsets:
            key = self._keys.free(offset)
            if key:
                self._go_on(key)

    def _go_on(self, key: int) -> None:
        if self._looks_ahead:
            self._keys.opened(key)
        else:
            self._ready.give_back(self._keys.give_up(key))

    def forget(self, offset: int) -> bool:
        """A message that was ready again has been acked after all; whether it was kept here."""
        if not self._keys.waiting_count:
            return False
        if offset < self._queue.index.head:
            return self._keys.forget_gone(offset)
        return self._keys.forget(self._key_of(offset), offset)

    def purged(self, is_acked: Callable[[int], bool]) -> None:
        """A purge was applied: forget what is acked by now."""
        for key in self._keys.purge(is_acked):
            self._go_on(key)

    # --- Taking -----------------------------------------------------------------------------

    def gather(self) -> None:
        """What was looked at ahead goes back to `Ready`: somebody wants it in its order."""
        if self._keys.has_free:
            self._ready.give_back(self._keys.give_up_all())

    def next(
        self, dispatch_round: DispatchRound, asking: ConsumerSpec, count: int
    ) -> tuple[Run, Sequence[int]] | None:
        """Some of the next up to `count` messages for a consumer, which lie in one run; perhaps
        none, though there are others. None: there is nothing for it.
        """
        timed = asking.lease_ms is not None
        if timed and asking.pull and self._looks_ahead:
            return self._next_of_key(dispatch_round, count)
        self.gather()
        taken = self._fresh(count, timed)
        if taken is None:
            return None
        run, offsets = taken
        return run, self._admitted(run, offsets, dispatch_round, count)

    def _admitted(
        self, run: Run, offsets: Sequence[int], dispatch_round: DispatchRound, count: int
    ) -> Sequence[int]:
        """Those that may be handed out, up to `count`; others wait here, or go back if they are too
        many.
        """
        admitted: list[int] = []
        for at, offset in enumerate(offsets):
            if len(admitted) >= count:
                self._ready.give_back(offsets[at:])
                break
            if self._keys.admits(run.value(Feature.KEY, offset), offset, dispatch_round):
                admitted.append(offset)
        return admitted

    def _next_of_key(
        self, dispatch_round: DispatchRound, count: int
    ) -> tuple[Run, Sequence[int]] | None:
        if not dispatch_round.key:
            self._look_ahead()
        found: list[Run] = []

        def end_of(offset: int) -> int:
            found.append(self._queue.index.find(offset))
            return found[0].end

        taken = self._keys.take(dispatch_round, count, end_of)
        return (found[0], taken) if taken else None

    def _look_ahead(self) -> None:
        keys, looked_at = self._keys, 0
        while keys.open_count < LOOK_AHEAD:
            if looked_at >= (LOOK_AHEAD if keys.open_count else SIFT_MAX):
                if not keys.open_count:
                    self._soon()
                return
            taken = self._fresh(_STEP, True)
            if taken is None:
                return
            run, offsets = taken
            looked_at += len(offsets)
            for offset in offsets:
                keys.wait(run.value(Feature.KEY, offset), offset)
