"""Room in the journal, made sure of before anything is proposed.

What does not fit the allocated segments never becomes part of the log: a segment is made first, and
if the disk has no room for one, the messages are withdrawn and their publishers hear NO_SPACE. The
rest (settlements, leases, definitions) goes into the last segment, which is kept for it; once that
is full too, the rest waits, unanswered, until there is space. So the write itself, which goes into
allocated space, never meets a full disk, and what has been acknowledged stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ...common.errors import Code, KernelError
from ...log.journal import Journal
from ..drivers.worker import Runner
from ..replicas.open_entry import Filled

RETRY_MS = 1_000
"""Between two tries to get a segment for what cannot be withdrawn."""

_HARD_STATE_BYTES = 8
"""Body of the hard state that may go with an entry."""


class Room:
    """Asked before every write. `ready` is called when it is worth asking again."""

    def __init__(
        self,
        journal: Journal,
        runner: Runner,
        call_later: Callable[[int, Callable[[], None]], object],
        ready: Callable[[], None],
        fatal: Callable[[str, BaseException], None],
    ) -> None:
        self._call_later = call_later
        self._journal = journal
        self._runner = runner
        self._ready = ready
        self._fatal = fatal
        self.waiting = False
        """A segment is being made, or there was no space for one: `ready` will be called."""
        self.starved = False
        """The last try found no space even for what cannot be withdrawn."""
        self.withdrawn = 0
        """Batches of messages refused because the disk was full."""

    def fits(self, filled: Sequence[Filled]) -> bool:
        """Whether all of it can be written now. False: not yet. Takes the messages out of it if
        the disk is full, and tells their publishers.
        """
        self.starved = False
        largest = max((len(each.body) for each in filled), default=0)
        left = self._left(filled)
        if left > 0 or (left == 0 and not any(each.has_messages for each in filled)):
            return True
        if self._journal.can_accept:
            self._make(largest)
            return False
        refusal = KernelError(Code.NO_SPACE, "the disk is full: no room for new messages")
        for each in filled:
            self.withdrawn += each.withdraw(refusal)
        if self._left(filled) >= 0:
            return True
        self.waiting = self.starved = True
        self._call_later(RETRY_MS, lambda: self._make(largest))
        return False

    def takes(self, body_bytes: Sequence[int]) -> bool:
        """Whether another leader's entries fit. If not, room is made for them, should there be any;
        the last segment is kept for what has been promised already.
        """
        if self._journal.segments_left([*body_bytes, _HARD_STATE_BYTES]) >= 0:
            return True
        if not self.waiting:
            self._make(max(body_bytes))
        return False

    def _left(self, filled: Sequence[Filled]) -> int:
        bodies = [len(each.body) for each in filled]
        return self._journal.segments_left([*bodies, *[_HARD_STATE_BYTES] * len(bodies)])

    def _make(self, body_bytes: int) -> None:
        """Have one more segment allocated, large enough for the largest entry."""
        self.waiting = True
        job = self._journal.further_segment(max(body_bytes, self._journal.largest_pending()))

        def finished(error: BaseException | None) -> None:
            self.waiting = False
            if error is not None:
                self._fatal("a segment of the journal could not be made", error)
                return
            self._journal.end_maintenance(job)
            self._ready()

        self._runner.submit(job.run, finished)
