"""What the adapters have to say of the topics and groups that operators make: types of streams, and
what groups get without settings of their own (`adapters.base.Declaration`).

A protocol that is not served is asked too: its clients may come by another gateway, or later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel.api.model import GroupOptions, Start, TopicKind
from kernel.common.errors import Code, KernelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from adapters.base import Declaration, GroupDefaults, ProtocolSettings, TopicTypes
    from kernel.api.changes import PutTopic
    from kernel.api.model import TopicInfo, TopicOptions

WORK = "work"
"""The type of a topic that is kept for its groups; the others are streams
(docs/design/model.md#topics-and-queues)."""

NORMAL = "normal"
"""The type of a stream without another one."""


class PlainGroups:
    """Groups that begin with what is kept: for a gateway whose adapters ask for nothing else
    (`adapters.base.GroupDefaults`).
    """

    def options(self, topic: TopicInfo, group: str) -> GroupOptions:
        """The settings of a new group."""
        return GroupOptions(start=Start.EARLIEST)

    def dead_letters(self, tenant: str, group: str) -> PutTopic | None:
        """Nothing: no dead letters are kept."""
        return None


class DeclaredShapes:
    """The types of topics, and the defaults of groups, of all adapters together."""

    def __init__(
        self, declared: Mapping[str, Declaration], protocols: Mapping[str, ProtocolSettings]
    ) -> None:
        """`protocols`: the settings of the adapters that are declared, and of others."""
        self._types: dict[str, TopicTypes] = {
            name: each.topic_types()
            for name, each in declared.items()
            if each.topic_types is not None
        }
        self._titles = {name: declared[name].title for name in self._types}
        self.groups: GroupDefaults = next(
            (
                each.group_defaults(protocols[name])
                for name, each in declared.items()
                if each.group_defaults is not None
            ),
            PlainGroups(),
        )

    def type_of(self, topic: TopicInfo) -> str:
        """The type as `weir topic create` spells it."""
        if topic.options.kind is TopicKind.WORK:
            return WORK
        words = (each.word(topic.options) for each in self._types.values())
        return next((word for word in words if word is not None), NORMAL)

    def typed(self, options: TopicOptions, word: str) -> TopicOptions:
        """The options of a stream that is made with a type, which `check` has let pass."""
        for each in self._types.values():
            if word in each.words:
                options = each.typed(options, word)
        return options

    def check(self, word: str, spelled: Mapping[str, bool]) -> None:
        """Raise KernelError INVALID_ARGUMENT if nobody knows a type, or if no client that is served
        here and knows it could use the topic. `spelled`: whether the clients of each protocol that
        is served can spell its name.
        """
        if word in {WORK, NORMAL}:
            return
        know = [name for name, each in self._types.items() if word in each.words]
        if not know:
            listed = ", ".join(dict.fromkeys((NORMAL, *self._words(), WORK)))
            message = f"there is no type {word!r} of topics here; there are {listed}"
            raise KernelError(Code.INVALID_ARGUMENT, message)
        served = [spelled[name] for name in know if name in spelled]
        if served and not any(served):
            titles = " and ".join(self._titles[name] for name in know)
            message = f"only {titles}'s clients know the type {word}, and none can spell this name"
            raise KernelError(Code.INVALID_ARGUMENT, message)

    def _words(self) -> list[str]:
        return [word for each in self._types.values() for word in each.words]
