"""A snapshot on its way from one store to another (docs/design/replication.md#catching-up).

    leader                                 member that is too far behind
      SNAPSHOT (index, term, name)  ---->    begins
             <----  ReadSnapshot  ------     the file, piece by piece
             <----  ReadEntries   ------     what it refers to and is not here yet, oldest first,
                                             into this journal
                                             the file on disk, RESET and CLOSE, a checkpoint
             <----  APPEND_ANSWER  -----     state and log are the snapshot's: go on from there

The receiver asks, so that it sets the pace, and a step that is lost is asked for again: a transfer
whose connection breaks goes on where it was, if it comes back within `HOLD_SECONDS`. Nothing of
the old state changes before the checkpoint that names the snapshot is durable. What the old state
holds, and what came of a snapshot that was given up, does not come again, whoever sends
(`log.install`): so each further snapshot brings only what is new. An entry that the
sender does not have any more was let go by an entry behind the snapshot, which will come: an empty
one takes its place. That is to be believed of a sender only that has applied what the snapshot has:
one that has lost its disk meanwhile, or its part in the group, lacks entries that are still wanted.
"""

from __future__ import annotations

import asyncio
from array import array
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

import msgspec

from ...broker.applying.liveness import references
from ...broker.group_state.state import GroupState
from ...broker.snapshots.snapshot import load
from ...common.errors import UNDECODABLE, Code, KernelError
from ...common.ids import RaftGroup
from ...common.ports import Clock, Disk
from ...log.errors import FormatError
from ...log.format.files import NO_SPACE, read_all
from ...log.hard_read import is_unread
from ...log.install import GONE, InstallJob
from ...log.journal import Journal
from ...raft.messages import RaftMessage, Snapshot
from ..drivers.worker import Runner
from .copy_pace import CopyPace
from .progress import Progress
from .snapshot_file import DIRECTORY, SnapshotWriter, name_of, records_of, sync_names

T = TypeVar("T")

PIECE_BYTES = 1024 * 1024
"""Of a snapshot's file in one answer."""

ENTRIES_BYTES = 1024 * 1024
"""Of entries in one answer, at least one."""

ENTRIES_MAX = 256

PATIENCE_MS = 10_000
"""A leader that was asked for nothing for so long takes the transfer for dead, and begins anew."""

CONTENT_SECONDS = 120.0
"""A snapshot's file that was sent stays in memory for so long: longer than a receiver whose
connection breaks is waited for."""

RETRIES_MAX = 20
RETRY_SECONDS = 0.25
"""Pause before a question that was not answered is put again; so often in any case."""

HOLD_SECONDS = 60.0
"""So long after that it is put again while no other store is known to lead, and no other group
waits for its snapshot: what has come is kept, and the transfer goes on where it was. Then the
leader's next offer is waited for. Longer than a switch or a link takes to come back; no longer,
because a journal that waits for entries gives no room back meanwhile."""

HURRY_SECONDS = 300.0
"""A snapshot of a group that is offered so shortly after one was taken in follows from it."""

STRETCH_SECONDS = 60.0
STRETCH_GROWTH = 1.1
"""So long at a stretch a transfer holds the journal while a rewrite waits, which may be what gives
room back: then it lets that go first, and takes over what has come. Each stretch is a tenth longer
than the one before, which is an eleventh of the time that it took so far. For what stretches leave
apart is bounded (`install.KEPT_MAX`), and then it holds the journal to its end: with equal ones
that was after an hour, so it is after two days and a half."""

GAP_SECONDS = 1.0
"""It leaves the journal alone for so long: several times what housekeeping takes to look."""

KEPT_SECONDS = 600.0
"""So long after a transfer was given up what has come is kept for the next one: longer than it
takes until there is another leader with a snapshot, or this one has made one."""

LOOKS_MAX = 1_024
"""Entries that are looked for in this journal in one turn of the loop: a millisecond."""

WAIT_SECONDS = 0.05


def stretch_seconds(kept: int) -> float:
    """How long a transfer holds the journal at least, of which so much was kept so far."""
    return float(STRETCH_SECONDS * STRETCH_GROWTH**kept)


