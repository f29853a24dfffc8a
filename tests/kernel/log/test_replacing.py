"""Logs whose ends other leaders replace, over checkpoints, rewrites and crashes."""

from __future__ import annotations

import dataclasses
import random
from dataclasses import dataclass, field

import pytest

from kernel.log.format import entry
from kernel.log.format.checkpoint import Checkpoint
from kernel.log.install import InstallJob
from kernel.log.journal import Journal
from tests.kernel.log.harness import OPTIONS, body_of, carry_out, new_disk

GROUPS = 3
STEPS = 400
SMALL = dataclasses.replace(OPTIONS, segment_bytes=16 * 1024)
"""What is replaced and what replaces it are to stand in segments that live and die apart."""


@dataclass
class Log:
    """What a group's log and state have to be."""

    entries: list[tuple[int, bytes]] = field(default_factory=list)
    """(term, body), entry 1 first; all of them synced."""
    term: int = 1
    applied: int = 0
    held: set[int] = field(default_factory=set)
    """Applied entries that something refers to."""
    committed: list[tuple[int, bytes]] = field(default_factory=list)
    """What the log comes to, as far as anybody knows: of an index there is no other, ever."""


class Machine:
    """A journal, driven by chance as a store drives it, beside what it has to hold."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = new_disk()
        self.logs = {group: Log() for group in range(GROUPS)}
        self.snapshots: dict[str, set[int]] = {}
        self.replaced = 0
        self.taken_held = self.taken_kept = 0
        """Entries that an install found here, applied by this log or kept from an earlier one."""
        self.taken_after_a_crash = 0
        self._recover()

    def _recover(self) -> None:
        self.journal, recovered = Journal.recover(self.disk, SMALL, Checkpoint.read(self.disk))
        assert not recovered.damaged
        marks = {group: self.journal.snapshot_of(group)[0] for group in self.logs}
        read: dict[int, list[tuple[int, int, bytes]]] = {group: [] for group in self.logs}
        for group, index, term, body in recovered.entries:
            read[group].append((index, term, body))
        for group, log in self.logs.items():
            mark = marks[group]
            assert self.journal.last_index(group) == len(log.entries)
            behind = list(enumerate(log.entries[mark:], start=mark + 1))
            assert read[group] == [(index, *each) for index, each in behind]
            for index, (term, _) in behind:
                assert self.journal.term(group, index) == term
            snapshot = self.snapshots.get(self.journal.snapshot_of(group)[2], set())
            for index in snapshot | {each for each in log.held if each > mark}:
                self.journal.retain(group, index, 1)
            for index in snapshot - log.held:
                self.journal.release(group, index, 1)
        self.journal.finish_recovery()

    def step(self) -> None:
        chances = {
            self._append: 6,
            self._replace: 4,
            self._apply: 8,
            self._let_go: 8,
            self._checkpoint: 6,
            self._rewrite: 2,
            self._install: 3,
            self._crash: 4,
        }
        (action,) = self.chance.choices(list(chances), list(chances.values()))
        action()
        while (job := self.journal.maintenance()) is not None:
            job.run()
            self.journal.end_maintenance(job)

    def _group(self) -> tuple[int, Log]:
        group = self.chance.randrange(GROUPS)
        return group, self.logs[group]

    def _write(self, group: int, log: Log, index: int) -> None:
        """Entries of the group's term from `index` on, in one batch."""
        del log.entries[index - 1 :]
        new = [(log.term, self._body()) for _ in range(self.chance.randint(1, 6))]
        if self.chance.random() < 0.5:  # of the right leader
            new[: len(log.committed) + 1 - index] = log.committed[index - 1 :]
        for term, body in new:
            log.entries.append((term, body))
            self.journal.append(group, term, len(log.entries), body)
        self._commit()

    def _body(self) -> bytes:
        return body_of([self.chance.randbytes(self.chance.choice((20, 900, 3_000)))])

    def _commit(self) -> None:
        batch = self.journal.begin()
        if batch is not None:
            batch.run()
            self.journal.end(batch)

    def _append(self) -> None:
        group, log = self._group()
        self._write(group, log, len(log.entries) + 1)

    def _replace(self) -> None:
        group, log = self._group()
        log.term += 1
        if log.applied < len(log.entries):
            self.replaced += 1
        self._write(group, log, self.chance.randint(log.applied + 1, len(log.entries) + 1))

    def _apply(self) -> None:
        group, log = self._group()
        last = len(log.entries)
        if self.chance.random() < 0.5:
            last = self.chance.randint(log.applied, last)
        for index in range(log.applied + 1, last + 1):
            if index > len(log.committed):
                log.committed.append(log.entries[index - 1])
            elif log.committed[index - 1] != log.entries[index - 1]:
                break
            log.applied = index
            if self.chance.random() < 0.1:
                log.held.add(index)
                self.journal.retain(group, index, 1)

    def _let_go(self) -> None:
        group, log = self._group()
        for index in sorted(log.held):
            if self.chance.random() < 0.2:
                log.held.discard(index)
                self.journal.release(group, index, 1)

    def _checkpoint(self) -> None:
        names: dict[int, tuple[int, str]] = {}
        for group, log in self.logs.items():
            if self.chance.random() < 0.7:
                name = f"{group}-{len(self.snapshots)}"
                self.snapshots[name] = set(log.held)
                names[group] = (log.applied, name)
        job = self.journal.checkpoint(names)
        job.run()
        self.journal.checkpointed(job)

    def _rewrite(self) -> None:
        segment = self.journal.rewrite_candidate(0.9)
        if segment is None:
            return
        job = self.journal.rewrite(
            segment,
            lambda group, index, _body: [0] if index in self.logs[group].held else [],
        )
        carry_out(job, self._commit)

    def _install(self) -> None:
        """Another store's snapshot takes the place of a group's log, unless power fails before the
        checkpoint that names it is there, or it is given up: then another one mostly follows.
        """
        group, log = self._group()
        while not self._installed(group, log) and self.chance.random() < 0.7:
            log = self.logs[group]

    def _installed(self, group: int, log: Log) -> bool:
        for _ in range(self.chance.randint(0, 6)):
            log.committed.append((log.term + 1, self._body()))
        if log.applied == len(log.committed):
            return True
        new = Log([], log.term + 1, self.chance.randint(log.applied + 1, len(log.committed)))
        new.committed = log.committed
        new.entries = log.committed[: new.applied]
        if log.entries[new.applied - 1 : new.applied] == new.entries[-1:]:
            return True  # the log has all of it: nobody takes a snapshot then
        new.held = {index for index in log.held if self.chance.random() < 0.7}
        fresh = range(log.applied + 1, new.applied + 1)
        new.held.update(index for index in fresh if index % 2 and self.chance.random() < 0.8)
        job = self.journal.install(group, new.applied)
        assert job is not None
        self.journal.append_hard_state(group, log.term + 1, 0, 0)
        if not self._receive(job, log, new):
            return False
        assert job.close(new.applied, new.term)
        self._commit()
        assert job.closed
        if self.chance.random() < 0.2:
            self._crash()
            return False
        name = f"{group}-{len(self.snapshots)}"
        self.snapshots[name] = set(new.held)
        checkpoint = self.journal.checkpoint({group: (new.applied, name)}, job)
        checkpoint.run()
        self.logs[group] = new
        if self.chance.random() < 0.2:
            self._crash()
            return False
        self.journal.checkpointed(checkpoint)
        self.journal.installed(job, dict.fromkeys(new.held, 1))
        self.check()
        return True

    def _receive(self, job: InstallJob, log: Log, new: Log) -> bool:
        """What is not here yet comes; False: power fails, or it is given up."""
        after_a_crash = job.unverified is not None
        checked(self.journal, job)
        for index in sorted(new.held):
            if job.take(index):
                self.taken_after_a_crash += after_a_crash and index not in log.held
                self.taken_held += index in log.held
                self.taken_kept += index not in log.held
                continue
            job.append(0, index, new.entries[index - 1][1])
            if self.chance.random() < 0.3:
                self._commit()
            fate = self.chance.random()
            if fate < 0.2:
                self._commit()
                self.journal.give_up_install(job)
                return False
            if fate < 0.22:
                self._crash()
                return False
        self._commit()
        assert job.is_sound
        return True

    def _crash(self) -> None:
        self.disk = self.disk.crashed_copy(
            self.chance.choice((None, self.chance.randrange(1 << 30)))
        )
        self._recover()
        self.check()

    def check(self) -> None:
        """Everything that is held is there."""
        for group, log in self.logs.items():
            for index in log.held:
                found = self.journal.read(group, index)
                assert entry.slot(found, 0) == entry.slot(log.entries[index - 1][1], 0)


def checked(journal: Journal, job: InstallJob) -> None:
    """What an earlier run has kept is whole."""
    while (kept := job.unverified) is not None:
        check = journal.check_kept(job.group, kept)
        while not check.done:
            check.run()
        assert check.is_whole
        job.checked(kept, is_whole=True)


@pytest.mark.parametrize("seed", range(40))
def test_a_log_is_what_was_written_last_whatever_was_replaced(seed: int) -> None:
    machine = Machine(seed)
    for _ in range(STEPS):
        machine.step()
    machine._crash()
    assert machine.replaced
    assert machine.taken_held
    assert machine.taken_kept
