"""Leaders spread evenly over the stores: which ones have to move, and when. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet

CALM_MS = 60_000
"""So long the same stores have belonged to the cluster and answered before leaders move by
themselves: one that comes and goes is not given anything to lead."""

MOVE_MS = 10_000
"""Between two moves: each makes the clients of a group look for its leader."""


class Calm:
    """Whether leaders may move by themselves now."""

    def __init__(self) -> None:
        self._seen: object = None
        self._since_ms = 0
        self._moved_ms = -MOVE_MS

    def look(self, seen: object, now_ms: int) -> bool:
        """`seen`: which stores belong to the cluster, and which of them answer."""
        if seen != self._seen:
            self._seen, self._since_ms = seen, now_ms
        if now_ms - self._since_ms < CALM_MS or now_ms - self._moved_ms < MOVE_MS:
            return False
        self._moved_ms = now_ms
        return True


def moves(
    leaders: Mapping[int, int],
    able: Mapping[int, AbstractSet[int]],
    stays: AbstractSet[int] = frozenset(),
) -> list[tuple[int, int, int]]:
    """(group, from, to) of each move, in order. `leaders`: node by group; `able`: who could
    lead it; `stays`: groups whose leader stays as long as it is able to lead.

    Stores that are able to lead nothing are not counted; what they still lead goes first. Without
    `stays` the result differs by at most one group between two stores that can take all groups.
    """
    nodes = sorted(set().union(*able.values())) if able else []
    now = dict(leaders)
    found: list[tuple[int, int, int]] = []

    def count(node: int) -> int:
        return sum(each == node for each in now.values())

    while True:
        best: tuple[int, int, int] | None = None
        gain = 1
        for group, node in sorted(now.items()):
            if group in stays and node in able[group]:
                continue
            for to in nodes:
                if to not in able[group] or to == node:
                    continue
                # Whoever may not lead at all gives everything away.
                held = count(node) if node in nodes else len(now) + len(nodes)
                if held - count(to) > gain:
                    gain = held - count(to)
                    best = group, node, to
        if best is None:
            return found
        now[best[0]] = best[2]
        found.append(best)
