"""A batch of messages on its way from one connection to the groups that store them.

`add` is the hottest function of the kernel: it only appends to columns. Per Raft group the batch
has one part: slots once, and runs that refer to them per queue.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Protocol, cast

from .broker.features import CLASSES, COPY, Feature, class_of, features_of
from .broker.machine import Placed
from .client import Destinations, PublishSink
from .destinations import Found, named
from .errors import Code, KernelError
from .ids import VOLATILE_GROUP, Offset, QueueId, RaftGroup, TopicId
from .message import (
    BODY_BYTES_MAX,
    HEADER,
    LENGTHS,
    LENGTHS_AT,
    PROPERTIES_BYTES_MAX,
    Flag,
)
from .model import QueueRef, TopicInfo
from .topic_room import Rooms
from .watches import LocalWatch

_PLAIN = bytes(28)
_KEY_FIELD = 12
_DEDUPLICATE = int(Flag.DEDUPLICATE)
_CLASS_FLAG_LEAST = int(Flag.CLASS_1)
SUBSCRIBER_CLIENT = 1 << 62
"""Client number of a subscriber's repeated batches is this plus its number."""

_RUN_SLOTS_MAX = 60_000
"""A run's count is a u16."""
_APART = int(Feature.DEDUPLICATE | Feature.KEY | Feature.DELAY) | COPY | CLASSES


class BatchHost(Protocol):
    """What a batch asks of its client."""

    uid_high: int
    next_uid: int

    room: Rooms


class Part:
    """What goes to one Raft group."""

    __slots__ = (
        "buffers",
        "group",
        "last_runs",
        "lengths",
        "positions",
        "retained",
        "runs",
        "size",
    )

    def __init__(self, group: RaftGroup) -> None:
        self.group = group
        self.runs: list[list[int]] = []
        """[queue, first slot, slots, features] runs; order matters only within a queue."""
        self.last_runs: dict[QueueId, list[int]] = {}
        """The last run of each queue that shares slots with others: a copy may join it."""
        self.lengths: list[int] = []
        self.buffers: list[bytes] = []
        self.positions: list[int] = []
        """Position in the batch of each slot."""
        self.retained: list[tuple[str, int]] = []
        """(tenant, slot) of the messages that are retained."""
        self.size = 0


