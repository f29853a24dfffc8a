"""What a store sends of a snapshot's entries, and what it must not say of those it lacks."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import msgspec
import pytest

from kernel.common.errors import Code, KernelError
from kernel.common.ids import RaftGroup
from kernel.log.install import KEPT_MAX
from kernel.raft.messages import Snapshot
from kernel.store.snapshots import transfer
from kernel.store.snapshots.copy_pace import PAUSE_SECONDS_MAX, CopyPace
from kernel.store.snapshots.progress import RATE_SECONDS, Progress
from kernel.store.snapshots.snapshot_file import DIRECTORY
from kernel.store.snapshots.transfer import (
    EntriesPart,
    ReadEntries,
    ReadSnapshot,
    SnapshotPart,
    SnapshotSource,
)
from tests.simulator.disk import SimulatedDisk

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel.common.ports import Clock, Disk
    from kernel.log.install import InstallJob
    from kernel.log.journal import Journal
    from kernel.raft.messages import RaftMessage
    from kernel.store.drivers.worker import Runner

APPLIED = 10
GIVEN_UP = 6
BODIES = {3: b"in memory"}


class Bodies:
    """A group whose journal has some entries, and whose state has applied so many."""

    def __init__(self, applied: int) -> None:
        self._applied = applied
        self._on_disk = {5: b"on disk", GIVEN_UP: b"can not be read"}
        self._read = dict(BODIES)

    @property
    def journal(self) -> Journal:
        known = {**self._read, **self._on_disk}
        journal = SimpleNamespace(
            entry=lambda _group, index: self._read.get(index),
            has=lambda _group, index: index in known,
            term=lambda _group, _index: 2,
        )
        return cast("Journal", journal)

    async def fetched(self, _group: RaftGroup, index: int) -> None:
        assert index != GIVEN_UP
        self._read[index] = self._on_disk[index]

    def applied(self, _group: RaftGroup) -> int:
        return self._applied

    def is_given_up(self, _group: RaftGroup, index: int) -> bool:
        return index == GIVEN_UP


async def sent(applied: int, *indexes: int) -> tuple[tuple[int, int, bytes], ...]:
    """What a store that has applied so much answers, asked for entries of a snapshot."""
    nothing = SimpleNamespace()
    source = SnapshotSource(
        cast("Disk", nothing),
        cast("Clock", nothing),
        cast("Runner", nothing),
        Bodies(applied),
        lambda _plea: pytest.fail("no plea"),
    )
    answer = await source.answer(msgspec.msgpack.encode(ReadEntries(1, indexes, APPLIED)))
    return msgspec.msgpack.decode(answer, type=EntriesPart).rows


async def test_entries_come_from_memory_or_disk_and_what_was_let_go_since_is_empty() -> None:
    assert await sent(APPLIED, 3, 4, 5) == ((3, 2, b"in memory"), (4, 2, b""), (5, 2, b"on disk"))
    assert await sent(APPLIED + 5, 4) == ((4, 2, b""),)


async def test_an_entry_that_was_given_up_is_empty() -> None:
    assert await sent(APPLIED, GIVEN_UP, 5) == ((GIVEN_UP, 2, b""), (5, 2, b"on disk"))


class AtOnce:
    """A thread that has done what it is asked."""

    def submit(self, job: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        job()
        done(None)


async def test_a_file_that_was_sent_does_not_stay_in_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transfer, "CONTENT_SECONDS", 0.05)
    disk, name = SimulatedDisk(), f"{DIRECTORY}/a-snapshot"
    disk.put(name, b"what is in it")
    source = SnapshotSource(
        cast("Disk", disk),
        cast("Clock", SimpleNamespace()),
        cast("Runner", AtOnce()),
        Bodies(APPLIED),
        lambda _plea: pytest.fail("no plea"),
    )
    question = msgspec.msgpack.encode(ReadSnapshot(name, 5))
    for _ in range(3):
        answer = msgspec.msgpack.decode(await source.answer(question), type=SnapshotPart)
        assert answer == SnapshotPart(13, b"is in it")
        assert source._content == (name, b"what is in it")
        await asyncio.sleep(0.01)
    async with asyncio.timeout(10):
        while source._content != ("", b""):
            await asyncio.sleep(0.01)


async def test_who_has_lost_its_part_in_the_group_does_not_say_that_an_entry_was_let_go() -> None:
    """Seed 2562 of the simulator: the sender's disk was damaged while the snapshot was under way,
    and a message that nobody had acked was empty at the receiver.
    """
    assert await sent(0, 3, 5) == ((3, 2, b"in memory"), (5, 2, b"on disk"))
    for applied in (0, APPLIED - 1):
        with pytest.raises(KernelError, match="entry 4 of group 1 is not here") as refused:
            await sent(applied, 3, 4)
        assert refused.value.code is Code.NOT_FOUND
        assert not refused.value.code.retryable


def test_a_rate_is_of_late_and_leaves_out_the_wait_for_its_turn() -> None:
    now = 100.0
    progress = Progress(2, lambda: now)
    now += 50
    assert (progress.begun, progress.rate, progress.seconds) == (False, 0, 50)
    progress.begin()
    now += RATE_SECONDS
    progress.took_file(5_000, 9_000)
    assert (progress.rate, progress.file_bytes_total) == (1_000, 9_000)
    now += 1
    progress.took_file(4_000, 9_000)
    assert progress.rate == 1_000, "of the last whole stretch"
    now += 4 * RATE_SECONDS - 1
    assert progress.rate == 200, "nothing comes: it falls"
    progress.took_entry(600)
    assert (progress.bytes, progress.entries, progress.rate) == (9_600, 1, 230)


def test_a_pace_is_kept_over_pieces_of_any_size_and_no_pause_tries_a_leaders_patience() -> None:
    now = 100.0
    pace = CopyPace(lambda: now)
    assert pace.took(10**9, 0) == 0
    taken = 0
    for size in (500, 2_000, 1, 1_499) * 10:
        now += pace.took(size, 1_000)
        taken += size
    assert now - 100.0 == pytest.approx(taken / 1_000)
    now += 60  # what was not used is not saved up
    assert pace.took(1_000, 1_000) == 1.0
    assert pace.took(10**6, 1_000) == PAUSE_SECONDS_MAX < transfer.PATIENCE_MS / 1_000
    assert pace.took(1_000, 2_000) == 0.5, "what was owed at another pace is not owed any more"
    assert pace.took(10**6, 0) == 0


class Unheard:
    """A sender that has no such snapshot any more."""

    async def ask(self, _node: int, _question: bytes) -> bytes:
        raise KernelError(Code.NOT_FOUND, "no such snapshot")


def unheard() -> transfer.SnapshotReceiver:
    """Whose senders have no such snapshot any more."""
    nothing = SimpleNamespace(
        keep=lambda _name: None,
        keep_no_longer=lambda _name: None,
        unseal=lambda _group: None,
        known_leader=lambda _group: 1,
        journal=SimpleNamespace(kept={}),
    )
    return transfer.SnapshotReceiver(
        cast("Disk", nothing),
        cast("Runner", nothing),
        Unheard(),
        cast("transfer.InstallHost", nothing),
        cast("transfer.Checkpoints", nothing),
        lambda _why, _error: pytest.fail("it goes on"),
    )


async def test_a_snapshot_that_follows_at_once_from_one_that_was_taken_in_is_not_slowed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that follows from one that was given up brings the rest of it."""
    receiver = unheard()
    group = RaftGroup(1)
    offer = cast("RaftMessage", SimpleNamespace(sender=1, snapshot=Snapshot(5, 1, None, "s")))  # type: ignore[arg-type]  # nobody is a member
    seen = []
    for hurry_seconds in (60.0, 60.0, 60.0, 0.0):
        monkeypatch.setattr(transfer, "HURRY_SECONDS", hurry_seconds)
        receiver.offered(group, offer)
        seen.append(receiver.progress[group].hurries)
        while receiver.is_receiving(group):
            await asyncio.sleep(0)
        if len(seen) == 2:
            receiver._installed[group] = asyncio.get_running_loop().time()
    assert seen == [False, False, True, False]
    assert receiver.failures == 4


