"""Ordering keys of an ordered group: one key's messages go to one holder at a time, in order.

    rule      A message waits while an earlier one of its key is leased, or was given back with a
              delay that lasts; one that was never handed out waits while any is.

So one that comes back (its time is over, or its holder gave it up) is handed out again by itself
although later ones of its key are still held: these stay with their holder, and what nobody has got
yet stays behind all of them. "Handed out" is what the log knows: it was leased for a time, or a
delivery of it came to nothing. What one consumer gets in one round does not keep its next one
waiting. An ack frees its key when it is applied: one that a crash may still take back frees
nothing. Messages without a key (0) are not ordered.

What waits was taken out of `Ready` and is kept here, by key and in order, 8 bytes each: looked at
once, however often its key is freed and blocked again.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, MutableSequence
from heapq import heapify, heappop, heappush

SPENT_MAX = 1_024
"""Places at the front of a key's array that are empty before it is cut."""

STALE_MAX = 1_024
"""Entries of the heap that say nothing any more, beyond one for each key, before it is rebuilt."""

_NOBODY: frozenset[int] = frozenset()


class DispatchRound:
    """What one consumer gets in one round of the dispatcher."""

    __slots__ = ("key", "own")

    def __init__(self) -> None:
        self.key = 0
        """The key that it takes from."""
        self.own: set[int] = set()
        """Offsets that it got although others of their key are leased."""


class Waiting:
    """Offsets that wait, in rising order: most come in it."""

    __slots__ = ("_ahead", "_at", "_back")

    def __init__(self) -> None:
        self._ahead = array("Q")
        """Those that came in their order, from `_at` on."""
        self._at = 0
        self._back: list[int] = []
        """And those that came later than their order, sorted."""

    def __len__(self) -> int:
        return len(self._ahead) - self._at + len(self._back)

    def __iter__(self) -> Iterator[int]:
        yield from self._back
        yield from self._ahead[self._at :]

    @property
    def first(self) -> int:
        """The first offset that waits; to be asked only if one does."""
        ahead, back = self._ahead, self._back
        if not back:
            return ahead[self._at]
        return back[0] if self._at >= len(ahead) else min(back[0], ahead[self._at])

    def add(self, offset: int) -> None:
        """A message of the key waits."""
        ahead = self._ahead
        if self._at >= len(ahead) or offset > ahead[-1]:
            ahead.append(offset)
        else:
            insort(self._back, offset)

    def pop(self) -> int:
        """The first waits no more."""
        first = self.first
        if self._back and self._back[0] == first:
            del self._back[0]
            return first
        self._at += 1
        if self._at > SPENT_MAX and 2 * self._at > len(self._ahead):
            del self._ahead[: self._at]
            self._at = 0
        return first

    def discard(self, offset: int) -> bool:
        """It waits no more, if it did; whether it did."""
        places: tuple[tuple[MutableSequence[int], int], ...] = (
            (self._back, 0),
            (self._ahead, self._at),
        )
        for offsets, start in places:
            at = bisect_left(offsets, offset, start)
            if at < len(offsets) and offsets[at] == offset:
                del offsets[at]
                return True
        return False

    def keep(self, wanted: Callable[[int], bool]) -> int:
        """Forget what is not wanted; how many."""
        before = len(self)
        self._back = [each for each in self._back if wanted(each)]
        self._ahead = array("Q", (each for each in self._ahead[self._at :] if wanted(each)))
        self._at = 0
        return before - len(self)


class _Key(Waiting):
    """One key of which something is leased, or waits."""

    __slots__ = ("dispatch_round", "leased")

    def __init__(self) -> None:
        super().__init__()
        self.leased: set[int] | frozenset[int] = _NOBODY
        self.dispatch_round: DispatchRound | None = None
        """Whose turn has leased all that is leased; others may have, once it is over."""


