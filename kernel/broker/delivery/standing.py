"""What has become of one message for one group, for people: nothing decides by it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ...api.model import MessageStanding, Standing

if TYPE_CHECKING:
    from ..group_state.progress import GroupProgress
    from ..group_state.state import QueueState
    from .consumers import DispatchedConsumer
    from .ready import Ready


def standing_of(
    queue: QueueState,
    progress: GroupProgress,
    ready: Ready,
    consumers: Iterable[DispatchedConsumer],
    offset: int,
) -> MessageStanding:
    """`consumers`: all that may hold something. A message that waits may be kept back by a filter,
    by its ordering key, or because nobody asks.
    """
    if not max(queue.index.head, queue.trimmed) <= offset < queue.index.tail:
        return MessageStanding(Standing.GONE)
    if progress.is_acked(offset):
        return MessageStanding(Standing.DONE)
    failures = progress.failures(offset)
    holder = progress.holder(offset)
    if holder is not None and holder[2]:
        lease, until_ms, _ = holder
        return MessageStanding(Standing.LEASED if lease else Standing.DELAYED, failures, until_ms)
    if any(offset in each.held for each in consumers):
        return MessageStanding(Standing.HELD, failures)
    if ready.is_withheld(offset):
        return MessageStanding(Standing.DELAYED, failures)
    return MessageStanding(Standing.WAITING, failures)
