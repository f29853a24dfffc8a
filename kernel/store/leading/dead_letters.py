"""Sends outbox items: dead letters from the group that held the message to the groups of their
targets.

Durability: an item leaves the source's state (OUTBOX_DONE) only after every target group has
applied, and so fdatasynced, its copy. A crash in between repeats the send; the target drops the
repeat, since the item's number is the sequence of a client that is never forgotten
(docs/design/delivery.md#attempts-and-dead-letters).

What a process has not heard of may be defined all the same: by a group of which it has no replica,
or one that lags, as after a start. So a leader looks before it sends anything of an outbox, and
again before it takes a target for one that does not exist (`_look`).

A dead letter aimed straight at a topic that does not exist waits in the outbox until there is one
of that name. Staying in the source queue, as on AWS, could only serve the reason "attempts": what
has expired, overflowed or been rejected must leave its queue in any case; and whoever deletes a
queue of dead letters just while one is on its way would still lose it. What waits is counted, and
bounded by WAITING_MAX: beyond it dead letters are dropped and counted. One to a router that does
not exist, or that leads nowhere, is dropped, as its owner expects of a router without routes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import NamedTuple, Protocol

import msgspec

from ...api import message as messages
from ...api.message import Ext, Flag, Message
from ...api.model import DEFAULT_GROUP, TOPICS_ROUTER, Reason, TopicInfo, TopicKind
from ...api.origins import INTERNAL, Origins
from ...broker.group_state.state import OutboxItem
from ...broker.index.features import COPY, LARGE, U32_MAX, Feature, features_of
from ...broker.log_commands import commands
from ...broker.log_commands.resize_commands import SEALED
from ...common.errors import Code, KernelError
from ...common.ids import (
    OUTBOX_CLIENT,
    OUTBOX_EPOCH,
    TRANSIENT_GROUP,
    LogIndex,
    Offset,
    QueueId,
    RaftGroup,
    topic_of,
    uuid_of,
)
from ...common.limits import RESULTS_KEPT_PER_CLIENT
from ...log.format import entry as entries
from ...requests.client_trace import ClientTrace, Place
from ...requests.leader import Done, Identity, Leader
from ...requests.publish_part import Part
from ...requests.request_pipeline import Attempt
from ...routing.destinations import Found
from ...routing.topology import Topology
from ..replicas.replica import Replica

IN_FLIGHT_MAX = 256
"""Items of one group on their way at once: bounds memory, and is many syncs deep."""

NUMBERS_AHEAD_MAX = RESULTS_KEPT_PER_CLIENT // 2
"""How far sending may be ahead of the oldest item on its way: an item that is tried again must
still find its result at the target, if it was stored."""

WAITING_MAX = 10_000
"""Items of one group that wait for their topic to exist: each holds its message on disk."""

RETRY_MS = 1_000
"""An item that found the disk full is tried again so much later."""

HISTORY_MAX = 32
"""Entries of a message's dead-letter history; older ones are forgotten."""

_BY_ITSELF = {Reason.EXPIRED.value, Reason.OVERFLOW.value, Reason.TOO_LARGE.value}
"""Reasons that need no consumer: what goes round by these alone goes round for ever."""

_AFTER_DELIVERY = {Reason.ATTEMPTS, Reason.REJECTED}
"""Reasons that end a delivery, which is not among the attempts that failed before."""


class Surroundings(Protocol):
    """What the sender asks of the client in this process."""

    topology: Topology
    origins: Origins
    trace: ClientTrace
    outbox_client: int
    """Sends the transient outbox: every process has one of its own, which begins at 1."""

    def send_to(self, group: RaftGroup, attempt: Attempt, done: Done) -> None:
        """Have a command with an identity carried out in a group, once."""

    def when_level(self, done: Callable[[bool], None]) -> None:
        """Call `done(True)` once `topology` has all that was defined when this was called;
        `done(False)`: somebody could not be asked.
        """

    def publish_dead_letter(self, topics: tuple[TopicInfo, ...], dead_letter: bytes) -> None:
        """Store a dead letter that is in no outbox."""


class Outboxes(Protocol):
    """What the sender asks of whatever holds the groups: a store, or a gateway's memory."""

    def replica(self, group: RaftGroup) -> Replica:
        """One group."""

    def entry(self, group: RaftGroup, index: int) -> bytes | None:
        """A log entry, if it is in memory."""

    def fetch(self, group: RaftGroup, index: int, done: Callable[[], None]) -> None:
        """Read a log entry into memory, then call `done`."""

    def call_later(self, delay_ms: int, action: Callable[[], None]) -> object:
        """Call `action` after so long."""


