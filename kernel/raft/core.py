"""One Raft group on one node, in the shape of a raw node: no clock, socket, file or thread inside.

    step(message), tick(), propose(...), ...    something happens
    ready() -> Ready                            what the driver must do now
    stable(number)                              a Ready and all before it are on disk
    applied(index)                              committed entries have been applied
    apply_configuration(entry)                  one of them changes the membership
    loaded(wanted)                              entries asked for are in memory

The driver moves messages, writes what a Ready brings in order, applies what is committed, and calls
back; it may have many Readies under way. What leaves before a sync and what after it is told apart
in the Ready: a leader's appends go out while its own disk still writes, votes and answers wait.
Guarantees and their place: entries of earlier terms commit only under one of this term
(`leader.maybe_commit`); an old append never shortens the log (`RaftLog.accept`); an answer of the
disk counts only for what the log still holds of that write (`RaftLog.written`); a candidate counts
its own vote only once it is on disk.

Attributes may be read by drivers and tests; only this package writes them.
"""

from __future__ import annotations

from collections.abc import Sequence

from . import election, follower, leader, messages, read_only, sending
from .errors import NotLeader, UnknownSender
from .members.configuration import ConfigurationChange, changed, decode, encode
from .messages import (
    ANSWERS,
    FOLLOWER,
    LEADER,
    Entry,
    HardState,
    Membership,
    RaftMessage,
    ReadState,
    ReadWanted,
    Ready,
    Snapshot,
    SoftState,
)
from .options import RaftOptions
from .roles import HANDLERS
from .state import Jitter, RaftState
from .status import Status, status_of
from .storage import Storage


