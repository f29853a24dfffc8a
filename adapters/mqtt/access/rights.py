"""The rights that a client needs for what it asks: the rules in one place.

    CONNECT with a client id          consume client:ID     (one that the server chose: nothing)
    a will, a message                 publish tree:NAME
    filter                            consume tree:FILTER
    $share/GROUP/filter               consume tree:FILTER and consume group:GROUP
    $share/GROUP/topic                consume topic:TOPIC and consume group:GROUP, and if the topic
                                      is part of the tree consume tree:TOPIC/#

Subscriptions of a session that is kept are asked about again when it is resumed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from adapters.mqtt.codec.topic_filter import TopicFilter, parse_filter
from adapters.mqtt.delivery import notes
from adapters.tree_rights import (
    CONSUME_GROUP,
    CONSUME_TOPIC,
    CONSUME_TREE,
    allowed,
    out_of_topic,
)
from auth.policies.policy_rules import Action, ResourceKind, permission

if TYPE_CHECKING:
    from adapters.base import Rights
    from kernel.api.model import TopicInfo
    from kernel.api.tree import Belongings

USE_CLIENT: Final = permission(Action.CONSUME, ResourceKind.CLIENT)


def may_subscribe(rights: Rights, topic_filter: TopicFilter, topic: TopicInfo | None) -> bool:
    """Whether a filter may be had. `topic`: of whose consumer group it makes a member, if any."""
    pattern, share = topic_filter.pattern, topic_filter.share_name
    if share and not rights.allows(CONSUME_GROUP, share):
        return False
    if topic is not None:
        return allowed(rights, out_of_topic(pattern, topic))
    return rights.allows(CONSUME_TREE, pattern)


def may_have(rights: Rights, kept: Belongings) -> bool:
    """Whether a session that is nobody's, because an older build made it, may become the user's."""
    live = notes.subscriptions_of(kept.notes, notes.LIVE_SUBSCRIPTION)
    members = notes.subscriptions_of(kept.notes, notes.TOPIC_MEMBERSHIP)
    return (
        all(
            rights.allows(CONSUME_TREE, pattern)
            and (not share or rights.allows(CONSUME_GROUP, share))
            for share, pattern in kept.subscriptions
        )
        and all(may_subscribe(rights, parse_filter(text), None) for text in live)
        and all(_may_be_member(rights, parse_filter(text)) for text in members)
    )


def _may_be_member(rights: Rights, topic_filter: TopicFilter) -> bool:
    return rights.allows(CONSUME_TOPIC, topic_filter.pattern) and rights.allows(
        CONSUME_GROUP, topic_filter.share_name
    )
