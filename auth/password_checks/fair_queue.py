"""A bounded queue in which nobody waits for a crowd: turns go round the sources, and within a
source round its users.

When it is full, who has most in it loses what came last: a flood meets the limit that it has
caused, and whoever comes alone gets in. Sources under suspicion wait behind the others, but for one
turn in `SUSPECT_TURNS`. Sans-I/O.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

SUSPECT_TURNS = 4
"""Of so many turns one goes to who is under suspicion, if both wait: behind one address there may
be an office, and one program with a wrong password in it."""

_Item = TypeVar("_Item")


class FairQueue(Generic[_Item]):
    """Not thread-safe: belongs to the event loop."""

    def __init__(self) -> None:
        self._lanes: tuple[_Lane[_Item], _Lane[_Item]] = (_Lane(), _Lane())
        """Of the others, and of who is under suspicion."""
        self._round_robin = 0

    def __len__(self) -> int:
        return self._lanes[0].size + self._lanes[1].size

    def push(self, source: str, user: str, item: _Item, *, is_suspect: bool = False) -> None:
        """To the end of a user's own line."""
        self._lanes[is_suspect].push(source, user, item)

    def pop(self) -> _Item:
        """Whose turn it is. Raises IndexError if nobody waits."""
        self._round_robin += 1
        first = self._round_robin % SUSPECT_TURNS == 0
        lane = self._lanes[first] if self._lanes[first].size else self._lanes[not first]
        return lane.pop()

    def drop(self) -> _Item:
        """What has to go if one has to. Raises IndexError if nobody waits."""
        suspects = self._lanes[1]
        return (suspects if suspects.size else self._lanes[0]).drop()


class _Lane(Generic[_Item]):
    """Sources by whose turn is next, each with its users by whose turn is next."""

    def __init__(self) -> None:
        self.size = 0
        self._sources: dict[str, dict[str, deque[_Item]]] = {}

    def push(self, source: str, user: str, item: _Item) -> None:
        self._sources.setdefault(source, {}).setdefault(user, deque()).append(item)
        self.size += 1

    def pop(self) -> _Item:
        if not self.size:
            raise IndexError
        source = next(iter(self._sources))
        users = self._sources.pop(source)
        user = next(iter(users))
        line = users.pop(user)
        item = line.popleft()
        if line:
            users[user] = line
        if users:
            self._sources[source] = users
        self.size -= 1
        return item

    def drop(self) -> _Item:
        if not self.size:
            raise IndexError
        # The last of those that have equally many: who came last.
        source = max(reversed(self._sources), key=lambda each: _count(self._sources[each]))
        users = self._sources[source]
        user = max(reversed(users), key=lambda each: len(users[each]))
        item = users[user].pop()
        if not users[user]:
            del users[user]
        if not users:
            del self._sources[source]
        self.size -= 1
        return item


def _count(users: dict[str, deque[_Item]]) -> int:
    return sum(map(len, users.values()))
