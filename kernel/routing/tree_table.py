"""What a gateway knows of the topic tree: who wants a name. Pure, for look-ups.

Patterns without wildcards stand in a dictionary by name, the others in a trie by level. What a
name leads to is remembered until a route comes or goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ..api.model import QueueRef
from ..common.errors import Code, KernelError
from ..common.limits import TREE_NAME_BYTES_MAX, TREE_ROOTS_RESERVED
from .destinations import Forwarder
from .watches import LocalWatch


@dataclass(slots=True, eq=False)
class PatternRoutes:
    """Who wants what is published under one pattern."""

    indexes: tuple[QueueRef, ...] = ()
    """Its reference lists, at most one in each Raft group."""
    watches: tuple[LocalWatch, ...] = ()
    """Live routes of this process, in the order they came: it has one of a pattern, or few."""
    forwarders: tuple[Forwarder, ...] = ()
    """Who carries on what is published here."""

    def is_empty(self) -> bool:
        """Nobody is left."""
        return not self.indexes and not self.watches and not self.forwarders


class _Level:
    """One level of the trie."""

    __slots__ = ("below", "here", "many")

    def __init__(self) -> None:
        self.below: dict[str, _Level] = {}
        self.here: PatternRoutes | None = None
        """The pattern that ends here."""
        self.many: PatternRoutes | None = None
        """The pattern that goes on with `#`."""


def is_pattern(text: str) -> bool:
    """Whether a pattern has wildcards."""
    return "+" in text or "#" in text


def is_bad_name(name: str) -> bool:
    """Whether nothing can be published to a name."""
    long = len(name) > TREE_NAME_BYTES_MAX // 4 and len(name.encode()) > TREE_NAME_BYTES_MAX
    return not name or long or is_pattern(name) or "\0" in name


def is_reserved(name: str) -> bool:
    """Whether a name lies where only the server says anything."""
    return name.startswith("$") and name.partition("/")[0] in TREE_ROOTS_RESERVED


def check_name(name: str) -> None:
    """Raises KernelError: INVALID_ARGUMENT if it is no name that could be published to;
    NOT_ALLOWED if it is the server's own.
    """
    if is_reserved(name):
        raise KernelError(Code.NOT_ALLOWED, f"{name.partition('/')[0]} is the server's own")
    if is_bad_name(name):
        raise KernelError(
            Code.INVALID_ARGUMENT,
            f"a tree name has 1 to {TREE_NAME_BYTES_MAX} bytes, no wildcard and no NUL",
        )


def check_pattern(pattern: str) -> None:
    """Raises KernelError INVALID_ARGUMENT if it is no pattern."""
    levels = pattern.split("/") if is_pattern(pattern) else ()
    well_formed = all(not is_pattern(each) or each in ("+", "#") for each in levels)
    if (
        not pattern
        or not well_formed
        or "#" in levels[:-1]
        or "\0" in pattern
        or len(pattern.encode()) > TREE_NAME_BYTES_MAX
    ):
        raise KernelError(
            Code.INVALID_ARGUMENT,
            f"a tree pattern has 1 to {TREE_NAME_BYTES_MAX} bytes, + and # only as whole levels, "
            "# only last",
        )


class TreeTable:
    """The patterns of one tenant."""

    def __init__(self) -> None:
        self._exact: dict[str, PatternRoutes] = {}
        self._root = _Level()

    def find(self, pattern: str) -> PatternRoutes | None:
        """The routes of a pattern, if there are any."""
        if not is_pattern(pattern):
            return self._exact.get(pattern)
        level = self._root
        levels = pattern.split("/")
        for each in levels[:-1]:
            below = level.below.get(each)
            if below is None:
                return None
            level = below
        if levels[-1] == "#":
            return level.many
        last = level.below.get(levels[-1])
        return last.here if last is not None else None

    def make(self, pattern: str) -> PatternRoutes:
        """The routes of a pattern, made if there are none."""
        if not is_pattern(pattern):
            return self._exact.setdefault(pattern, PatternRoutes())
        level = self._root
        levels = pattern.split("/")
        if levels[-1] != "#":
            for each in levels:
                level = level.below.setdefault(each, _Level())
            if level.here is None:
                level.here = PatternRoutes()
            return level.here
        for each in levels[:-1]:
            level = level.below.setdefault(each, _Level())
        if level.many is None:
            level.many = PatternRoutes()
        return level.many

    def prune(self, pattern: str) -> None:
        """Forget a pattern that nobody is left of."""
        routes = self.find(pattern)
        if routes is None or not routes.is_empty():
            return
        if not is_pattern(pattern):
            del self._exact[pattern]
            return
        levels = pattern.split("/")
        many = levels[-1] == "#"
        path = [self._root]
        for each in levels[: -1 if many else None]:
            path.append(path[-1].below[each])
        if many:
            path[-1].many = None
        else:
            path[-1].here = None
        for at in range(len(path) - 1, 0, -1):
            level = path[at]
            if level.below or level.here is not None or level.many is not None:
                break
            del path[at - 1].below[levels[at - 1]]

    def match(self, name: str) -> list[PatternRoutes]:
        """The routes of every pattern that the name is under: its own first, then by level."""
        found: list[PatternRoutes] = []
        exact = self._exact.get(name)
        if exact is not None:
            found.append(exact)
        levels = name.split("/")
        if name.startswith("$"):
            first = self._root.below.get(levels[0])
            if first is not None:
                found.extend(_walk(first, levels, 1))
        else:
            found.extend(_walk(self._root, levels, 0))
        return found


def _walk(level: _Level, levels: list[str], at: int) -> Iterator[PatternRoutes]:
    """Patterns below `level` that levels[at:] is under."""
    if level.many is not None:
        yield level.many
    if at == len(levels):
        if level.here is not None:
            yield level.here
        return
    for step in (levels[at], "+"):
        below = level.below.get(step)
        if below is not None:
            yield from _walk(below, levels, at + 1)
