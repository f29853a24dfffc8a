"""The leader of a Raft group in this process: `leader.Leader` over its replica.

Durability: what a batch came to is told from the apply of its entry, which is fdatasynced; answers
to questions change nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import msgspec

from ...api.model import TopicStatistics
from ...api.refusals import TOO_MANY_RETAINED
from ...broker.group_state.state import QueueState, TopicState
from ...broker.index.features import Feature, features_of
from ...broker.log_commands import commands
from ...broker.log_commands.commands import Command
from ...common.errors import Code, KernelError
from ...common.feature_levels import is_off
from ...common.ids import Offset, QueueId, RaftGroup, TopicId
from ...log.format import entry as entries
from ...requests.leader import Done, Identity, LeaseChanging, Together
from ...requests.publish_part import Part
from ..replicas.replica import Replica
from .first_tries import COME_SINCE, FirstTries
from .name_matching import Matching, NameMatches
from .needless import needless
from .topic_room import Limited, TopicRoom
from .transacting import Plan, is_refused, packed_changes, results_of


class HalfRoom(Protocol):
    """Keeps half messages from taking more than they may."""

    def refusal(self, topic: TopicState, size: int) -> KernelError | None:
        """Why there is no room for one more of so many bytes; None if there is."""

    def take(self, topic: TopicId, size: int, done: Done) -> Done:
        """It is on its way into the log; who is to hear of that."""

    def resolving(self, replica: Replica, command: commands.ResolveHalf, done: Done | None) -> Done:
        """A producer has decided on one; who is to hear what it came to."""


class LeaderHost(Protocol):
    """What a leader asks of the store it lives in."""

    names: NameMatches | None
    half_room: HalfRoom | None
    topic_room: TopicRoom

    def dirty(self, replica: Replica, *, urgent: bool) -> None:
        """The replica has something to propose."""

    def call_later(self, delay_ms: int, action: partial[None]) -> object:
        """Call `action` after so long."""

    def entry(self, group: RaftGroup, index: int) -> bytes | None:
        """A log entry, if it is in memory."""

    async def fetched(self, group: RaftGroup, index: int) -> None:
        """Return once a log entry that something refers to has been read into memory, or given
        up.
        """

    def is_given_up(self, group: RaftGroup, index: int) -> bool:
        """Whether nobody will ever read a log entry."""


class LocalLeader:
    """See `leader.Leader`."""

    __slots__ = ("_first_tries", "_host", "_replica", "group")

    def __init__(self, replica: Replica, host: LeaderHost) -> None:
        self.group = replica.group
        self._replica = replica
        self._host = host
        self.begin()

    def begin(self) -> None:
        """Another term begins here, or has ended: what was let in before is applied, or lost."""
        self._first_tries = FirstTries(self._replica.state, self._when_applied)

    # --- First tries ------------------------------------------------------------------------

    def is_new(self, identity: Identity) -> bool:
        """Whether a batch is newer than every one of its client that was let in."""
        return self._first_tries.is_new(identity)

    def _come_again(self, identity: Identity, done: Done, again: Callable[[], None]) -> None:
        """A batch is not new: `done` hears what its first try came to, or that it is refused once
        more; if it is new after all, `again` is called (see `first_tries`).
        """
        state, tries = self._replica.state, self._first_tries
        known = state.result_of(identity)
        if known is not None:
            self._host.call_later(0, partial(done, known))
            return
        look = tries.waits(identity)

        def applied(results: object) -> None:
            is_latest = tries.has_waited(identity, look)
            known = results if isinstance(results, KernelError) else state.result_of(identity)
            if known is not None:
                done(known)
            elif not is_latest:
                done(COME_SINCE)
            elif (refusal := tries.refusal(identity)) is not None:
                done((refusal,))
            elif tries.is_new_now(identity, look):
                again()
            else:
                self._come_again(identity, done, again)

        self._when_applied(applied)

    def _when_applied(self, action: Done) -> None:
        """Call `action` once everything let in so far is applied."""
        self._replica.open.wait(action)
        self._host.dirty(self._replica, urgent=True)

    # --- Batches ----------------------------------------------------------------------------

    def publish(self, identity: Identity, part: Part, done: Done, origin: int) -> None:
        """Put messages into the open entry, unless they have come before (hot)."""
        if not self._first_tries.is_new(identity):
            again = partial(self.publish, identity, part, done, origin)
            self._come_again(identity, done, again)
            return
        replica = self._replica
        listed: tuple[list[int], ...] = ()
        if part.routed and self._host.names is not None:
            matching = Matching(self._host.names, self.group, part)
            part, listed = matching.part, (matching.counts,)
            if not part.runs and not part.retained:
                self._host.call_later(0, partial(done, ([], *listed)))
                return
        if replica.limits.topics or self._host.topic_room.stored.is_any:
            batch = Limited(part)
            done = self._host.topic_room.limit(replica, identity, batch, done)
            if batch.is_empty and not (batch.has_dead_letters and identity[0]):
                self._host.call_later(0, partial(done, ([[] for _ in part.runs], *listed)))
                return
            part = batch.part
        self._first_tries.let_in(identity)
        replica.open.add_publish(identity, part, done, origin, *listed)
        self._host.dirty(replica, urgent=True)

    def transact(self, identity: Identity, what: Together, done: Done, origin: int) -> None:
        """Put a transaction into the open entry (see `transacting`), unless it has come before."""

        def heard(results: object) -> None:
            done(results_of(what, results))

        if not self._first_tries.is_new(identity):
            again = partial(self.transact, identity, what, done, origin)
            self._come_again(identity, heard, again)
            return
        replica = self._replica
        part, counts = what.part, None
        try:
            if part.routed and self._host.names is not None:
                matching = Matching(self._host.names, self.group, part)
                if matching.refuses:
                    raise TOO_MANY_RETAINED
                part, counts = matching.part, matching.counts
            plan = Plan(replica, what)
            own = plan.commands(part, counts)
            tell = self._host.topic_room.limit_whole(replica, what.part, heard)
        except KernelError as error:
            self._host.call_later(0, partial(done, _result(error)))
            return

        def applied(results: object) -> None:
            if not is_refused(results_of(what, results)):
                plan.applied()
                self._host.call_later(0, partial(plan.pump))
            tell(results)

        self._first_tries.let_in(identity)
        replica.open.add_slots(identity, own, part.lengths, part.buffers, applied, origin)
        self._host.dirty(replica, urgent=True)

    def prepare(
        self,
        identity: Identity,
        producers: str,
        queue: QueueId,
        parts: Sequence[bytes],
        done: Done,
    ) -> None:
        """Put a half message into the open entry, if there is room for it, unless it has come
        before.
        """
        if not self._first_tries.is_new(identity):
            again = partial(self.prepare, identity, producers, queue, parts, done)
            self._come_again(identity, done, again)
            return
        replica = self._replica
        state = replica.state.queues.get(queue)
        if state is None:
            self._host.call_later(0, partial(done, ([0],)))
            return
        size = sum(map(len, parts))
        full = self._host.topic_room.stored.refusal(replica.state, state.topic, size)
        if full is not None:
            self._host.call_later(0, partial(done, (full,)))
            return
        if self._host.half_room is not None:
            refusal = self._host.half_room.refusal(state.topic, size)
            if refusal is not None:
                self._host.call_later(0, partial(done, (refusal,)))
                return
            done = self._host.half_room.take(state.topic.id, size, done)
        body = commands.encode_prepare(producers, [(queue, 0, 1, features_of(parts[0]))])
        own = [(int(Command.PREPARE), commands.VERSION, body)]
        self._first_tries.let_in(identity)
        replica.open.add_slots(identity, own, [size], parts, done, parts[0][1])
        self._host.dirty(replica, urgent=True)

    def propose(self, change: commands.Control, identity: Identity, done: Done | None) -> None:
        """Put an administrative command into the open entry, unless it would change nothing, or its
        level is not on here.
        """
        replica = self._replica
        if (level := commands.CONTROL_LEVELS.get(type(change), 0)) > replica.state.feature_level:
            if done is not None:
                self._host.call_later(0, partial(done, (is_off(level),)))
            return
        now_ms = replica.log_time_ms()
        if replica.serving and (known := needless(replica.state, change, now_ms)) is not None:
            if done is not None:
                self._host.call_later(0, partial(done, (known,)))
            return
        if isinstance(change, commands.ResolveHalf) and self._host.half_room is not None:
            done = self._host.half_room.resolving(replica, change, done)
        if isinstance(change, commands.Seek) and replica.is_consumed(change.queue, change.group):
            error = KernelError(Code.IN_USE, f"group {change.group} has consumers")
            if done is not None:
                self._host.call_later(0, partial(done, (error,)))
            return
        if isinstance(change, commands.Purge) and not change.forget:
            change = self._keeping(change)
        replica.propose(change, identity, done)

    def _keeping(self, purge: commands.Purge) -> commands.Purge:
        """A purge that leaves what somebody holds now: who asks for it cannot know."""
        with contextlib.suppress(KernelError):
            held = self._replica.dispatcher(purge.queue, purge.group).holds()
            keep = tuple(Offset(each) for each in held if each < purge.end)
            return msgspec.structs.replace(purge, keep=keep)
        return purge  # there is no such queue: it changes nothing

    def propose_all(
        self, changes: Sequence[commands.Control], identity: Identity, done: Done
    ) -> None:
        """Put several into the open entry, as one batch; none of them if a level is not on here."""
        level = max(commands.CONTROL_LEVELS.get(type(each), 0) for each in changes)
        if level > self._replica.state.feature_level:
            self._host.call_later(0, partial(done, (is_off(level),) * len(changes)))
            return
        self._replica.propose_all(changes, identity, done)

    def change_leases(
        self,
        queue: QueueId,
        group: str,
        changes: Sequence[LeaseChanging],
        identity: Identity,
        done: Done,
        origin: int,
    ) -> None:
        """Put changes of timed leases into the open entry, with times of the log."""
        try:
            packed = packed_changes(self._replica, queue, group, changes)
        except KernelError as error:
            self._host.call_later(0, partial(done, _result(error)))
            return
        self._replica.change(queue, group, packed, identity, done, origin)

    def purge(
        self, queue: QueueId, group: str, identity: Identity, done: Done, *, in_flight: bool
    ) -> None:
        """Drop what a group has not acked (see `leader.Leader.purge`)."""
        try:
            dispatcher = self._replica.dispatcher(queue, group)
        except KernelError as error:
            self._host.call_later(0, partial(done, _result(error)))
            return
        tail = Offset(dispatcher.queue.index.tail)
        self.propose(commands.Purge(queue, group, tail, (), in_flight), identity, done)

    # --- Questions --------------------------------------------------------------------------

    async def figures(
        self, queue: QueueId, group: str, offset: Offset | None = None
    ) -> TopicStatistics:
        """Figures of one queue and group."""
        dispatcher = self._replica.dispatcher(queue, group)
        return TopicStatistics(
            ready=dispatcher.ready_count,
            leased=dispatcher.leased_count,
            delayed=dispatcher.delayed_count,
            oldest_ms=dispatcher.oldest_ms(),
            consumers=dispatcher.consumer_count,
            filtered=dispatcher.filtering.count,
            expired=dispatcher.queue.groups[group].expired,
            position=dispatcher.queue.groups[group].floor,
            message=None if offset is None else dispatcher.standing(offset),
        )

    async def span(self, queue: QueueId) -> tuple[int, int]:
        """Offsets that a queue has."""
        state = self._shown(queue)
        return max(state.index.head, state.trimmed), state.index.tail

    async def offset_since(self, queue: QueueId, time_ms: int) -> Offset:
        """First kept offset stored at or after a log time."""
        state = self._shown(queue)
        index = state.index
        return Offset(max(index.first_since(time_ms), index.head, state.trimmed))

    async def peek(
        self, queue: QueueId, offset: Offset, messages: int
    ) -> Sequence[tuple[Offset, bytes]]:
        """Messages of a queue from an offset on."""
        group = self.group
        state = self._state(queue)
        found: list[tuple[Offset, bytes]] = []
        index = state.index
        at = max(int(offset), index.head)
        while len(found) < messages and index.head <= at < index.tail:
            run = index.find(at)
            if run.features & Feature.HOLE:
                at = run.end
                continue
            count = min(run.end - at, messages - len(found))
            entry = self._host.entry(group, run.index)
            if entry is None and self._host.is_given_up(group, run.index):
                at += count
                continue
            if entry is None and not state.is_needed(at):
                at += 1
                continue
            if entry is None:
                await self._host.fetched(group, run.index)
                at = max(at, index.head)
                continue
            slots = entries.slots(entry, run.slot, count)
            recalled = state.recalled
            found += [
                (Offset(at + i), slot)
                for i, slot in enumerate(slots)
                if slot and at + i not in recalled
            ]
            at += count
        return found

    def _state(self, queue: QueueId) -> QueueState:
        return _found(self._replica.state.queues.get(queue))

    def _shown(self, queue: QueueId) -> QueueState:
        """A queue to be looked at in this turn, left packed if it is."""
        return _found(self._replica.state.queues.peek(queue))


def _found(state: QueueState | None) -> QueueState:
    if state is None:
        raise KernelError(Code.NOT_FOUND, "the topic was deleted")
    return state


def _result(error: KernelError) -> object:
    """What a command comes to that was not proposed: who does not lead has done nothing at all."""
    return error if error.code is Code.NOT_LEADER else (error,)
