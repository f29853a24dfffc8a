"""Rights to the topic tree: what it takes to put something into it, or to get something out, by way
of routers and topics. One rule for all protocols.

    into a topic     publish topic:T,  and if the topic is part of the tree  publish tree:T
    out of a topic   consume topic:T,  and if the topic is part of the tree  consume tree:T/#

(Through routers: `adapters.amqp.topology.router_rights`.) So a policy on tree names holds whichever
way a message takes. Routes are checked when they are made, and not again for each message: whoever
makes one needs the rights to all that it can carry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from auth.policies.matching import ANY_NAME
from auth.policies.policy_rules import Action, ResourceKind, permission
from kernel.routing.tree_table import is_pattern

if TYPE_CHECKING:
    from adapters.base import Rights
    from auth.policies.policy_rules import Permission
    from kernel.api.model import TopicInfo

PUBLISH_TREE: Final = permission(Action.PUBLISH, ResourceKind.TREE)
CONSUME_TREE: Final = permission(Action.CONSUME, ResourceKind.TREE)
PUBLISH_TOPIC: Final = permission(Action.PUBLISH, ResourceKind.TOPIC)
CONSUME_TOPIC: Final = permission(Action.CONSUME, ResourceKind.TOPIC)
CONSUME_GROUP: Final = permission(Action.CONSUME, ResourceKind.GROUP)

WHOLE_TREE: Final = "#"
ANY_TOPIC: Final = ANY_NAME

Needed = tuple["Permission", str]
"""A right that something takes: what is to be done, to which name."""


def into_topic(name: str, topic: TopicInfo | None) -> tuple[Needed, ...]:
    """What it takes to write to a topic, which need not exist yet."""
    needed = (PUBLISH_TOPIC, name)
    return (needed, (PUBLISH_TREE, name)) if _in_tree(topic) else (needed,)


def out_of_topic(name: str, topic: TopicInfo | None) -> tuple[Needed, ...]:
    """What it takes to read a topic."""
    needed = (CONSUME_TOPIC, name)
    return (needed, (CONSUME_TREE, f"{name}/#")) if _in_tree(topic) else (needed,)


def allowed(rights: Rights, needed: tuple[Needed, ...]) -> bool:
    """Whether all of it is there."""
    return all(rights.allows(number, name) for number, name in needed)


def _in_tree(topic: TopicInfo | None) -> bool:
    """Whether what is written to a topic is in the tree. What is called like a pattern never is."""
    return topic is not None and topic.options.tree and not is_pattern(topic.name)
