"""Appends sent to a follower and not yet answered: a window bounded in messages and in bytes."""

from __future__ import annotations

from collections import deque


class Inflights:
    """First in, first out. One more message may go while neither bound is reached, so that the
    bytes may exceed theirs by one message.
    """

    __slots__ = ("_queue", "bytes", "bytes_max", "count_max")

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self.count_max = count_max
        self.bytes_max = bytes_max
        self.bytes = 0
        self._queue: deque[tuple[int, int]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def full(self) -> bool:
        """Whether the follower must answer before more is sent."""
        return len(self._queue) >= self.count_max or self.bytes >= self.bytes_max

    def add(self, last: int, size: int) -> None:
        """A message whose last entry is `last`, of so many bytes, has been sent."""
        self._queue.append((last, size))
        self.bytes += size

    def free(self, index: int) -> None:
        """The follower has everything up to `index`."""
        queue = self._queue
        while queue and queue[0][0] <= index:
            self.bytes -= queue.popleft()[1]

    def clear(self) -> None:
        """Nothing counts as under way any more."""
        self._queue.clear()
        self.bytes = 0