class Keys:
    """Keys of one (queue, group)."""

    __slots__ = ("_heap", "_key_of", "_keys", "_received", "open_count", "waiting_count")

    def __init__(self, received: Callable[[int], bool]) -> None:
        """`received(offset)`: whether the log knows that somebody got it before."""
        self._received = received
        self._keys: dict[int, _Key] = {}
        self._key_of: dict[int, int] = {}
        """Key of each leased offset: its run may be gone from the index when it is acked."""
        self._heap: list[tuple[int, int]] = []
        """(first offset that waits, key) of those keys from which somebody may take."""
        self.waiting_count = 0
        self.open_count = 0
        """Those of them that wait for nobody of their key."""

    @property
    def has_free(self) -> bool:
        """Whether a message that waits might be taken: False is certain."""
        return bool(self._heap)

    def is_used(self, key: int) -> bool:
        """Whether a message of the key (0: of none) is leased, or waits."""
        return bool(key) and key in self._keys

    def may_take(self, key: int, offset: int, dispatch_round: DispatchRound) -> bool:
        """Whether a message, before which none of its key waits, is for this round's consumer."""
        known = self._keys.get(key) if key else None
        if known is None or not known.leased or known.dispatch_round is dispatch_round:
            return True
        if not self._received(offset):
            return False
        return all(each > offset or each in dispatch_round.own for each in known.leased)

    def admits(self, key: int, offset: int, dispatch_round: DispatchRound) -> bool:
        """Whether a message may be handed out now, which is leased by that; else it waits."""
        known = self._keys.get(key) if key else None
        waits_behind = known is not None and len(known) and known.first < offset
        if waits_behind or not self.may_take(key, offset, dispatch_round):
            self.wait(key, offset)
            return False
        self.lock(key, offset, dispatch_round)
        return True

    # --- Leased -----------------------------------------------------------------------------

    def lock(self, key: int, offset: int, dispatch_round: DispatchRound | None = None) -> None:
        """A message is leased."""
        if not key:
            return
        known = self._keys.get(key)
        if known is None:
            known = self._keys[key] = _Key()
        if not known.leased:
            known.leased, known.dispatch_round = set(), dispatch_round
            self.open_count -= len(known)
        elif dispatch_round is not None and known.dispatch_round is not dispatch_round:
            dispatch_round.own.add(offset)
        assert isinstance(known.leased, set)
        known.leased.add(offset)
        self._key_of[offset] = key

    def free(self, offset: int) -> int:
        """A leased message was acked or came back; the key that may go on by that, or 0."""
        key = self._key_of.pop(offset, 0)
        known = self._keys.get(key) if key else None
        if known is None:
            return 0
        assert isinstance(known.leased, set)
        known.leased.discard(offset)
        if not known.leased:
            known.leased, known.dispatch_round = _NOBODY, None
            self.open_count += len(known)
            if not len(known):
                del self._keys[key]
                return 0
        return key if len(known) else 0

    # --- Waiting ----------------------------------------------------------------------------

    def wait(self, key: int, offset: int) -> None:
        """A ready message, taken out of `Ready`, waits for its turn here."""
        known = self._keys.get(key)
        if known is None:
            known = self._keys[key] = _Key()
        known.add(offset)
        self.waiting_count += 1
        if not known.leased:
            self.open_count += 1
        if known.first == offset:
            self.opened(key)

    def opened(self, key: int) -> None:
        """The key may have messages to take."""
        known = self._keys.get(key)
        if known is not None and len(known) and self._is_free(known):
            if len(self._heap) > len(self._keys) + STALE_MAX:
                self._rebuild()
            heappush(self._heap, (known.first, key))

    def _is_free(self, known: _Key) -> bool:
        """Whether anybody may take the first that waits."""
        if not known.leased:
            return True
        first = known.first
        return self._received(first) and first < min(known.leased)

    def take(
        self, dispatch_round: DispatchRound, count: int, end_of: Callable[[int], int]
    ) -> list[int]:
        """Take, and lease, up to `count` messages of one key that come next, all below `end_of` the
        first of them: of the key that the turn takes from, as long as it has any; else of the one
        whose first message is the oldest.
        """
        key = self._current(dispatch_round)
        if key is None:
            return []
        dispatch_round.key = key
        known = self._keys[key]
        first = known.first
        end = end_of(first)
        taken: list[int] = []
        while len(taken) < count and len(known):
            offset = known.first
            if offset >= end or not self.may_take(key, offset, dispatch_round):
                break
            self._drop_first(known)
            self.lock(key, offset, dispatch_round)
            taken.append(offset)
        if not len(known) and not known.leased:
            del self._keys[key]
        elif not key:
            self.opened(key)
        return taken

    def _current(self, dispatch_round: DispatchRound) -> int | None:
        known = self._keys.get(dispatch_round.key) if dispatch_round.key else None
        if (
            known is not None
            and len(known)
            and self.may_take(dispatch_round.key, known.first, dispatch_round)
        ):
            return dispatch_round.key
        heap = self._heap
        while heap:
            offset, key = heappop(heap)
            known = self._keys.get(key)
            if known is not None and len(known) and known.first == offset and self._is_free(known):
                return key
        return None

    def _drop_first(self, known: _Key) -> None:
        known.pop()
        self.waiting_count -= 1
        self.open_count -= not known.leased

    def give_up(self, key: int) -> list[int]:
        """What waits of a key and may be taken is kept here no more."""
        known = self._keys.get(key)
        given: list[int] = []
        while known is not None and len(known) and self._is_free(known):
            given.append(known.first)
            self._drop_first(known)
        if known is not None and not len(known) and not known.leased:
            del self._keys[key]
        return given

    def give_up_all(self) -> list[int]:
        """What waits and may be taken is kept here no more."""
        heap, self._heap = self._heap, []
        keys = dict.fromkeys(key for _, key in heap)
        return [offset for key in keys for offset in self.give_up(key)]

    def forget(self, key: int, offset: int) -> bool:
        """A message that may wait here is done with; whether it did."""
        known = self._keys.get(key)
        if known is None or not known.discard(offset):
            return False
        self.waiting_count -= 1
        self.open_count -= not known.leased
        if not len(known) and not known.leased:
            del self._keys[key]
        else:
            self.opened(key)
        return True

    def forget_gone(self, offset: int) -> bool:
        """The same of one whose run is gone from the index, so that nobody can tell its key."""
        return any(self.forget(key, offset) for key in list(self._keys))

    def purge(self, is_acked: Callable[[int], bool]) -> list[int]:
        """Forget messages that were acked; the keys that may go on by that."""
        for key, known in list(self._keys.items()):
            self._keep(known, lambda each: not is_acked(each))
            if not len(known) and not known.leased:
                del self._keys[key]
        # What is below zero is no offset of this queue (`InOrder.hold`).
        own = [each for each in self._key_of if each >= 0]
        keys = [self.free(each) for each in own if is_acked(each)]
        self._rebuild()
        return [key for key in keys if key]

    def _keep(self, known: _Key, wanted: Callable[[int], bool]) -> int:
        gone = known.keep(wanted)
        self.waiting_count -= gone
        if not known.leased:
            self.open_count -= gone
        return gone

    def _rebuild(self) -> None:
        self._heap = [
            (known.first, key)
            for key, known in self._keys.items()
            if len(known) and self._is_free(known)
        ]
        heapify(self._heap)
