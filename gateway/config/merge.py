"""Laying sources over one another: every change is checked against the schema as it is made.

    shipped file  <  --config FILE  <  WEIR_SECTION__KEY  <  --set path=value

The merged tree starts empty and the shipped file is its first layer, so it is held to the same
checks as an operator's. A change is resolved (aliases), located (does the schema have such a key,
may this source add it), converted (type and range) and only then stored, with its origin.
Problems are collected, not raised, so that one run reports all of them.

Aliases, for what people type most:

    amqp.port            the port of the protocol's first listener (host likewise)
    amqp.limits.NAME     the limit's value
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import msgspec

from gateway.config.path import SECTIONS, Path, Problem, spell
from gateway.config.schema import Settings
from gateway.config.schema_types import (
    Kind,
    convert,
    entry_kind,
    fields_of,
    missing_keys,
    section_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.config.source import Change

LISTENER_ALIASES = ("host", "port")
"""Keys that a protocol lends from its first listener."""

FACTS = frozenset({"versions", "operations"})
"""Keys of a shipped protocol that say what the program does, and so cannot be set."""

LIMIT_FACTS = frozenset({"unit", "reason", "min", "max"})
"""The same within a shipped protocol's limits: only the value is a setting."""

CLOSED_MAPS = frozenset({"limits", "options"})
"""Maps of a shipped protocol to which nothing can be added: no code would read it."""

KNOWN_KEYS_SHOWN_MAX = 12
"""An error lists the keys it knows up to this many; `weir config show` lists all."""