class RaftCore(RaftState):
    """One group on this node."""

    __slots__ = ()

    def __init__(
        self,
        options: RaftOptions,
        storage: Storage,
        hard_state: HardState,
        membership: Membership,
        applied: int,
        jitter: Jitter,
        configurations: Sequence[int] = (),
    ) -> None:
        """`hard_state`: as synced; `membership`: as of `applied`; `configurations`: indexes of the
        changes of membership behind `applied`. LogDamaged if these do not fit the log.
        """
        super().__init__(
            options, storage, hard_state, membership, applied, jitter, configurations, HANDLERS
        )

    # --- What happens -----------------------------------------------------------------------

    def step(self, message: RaftMessage) -> None:
        """A message has come from another node.

        UnknownSender for an answer of a non-member; what `propose`, `propose_configuration` and
        `read_index` raise for such a request that was forwarded; LogDamaged.
        """
        kind = message.kind
        if message.sender not in self.tracker.progress and kind in ANSWERS:
            raise UnknownSender(message.sender)
        term = message.term
        if term != self.term and term and not election.other_term(self, message):
            return
        handler = self.handlers[kind]
        if handler is not None:
            handler(self, message)

    def tick(self, elapsed: int = 1) -> None:
        """So many ticks have passed. After a pause of the process the driver says how many, before
        anything else: a lease must not outlive a pause.
        """
        self.ticks += elapsed
        self.election_elapsed += elapsed
        if self.silent_ticks:
            self.silent_ticks = max(0, self.silent_ticks - elapsed)
        if self.role != LEADER:
            if self.election_elapsed >= self.election_timeout and election.may_campaign(self):
                self.election_elapsed = 0
                election.hang_up(self)
            return
        self.heartbeat_elapsed += elapsed
        if self.election_elapsed >= self.options.election_ticks:
            self.election_elapsed = 0
            if self.options.check_quorum:
                leader.check_quorum(self)
                if self.role != LEADER:
                    return
            self.transferee = 0
        if self.heartbeat_elapsed >= self.options.heartbeat_ticks:
            self.heartbeat_elapsed = 0
            sending.heartbeat(self, self.reads.last_context())
            if self.tracker.members.auto_leave:
                leader.leave_joint_if_due(self)

    def propose(self, bodies: Sequence[bytes]) -> int:
        """Append entries with these bodies at the leader; index of the first. A follower with
        `forward_proposals` sends them on and returns 0.

        NotLeader, TransferUnderWay, ProposalsFull (`max_uncommitted_bytes`); ValueError for
        nothing.
        """
        if not bodies:
            raise ValueError("a proposal of no entries")
        if self.role == LEADER:
            return leader.propose(self, bodies)
        self._forward([Entry(0, 0, messages.NORMAL, body) for body in bodies])
        return 0

    def propose_configuration(self, change: ConfigurationChange) -> int:
        """Append a change of membership at the leader; its index, or 0 if it was sent on. The
        empty change ends a joint configuration. It counts once it is applied.

        NotLeader, TransferUnderWay; ConfigurationRefused if another change is not applied yet or
        this one does not fit; ValueError for more than CHANGES_MAX changes.
        """
        body = encode(change)
        if self.role == LEADER:
            return leader.propose_change(self, body)
        self._forward([Entry(0, 0, messages.CONFIGURATION, body)])
        return 0

    def _forward(self, entries: Sequence[Entry]) -> None:
        if not self.options.forward_proposals or not self.leader:
            raise NotLeader(self.leader)
        self.messages.append(
            RaftMessage(messages.PROPOSE, self.node, self.leader, 0, entries=entries)
        )

    def read_index(self, context: bytes) -> None:
        """Ask for an index: once a ReadState with this context has come and that index is applied,
        a read sees everything that was committed before this call. Ask again after a change of
        leader: what was asked of the old one is forgotten.

        `context`: not empty, unique on all nodes. NotLeader, ReadsFull.
        """
        if not context:
            raise ValueError("a read needs a context")
        request = RaftMessage(messages.READ_INDEX, self.node, self.leader, 0, context=context)
        if self.role == LEADER:
            read_only.on_read_index(self, request)
        elif self.leader:
            self.messages.append(request)
        else:
            raise NotLeader(0)

    def transfer(self, to: int) -> None:
        """Hand leadership to another voter. It has one election timeout; no proposal is taken
        meanwhile. NotLeader if no leader is known.
        """
        self.step(RaftMessage(messages.TRANSFER, to, 0, 0))

    def campaign(self) -> bool:
        """Start an election; False if it leads, may not, or must first apply a new membership."""
        return election.hang_up(self)

    def forget_leader(self) -> bool:
        """Grant votes as if nothing had been heard of the leader; False if this node leads, or
        with lease reads, which rely on it.
        """
        if self.role != FOLLOWER or self.options.lease_reads:
            return False
        self.leader = 0
        return True

    def report_unreachable(self, node: int) -> None:
        """Messages to the node were lost: probe it before sending more."""
        if self.role == LEADER:
            leader.report_unreachable(self, node)

    def report_snapshot(self, node: int, *, installed: bool) -> None:
        """Sending a snapshot to the node has ended. Once it is installed the node answers; after a
        failure the next heartbeat's answer starts over.
        """
        if self.role == LEADER:
            leader.report_snapshot(self, node, installed=installed)

    def install(self, snapshot: Snapshot) -> None:
        """A snapshot on this disk has taken the place of the log. LogDamaged if that is longer."""
        follower.install(self, snapshot)

    # --- What is to be done -----------------------------------------------------------------

    def ready(self) -> Ready:
        """What is to be done now; everything in it counts as taken over by the driver."""
        log = self.log
        entries: Sequence[Entry] = ()
        if log.handed != log.last_index:
            entries = log.take_unwritten()
        committed: Sequence[Entry] = ()
        if log.applying < log.committed:
            committed = self._take_committed()
        hard_state = None
        must_sync = bool(entries)
        # A vote that is lost could be given twice; a commit index that is lost is learnt again.
        if self.term != self._told_term or self.vote != self._told_vote:
            must_sync = True
            self._told_term, self._told_vote = self.term, self.vote
            self._told_commit = log.committed
            hard_state = HardState(self.term, self.vote, log.committed)
        elif log.committed != self._told_commit:
            self._told_commit = log.committed
            hard_state = HardState(self.term, self.vote, log.committed)
        soft_state = None
        if self.role != self._told_role or self.leader != self._told_leader:
            self._told_role, self._told_leader = self.role, self.leader
            soft_state = SoftState(self.leader, self.role)
        snapshot: Snapshot | None = None
        if log.snapshot is not None and not log.snapshot_handed:
            log.snapshot_handed = True
            snapshot = log.snapshot
        after: Sequence[RaftMessage] = ()
        if self.after_sync:
            after, self.after_sync = self.after_sync, []
        number = 0
        if must_sync or after or snapshot is not None or self.own_vote is not None:
            number = self._number = self._number + 1
            index = snapshot.index if snapshot is not None else 0
            log.writes.append((number, log.handed, index, self.own_vote))
            self.own_vote = None
        now: Sequence[RaftMessage] = ()
        if self.messages:
            now, self.messages = self.messages, []
        read_states: Sequence[ReadState] = ()
        if self.read_states:
            read_states, self.read_states = self.read_states, []
        wanted: Sequence[ReadWanted] = ()
        if self.reads_wanted:
            wanted, self.reads_wanted = self.reads_wanted, []
        return Ready(
            number,
            must_sync,
            hard_state,
            soft_state,
            entries,
            snapshot,
            committed,
            now,
            after,
            read_states,
            wanted,
        )

    def _take_committed(self) -> Sequence[Entry]:
        log = self.log
        waited = log.reading
        committed = log.take_committed()
        if committed:
            left = self.uncommitted_bytes - log.taken_bytes
            self.uncommitted_bytes = max(0, left)
        elif log.reading and not waited:
            limit = self.options.max_applying_bytes
            self.reads_wanted.append(ReadWanted(log.applying + 1, log.base, limit, 0))
        return committed

    # --- What has been done -----------------------------------------------------------------

    def stable(self, number: int) -> None:
        """The Ready of this number and all before it are on disk; their snapshot is installed."""
        votes = self.log.written(number)
        if votes is not None and self.tracker.own is not None:
            for vote in votes:
                self.step(vote)
        if self.role == LEADER:
            leader.own_stable(self)

    def applied(self, index: int) -> None:
        """Committed entries up to `index` have been applied."""
        self.log.applied_to(index)
        if self.role == LEADER and self.tracker.members.auto_leave:
            leader.leave_joint_if_due(self)

    def apply_configuration(self, entry: Entry) -> Membership:
        """A committed CONFIGURATION entry is being applied: the membership in force from now on.
        An entry that a snapshot has overtaken changes nothing. ConfigurationRefused if it does not
        fit: then nothing has changed, on any node.
        """
        if self.log.snapshot is not None or entry.index <= self.log.applied:
            return self.tracker.members
        members = changed(self.tracker.members, decode(entry.body))
        self.tracker.switch(members, self.log.last_index)
        if self.role == LEADER:
            leader.members_changed(self)
        return members

    def loaded(self, wanted: ReadWanted) -> None:
        """The first of the entries asked for is in memory now (or the read has failed, and is to
        be asked for again if it is still wanted).
        """
        if not wanted.node:
            self.log.reading = False
            return
        progress = self.tracker.progress.get(wanted.node)
        if self.role == LEADER and progress is not None and progress.reading:
            progress.reading = False
            leader.catch_up(self, progress)

    # --- What is the case -------------------------------------------------------------------

    def holds_lease(self) -> bool:
        """Whether this node leads and no other can lead by now. As good as the tick rate: the
        driver's ticks of any two nodes must not differ by more than LEASE_MARGIN_TICKS in an
        election timeout.
        """
        return self.role == LEADER and read_only.holds_lease(self)

    def is_level(self) -> bool:
        """Whether this node leads and everyone has everything, so that ticks may stop until `wake`.
        The driver tells the followers, which must stop theirs too.
        """
        return self.role == LEADER and leader.is_level(self)

    def wake(self) -> None:
        """Ticks go on after the group was quiescent: nobody is held to have been silent meanwhile.
        A leader says at once that it lives.
        """
        self.election_elapsed = 0
        if self.role == LEADER:
            leader.wake(self)

    def status(self) -> Status:
        """For people and metrics; not for every commit."""
        return status_of(self)
