"""A batch of messages on its way from one connection to the groups that store them.

`add` is the hottest function of the kernel. Messages that go one after the other to the same place
and ask for the same make a stretch, two columns that grow; it becomes slots and a run when it ends.
Per Raft group the batch has one part: slots once, and runs that refer to them per queue.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Protocol, cast

from ..api.client import Destinations, PublishSink
from ..api.message import (
    BODY_BYTES_MAX,
    HEADER,
    HEADER_BYTES,
    LENGTHS,
    LENGTHS_AT,
    PROPERTIES_BYTES_MAX,
    SLOT_BYTES_SMALL,
)
from ..api.model import QueueRef, TopicInfo
from ..api.refusals import FULL, TOO_MANY_RETAINED, too_large_for
from ..api.tracing import ConnectedUser
from ..broker.index.features import COPY, LARGE, Feature, features_of
from ..broker.log_commands.resize_commands import SEALED
from ..broker.machine import Placed
from ..common.errors import Code, KernelError
from ..common.ids import MEMORY_FIRST, Offset, QueueId, RaftGroup, TopicId, topic_of
from ..routing.destinations import Forwarder, Found, named
from ..routing.watches import LocalWatch
from .publish_part import RUN_SLOTS_MAX, BatchPart, grows, refer

_DEDUPLICATE = int(Feature.DEDUPLICATE)

KEY_FIELD = 12
"""Place of the ordering key's hash in a header."""
SUBSCRIBER_CLIENT = 1 << 62
"""Client number of a subscriber's repeated batches is this plus its number."""

AGAIN_CLIENT = 1 << 57
"""Added to it for what is sent again, up to 31 times: subscribers' numbers have 56 bits."""

_AGAIN_BITS = SUBSCRIBER_CLIENT - AGAIN_CLIENT

TWO_IDENTITIES = KernelError(
    Code.INVALID_ARGUMENT,
    "a message of a batch that is stored once only has a deduplication id: one of them says what "
    "is a repeat",
)

_NOTHING_REFUSED: Sequence[tuple[BatchPart, list[int]]] = ()

_EVERYBODY: Mapping[int, int] = {}
"""Shared by batches whose messages have all got somewhere; never changed."""


class BatchHost(Protocol):
    """What a batch asks of its client."""

    uid_high: int
    next_uid: int


