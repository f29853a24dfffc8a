"""The word that a store is no member of a group any more: what it had there may go.

    leader of the group: members without the store -> LeaveGroup -> checkpoint -> room is free

It may come late, when the store is a member again. So it names where the leader's log ended then: a
store whose log goes on behind that has heard of the group since. And nobody is made a voter before
it has the entry that has made it a learner (`healing.may_vote`), so that no voter ever obeys an old
word.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...common.errors import Code, KernelError
from ...common.feature_levels import REPLICAS, spelled
from ...common.ids import METADATA_GROUP, RaftGroup
from ...raft.log import RaftLog


@dataclass(frozen=True, slots=True)
class LeaveGroup:
    """See the module's head."""

    group: RaftGroup
    term: int
    index: int
    """The group's leader led this term, and its log ended there, when the store was no member."""
    level: int
    """What is on in group 0 (`feature_levels`): the checkpoint says it too."""

    def check(self, log: RaftLog, understands: int) -> None:
        """Raise KernelError: NOT_ALLOWED, it cannot be written; INVALID_ARGUMENT, it is old."""
        if self.group == METADATA_GROUP:
            message = "every store knows what is on in the cluster, and keeps group 0 for that"
            raise KernelError(Code.NOT_ALLOWED, message)
        if not REPLICAS <= self.level <= understands:
            message = f"a group is left with level {spelled(REPLICAS)} on, which is off"
            raise KernelError(Code.NOT_ALLOWED, message)
        if (log.last_term, log.last_index) > (self.term, self.index):
            message = f"the log of group {self.group} goes on behind {self.index}"
            raise KernelError(Code.INVALID_ARGUMENT, message)
