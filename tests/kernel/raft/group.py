"""A small group whose disks and network a test holds in its hand: writes are asynchronous."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from kernel.raft.core import RaftCore
from kernel.raft.errors import UnknownSender
from kernel.raft.messages import (
    CONFIGURATION,
    LEADER,
    Entry,
    HardState,
    Membership,
    RaftMessage,
    ReadState,
    ReadWanted,
    Ready,
    Snapshot,
)
from kernel.raft.options import RaftOptions

from .memory import NOTHING, MemoryStorage

OPTIONS = RaftOptions(1, election_ticks=10, heartbeat_ticks=1)


class Member:
    """A node; `restart` brings it back with what is on its disk."""

    def __init__(self, options: RaftOptions, members: Membership, start: Snapshot) -> None:
        self.options = options
        self.storage = MemoryStorage(start)
        self.hard_state = HardState(0, 0, start.index)
        self.membership = members
        self.syncing = True
        """Off: what is written stays in `writes` until `sync`."""
        self.jitter = 0
        self.restart()

    def restart(self) -> None:
        self.writes: deque[Ready] = deque()
        self.applied: list[Entry] = []
        self.reads: list[ReadState] = []
        self.wanted: list[ReadWanted] = []
        self.outbox: list[RaftMessage] = []
        latest = self.storage.latest
        self.core = RaftCore(
            self.options,
            self.storage,
            self.hard_state,
            latest.membership if latest.index else self.membership,
            latest.index,
            lambda _ticks: self.jitter,
        )

    def turn(self) -> None:
        """Do what the core asks for; a disk that holds its syncs holds what waits for them."""
        while self.core.has_ready():
            ready = self.core.ready()
            self.outbox += ready.messages_now
            self.wanted += ready.reads_wanted
            self.reads += ready.read_states
            self.writes.append(ready)
            for entry in ready.committed:
                self.applied.append(entry)
                if entry.kind == CONFIGURATION:
                    self.membership = self.core.apply_configuration(entry)
            if ready.committed:
                self.core.applied(ready.committed[-1].index)
            if self.syncing:
                self.sync()

    def sync(self, count: int = 1_000_000) -> None:
        """The disk has the first writes."""
        for _ in range(min(count, len(self.writes))):
            ready = self.writes.popleft()
            if ready.hard_state is not None:
                self.hard_state = ready.hard_state
            if ready.snapshot is not None:
                self.storage.install(ready.snapshot)
            self.storage.append(ready.entries)
            self.outbox += ready.messages_after_sync
            if ready.number:
                self.core.stable(ready.number)

    def snapshot(self) -> None:
        """The state machine so far becomes a snapshot; the log before it goes."""
        self.take_snapshot()
        self.storage.compact(self.storage.latest.index)

    def take_snapshot(self) -> None:
        """The state machine so far is what a member is sent."""
        applied = self.core.log.applied
        self.storage.latest = Snapshot(applied, self.storage.term(applied), self.membership)

    @property
    def bodies(self) -> list[bytes]:
        """What was applied, without leaders' first entries and changes of membership."""
        return [entry.body for entry in self.applied if not entry.kind]


class Group:
    """Voters 1 to `count`, and spare nodes that belong to nothing yet. With spare nodes the log
    begins behind a snapshot that says who the voters are, and who is added is sent a later one.
    """

    def __init__(self, count: int, options: RaftOptions = OPTIONS, spare: int = 0) -> None:
        voters = Membership(tuple(range(1, count + 1)))
        start = Snapshot(1, 1, voters) if spare else NOTHING
        self.members = {
            node: Member(replace(options, node=node), voters, start) for node in range(1, count + 1)
        }
        for node in range(count + 1, count + spare + 1):
            self.members[node] = Member(replace(options, node=node), Membership(), NOTHING)
        for member in self.members.values() if spare else ():
            member.storage.refresh = member.take_snapshot
        self.cut: set[int] = set()
        """Nodes that nobody hears and that hear nobody."""
        self.hold: set[int] = set()
        """Kinds of messages that are not delivered but put by, in `held`."""
        self.held: list[RaftMessage] = []
        self.seen: list[RaftMessage] = []
        """All messages that were delivered."""

    def __getitem__(self, node: int) -> Member:
        return self.members[node]

    def core(self, node: int) -> RaftCore:
        return self.members[node].core

    def run(self) -> None:
        """Until nobody has anything to say."""
        busy = True
        while busy:
            busy = False
            for node, member in self.members.items():
                member.turn()
                sent, member.outbox = member.outbox, []
                for message in sent:
                    busy = True
                    if message.kind in self.hold:
                        self.held.append(message)
                    elif not {node, message.to} & self.cut:
                        self.seen.append(message)
                        with suppress(UnknownSender):
                            self.core(message.to).step(message)

    def tick(self, count: int = 1, nodes: Sequence[int] = ()) -> None:
        """Time passes for the nodes named, or for all."""
        for _ in range(count):
            for node in nodes or self.members:
                self.core(node).tick()
            self.run()

    def elect(self, node: int) -> RaftCore:
        """Make it leader; its core."""
        self.core(node).campaign()
        self.run()
        assert self.core(node).role == LEADER
        return self.core(node)

    def kinds(self, kind: int, to: int = 0) -> list[RaftMessage]:
        """Delivered messages of a kind, to a node or all, since the last call of `forget`."""
        return [each for each in self.seen if each.kind == kind and to in (0, each.to)]

    def forget(self) -> None:
        self.seen.clear()
