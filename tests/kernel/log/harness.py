"""A small state machine over a journal, and the check that a recovered one is the same.

Each entry carries slots, each with one reference, and may settle slots of earlier entries of its
group. What is live is then a function of the entries applied, so a store recovered from any disk
can be compared with the history that was written to it.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kernel.log.format import entry
from kernel.log.format.checkpoint import Checkpoint
from kernel.log.format.meta import StoreMeta, read_meta, write_meta
from kernel.log.journal import Journal, JournalOptions
from kernel.log.reclaiming.rewrite import RewriteJob
from kernel.log.recovering.recovery import Recovered
from tests.simulator.disk import SimulatedDisk

SETTLE = struct.Struct("<QI")
OPTIONS = JournalOptions(
    segment_bytes=32 * 1024,
    reserve_bytes=16 * 1024,
    long_bytes=4 * 1024,
    cache_bytes=20_000,
    cold_bytes=20_000,
)
META = StoreMeta(bytes(range(16)), bytes(range(100, 116)), None)

State = dict[int, set[int]]
"""Live slots by entry index, of one group."""


def new_disk(capacity: int = 1 << 40) -> SimulatedDisk:
    """A disk with a store's identity and nothing else."""
    disk = SimulatedDisk(capacity)
    write_meta(disk, META)
    return disk


def body_of(slots: list[bytes], settled: Iterable[tuple[int, int]] = ()) -> bytes:
    """An entry with slots that settles (index, slot) pairs of earlier ones."""
    payload = b"".join(SETTLE.pack(*pair) for pair in settled)
    batch = entry.encode_batch(entry.EntryBatch(1, 1, 1, [(1, 1, payload)]))
    return entry.build(1_000, [batch], [len(slot) for slot in slots], slots)


def apply(state: State, index: int, body: bytes) -> list[tuple[int, int]]:
    """Apply an entry; returns what it settled."""
    payload = next(entry.batches(body)).commands[0][2]
    settled = [(at, slot) for at, slot in SETTLE.iter_unpack(payload) if slot in state.get(at, ())]
    for at, slot in settled:
        state[at].discard(slot)
        if not state[at]:
            del state[at]
    slots = len(entry.directory(body)) - 1
    if slots:
        state[index] = set(range(slots))
    return settled


@dataclass
class History:
    """Everything a run has handed to its journal, and what it was promised."""

    bodies: dict[int, list[bytes]] = field(default_factory=dict)
    """Per group, entry 1 first."""
    acked: dict[int, int] = field(default_factory=dict)
    """Per group the last index that `end` returned."""
    snapshots: dict[str, State] = field(default_factory=dict)
    """By name: durable as soon as they are here."""
    terms: dict[int, int] = field(default_factory=dict)
    """Per group the highest term synced in a hard state."""

    def state_at(self, group: int, index: int) -> State:
        state: State = {}
        for at, body in enumerate(self.bodies.get(group, [])[:index], start=1):
            apply(state, at, body)
        return state


