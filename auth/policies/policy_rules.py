"""The language of policies: rules over kernel names and actions.

A rule says who may do what to which names, inside the principal's own tenant:

    allow publish,consume topic:orders-* group:billing
    allow publish tree:sensors/${clientid}/#
    deny  consume 'tree:sensors/+/private'
    allow * *

    effect ::= "allow" | "deny"
    rule   ::= effect  actions  resource+           (words as in a POSIX shell, quotes allowed)
    actions  ::= "*" | action ("," action)*
    resource ::= "*" | kind ":" pattern

In the pattern of a `tree` resource `/`, `+` and `#` mean what they mean in an MQTT topic filter;
in any other pattern `*` stands for any run of characters. `${username}` and `${clientid}` stand
for the principal's name and the client id of the connection, always literally: a client id of
`#` matches the text `#` and never a wildcard (auth.policies.matching says how).

Connecting with a client id is `consume client:ID`. That kind came later than the others, so it is
the only one that is allowed where no rule says anything: a principal none of whose allows names it
has any client id that is free (ADR 20). The resource `*` of a deny does not reach it, for the same
reason; `client:*` does.

Adapters map their own nouns to these actions: an AMQP binding is `publish` on the destination and
`consume` on the source; a purge is `consume`; a passive declare, GetQueueUrl or QueryRoute is
`inspect`.
"""

from __future__ import annotations

import re
import shlex
from enum import Enum
from typing import NewType, TypeVar

import msgspec

from ..errors import AuthCode, AuthError

PATTERN_BYTES_MAX = 512
"""Longest pattern: twice the longest AMQP name, so that any name fits with wildcards."""

TREE_LEVELS_MAX = 64
"""Most levels in a `tree` pattern: bounds what one comparison costs, whatever a client sends."""

RESOURCES_PER_RULE_MAX = 16
"""Bounds, with the limits of the store, the patterns that one uncached decision looks at."""


class Effect(Enum):
    """What a rule does with what it matches. A deny beats every allow."""

    ALLOW = "allow"
    DENY = "deny"


class Action(Enum):
    """What can be done to a kernel name."""

    PUBLISH = "publish"
    CONSUME = "consume"
    """Receive, lease, settle, browse, purge; subscribe, for the topic tree."""
    CONFIGURE = "configure"
    """Create, alter, delete."""
    INSPECT = "inspect"
    """See that it exists, its settings and its figures; not its messages."""
    ADMINISTER = "administer"
    """Users, keys, policies, nodes."""


class ResourceKind(Enum):
    """Kinds of kernel names; a name means something else in each."""

    TOPIC = "topic"
    ROUTER = "router"
    TREE = "tree"
    """Names and filters of the tenant's topic tree, levels parted by `/`."""
    GROUP = "group"
    TENANT = "tenant"
    """The tenant itself, its users, keys and policies: who administers one has the admin API for
    all that is in it.
    """
    NODE = "node"
    """The installation: nodes, groups, tenants. Only principals of the tenant `default`."""
    CLIENT = "client"
    """Client ids, by which sessions are named that outlive connections. Only `consume`."""


_ACTIONS = tuple(Action)
_KINDS = tuple(ResourceKind)

Permission = NewType("Permission", int)
"""One (action, kind) as a small integer, so that the hot check is an index and a dict look-up."""

PERMISSION_COUNT = len(_ACTIONS) * len(_KINDS)


def permission(action: Action, kind: ResourceKind) -> Permission:
    """The number of an (action, kind). Adapters take theirs once, at import."""
    return Permission(_ACTIONS.index(action) * len(_KINDS) + _KINDS.index(kind))