class ProducerBatch:
    """Collects messages by the Raft group that stores them (`client.PublishBatch`)."""

    __slots__ = (
        "_asks",
        "_count",
        "_features",
        "_host",
        "_last",
        "_parts",
        "_run",
        "_sent_parts",
        "_size_bytes",
        "_sizes",
        "_stretch",
        "_to",
        "by",
        "failures",
        "identity",
        "live",
        "origin",
        "refused",
        "refuses_when_full",
        "remaining",
        "results",
        "sink",
        "speakers",
        "submitted_ms",
        "tag",
        "unheard",
        "unlisted",
    )

    def __init__(
        self, host: BatchHost, sink: PublishSink, origin: int, by: ConnectedUser | None = None
    ) -> None:
        self._host = host
        self._parts: dict[RaftGroup, BatchPart] = {}
        self._last: BatchPart | None = None
        self._to: Found | None = None
        """Where a stretch goes that the message before began or continued."""
        self._run: list[int] = []
        """The last run of `_last`, which the stretch lengthens."""
        self._stretch: list[Sequence[bytes]] = []
        self._sizes: list[int] = []
        """Parts and size of each message of the stretch but the first."""
        self._asks: object = None
        self._features = 0
        """Features of the messages that came with `_asks`."""
        self._count = 0
        self._size_bytes = 0
        """What is in the parts, without the stretch."""
        self.sink = sink
        self.origin = origin
        self.tag: object = None
        self.refuses_when_full = True
        self.failures: dict[int, KernelError] | None = None
        self.results: list[tuple[BatchPart, list[Placed]]] = []
        """Where each part that is stored has been put, run by run."""
        self.by = by
        self.speakers: list[tuple[int, ConnectedUser | None]] | None = None
        """(position, who has added it and those behind it), rising; before the first: `by`. None:
        it is all of its session.
        """
        self.remaining = 0
        self.refused = _NOTHING_REFUSED
        """Runs to queues that take nothing new (`cut_over`): nowhere yet."""
        self._sent_parts: Sequence[BatchPart] = ()
        """What was sent last, if that is not `_parts`."""
        self.submitted_ms = 0
        self.identity: tuple[int, int, int] | None = None
        """(client, epoch, sequence) by which a repeat is known; None: it has no repeat."""
        self.unlisted: list[int] = []
        """Positions of messages with a tree name that has brought no reference list."""
        self.unheard = _EVERYBODY
        """Of those, the ones that nothing else gets: (position, bytes)."""
        self.live: list[tuple[int, Found, Sequence[bytes]]] = []
        """(position, destinations, parts) of messages for live routes."""

    @property
    def count(self) -> int:
        """Messages added."""
        return self._count + len(self._sizes)

    @property
    def size_bytes(self) -> int:
        """Their bytes."""
        return self._size_bytes + sum(self._sizes)

    def by_topic(self) -> dict[TopicId, tuple[int, int]]:
        """Messages and bytes for each topic (see `client.PublishBatch.by_topic`)."""
        self._end_stretch()
        found: dict[TopicId, tuple[int, int]] = {}
        for part in self._parts.values():
            for queue, slot, count, _ in part.runs:
                topic = topic_of(QueueId(queue))
                messages, size = found.get(topic, (0, 0))
                size += sum(part.lengths[slot : slot + count]) - count * HEADER_BYTES
                found[topic] = messages + count, size
        return found

    def close(self) -> Sequence[BatchPart]:
        """What goes to each Raft group. Nothing is added any more."""
        self._end_stretch()
        return list(self._parts.values())

    @property
    def parts(self) -> Sequence[BatchPart]:
        """What was sent last, or is to be sent, to each Raft group: of a batch that is closed."""
        return self._sent_parts or list(self._parts.values())

    @parts.setter
    def parts(self, parts: Sequence[BatchPart]) -> None:
        self._sent_parts = parts

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

    def comes_from(self, by: ConnectedUser | None) -> None:
        """Who publishes from here on (see `client.PublishBatch.comes_from`)."""
        speakers = self.speakers
        if speakers is None:
            speakers = self.speakers = []
        if not speakers or speakers[-1][1] is not by:
            speakers.append((self.count, by))

    @property
    def is_first_identity(self) -> bool:
        """Whether it is sent under the identity that another process has sent it under first, if
        one has: a subscriber's, or that of a will.
        """
        client = self.identity[0] if self.identity is not None else 0
        return bool(client & SUBSCRIBER_CLIENT) and not client & _AGAIN_BITS

    def next_identity(self) -> bool:
        """What was refused is sent again: a group that has the batch must not take that for the
        same. False: it was, too often.
        """
        if self.identity is None:
            return True
        client, epoch, sequence = self.identity
        self.identity = (client + AGAIN_CLIENT, epoch, sequence)
        return bool(self.identity[0] & SUBSCRIBER_CLIENT)

    def add(self, to: Destinations, parts: Sequence[bytes], size: int, asks: object = None) -> None:
        """One message (see `client.PublishBatch.add`; hot)."""
        found: Found = to  # type: ignore[assignment]  # ours; a cast is a call
        if found is self._to and asks is self._asks and size <= found.small_bytes:
            self._sizes.append(size)
            self._stretch.append(parts)
            return
        if self._sizes:
            self._end_stretch()
        self._to = None
        if not found.refuses_when_full:
            self.refuses_when_full = False
        position = self._count
        self._count = position + 1
        self._size_bytes += size
        header = parts[0]
        if asks is None or asks is not self._asks:
            self._features = features_of(header)
            self._asks = asks
        features = self._features
        if size > found.small_bytes:
            if self._is_too_large(found, size, header, position):
                return
            features |= LARGE * (size > SLOT_BYTES_SMALL)
        single = found.single
        if single is None:
            self._add_many(found, parts, size, position, features)
            return
        part = self._part(single.group)
        slot = len(part.lengths)
        part.lengths.append(size)
        part.buffers += parts
        part.positions.append(position)
        runs = part.runs
        if not runs or runs[-1][0] != single.id or not grows(runs[-1], slot, 1, features):
            runs.append([single.id, slot, 1, features])
        if asks is not None:
            self._to, self._run = found, runs[-1]

    def _end_stretch(self) -> None:
        """Put the stretch, if there is one, behind the slots and the run that it continues."""
        sizes, part, run = self._sizes, self._last, self._run
        if not sizes or part is None:
            return
        count, position = len(sizes), self._count
        self._count += count
        self._size_bytes += sum(sizes)
        part.lengths += sizes
        part.buffers += chain.from_iterable(self._stretch)
        part.positions += range(position, position + count)
        self._sizes, self._stretch = [], []
        while True:
            more = min(count, RUN_SLOTS_MAX - run[2])
            run[2] += more
            count -= more
            if not count:
                return
            run = [run[0], run[1] + run[2], 0, run[3]]
            part.runs.append(run)

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
        if single is None or max(sizes) > found.small_bytes or count > RUN_SLOTS_MAX:
            for head, body, size in zip(heads, bodies, sizes, strict=True):
                self.add(to, (head, body), size)
            return
        self._end_stretch()
        self._to = None
        if not found.refuses_when_full:
            self.refuses_when_full = False
        position = self._count
        self._count = position + count
        self._size_bytes += sum(sizes)
        part = self._part(single.group)
        slot = len(part.lengths)
        part.lengths += sizes
        parts = [b""] * (2 * count)
        parts[::2], parts[1::2] = heads, bodies
        part.buffers += parts
        part.positions += range(position, position + count)
        features, runs = features_of(heads[0]), part.runs
        if not runs or runs[-1][0] != single.id or not grows(runs[-1], slot, count, features):
            runs.append([single.id, slot, count, features])

    def _is_too_large(self, to: Found, size: int, header: bytes, position: int) -> bool:
        """Whether nobody takes a message, which then has failed. A topic's own limit is for the
        body; among several topics each has its say in `_add_many`, and a subscriber's queue has
        none.
        """
        if size <= to.safe_bytes:
            return False
        body, native, ext = LENGTHS.unpack_from(header, LENGTHS_AT)
        if native + ext > PROPERTIES_BYTES_MAX:
            what = f"properties of {native + ext} bytes; at most {PROPERTIES_BYTES_MAX}"
        elif body > BODY_BYTES_MAX:
            what = f"a body of {body} bytes; at most {BODY_BYTES_MAX}"
        elif to.single is not None and to.topics and body > to.topics[0].options.message_bytes_max:
            what = too_large_for(to.topics[0], body)
        else:
            return False
        self.fail(position, KernelError(Code.TOO_LARGE, what))
        return True

    def _part(self, group: RaftGroup) -> BatchPart:
        part = self._last
        if part is None or part.group != group:
            part = self._parts.get(group)
            if part is None:
                part = self._parts[group] = BatchPart(group)
            self._last = part
        return part

    def _add_many(
        self, to: Found, parts: Sequence[bytes], size: int, position: int, features: int
    ) -> None:
        """To any number of places: one slot per Raft group, one run place per queue. The first
        one counts the message as published.
        """
        if features & _DEDUPLICATE and self.identity is not None:
            self.fail(position, TWO_IDENTITIES)
            return
        if to.name is not None:
            before = size
            parts, size = named(parts, to.name)
            self._size_bytes += size - before
            features |= LARGE * (size > SLOT_BYTES_SMALL)
        bits = features
        for topic in to.topics:
            if size > topic.options.message_bytes_max:
                body: int = LENGTHS.unpack_from(parts[0], LENGTHS_AT)[0]
                if body > topic.options.message_bytes_max:
                    self.fail(position, KernelError(Code.TOO_LARGE, too_large_for(topic, body)))
                    continue
            ref = (
                topic.queues[0]
                if len(topic.queues) == 1
                else _pick(to, topic, parts[0], once=self.identity is not None)
            )
            part, slot = self._slot_in(ref.group, parts, size, position)
            refer(part, ref, slot, bits)
            bits = features | COPY
        for ref in to.refs:
            part, slot = self._slot_in(ref.group, parts, size, position)
            refer(part, ref, slot, bits)
            bits = features | COPY
        if to.retain_in is not None:
            part, slot = self._slot_in(to.retain_in, parts, size, position)
            part.retained.append((to.tenant, slot))
        if to.routed_in is not None:
            part, slot = self._slot_in(to.routed_in, parts, size, position)
            part.routed.append([to.tenant, to.tree_name, slot, 1, bits])
        if to.watches or to.forwarders:
            self.live.append((position, to, parts))

    def _slot_in(
        self, group: RaftGroup, parts: Sequence[bytes], size: int, position: int
    ) -> tuple[BatchPart, int]:
        """The part of a group, and the message's slot in it, put there if it is not yet."""
        part = self._part(group)
        if not part.positions or part.positions[-1] != position:
            part.lengths.append(size)
            part.buffers += parts
            part.positions.append(position)
        return part, len(part.lengths) - 1

    def place(self, position: int) -> tuple[QueueId, Offset] | None:
        """Queue and offset of a message (see `client.PublishBatch.place`)."""
        for part, placed in self.results:
            positions = part.positions
            if part.group >= MEMORY_FIRST:
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
                if not 0 <= behind < run[2] or where in (-1, SEALED):
                    continue
                if not isinstance(where, list):
                    return QueueId(run[0]), Offset(where + behind)
                if behind < len(where):
                    return QueueId(run[0]), Offset(where[behind][0])
        return None

    @property
    def duplicates(self) -> dict[int, bytes] | None:
        """Position to the original's uid (see `client.PublishBatch.duplicates`)."""
        found: dict[int, bytes] = {}
        for part, placed in self.results:
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

    def fail_part(self, part: BatchPart, error: KernelError) -> None:
        """Note a failure of every message of a part."""
        for position in part.positions:
            self.fail(position, error)

    def part_stored(self, part: BatchPart, placed: object) -> None:
        """One group has stored its part: where."""
        where = cast("list[Placed]", placed)
        self.results.append((part, where))
        if list not in map(type, where) and SEALED not in where:
            return
        for run, each in zip(part.runs, where, strict=True):
            if each == SEALED:
                self.refused = [*self.refused, (part, run)]
            if isinstance(each, list) and len(each) < run[2]:
                for position in part.positions[run[1] + len(each) : run[1] + run[2]]:
                    self.fail(position, FULL)

    def part_told(self, part: BatchPart, result: object) -> None:
        """What a part came to. A queue that was deleted meanwhile counts as done."""
        placed = result[0] if isinstance(result, tuple) and result else result
        if isinstance(placed, KernelError):
            self.fail_part(part, placed)
        elif isinstance(placed, list):
            if part.routed:
                placed = self._routed(part, placed, cast("tuple[object, ...]", result)[-1])
            self.part_stored(part, placed)

    def part_done(
        self, part: BatchPart, complete: Callable[[ProducerBatch], None], result: object
    ) -> None:
        """One group has applied its part, or will not."""
        self.part_told(part, result)
        self.remaining -= 1
        if not self.remaining:
            complete(self)

    def _routed(self, part: BatchPart, placed: list[object], lists: object) -> list[object]:
        """The leader has looked up what the names of a part lead to. Where they were put is of no
        interest, only where the batch's own runs were.
        """
        counts = cast("list[int]", lists)
        alone: list[int] = []
        for each, count in zip(part.routed, counts, strict=True):
            position = part.positions[cast("int", each[2])]
            if count < 0:
                self.fail(position, TOO_MANY_RETAINED)
            elif count == 0:
                self.unlisted.append(position)
                if not cast("int", each[4]) & COPY:
                    alone.append(cast("int", each[2]))
        if alone:
            self._note_unheard(part, alone)
        if min(counts) >= 0:
            return placed[: len(part.runs)]
        # What is left of the runs was taken apart, into one for each message.
        left = iter(placed)
        refused = {
            slot
            for each, count in zip(part.routed, counts, strict=True)
            if count < 0
            for slot in range(cast("int", each[2]), cast("int", each[2]) + cast("int", each[3]))
        }
        for run in part.runs:
            for slot in range(run[1], run[1] + run[2]):
                where = next(left) if slot not in refused else None
                if where == []:
                    self.fail(part.positions[slot], FULL)
                elif where == SEALED:
                    self.refused = [*self.refused, (part, [run[0], slot, 1, run[3]])]
        return [-1 for _ in part.runs]

    def _note_unheard(self, part: BatchPart, slots: list[int]) -> None:
        """No queue has got these slots of a part: perhaps a live route does, or they are kept."""
        others = {position for position, _, _ in self.live}
        for each in self._parts.values():
            others.update(each.positions[slot] for _, slot in each.retained)
        sizes = {part.positions[slot]: part.lengths[slot] - HEADER_BYTES for slot in slots}
        unheard = {at: size for at, size in sizes.items() if at not in others}
        self.unheard = {**self.unheard, **unheard}

    def hand_over(self) -> None:
        """Give the live routes what there is for them, but for what was refused elsewhere."""
        failures = self.failures or ()
        slots: dict[LocalWatch, list[bytes]] = {}
        forwarded: dict[Forwarder, list[tuple[Found, bytes]]] = {}
        for position, found, parts in self.live:
            if position in failures:
                continue
            slot = b"".join(parts)
            for watch in found.watches:
                slots.setdefault(watch, []).append(slot)
            for forwarder in found.forwarders:
                forwarded.setdefault(forwarder, []).append((found, slot))
        self.live = []
        for watch, each in slots.items():
            if watch.sink is not None:
                watch.sink.published_live(watch, each)
        for forwarder, messages in forwarded.items():
            forwarder.forward(messages)


def _pick(to: Found, topic: TopicInfo, header: bytes, *, once: bool) -> QueueRef:
    """Queue of a topic with several: by ordering key, else in turn."""
    key: int = HEADER.unpack_from(header)[KEY_FIELD]
    key = key or to.spread
    if not key:
        to.round_robin += 1
        key = to.round_robin
    return topic.queue_of(key, once=once)