class _Moving(NamedTuple):
    """What is sent of an item, for who traces it."""

    source: Place
    reason: Reason
    uid: bytes
    """Of the dead letter."""
    topics: Sequence[TopicInfo]
    """Where it goes."""


class _Attempt:
    """One time that an item was sent."""

    __slots__ = ("failed", "left", "moving", "placed", "sealed")

    def __init__(self, parts: int, moving: _Moving) -> None:
        self.left = parts
        """Parts that have no answer yet."""
        self.moving = moving
        self.placed: list[tuple[int, int]] = []
        """(queue, offset) where it has come to lie, while anything is traced."""
        self.failed = False
        """One was not taken: all are sent once more."""
        self.sealed = False
        """A queue did not take one since it is sealed."""


class _Outbox:
    """How far the sending of one group's outbox has come."""

    __slots__ = (
        "due",
        "is_looking",
        "is_over",
        "looked_until",
        "next",
        "sending",
        "waiting",
        "waiting_count",
    )

    def __init__(self, first: int) -> None:
        self.next = first
        """Number of the next item to be looked at, of those that were not yet."""
        self.due: deque[int] = deque()
        """Numbers before it whose turn has come once more."""
        self.is_looking = False
        """Nothing is sent until this process knows what is defined."""
        self.looked_until = 0
        """It knows that as of a time at which this was the next number; 0: it has not looked."""
        self.sending: dict[int, _Attempt] = {}
        """The last attempt of each item that is on its way."""
        self.waiting: dict[tuple[str, str], list[int]] = {}
        """(tenant, topic) to the items that wait for it to exist."""
        self.waiting_count = 0
        self.is_over = False
        """The group is led elsewhere, or again: answers that come still are for nobody."""

    def may_send(self) -> bool:
        """Whether one more item may be on its way."""
        if self.is_looking:
            return False
        if not self.sending:
            return True
        is_full = len(self.sending) >= IN_FLIGHT_MAX
        return not is_full and self.next - min(self.sending) < NUMBERS_AHEAD_MAX

    @property
    def first(self) -> int:
        """Number of the item whose turn it is."""
        return self.due[0] if self.due else self.next

    def pass_on(self) -> None:
        """The next one has its turn."""
        if self.due:
            self.due.popleft()
        else:
            self.next += 1


