"""Users of RabbitMQ and their permissions, as users and policies.

A user of RabbitMQ may have rights in several virtual hosts; ours belongs to one tenant. So it is
made in each tenant in which it has any (there it signs in as TENANT:USER), with a policy
`rabbitmq-USER`:

    configure R      allow configure topic:P router:P
    write R          allow publish topic:P router:P     and topic:* if R matches `amq.default`
    read R           allow consume topic:P router:P
    any of them      allow inspect topic:P router:P
    amq.topic in W   allow publish tree:#, or the filters of its topic permission; read likewise
    administrator    allow administer node:admin tenant:*        (of the virtual host `/`)

What cannot be said as a pattern is not granted. A topic permission of another exchange than
`amq.topic` has no equal, and so that nobody gets more than before, that exchange is denied.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from msgspec import Struct, json

from adapters.amqp.importing.name_patterns import is_found, patterns_of, tree_pattern_of
from adapters.amqp.names import DEFAULT_VIRTUAL_HOST, TREE
from adapters.definitions import PolicyDefined, UserDefined
from auth.password_checks.salted_hashes import is_salted, parts_of, salted_fault, spelled
from auth.policies.policy_rules import parse_rule
from kernel.common.errors import UNDECODABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    Say = Callable[[str, str], None]
    Row = Mapping[str, object]

RABBITS_OWN: Final = "guest"
ADMINISTRATOR: Final = "administrator"
ADMINISTERS: Final = "allow administer node:admin tenant:*"
"""What that tag grants."""

TAGS: Final = frozenset({ADMINISTRATOR, "management"})
"""Tags that mean something here: every user may use the management API."""

NOTHING: Final = "deny configure,publish,consume topic:* router:*"
"""Of who was permitted three times nothing: a policy has a rule."""

DEFAULT_EXCHANGE: Final = "amq.default"

OWN_ALGORITHM: Final = "argon2id"
"""What a hash of our own is called where RabbitMQ names its module."""

_MODULES: Final = "rabbit_password_hashing_"
_HASHES: Final = {f"{_MODULES}{kind}": kind for kind in ("sha256", "sha512")}
_FIRST_ALGORITHM: Final = f"{_MODULES}sha256"
"""RabbitMQ's own, where none is named."""

_RESOURCES_MAX: Final = 16
"""Of one rule (`auth.policies.policy_rules.RESOURCES_PER_RULE_MAX`); a pattern takes two."""

_ACTIONS: Final = {"configure": "configure", "write": "publish", "read": "consume"}


def policy_name(user: str) -> str:
    """The policy that holds what a user of RabbitMQ was permitted."""
    return f"rabbitmq-{user}"


def user_of(user: Row, rules: Sequence[str]) -> UserDefined:
    """A user in a virtual host in which these are its rules."""
    return UserDefined(
        policies=[policy_name(text(user, "name"))] if rules else [],
        password_hash=hash_of(user) or "",
    )


def hash_of(user: Row) -> str | None:
    """The hash of a user's password as it is stored here; empty: no password signs it in. None: it
    is hashed in a way that is not read.
    """
    encoded, algorithm = text(user, "password_hash"), text(user, "hashing_algorithm")
    if not encoded:
        return ""
    if algorithm == OWN_ALGORITHM:
        return encoded
    kind = _HASHES.get(algorithm or _FIRST_ALGORITHM)
    stored = spelled(kind, encoded) if kind is not None else ""
    return stored if stored and salted_fault(stored) is None else None


def hash_row(stored: str) -> dict[str, str]:
    """The same as RabbitMQ says it: the inverse of `hash_of`."""
    if not is_salted(stored):
        algorithm = OWN_ALGORITHM if stored else _FIRST_ALGORITHM
        return {"password_hash": stored, "hashing_algorithm": algorithm}
    kind, encoded = parts_of(stored)
    return {"password_hash": encoded, "hashing_algorithm": f"{_MODULES}{kind}"}


def policy_of(words: Words, rules: Sequence[str], *, exact: bool) -> PolicyDefined:
    """The policy of rules that were made of somebody's words; `exact`: nothing was left out."""
    return PolicyDefined(rules=list(rules), note=words.spelled() if exact else "")


