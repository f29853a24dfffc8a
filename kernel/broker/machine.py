"""The state machine of one Raft group: applies entries in log order, the same way on every node.

Rules: apply is deterministic and never raises for anything a leader may have proposed; what cannot
be done becomes a result. No clock, randomness, hash order or disk is read here: time is the log
time that the entry carries. A batch of a client is applied once; a repeat of one that is still
remembered returns the stored result. A command that this build does not understand, or whose level
is not on where it stands, ends it: `NotUnderstood`, and the process with it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from itertools import pairwise

from ..api import message as messages
from ..api.client import LeaseVerb, Settlement
from ..api.message import HEADER_BYTES, UNIT_BYTES
from ..api.model import Reason, TopicKind
from ..api.origins import INTERNAL
from ..common.errors import Code, KernelError
from ..common.feature_levels import LATEST, REGISTER, STORED, spelled
from ..common.ids import TOPIC_IDS_PER_TERM, LogIndex, Offset, QueueId, topic_of
from ..common.limits import RESULTS_KEPT_PER_CLIENT
from ..log.errors import NotUnderstood
from ..log.format import entry as entries
from .applying.clients import ClientTable
from .applying.definitions import Definitions
from .applying.half_messages import HalfCommands
from .applying.lost_entries import LostEntries
from .applying.offsets import Offsets
from .applying.outbox import Outbox, has_own_reference
from .applying.resizes import Resizes, forget_before, known_before
from .applying.subscribers import Subscribers
from .applying.sweep import carry_out
from .group_state.deduplication import Recent
from .group_state.progress import GroupProgress
from .group_state.state import GroupState, QueueState, Section
from .group_state.stored import MESSAGES, SIZE
from .group_state.usage import measure_slots, units_between, units_of
from .index.features import CLASSES, COPY, CUT, LARGE, Feature, columns_of, each_of, features_of
from .index.sizes import is_sized
from .log_commands import commands
from .log_commands.commands import Command
from .log_commands.resize_commands import SEALED
from .observer import ACKED, ACKED_LATE, Observer, Retention, release, release_all
from .tracing import What, ranges_of

_ENQUEUE = int(Command.ENQUEUE)
_ACK = int(Command.ACK)
_VERSION = commands.VERSION
_FIRST_WITH_LEVEL = commands.FIRST_WITH_LEVEL
_SECOND_VERSIONS = commands.SECOND_VERSIONS

_STREAM = TopicKind.STREAM
_SIZE = int(Feature.SIZE)
_DEDUPLICATE = int(Feature.DEDUPLICATE)
_IN_PAGE = ~(COPY | LARGE | CLASSES)

OVER = 2
"""Result of a change that came too late, though nobody has got the message since."""

_ENDS = {
    LeaseVerb.ACK: Settlement.ACK,
    LeaseVerb.ACK_IN_TIME: Settlement.ACK,
    LeaseVerb.DEAD_LETTER: Settlement.DEAD_LETTER,
}
"""Changes by which the group is done with a message."""

_SETTLED = {
    Settlement.ACK: What.ACKED,
    Settlement.SKIP: What.SKIPPED,
    Settlement.RELEASE: What.RELEASED,
    Settlement.RETURN: What.RETURNED,
    Settlement.DEAD_LETTER: What.GIVEN_UP,
}
_CHANGED = {
    LeaseVerb.ACK: What.ACKED,
    LeaseVerb.ACK_IN_TIME: What.ACKED,
    LeaseVerb.DEAD_LETTER: What.GIVEN_UP,
    LeaseVerb.EXTEND: What.EXTENDED,
    LeaseVerb.RELEASE: What.RELEASED,
    LeaseVerb.RETURN: What.RETURNED,
}

Placed = int | list[tuple[int, bytes]]
"""Where a run went: its first offset (-1: the queue is gone; SEALED: it takes nothing new), or,
with deduplication or CUT, of each message its offset and, for a duplicate, the uid of the original.
"""


class Machine:
    """Applies entries to a `GroupState`."""

    def __init__(
        self,
        state: GroupState,
        retention: Retention,
        observer: Observer,
        understands: int = LATEST,
    ) -> None:
        """`understands`: the level up to which it does (a test's build may be older)."""
        self.state = state
        self._understands = understands
        self.opened = entries.NOTHING_OPENED
        """The entry that was applied last."""
        self._retention = retention
        self._observer = observer
        self._halves = HalfCommands(state, retention, observer)
        self._definitions = Definitions(state, retention, observer, self._halves.drop_queues)
        self._clients = ClientTable(state)
        self._outbox = Outbox(state, retention, observer)
        self._subscribers = Subscribers(state, retention, observer)
        self._control: dict[int, Callable[..., object]] = {
            **self._definitions.commands,
            **self._halves.commands,
            **self._subscribers.commands,
            **Offsets(state, retention, observer).commands,
            **Resizes(state, observer).commands,
            Command.LEADER_START: self._leader_start,
            Command.RAISE_LEVEL: self._raise_level,
            Command.PURGE: self._purge,
            Command.TRIM: self._trim,
            Command.SWEEP: self._sweep,
            Command.OUTBOX_DONE: self._outbox.done,
            Command.OUTBOX_AGAIN: self._outbox.again,
            Command.METERED: self._metered,
            Command.MOVE: self._outbox.move,
            Command.GUARD: self._guard,
            Command.GIVE_UP: LostEntries(state, retention, observer, self._halves).give_up,
        }

    def apply(self, index: LogIndex, term: int, body: bytes) -> list[object]:
        """Apply one entry; returns one result per batch: a tuple of its commands' results.

        Results: ENQUEUE a `Placed` of each run; LEASE the offsets leased; CHANGE whether each
        token was good; PREPARE the number of each half message; control commands what `commands`
        says, or a KernelError; the rest None. Raises NotUnderstood: the state is half of something
        then, and must not be used any more.
        """
        state = self.state
        state.applied = index
        state.term = term
        self.opened = entries.Opened(index, body)
        results: list[object] = []
        if not body:
            return results
        state.time_ms = max(state.time_ms, entries.base_time_ms(body))
        for batch in entries.batches(body):
            if batch.session == 0:
                results.append(self._run(index, batch, body))
                continue
            known = self._clients.results_of(batch.session, batch.epoch)
            if batch.sequence in known.results:
                results.append(known.results[batch.sequence])
                continue
            if batch.sequence <= known.floor:
                # Its result is forgotten, so nobody can say what it was; to carry it out once more
                # could store it twice.
                results.append((_forgotten(batch.sequence),))
                continue
            result = self._run(index, batch, body)
            known.results[batch.sequence] = result
            if len(known.results) > RESULTS_KEPT_PER_CLIENT:
                oldest, _ = known.results.popitem(last=False)
                known.floor = max(known.floor, oldest)
            results.append(result)
        return results

    def _run(self, index: LogIndex, batch: entries.EntryBatch, entry: bytes) -> tuple[object, ...]:
        results: list[object] = []
        origin = batch.origin
        for kind, version, body in batch.commands:
            if kind >= _FIRST_WITH_LEVEL or (
                version != _VERSION and version != _SECOND_VERSIONS.get(kind)
            ):
                self._check(kind, version)
            if kind == _ENQUEUE:
                results.append(self._enqueue(index, body, origin))
            elif kind == _ACK:
                self._acknowledge(body, origin)
                results.append(None)
            elif kind == Command.SETTLE:
                self._settle(body, origin)
                results.append(None)
            elif kind == Command.MARK:
                self._mark(body)
                results.append(None)
            elif kind == Command.LEASE:
                results.append(self._lease(index, version, body, origin))
            elif kind == Command.CHANGE:
                results.append(self._change(version, body, origin))
            elif kind == Command.RETAIN:
                self._subscribers.retain(index, body, entry, self.opened.bounds)
                results.append(None)
            elif kind == Command.PREPARE:
                results.append(self._halves.prepare(index, body, entry, origin))
            else:
                results.append(self._control_command(kind, body))
                if kind == Command.GUARD and results[-1]:
                    break
        return tuple(results)

    def _control_command(self, kind: int, body: bytes) -> object:
        try:
            decoded = commands.decode_control(kind, body)
        except ValueError as error:  # of an unknown type, or bytes that are none
            raise self._not_understood(f"a command of type {kind} does not read: {error}") from None
        return self._control[kind](decoded)

    def _check(self, kind: int, version: int) -> None:
        """Raise NotUnderstood for a command that must not be applied by this build, or here."""
        level = commands.LEVELS.get((kind, version))
        if level is None or level > self._understands:
            what = f"a command of type {kind}, version {version}, which this build does not know"
            raise self._not_understood(what)
        if level > self.state.feature_level:
            name = Command(kind).name
            what = (
                f"{name}, version {version}, which takes level {spelled(level)}: it is not on there"
            )
            raise self._not_understood(what)

    def _raise_level(self, command: commands.RaiseLevel) -> int:
        state, level = self.state, command.level
        if level > self._understands:
            raise self._not_understood(
                f"level {level} being turned on, and this build understands {self._understands}"
            )
        if level > state.feature_level:
            if state.feature_level < REGISTER and state.records:
                # What versions were removed before is below both. A log without a record never had
                # one: that of the number of groups is its first, and stays.
                versions = (version for version, _ in state.records.values())
                state.record_version = max(state.applied, *versions)
            state.feature_level = level
        return state.feature_level

    def _not_understood(self, what: str) -> NotUnderstood:
        state = self.state
        return NotUnderstood(
            f"entry {state.applied} of group {state.group} has {what}. A newer Weir has written "
            "it, or it is damaged: start a newer one, or see `weir doctor`"
        )

    def _changing(self, ident: QueueId) -> QueueState | None:
        """A queue that is about to be changed, if it is there."""
        if self.state.cut is not None:
            self.state.cut.save(Section.QUEUES, ident)
        return self.state.queues.get(ident)

    def _progressing(self, ident: QueueId, group: str) -> QueueState | None:
        """A queue of whose groups only one is about to get on ("": none), if it is there."""
        if self.state.cut is not None:
            self.state.cut.save_queue(ident, group)
        return self.state.queues.get(ident)

    # --- Messages ---------------------------------------------------------------------------

    def _enqueue(self, index: LogIndex, body: bytes, origin: int) -> list[Placed]:
        """Messages of any number of queues, each of them mostly with a single run (hot)."""
        state = self.state
        cut, ledger, time_ms = state.cut, state.ledger, state.time_ms
        queues, live, sealed = state.queues, state.queues.live, state.sealed
        opened, ends = self.opened, self.opened.ends
        stored, sized = state.stored, state.feature_level >= STORED
        tallies = stored.by_tenant
        placed: list[Placed] = []
        nobodys: dict[QueueState, int] = {}  # those without a group, and where they ended
        references = 0
        for ident, slot, count, features in commands.decode_enqueue(body):
            if cut is not None:
                cut.save_queue(ident, "")
            queue = live.get(ident) or queues.get(ident)
            if queue is None:  # removed since this was proposed
                placed.append(SEALED if state.takes_nothing(ident) else -1)
                continue
            if sealed and ident in sealed:
                placed.append(SEALED)
                continue
            options = queue.topic.definition.options
            trace = queue.topic.trace
            start = queue.index.tail if trace is not None else 0
            if not queue.groups and options.kind is not _STREAM:
                nobodys.setdefault(queue, queue.index.tail)
            if options.bytes_max is not None or options.retention_bytes is not None:
                features |= _SIZE  # noqa: PLW2901 - what the leader asked for, and this
            if features & _DEDUPLICATE and options.deduplication_ms:
                some = opened.bounds[slot : slot + count + 1]
                each = self._enqueue_new(queue, index, slot, features, some, origin)
                references += sum(1 for _, original in each if not original)
                placed.append(each)
            else:
                size = ends[slot + count] - ends[slot] - HEADER_BYTES * count
                if not features & _IN_PAGE:
                    first = queue.index.append(index, slot, count, time_ms, size if sized else 0)
                else:
                    starts = opened.bounds[slot : slot + count]
                    first = self._append(queue, index, slot, features, starts, size) if count else 0
                references += count
                placed.append(each_of(first, count) if features & CUT else first)
                tally = tallies.get(queue.topic.definition.tenant)
                if tally is None or stored.by_topic:
                    stored.came(queue.topic, count, size if sized else 0)
                else:
                    tally[MESSAGES] += count
                    if sized:
                        tally[SIZE] += size
                units = count
                if features & LARGE and size > UNIT_BYTES:
                    units = units_between(ends[slot : slot + count + 1])
                ledger.sent(queue.topic, index, origin, features, count, size, units)
            if queue.pending_acks is not None:
                queue.pending_acks.extend(queue.index.tail, len(queue.groups))
            if trace is not None:
                trace.stored(ident, queue.index, start, opened, time_ms, origin)
            self._observer.appended(queue)
        if references:
            self._retention.retain(state.group, index, references)
        for queue, start in nobodys.items():
            release_all(self._retention.release, state, queue, start, queue.index.tail)
        return placed

    def _append(
        self,
        queue: QueueState,
        index: int,
        slot: int,
        features: int,
        starts: Sequence[int],
        size: int,
    ) -> int:
        """Append messages with features, whose slots begin at `starts` within the entry; the offset
        of the first. Priorities above the topic's highest count as the highest.
        """
        columns = columns_of(features, self.opened.body, starts)
        time_ms = self.state.time_ms
        if self.state.feature_level < STORED:
            size = 0
        if not columns:
            return queue.index.append(index, slot, len(starts), time_ms, size)
        levels = columns.get(Feature.PRIORITY)
        if levels is not None:
            highest = queue.topic.options.priority_max
            columns[Feature.PRIORITY] = array("B", [min(each, highest) for each in levels])
        return queue.index.append_with(index, slot, len(starts), time_ms, columns, size)

    def _enqueue_new(
        self,
        queue: QueueState,
        index: int,
        slot: int,
        asked: int,
        bounds: Sequence[int],
        origin: int,
    ) -> list[tuple[int, bytes]]:
        """Append and count the slots whose deduplication id is new; (offset, uid of the original or
        empty) of each.
        """
        time_ms, entry = self.state.time_ms, self.opened.body
        recent = queue.recent
        if recent is None:
            recent = queue.recent = Recent()
        recent.drop_until(time_ms - (queue.topic.options.deduplication_ms or 0))
        placed: list[tuple[int, bytes]] = []
        for start, end in pairwise(bounds):
            message = messages.decode(entry[start:end])
            ident = message.ext.get(messages.Ext.DEDUPLICATION_ID, b"")
            known = recent.get(ident)
            if known is None and self.state.resized:
                known = known_before(self.state, queue, ident)
            if known is not None:
                placed.append((known[1], known[2]))
            else:
                features = features_of(entry[start : start + HEADER_BYTES])
                if is_sized(queue.topic.options):
                    features |= _SIZE
                size, units = end - start - HEADER_BYTES, units_of((end - start,))
                offset = self._append(queue, index, slot, features, (start,), size)
                recent.add((ident, offset, message.uid, time_ms))
                placed.append((offset, b""))
                is_sized_now = self.state.feature_level >= STORED
                self.state.stored.came(queue.topic, 1, size if is_sized_now else 0)
                self.state.ledger.sent(queue.topic, index, origin, asked, 1, size, units)
            slot += 1
        return placed

    def _lease(self, index: int, version: int, body: bytes, origin: int) -> list[int]:
        """Lease what is free of the offsets named; those it got. The lease is this entry."""
        ident, name, deadline_ms, ranges, size, units = commands.decode_lease(body)
        queue = self._progressing(ident, name)
        progress = queue.groups.get(name) if queue is not None else None
        if queue is None or progress is None:
            return []
        progress.used_ms = self.state.time_ms
        attempts_max = queue.topic.groups[name].attempts_max
        ends = version == commands.LEASE_ENDING
        leased: list[int] = []
        for first, count in ranges:
            for low, high in list(progress.free(first, min(first + count, queue.index.tail))):
                for offset in range(low, high):
                    progress.lease(offset, index, deadline_ms)
                    leased.append(offset)
                    if ends and not progress.is_last(offset, attempts_max):
                        progress.failed(offset)
                        progress.unlease(offset)
        got, asked = len(leased), sum(count for _, count in ranges)
        if got:
            # Less than was asked for only if a purge or an ack came in between: a share, rounded
            # down, but no message without a unit.
            size, units = size * got // asked, max(units * got // asked, got)
            self.state.ledger.leased(queue.topic, index, origin, name, got, size, units)
            if (trace := queue.topic.trace) is not None:
                own, time_ms = ranges_of(leased), self.state.time_ms
                trace.note(What.LEASED, time_ms, ident, name, origin, own, "", deadline_ms)
        return leased

    def _change(self, version: int, body: bytes, origin: int) -> list[int]:
        """Change timed leases; per change 1 if the token was good, OVER, else 0."""
        ident, name, changes = commands.decode_change(version, body)
        queue = self._progressing(ident, name)
        progress = queue.groups.get(name) if queue is not None else None
        if queue is None or progress is None:
            self._returned(ident, queue, name, origin, [each[5] for each in changes if each[5]])
            return [0] * len(changes)
        progress.used_ms = self.state.time_ms
        good: list[int] = []
        ended: list[tuple[int, int]] = []
        returned: list[int] = []
        for offset, lease, verb, reason, until_ms, slot_bytes in changes:
            late = _is_late(progress, offset, lease, verb)
            # What has reached nobody is not billed, whether or not the lease is still good.
            if slot_bytes and progress.take_back(offset, lease):
                returned.append(slot_bytes)
            if late is None:
                holder = progress.holder(offset)
                good.append(OVER if holder is not None and holder[0] == lease else 0)
                continue
            good.append(1)
            if verb is LeaseVerb.EXTEND:
                progress.lease(offset, lease, until_ms)
                ended.append((offset, until_ms))
                continue
            if verb in _ENDS:
                how = _ENDS[verb]
                self._finish(queue, name, progress, how, reason, [(offset, 1)], origin)
                ended.append((offset, ACKED_LATE if late else ACKED))
                continue
            if verb is LeaseVerb.RELEASE:  # was an attempt; what is returned has reached nobody
                progress.failed(offset)
            if until_ms > self.state.time_ms:
                progress.lease(offset, 0, until_ms)
                ended.append((offset, until_ms))
            else:
                progress.unlease(offset)
                ended.append((offset, 0))
        self._returned(ident, queue, name, origin, returned)
        if (trace := queue.topic.trace) is not None:
            for change, is_good in zip(changes, good, strict=True):
                offset, _, verb, reason, until_ms, _ = change
                if is_good == 1:
                    what = _CHANGED[verb]
                    given = reason.value if verb is LeaseVerb.DEAD_LETTER else ""
                    own, time_ms = [(offset, 1)], self.state.time_ms
                    trace.note(what, time_ms, ident, name, origin, own, given, max(0, until_ms))
        self._observer.changed(queue, name, ended)
        return good

    def _returned(
        self,
        ident: QueueId,
        queue: QueueState | None,
        name: str,
        origin: int,
        slot_sizes: Sequence[int],
    ) -> None:
        """Count leases of a queue, perhaps gone by now, that have reached nobody."""
        if not slot_sizes:
            return
        ledger, index = self.state.ledger, self.state.applied
        counts = len(slot_sizes), *measure_slots(slot_sizes)
        if queue is None:
            ledger.returned_of_gone(topic_of(ident), index, origin, name, *counts)
        else:
            ledger.returned(queue.topic, index, origin, name, *counts)

    def _guard(self, command: commands.Guard) -> list[int]:
        """Positions of the leases that are not good."""
        wrong: list[int] = []
        for position, (ident, name, offset, lease, verb) in enumerate(command.leases):
            queue = self.state.queues.get(ident)
            progress = queue.groups.get(name) if queue is not None else None
            if progress is None or _is_late(progress, offset, lease, LeaseVerb(verb)) is None:
                wrong.append(position)
        return wrong

    def _acknowledge(self, body: bytes, origin: int) -> None:
        """Acks of any number of queues: a log entry lets go of all of them at once (hot)."""
        name, ranges = commands.decode_ack(body)
        state = self.state
        cut, time_ms = state.cut, state.time_ms
        queues, live = state.queues, state.queues.live
        by_index: dict[int, int] = {}

        def let_go(_group: int, index: int, references: int) -> None:
            by_index[index] = by_index.get(index, 0) + references

        for ident, first, count in ranges:
            if cut is not None:
                cut.save_queue(ident, name)
            queue = live.get(ident) or queues.get(ident)
            progress = queue.groups.get(name) if queue is not None else None
            if queue is None or progress is None:
                continue
            progress.used_ms = time_ms
            topic = queue.topic.definition
            end = first + count
            if (
                first == progress.floor
                and not progress.pages
                and len(queue.groups) == 1
                and queue.pending_acks is None
                and topic.options.kind is not _STREAM
                and (size := queue.index.take_front(first, end, by_index)) >= 0
            ):
                # What nearly every ack is: of what is next, in the order of its coming, for nobody
                # else to wait for.
                progress.floor = end
                state.stored.left(queue.topic, count, size)
            else:
                fresh = progress.ack(first, min(end, queue.index.tail))
                release(let_go, state, queue, progress, fresh)
                count = sum([stop - start for start, stop in fresh])  # noqa: PLW2901
                queue.forget()
            ordered = topic.groups[name].ordered
            if count and origin != INTERNAL:
                state.ledger.acked(queue.topic, state.applied, origin, name, count, ordered=ordered)
            if queue.topic.trace is not None:
                own = [(first, end - first)]
                queue.topic.trace.note(What.ACKED, time_ms, ident, name, origin, own)
            if ordered:
                self._observer.settled(queue, name, [(first, end - first)])
        for index, references in by_index.items():
            self._retention.release(state.group, index, references)

    def _settle(self, body: bytes, origin: int) -> None:
        ident, name, how, reason, ranges = commands.decode_settle(body)
        queue = self._progressing(ident, name)
        progress = queue.groups.get(name) if queue is not None else None
        if queue is None or progress is None:
            return
        progress.used_ms = time_ms = self.state.time_ms
        if queue.topic.trace is not None:
            given = reason.value if how is Settlement.DEAD_LETTER else ""
            queue.topic.trace.note(_SETTLED[how], time_ms, ident, name, origin, ranges, given)
        if how is Settlement.RELEASE:
            for first, count in ranges:
                for offset in range(first, first + count):
                    if not progress.is_acked(offset):
                        progress.failed(offset)
            self._observer.released(queue, name, ranges)
            return
        self._finish(queue, name, progress, how, reason, ranges, origin)
        if queue.topic.groups[name].ordered:
            self._observer.settled(queue, name, ranges)

    def _finish(
        self,
        queue: QueueState,
        name: str,
        progress: GroupProgress,
        how: Settlement,
        reason: Reason,
        ranges: Sequence[tuple[int, int]],
        origin: int,
    ) -> None:
        """Ack (first offset, offsets) ranges, or send them to the outbox."""
        acked = moved = 0
        target = queue.topic.groups[name].dead_letter if how is Settlement.DEAD_LETTER else None
        for first, count in ranges:
            end = min(first + count, queue.index.tail)
            if target is not None:
                for start, stop in list(progress.unacked(first, end)):
                    self._outbox.put(queue, name, target, progress, start, stop, reason)
                fresh = progress.ack(first, end)
                moved += sum([stop - start for start, stop in fresh])
                if has_own_reference(queue):
                    release(self._retention.release, self.state, queue, progress, fresh)
            else:
                fresh = progress.ack(first, end)
                release(self._retention.release, self.state, queue, progress, fresh)
                acked += sum([stop - start for start, stop in fresh])
        if how is Settlement.DEAD_LETTER:
            self._observer.given_up(
                queue, name, reason, moved or acked, dead_lettered=target is not None
            )
        if reason is Reason.EXPIRED and how is Settlement.DEAD_LETTER:
            progress.expired += acked  # those that have nowhere to go
            self.state.expired += acked
        if acked and how is Settlement.ACK and origin != INTERNAL:
            ordered = queue.topic.groups[name].ordered
            self.state.ledger.acked(
                queue.topic, self.state.applied, origin, name, acked, ordered=ordered
            )
        queue.forget()

    def _mark(self, body: bytes) -> None:
        ident, name, level, offset = commands.decode_mark(body)
        queue = self._progressing(ident, name)
        progress = queue.groups.get(name) if queue is not None else None
        if queue is not None and progress is not None:
            progress.used_ms = self.state.time_ms
            if progress.set_mark(level, offset):
                self._observer.marked(queue, name)

    def _leader_start(self, command: commands.LeaderStart) -> None:
        self._subscribers.leader_started()
        self.state.next_topic += TOPIC_IDS_PER_TERM
        if command.clean:
            return
        for queue in self.state.queues.handed_out():
            self.state.changing(Section.QUEUES, queue.id)
            for progress in queue.groups.values():
                for level, mark in enumerate(progress.marks):
                    queue.fail_handed_out(progress, level, mark)

    def _purge(self, command: commands.Purge) -> int:
        queue = self._progressing(command.queue, command.group)
        progress = queue.groups.get(command.group) if queue is not None else None
        if queue is None or progress is None:
            return 0
        if command.forget:
            queue.recent = None
            forget_before(self.state, queue)
        dropped = 0
        start = progress.floor
        if queue.topic.trace is not None:
            own = [(start, min(command.end, queue.index.tail) - start)]
            place = command.queue, command.group
            queue.topic.trace.note(What.PURGED, self.state.time_ms, *place, INTERNAL, own)
        for stop in (*sorted(command.keep), min(command.end, queue.index.tail)):
            fresh = progress.ack(start, stop)
            dropped += sum(end - begin for begin, end in fresh)
            release(self._retention.release, self.state, queue, progress, fresh)
            start = max(start, stop + 1)
        queue.forget()
        self._observer.purged(queue, command.group)
        return dropped

    def _trim(self, command: commands.Trim) -> None:
        queue = self._changing(command.queue)
        if queue is None or queue.pending_acks is not None:
            return
        end = min(command.end, queue.index.tail)
        for start, stop in queue.needed_below(end):
            release_all(self._retention.release, self.state, queue, start, stop)
        if queue.topic.trace is not None:
            own, time_ms = [(queue.trimmed, end - queue.trimmed)], self.state.time_ms
            queue.topic.trace.note(What.TRIMMED, time_ms, queue.id, "", INTERNAL, own)
        queue.trimmed = Offset(max(queue.trimmed, end))
        for name, progress in queue.groups.items():
            lost = sum([stop - start for start, stop in progress.ack(progress.floor, end)])
            progress.expired += lost
            self.state.expired += lost
            self._observer.purged(queue, name)
        queue.forget()

    def _sweep(self, command: commands.Sweep) -> int:
        queue = self._progressing(command.queue, "")
        return 0 if queue is None else carry_out(queue, command)

    def _metered(self, command: commands.Metered) -> None:
        self.state.ledger.reported(command.index, self.state.topics)


def _is_late(progress: GroupProgress, offset: int, lease: int, verb: LeaseVerb) -> bool | None:
    """Whether a lease has run out before its change, if the change is still good; None: it is not.
    Who held a message last may ack it late, or have it dead-lettered.
    """
    holder = progress.holder(offset)
    if holder is None or holder[0] != lease:
        return None
    late = not holder[2]
    return None if late and verb not in (LeaseVerb.ACK, LeaseVerb.DEAD_LETTER) else late


def _forgotten(sequence: int) -> KernelError:
    return KernelError(
        Code.UNKNOWN_OUTCOME, f"batch {sequence} was executed, but its result is no longer kept"
    )
