"""Observes what the product does: calls of a few of its methods, told to the run that is under way.

Only observation: every wrapped method does what it did. Limits that are constants of the product
are made small meanwhile, so that checkpoints, rewrites and snapshots happen in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kernel.broker.applying import resizes
from kernel.broker.applying.lost_entries import LostEntries
from kernel.broker.delivery import fairness
from kernel.broker.delivery.delivery_scheduler import DeliveryScheduler
from kernel.broker.log_commands.give_up import GiveUp
from kernel.common import ring
from kernel.common.ids import RaftGroup
from kernel.definitions import automatic_size, sizes, topic_sizes
from kernel.leader_tasks import retiring
from kernel.log.format.checkpoint import Position
from kernel.log.install import InstallJob, KeptEntries
from kernel.log.journal import Journal
from kernel.log.reclaiming.rewrite import RewriteJob
from kernel.log.writer import WriteBatch
from kernel.raft import leader
from kernel.raft.core import RaftCore
from kernel.raft.messages import Entry
from kernel.store import entry_reader as reader
from kernel.store.drivers.worker import Done, Job, Runner
from kernel.store.raft_groups import consensus, healing
from kernel.store.raft_groups.consensus import Consensus
from kernel.store.raft_groups.member import Member
from kernel.store.recovery import unreadable
from kernel.store.snapshots import transfer
from kernel.store.snapshots.transfer import Received, SnapshotReceiver
from kernel.store.space import housekeeper

from .beside_resizes import CALM_MS, QUEUE

if TYPE_CHECKING:
    from .run import Run


NUMBERS = 16
"""Of queues of a topic."""

RETIRING_MS = 300
"""Between two looks at sealed queues."""


@contextmanager
def observed(run: Run) -> Iterator[None]:
    """Tell `run` what happens."""
    replaced: list[tuple[Any, str, Any]] = []

    def wrap(owner: Any, name: str, make: Callable[[Any], Any]) -> None:
        before = getattr(owner, name)
        replaced.append((owner, name, before))
        setattr(owner, name, make(before))

    wrap(Journal, "append", lambda inner: _append(run, inner))
    wrap(Journal, "append_hard_state", lambda inner: _append_hard_state(run, inner))
    wrap(Journal, "begin", lambda inner: _begin(run, inner))
    wrap(WriteBatch, "run", lambda inner: _run(run, inner))
    wrap(WriteBatch, "start", lambda inner: _start(run, inner))
    wrap(leader, "maybe_commit", lambda inner: _commit(run, inner))
    wrap(Member, "apply", lambda inner: _apply(run, inner))
    wrap(Member, "lead", lambda inner: _lead(run, inner))
    wrap(Consensus, "install", lambda inner: _install(run, inner))
    wrap(Consensus, "leave", lambda inner: _leave(run, inner))
    wrap(Consensus, "healed", lambda inner: _healed(run, inner))
    wrap(RewriteJob, "close", lambda inner: _close(run, inner))
    wrap(DeliveryScheduler, "put_off", lambda inner: _put_off(run, inner))
    wrap(LostEntries, "give_up", lambda inner: _give_up(run, inner))
    for reads in (reader, unreadable):
        wrap(reads, "PAUSES_SECONDS", lambda _: (0.1, 0.2))
    wrap(consensus, "RECENT_BYTES_MAX", lambda _: run.levels.recent_bytes * 4)
    wrap(housekeeper, "CHECKPOINT_SECONDS", lambda _: run.levels.checkpoint_s)
    wrap(retiring, "LOOK_MS", lambda _: RETIRING_MS)
    # So few that numbers are used again.
    wrap(ring, "QUEUES_PER_TOPIC_MAX", lambda _: NUMBERS)
    wrap(resizes, "QUEUES_PER_TOPIC_MAX", lambda _: NUMBERS)
    # So little that a few messages a second are much, and are missed soon.
    wrap(topic_sizes, "QUEUE", lambda _: QUEUE)
    wrap(sizes.queues_for, "__defaults__", lambda _: (QUEUE,))
    wrap(automatic_size, "CALM_MS", lambda _: CALM_MS)
    wrap(consensus, "PATIENCE_MS", lambda _: 3_000)
    # In several steps, of which the cuts here outlast what is tried in any case.
    wrap(transfer, "ENTRIES_MAX", lambda _: 8)
    wrap(transfer, "RETRIES_MAX", lambda _: 4)
    wrap(SnapshotReceiver, "_answer", lambda inner: _answer(run, inner))
    wrap(InstallJob, "checked", lambda inner: _checked(run, inner))
    wrap(healing, "PLEA_MS", lambda _: 200)
    # As few as consumers here hold: else nobody would ever be noisy.
    wrap(fairness, "NOISY_IN_FLIGHT", lambda _: 2)
    try:
        yield
    finally:
        for owner, name, before in reversed(replaced):
            setattr(owner, name, before)


def _append(run: Run, inner: Any) -> Any:
    def append(journal: Journal, group: int, term: int, index: int, body: bytes) -> None:
        machine = run.machine_of(journal)
        if machine is not None:
            run.raft.appended(machine, journal, (group, term, index), body)
            run.features.appended(machine, group, body)
            machine.pending.append((group, index, term, 0, 0))
        inner(journal, group, term, index, body)

    return append


def _append_hard_state(run: Run, inner: Any) -> Any:
    def append_hard_state(journal: Journal, group: int, term: int, vote: int, commit: int) -> None:
        machine = run.machine_of(journal)
        if machine is not None:
            machine.pending.append((group, 0, term, vote, commit))
        inner(journal, group, term, vote, commit)

    return append_hard_state


def _begin(run: Run, inner: Any) -> Any:
    def begin(journal: Journal) -> WriteBatch | None:
        batch: WriteBatch | None = inner(journal)
        machine = run.machine_of(journal)
        if batch is not None and machine is not None:
            written = [each for each in machine.pending if each[0] not in batch.waiting]
            machine.pending = [each for each in machine.pending if each[0] in batch.waiting]
            run.batches[batch] = (machine, written)
            if batch.waiting:
                run.count("groups with little written before others")
        return batch

    return begin


def _put_off(run: Run, inner: Any) -> Any:
    def put_off(scheduler: DeliveryScheduler, tenant: str, action: Callable[[], None]) -> None:
        run.count("delivery put off")
        inner(scheduler, tenant, action)

    return put_off


def _run(run: Run, inner: Any) -> Any:
    def write(batch: WriteBatch) -> None:
        inner(batch)
        _is_on_disk(run, batch)

    return write


@dataclass
class _Noting:
    """A runner that says when a job has been done, which is before it reports."""

    inner: Runner
    note: Callable[[], None]

    def submit(self, job: Job, done: Done) -> None:
        def noted() -> None:
            job()
            self.note()

        self.inner.submit(noted, done)

    def stop(self) -> None:
        self.inner.stop()


def _start(run: Run, inner: Any) -> Any:
    def start(batch: WriteBatch, done: Done) -> bool:
        machine, _ = run.batches.get(batch, (None, []))
        if machine is None or machine.disk.beside is None:
            return bool(inner(batch, done))
        beside = machine.disk.beside
        machine.disk.beside = _Noting(beside, partial(_is_on_disk, run, batch))
        try:
            return bool(inner(batch, done))
        finally:
            machine.disk.beside = beside

    return start


def _is_on_disk(run: Run, batch: WriteBatch) -> None:
    machine, records = run.batches.pop(batch, (None, []))
    if machine is not None:
        first = batch.parts[0].segment
        machine.proven = Position(first.number, first.synced_end)
        run.raft.synced(machine, records)


def _commit(run: Run, inner: Any) -> Any:
    def maybe_commit(core: RaftCore) -> bool:
        before = core.log.committed
        has_more: bool = inner(core)
        if has_more:
            run.raft.committed(core, before)
        return has_more

    return maybe_commit


def _apply(run: Run, inner: Any) -> Any:
    def apply(member: Member, entry: Entry) -> None:
        before = member.core.tracker.members
        run.raft.applying(member, entry)
        run.features.applying(member, entry)
        inner(member, entry)
        run.raft.applied(member, entry, before)
        run.features.applied(member, entry)
        if member.state.sealed:
            run.queues.sealed_takes_nothing(member.state)

    return apply


def _lead(run: Run, inner: Any) -> Any:
    def lead(member: Member, node: str, **how: Any) -> bool:
        run.raft.elected(member)
        may_stamp: bool = inner(member, node, **how)
        if not may_stamp:
            run.count("leader with a wrong clock")
        return may_stamp

    return lead


def _install(run: Run, inner: Any) -> Any:
    def install(members: Consensus, received: Received) -> None:
        run.raft.installed(members.node, received.group, received.snapshot)
        run.features.installing(members, received)
        job = received.job
        run.count("entry held was taken over", job.held_entries)
        run.count("entry kept was taken over", job.taken_entries - job.held_entries)
        inner(members, received)

    return install


def _answer(run: Run, inner: Any) -> Any:
    async def answer(
        receiver: SnapshotReceiver, group: RaftGroup, sender: int, question: bytes
    ) -> bytes:
        before = receiver.resumed
        said: bytes = await inner(receiver, group, sender, question)
        if receiver.resumed > before:
            run.count("transfer went on after a cut")
        return said

    return answer


def _checked(run: Run, inner: Any) -> Any:
    def checked(job: InstallJob, kept: KeptEntries, *, is_whole: bool) -> None:
        whole = "whole" if is_whole else "damaged"
        run.count(f"what another run has kept was {whole}")
        inner(job, kept, is_whole=is_whole)

    return checked


def _leave(run: Run, inner: Any) -> Any:
    def leave(members: Consensus, group: RaftGroup) -> None:
        run.raft.left(members.node, int(group))
        inner(members, group)

    return leave


def _healed(run: Run, inner: Any) -> Any:
    def healed(members: Consensus, group: RaftGroup) -> None:
        run.count("came back" if group in members.healing.left else "replica healed")
        inner(members, group)

    return healed


def _give_up(run: Run, inner: Any) -> Any:
    def give_up(entries: LostEntries, command: GiveUp) -> int:
        run.queues.given_up(entries._state, command)
        lost: int = inner(entries, command)
        return lost

    return give_up


def _close(run: Run, inner: Any) -> Any:
    def close(job: RewriteJob) -> None:
        run.count("rewrite")
        inner(job)

    return close
