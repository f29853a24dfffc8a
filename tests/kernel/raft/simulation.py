"""A group under chance: lost, repeated and reordered messages, crashes that lose what was not
synced, slow disks, changes of membership, compaction, entries that are not in memory.

Everything comes from one seeded generator, so that a seed is a schedule. Each node has a durable
part (`storage`, `hard_state`, a snapshot of its state machine), a queue of writes that a sync takes
in order, and a queue of entries to be applied. A crash keeps some first part of the queued writes.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from dataclasses import dataclass, field, replace
from zlib import crc32

from kernel.raft import messages
from kernel.raft.core import RaftCore
from kernel.raft.errors import ConfigurationRefused, RaftError
from kernel.raft.members import configuration
from kernel.raft.members.configuration import Change, ConfigurationChange
from kernel.raft.messages import (
    CONFIGURATION,
    LEADER,
    Entry,
    HardState,
    Membership,
    RaftMessage,
    ReadWanted,
    Ready,
    Snapshot,
)
from kernel.raft.options import RaftOptions

from .invariants import Invariants, Violation
from .memory import MemoryStorage

START = 5
"""The log begins behind a snapshot, as after a bootstrap."""


@dataclass(slots=True)
class SimulatedNode:
    ident: int
    options: RaftOptions
    storage: MemoryStorage
    hard_state: HardState
    core: RaftCore | None = None
    state: int = 0
    """The state machine: a sum over what was applied."""
    membership: Membership = field(default_factory=Membership)
    writes: deque[Ready] = field(default_factory=deque)
    unapplied: deque[Entry] = field(default_factory=deque)
    wanted: list[ReadWanted] = field(default_factory=list)
    resident_from: int = 0


class Simulation:
    """See the module's head."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.invariants = Invariants()
        self.network: list[RaftMessage] = []
        self.happened: Counter[str] = Counter()
        self.cut_off: set[int] = set()
        """Nodes that nobody hears and that hear nobody."""
        self._reads: dict[bytes, int] = {}
        self._states: dict[int, int] = {START: 1}
        chance = self.random
        members, spare = chance.choice((3, 4, 5)), 1
        common = RaftOptions(
            1,
            election_ticks=5,
            pre_vote=chance.random() < 0.7,
            check_quorum=chance.random() < 0.7,
            forward_proposals=chance.random() < 0.5,
            step_down_on_removal=chance.random() < 0.5,
            max_message_bytes=chance.choice((100, 300, 10_000)),
            max_inflight_messages=chance.choice((1, 2, 8)),
            max_uncommitted_bytes=chance.choice((300, 5_000)),
            max_applying_bytes=chance.choice((1, 300, 10_000)),
        )
        voters = Membership(tuple(range(1, members + 1)))
        first = Snapshot(START, 1, voters, 1)
        self.nodes: list[SimulatedNode] = []
        for ident in range(1, members + spare + 1):
            storage = MemoryStorage(first) if ident <= members else MemoryStorage()
            commit = START if ident <= members else 0
            node = SimulatedNode(
                ident, replace(common, node=ident), storage, HardState(0, 0, commit)
            )
            self.nodes.append(node)
            self._start(node)

    # --- Nodes ------------------------------------------------------------------------------

    def _start(self, node: SimulatedNode) -> None:
        storage, snapshot = node.storage, node.storage.latest
        node.state = int(str(snapshot.handle or 0))
        node.membership = snapshot.membership
        changes = [
            each.index
            for each in storage.log
            if each.kind == CONFIGURATION and each.index > snapshot.index
        ]
        node.core = RaftCore(
            node.options,
            storage,
            node.hard_state,
            snapshot.membership,
            snapshot.index,
            self.random.randrange,
            changes,
        )
        storage.refresh = lambda: self._take_snapshot(node)
        self.invariants.restarted(node, snapshot.index)

    def _crash(self, node: SimulatedNode) -> None:
        """Down, with some of the writes on disk that nobody has heard of."""
        for _ in range(self.random.randrange(len(node.writes) + 1)):
            self._persist(node, node.writes.popleft())
        self.happened["writes lost"] += len(node.writes)
        node.writes.clear()
        node.unapplied.clear()
        node.wanted.clear()
        node.core = None

    def _persist(self, node: SimulatedNode, ready: Ready) -> None:
        if ready.hard_state is not None:
            node.hard_state = ready.hard_state
        if ready.snapshot is not None:
            node.storage.install(ready.snapshot)
        if ready.entries and ready.entries[0].index <= node.storage.last_index():
            self.happened["conflicts"] += 1
        node.storage.append(ready.entries)

    def _drain(self, node: SimulatedNode) -> None:
        """Do what the core asks for, until it asks for nothing."""
        core = node.core
        assert core is not None
        turns = 0
        while core.has_ready():
            turns += 1
            assert turns < 100, "a core that never rests"
            ready = core.ready()
            if ready.snapshot is not None:
                node.unapplied.clear()
                self.happened["snapshots"] += 1
            if ready.number or ready.hard_state is not None:
                node.writes.append(ready)
            node.unapplied.extend(ready.committed)
            node.wanted += ready.reads_wanted
            self.network += ready.messages_now
            for state in ready.read_states:
                self.happened["reads"] += 1
                if state.index < self._reads[state.context]:
                    raise Violation(f"reads: {state} does not see {self._reads[state.context]}")

    def sync(self, node: SimulatedNode, count: int) -> None:
        """The disk has the first writes; what waited for them leaves."""
        core, number = node.core, 0
        assert core is not None
        for _ in range(min(count, len(node.writes))):
            ready = node.writes.popleft()
            self._persist(node, ready)
            if ready.snapshot is not None:
                node.state = int(str(ready.snapshot.handle))
                node.membership = ready.snapshot.membership
                self.invariants.snapshot_installed(node, ready.snapshot.index)
            number = max(number, ready.number)
            for message in ready.messages_after_sync:
                self.invariants.voted(message)
            self.network += ready.messages_after_sync
        if number:
            core.stable(number)

    def apply(self, node: SimulatedNode, count: int) -> None:
        """The state machine takes the next entries."""
        core, last = node.core, 0
        assert core is not None
        for _ in range(min(count, len(node.unapplied))):
            entry = node.unapplied.popleft()
            self.invariants.applied(node, entry)
            if entry.kind == CONFIGURATION:
                self._change(node, core, entry)
            node.state = crc32(entry.body, node.state + entry.term)
            if self._states.setdefault(entry.index, node.state) != node.state:
                raise Violation(f"state machine: node {node.ident} at {entry.index}")
            last = entry.index
        if last:
            core.applied(last)

    def _change(self, node: SimulatedNode, core: RaftCore, entry: Entry) -> None:
        try:
            node.membership = core.apply_configuration(entry)
            self.happened["changes"] += 1
            self.happened["joint"] += bool(node.membership.voters_outgoing)
        except ConfigurationRefused:
            self.happened["refused"] += 1

    # --- Events -----------------------------------------------------------------------------

    def event(self) -> None:
        """Something happens to one node (or time passes for all); then every rule is checked."""
        chance = self.random
        number = chance.random()
        if number < 0.12:
            for node in self.nodes:
                if node.core is not None and chance.random() < 0.8:
                    node.core.tick(3 if chance.random() < 0.03 else 1)
                    self._look_at(node)
            return
        if self.network and number < 0.55:
            for _ in range(min(chance.randrange(1, 8), len(self.network))):
                self._look_at(self._deliver())
            return
        node = chance.choice(self.nodes)
        if node.core is None:
            if chance.random() < 0.3:
                self._start(node)
        elif number < 0.73:
            self.sync(node, chance.randrange(1, 4))
        elif number < 0.8:
            self.apply(node, chance.randrange(1, 6))
        elif number < 0.91:
            node = self._leader() or node
            self._ask(node)
        else:
            if chance.random() < 0.4:
                node = self._leader() or node
            self._disturb(node)
        self._look_at(node)

    def _look_at(self, node: SimulatedNode) -> None:
        if node.core is not None:
            self._drain(node)
            self.invariants.check(self.nodes, node)

    def _leader(self) -> SimulatedNode | None:
        leaders = [each for each in self.nodes if each.core and each.core.role == LEADER]
        return self.random.choice(leaders) if leaders else None

    def _deliver(self) -> SimulatedNode:
        chance = self.random
        place = chance.randrange(min(len(self.network), 6))
        message = self.network[place]
        if chance.random() > 0.04:
            self.network.pop(place)
        node = self.nodes[message.to - 1]
        cut_off = {message.to, message.sender} & self.cut_off
        if node.core is not None and not cut_off and chance.random() > 0.03:
            self._step(node, message)
        return node

    def _step(self, node: SimulatedNode, message: RaftMessage) -> None:
        assert node.core is not None
        try:
            node.core.step(message)
        except RaftError as error:
            self.happened[type(error).__name__] += 1

    def _ask(self, node: SimulatedNode) -> None:
        """A client, or an administrator."""
        core, chance = node.core, self.random
        assert core is not None
        number = chance.random()
        try:
            if number < 0.6:
                bodies = [bytes([chance.randrange(256)] * chance.randrange(1, 60))]
                core.propose(bodies * chance.randrange(1, 4))
            elif number < 0.75:
                context = len(self._reads).to_bytes(4, "big")
                self._reads[context] = self.invariants.committed
                core.read_index(context)
            elif number < 0.95:
                core.propose_configuration(self._some_change(core.tracker.members))
            else:
                core.transfer(chance.randrange(1, len(self.nodes) + 1))
        except RaftError as error:
            self.happened[type(error).__name__] += 1

    def _some_change(self, members: Membership) -> ConfigurationChange:
        chance = self.random
        if members.voters_outgoing:
            return ConfigurationChange()
        kinds = (configuration.ADD_VOTER, configuration.ADD_LEARNER, configuration.REMOVE)
        changes = tuple(
            Change(chance.choice(kinds), chance.randrange(1, len(self.nodes) + 1))
            for _ in range(chance.choice((1, 1, 2)))
        )
        return ConfigurationChange(changes, chance.randrange(3))

    def _disturb(self, node: SimulatedNode) -> None:
        core, chance = node.core, self.random
        assert core is not None
        number = chance.random()
        if number < 0.2:
            self._crash(node)
        elif number < 0.35:
            self.cut_off = {node.ident}
        elif number < 0.5:
            self.cut_off = set()
        elif number < 0.65:
            for each in self.nodes:
                if each.core is not None:
                    self._compact(each)
        elif number < 0.75:
            node.resident_from = core.log.last_index
            node.storage.resident = lambda index: index >= node.resident_from
        elif number < 0.88:
            self._load(node)
        elif number < 0.91:
            core.report_unreachable(chance.randrange(1, len(self.nodes) + 1))
        elif number < 0.94:
            core.report_snapshot(
                chance.randrange(1, len(self.nodes) + 1), installed=chance.random() < 0.5
            )
        elif number < 0.97:
            core.forget_leader()
        else:
            core.campaign()

    def _load(self, node: SimulatedNode) -> None:
        assert node.core is not None
        node.resident_from = 0
        wanted, node.wanted = node.wanted, []
        for each in wanted:
            self.happened["loaded"] += 1
            node.core.loaded(each)

    def _compact(self, node: SimulatedNode) -> None:
        """A snapshot of the state machine, and the log before it (or some of it) goes."""
        core, storage = node.core, node.storage
        assert core is not None
        if core.log.snapshot is None:
            self._take_snapshot(node)
            applied = storage.latest.index
            if applied > storage.start.index:
                keep = self.random.randrange(min(4, applied - storage.start.index))
                storage.compact(applied - keep)

    def _take_snapshot(self, node: SimulatedNode) -> None:
        assert node.core is not None
        applied, storage = node.core.log.applied, node.storage
        if applied > storage.latest.index:
            term = storage.term(applied)
            storage.latest = Snapshot(applied, term, node.membership, node.state)

    # --- The end ----------------------------------------------------------------------------

    def settle(self, turns: int = 400) -> None:
        """Faults end: a leader exists soon, and all members come to have the same."""
        self.cut_off = set()
        for node in self.nodes:
            if node.core is None:
                self._start(node)
            node.storage.resident = lambda _index: True
        for turn in range(turns):
            for node in self.nodes:
                assert node.core is not None
                node.core.tick()
                self._rest(node)
            for _ in range(20):
                under_way, self.network = self.network, []
                for message in under_way:
                    to = self.nodes[message.to - 1]
                    self._step(to, message)
                    self._drain(to)
                self._report_snapshots()
                for node in self.nodes:
                    self._rest(node)
                    self.invariants.check(self.nodes, node)
            if turn > 20 and self._settled():
                return
        raise Violation("liveness: no leader, or members that do not catch up")

    def _report_snapshots(self) -> None:
        """Whoever still waits for a snapshot: it was lost."""
        for node in self.nodes:
            core = node.core
            assert core is not None
            under_way = {each.to for each in self.network if each.kind == messages.SNAPSHOT}
            for ident in core.tracker.progress:
                if ident not in under_way and not self.nodes[ident - 1].writes:
                    core.report_snapshot(ident, installed=False)

    def _rest(self, node: SimulatedNode) -> None:
        self._load(node)
        self._drain(node)
        self.sync(node, len(node.writes))
        self._drain(node)
        self.apply(node, len(node.unapplied))
        self._drain(node)

    def _settled(self) -> bool:
        leaders = [each for each in self.nodes if each.core and each.core.role == LEADER]
        if not leaders:
            return False
        leader = max(leaders, key=lambda each: each.core.term if each.core else 0)
        core = leader.core
        assert core is not None
        log = core.log
        if log.applied != log.last_index or core.tracker.members.auto_leave:
            return False
        members = [self.nodes[ident - 1] for ident in core.tracker.progress]
        return all(
            each.core is not None
            and each.core.log.applied == log.applied
            and each.state == leader.state
            for each in members
        )
