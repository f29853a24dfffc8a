"""A process's log lines about topics that get other queues (ADR 31): by the leader of the topic's
home, whoever asked for it.

    topic resized         tenant, topic; how many queues took messages before (`before`) and do now
                          (`queues`); the numbers of those that are new (`made`), and of those that
                          take nothing more (`sealed`)
    sealed queues gone    tenant, topic; the numbers of those that everybody was done with (`gone`),
                          and how many sealed ones it has still (`sealed`)

    topic sized           tenant, topic; of one whose size is automatic: `what` was decided (grow,
                          shrink) and done, or is said (at its largest, hot key, failed, not
                          known), and `why`

There are LINES_MAX lines a minute, since who may resize may do it again and again; the next one
says how many were left out (`unlogged`). Who asked is said by `administered`, and in the audit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from adapters.line_budget import LineBudget
from kernel.common.ids import NUMBER_BITS

if TYPE_CHECKING:
    from collections.abc import Iterable

    import structlog.typing

    from kernel.api.model import QueueRef, TopicInfo
    from kernel.common.ports import Clock
    from kernel.definitions.automatic_size import What

LINES_MAX = 100
"""A minute: a hundred topics that grow at once."""


class ResizeLog:
    """Of one process."""

    def __init__(self, log: structlog.typing.FilteringBoundLogger, clock: Clock) -> None:
        self._log = log
        self._budget = LineBudget(clock, LINES_MAX)

    def queues_changed(self, before: TopicInfo, after: TopicInfo) -> None:
        """A topic has other queues than it had."""
        if not self._budget.allows((after.id, after.version)):
            return
        of = {"tenant": after.tenant, "topic": after.name}
        unlogged = self._budget.unlogged()
        made, gone = set(after.queues) - set(before.queues), set(before.queues) - set(after.queues)
        if made:
            sealed = _sealed(after) - _sealed(before)
            self._log.info(
                "topic resized",
                **of,
                before=len(before.writable),
                queues=len(after.writable),
                made=_numbers(made),
                sealed=_numbers(sealed),
                unlogged=unlogged,
            )
        else:
            self._log.info(
                "sealed queues gone",
                **of,
                gone=_numbers(gone),
                sealed=len(_sealed(after)),
                unlogged=unlogged,
            )

    def sized(self, topic: TopicInfo, what: What | None, why: str) -> None:
        """Something was decided, or is to be said, of a topic of automatic size."""
        if self._budget.allows((topic.id, topic.version, what)):
            self._log.info(
                "topic sized",
                tenant=topic.tenant,
                topic=topic.name,
                what="failed" if what is None else what.value,
                why=why,
                unlogged=self._budget.unlogged(),
            )


def _sealed(topic: TopicInfo) -> set[QueueRef]:
    return set(topic.queues) - set(topic.writable)


def _numbers(queues: Iterable[QueueRef]) -> list[int]:
    return sorted(each.id & NUMBER_BITS for each in queues)
