"""Log entries that do not read while the store runs: read again, healed by others, or given up.

Others have the group: it is healed from them (`healing`), beginning with the next start of this
process; a checkpoint names the group damaged before it ends.

Nobody else has it: the entry is given up, and all else goes on.

    read once more, its bytes kept aside  ->  who has messages in it, from the index  ->  written
    down in `lost/`  ->  GIVE_UP in the log  ->  whoever waited for the entry looks again  ->
    checkpoint

What fails with EIO was asked for again for some seconds before it counts as unreadable (`reader`);
none of it is given up before the disk has read something else.

The checkpoint puts the damage below it: there a start takes no notice. Who asks for the entry again
(a group that reads a stream from its beginning) has it given up once more, and gets nothing.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

from ...api.message import UID_END, uid_at
from ...broker.group_state.state import GroupState
from ...broker.log_commands.give_up import GiveUp
from ...common.ids import QueueId, RaftGroup, topic_of
from ...common.ports import Clock
from ...log.errors import JournalError, RecordDamaged
from ...log.format import entry as entries
from ...log.format.files import NO_SPACE
from ...log.journal import Journal
from ...log.reading.aside import AsideJob
from ..drivers.worker import Job, Runner
from ..entry_reader import PAUSES_SECONDS, Reader
from ..raft_groups.consensus import Consensus
from ..replicas.replica import Replica
from .losses import Loss, Losses, LostMessages, is_too_much
from .places import Places, Ranges, note_places

RETRY_SECONDS = 1.0
"""On a full disk nothing is kept aside, and nothing given up that is not: until there is room."""

QUEUES_PER_TURN = 256
"""Queues whose index is looked at in one turn of the loop: a millisecond or two."""

UIDS_MAX = 1_000
"""Uids written down of one entry."""

_NO_IDENTITY = (0, 0, 0)

_T = TypeVar("_T")


class UnreadableHost(Protocol):
    """What is asked of the store."""

    @property
    def consensus(self) -> Consensus:
        """The Raft groups of the store."""


class Unreadable:
    """Entries that do not read: read again, healed by others, or given up."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        host: UnreadableHost,
        journal: Journal,
        losses: Losses,
        clock: Clock,
        runner: Runner,
        fatal: Callable[[str, BaseException], None],
    ) -> None:
        self._loop = loop
        self._host = host
        self._journal = journal
        self.losses = losses
        self._clock = clock
        self._runner = runner
        self._fatal = fatal
        self.reader: Reader | None = None
        """Who waits for entries there hears when they are given up; set by the store."""
        self._expected: dict[tuple[RaftGroup, int], AsideJob] = {}
        """Entries of which a start has found that they are not in the journal."""
        self._under_way: dict[tuple[RaftGroup, int], asyncio.Task[None]] = {}
        self._given_up: set[tuple[RaftGroup, int]] = set()
        self._stopped = False
        self._doom: tuple[str, BaseException] | None = None

    def stop(self) -> None:
        """Give up nothing more."""
        self._stopped = True
        for task in self._under_way.values():
            task.cancel()

    def is_given_up(self, group: RaftGroup, index: int) -> bool:
        """Whether nobody will ever read the entry."""
        return (group, index) in self._given_up

    # --- Who has it -------------------------------------------------------------------------

    def failed(self, group: RaftGroup, index: int, error: BaseException, log: bool = False) -> None:
        """An entry cannot be read; `log`: by a reader of the group's log."""
        if self._stopped:
            return
        sentence = f"entry {index} of group {group} could not be read"
        consensus = self._host.consensus
        member = consensus.members.get(group)
        if member is None or not isinstance(error, JournalError):
            self._fatal(sentence, error)
        elif not consensus.is_alone(member):
            self._journal.mark_damaged(group)
            self._end_soon(sentence, error)
        elif log:
            # Another member is to have it: behind the next checkpoint it gets a snapshot instead.
            self._end_soon(sentence, error)
        elif isinstance(error, RecordDamaged) or self._is_known((group, index)):
            self._begin(member.replica, index, None)
        else:
            self._fatal(sentence, error)

    def lost(self, group: RaftGroup, error: BaseException) -> None:
        """What a group's leader says shows that this disk has forgotten some of its log: it heals
        as what a start finds damaged does.
        """
        if not self._stopped:
            self._journal.mark_damaged(group)
            self._end_soon(f"the disk has lost some of the log of group {group}", error)

    def noticed(self, group: int, index: int) -> None:
        """An entry was found not to read by somebody who can do without. Where others have it
        nothing is done yet.
        """
        consensus = self._host.consensus
        member = consensus.members.get(RaftGroup(group))
        if member is not None and consensus.is_alone(member) and self.reader is not None:
            self.reader.fetch(RaftGroup(group), index, _nothing)

    def _is_known(self, key: tuple[RaftGroup, int]) -> bool:
        return key in self._expected or key in self._under_way or key in self._given_up

    def _end_soon(self, sentence: str, error: BaseException) -> None:
        """The disk has to know before the process ends: the next start does the rest."""
        self._doom = (sentence, error)
        self._host.consensus.healing.checkpoint_wanted()

    @property
    def is_doomed(self) -> bool:
        """The process ends once a checkpoint names the groups that are damaged."""
        return self._doom is not None

    def checkpointed(self) -> None:
        """A checkpoint is on disk."""
        doom = self._doom
        if doom is not None and self._journal.damaged <= self._journal.last_checkpoint.damaged:
            self._doom = None
            self._fatal(*doom)

    # --- Giving up --------------------------------------------------------------------------

    def expect(self, lost: Mapping[RaftGroup, Sequence[int]]) -> None:
        """A start has found these missing: whoever asks for one before `give_up_all` waits."""
        for group, indexes in lost.items():
            for index in indexes:
                self._expected[group, index] = self._journal.set_aside(group, index)

    async def give_up_all(self, lost: Mapping[RaftGroup, Sequence[int]]) -> None:
        """Give up these, however many they are, now that their groups are led here. Once that is in
        the log the segments may go in which the start has found something that does not read.
        """
        for group, indexes in lost.items():
            replica = self._host.consensus.members[group].replica
            places = await _places(replica.state, set(indexes))
            for index in indexes:
                await self._begin(replica, index, places.get(index, {}))
        self._journal.let_go()

    def _begin(
        self, replica: Replica, index: int, places: Mapping[QueueId, Ranges] | None
    ) -> asyncio.Task[None]:
        key = (replica.group, index)
        task = self._under_way.get(key)
        if task is None:
            task = self._loop.create_task(self._give_up(replica, index, places))
            self._under_way[key] = task
        return task

    async def _give_up(
        self, replica: Replica, index: int, places: Mapping[QueueId, Ranges] | None
    ) -> None:
        """`places`: where its messages stand, if that is known; None: one of too many is no more
        given up.
        """
        group = replica.group
        try:
            expected = self._expected.pop((group, index), None)
            aside = expected or self._journal.set_aside(group, index)
            try:
                if expected is not None:
                    await self._be_patient(expected)
                await self._run(aside.run)
            finally:
                self._journal.set_aside_done(aside)
            if aside.entry is None:
                is_new = (group, index) not in self._given_up
                if places is None and is_new and is_too_much(len(self.losses) + 1):
                    why = RecordDamaged(f"{len(self.losses)} entries were given up already")
                    self._fatal(f"entry {index} of group {group} could not be read", why)
                    return
                if places is None:
                    places = (await _places(replica.state, {index})).get(index, {})
                if is_new or places:
                    await self._carry_out(replica, index, places, aside)
        except OSError as error:
            self._fatal(f"entry {index} of group {group} could not be given up", error)
            return
        finally:
            self._under_way.pop((group, index), None)
        if self.reader is not None:
            self.reader.over(group, index)

    async def _be_patient(self, aside: AsideJob) -> None:
        """A start did not read it: as `Reader` does, which nobody has asked."""
        for pause in PAUSES_SECONDS:
            await self._run(aside.look)
            if aside.entry is not None or not aside.unread:
                return
            await asyncio.sleep(pause)

    async def _carry_out(
        self, replica: Replica, index: int, places: Mapping[QueueId, Ranges], aside: AsideJob
    ) -> None:
        key = replica.group, index
        loss = self.losses.get(*key)
        if loss is None:
            new = loss = self._described(replica.state, index, places, aside)
            await self._run(lambda: self.losses.write(new))
        applied: asyncio.Future[object] = self._loop.create_future()
        replica.propose(GiveUp(index, tuple(places)), _NO_IDENTITY, partial(_tell, applied))
        if not isinstance(await applied, tuple):
            return  # it leads no more: whoever leads next finds the same
        if key not in self._given_up:
            self._given_up.add(key)
            self.losses.add(loss)
        self._host.consensus.healing.checkpoint_wanted()

    async def _run(self, job: Job) -> None:
        """Have the thread do a job, again and again if there is no room for what it writes."""
        while True:
            ended: asyncio.Future[BaseException | None] = self._loop.create_future()
            self._runner.submit(job, partial(_tell, ended))
            error = await ended
            if error is None:
                return
            if not isinstance(error, OSError) or error.errno not in NO_SPACE:
                raise error
            await asyncio.sleep(RETRY_SECONDS)

    def _described(
        self, state: GroupState, index: int, places: Mapping[QueueId, Ranges], aside: AsideJob
    ) -> Loss:
        segment = aside.segment.number if aside.segment is not None else 0
        named = [
            LostMessages(
                state.topics[topic_of(queue)].tenant,
                state.topics[topic_of(queue)].name,
                queue,
                tuple(ranges),
                _uids(state, queue, index, aside),
            )
            for queue, ranges in places.items()
            if topic_of(queue) in state.topics
        ]
        retained = state.retained.messages if state.retained.slots_of(index) else {}
        return Loss(
            state.group,
            index,
            segment,
            aside.offset,
            aside.reason,
            self._clock.wall_ms(),
            tuple(named),
            tuple(key for key, each in retained.items() if each.index == index),
            sum(1 for _ in state.halves.of_entry(index)),
            sum(1 for each in state.outbox.values() if each.index == index),
        )


