r"""Regular expressions of names, as RabbitMQ's permissions have them, as patterns of our policies.

    RabbitMQ                       pattern (auth.policies.policy_rules)
    .*   (and nothing at all, unanchored)    *
    ^$   (and an empty permission)           no name
    ^orders\.new$                  orders.new
    ^orders\.                      orders.*
    orders                         *orders*
    ^(orders|audit)\.new$          orders.new, audit.new

RabbitMQ looks for the expression anywhere in a name, so that what is not anchored has a `*` there.
Anything else (classes, counts, look-around, a literal `*`) has no equal: None.
"""

from __future__ import annotations

from typing import Final

from auth.policies.matching import Values, compile_resource
from auth.policies.policy_rules import Resource, ResourceKind

PATTERNS_MAX: Final = 64
"""That one expression may come to."""

_SPECIAL: Final = frozenset("[]{}?+*.")
_ANY: Final = "*"


def patterns_of(expression: str) -> tuple[str, ...] | None:
    """The patterns that match the names that an expression matches; none for no name. None: there
    are no such patterns.
    """
    if not expression:
        return ()
    found: list[str] = []
    for alternative in _alternatives(expression):
        one = _of_alternative(alternative)
        if one is None or len(found) + len(one) > PATTERNS_MAX:
            return None
        found += one
    return tuple(dict.fromkeys(found))


def _alternatives(expression: str) -> list[str]:
    """What `|` parts at the outermost level."""
    parts, depth, start, place = [], 0, 0, 0
    while place < len(expression):
        character = expression[place]
        if character == "\\":
            place += 1
        elif character == "(":
            depth += 1
        elif character == ")":
            depth -= 1
        elif character == "|" and not depth:
            parts.append(expression[start:place])
            start = place + 1
        place += 1
    return [*parts, expression[start:]]


def _of_alternative(text: str) -> list[str] | None:
    is_anchored = text.startswith("^")
    body = text[1:] if is_anchored else text
    ends = body.endswith("$") and not body.endswith("\\$")
    body = body[:-1] if ends else body
    found = _of_sequence(body)
    if found is None:
        return None
    if is_anchored and ends and found == [""]:
        return []
    head, tail = "" if is_anchored else _ANY, "" if ends else _ANY
    return [_squeezed(head + each + tail) for each in found]


def _of_sequence(text: str) -> list[str] | None:
    """The patterns of what has no anchor, one behind the other."""
    found = [""]
    place = 0
    while place < len(text):
        character = text[place]
        further: list[str] | None
        if character == "\\":
            further, place = _escaped(text[place + 1 : place + 2]), place + 2
        elif text.startswith(".*", place):
            further, place = [_ANY], place + 2
            if text[place : place + 1] in {"?", "+"}:
                return None
        elif character == "(":
            inner = _group(text, place)
            if inner is None:
                return None
            further, place = _of_group(inner), place + len(inner) + 2
        elif character in _SPECIAL or character in "^$)|":
            return None
        else:
            further, place = [character], place + 1
        if further is None or text[place : place + 1] in {"*", "+", "?", "{"}:
            return None
        found = [before + after for before in found for after in further]
        if len(found) > PATTERNS_MAX:
            return None
    return found


def _escaped(character: str) -> list[str] | None:
    """A literal behind a backslash; letters and digits mean classes there, or what was found."""
    return [character] if character and not character.isalnum() and character != _ANY else None


def _group(text: str, place: int) -> str | None:
    """What stands between the parentheses that begin at a place."""
    if text.startswith("(?", place):
        return None
    depth = 0
    for end in range(place, len(text)):
        if text[end] == "\\" or text[end - 1 : end] == "\\":
            continue
        depth += (text[end] == "(") - (text[end] == ")")
        if not depth:
            return text[place + 1 : end]
    return None


def _of_group(inner: str) -> list[str] | None:
    found: list[str] = []
    for alternative in _alternatives(inner):
        one = _of_sequence(alternative)
        if one is None:
            return None
        found += one
    return found


def _squeezed(pattern: str) -> str:
    while "**" in pattern:
        pattern = pattern.replace("**", _ANY)
    return pattern


def is_found(expression: str, name: str) -> bool | None:
    """Whether RabbitMQ finds an expression in a name; None: it has no equal among patterns. Linear
    in the length of the name, whatever somebody has written.
    """
    found = patterns_of(expression)
    if found is None:
        return None
    who = Values("")
    kind = ResourceKind.TOPIC
    return any(compile_resource(Resource(kind, each)).covers(name, who) for each in found)


def tree_pattern_of(expression: str) -> tuple[str, ...] | None:
    """The same for routing keys of `amq.topic`, as filters of the topic tree."""
    found = patterns_of(expression)
    if found is None:
        return None
    filters = [_filter_of(each) for each in found]
    return None if None in filters else tuple(filter(None, filters))


def _filter_of(pattern: str) -> str | None:
    if pattern == _ANY:
        return "#"
    stem = pattern.removesuffix("." + _ANY)
    if _ANY in stem or "/" in stem or "#" in stem or "+" in stem:
        return None
    return stem.replace(".", "/") + ("/#" if stem != pattern else "")