class Words(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a user may do in one virtual host, as RabbitMQ was told it. The note of the policy."""

    tags: list[str] = []
    """Of those that mean something here: ADMINISTRATOR."""
    permission: dict[str, str] | None = None
    """Expressions by configure, write, read."""
    topics: list[dict[str, str]] = []
    """Topic permissions: exchange, write, read."""

    def spelled(self) -> str:
        """As the note has it."""
        return json.encode(self).decode()

    def rules(self, name: str, virtual_host: str, say: Say) -> list[str]:
        """What it comes to; `say` is told what has no equal and is not granted."""
        whose = {"user": name, "vhost": virtual_host}
        told: list[tuple[str, str]] = []
        rules = rules_of(
            {"name": name, "tags": self.tags},
            virtual_host,
            [] if self.permission is None else [{**whose, **self.permission}],
            [{**whose, **each} for each in self.topics],
            lambda what, why: told.append((what, why)),
        )
        for what, why in told:
            say(what, why)
        if not rules and not told and (self.permission is not None or self.topics):
            return [NOTHING]
        return rules


def words_of_rows(
    user: Row, virtual_host: str, permissions: Sequence[Row], topic_permissions: Sequence[Row]
) -> Words:
    """A user's words in one virtual host, of the rows of a document."""
    name = text(user, "name")
    permission = None
    for row in _of(permissions, name, virtual_host):
        permission = {word: text(row, word) for word in _ACTIONS}
    is_administrator = virtual_host == DEFAULT_VIRTUAL_HOST and ADMINISTRATOR in tags(user)
    return Words(
        tags=[ADMINISTRATOR] if is_administrator else [],
        permission=permission,
        topics=[
            {word: text(row, word) for word in ("exchange", "write", "read")}
            for row in _of(topic_permissions, name, virtual_host)
        ],
    )


def words_of(policy: PolicyDefined, name: str, virtual_host: str) -> Words | None:
    """What a policy was made of; None: it has been made, or altered, otherwise."""
    try:
        words = json.decode(policy.note, type=Words)
    except UNDECODABLE:
        return None
    told: list[str] = []
    rules = words.rules(name, virtual_host, lambda what, _: told.append(what))
    has = [str(parse_rule(each)) for each in policy.rules]
    return words if not told and [str(parse_rule(each)) for each in rules] == has else None


def rules_of(
    user: Row,
    virtual_host: str,
    permissions: Sequence[Row],
    topic_permissions: Sequence[Row],
    say: Say,
) -> list[str]:
    """What a user may do in one virtual host."""
    name = text(user, "name")
    rules: list[str] = []
    seen: list[str] = []
    for permission in _of(permissions, name, virtual_host):
        for word, action in _ACTIONS.items():
            expression = text(permission, word)
            found = patterns_of(expression)
            if found is None:
                why = f"the expression {expression!r} has no equal among patterns: nothing granted"
                say(f"permission {word} of user {name} in vhost {virtual_host}", why)
                continue
            seen += found
            rules += _rules(action, found)
            if word == "write" and is_found(expression, DEFAULT_EXCHANGE) and "*" not in found:
                rules.append("allow publish topic:*")
            if word != "configure" and is_found(expression, TREE):
                rules += _tree_rules(name, virtual_host, word, topic_permissions, say)
    rules += _rules("inspect", tuple(dict.fromkeys(seen)))
    rules += _denials(name, virtual_host, topic_permissions, say)
    if virtual_host == DEFAULT_VIRTUAL_HOST and ADMINISTRATOR in tags(user):
        rules.append(ADMINISTERS)
    return rules


def _of(rows: Sequence[Row], name: str, virtual_host: str) -> list[Row]:
    asked = (name, virtual_host)
    return [each for each in rows if (text(each, "user"), text(each, "vhost")) == asked]


def _rules(action: str, patterns: Sequence[str]) -> list[str]:
    found = []
    for first in range(0, len(patterns), _RESOURCES_MAX // 2):
        some = patterns[first : first + _RESOURCES_MAX // 2]
        resources = " ".join(_quoted(f"{kind}:{each}") for each in some for kind in KINDS)
        found.append(f"allow {action} {resources}")
    return found


KINDS: Final = ("topic", "router")


def _quoted(resource: str) -> str:
    return resource if re.fullmatch(r"[^\s'\"\\]+", resource) else f"'{resource}'"


def _tree_rules(
    name: str, virtual_host: str, word: str, topic_permissions: Sequence[Row], say: Say
) -> list[str]:
    """What a right to amq.topic says of the topic tree, into which it leads."""
    action = _ACTIONS[word]
    narrowed = [
        each
        for each in _of(topic_permissions, name, virtual_host)
        if text(each, "exchange") == TREE
    ]
    if not narrowed:
        return [f"allow {action} tree:#"]
    rules = []
    for each in narrowed:
        filters = tree_pattern_of(text(each, word))
        if filters is None:
            why = f"{text(each, word)!r} is no filter of the topic tree: nothing granted"
            say(f"topic permission {word} of user {name} in vhost {virtual_host}", why)
            continue
        rules += [f"allow {action} {_quoted(f'tree:{found}')}" for found in filters]
    return rules


def _denials(name: str, virtual_host: str, topic_permissions: Sequence[Row], say: Say) -> list[str]:
    rules = []
    for each in _of(topic_permissions, name, virtual_host):
        exchange = text(each, "exchange")
        if exchange == TREE:
            continue
        if not exchange:
            why = "means nothing: the default exchange looks at no pattern"
            say(f"topic permission of user {name} for the default exchange in {virtual_host}", why)
            continue
        why = "keys are told apart for amq.topic only: the exchange is denied to this user"
        say(f"topic permission of user {name} for exchange {exchange} in {virtual_host}", why)
        rules.append(f"deny publish,consume {_quoted(f'router:{exchange}')}")
    return rules


def text(row: Row, name: str) -> str:
    """A text of a row; empty if it is not there."""
    value = row.get(name)
    return value if isinstance(value, str) else ""


def tags(user: Row) -> list[str]:
    """A user's tags, as RabbitMQ 3.9 and later write them, or before."""
    value = user.get("tags")
    if isinstance(value, str):
        return [each for each in value.split(",") if each]
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []
