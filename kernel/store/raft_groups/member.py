"""A member of one Raft group on this node: core, log, state, and while it leads, the leader.

follower:   the state follows the log; nobody is served from here
leader:     `lead` begins a term with LEADER_START; once that is applied, clients are served
it is over: `follow` tells everybody who waits that the outcome is not known here
"""

from __future__ import annotations

from collections.abc import Callable

from ...broker.group_state.state import GroupState
from ...broker.log_commands import commands
from ...common.errors import Code, KernelError
from ...common.ids import LogIndex, RaftGroup
from ...raft.core import RaftCore
from ...raft.messages import CONFIGURATION, Entry
from ..leading.local_leader import LocalLeader
from ..replicas.noted_leases import noted_leases
from ..replicas.open_entry import Filled
from ..replicas.replica import Replica
from .group_log import GroupLog


class Member:
    """See the module's head. The store drives it."""

    __slots__ = ("core", "group", "leader", "leads", "log", "replica", "serves", "state")

    def __init__(
        self, core: RaftCore, log: GroupLog, replica: Replica, leader: LocalLeader
    ) -> None:
        self.group: RaftGroup = replica.group
        self.core = core
        self.log = log
        self.replica = replica
        self.leader = leader
        self.state: GroupState = replica.state
        self.leads = False
        self.serves = False
        """It leads, and what was handed out before its term has been taken back."""

    def lead(self, node: str, *, alone: bool, clean: bool, started: Callable[[], None]) -> bool:
        """An election was won. `started` is called once it may serve. `clean`: the last leader
        was this one, and ended in order. False: see `Replica.lead`.
        """
        self.leads = True
        self.replica.noted = noted_leases(self.log.newest(), self.state.time_ms)
        may_stamp = self.replica.lead(alone=alone)
        term = self.core.term

        def applied(_result: object) -> None:
            if self.leads and self.core.term == term:
                self.serves = True
                self.leader.begin()
                self.replica.watch()
                started()

        self.replica.propose(commands.LeaderStart(node, clean), (0, 0, 0), applied)
        return may_stamp

    def follow(self) -> None:
        """Another node may lead by now: nobody is served from here any more."""
        self.leads = self.serves = False
        self.leader.begin()
        error = KernelError(Code.UNKNOWN_OUTCOME, "this node does not lead the group any more")
        self.replica.follow(error, KernelError(Code.NOT_LEADER, error.message))

    def proposed(self, filled: Filled) -> None:
        """Append an entry to the log."""
        index = self.core.propose((filled.body,))
        self.replica.proposed(LogIndex(index), filled)

    def replace(self, replica: Replica, leader: LocalLeader) -> None:
        """A snapshot has taken the place of the state."""
        self.follow()
        self.replica = replica
        self.leader = leader
        self.state = replica.state

    def apply(self, entry: Entry) -> None:
        """Apply a committed entry."""
        if entry.kind == CONFIGURATION:
            state = self.state
            state.membership = self.core.apply_configuration(entry)
            state.applied = LogIndex(entry.index)
            state.term = entry.term
        else:
            self.replica.apply(entry.index, entry.term, entry.body)
