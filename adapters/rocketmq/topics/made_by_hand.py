"""Topics and groups that an operator makes, so that RocketMQ's clients find what they count on: the
types of topics, and what a group has that was made by no client (`adapters.base.Declaration`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from adapters.base import TopicTypes
from kernel.api.model import DeadLetter, GroupOptions, Start, TopicKind

from ..messages.topic_types import TOPIC_TYPES, dead_letters_of, declared, word_of
from ..names import dead_letter_topic

if TYPE_CHECKING:
    from adapters.base import ProtocolSettings
    from kernel.api.changes import PutTopic
    from kernel.api.model import TopicInfo

TYPES: Final = TopicTypes(words=tuple(TOPIC_TYPES), typed=declared, word=word_of)


@dataclass(frozen=True, slots=True)
class Groups:
    """Groups like those that clients make by use: so many attempts, then a topic of dead letters.
    They begin with what is kept, and have the kernel's lease (`adapters.base.GroupDefaults`).
    """

    settings: ProtocolSettings

    def options(self, topic: TopicInfo, group: str) -> GroupOptions:
        """The settings of a new group of a topic."""
        options = topic.options
        return GroupOptions(
            start=Start.EARLIEST,
            ordered=options.kind is not TopicKind.WORK and word_of(options) == "fifo",
            attempts_max=self.settings.limit("attempts_max"),
            dead_letter=DeadLetter(None, dead_letter_topic(group)),
        )

    def dead_letters(self, tenant: str, group: str) -> PutTopic:
        """What makes the topic for the dead letters of a group."""
        return dead_letters_of(tenant, group, self.settings.limit("dead_letter_retention_ms"))
