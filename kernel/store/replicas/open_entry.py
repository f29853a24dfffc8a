"""The entry of a group that is being filled: client batches, slots, settlements on their way.

What many connections bring between two syncs becomes one entry (docs/design/storage.md#write).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ...api.client import Settlement
from ...api.model import Reason
from ...api.origins import INTERNAL
from ...broker.group_state.usage import measure_slots
from ...broker.log_commands import commands
from ...broker.log_commands.tree_commands import Listed, encode_retain
from ...common.errors import KernelError
from ...common.ids import QueueId
from ...common.limits import BATCH_COMMANDS_MAX, ENTRY_BATCHES_MAX, ENTRY_BYTES_MAX, ENTRY_SLOTS_MAX
from ...log.format import entry as entries
from ...requests.publish_part import Part

_ACK = int(commands.Command.ACK)
_PACK_ACK = commands.ACK_RANGE.pack

Completion = Callable[[object], None]
"""Called with the result of a batch (see `machine.Machine.apply`) once it is applied."""


class Filled:
    """A closed entry body and who waits for its batches, one each."""

    __slots__ = ("body", "has_messages", "waiting")

    def __init__(self, body: bytes, waiting: list[Completion | None], has_messages: bool) -> None:
        self.body = body
        self.waiting = waiting
        """Empty if everything was withdrawn: then there is nothing to propose."""
        self.has_messages = has_messages

    def withdraw(self, refusal: KernelError) -> int:
        """Take the batches with messages out, answering each with `refusal`; their number. What
        is left refers to no message of this entry, so that it stays valid.
        """
        if not self.has_messages:
            return 0
        kept: list[bytes] = []
        waiting, self.waiting = self.waiting, []
        refused: list[Completion | None] = []
        for batch, done in zip(entries.batches(self.body), waiting, strict=True):
            if any(kind in commands.WITH_MESSAGES for kind, _, _ in batch.commands):
                refused.append(done)
            else:
                kept.append(entries.encode_batch(batch))
                self.waiting.append(done)
        self.body = entries.build(entries.base_time_ms(self.body), kept, (), ())
        self.has_messages = False
        for each in refused:
            if each is not None:
                each((refusal,))
        return len(refused)


class OpenEntry:
    """Fills entries of one group, closing each at ENTRY_BYTES_MAX or ENTRY_SLOTS_MAX."""

    def __init__(self) -> None:
        self._closed: list[tuple[list[bytes], list[int], list[bytes], list[Completion | None]]] = []
        self._batches: list[bytes] = []
        self._lengths: list[int] = []
        self._parts: list[bytes] = []
        self._waiting: list[Completion | None] = []
        self._bytes = 0
        self.bytes = 0
        """Of the messages that wait for `take`."""
        self._settled: dict[tuple[int, QueueId, str, Settlement, Reason], list[int]] = {}
        self._acked: dict[tuple[int, str], dict[QueueId, list[int]]] = {}
        """Offsets by (origin, group) and queue."""
        self.settled_count = 0

    @property
    def empty(self) -> bool:
        """Nothing to propose, not even settlements."""
        return not (self._batches or self._settled or self._acked or self._closed)

    def add_publish(
        self,
        identity: tuple[int, int, int],
        part: Part,
        done: Completion,
        origin: int,
        listed: Sequence[int] | None = None,
    ) -> None:
        """A client's messages, as they are stored: (session, epoch, sequence) and who asked; how
        many lists each of their names has brought, for the batch's last result.
        """
        lengths, size = part.lengths, part.size_bytes
        if self._batches and (
            self._bytes + size > ENTRY_BYTES_MAX
            or len(self._lengths) + len(lengths) > ENTRY_SLOTS_MAX
            or len(self._batches) >= ENTRY_BATCHES_MAX
        ):
            self._close()
        base = len(self._lengths)
        self._lengths += lengths
        self._parts += part.buffers
        body = commands.encode_enqueue(part.runs, base)
        own = [(int(commands.Command.ENQUEUE), commands.VERSION, body)]
        if part.retained:
            own += retain_commands(part.retained, base)
        if listed is not None:
            own.append(commands.encode_control(Listed(tuple(listed))))
        batch = entries.EntryBatch(*identity, own, origin)
        self._batches.append(entries.encode_batch(batch))
        self._waiting.append(done)
        self._bytes += size
        self.bytes += size

    def add_slots(
        self,
        identity: tuple[int, int, int],
        own: Sequence[commands.Packed],
        lengths: Sequence[int],
        parts: Sequence[bytes],
        done: Completion,
        origin: int,
    ) -> None:
        """A client's commands over slots of their own, numbered from 0. Behind the settlements that
        came before it.
        """
        self._close_settled()
        size = sum(lengths)
        if self._batches and (
            self._bytes + size > ENTRY_BYTES_MAX
            or len(self._lengths) + len(lengths) > ENTRY_SLOTS_MAX
            or len(self._batches) >= ENTRY_BATCHES_MAX
        ):
            self._close()
        base = len(self._lengths)
        own = [commands.shifted(each, base) for each in own]
        self._lengths += lengths
        self._parts += parts
        self._batches.append(entries.encode_batch(entries.EntryBatch(*identity, own, origin)))
        self._waiting.append(done)
        self._bytes += size
        self.bytes += size

    def add_controls(
        self,
        changes: Sequence[commands.Control],
        identity: tuple[int, int, int],
        done: Completion | None,
    ) -> None:
        """Administrative commands, as one batch: behind the settlements that came before it."""
        self._close_settled()
        self._room()
        batch = entries.EntryBatch(*identity, [commands.encode_control(each) for each in changes])
        self._batches.append(entries.encode_batch(batch))
        self._waiting.append(done)

    def add_lease(
        self,
        queue: QueueId,
        group: str,
        deadline_ms: int,
        offsets: Sequence[int],
        slot_sizes: Sequence[int],
        done: Completion,
        who: tuple[int, int],
        *,
        ends: bool = False,
    ) -> None:
        """Timed leases, of messages with slots of these sizes; (origin, note) of who asked. A batch
        without a client has no sequence that would mean anything: the note stands there.
        """
        ranges = ranges_of(list(offsets))
        size, units = measure_slots(slot_sizes)
        body = commands.encode_lease(queue, group, deadline_ms, ranges, size, units)
        origin, note = who
        version = commands.LEASE_ENDING if ends else commands.VERSION
        own = ((int(commands.Command.LEASE), version, body),)
        self._room()
        self._batches.append(entries.encode_batch(entries.EntryBatch(0, 0, note, own, origin)))
        self._waiting.append(done)

    def add_changes(
        self,
        identity: tuple[int, int, int],
        queue: QueueId,
        group: str,
        changes: Sequence[commands.Change],
        done: Completion | None,
        origin: int,
    ) -> None:
        """Changes of timed leases."""
        self._room()
        own = (commands.encode_change(queue, group, changes),)
        self._batches.append(entries.encode_batch(entries.EntryBatch(*identity, own, origin)))
        self._waiting.append(done)

    def add_mark(self, queue: QueueId, group: str, level: int, offset: int) -> None:
        """A dispatch mark."""
        body = commands.encode_mark(queue, group, level, offset)
        self._room()
        own = ((int(commands.Command.MARK), commands.VERSION, body),)
        self._batches.append(entries.encode_batch(entries.EntryBatch(0, 0, 0, own, INTERNAL)))
        self._waiting.append(None)

    def add_settled(
        self,
        queue: QueueId,
        group: str,
        how: Settlement,
        reason: Reason,
        offsets: Sequence[int],
        origin: int,
    ) -> None:
        """Settlements, merged with others of their kind until the entry closes (hot)."""
        key = (origin, queue, group, how, reason)
        known = self._settled.get(key)
        if known is None:
            self._settled[key] = list(offsets)
        else:
            known += offsets
        self.settled_count += len(offsets)

    def add_acked(self, queue: QueueId, group: str, offsets: list[int], origin: int) -> None:
        """Acks, merged with others of their group until the entry closes (hot). The list becomes
        the entry's.
        """
        by_queue = self._acked.get((origin, group))
        if by_queue is None:
            by_queue = self._acked[origin, group] = {}
        known = by_queue.get(queue)
        if known is None:
            by_queue[queue] = offsets
        else:
            known += offsets
        self.settled_count += len(offsets)

    def wait(self, done: Completion) -> None:
        """Call `done` once everything added so far is applied."""
        self._close_settled()
        self._room()
        batch = entries.EntryBatch(0, 0, 0, ())
        self._batches.append(entries.encode_batch(batch))
        self._waiting.append(done)

    def _room(self) -> None:
        """Close the entry if it holds as many batches as it may."""
        if len(self._batches) >= ENTRY_BATCHES_MAX:
            self._close()

    def _close_settled(self) -> None:
        if not self._settled and not self._acked:
            return
        by_origin: dict[int, list[tuple[int, int, bytes]]] = {}
        for (origin, group), by_queue in self._acked.items():
            command = (_ACK, commands.VERSION, encode_acks(group, by_queue))
            by_origin.setdefault(origin, []).append(command)
        for (origin, queue, group, how, reason), offsets in self._settled.items():
            body = commands.encode_settle(queue, group, how, reason, ranges_of(offsets))
            command = (int(commands.Command.SETTLE), commands.VERSION, body)
            by_origin.setdefault(origin, []).append(command)
        self._settled = {}
        self._acked = {}
        self.settled_count = 0
        for origin, own in by_origin.items():
            for at in range(0, len(own), BATCH_COMMANDS_MAX):
                batch = entries.EntryBatch(0, 0, 0, own[at : at + BATCH_COMMANDS_MAX], origin)
                self._batches.append(entries.encode_batch(batch))
                self._waiting.append(None)

    def _close(self) -> None:
        self._close_settled()
        self._closed.append((self._batches, self._lengths, self._parts, self._waiting))
        self._batches, self._lengths, self._parts, self._waiting = [], [], [], []
        self._bytes = 0

    def abandon(self) -> list[Completion | None]:
        """Forget everything; who waits for it."""
        self._close()
        closed, self._closed = self._closed, []
        self.bytes = 0
        return [done for _, _, _, waiting in closed for done in waiting]

    def take(self, time_ms: int) -> list[Filled]:
        """Close everything, stamped with log time; the entry is empty again."""
        if self._batches or self._settled or self._acked:
            self._close()
        closed, self._closed = self._closed, []
        self.bytes = 0
        return [
            Filled(entries.build(time_ms, batches, lengths, parts), waiting, bool(lengths))
            for batches, lengths, parts, waiting in closed
        ]


def retain_commands(retained: Sequence[tuple[str, int]], base: int = 0) -> list[commands.Packed]:
    """RETAIN commands for (tenant, slot) pairs whose slots begin at `base`."""
    slots: dict[str, list[int]] = {}
    for tenant, slot in retained:
        slots.setdefault(tenant, []).append(base + slot)
    return [
        (int(commands.Command.RETAIN), commands.VERSION, encode_retain(tenant, each))
        for tenant, each in slots.items()
    ]


def encode_acks(group: str, by_queue: Mapping[QueueId, list[int]]) -> bytes:
    """ACK of a group's acks (whose lists it may sort)."""
    ranges: list[bytes] = []
    for queue, offsets in by_queue.items():
        count = len(offsets)
        if count == 1 or (count == 2 and offsets[1] == offsets[0] + 1):
            ranges.append(_PACK_ACK(queue, offsets[0], count))
        else:
            ranges += [_PACK_ACK(queue, first, count) for first, count in ranges_of(offsets)]
    return commands.encode_ack(group, ranges)


def ranges_of(offsets: list[int]) -> list[tuple[int, int]]:
    """Ascending (first, count) ranges of some offsets (which it may sort)."""
    count = len(offsets)
    if offsets[-1] - offsets[0] + 1 == count and (count < 3 or _rising(offsets)):
        return [(offsets[0], count)]
    offsets.sort()
    ranges: list[tuple[int, int]] = []
    first = previous = offsets[0]
    for offset in offsets[1:]:
        if offset != previous + 1:
            ranges.append((first, previous - first + 1))
            first = offset
        previous = offset
    ranges.append((first, previous - first + 1))
    return ranges


def _rising(offsets: list[int]) -> bool:
    """Whether the offsets are exactly first, first + 1, ..."""
    return offsets == list(range(offsets[0], offsets[0] + len(offsets)))