class ReadSnapshot(msgspec.Struct, frozen=True, array_like=True, tag="snapshot"):
    """A piece of a snapshot's file, from an offset on."""

    name: str
    offset: int


class ReadEntries(msgspec.Struct, frozen=True, array_like=True, tag="entries"):
    """Entries of a group; as many as fit into an answer, in the order asked for."""

    group: int
    indexes: tuple[int, ...]
    applied: int
    """What the snapshot has applied that refers to them."""


class ReadClock(msgspec.Struct, frozen=True, array_like=True, tag="clock"):
    """What time it is at another store (`wall_clocks`)."""


class SnapshotPart(msgspec.Struct, frozen=True, array_like=True):
    """Answer: the file's size, and bytes of it."""

    size: int
    data: bytes


class EntriesPart(msgspec.Struct, frozen=True, array_like=True):
    """Answer: (index, term, body) of the first so many that were asked for; no body: it is gone."""

    rows: tuple[tuple[int, int, bytes], ...]


class ClockPart(msgspec.Struct, frozen=True, array_like=True):
    """Answer: milliseconds since the epoch."""

    wall_ms: int


class Plea(msgspec.Struct, frozen=True, array_like=True, tag="plea"):
    """A member of a group asks its leader to be taken back (`healing`)."""

    group: int
    node: int
    lost: bool
    """It has lost what it had; False: it has a snapshot again, and wants to be a voter."""


class PleaPart(msgspec.Struct, frozen=True, array_like=True):
    """Answer: the leader's term, and the snapshot to begin anew with, if there is one yet."""

    term: int
    snapshot: Snapshot | None


Question = ReadSnapshot | ReadEntries | ReadClock | Plea

_encode = msgspec.msgpack.Encoder().encode
_decode_question = msgspec.msgpack.Decoder(Question).decode
_decode_snapshot = msgspec.msgpack.Decoder(SnapshotPart).decode
_decode_entries = msgspec.msgpack.Decoder(EntriesPart).decode
_decode_clock = msgspec.msgpack.Decoder(ClockPart).decode
_decode_plea = msgspec.msgpack.Decoder(PleaPart).decode


class Ask(Protocol):
    """Puts questions to other stores."""

    async def ask(self, node: int, question: bytes) -> bytes:
        """The answer. Raises KernelError if there is none, or an error."""


async def ask_wall_clock(ask: Ask, node: int) -> int:
    """What time it is at another store, in ms since the epoch. Raises KernelError."""
    answer = await ask.ask(node, _encode(ReadClock()))
    try:
        return _decode_clock(answer).wall_ms
    except UNDECODABLE as error:
        raise KernelError(Code.INVALID_ARGUMENT, f"no answer: {error}") from None


async def plead(ask: Ask, node: int, plea: Plea) -> PleaPart:
    """Ask a group's leader to be taken back. Raises KernelError."""
    answer = await ask.ask(node, _encode(plea))
    try:
        return _decode_plea(answer)
    except UNDECODABLE as error:
        raise KernelError(Code.INVALID_ARGUMENT, f"no answer: {error}") from None


class Bodies(Protocol):
    """What is asked of the store that sends."""

    @property
    def journal(self) -> Journal:
        """Where entries are."""

    async def fetched(self, group: RaftGroup, index: int) -> None:
        """Return once one that the journal has is in memory."""

    def is_given_up(self, group: RaftGroup, index: int) -> bool:
        """Whether nobody will ever read a log entry."""

    def applied(self, group: RaftGroup) -> int:
        """The last entry that the group's state has applied."""