class DeadLetterSender:
    """Sends the outboxes of every group, each in order."""

    def __init__(self, store: Outboxes, client: Surroundings) -> None:
        self._store = store
        self._client = client
        self._outboxes: dict[RaftGroup, _Outbox] = {}
        self._stopped = False
        self.dropped = 0
        """Dead letters dropped because WAITING_MAX others waited for a topic to exist."""

    @property
    def waiting(self) -> int:
        """Dead letters that wait for their topic to exist."""
        return sum(each.waiting_count for each in self._outboxes.values())

    async def stop(self) -> None:
        """Send nothing more."""
        self._stopped = True

    def forget(self, group: RaftGroup) -> None:
        """Who leads a group has changed: whoever leads next sends its outbox from the front on, and
        the targets drop what they have.
        """
        outbox = self._outboxes.pop(group, None)
        if outbox is not None:
            outbox.is_over = True

    def outbox_grew(self, replica: Replica) -> None:
        """Send what is not under way yet. Only once everything before the leader's term is applied:
        until then the outbox may hold what was sent and let go of long ago, and its message is gone
        from the journal.
        """
        state = replica.state
        if not replica.serving:
            return
        outbox = self._outboxes.get(replica.group)
        if outbox is None:
            outbox = _Outbox(min(state.outbox, default=state.next_outbox))
            self._outboxes[replica.group] = outbox
        while outbox.first < state.next_outbox and outbox.may_send() and not self._stopped:
            item = state.outbox.get(outbox.first)
            if item is not None:
                entry = self._store.entry(replica.group, item.index)
                if entry is None:
                    self._store.fetch(replica.group, item.index, lambda: self.outbox_grew(replica))
                    return
                if not self._send(outbox, replica, item, entries.slot(entry, item.slot)):
                    return
            outbox.pass_on()

    def _look(self, outbox: _Outbox, replica: Replica) -> None:
        """Have this process know what is defined by now; then go on."""
        until = replica.state.next_outbox

        def looked(is_level: bool) -> None:
            if outbox.is_over or self._stopped:
                return
            if not is_level:
                self._store.call_later(RETRY_MS, partial(self._look, outbox, replica))
                return
            outbox.is_looking = False
            outbox.looked_until = until
            self.outbox_grew(replica)

        outbox.is_looking = True
        self._client.when_level(looked)

    def topic_appeared(self, tenant: str, name: str) -> None:
        """Send what has waited for the topic. A leader before this one may have done so: of what is
        not too old for it the target tells by the number that it has it.
        """
        for group, outbox in list(self._outboxes.items()):
            numbers = outbox.waiting.pop((tenant, name), ())
            outbox.waiting_count -= len(numbers)
            replica = self._store.replica(group)
            for number in numbers:
                if outbox.next - number < NUMBERS_AHEAD_MAX:
                    outbox.due.append(number)
                else:
                    self._again(replica, number)
            if numbers:
                self.outbox_grew(replica)

    def _wait(self, outbox: _Outbox, replica: Replica, item: OutboxItem, name: str) -> None:
        if outbox.waiting_count >= WAITING_MAX:
            self.dropped += 1
            self._done(outbox, replica, item.number)
            return
        outbox.waiting_count += 1
        outbox.waiting.setdefault((item.tenant, name), []).append(item.number)

    def refused(self, topic: TopicInfo, slot: bytes) -> None:
        """A full topic has refused a message: dead-letter it, at most once (it is in no outbox; its
        publisher hears of the refusal). A dead letter that comes back to where it has been is
        dropped.
        """
        target = topic.groups[DEFAULT_GROUP].dead_letter
        if target is None or self._stopped:
            return
        item = OutboxItem(
            number=0,
            tenant=topic.tenant,
            topic=topic.name,
            target=target,
            queue=topic.queues[0].id,
            offset=Offset(0),
            index=LogIndex(0),
            slot=0,
            reason=Reason.OVERFLOW,
            attempts=0,
        )
        message = messages.decode(slot)
        key = self._key(item, message)
        history = history_of(message)
        been = {topic.name, *(each["topic"] for each in history)}
        targets = self._targets(item, key, message) or ()
        topics = tuple(each for each in targets if each.name not in been)
        if topics:
            clocks = (self._store.replica(each.group).log_time_ms() for each in topic.queues)
            time_ms = max(clocks)  # of some of the groups there may be no replica here
            self._client.publish_dead_letter(
                topics, _encode_dead_letter(message, item, key, history, time_ms)
            )

    def _key(self, item: OutboxItem, message: Message) -> str:
        """The key a dead letter is sent with."""
        if item.target.key is not None:
            return item.target.key
        origins = self._client.origins
        names_topic = item.target.router in {None, TOPICS_ROUTER}
        own_key = origins.topic_name if names_topic else origins.routing_key
        return own_key(message.origin, message.native)

    def _send(self, outbox: _Outbox, replica: Replica, item: OutboxItem, slot: bytes) -> bool:
        """Send an item, if it has a target. False: its turn comes again after a look."""
        message = messages.decode(slot)
        key = self._key(item, message)
        history = history_of(message)
        time_ms = replica.state.time_ms
        if item.reason is Reason.MOVED:
            dead_letter = _moved(message, item, history, time_ms)
        else:
            dead_letter = _encode_dead_letter(message, item, key, history, time_ms)
        targets = self._targets(item, key, message)
        if item.number >= outbox.looked_until and not (targets and outbox.looked_until):
            self._look(outbox, replica)
            return False
        if targets is None:
            self._wait(outbox, replica, item, key)
            return True
        parts: dict[RaftGroup, list[list[int]]] = {}
        features = features_of(dead_letter[: messages.HEADER_BYTES]) | COPY
        features |= LARGE * (len(dead_letter) > messages.SLOT_BYTES_SMALL)
        for topic in targets:
            if _in_cycle(topic.name, item, history):
                continue
            ref = topic.queue_of(message.key_hash, once=True)
            age = Feature.AGE if item.stored_ms and _minds_age(topic) else 0
            parts.setdefault(ref.group, []).append([ref.id, 0, 1, features | age])
        source = Place(item.topic, item.queue, item.offset, message.uid)
        moving = _Moving(source, item.reason, messages.uid_at(dead_letter, 0), targets)
        attempt = outbox.sending[item.number] = _Attempt(len(parts), moving)
        sender = (OUTBOX_CLIENT | replica.group, 1)
        if replica.group == TRANSIENT_GROUP:
            sender = (self._client.outbox_client, OUTBOX_EPOCH)
        if not parts:
            self._done(outbox, replica, item.number)
        for group, runs in parts.items():
            identity = (*sender, item.number)
            self._client.send_to(
                group,
                partial(_store_dead_letter, identity, runs, dead_letter),
                partial(self._part_done, outbox, replica, item.number, attempt, runs),
            )
        return True

    def _targets(
        self, item: OutboxItem, key: str, message: Message
    ) -> tuple[TopicInfo, ...] | None:
        """Topics that get the dead letter; None if it has to wait for its topic to exist."""
        topology = self._client.topology
        if item.target.router is None:
            topic = topology.topics.get((item.tenant, key))
            return topology.to_topic(topic).topics if topic is not None else None
        attributes = self._client.origins.attributes(message.origin, message.native)
        try:
            found: Found = topology.find(item.tenant, item.target.router, key, attributes)
        except KernelError:
            return ()
        return found.topics

    def _part_done(
        self,
        outbox: _Outbox,
        replica: Replica,
        number: int,
        attempt: _Attempt,
        runs: Sequence[Sequence[int]],
        result: object,
    ) -> None:
        """One target group has answered. A refusal for want of space, and what is not known to be
        done, is tried again under the same number; an item too old to be known there was never sent
        and gets a new one. An answer to an earlier attempt says nothing of this one.
        """
        if outbox.is_over or outbox.sending.get(number) is not attempt or attempt.failed:
            return
        placed = result[0] if isinstance(result, tuple) and result else None
        if isinstance(placed, KernelError) and placed.code is Code.UNKNOWN_OUTCOME:
            self._again(replica, number, outbox.sending.pop(number))
            return
        if isinstance(placed, KernelError) or isinstance(result, KernelError):
            attempt.failed = True
            self._store.call_later(RETRY_MS, partial(self._retry, outbox, replica, number))
            return
        if self._client.trace.modes and isinstance(placed, list):
            attempt.placed += [
                (queue, where)
                for (queue, *_), where in zip(runs, placed, strict=True)
                if isinstance(where, int) and where >= 0
            ]
        attempt.left -= 1
        attempt.sealed |= isinstance(placed, list) and SEALED in placed
        if attempt.left:
            return
        if attempt.sealed:
            # Its number is answered with the same for ever. Of several targets the others get it
            # twice: better than one without it.
            again = partial(self._again_in_time, outbox, replica, number)
            self._store.call_later(RETRY_MS, again)
        else:
            self._done(outbox, replica, number)

    def _note_moved(self, attempt: _Attempt | None, result: object) -> None:
        """Have noted where an item has come to lie, once its number has left the outbox: until then
        the next leader sends it again, and hears the same.
        """
        if attempt is None or isinstance(result, KernelError) or not self._client.trace.modes:
            return
        moving = attempt.moving
        names = {topic.id: topic.name for topic in moving.topics}
        for queue, offset in attempt.placed:
            target = Place(names[topic_of(QueueId(queue))], QueueId(queue), offset, moving.uid)
            self._client.trace.moved(moving.source, target, moving.reason)

    def _again_in_time(self, outbox: _Outbox, replica: Replica, number: int) -> None:
        """The ring of its topic may be known by now."""
        if not (self._stopped or outbox.is_over):
            self._again(replica, number, outbox.sending.pop(number))

    def _retry(self, outbox: _Outbox, replica: Replica, number: int) -> None:
        """Send an item once more."""
        if not outbox.is_over:
            del outbox.sending[number]
            outbox.due.append(number)
            self.outbox_grew(replica)

    def _again(self, replica: Replica, number: int, attempt: _Attempt | None = None) -> None:
        """Give an item another number; `attempt`: what has come of it under the one it has."""

        def finished(result: object) -> None:
            self._note_moved(attempt, result)
            self.outbox_grew(replica)

        replica.propose(commands.OutboxAgain(number), (0, 0, 0), finished)

    def _done(self, outbox: _Outbox, replica: Replica, number: int) -> None:
        attempt = outbox.sending.get(number)

        def finished(result: object) -> None:
            self._note_moved(attempt, result)
            if not outbox.is_over:
                outbox.sending.pop(number, None)
                self.outbox_grew(replica)

        replica.propose(commands.OutboxDone(number), (0, 0, 0), finished)


