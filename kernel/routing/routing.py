"""Routers compiled for look-up: which topics get a message published to a router with a key.

Pure; a gateway keeps one `RouteTable` per router it knows and changes it route by route, so that
ten thousand routes cost ten thousand small steps and not one table each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from ..api.model import AttributesMatch, Match, Route, RouterOptions

LEVELS_MAX = 128
"""Levels of a key that PATTERN looks at; a key with more matches only patterns that end in `#`
before that. Bounds the work of one look-up."""


def _levels(key: str, splits_max: int = -1) -> list[str]:
    """The levels of a key or pattern. The empty one has none, so that `+` does not match it."""
    return key.split("/", splits_max) if key else []


class _Node:
    """One level of the pattern trie."""

    __slots__ = ("any_levels", "children", "one_level", "routes")

    def __init__(self) -> None:
        self.children: dict[str, _Node] = {}
        self.one_level: _Node | None = None
        self.any_levels: _Node | None = None
        self.routes: dict[Route, None] = {}

    def step(self, level: str) -> _Node:
        """The node behind a level of a pattern, made if missing."""
        if level == "+":
            if self.one_level is None:
                self.one_level = _Node()
            return self.one_level
        if level == "#":
            if self.any_levels is None:
                self.any_levels = _Node()
            return self.any_levels
        found = self.children.get(level)
        if found is None:
            found = self.children[level] = _Node()
        return found

    def empty(self) -> bool:
        """Nothing hangs here any more."""
        return not (self.routes or self.children or self.one_level or self.any_levels)

    def drop(self, level: str) -> None:
        """Forget the node behind a level."""
        if level == "+":
            self.one_level = None
        elif level == "#":
            self.any_levels = None
        else:
            del self.children[level]


class RouteTable:
    """The routes of one router, found by key."""

    def __init__(self, options: RouterOptions) -> None:
        self.options = options
        self._exact: dict[str, dict[Route, None]] = {}
        self._root = _Node()
        self.routes: dict[Route, None] = {}

    def add(self, route: Route) -> None:
        """Add a route that is not there yet."""
        self.routes[route] = None
        if self.options.match is Match.EXACT:
            self._exact.setdefault(route.key, {})[route] = None
        elif self.options.match is Match.PATTERN:
            node = self._root
            for level in _levels(route.key):
                node = node.step(level)
            node.routes[route] = None

    def remove(self, route: Route) -> None:
        """Remove a route that is there."""
        del self.routes[route]
        if self.options.match is Match.EXACT:
            routes = self._exact[route.key]
            del routes[route]
            if not routes:
                del self._exact[route.key]
        elif self.options.match is Match.PATTERN:
            self._prune(self._root, _levels(route.key), 0, route)

    def _prune(self, node: _Node, levels: list[str], at: int, route: Route) -> None:
        if at == len(levels):
            del node.routes[route]
            return
        child = node.step(levels[at])
        self._prune(child, levels, at + 1, route)
        if child.empty():
            node.drop(levels[at])

    def match(
        self, key: str, attributes: Mapping[str, object] | None, *, is_tree_name: bool = False
    ) -> Iterable[Route]:
        """Routes that a message with this key (and these attributes) takes. `is_tree_name`: as in
        the tree, no wildcard at the first level matches a key that begins with `$`.
        """
        kind = self.options.match
        if kind is Match.EXACT:
            return self._exact.get(key, ())
        if kind is Match.ALL:
            return self.routes
        if kind is Match.ATTRIBUTES:
            return [each for each in self.routes if _attributes_match(each, attributes or {})]
        found: dict[Route, None] = {}
        levels = _levels(key, LEVELS_MAX)
        if is_tree_name and key.startswith("$"):
            child = self._root.children.get(levels[0])
            if child is not None:
                self._walk(child, levels, 1, found, set())
        else:
            self._walk(self._root, levels, 0, found, set())
        return found

    def _walk(
        self,
        node: _Node,
        levels: list[str],
        at: int,
        found: dict[Route, None],
        seen: set[tuple[int, int]],
    ) -> None:
        """Collect the routes of every pattern below `node` that matches levels[at:]."""
        if (id(node), at) in seen:
            return
        seen.add((id(node), at))
        if node.any_levels is not None:
            for skip in range(at, len(levels) + 1):
                self._walk(node.any_levels, levels, skip, found, seen)
        if at == len(levels):
            found.update(node.routes)
            return
        child = node.children.get(levels[at])
        if child is not None:
            self._walk(child, levels, at + 1, found, seen)
        if node.one_level is not None:
            self._walk(node.one_level, levels, at + 1, found, seen)


def _attributes_match(route: Route, attributes: Mapping[str, object]) -> bool:
    """Whether a message with these attributes takes the route."""
    checks = (
        name in attributes
        and (wanted == b"\xc0" or msgspec.msgpack.decode(wanted) == attributes[name])
        for name, wanted in route.attributes
    )
    if route.combine is AttributesMatch.ALL_OF:
        return all(checks)
    return any(checks)


def resolve(
    table_of: Callable[[str], RouteTable | None],
    router: str,
    key: str,
    attributes: Mapping[str, object] | None,
    *,
    is_tree_name: bool = False,
) -> tuple[list[str], set[str]]:
    """Names of the topics that a message published to `router` reaches, each once, through any
    depth of routers, each visited once; and the routers visited. A router where nothing matched
    passes the message to its alternate. Names of things that are gone are left to the caller.
    `is_tree_name`: the message comes from the tree to `router`.
    """
    topics: dict[str, None] = {}
    visited = {router}
    ahead = [router]
    while ahead:
        name = ahead.pop()
        table = table_of(name)
        if table is None:
            continue
        matched = False
        from_tree = is_tree_name and name == router
        for route in table.match(key, attributes, is_tree_name=from_tree):
            matched = True
            if route.topic is not None:
                topics[route.topic] = None
            elif route.router is not None and route.router not in visited:
                visited.add(route.router)
                ahead.append(route.router)
        alternate = table.options.alternate
        if not matched and alternate is not None and alternate not in visited:
            visited.add(alternate)
            ahead.append(alternate)
    return list(topics), visited