class Batch:
    """`client.PublishBatch`."""

    __slots__ = (
        "_host",
        "_last",
        "_parts",
        "_results",
        "count",
        "failures",
        "identity",
        "live",
        "origin",
        "promised",
        "remaining",
        "sink",
        "size_bytes",
        "submitted_ms",
        "tag",
    )

    def __init__(self, host: BatchHost, sink: PublishSink, origin: int) -> None:
        self._host = host
        self._parts: dict[RaftGroup, Part] = {}
        self._last: Part | None = None
        self.sink = sink
        self.origin = origin
        self.tag: object = None
        self.count = 0
        self.size_bytes = 0
        self.failures: dict[int, KernelError] | None = None
        self._results: list[tuple[Part, list[Placed]]] = []
        self.remaining = 0
        self.submitted_ms = 0
        self.promised: dict[TopicId, tuple[int, int]] = {}
        """(messages, bytes) taken in limited topics."""
        self.identity: tuple[int, int, int] | None = None
        """(client, epoch, sequence) by which a repeat is known; None: it has no repeat."""
        self.live: list[tuple[int, Found, Sequence[bytes]]] = []
        """(position, destinations, parts) of messages for live routes."""

    @property
    def parts(self) -> Sequence[Part]:
        """What goes to each Raft group."""
        return list(self._parts.values())

    def uid(self) -> tuple[int, int]:
        """(high, low) of the next message's uid: a UUID of version 8, unique for ever."""
        host = self._host
        low = host.next_uid
        host.next_uid = low + 1
        return host.uid_high, low

    def uids(self, count: int) -> tuple[int, int]:
        """(high, low) of the first of so many uids in a row (see `client.PublishBatch.uids`)."""
        host = self._host
        low = host.next_uid
        host.next_uid = low + count
        return host.uid_high, low

    def once(self, number: int, sequence: int) -> None:
        """Store it once only (see `client.PublishBatch.once`)."""
        self.identity = (SUBSCRIBER_CLIENT | number, 1, sequence)

    def add(self, to: Destinations, parts: Sequence[bytes], size: int) -> None:
        """One message (see `client.PublishBatch.add`; hot)."""
        found: Found = to  # type: ignore[assignment]  # ours; a cast is a call
        position = self.count
        self.count = position + 1
        self.size_bytes += size
        header = parts[0]
        if size > found.small_bytes and self._is_too_large(found, header, position):
            return
        features = 0
        flags = header[3]
        if header[40:68] != _PLAIN or header[2] or flags & _DEDUPLICATE:
            features = features_of(header)
        elif flags >= _CLASS_FLAG_LEAST:
            features = class_of(flags)
        single = found.single
        if single is None:
            self._add_many(found, parts, size, position, features)
            return
        part = self._parts.get(single.group)
        if part is None:
            part = self._part(single.group)
        lengths = part.lengths
        slot = len(lengths)
        lengths.append(size)
        part.buffers += parts
        part.positions.append(position)
        part.size += size
        # `_grows` in line: a call would cost a tenth of this method.
        queue, runs = single.id, part.runs
        if runs:
            run = runs[-1]
            bits = run[3]
            if (
                run[0] == queue
                and run[1] + run[2] == slot < run[1] + _RUN_SLOTS_MAX
                and (bits == features or not (bits ^ features) & _APART)
            ):
                run[2] += 1
                run[3] = bits | features
                return
        runs.append([queue, slot, 1, features])

    def add_alike(
        self,
        to: Destinations,
        heads: Sequence[bytes],
        bodies: Sequence[bytes],
        sizes: Sequence[int],
    ) -> None:
        """Several messages (see `client.PublishBatch.add_alike`; hot): one look at where they go
        and at what they ask for, then columns behind columns.
        """
        found = cast("Found", to)
        single = found.single
        count = len(sizes)
        if single is None or max(sizes) > found.small_bytes or count > _RUN_SLOTS_MAX:
            for head, body, size in zip(heads, bodies, sizes, strict=True):
                self.add(to, (head, body), size)
            return
        position, total = self.count, sum(sizes)
        self.count = position + count
        self.size_bytes += total
        part = self._last
        if part is None or part.group != single.group:
            part = self._part(single.group)
        slot = len(part.lengths)
        part.lengths += sizes
        part.buffers += chain.from_iterable(zip(heads, bodies, strict=True))
        part.positions += range(position, position + count)
        part.size += total
        features, runs = features_of(heads[0]), part.runs
        if not runs or runs[-1][0] != single.id or not _grows(runs[-1], slot, count, features):
            runs.append([single.id, slot, count, features])

    def _is_too_large(self, to: Found, header: bytes, position: int) -> bool:
        """Whether nobody takes a message, which then has failed. A topic's own limit is for the
        body; among several topics each has its say in `_add_many`.
        """
        body, native, ext = LENGTHS.unpack_from(header, LENGTHS_AT)
        if native + ext > PROPERTIES_BYTES_MAX:
            what = f"properties of {native + ext} bytes; at most {PROPERTIES_BYTES_MAX}"
        elif body > BODY_BYTES_MAX:
            what = f"a body of {body} bytes; at most {BODY_BYTES_MAX}"
        elif to.single is not None and body > to.topics[0].options.message_bytes_max:
            what = _too_large_for(to.topics[0], body)
        else:
            return False
        self.fail(position, KernelError(Code.TOO_LARGE, what))
        return True

    def _part(self, group: RaftGroup) -> Part:
        part = self._parts.get(group)
        if part is None:
            part = self._parts[group] = Part(group)
        self._last = part
        return part

    def _add_many(
        self, to: Found, parts: Sequence[bytes], size: int, position: int, features: int
    ) -> None:
        """To any number of places: one slot per Raft group, one run place per queue. The first
        one counts the message as published.
        """
        if to.name is not None:
            before = size
            parts, size = named(parts, to.name)
            self.size_bytes += size - before
        bits = features
        for topic in to.topics:
            if size > topic.options.message_bytes_max:
                body: int = LENGTHS.unpack_from(parts[0], LENGTHS_AT)[0]
                if body > topic.options.message_bytes_max:
                    self.fail(position, KernelError(Code.TOO_LARGE, _too_large_for(topic, body)))
                    continue
            if to.limited:
                body_bytes: int = LENGTHS.unpack_from(parts[0], LENGTHS_AT)[0]
                if not self._host.room.take(topic, body_bytes):
                    self._host.room.refused(topic, parts)
                    self.fail(position, KernelError(Code.REJECTED, f"topic {topic.name} is full"))
                    continue
                count, promised = self.promised.get(topic.id, (0, 0))
                self.promised[topic.id] = (count + 1, promised + body_bytes)
            ref = topic.queues[0] if len(topic.queues) == 1 else _pick(to, topic, parts[0])
            part, slot = self._slot_in(ref.group, parts, size, position)
            _refer(part, ref, slot, bits)
            bits = features | COPY
        for ref in to.refs:
            part, slot = self._slot_in(ref.group, parts, size, position)
            _refer(part, ref, slot, bits)
            bits = features | COPY
        if to.retain_in is not None:
            part, slot = self._slot_in(to.retain_in, parts, size, position)
            part.retained.append((to.tenant, slot))
        if to.watches:
            self.live.append((position, to, parts))

    def _slot_in(
        self, group: RaftGroup, parts: Sequence[bytes], size: int, position: int
    ) -> tuple[Part, int]:
        """The part of a group, and the message's slot in it, put there if it is not yet."""
        part = self._last
        if part is None or part.group != group:
            part = self._part(group)
        if not part.positions or part.positions[-1] != position:
            part.lengths.append(size)
            part.buffers += parts
            part.positions.append(position)
            part.size += size
        return part, len(part.lengths) - 1

    def place(self, position: int) -> tuple[QueueId, Offset] | None:
        """Queue and offset of a message (see `client.PublishBatch.place`)."""
        for part, placed in self._results:
            positions = part.positions
            if part.group == VOLATILE_GROUP:
                continue
            if position < len(positions) and positions[position] == position:
                # So it is in a batch that goes to one Raft group as a whole.
                slot = position
            elif position in positions:
                slot = positions.index(position)
            else:
                continue
            for run, where in zip(part.runs, placed, strict=True):
                behind = slot - run[1]
                if 0 <= behind < run[2] and where != -1:
                    first = where[behind][0] if isinstance(where, list) else where + behind
                    return QueueId(run[0]), Offset(first)
        return None

    @property
    def duplicates(self) -> dict[int, bytes] | None:
        """Position to the original's uid (see `client.PublishBatch.duplicates`)."""
        found: dict[int, bytes] = {}
        for part, placed in self._results:
            for run, where in zip(part.runs, placed, strict=True):
                if isinstance(where, list):
                    for behind, (_offset, original) in enumerate(where):
                        if original:
                            found[part.positions[run[1] + behind]] = original
        return found or None

    def fail(self, position: int, error: KernelError) -> None:
        """Note a failure; the first one of a message stays."""
        if self.failures is None:
            self.failures = {}
        self.failures.setdefault(position, error)

    def fail_part(self, part: Part, error: KernelError) -> None:
        """Note a failure of every message of a part."""
        for position in part.positions:
            self.fail(position, error)

    def part_stored(self, part: Part, placed: object) -> None:
        """One group has stored its part: where."""
        self._results.append((part, cast("list[Placed]", placed)))

    def part_done(self, part: Part, complete: Callable[[Batch], None], result: object) -> None:
        """One group has applied its part. A queue that was deleted meanwhile counts as done."""
        placed = result[0] if isinstance(result, tuple) and result else result
        if isinstance(placed, KernelError):
            self.fail_part(part, placed)
        elif isinstance(placed, list):
            self.part_stored(part, placed)
        self.remaining -= 1
        if not self.remaining:
            complete(self)

    def hand_over(self) -> None:
        """Give the live routes what there is for them, but for what was refused elsewhere."""
        failures = self.failures or ()
        slots: dict[LocalWatch, list[bytes]] = {}
        for position, found, parts in self.live:
            if position in failures:
                continue
            slot = b"".join(parts)
            for watch in found.watches:
                slots.setdefault(watch, []).append(slot)
        self.live = []
        for watch, each in slots.items():
            if watch.sink is not None:
                watch.sink.published_live(watch, each)


