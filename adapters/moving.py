"""Which connections go when clients are asked to use another gateway (`Adapter.move`): common to
all adapters, which differ only in how a client is told.

A client that knows one address comes straight back. It is told so again, but each time later, up to
PAUSE_MS_MAX: it would else do nothing but connect. Others go before it, and operators are told who
it is.

    asked to go -> gone -> (a connection of the same client)  times + 1, asked again after a pause
                           (none for RETURN_MS)               forgotten
"""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    ConsumersByKey = Mapping[Hashable, int]
    """Consumers of one group, by the key whose they are (`ReceiveSpec.consumer_key`)."""

PAUSE_MS_MAX: Final = 60_000
"""Between two times that the same client is asked: as long as the load is left alone after a
move."""

RETURN_MS: Final = 120_000
"""A client that has been away for so long has not come straight back: longer than any pause."""

ASKED_MAX: Final = 100_000
"""Clients that were asked and may come back, about 200 bytes each: the oldest goes first."""

STAYING_TIMES: Final = 2
"""A client that has come back so often knows no other address."""

STAYING_MAX: Final = 8
"""Of those so many are named, the most stubborn first: an operator looks at a few."""

ConnectionT = TypeVar("ConnectionT")


@dataclass(slots=True)
class _Known:
    """An open connection that may be asked."""

    times: int
    """How often its client was asked before, and came straight back."""
    since_ms: int
    """When it was asked last."""


class Moving(Generic[ConnectionT]):
    """Of one adapter. Times are monotonic milliseconds; belongs to the event loop."""

    def __init__(
        self, identity_of: Callable[[ConnectionT], Hashable], name_of: Callable[[ConnectionT], str]
    ) -> None:
        """`identity_of`: the same for the next connection of the same client; `name_of`: for
        people.
        """
        self._identity_of = identity_of
        self._name_of = name_of
        self._known: dict[ConnectionT, _Known] = {}
        self._asked: dict[Hashable, deque[_Known]] = {}
        """What was asked to go, by identity; the one that was first stands first."""
        self._last: list[tuple[int, str]] = []
        """(times it had come back, name) of those that were asked by the last move."""

    def chosen(
        self,
        movable: Iterable[ConnectionT],
        amount: int,
        consumers_by_key: ConsumersByKey | None,
        key_of: Callable[[ConnectionT], Hashable],
        now_ms: int,
    ) -> Iterator[ConnectionT]:
        """So many of those that can be moved, one by one, each asked from now on.
        `consumers_by_key` given:
        those that have such consumers, together `amount` of them at most; a connection with more
        than are still wanted stays, or the same ones would go to and fro.
        """
        self._look(movable, now_ms)
        self._last = []
        ready = [
            (known.times, number, each)
            for number, (each, known) in enumerate(self._known.items())
            if now_ms - known.since_ms >= _pause_ms(known.times)
        ]
        for times, _, each in sorted(ready, key=lambda row: row[:2]):
            if amount <= 0:
                return
            has = 1 if consumers_by_key is None else consumers_by_key.get(key_of(each), 0)
            if 0 < has <= amount:
                amount -= has
                del self._known[each]
                if times >= STAYING_TIMES:
                    self._last.append((times, self._name_of(each)))
                self._remember(self._identity_of(each), _Known(times + 1, now_ms))
                yield each

    def staying(self) -> dict[str, int]:
        """Who keeps coming back, and how often: the most stubborn, as of the last move."""
        found = [
            (known.times, self._name_of(each))
            for each, known in self._known.items()
            if known.times >= STAYING_TIMES
        ]
        return {name: times for times, name in heapq.nlargest(STAYING_MAX, found + self._last)}

    def _look(self, movable: Iterable[ConnectionT], now_ms: int) -> None:
        """Know those that can be moved now, and no others."""
        self._forget(now_ms)
        before = self._known
        self._known = {
            each: before.get(each) or self._returned(self._identity_of(each)) for each in movable
        }

    def _returned(self, identity: Hashable) -> _Known:
        """What is known of a client whose connection is new."""
        earlier = self._asked.get(identity)
        if earlier is None:
            return _Known(0, 0)
        known = earlier.popleft()
        if not earlier:
            del self._asked[identity]
        return known

    def _remember(self, identity: Hashable, known: _Known) -> None:
        # At the end of the dictionary: it is forgotten by its last one.
        earlier = self._asked.pop(identity, None) or deque()
        earlier.append(known)
        self._asked[identity] = earlier
        if len(self._asked) > ASKED_MAX:
            del self._asked[next(iter(self._asked))]

    def _forget(self, now_ms: int) -> None:
        while self._asked:
            identity, earlier = next(iter(self._asked.items()))
            if now_ms - earlier[-1].since_ms < RETURN_MS:
                return
            del self._asked[identity]


def _pause_ms(times: int) -> int:
    """How long a client that has come back so often is left alone: 2 s, 4 s, 8 s, ..."""
    return min(1_000 << times, PAUSE_MS_MAX) if times else 0