class _Refused(Exception):
    """A change that cannot be made; carries what is wrong, for the list of problems."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(what)
        self.path = path
        self.what = what


class Merge:
    """The settings so far: a tree of plain values, and the origin of each."""

    def __init__(self) -> None:
        self.tree: dict[str, Any] = {}
        self.origins: dict[Path, str] = {}
        self.defaults: dict[Path, object] = {}
        self.problems: list[Problem] = []
        self._shipped: frozenset[str] = frozenset()
        self._introduced: frozenset[str] = frozenset()

    def apply(self, changes: Sequence[Change]) -> None:
        """Lay one source over what is there."""
        # A protocol of someone else's comes with its adapter; without one it is a slip of the pen.
        self._introduced = frozenset(
            change.path[-2]
            for change in changes
            if change.may_add and change.path[-1] == "adapter" and len(change.path) > 1
        )
        for change in changes:
            try:
                self._apply(change)
            except _Refused as refused:
                problem = Problem(spell(refused.path), refused.what, change.origin)
                self.problems.append(problem)

    def seal_defaults(self) -> None:
        """Remember what is there as shipped; from now on facts are fixed and some maps closed."""
        self._shipped = frozenset(self.tree.get("protocols", ()))
        self.defaults = {path: self.value(path) for path in self.origins}

    def value(self, path: Path) -> object:
        """Return the value at a path that `origins` knows."""
        node: Any = self.tree
        for key in path:
            node = node[key]
        return node

    def changed(self) -> list[Path]:
        """Return the paths whose value is not the shipped one."""
        return [
            path
            for path in self.origins
            if path not in self.defaults or self.value(path) != self.defaults[path]
        ]

    def finish(self) -> Settings | None:
        """Return the settings, or None if `problems` says why there are none."""
        for path in missing_keys(Settings, self.tree):
            what = f"is missing; {spell(path[:-1]) or 'the file'} needs it"
            self.problems.append(Problem(spell(path), what, self._origin_below(path[:-1])))
        return None if self.problems else msgspec.convert(self.tree, Settings)

    def _apply(self, change: Change) -> None:
        path = self._resolve(change.path)
        kind = self._locate(path, change)
        if section_of(kind) is not None:
            if change.value == {}:
                self._make(path, change.origin)
                return
            below = self._keys(path, kind)
            what = "is a section, not a value" + (f"; it has {_listed(below)}" if below else "")
            raise _Refused(path, what)
        try:
            value = convert(change.value, self._narrowed(path, kind), is_text=change.is_text)
        except ValueError as error:
            raise _Refused(path, f"{change.value!r} does not fit: {error}") from error
        self._store(path, value, change.origin)

    def _resolve(self, path: Path) -> Path:
        """Return the full path for the short form and the aliases."""
        if path[0] not in SECTIONS:
            path = ("protocols", *path)
        protocols = self.tree.get("protocols", {})
        match path:
            case ("protocols", name, key) if name in protocols and key in LISTENER_ALIASES:
                for listener in protocols[name].get("listeners", ()):
                    return ("protocols", name, "listeners", listener, key)
            case ("protocols", name, "limits", _) if name in protocols:
                return (*path, "value")
        return path

    def _locate(self, path: Path, change: Change) -> Kind:
        """Return the type of the setting at `path`. _Refused if it has none, or is not one."""
        kind: Kind = Settings
        for depth, key in enumerate(path):
            at = path[:depth]
            section = section_of(kind)
            if section is None:
                raise _Refused(at, f"is a value and has no key {key!r}")
            fields = fields_of(section)
            if key not in (self._keys(at, kind) if fields is None else fields):
                if fields is not None or not self._may_add(at, key, change):
                    raise self._unknown(path, depth, kind)
            elif at[1:2] and at[1] in self._shipped and is_fact((*at, key)):
                raise _Refused((*at, key), "says what this version does and cannot be set")
            kind = entry_kind(section) if fields is None else fields[key]
        return kind

    def _keys(self, at: Path, kind: Kind) -> Iterable[str]:
        """Return the keys that exist below a section: of its struct, or those named so far."""
        fields = fields_of(section_of(kind))
        if fields is not None:
            return fields
        node: Any = self.tree
        for key in at:
            node = node.get(key, {})
        return list(node)

    def _may_add(self, at: Path, key: str, change: Change) -> bool:
        if not change.may_add:
            return False
        if at == ("protocols",):
            return key in self._introduced
        return not (at[0] == "protocols" and at[1] in self._shipped and at[2] in CLOSED_MAPS)

    def _unknown(self, path: Path, depth: int, kind: Kind) -> _Refused:
        at, key, rest = path[:depth], path[depth], path[depth + 1 :]
        known = {name: (*at, name) for name in self._keys(at, kind)}
        if at in {(), ("protocols",)}:
            known |= {name: (name,) for name in (*SECTIONS, *self.tree.get("protocols", ()))}
        elif len(at) == len(("protocols", "name")) and at[0] == "protocols":
            known |= {name: (*at, name) for name in LISTENER_ALIASES}
        near = difflib.get_close_matches(key, known, n=1)
        if near:
            hint = f"; did you mean {spell((*known[near[0]], *rest))}?"
        else:
            hint = f"; known here: {_listed(known)}" if known else ""
        return _Refused((*at, key), f"is not a setting{hint}")

    def _narrowed(self, path: Path, kind: Kind) -> Kind:
        """Return the type of an option: that of the value it has; else the schema's."""
        match path:
            case ("protocols", _, "options", _) if path in self.origins:
                return type(self.value(path))
        return kind

    def _make(self, path: Path, origin: str) -> None:
        """Let a section be there, as `acme: {}` does below `tenants`. One that is there stays."""
        node = self.tree
        is_new = False
        for key in path:
            is_new = key not in node
            node = node.setdefault(key, {})
        if is_new and self._shipped:
            self.origins[path] = origin

    def _store(self, path: Path, value: object, origin: str) -> None:
        node = self.tree
        for key in path[:-1]:
            node = node.setdefault(key, {})
        node[path[-1]] = value
        self.origins[path] = origin

    def _origin_below(self, path: Path) -> str:
        origins = (origin for at, origin in self.origins.items() if at[: len(path)] == path)
        return next(origins, "")


def is_fact(path: Path) -> bool:
    """Tell whether a path of a shipped protocol states what the program does."""
    match path:
        case ("protocols", _, key, *_) if key in FACTS:
            return True
        case ("protocols", _, "limits", _, key):
            return key in LIMIT_FACTS
    return False


def _listed(names: Iterable[str]) -> str:
    every = sorted(names)
    shown = ", ".join(every[:KNOWN_KEYS_SHOWN_MAX])
    return shown + (", …" if len(every) > KNOWN_KEYS_SHOWN_MAX else "")