def action_of(number: Permission) -> Action:
    return _ACTIONS[number // len(_KINDS)]


def kind_of(number: Permission) -> ResourceKind:
    return _KINDS[number % len(_KINDS)]


class Resource(msgspec.Struct, frozen=True, array_like=True):
    """A pattern over names of one kind. Kind None: every name of every kind, whatever `pattern`."""

    kind: ResourceKind | None
    pattern: str = "*"

    def __str__(self) -> str:
        return "*" if self.kind is None else f"{self.kind.value}:{self.pattern}"


class Rule(msgspec.Struct, frozen=True, array_like=True):
    """One line of a policy. Both tuples are non-empty."""

    effect: Effect
    actions: tuple[Action, ...]
    resources: tuple[Resource, ...]

    def __str__(self) -> str:
        actions = (
            "*"
            if set(self.actions) == set(Action)
            else ",".join(action.value for action in self.actions)
        )
        resources = (_quote(str(resource)) for resource in self.resources)
        return " ".join([self.effect.value, actions, *resources])


class Policy(msgspec.Struct, frozen=True, kw_only=True, tag="policy"):
    """A named list of rules. Their order decides nothing: a deny beats every allow."""

    tenant: str
    name: str
    rules: tuple[Rule, ...]
    version: int = 0
    note: str = ""
    """Words of whoever made the rules, for itself: it grants nothing, and goes with them."""


def _quote(word: str) -> str:
    """Quotes only what a shell-like reading would break; `*`, `$` and `#` stay readable."""
    return word if re.fullmatch(r"[^\s'\"\\]+", word) else shlex.quote(word)


def parse_rule(text: str) -> Rule:
    """The rule that `text` spells. Raises AuthError INVALID_ARGUMENT, saying what is wrong."""
    try:
        words = shlex.split(text, comments=False)
    except ValueError:
        raise _invalid(f"a quote is left open in the rule: {text}") from None
    if len(words) < 3:
        raise _invalid(
            "a rule is an effect, actions and at least one resource, as in "
            f"'allow publish,consume topic:orders-*'; this is not: {text}"
        )
    rule = Rule(
        _member(Effect, words[0], "effect"),
        _parse_actions(words[1]),
        tuple(_parse_resource(word) for word in words[2:]),
    )
    fault = rule_fault(rule)
    if fault is not None:
        raise _invalid(fault)
    return rule


def rule_fault(rule: Rule) -> str | None:
    """Why a rule cannot stand in a policy, or None if it can."""
    if not rule.actions or not rule.resources:
        return "a rule needs at least one action and one resource"
    if len(rule.resources) > RESOURCES_PER_RULE_MAX:
        return f"a rule names at most {RESOURCES_PER_RULE_MAX} resources: write two rules"
    for resource in rule.resources:
        fault = _resource_fault(resource)
        if fault is not None:
            return fault
        if resource.kind is ResourceKind.CLIENT and Action.CONSUME not in rule.actions:
            return f"to connect as {resource} is consume: a rule without it would say nothing"
    return None


_PLACEHOLDERS = ("${username}", "${clientid}")


def _resource_fault(resource: Resource) -> str | None:
    pattern = resource.pattern
    if not pattern or "\0" in pattern:
        return f"the pattern of {resource} is empty or holds a NUL"
    try:
        size = len(pattern.encode())
    except UnicodeEncodeError:
        return "a pattern is not valid Unicode"
    if size > PATTERN_BYTES_MAX:
        return f"a pattern has {size} bytes; at most {PATTERN_BYTES_MAX} are allowed"
    rest = pattern
    for placeholder in _PLACEHOLDERS:
        rest = rest.replace(placeholder, "x")
    if "${" in rest:
        return f"{resource} holds a placeholder other than {' and '.join(_PLACEHOLDERS)}"
    return _filter_fault(rest) if resource.kind is ResourceKind.TREE else None


def _filter_fault(pattern: str) -> str | None:
    """Why `pattern` is not a topic filter (MQTT5 4.7.1), or None."""
    levels = pattern.split("/")
    if len(levels) > TREE_LEVELS_MAX:
        return f"a tree pattern has {len(levels)} levels; at most {TREE_LEVELS_MAX} are allowed"
    for position, level in enumerate(levels):
        if "#" in level and (level != "#" or position != len(levels) - 1):
            return f"in tree:{pattern} a # must be the whole of the last level"
        if "+" in level and level != "+":
            return f"in tree:{pattern} a + must be the whole of its level"
    return None


def _parse_actions(word: str) -> tuple[Action, ...]:
    if word == "*":
        return _ACTIONS
    return tuple(dict.fromkeys(_member(Action, part, "action") for part in word.split(",")))


def _parse_resource(word: str) -> Resource:
    if word == "*":
        return Resource(None)
    kind, colon, pattern = word.partition(":")
    if not colon:
        raise _invalid(
            f"a resource is * or kind:pattern, as in topic:orders-*; this is not: {word}"
        )
    return Resource(_member(ResourceKind, kind, "kind of resource"), pattern)


_E = TypeVar("_E", bound=Enum)


def _member(enum: type[_E], text: str, what: str) -> _E:
    try:
        return enum(text)
    except ValueError:
        known = ", ".join(str(member.value) for member in enum)
        raise _invalid(f"{text!r} is no {what}; known are {known}") from None


def _invalid(message: str) -> AuthError:
    return AuthError(AuthCode.INVALID_ARGUMENT, message)
