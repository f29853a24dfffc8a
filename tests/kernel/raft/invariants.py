"""What must hold in a group after every event, whoever made it happen.

One checker watches all nodes of a simulated group. Each rule has a name, which a failure begins
with. The log rules work by registration: the first sight of (index, term) fixes the entry and the
term before it, which by induction makes two logs that share an entry equal up to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from kernel.raft.core import RaftCore
from kernel.raft.messages import LEADER, VOTE_ANSWER, Entry, Membership, RaftMessage

from .memory import MemoryStorage


class Watched(Protocol):
    """A node of the group. `core` is None while it is down."""

    ident: int
    core: RaftCore | None
    storage: MemoryStorage


class Violation(AssertionError):
    """An invariant does not hold."""


class Invariants:
    """See the module's head."""

    def __init__(self) -> None:
        self._leaders: dict[int, int] = {}
        self._entries: dict[tuple[int, int], tuple[int, bytes, int]] = {}
        self._committed: dict[int, int] = {}
        self._highest_commit = 0
        self._applied: dict[int, tuple[int, int, bytes]] = {}
        self._applied_to: dict[int, int] = {}
        self._last: dict[int, tuple[RaftCore, int, int, int, int, int]] = {}
        self._members: dict[int, Membership] = {}
        self._votes: dict[tuple[int, int], int] = {}

    def restarted(self, node: Watched, applied: int) -> None:
        """A node came up with what its disk had; its state machine is at `applied`."""
        self._last.pop(node.ident, None)
        self._members.pop(node.ident, None)
        self._applied_to[node.ident] = applied

    def applied(self, node: Watched, entry: Entry) -> None:
        """State-machine safety: the same entry at the same index everywhere, in order, once."""
        before = self._applied_to.get(node.ident)
        if before is not None and entry.index != before + 1:
            raise Violation(f"state machine: node {node.ident} applies {entry.index} at {before}")
        self._applied_to[node.ident] = entry.index
        what = (entry.term, entry.kind, entry.body)
        if self._applied.setdefault(entry.index, what) != what:
            raise Violation(f"state machine: node {node.ident} applies another {entry.index}")

    def snapshot_installed(self, node: Watched, index: int) -> None:
        self._applied_to[node.ident] = index

    def check(self, nodes: Iterable[Watched], touched: Watched | None = None) -> None:
        """All rules that need no event, for all nodes or the one that something happened to."""
        everyone = list(nodes)
        for node in everyone if touched is None else (touched,):
            core = node.core
            if core is not None:
                self._one_leader(core)
                self._log_matching(core)
                self._never_back(core)
                self._commits(core, everyone)
                self._remember(core)

    def voted(self, message: RaftMessage) -> None:
        """One vote a term: the answers that leave a node, over all its lives."""
        if message.kind == VOTE_ANSWER and not message.reject:
            key = (message.sender, message.term)
            if self._votes.setdefault(key, message.to) != message.to:
                raise Violation(f"one vote a term: node {key[0]} in term {key[1]}")

    @property
    def committed(self) -> int:
        """The highest index that any node has known to be committed."""
        return self._highest_commit

    def _one_leader(self, core: RaftCore) -> None:
        if core.role != LEADER:
            return
        known = core.term in self._leaders
        if self._leaders.setdefault(core.term, core.node) != core.node:
            raise Violation(f"one leader a term: {core.node} too leads term {core.term}")
        if not known:
            self._complete(core)

    def _complete(self, core: RaftCore) -> None:
        first = core.log.first_index()
        for index, term in self._committed.items():
            if index >= first and core.log.term(index) != term:
                raise Violation(f"leader completeness: {core.node} lacks {index} of term {term}")

    def _log_matching(self, core: RaftCore) -> None:
        log = core.log
        if log.tail:
            prior = log.term(log.base)
            for place, entry in enumerate(log.tail):
                if entry.index != log.base + 1 + place:
                    raise Violation(f"log: node {core.node} has {entry.index} out of its place")
                what = (entry.kind, entry.body, prior)
                key = (entry.index, entry.term)
                if self._entries.setdefault(key, what) != what and prior >= 0:
                    raise Violation(f"log matching: node {core.node} at {key}")
                prior = entry.term
        if not log.applied <= log.applying <= log.committed <= log.last_index:
            raise Violation(f"log: marks of node {core.node} are out of order")
        if not log.base <= log.stable_index <= log.handed <= log.last_index:
            raise Violation(f"log: marks of node {core.node} are out of order")

    def _never_back(self, core: RaftCore) -> None:
        last = self._last.get(core.node)
        if last is None or last[0] is not core:
            return
        _, term, vote, commit, role, length = last
        if core.term < term or core.log.committed < commit:
            raise Violation(f"never back: term or commit of node {core.node}")
        if core.term == term and vote and core.vote != vote:
            raise Violation(f"never back: vote of node {core.node} in term {term}")
        if core.term == term and role == core.role == LEADER and core.log.last_index < length:
            raise Violation(f"leader append-only: node {core.node}")

    def _remember(self, core: RaftCore) -> None:
        self._last[core.node] = (
            core,
            core.term,
            core.vote,
            core.log.committed,
            core.role,
            core.log.last_index,
        )
        self._members[core.node] = core.tracker.members

    def _commits(self, core: RaftCore, nodes: list[Watched]) -> None:
        """What is committed anywhere is committed for good, and on a majority's disks."""
        log = core.log
        last = self._last.get(core.node)
        known = last[3] if last is not None and last[0] is core else 0
        for index in range(max(known + 1, log.first_index()), log.committed + 1):
            term = log.term(index)
            if self._committed.setdefault(index, term) != term:
                raise Violation(f"committed for good: node {core.node} has another {index}")
        if log.committed <= self._highest_commit:
            return
        # Entries that were there before the first event are committed by decree.
        if core.role == LEADER:
            before = self._members.get(core.node, core.tracker.members)
            term = log.term(log.committed)
            holders = {node.ident for node in nodes if node.storage.has(log.committed, term)}
            if not any(_quorum(each, holders) for each in (before, core.tracker.members)):
                raise Violation(
                    f"committed is on a majority: {log.committed} of term {term}"
                    f" is on {sorted(holders)} only"
                )
        self._highest_commit = log.committed


def _quorum(members: Membership, holders: set[int]) -> bool:
    halves = [half for half in (members.voters, members.voters_outgoing) if half]
    return all(2 * len(holders.intersection(half)) > len(half) for half in halves)