def _store_dead_letter(
    identity: Identity, runs: list[list[int]], dead_letter: bytes, leader: Leader, done: Done
) -> None:
    leader.publish(identity, Part(runs, [len(dead_letter)], [dead_letter]), done, INTERNAL)


def _moved(
    message: Message, item: OutboxItem, history: list[dict[str, object]], time_ms: int
) -> bytes:
    """The slot of a message that a task moves on: a new message, sent now, with a uid of its own
    (the same however often it is sent), without the entry of history that it comes back from. Its
    deduplication id must not make it a duplicate of what it was once.
    """
    ext = {kind: value for kind, value in message.ext.items() if kind != Ext.DEAD_LETTER}
    flags = message.flags & ~(Flag.DEAD_LETTER | Flag.DEDUPLICATE) | Flag.INTERNAL
    if history[1:]:
        ext[Ext.DEAD_LETTER] = msgspec.msgpack.encode(history[1:])
        flags |= Flag.DEAD_LETTER
    what = f"{item.queue} {item.offset} {item.number}".encode()
    digest = blake2b(message.uid + what, digest_size=16).digest()
    return messages.encode(
        replace(
            message,
            flags=flags,
            uid=uuid_of(digest),
            published_ms=time_ms,
            ttl_ms=0,
            delay_ms=0,
            ext=ext,
            age_s=0,
        )
    )