def _refer(part: Part, ref: QueueRef, slot: int, features: int) -> None:
    """Add a slot to the runs of a queue."""
    run = part.last_runs.get(ref.id)
    if run is None or not _grows(run, slot, 1, features):
        run = part.last_runs[ref.id] = [ref.id, slot, 1, features]
        part.runs.append(run)


def _grows(run: list[int], slot: int, count: int, features: int) -> bool:
    """Add slots that lie side by side to a run, if they may join: they are the next ones, and the
    features may differ (it then has zeros for what it lacks), but not in whether they ask for
    deduplication, nor in how they are counted.
    """
    if run[1] + run[2] != slot or run[2] + count > _RUN_SLOTS_MAX or (run[3] ^ features) & _APART:
        return False
    run[2] += count
    run[3] |= features
    return True


def _too_large_for(topic: TopicInfo, body_bytes: int) -> str:
    most = topic.options.message_bytes_max
    return f"topic {topic.name}: a body of {body_bytes} bytes; at most {most} (message_bytes_max)"


def _pick(to: Found, topic: TopicInfo, header: bytes) -> QueueRef:
    """Queue of a topic with several: by ordering key, else in turn."""
    key: int = HEADER.unpack_from(header)[_KEY_FIELD]
    key = key or to.spread
    if not key:
        to.turn += 1
        key = to.turn
    return topic.queues[key % len(topic.queues)]
