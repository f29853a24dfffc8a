"""Matching of kernel names against the patterns of rules.

Every matcher answers two questions, because an allow and a deny must err to opposite sides:

- `covers(name, who)`: is *all* that `name` stands for inside the pattern? An allow needs this.
- `touches(name, who)`: is *any* of it inside the pattern? A deny needs only this.

For a plain name the two are the same. They differ where `name` is itself a topic filter (a
subscription): `allow tree:a/#` covers the subscription `a/+`, but not `#`; `deny tree:a/secret`
touches the subscription `a/+`, which is therefore refused whole: otherwise a subscriber would get
by a wildcard what it may not name.

Placeholders are put in as text, never as pattern. A value that is missing, or in the tree holds
`/`, `+`, `#` or NUL, could reach into other names; then an allow covers nothing, and a deny takes
the placeholder for anything (in the tree: for all the levels from there on).

`$` at the start of a tree name (MQTT5 4.7.2): a wildcard in the first level of an allow does not
cover it, a wildcard in a deny touches it. A subscription that starts with a wildcard never
receives such names, so `deny tree:$SYS/#` leaves the subscription `#` alone.

Costs are linear in the length of the name for any pattern: no regular expressions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from .policy_rules import Resource, ResourceKind

ANY_NAME: Final = "\0"
"""Stands for every name of a kind other than the tree, for what may reach any of them: an allow
must cover all names, and any deny touches it. No name holds NUL."""


@dataclass(frozen=True, slots=True)
class Values:
    """What placeholders stand for. `client_id` None: the protocol has no client ids."""

    username: str
    client_id: str | None = None


class Matcher(Protocol):
    """One compiled pattern."""

    @property
    def personal(self) -> bool:
        """True if the answer depends on who asks."""

    def covers(self, name: str, who: Values) -> bool: ...

    def touches(self, name: str, who: Values) -> bool: ...


class Everything:
    """The resource `*`: every name of every kind, also those that start with `$`."""

    __slots__ = ()
    personal: Final = False

    def covers(self, name: str, who: Values) -> bool:
        return True

    touches = covers


_STAR: Final = "*"
_USERNAME: Final = "${username}"
_CLIENT_ID: Final = "${clientid}"


class NamePattern:
    """A pattern in which `*` stands for any run of characters, also none."""

    __slots__ = ("_parts", "_pieces", "personal")

    def __init__(self, pattern: str) -> None:
        self._parts = _part(pattern, (_STAR, _USERNAME, _CLIENT_ID))
        self.personal = _USERNAME in self._parts or _CLIENT_ID in self._parts
        self._pieces = None if self.personal else _pieces(self._parts, {})

    def covers(self, name: str, who: Values) -> bool:
        pieces = self._pieces
        if pieces is None:
            if (_USERNAME in self._parts and not who.username) or (
                _CLIENT_ID in self._parts and not who.client_id
            ):
                return False
            pieces = self._bind(who)
        return _matches(pieces, name)

    def touches(self, name: str, who: Values) -> bool:
        if name == ANY_NAME:
            return True
        return _matches(self._pieces if self._pieces is not None else self._bind(who), name)

    def _bind(self, who: Values) -> list[str]:
        """The literal pieces between the stars; a missing value is a star."""
        values = {_USERNAME: who.username, _CLIENT_ID: who.client_id}
        return _pieces(self._parts, values)


def _part(pattern: str, separators: tuple[str, ...]) -> list[str]:
    """Cuts a pattern into literal texts and separators, in order."""
    parts = [pattern]
    for separator in separators:
        cut: list[str] = []
        for part in parts:
            if part in separators:
                cut.append(part)
                continue
            first, *rest = part.split(separator)
            cut.append(first)
            for text in rest:
                cut += (separator, text)
        parts = cut
    return [part for part in parts if part]


def _pieces(parts: list[str], values: dict[str, str | None]) -> list[str]:
    pieces = [""]
    for part in parts:
        if part == _STAR:
            pieces.append("")
        elif part not in values:
            pieces[-1] += part
        elif value := values[part]:
            pieces[-1] += value
        else:
            pieces.append("")
    return pieces


def _matches(pieces: list[str], name: str) -> bool:
    """Whether `name` is the pieces in order, with anything between them.

    Taking each middle piece where it is first found is right: whatever fits after a later place
    fits after an earlier one too.
    """
    first, last = pieces[0], pieces[-1]
    if len(pieces) == 1:
        return name == first
    if len(name) < len(first) + len(last) or not name.startswith(first):
        return False
    if not name.endswith(last):
        return False
    start, end = len(first), len(name) - len(last)
    for piece in pieces[1:-1]:
        found = name.find(piece, start, end)
        if found < 0:
            return False
        start = found + len(piece)
    return True


class TreeFilter:
    """A topic filter over names and filters of the topic tree.

    A name in which `#` stands before the last level (a pattern of a kernel router may) is taken
    for all that its levels up to there could receive.
    """

    __slots__ = ("_levels", "personal")

    def __init__(self, pattern: str) -> None:
        # Every name has a first level, so these two receive the same; one spelling compares.
        self._levels = ["#"] if pattern == "+/#" else pattern.split("/")
        self.personal = _USERNAME in pattern or _CLIENT_ID in pattern

    def covers(self, name: str, who: Values) -> bool:
        levels = self._bind(who, for_deny=False) if self.personal else self._levels
        return levels is not None and _filter_covers(levels, name.split("/"))

    def touches(self, name: str, who: Values) -> bool:
        levels = self._bind(who, for_deny=True) if self.personal else self._levels
        return levels is not None and _filter_touches(levels, name.split("/"))

    def _bind(self, who: Values, *, for_deny: bool) -> list[str] | None:
        bound: list[str] = []
        for level in self._levels:
            text = level
            for placeholder, value in ((_USERNAME, who.username), (_CLIENT_ID, who.client_id)):
                if placeholder not in level:
                    continue
                if value is None or not _is_level(value):
                    return [*bound, "#"] if for_deny else None
                text = text.replace(placeholder, value)
            bound.append(text)
        return bound


def _is_level(value: str) -> bool:
    """Whether a value can stand inside one level without being read as anything else.

    `$` is refused too: at the start of a filter it would reach into the server's own names. So is
    `{`, without which a value could spell the other placeholder.
    """
    return bool(value) and not any(character in value for character in "/+#\0{$")


def _filter_covers(levels: list[str], name: list[str]) -> bool:
    if name[0][:1] == "$" and levels[0] in {"+", "#"}:
        return False
    for position, level in enumerate(levels):
        if level == "#":
            return True
        if position == len(name) or name[position] == "#":
            return False
        if level not in ("+", name[position]):
            return False
    return len(name) == len(levels)


def _filter_touches(levels: list[str], name: list[str]) -> bool:
    if levels[0][:1] == "$" and name[0] in {"+", "#"}:
        return False
    for position, level in enumerate(levels):
        if level == "#":
            return True
        if position == len(name):
            return False
        other = name[position]
        if other == "#":
            return True
        if level not in ("+", other) and other != "+":
            return False
    return len(name) == len(levels) or name[len(levels)] == "#"


def compile_resource(resource: Resource) -> Matcher:
    """The matcher of a resource that `rules.rule_fault` found no fault in."""
    if resource.kind is None:
        return Everything()
    if resource.kind is ResourceKind.TREE:
        return TreeFilter(resource.pattern)
    return NamePattern(resource.pattern)
