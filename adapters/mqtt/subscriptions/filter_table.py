"""The filters of one session: which of them a name falls under, and whether two can meet in a name.

What has no wildcard is found by its text, what has one in a trie of levels. Both questions cost
steps by the levels of a name, not by the number of filters; but a filter such as `+/x` may meet any
of ten thousand others. So a session has steps to spend for each of its filters: when they are used
up, its filters are taken to overlap. That is never wrong, only slower: each message is looked up
here then, and sent once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.mqtt.subscriptions.subscription import overlaps

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from adapters.mqtt.subscriptions.subscription import Subscribed

FEW: Final = 8
"""So many are looked at one by one: most sessions have no more, and a trie would cost them 1 KB."""

STEPS_AT_FIRST: Final = 1_024
STEPS_A_FILTER: Final = 32
"""Looking at a level of a filter takes 0.2 microseconds: for 10,000 filters less than 0.1 s."""


class _Level:
    __slots__ = ("below", "here")

    def __init__(self) -> None:
        self.below: dict[str, _Level] = {}
        self.here: Subscribed | None = None


class FilterTable:
    """Which subscriptions of a session a name falls under. Shared ones are not in it: they overlap
    with nothing ([MQTT-3.3.4-2]).
    """

    __slots__ = ("_all", "_plain", "_root", "_steps", "overlapping")

    def __init__(self, subscriptions: Mapping[str, Subscribed]) -> None:
        """`subscriptions`: all of the session, by text, kept by whoever has the session."""
        self._all = subscriptions
        self._plain: dict[str, Subscribed] = {}
        """Those without wildcards, once there is a trie."""
        self._root: _Level | None = None
        self._steps = STEPS_AT_FIRST
        self.overlapping = False
        """Whether two can match one name; once it is so, it stays."""

    def add(self, subscribed: Subscribed) -> None:
        """A subscription has come, and is among those of the session already."""
        if subscribed.is_shared:
            return
        self._steps += STEPS_A_FILTER
        if not self.overlapping:
            self.overlapping = self._meets(subscribed)
        if self._root is not None:
            self._put(self._root, subscribed)
        elif len(self._all) > FEW:
            self._root = _Level()
            for each in self._all.values():
                self._put(self._root, each)

    def _put(self, level: _Level, subscribed: Subscribed) -> None:
        if subscribed.is_shared:
            return
        if not subscribed.filter.has_wildcard:
            self._plain[subscribed.text] = subscribed
            return
        for each in subscribed.filter.levels:
            level = level.below.setdefault(each, _Level())
        level.here = subscribed

    def remove(self, subscribed: Subscribed) -> None:
        """A subscription has gone, or is about to be replaced."""
        if subscribed.is_shared or self._root is None:
            return
        if not subscribed.filter.has_wildcard:
            if self._plain.get(subscribed.text) is subscribed:
                del self._plain[subscribed.text]
            return
        path = [self._root]
        for each in subscribed.filter.levels:
            below = path[-1].below.get(each)
            if below is None:
                return
            path.append(below)
        if path[-1].here is not subscribed:
            return
        path[-1].here = None
        for at in range(len(path) - 1, 0, -1):
            if path[at].below or path[at].here is not None:
                return
            del path[at - 1].below[subscribed.filter.levels[at - 1]]

    def matching(self, name: str) -> list[Subscribed]:
        """Every subscription that a name falls under."""
        if self._root is None:
            return [
                each
                for each in self._all.values()
                if not each.is_shared and each.filter.matches(name)
            ]
        plain = self._plain.get(name)
        found = [plain] if plain is not None else []
        levels = tuple(name.split("/"))
        met = self._met(self._root, levels, 0)
        return found + [each for each in met if not _is_hidden(levels, each.filter.levels)]

    def _meets(self, subscribed: Subscribed) -> bool:
        """Whether another filter can match a name that this one matches, or it would take too long
        to find out.
        """
        if self._root is None:
            return any(
                each is not subscribed and overlaps(each.filter, subscribed.filter)
                for each in self._all.values()
            )
        levels = subscribed.filter.levels
        for each in self._met(self._root, levels, 0, spending=True):
            theirs = each.filter.levels
            hidden = _is_hidden(levels, theirs) or _is_hidden(theirs, levels)
            if each.text != subscribed.text and not hidden:
                return True
        if not subscribed.filter.has_wildcard:
            return self._steps < 0
        for other in self._plain:
            self._steps -= 1
            if self._steps < 0 or subscribed.filter.matches(other):
                return True
        return self._steps < 0

    def _met(
        self, level: _Level, levels: tuple[str, ...], at: int, *, spending: bool = False
    ) -> Iterator[Subscribed]:
        """Filters below a level of the trie that meet levels[at:], wildcards on both sides."""
        if spending:
            self._steps -= 1
            if self._steps < 0:
                return
        many = level.below.get("#")
        if many is not None and many.here is not None:
            yield many.here
        if at == len(levels):
            if level.here is not None:
                yield level.here
            return
        step = levels[at]
        if step == "#":
            yield from self._all_below(level, spending=spending)
            return
        if step == "+":
            below = [each for name, each in level.below.items() if name != "#"]
        else:
            below = [each for name in (step, "+") if (each := level.below.get(name)) is not None]
        for each in below:
            yield from self._met(each, levels, at + 1, spending=spending)

    def _all_below(self, level: _Level, *, spending: bool) -> Iterator[Subscribed]:
        if spending:
            self._steps -= 1
            if self._steps < 0:
                return
        if level.here is not None:
            yield level.here
        for each in level.below.values():
            yield from self._all_below(each, spending=spending)


def _is_hidden(levels: tuple[str, ...], pattern: tuple[str, ...]) -> bool:
    """Whether names such as $SYS are kept from filters that begin with a wildcard."""
    return levels[0].startswith("$") and pattern[0] in ("+", "#")
