"""What exchanges add to `adapters.tree_rights`: what it takes to send something through one, and
to have something from it. A key is the kernel's spelling of what a message may have: one key, a
pattern, or None for any.

    through ''               what it takes to write to the queue that the key names
    through weir.topics      publish router:weir.topics, and the same
    through amq.topic,       publish router:NAME, publish tree:KEY
    or another tree router
    through another one      publish router:NAME

    from weir.topics         consume router:weir.topics, and what it takes to read the queue
    from a tree router       consume router:NAME, consume tree:KEY
    from another one         consume router:NAME

Who publishes needs it for the key of each message; who makes a route, a dead-letter exchange or an
alternate exchange, for every key that it can pass on. What is published through that later needs no
more than the right on what it is published to. A pattern of AMQP's with a `#` before its end is
taken for the filter that ends there: never for less than it matches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.amqp.names import TREE
from adapters.tree_rights import (
    ANY_TOPIC,
    CONSUME_TREE,
    PUBLISH_TOPIC,
    PUBLISH_TREE,
    WHOLE_TREE,
    Needed,
    into_topic,
    out_of_topic,
)
from auth.policies.policy_rules import Action, ResourceKind, permission
from kernel.api.model import TOPICS_ROUTER, Match

if TYPE_CHECKING:
    from kernel.api.model import RouterInfo, TopicInfo

PUBLISH_ROUTER: Final = permission(Action.PUBLISH, ResourceKind.ROUTER)
CONSUME_ROUTER: Final = permission(Action.CONSUME, ResourceKind.ROUTER)

_ANY_QUEUE: Final[tuple[Needed, ...]] = ((PUBLISH_TOPIC, ANY_TOPIC), (PUBLISH_TREE, WHOLE_TREE))


def keys_of(source: RouterInfo, key: str) -> str | None:
    """The keys of messages that a binding key of an exchange lets pass; None: any."""
    if source.options.match in {Match.EXACT, Match.PATTERN}:
        return key
    return None


def names_topic(exchange: str, key: str | None) -> bool:
    """Whether a key of an exchange is the name of a topic."""
    return key is not None and exchange in {"", TOPICS_ROUTER}


def through(
    exchange: str, router: RouterInfo | None, key: str | None, topic: TopicInfo | None
) -> tuple[Needed, ...]:
    """What it takes to send through an exchange (`router`: None if it is not there yet; '': the
    default one). `topic`: the one that the key names, if it does and there is one.
    """
    needed: tuple[Needed, ...] = ((PUBLISH_ROUTER, exchange),) if exchange else ()
    if exchange in {"", TOPICS_ROUTER}:
        return needed + (_ANY_QUEUE if key is None else into_topic(key, topic))
    if exchange == TREE or (router is not None and router.options.tree):
        return (*needed, (PUBLISH_TREE, _filter_of(key)))
    return needed


def out_of(source: RouterInfo, key: str, topic: TopicInfo | None) -> tuple[Needed, ...]:
    """What it takes to have what an exchange passes on by a binding key. `topic`: see `through`."""
    needed: tuple[Needed, ...] = ((CONSUME_ROUTER, source.name),)
    if source.name == TOPICS_ROUTER:
        return needed + out_of_topic(key, topic)
    if source.options.tree:
        return (*needed, (CONSUME_TREE, _filter_of(keys_of(source, key))))
    return needed


def _filter_of(key: str | None) -> str:
    """A filter of the tree that has all that a key lets pass."""
    if key is None:
        return WHOLE_TREE
    levels = key.split("/")
    return "/".join(levels[: levels.index("#") + 1]) if "#" in levels else key