class Taking:
    """A journal that says what is forgotten."""

    def __init__(self, *kept: int) -> None:
        self.kept = {*kept}

    def forget_kept(self, group: int) -> None:
        self.kept.discard(group)


async def test_what_was_kept_is_forgotten_after_a_while_unless_the_next_waits_for_its_turn(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transfer, "KEPT_SECONDS", 0.02)
    receiver = unheard()
    journal = Taking(1, 2)
    receiver._host.journal = journal  # type: ignore[misc, assignment]  # a stand-in
    offer = cast("RaftMessage", SimpleNamespace(sender=1, snapshot=Snapshot(5, 1, None, "s")))  # type: ignore[arg-type]  # nobody is a member
    async with receiver._turn:
        receiver.offered(RaftGroup(1), offer)
        for group in (1, 2):
            receiver._keep(RaftGroup(group))
        async with asyncio.timeout(10):
            while receiver._forgetting:
                await asyncio.sleep(0.01)
        assert journal.kept == {1}
    async with asyncio.timeout(10):
        while journal.kept:
            await asyncio.sleep(0.01)
    assert receiver.failures == 1


async def test_a_disk_without_room_is_waited_for_so_long_and_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(transfer, "HOLD_SECONDS", 0.05)
    receiver = unheard()
    job = cast("InstallJob", SimpleNamespace(group=1))

    async def flushed() -> None:
        """Nothing is queued."""

    for host in (asyncio.Event().wait, flushed):
        receiver._host.flushed = host  # type: ignore[method-assign, assignment]
        with pytest.raises(KernelError) as refused:
            async with asyncio.timeout(10):
                await receiver._until(job, lambda _job: False)
        assert refused.value.code is Code.NO_SPACE


def test_a_copy_of_days_makes_way_in_time_and_has_stretches_left() -> None:
    """What it leaves apart each time is bounded: then it makes way no more."""
    took_s = 0.0
    for kept in range(KEPT_MAX - 1):
        stretch_s = transfer.stretch_seconds(kept)
        assert stretch_s < transfer.STRETCH_SECONDS + took_s / 10 + 0.001
        took_s += stretch_s
    assert took_s > 2.5 * 24 * 3_600