def _tell(future: asyncio.Future[_T], result: _T) -> None:
    """Whoever waits may have been stopped meanwhile."""
    if not future.done():
        future.set_result(result)


def _nothing() -> None:
    """Nobody waits for it."""


async def _places(state: GroupState, wanted: Collection[int]) -> Places:
    """Where the messages of these entries stand. Looked for in slices: no entry that is there
    already gets new messages meanwhile.
    """
    found: Places = {}
    for number, ident in enumerate(list(state.queues), start=1):
        if number % QUEUES_PER_TURN == 0:
            await asyncio.sleep(0)
        note_places(state, ident, wanted, found)
    return found


def _uids(state: GroupState, ident: QueueId, index: int, aside: AsideJob) -> tuple[str, ...]:
    """Of the messages of a queue in an entry whose bytes are not all right: as good as it gets."""
    queue = state.queues.peek(ident)
    content = aside.content
    if queue is None or not content:
        return ()
    found: list[str] = []
    try:
        bounds = entries.directory(content)
        if aside.is_unread(0, bounds[0]):
            return ()
        for slot, count, _first in queue.index.offsets_of(index):
            starts = bounds[slot : slot + count]
            whole = [start for start in starts if not aside.is_unread(start, UID_END)]
            found += [uid_at(content, start).hex() for start in whole]
    except struct.error:  # not even the directory is what was written
        return ()
    return tuple(found[:UIDS_MAX])