class SnapshotSource:
    """The sending half. It also says what time it is here, and hears pleas."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        runner: Runner,
        bodies: Bodies,
        hear: Callable[[Plea], PleaPart],
    ) -> None:
        self._hear = hear
        self._disk = disk
        self._clock = clock
        self._runner = runner
        self._bodies = bodies
        self._content: tuple[str, bytes] = ("", b"")
        """The file that is being sent: read once, kept until another one is, or nobody asks for it
        any more."""
        self._dropping: asyncio.TimerHandle | None = None

    async def answer(self, question: bytes) -> bytes:
        """Answer another store. Raises KernelError INVALID_ARGUMENT, NOT_FOUND, NOT_LEADER."""
        try:
            asked = _decode_question(question)
        except UNDECODABLE as error:
            raise KernelError(Code.INVALID_ARGUMENT, f"no question: {error}") from None
        if isinstance(asked, ReadClock):
            return _encode(ClockPart(self._clock.wall_ms()))
        if isinstance(asked, Plea):
            return _encode(self._hear(asked))
        if isinstance(asked, ReadSnapshot):
            return _encode(await self._snapshot(asked))
        return _encode(await self._entries(asked))

    async def _snapshot(self, asked: ReadSnapshot) -> SnapshotPart:
        if not asked.name.startswith(f"{DIRECTORY}/") or ".." in asked.name:
            raise KernelError(Code.INVALID_ARGUMENT, "not the name of a snapshot")
        if self._content[0] != asked.name:
            try:
                content = await in_thread(self._runner, lambda: read_all(self._disk, asked.name))
            except OSError as error:
                if not is_unread(error):
                    raise
                # The next one that is made here will: this asks for none.
                raise KernelError(Code.NOT_FOUND, f"{asked.name} does not read") from error
            if content is None:
                raise KernelError(Code.NOT_FOUND, f"{asked.name} has been superseded")
            self._content = (asked.name, content)
        if self._dropping is not None:
            self._dropping.cancel()
        loop = asyncio.get_running_loop()
        self._dropping = loop.call_later(CONTENT_SECONDS, self._drop)
        content = self._content[1]
        return SnapshotPart(len(content), content[asked.offset : asked.offset + PIECE_BYTES])

    def _drop(self) -> None:
        self._content = ("", b"")

    async def _entries(self, asked: ReadEntries) -> EntriesPart:
        group, journal = RaftGroup(asked.group), self._bodies.journal
        rows: list[tuple[int, int, bytes]] = []
        left = ENTRIES_BYTES
        for index in asked.indexes[:ENTRIES_MAX]:
            body = journal.entry(group, index)
            while body is None and journal.has(group, index):
                if self._bodies.is_given_up(group, index):
                    break
                await self._bodies.fetched(group, index)
                body = journal.entry(group, index)
            if body is None and self._bodies.applied(group) < asked.applied:
                what = f"entry {index} of group {group} is not here: its part in it was lost"
                raise KernelError(Code.NOT_FOUND, what)
            row = (index, journal.term(group, index), body or b"")
            left -= len(row[2])
            if left < 0 and rows:
                break
            rows.append(row)
        return EntriesPart(tuple(rows))


@dataclass(slots=True)
class Received:
    """A snapshot that is in this journal, but for the checkpoint that names it."""

    group: RaftGroup
    snapshot: Snapshot
    sender: int
    name: str
    state: GroupState
    references: Mapping[int, int]
    job: InstallJob


class InstallHost(Protocol):
    """What the receiving half asks of its store."""

    understands: int

    @property
    def journal(self) -> Journal:
        """Where entries go."""

    async def flushed(self) -> None:
        """Return once everything that is queued for the journal is synced."""

    def seal(self, group: RaftGroup, snapshot: Snapshot) -> bool:
        """Have nothing happen to a group until `unseal`; False if its log has come so far by
        itself, or it does not follow.
        """

    def unseal(self, group: RaftGroup) -> None:
        """Let the group go on."""

    def known_leader(self, group: RaftGroup) -> int:
        """Who leads a group as far as is known here, 0: nobody is known to."""


class Checkpoints(Protocol):
    """What it asks of housekeeping."""

    def install(self, received: Received) -> Awaitable[None]:
        """Make the checkpoint, then let the snapshot take the place of state and log."""

    def keep(self, name: str) -> None:
        """Leave this snapshot alone, although no checkpoint names it yet."""

    def keep_no_longer(self, name: str) -> None:
        """It is named, or was given up."""


class SnapshotReceiver:
    """The receiving half: one snapshot at a time."""

    def __init__(
        self,
        disk: Disk,
        runner: Runner,
        ask: Ask,
        host: InstallHost,
        checkpoints: Checkpoints,
        fatal: Callable[[str, BaseException], None],
    ) -> None:
        self._checkpoints = checkpoints
        self._disk = disk
        self._runner = runner
        self._ask = ask
        self._host = host
        self._fatal = fatal
        self._tasks: dict[RaftGroup, asyncio.Task[None]] = {}
        self._unwanted: set[RaftGroup] = set()
        """Groups whose snapshot is on its way for nothing."""
        self._turn = asyncio.Lock()
        self._loop = asyncio.get_running_loop()
        self._pace = CopyPace(self._loop.time)
        self.bytes_per_second = 0
        """As the settings say: as fast as they come with 0."""
        self.rate_of: Callable[[RaftGroup], int] = lambda _group: self.bytes_per_second
        """Bytes a second that a group's copy may take. Set by whoever knows of the cluster
        (`cluster.copy_rate`)."""
        self._installed: dict[RaftGroup, float] = {}
        """When the last snapshot of a group was taken in: one that follows soon comes as fast as it
        can. A leader keeps only so much of what comes after a snapshot, so that a slow copy may be
        followed by another one, and would be again and again. One that was given up has not come to
        its end: what follows brings the rest of it, no faster.
        """
        self.progress: dict[RaftGroup, Progress] = {}
        """Of those that are on their way, or wait for their turn."""
        self.installed = 0
        self.failures = 0
        self.resumed = 0
        """How often a transfer went on after a sender had not answered `RETRIES_MAX` times."""
        self.interrupted = 0
        """How often one let a rewrite of the journal go first."""
        self.taken_entries = 0
        self.taken_bytes = 0
        """What snapshots refer to and did not have to come, since it was here."""
        self._forgetting: dict[int, asyncio.TimerHandle] = {}
        """By group when what its last transfer has left is forgotten."""
        self.received_bytes = 0
        """Of snapshots' files and entries, since the process began: also of those given up."""
        for group in host.journal.kept:  # of the last run
            self._keep(RaftGroup(group))

    def is_receiving(self, group: RaftGroup) -> bool:
        """Whether a snapshot of the group is on its way: its log must not change meanwhile."""
        return group in self._tasks

    def offered(self, group: RaftGroup, message: RaftMessage) -> None:
        """A leader offers a snapshot."""
        if group not in self._tasks and message.snapshot is not None:
            installed, now = self._installed.get(group), self._loop.time
            hurries = installed is not None and now() - installed < HURRY_SECONDS
            self.progress[group] = Progress(message.sender, now, hurries=hurries)
            work = self._receive(group, message.snapshot, message.sender)
            self._tasks[group] = self._loop.create_task(work)

    def give_up(self, group: RaftGroup) -> None:
        """Nobody wants the group's snapshot here any more. One that waits for its turn ends now;
        else what was asked for comes, is written, and nothing more is asked for: a job of the disk
        is never left alone.
        """
        if group in self._tasks:
            self._unwanted.add(group)
            if not self.progress[group].begun:
                self._tasks[group].cancel()

    async def stop(self) -> None:
        """Give up what is under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for timer in self._forgetting.values():
            timer.cancel()

    async def _receive(self, group: RaftGroup, snapshot: Snapshot, sender: int) -> None:
        job: InstallJob | None = None
        name = name_of(group, snapshot.index)
        self._checkpoints.keep(name)
        try:
            async with self._turn:
                self.progress[group].begin()
                records = await self._file(group, snapshot, sender)
                state = _state_of(records, snapshot, self._host.understands)
                refers = references(state)
                indexes = sorted(refers)
                job = await self._begin(group, snapshot.index)
                while not await self._entries(job, indexes, sender, snapshot.index):
                    self._host.journal.give_up_install(job)
                    job = None
                    self.interrupted += 1
                    await asyncio.sleep(GAP_SECONDS)
                    job = await self._begin(group, snapshot.index)
                await self._write(name, records)
                await self._until(job, lambda each: each.is_placed)
                if not self._host.seal(group, snapshot) or not job.is_sound:
                    return  # the log has come so far by itself meanwhile
                job.close(snapshot.index, snapshot.term)
                await self._until(job, lambda each: each.closed)
                received = Received(group, snapshot, sender, name, state, refers, job)
                job = None
                await self._checkpoints.install(received)
                self.installed += 1
                self._installed[group] = self._loop.time()
        except FormatError as error:
            self._fatal("a snapshot of another store cannot be read", error)
        except (KernelError, ValueError):
            # The sender is gone, or has a newer one by now: the leader will offer one again.
            self.failures += 1
        except OSError as error:
            self.failures += 1
            if error.errno not in NO_SPACE:
                self._fatal("a snapshot of another store could not be written and synced", error)
        finally:
            if job is not None:
                self._host.journal.give_up_install(job)
            self._keep(group)
            self._host.unseal(group)
            self._checkpoints.keep_no_longer(name)
            self._unwanted.discard(group)
            del self._tasks[group], self.progress[group]

    async def _until(self, job: InstallJob, condition: Callable[[InstallJob], bool]) -> None:
        """Return once it is so: the disk may have no room for a while. KernelError if that lasts:
        what has come is in the way of others then.
        """
        until = self._loop.time() + HOLD_SECONDS
        while True:
            await self._flushed(until)
            if condition(job):
                return
            await asyncio.sleep(WAIT_SECONDS)
            if self._loop.time() >= until:
                raise KernelError(Code.NO_SPACE, f"no room for a snapshot of group {job.group}")

    async def _flushed(self, until: float) -> None:
        """Return once what is queued is synced. KernelError if nothing is by then."""
        try:
            async with asyncio.timeout_at(until):
                await self._host.flushed()
        except TimeoutError:
            raise KernelError(Code.NO_SPACE, "the disk takes nothing") from None

    def _keep(self, group: RaftGroup) -> None:
        """What has come of a transfer that was given up is of use for a while, if it is wanted."""
        journal, timer = self._host.journal, self._forgetting.pop(group, None)
        if timer is not None:
            timer.cancel()
        if group in self._unwanted:
            journal.forget_kept(group)
        elif group in journal.kept:
            self._forgetting[group] = self._loop.call_later(KEPT_SECONDS, self._forget, group)

    def _forget(self, group: RaftGroup) -> None:
        """No transfer has come that could take it over. One that waits for its turn will."""
        del self._forgetting[group]
        if group not in self._tasks:
            self._host.journal.forget_kept(group)

    async def _lacking(self, job: InstallJob, indexes: Sequence[int]) -> Sequence[int]:
        """What of them has to come."""
        journal = self._host.journal
        while (kept := job.unverified) is not None:
            check = journal.check_kept(job.group, kept)
            while not check.done:
                await in_thread(self._runner, check.run)
            job.checked(kept, is_whole=check.is_whole)
        lacking = array("Q")
        for first in range(0, len(indexes), LOOKS_MAX):
            some = indexes[first : first + LOOKS_MAX]
            lacking.extend(index for index in some if not job.take(index))
            await asyncio.sleep(0)
        return lacking

    async def _begin(self, group: RaftGroup, index: int) -> InstallJob:
        """Begin to write entries, as soon as no rewrite is under way."""
        while True:
            job = self._host.journal.install(group, index)
            if job is not None:
                return job
            await asyncio.sleep(WAIT_SECONDS)

    async def _file(self, group: RaftGroup, snapshot: Snapshot, sender: int) -> list[bytes]:
        content = bytearray()
        name = str(snapshot.handle)
        while True:
            question = _encode(ReadSnapshot(name, len(content)))
            part = _decode_snapshot(await self._answer(group, sender, question))
            content += part.data
            self.received_bytes += len(part.data)
            self.progress[group].took_file(len(part.data), part.size)
            await self._pause(group, len(part.data))
            if len(content) >= part.size or not part.data:
                return list(records_of(bytes(content), name))

    async def _entries(
        self, job: InstallJob, indexes: Sequence[int], sender: int, applied: int
    ) -> bool:
        """Have what is not here yet come; False: it is to be given up and begun again, since a
        rewrite waits for the journal.
        """
        at, group = 0, RaftGroup(job.group)
        progress = self.progress[group]
        until = self._loop.time() + stretch_seconds(len(job.kept))
        lacking = await self._lacking(job, indexes)
        if not progress.entries:
            self.taken_entries += job.taken_entries
            self.taken_bytes += job.taken_bytes
        progress.entries_total = progress.entries + len(lacking)
        while at < len(lacking):
            if job.is_waited_for and job.may_begin_anew and self._loop.time() >= until:
                return False
            some = tuple(lacking[at : at + ENTRIES_MAX])
            question = _encode(ReadEntries(job.group, some, applied))
            rows = _decode_entries(await self._answer(group, sender, question)).rows
            if [row[0] for row in rows] != list(some[: len(rows)]) or not rows:
                raise KernelError(Code.INVALID_ARGUMENT, "entries that were not asked for")
            for index, term, body in rows:
                job.append(term, index, body or GONE)
                self.received_bytes += len(body)
                progress.took_entry(len(body))
            at += len(rows)
            await self._flushed(self._loop.time() + HOLD_SECONDS)
            await self._pause(group, sum(len(body) for _, _, body in rows))
        return True

    async def _pause(self, group: RaftGroup, size_bytes: int) -> None:
        """Wait as the pace says."""
        if seconds := self._pace.took(size_bytes, self.rate_max(group)):
            await asyncio.sleep(seconds)

    def rate_max(self, group: RaftGroup) -> int:
        """Bytes a second that the snapshot of a group on its way may take; 0: no bound."""
        return 0 if self.progress[group].hurries else self.rate_of(group)

    async def _answer(self, group: RaftGroup, sender: int, question: bytes) -> bytes:
        """What the sender says. Raises KernelError once it is given up."""
        tries, until = 0, self._loop.time() + RETRIES_MAX * RETRY_SECONDS + HOLD_SECONDS
        if group in self._unwanted:
            raise KernelError(Code.NOT_FOUND, f"this store is no member of group {group} any more")
        while tries < RETRIES_MAX or (self._loop.time() < until and self._holds(group, sender)):
            try:
                answer = await self._ask.ask(sender, question)
            except KernelError as error:
                if not error.code.retryable:
                    raise
            else:
                self.resumed += tries >= RETRIES_MAX
                return answer
            tries += 1
            await asyncio.sleep(RETRY_SECONDS)
        raise KernelError(Code.UNAVAILABLE, f"node {sender} does not answer")

    def _holds(self, group: RaftGroup, sender: int) -> bool:
        """Whether to wait for a sender: another leader would offer its own snapshot, and another
        group's may come from a store that answers.
        """
        return len(self._tasks) == 1 and self._host.known_leader(group) in (0, sender)

    async def _write(self, name: str, records: Sequence[bytes]) -> None:
        writer = SnapshotWriter(self._disk, name)
        for last, piece in _pieces(records):
            for record in piece:
                writer.add(record)
            await in_thread(self._runner, writer.take(last=last).run)
        await in_thread(self._runner, lambda: sync_names(self._disk))


def _state_of(records: Sequence[bytes], snapshot: Snapshot, understands: int) -> GroupState:
    """The state in a snapshot's file. ValueError if it is not the one that was offered."""
    state = load(records, understands)
    if (state.applied, state.membership) != (snapshot.index, snapshot.membership):
        raise ValueError(f"{snapshot.handle} is not what was offered")
    return state


def _pieces(records: Sequence[bytes]) -> Iterator[tuple[bool, list[bytes]]]:
    """Records by the megabyte, and whether they are the last."""
    piece: list[bytes] = []
    size = 0
    for record in records:
        piece.append(record)
        size += len(record)
        if size >= PIECE_BYTES:
            yield False, piece
            piece, size = [], 0
    yield True, piece


async def in_thread(runner: Runner, job: Callable[[], T]) -> T:
    """What a job comes to, or raises, off the event loop."""
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    results: list[T] = []

    def done(error: BaseException | None) -> None:
        if future.done():
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(results[0])

    runner.submit(lambda: results.append(job()), done)
    return await future
