"""Retained messages of the topic tree: the last one of each name, as a reference into the log.

By tenant, a trie of names by level, so that a pattern visits only the names that it could match.
Each message holds one reference to its log entry; bodies are never kept here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetainedMessage:
    """Where a retained message lies. `time_ms` is the log time it was stored at."""

    index: int
    slot: int
    time_ms: int
    ttl_ms: int
    """0: none."""

    def has_expired(self, now_ms: int) -> bool:
        """Whether its time to live has passed at a log time."""
        return bool(self.ttl_ms) and self.time_ms + self.ttl_ms <= now_ms


class _Level:
    """One level of the trie."""

    __slots__ = ("below", "message")

    def __init__(self) -> None:
        self.below: dict[str, _Level] | None = None
        self.message: RetainedMessage | None = None


class Retained:
    """All retained messages of one Raft group."""

    def __init__(self) -> None:
        self.messages: dict[tuple[str, str], RetainedMessage] = {}
        """By (tenant, name); in the order in which the names came, which snapshots keep."""
        self._tenants: dict[str, _Level] = {}
        self._slots: dict[int, list[int]] = {}
        """Log index to the slots that are retained."""
        self._counts: dict[str, int] = {}
        self._expiring: dict[tuple[str, str], int] = {}
        """Log time at which each name's message expires, for those that do."""

    def count(self, tenant: str) -> int:
        """Messages of a tenant, expired ones included until they are forgotten."""
        return self._counts.get(tenant, 0)

    def get(self, tenant: str, name: str) -> RetainedMessage | None:
        """The message of a name."""
        return self.messages.get((tenant, name))

    def put(self, tenant: str, name: str, message: RetainedMessage) -> RetainedMessage | None:
        """Set the message of a name; the one it had."""
        level = self._tenants.setdefault(tenant, _Level())
        for each in name.split("/"):
            if level.below is None:
                level.below = {}
            level = level.below.setdefault(each, _Level())
        earlier, level.message = level.message, message
        self.messages[tenant, name] = message
        self._slots.setdefault(message.index, []).append(message.slot)
        if earlier is None:
            self._counts[tenant] = self._counts.get(tenant, 0) + 1
        else:
            self._forget_slot(earlier)
        if message.ttl_ms:
            self._expiring[tenant, name] = message.time_ms + message.ttl_ms
        else:
            self._expiring.pop((tenant, name), None)
        return earlier

    def remove(self, tenant: str, name: str) -> RetainedMessage | None:
        """Remove the message of a name; the one it had."""
        root = self._tenants.get(tenant)
        if root is None:
            return None
        path = [root]
        names = name.split("/")
        for each in names:
            below = path[-1].below
            level = below.get(each) if below is not None else None
            if level is None:
                return None
            path.append(level)
        earlier, path[-1].message = path[-1].message, None
        if earlier is None:
            return None
        del self.messages[tenant, name]
        for at in range(len(names), 0, -1):
            if path[at].below or path[at].message is not None:
                break
            parent = path[at - 1].below
            if parent is not None:
                del parent[names[at - 1]]
        self._forget_slot(earlier)
        self._counts[tenant] -= 1
        self._expiring.pop((tenant, name), None)
        return earlier

    def _forget_slot(self, message: RetainedMessage) -> None:
        slots = self._slots[message.index]
        slots.remove(message.slot)
        if not slots:
            del self._slots[message.index]

    def match(self, tenant: str, pattern: str) -> Iterator[tuple[str, RetainedMessage]]:
        """(name, message) of every name under a pattern, in no order."""
        root = self._tenants.get(tenant)
        if root is not None:
            yield from _walk(root, pattern.split("/"), 0, [])

    def has(self, tenant: str, pattern: str) -> tuple[bool, int]:
        """Whether any name is under a pattern, and how many levels were looked at to find out."""
        root = self._tenants.get(tenant)
        return (False, 0) if root is None else _has(root, pattern.split("/"), 0)

    def expired(self, now_ms: int) -> list[tuple[str, str]]:
        """(tenant, name) of what has expired at a log time."""
        return [key for key, due_ms in self._expiring.items() if due_ms <= now_ms]

    def slots_of(self, index: int) -> list[int]:
        """Retained slots of a log entry."""
        return self._slots.get(index, [])

    def references(self) -> Iterator[tuple[int, int]]:
        """(log index, references) of every entry that holds a retained message."""
        return ((index, len(slots)) for index, slots in self._slots.items())


def _walk(
    level: _Level, pattern: list[str], at: int, names: list[str]
) -> Iterator[tuple[str, RetainedMessage]]:
    """Messages below `level` (reached by `names`) that pattern[at:] matches. Wildcards at the
    first level pass over names that begin with `$`.
    """
    if at == len(pattern):
        if level.message is not None:
            yield "/".join(names), level.message
        return
    wanted = pattern[at]
    if wanted == "#" and names and level.message is not None:
        yield "/".join(names), level.message
    if level.below is None:
        return
    if wanted not in ("+", "#"):
        below = level.below.get(wanted)
        if below is not None:
            yield from _walk(below, pattern, at + 1, [*names, wanted])
        return
    for name, below in level.below.items():
        if not names and name.startswith("$"):
            continue
        step = at if wanted == "#" else at + 1
        yield from _walk(below, pattern, step, [*names, name])


def _has(level: _Level, pattern: list[str], at: int) -> tuple[bool, int]:
    """Whether `_walk` would find anything, and the levels it looked at until it did."""
    steps = 1
    if at == len(pattern):
        return level.message is not None, steps
    wanted = pattern[at]
    if wanted == "#" and at and level.message is not None:
        return True, steps
    if level.below is None:
        return False, steps
    if wanted not in ("+", "#"):
        below = level.below.get(wanted)
        found, more = _has(below, pattern, at + 1) if below is not None else (False, 0)
        return found, steps + more
    for name, below in level.below.items():
        if not at and name.startswith("$"):
            continue
        # Whatever is below has a message: what has none is pruned.
        if wanted == "#":
            return True, steps
        found, more = _has(below, pattern, at + 1)
        steps += more
        if found:
            return True, steps
    return False, steps