class Store:
    """A journal with its state machines, driven step by step."""

    def __init__(
        self, disk: SimulatedDisk, history: History, options: JournalOptions = OPTIONS
    ) -> None:
        self.disk = disk
        self.history = history
        self.journal, self.recovered = Journal.recover(disk, options, Checkpoint.read(disk))
        self.states: dict[int, State] = {}
        self.applied: dict[int, int] = {}
        self.replayed: list[tuple[int, int, int, bytes]] = []
        self._load(self.recovered)
        self.journal.finish_recovery()
        self.rewrite: RewriteJob | None = None

    def _load(self, recovered: Recovered) -> None:
        for group, held in recovered.checkpoint.groups.items():
            state = {
                at: set(slots)
                for at, slots in self.history.snapshots.get(held.snapshot, {}).items()
            }
            self.states[group] = state
            self.applied[group] = held.index
            for index, slots in state.items():
                self.journal.retain(group, index, len(slots))
        for group, index, term, body in recovered.entries:
            self.replayed.append((group, index, term, body))
            self.apply(group, index, body)

    def apply(self, group: int, index: int, body: bytes) -> None:
        assert index == self.applied.get(group, 0) + 1
        state = self.states.setdefault(group, {})
        for at, _slot in apply(state, index, body):
            self.journal.release(group, at, 1)
        if index in state:
            self.journal.retain(group, index, len(state[index]))
        self.applied[group] = index

    def append(self, group: int, body: bytes, term: int = 1) -> int:
        return self.append_at(group, self.journal.last_index(group) + 1, body, term)

    def append_at(self, group: int, index: int, body: bytes, term: int) -> int:
        bodies = self.history.bodies.setdefault(group, [])
        del bodies[index - 1 :]
        bodies.append(body)
        self.journal.append(group, term, index, body)
        return index

    def commit(self) -> None:
        """Write what is queued, acknowledge it, apply it."""
        while (batch := self.journal.begin()) is not None:
            batch.run()
            for group, index in self.journal.end(batch):
                self.history.acked[group] = index
                for at in range(self.applied.get(group, 0) + 1, index + 1):
                    self.apply(group, at, self.history.bodies[group][at - 1])
            for group, state in batch.hard_states.items():
                self.history.terms[group] = state.term
            self.journal.note_synced()

    def maintain(self) -> None:
        """Every job that housekeeping wants."""
        while (job := self.journal.maintenance()) is not None:
            job.run()
            self.journal.end_maintenance(job)
            if not self.journal.can_accept:
                return

    def checkpoint(self) -> None:
        """Snapshot every group, then write `ckpt`."""
        names: dict[int, tuple[int, str]] = {}
        for group, index in self.applied.items():
            name = f"{group}-{index}"
            state = self.states.get(group, {})
            self.history.snapshots[name] = {at: set(slots) for at, slots in state.items()}
            names[group] = (index, name)
        job = self.journal.checkpoint(names)
        job.run()
        self.journal.checkpointed(job)

    def rewrite_one(self, share: float) -> bool:
        """Rewrite the sparsest segment from start to end; False if none is sparse enough."""
        segment = self.journal.rewrite_candidate(share)
        if segment is None:
            return False
        job = self.journal.rewrite(segment, lambda group, index, _body: self.states[group][index])
        carry_out(job, self.commit)
        return True

    def check(self, *, complete: bool = True) -> None:
        """The store is what its history says, and everything acknowledged is there."""
        history = self.history
        for group, acked in history.acked.items():
            last = self.journal.last_index(group)
            assert acked <= last <= len(history.bodies[group]), f"group {group}: {last} of {acked}"
            assert self.applied.get(group, 0) == last
            assert self.states.get(group, {}) == history.state_at(group, last)
            state = self.states.get(group, {})
            for index in sorted(state) if complete else ():
                written = history.bodies[group][index - 1]
                read = self.journal.read(group, index)
                for slot in state[index]:
                    assert entry.slot(read, slot) == entry.slot(written, slot)
        for group, term in history.terms.items():
            assert self.journal.hard_state(group).term >= term
        for group, index, _term, body in self.replayed:
            assert body == history.bodies[group][index - 1]


def carry_out(job: RewriteJob, commit: Callable[[], None]) -> None:
    """A rewrite from start to end; `commit` writes what is queued."""
    while (part := job.read()) is not None:
        part.run()
        job.append(part)
        commit()
    while not job.close():
        commit()
    commit()
    assert job.closed


def run_workload(
    store: Store,
    *,
    seed: int,
    commits: int,
    groups: int = 3,
    step: Callable[[int], None] | None = None,
) -> None:
    """A deterministic mix of everything a store does, `commits` group commits long."""
    chance = random.Random(seed)
    unsettled: dict[int, list[tuple[int, int]]] = {group: [] for group in range(groups)}
    for number in range(commits):
        if step is not None:
            step(number)
        for _ in range(chance.choice((1, 1, 2, 3))):
            group = chance.randrange(groups)
            slots = [
                chance.randbytes(chance.choice((20, 300, 900))) for _ in range(chance.randint(0, 4))
            ]
            held = unsettled[group]
            settled = [pair for pair in held if chance.random() < 0.4]
            unsettled[group] = [pair for pair in held if pair not in settled]
            index = store.append(group, body_of(slots, settled))
            # One message in ten is stuck: nobody ever settles it.
            unsettled[group] += [(index, s) for s in range(len(slots)) if chance.random() < 0.9]
        if number % 7 == 0:
            term = store.journal.hard_state(0).term + 1
            store.journal.append_hard_state(0, term, 1, store.applied.get(0, 0))
        store.commit()
        if number % 3 == 0:
            store.maintain()
        if number % 20 == 19:
            store.checkpoint()
            store.maintain()
        if number % 25 == 24:
            store.rewrite_one(0.5)
            store.maintain()


def reopened(disk: SimulatedDisk, history: History) -> Store:
    """Recover from a disk, check, and return the store."""
    store = Store(disk, history)
    store.check()
    return store


def close_cleanly(store: Store) -> None:
    """Checkpoint and close in order."""
    store.checkpoint()
    store.journal.close()
    assert read_meta(store.disk) is not None


def new_journal(
    disk: SimulatedDisk | None = None, options: JournalOptions = OPTIONS
) -> tuple[SimulatedDisk, Journal]:
    disk = disk or new_disk()
    journal, recovered = Journal.recover(disk, options, None)
    assert list(recovered.entries) == []
    journal.finish_recovery()
    return disk, journal


def commit(journal: Journal) -> list[tuple[int, int]]:
    batch = journal.begin()
    assert batch is not None
    batch.run()
    return journal.end(batch)


def reopen(disk: SimulatedDisk, options: JournalOptions = OPTIONS) -> tuple[Journal, list[bytes]]:
    copy = disk.crashed_copy()
    journal, recovered = Journal.recover(copy, options, Checkpoint.read(copy))
    bodies = [body for *_place, body in recovered.entries]
    journal.finish_recovery()
    return journal, bodies
