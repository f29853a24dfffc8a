"""What sealed queues know of deduplication ids goes to the groups of their successors (ADR 31).

    READ_WINDOW where the queue is -> ADD_WINDOW where a successor is to be -> until nothing is left

Once while the queues still take messages, however long that takes; and once more behind SEAL, when
publishers wait, for what has come since. Whatever was sent twice is known by its offset.

Durability: `hand_over` returns once every id that a queue had seen when it was sealed is on disk at
a majority of each group in which it is to have a successor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Protocol

from ..api.model import QueueRef
from ..broker.log_commands import commands
from ..broker.log_commands.resize_commands import (
    NOT_THERE,
    AddWindow,
    ReadWindow,
    Seal,
    WindowPart,
)
from ..common.errors import Code, KernelError
from ..common.ids import NUMBER_BITS, Offset, QueueId, RaftGroup, topic_of

ROWS_MAX = 1_024
"""Ids of one part: a millisecond where it is applied."""

AT_ONCE_MAX = 16
"""Queues whose windows are under way at once: each part of them is some 100 KB here."""

IDS_MAX = 1_000_000
"""Ids that one resize may copy, counted once for each group that they go to: some 150 MB of log,
and as much memory until their window is past. FIFO queues that keep to 300 messages/s have 90,000
in their five minutes."""

TRIES_MAX = 10
"""Leaders that are asked until one of them knows that a queue is sealed."""

HandOvers = Mapping[QueueRef, Sequence[RaftGroup]]
"""Queues that are sealed, or about to be, and the other groups in which they get successors."""


class Propose(Protocol):
    """Has a command carried out in a group, wherever it is led; its result."""

    async def __call__(self, group: RaftGroup, command: commands.Control, /) -> object:
        """Raises its result if that is a KernelError."""


class WindowHandOver:
    """Of one resize."""

    def __init__(self, propose: Propose, hand_overs: HandOvers) -> None:
        self._propose = propose
        self._hand_overs = hand_overs
        self._wanted: dict[tuple[QueueId, RaftGroup], Offset] = {}
        """From which offset on a group does not know what a queue has seen."""
        self._at_once = asyncio.Semaphore(AT_ONCE_MAX)

    async def check_size(self) -> None:
        """LIMIT_EXCEEDED if there are too many ids."""
        parts = await asyncio.gather(
            *(self._read(ref, ReadWindow(ref.id, Offset(0), 0)) for ref in self._hand_overs)
        )
        targets = map(len, self._hand_overs.values())
        ids = sum(part.left * count for part, count in zip(parts, targets, strict=True))
        if ids > IDS_MAX:
            message = (
                f"its window has {ids} deduplication ids for queues in other Raft groups, and "
                f"{IDS_MAX} are copied at most: resize it within its groups, or at a calmer time"
            )
            raise KernelError(Code.LIMIT_EXCEEDED, message)

    async def hand_over(self, ends: Mapping[QueueId, int] | None = None) -> None:
        """Copy all that is known now; with `ends`, where each of the queues ends, all that they
        will ever know. Raises KernelError: BUSY, nobody who knows of SEAL has answered.
        """
        await asyncio.gather(
            *(
                self._copy(ref, groups, ends.get(ref.id) if ends is not None else None)
                for ref, groups in self._hand_overs.items()
            )
        )

    async def _copy(self, ref: QueueRef, groups: Sequence[RaftGroup], end: int | None) -> None:
        """Copy a queue's window; `end`: where it ends, if it is sealed."""
        if end == NOT_THERE:
            return  # retired since: its window is past
        async with self._at_once:
            for group in groups:
                if (ref.id, group) not in self._wanted:
                    await self._add(ref.id, group, AddWindow(ref.id, []))
            misled = 0
            while True:
                first = min(self._wanted[ref.id, group] for group in groups)
                part = await self._read(ref, ReadWindow(ref.id, first, ROWS_MAX))
                if part.rows:
                    more = AddWindow(ref.id, part.rows)
                    await asyncio.gather(*(self._add(ref.id, each, more) for each in groups))
                if part.left:
                    continue
                if end is None or part.end == end:
                    return
                # Somebody who leads no more; who has SEAL in the log is found by asking for it.
                misled += 1
                if misled == TRIES_MAX:
                    message = f"no leader of group {ref.group} says that queue {ref.id:x} is sealed"
                    raise KernelError(Code.BUSY, message)
                again = Seal(topic_of(ref.id), (ref.id & NUMBER_BITS,))
                await self._propose(ref.group, again)

    async def _add(self, queue: QueueId, group: RaftGroup, command: AddWindow) -> None:
        wanted = await self._propose(group, command)
        assert isinstance(wanted, int)
        self._wanted[queue, group] = Offset(wanted)

    async def _read(self, ref: QueueRef, question: ReadWindow) -> WindowPart:
        part: object = None
        # A leader that begins to lead has it carried out by the log, which may forget the result.
        while not isinstance(part, WindowPart):
            part = await self._propose(ref.group, question)
        return part
