"""What a leader knows of one member, and how it sends to it.

    state      sends                                  leaves the state when
    PROBE      one append, then waits for an answer   the member's log is found to match: REPLICATE
    REPLICATE  appends in a pipeline (`Inflights`)    an append is rejected, or lost: PROBE
    SNAPSHOT   nothing                                the member has what the log goes on from

`match` is the highest index known to be on the member's disk, `next` the first one to send:
match < next always.
"""

from __future__ import annotations

from typing import Final

from .inflights import Inflights

PROBE: Final = 0
REPLICATE: Final = 1
SNAPSHOTTING: Final = 2

STATE_NAMES: Final = ("probe", "replicate", "snapshot")


class Progress:
    """What a leader knows of one member."""

    __slots__ = (
        "inflights",
        "joined",
        "learner",
        "match",
        "next",
        "node",
        "paused",
        "pending_snapshot",
        "reading",
        "recent_active",
        "sent_commit",
        "stamp",
        "state",
    )

    def __init__(self, node: int, next_index: int, inflights: Inflights, *, learner: bool) -> None:
        self.node = node
        self.state = PROBE
        self.match = 0
        self.next = next_index
        self.paused = False
        """Not before an answer to an append or a heartbeat."""
        self.pending_snapshot = 0
        """Index of the snapshot that was sent, in SNAPSHOT."""
        self.recent_active = False
        """Heard of since the last check of the quorum."""
        self.sent_commit = 0
        """The commit index that was sent last."""
        self.inflights = inflights
        self.learner = learner
        self.joined = next_index
        """End of the leader's log when it became a member, or this one leader: whoever has so much
        has the entry that made it a member."""
        self.reading = False
        """What comes next is not in memory and has been asked for."""
        self.stamp = 0
        """The latest of our ticks that this member has answered."""

    @property
    def is_paused(self) -> bool:
        """Nothing may be sent now."""
        return self.paused or self.reading or self.state == SNAPSHOTTING

    def _enter(self, state: int) -> None:
        self.state = state
        self.paused = False
        self.reading = False
        self.pending_snapshot = 0
        self.inflights.clear()

    def become_probe(self) -> None:
        """Look for the last entry that matches, beginning behind the last one known to."""
        pending = self.pending_snapshot if self.state == SNAPSHOTTING else 0
        self._enter(PROBE)
        self.next = max(self.match, pending) + 1
        self.sent_commit = min(self.sent_commit, self.next - 1)

    def become_replicate(self) -> None:
        """The logs match up to `match`: send what follows without waiting."""
        self._enter(REPLICATE)
        self.next = self.match + 1

    def become_snapshot(self, index: int) -> None:
        """A snapshot up to `index` has been sent."""
        self._enter(SNAPSHOTTING)
        self.pending_snapshot = index
        self.next = index + 1
        self.sent_commit = index

    def sent(self, count: int, size: int) -> None:
        """An append with so many entries of so many bytes has been sent."""
        if self.state == REPLICATE:
            inflights = self.inflights
            if count:
                self.next += count
                inflights.add(self.next - 1, size)
            # A message that fills the window, or an empty one that goes while it is full, is a
            # probe: the next one waits for an answer.
            self.paused = inflights.full
        elif count:
            self.paused = True

    def can_bump_commit(self, commit: int) -> bool:
        """Whether telling this commit index may move the member's; not if what was told last
        already covers all it was sent.
        """
        return commit > self.sent_commit and self.sent_commit < self.next - 1

    def update(self, index: int) -> bool:
        """The member has everything up to `index`; False if that is no news."""
        if index <= self.match:
            return False
        self.match = index
        if index >= self.next:
            self.next = index + 1
        self.paused = False
        return True

    def decrease(self, rejected: int, hint: int) -> bool:
        """The append behind `rejected` did not match, and the logs may match at `hint`: where to
        go on. False if the answer is an old one.
        """
        if self.state == REPLICATE:
            if rejected <= self.match:
                return False
            self.next = self.match + 1
        else:
            if rejected != self.next - 1:
                return False
            self.next = max(min(rejected, hint + 1), self.match + 1)
            self.paused = False
        self.sent_commit = min(self.sent_commit, self.next - 1)
        return True