def _minds_age(topic: TopicInfo) -> bool:
    """Whether a topic wants the age of its dead letters in its index."""
    return topic.options.kind is TopicKind.WORK and topic.options.retention_ms is not None


def history_of(message: Message) -> list[dict[str, object]]:
    """Where a message has been a dead letter, newest first."""
    block = message.ext.get(Ext.DEAD_LETTER)
    if block is None:
        return []
    return msgspec.msgpack.decode(block, type=list[dict[str, object]])


def deliveries_of(history: list[dict[str, object]]) -> int:
    """How often a message was delivered before it became the dead letter that it is; 0 of one that
    an older build has sent.
    """
    known = history[0].get("deliveries", 0) if history else 0
    return known if isinstance(known, int) else 0


def _encode_dead_letter(
    message: Message,
    item: OutboxItem,
    key: str,
    history: list[dict[str, object]],
    time_ms: int,
) -> bytes:
    """The slot of the dead letter: the message with one more entry of history, without TTL, and
    with the age that it has by now. Its deduplication id, which tells repeated sends to the topic
    it comes from, must not make it a duplicate of another topic's dead letter.
    """
    count = 1
    earlier: list[dict[str, object]] = []
    for each in history:
        if each["topic"] == item.topic and each["reason"] == item.reason.value:
            known = each["count"]
            count = (known if isinstance(known, int) else 0) + 1
        else:
            earlier.append(each)
    newest: dict[str, object] = {
        "topic": item.topic,
        "reason": item.reason.value,
        "count": count,
        "time_ms": time_ms,
        "router": item.target.router or "",
        "key": key,
        "deliveries": deliveries_of(history) + item.attempts + (item.reason in _AFTER_DELIVERY),
    }
    block = msgspec.msgpack.encode([newest, *earlier][:HISTORY_MAX])
    return messages.encode(
        replace(
            message,
            flags=message.flags & ~Flag.DEDUPLICATE | Flag.DEAD_LETTER | Flag.INTERNAL,
            ttl_ms=0,
            delay_ms=0,
            ext={**message.ext, Ext.DEAD_LETTER: block},
            age_s=min(max(time_ms - item.stored_ms, 0) // 1_000, U32_MAX) if item.stored_ms else 0,
        )
    )


def _in_cycle(name: str, item: OutboxItem, history: list[dict[str, object]]) -> bool:
    """Whether a message comes back to a topic where it has been, and no consumer had a part in it
    since: such a cycle would never end.
    """
    if item.reason.value not in _BY_ITSELF:
        return False
    if name == item.topic:
        return True
    for each in history:
        if each["reason"] not in _BY_ITSELF:
            return False
        if each["topic"] == name:
            return True
    return False
