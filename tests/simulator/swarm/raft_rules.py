"""Raft's invariants (docs/design/replication.md#how-it-is-tested), each with a name, checked where
it could be broken."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel.log.journal import Journal
from kernel.raft.messages import (
    APPEND,
    APPEND_ANSWER,
    CONFIGURATION,
    HEARTBEAT,
    LEADER,
    SNAPSHOT,
    VOTE_ANSWER,
    Entry,
    Membership,
    RaftMessage,
    Snapshot,
)
from kernel.store.raft_groups.member import Member

if TYPE_CHECKING:
    from kernel.raft.core import RaftCore

    from .machines import Machine
    from .run import Run

LOG_TIME_AHEAD_MS = 61_000
"""A clock that is a minute ahead is believed."""

_LEADS = frozenset({APPEND, HEARTBEAT, SNAPSHOT})


Record = tuple[int, int, int, int, int]
"""(group, index, term, vote, commit) of an entry, or of a hard state, which has no index."""


class Synced:
    """What of one group is on a disk for certain: by what was synced, whatever the product says."""

    def __init__(self) -> None:
        self.terms: dict[int, int] = {}
        self.lost: dict[int, int] = {}
        """Entries that were there, and were lost since with a bad disk. They have counted."""
        self.queued: dict[tuple[int, int], None] = {}
        """Entries, by index and term, on their way to it: they may be there, and what they replace
        is void then."""
        self.last = 0
        self.most = 0
        """The last entry that ever was there."""
        self.snapshot = 0
        self.term = 0
        self.vote = 0
        self.commit = 0

    def put(self, index: int, term: int) -> None:
        """An entry; those behind it are void, and those queued before it are there too."""
        while self.queued and (index, term) in self.queued:
            del self.queued[next(iter(self.queued))]
        for old in range(index + 1, self.last + 1):
            self.terms.pop(old, None)
        self.terms[index] = term
        self.last = index
        self.most = max(self.most, index)

    def holds(self, index: int, term: int) -> bool:
        """Whether the entry is there, itself or in a snapshot."""
        return (
            index <= self.snapshot or self.terms.get(index) == term or self.lost.get(index) == term
        )

    def lose(self) -> None:
        """All of it is void."""
        self.lost = {**self.lost, **self.terms}
        self.terms = {}
        self.queued = {}
        self.last = self.snapshot = 0


class RaftRules:
    """Of one run."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._leaders: dict[tuple[int, int], int] = {}
        self._votes: dict[tuple[int, int, int], int] = {}
        self._bodies: dict[tuple[int, int, int], tuple[int, int]] = {}
        """(group, term, index) to hash of the body and term of the entry before."""
        self._committed: dict[tuple[int, int], tuple[int, int]] = {}
        """(group, index) to term and hash."""
        self._top: dict[int, int] = {}
        """Highest committed index of each group."""
        self._counted: dict[tuple[int, int], Membership] = {}
        """(group, index) to the members that the leader counted when it committed the entry."""
        self._configurations: dict[tuple[int, int], Membership] = {}
        self._seen: dict[tuple[int, int, int], tuple[int, int]] = {}
        """(node, process, group) to term and commit."""

    def _broken(self, invariant: str, what: str) -> None:
        self._run.broken(invariant, what)

    def model(self, node: int, group: int) -> Synced:
        """What is on a node's disk of a group."""
        synced = self._run.machines[node].synced
        found = synced.get(group)
        if found is None:
            found = synced[group] = Synced()
        return found

    # --- Messages ---------------------------------------------------------------------------

    def sent(self, sender: Machine, group: int, message: RaftMessage) -> None:
        """A message leaves a node."""
        kind = message.kind
        if sender.runs and group in sender.opened.store.consensus.healing.silent:
            what = f"group {group}: {sender.number} has nothing, and says something ({kind})"
            self._broken("who_has_nothing_says_nothing", what)
        if kind in _LEADS:
            self.one_leader_a_term(sender.number, group, message.term)
        elif message.reject:
            return
        elif kind == VOTE_ANSWER:
            self.one_vote_a_term(sender.number, group, message)
        elif kind == APPEND_ANSWER:
            self.append_answered_after_sync(sender, group, message)

    def one_leader_a_term(self, node: int, group: int, term: int) -> None:
        known = self._leaders.setdefault((group, term), node)
        if known != node:
            what = f"group {group} term {term}: both {known} and {node} lead"
            self._broken("one_leader_a_term", what)
        if self.model(node, group).term < term:
            what = f"group {group}: {node} leads term {term}, which is not on its disk"
            self._broken("leads_after_sync", what)

    def one_vote_a_term(self, node: int, group: int, message: RaftMessage) -> None:
        """A vote is given once a term, also over restarts, and stands on disk before it leaves."""
        known = self._votes.setdefault((group, node, message.term), message.to)
        if known != message.to:
            what = f"group {group} term {message.term}: {node} voted for {known} and {message.to}"
            self._broken("one_vote_a_term", what)
        synced = self.model(node, group)
        if (synced.term, synced.vote) != (message.term, message.to) and synced.term <= message.term:
            what = f"group {group}: the vote of {node} in term {message.term} is not on its disk"
            self._broken("vote_answered_after_sync", what)

    def append_answered_after_sync(self, sender: Machine, group: int, message: RaftMessage) -> None:
        synced = self.model(sender.number, group)
        core = sender.member(group).core
        # An answer of an earlier term says what it had then: one write may bring an entry, its
        # answer to that term's leader, and what has replaced it since.
        last = synced.last if message.term == core.term else synced.most
        if message.index > max(last, synced.snapshot):
            what = f"group {group}: {sender.number} answers {message.index}, has {synced.last}"
            self._broken("append_answered_after_sync", what)
        elif message.term == core.term and message.index > synced.snapshot:
            term = core.log.term(message.index)
            if term > 0 and synced.terms.get(message.index, term) != term:
                what = f"group {group}: {sender.number} answers another entry at {message.index}"
                self._broken("append_answered_after_sync", what)

    def stepped(self, machine: Machine, group: int) -> None:
        """A node has taken a message: `term_and_commit_never_go_back`."""
        core = machine.member(group).core
        key = (machine.number, machine.process, group)
        term, commit = self._seen.get(key, (0, 0))
        if core.term < term or core.log.committed < commit:
            what = f"group {group} node {machine.number}: term {term} -> {core.term}"
            self._broken("term_and_commit_never_go_back", what)
        self._seen[key] = (core.term, core.log.committed)

    # --- The log ----------------------------------------------------------------------------

    def appended(
        self, machine: Machine, journal: Journal, place: tuple[int, int, int], body: bytes
    ) -> None:
        """An entry is queued for a journal."""
        group, term, index = place
        node = machine.number
        queued = self.model(node, group).queued
        queued.pop((index, term), None)  # the latest of its kind is the one that is synced last
        queued[index, term] = None
        if index <= journal.last_index(group):
            self._run.count("conflict truncation")
            member = machine.member(group)
            if member.core.role == LEADER:
                self._broken("leader_append_only", f"group {group}: {node} replaces {index}")
            if index <= member.state.applied:
                what = f"group {group}: {node} replaces {index}, which it has applied"
                self._broken("state_machine_safety", what)
        before = journal.term(group, index - 1) if index - 1 <= journal.last_index(group) else 0
        row = (hash(body), before)
        known = self._bodies.setdefault(place, row)
        if known is not row:
            same = known[0] == row[0] and (not known[1] or not before or known[1] == before)
            if not same:
                what = f"group {group}: two entries {index} of term {term}"
                self._broken("log_matching", what)
            if before and not known[1]:
                self._bodies[place] = row

    def synced(self, machine: Machine, records: list[Record]) -> None:
        """A write and its sync have gone well."""
        for group, index, term, vote, commit in records:
            synced = self.model(machine.number, group)
            if index:
                synced.put(index, term)
            else:
                synced.term, synced.vote, synced.commit = term, vote, commit

    def installed(self, node: int, group: int, snapshot: Snapshot) -> None:
        """A snapshot has taken the place of state and log."""
        self._run.count("snapshot install")
        synced = self.model(node, group)
        synced.terms.clear()
        synced.last = synced.snapshot = snapshot.index
        at = self._committed.get((group, snapshot.index))
        if at is not None and at[0] != snapshot.term:
            what = f"group {group}: snapshot {snapshot.index} of another term"
            self._broken("state_machine_safety", what)

    def left(self, node: int, group: int) -> None:
        """A node has left a group: `no_voter_leaves`. What it had has counted."""
        self._run.count("group left")
        self.model(node, group).lose()
        for key in [key for key in self._seen if key[0] == node and key[2] == group]:
            self._seen[key] = self._seen[key][0], 0
        if node in self._run.voters(group):
            self._broken("no_voter_leaves", f"group {group}: {node} leaves, and is a voter")

    def recovered(self, machine: Machine) -> None:
        """`synced_survives`: what was synced is there after any restart."""
        store = machine.opened.store
        journal = store.journal
        self._run.journals[journal] = machine
        node = machine.number
        for number in store.groups:
            group = int(number)
            synced = self.model(node, group)
            hard = journal.hard_state(group)
            if machine.heals.get(group):
                # It may have forgotten its vote too: `one_vote_a_term` has not.
                synced.lose()
                synced.term, synced.vote, synced.commit = hard.term, hard.vote, hard.commit
                continue
            if number in store.consensus.healing.silent:  # it was left: all but the vote is void
                synced.lose()
                synced.commit = 0
            if hard.commit < synced.commit:
                what = f"group {group}: {node} has forgotten that {synced.commit} is committed"
                self._broken("commit_survives", what)
            if (hard.term, hard.vote if synced.vote and hard.term == synced.term else 0) < (
                synced.term,
                0,
            ) or (hard.term == synced.term and synced.vote not in (0, hard.vote)):
                what = f"group {group}: {node} has forgotten term {synced.term} {synced.vote}"
                self._broken("term_and_vote_survive", what)
            top = max(journal.last_index(group), journal.snapshot_of(group)[0])
            self.terms_never_fall(node, journal, group)
            overwritten = False
            for index in sorted(synced.terms):
                term = journal.term(group, index)
                if term and term != synced.terms[index]:
                    # Also by an entry of an earlier term, if a later one's leader has it.
                    overwritten = (index, term) in synced.queued
                    if not overwritten:
                        self._broken(
                            "synced_survives", f"group {group}: {node} has another entry {index}"
                        )
                    break
            if synced.last > top and not overwritten and not _truncated(journal, group, synced):
                what = f"group {group}: {node} had synced {synced.last}, its log ends at {top}"
                self._broken("synced_survives", what)
            self._refresh(journal, group, synced)

    def wiped(self, machine: Machine) -> None:
        """A store has an empty disk, and is another one. What the old one had has counted."""
        for synced in machine.synced.values():
            synced.lose()
            synced.term = synced.vote = synced.commit = synced.most = 0
        node = machine.number
        for key in [each for each in self._votes if each[1] == node]:
            del self._votes[key]

    def terms_never_fall(self, node: int, journal: Journal, group: int) -> None:
        """Behind an entry of a term there is none of an earlier one: what has been replaced does
        not come back.
        """
        before, last = journal.snapshot_of(group)[0], journal.last_index(group)
        terms = [journal.term(group, index) for index in range(before, last + 1)]
        if terms != sorted(terms):
            what = f"group {group}: the terms in the log of {node} are {terms}"
            self._broken("terms_never_fall", what)

    def _refresh(self, journal: Journal, group: int, synced: Synced) -> None:
        hard = journal.hard_state(group)
        synced.queued = {}
        snapshot = journal.snapshot_of(group)[0]
        last = max(journal.last_index(group), snapshot)
        # Of a torn batch the hard state may be there, and the entries that it speaks of not.
        synced.term, synced.vote, synced.commit = hard.term, hard.vote, min(hard.commit, last)
        for index in range(snapshot + 1, last + 1):
            term = journal.term(group, index)
            if term:
                synced.terms[index] = term
        for index in [each for each in synced.terms if each > last]:
            del synced.terms[index]
        synced.last = last

    # --- Commits ----------------------------------------------------------------------------

    def committed(self, core: RaftCore, after: int) -> None:
        """`commits_of_its_own_term`: a leader has committed what stands behind an index. It counts
        by the members that it knows, and may be the last to apply a change of them: its own disk
        can be the slowest.
        """
        groups = self._run.machines[core.node].opened.store.consensus.members
        (group,) = [int(each) for each, member in groups.items() if member.core is core]
        if core.log.term(core.log.committed) != core.term:
            what = f"group {group}: {core.node} commits {core.log.committed} of an earlier term"
            self._broken("commits_of_its_own_term", what)
        for index in range(after + 1, core.log.committed + 1):
            self._counted[group, index] = core.tracker.members

    def applying(self, member: Member, entry: Entry) -> None:
        """`state_machine_safety`, `committed_is_on_a_majority`: an entry is about to be applied."""
        group, index = int(member.group), entry.index
        row = (entry.term, hash(entry.body))
        known = self._committed.setdefault((group, index), row)
        if known is not row:
            if known != row:
                what = f"group {group}: {member.core.node} applies another entry {index}"
                self._broken("state_machine_safety", what)
            return
        if index > self._top.get(group, 0):
            self._top[group] = index
        members = self._counted[group, index]
        for half in (members.voters, members.voters_outgoing):
            holding = [node for node in half if self.model(node, group).holds(index, entry.term)]
            if half and len(holding) * 2 <= len(half):
                what = f"group {group} entry {index}: on the disks of {holding} of {half}"
                self._broken("committed_is_on_a_majority_of_disks", what)

    def applied(self, member: Member, entry: Entry, before: Membership) -> None:
        """`majorities_intersect`: a change of membership never leaves two disjoint majorities.
        `log_time_is_true`: no wrong clock moves log time.
        """
        if entry.kind != CONFIGURATION:
            if member.state.time_ms > self._run.clock.wall_ms() + LOG_TIME_AHEAD_MS:
                what = f"group {member.group} entry {entry.index}: {member.state.time_ms}"
                self._broken("log_time_is_true", what)
            return
        group = int(member.group)
        after = member.core.tracker.members
        known = self._configurations.setdefault((group, entry.index), after)
        if known is not after:
            if known != after:
                what = f"group {group}: nodes differ about the members at {entry.index}"
                self._broken("state_machine_safety", what)
            return
        if after.voters_outgoing and not before.voters_outgoing:
            self._run.count("joint change")
        old, new = set(before.voters), set(after.voters)
        joint = before.voters_outgoing or set(after.voters_outgoing) == old
        if len(old ^ new) > 1 and not joint:
            what = f"group {group}: {before} -> {after}"
            self._broken("majorities_intersect", what)

    def elected(self, member: Member) -> None:
        """`leader_completeness`: a new leader has everything that is committed."""
        group = int(member.group)
        core = member.core
        self.one_leader_a_term(core.node, group, core.term)
        top = self._top.get(group, 0)
        if top and core.log.last_index - 1 > top:
            self._run.count("leader change with an uncommitted tail")
        if not top:
            return
        term = core.log.term(top)
        if core.log.last_index < top or term not in (-1, self._committed[group, top][0]):
            what = f"group {group}: {core.node} leads term {core.term} without entry {top}"
            self._broken("leader_completeness", what)


def _truncated(journal: Journal, group: int, synced: Synced) -> bool:
    """Whether the end of the log was replaced by entries that are there, but were not yet known."""
    last = journal.last_index(group)
    term = journal.term(group, last)
    return bool(term) and synced.terms.get(last, term) < term
