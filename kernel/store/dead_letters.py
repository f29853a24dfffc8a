"""Sends outbox items: dead letters from the group that held the message to the groups of their
targets.

Durability: an item leaves the source's state (OUTBOX_DONE) only after every target group has
applied, and so fdatasynced, its copy. A crash in between repeats the send; the target drops the
repeat, since the item's number is the sequence of a client that is never forgotten (DESIGN.md 3
"Across groups").
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import msgspec

from .. import message as messages
from ..broker import commands
from ..broker.runs import features_of
from ..broker.state import OutboxItem
from ..errors import KernelError
from ..ids import VOLATILE_GROUP, LogIndex, Offset, RaftGroup
from ..log import entry as entries
from ..message import Ext, Flag, Message
from ..model import DEFAULT_GROUP, TOPICS_ROUTER, Reason, TopicInfo
from ..origins import Origins
from ..topology import Found, Topology
from .node import Store
from .replica import Replica

IN_FLIGHT_MAX = 256
"""Items of one group on their way at once: bounds memory, and is many syncs deep."""

HISTORY_MAX = 32
"""Entries of a message's dead-letter history; older ones are forgotten."""

_BY_ITSELF = {Reason.EXPIRED.value, Reason.OVERFLOW.value, Reason.TOO_LARGE.value}
"""Reasons that need no consumer: what goes round by these alone goes round for ever."""

_OUTBOX_CLIENT = 1 << 63
"""Client number of a group's outbox is this plus the group: never that of a gateway, whose number
has 63 bits."""


class Surroundings(Protocol):
    """What the sender asks of the client in this process."""

    topology: Topology
    origins: Origins
    outbox_epoch: int
    """New in every process: volatile outboxes begin at 1 again in each."""

    def publish_letter(self, topics: tuple[TopicInfo, ...], letter: bytes) -> None:
        """Store a letter that is in no outbox."""


class DeadLetterSender:
    """Sends the outboxes of every group, each in order."""

    def __init__(self, store: Store, client: Surroundings) -> None:
        self._store = store
        self._client = client
        self._sending: dict[RaftGroup, dict[int, int]] = {}
        self._stopped = False

    async def stop(self) -> None:
        """Send nothing more."""
        self._stopped = True

    def outbox_grew(self, replica: Replica) -> None:
        """Send what is not under way yet."""
        sending = self._sending.setdefault(replica.group, {})
        for number, item in replica.state.outbox.items():
            if self._stopped or len(sending) >= IN_FLIGHT_MAX:
                return
            if number in sending:
                continue
            entry = self._store.entry(replica.group, item.index)
            if entry is None:
                self._store.fetch(replica.group, item.index, lambda: self.outbox_grew(replica))
                return
            self._send(replica, item, entries.slot(entry, item.slot))

    def refused(self, topic: TopicInfo, slot: bytes) -> None:
        """A full topic has refused a message: dead-letter it, at most once (it is in no outbox; its
        publisher hears of the refusal). A letter that comes back to where it has been is dropped.
        """
        target = topic.groups[DEFAULT_GROUP].dead_letter
        if target is None or self._stopped:
            return
        item = OutboxItem(
            *(0, topic.tenant, topic.name, target, topic.queues[0].id, Offset(0), LogIndex(0), 0),
            Reason.OVERFLOW,
            0,
        )
        message = messages.decode(slot)
        key = self._key(item, message)
        history = _history(message)
        been = {topic.name, *(each["topic"] for each in history)}
        topics = tuple(each for each in self._targets(item, key, message) if each.name not in been)
        if topics:
            time_ms = self._store.replica(topic.queues[0].group).log_time_ms()
            self._client.publish_letter(topics, _letter(message, item, key, history, time_ms))

    def _key(self, item: OutboxItem, message: Message) -> str:
        """The key a letter is sent with."""
        if item.target.key is not None:
            return item.target.key
        origins = self._client.origins
        names_topic = item.target.router in {None, TOPICS_ROUTER}
        own_key = origins.topic_name if names_topic else origins.routing_key
        return own_key(message.origin, message.native)

    def _send(self, replica: Replica, item: OutboxItem, slot: bytes) -> None:
        message = messages.decode(slot)
        key = self._key(item, message)
        history = _history(message)
        letter = _letter(message, item, key, history, replica.state.time_ms)
        parts: dict[RaftGroup, list[list[int]]] = {}
        features = features_of(letter[: messages.HEADER_BYTES])
        for topic in self._targets(item, key, message):
            if _in_cycle(topic.name, item, history):
                continue
            ref = topic.queues[message.key_hash % len(topic.queues)]
            parts.setdefault(ref.group, []).append([ref.id, 0, 1, features])
        self._sending[replica.group][item.number] = len(parts)
        epoch = self._client.outbox_epoch if replica.group == VOLATILE_GROUP else 1
        if not parts:
            self._done(replica, item.number)
        for group, runs in parts.items():
            target = self._store.replica(group)
            target.open.add_publish(
                (_OUTBOX_CLIENT | replica.group, epoch, item.number),
                runs,
                [len(letter)],
                [letter],
                len(letter),
                lambda _: self._part_done(replica, item.number),
            )
            self._store.dirty(target, urgent=True)

    def _targets(self, item: OutboxItem, key: str, message: Message) -> tuple[TopicInfo, ...]:
        """Topics that get the letter. A target that does not exist drops it, as its owners would
        expect of a dead-letter router without routes.
        """
        topology = self._client.topology
        if item.target.router is None:
            topic = topology.topics.get((item.tenant, key))
            return topology.to_topic(topic).topics if topic is not None else ()
        attributes = self._client.origins.attributes(message.origin, message.native)
        try:
            found: Found = topology.find(item.tenant, item.target.router, key, attributes)
        except KernelError:
            return ()
        return found.topics

    def _part_done(self, replica: Replica, number: int) -> None:
        sending = self._sending[replica.group]
        sending[number] -= 1
        if not sending[number]:
            self._done(replica, number)

    def _done(self, replica: Replica, number: int) -> None:
        def finished(_: object) -> None:
            del self._sending[replica.group][number]
            self.outbox_grew(replica)

        replica.propose(commands.OutboxDone(number), (0, 0, 0), finished)


def _history(message: Message) -> list[dict[str, object]]:
    block = message.ext.get(Ext.DEAD_LETTER)
    if block is None:
        return []
    return msgspec.msgpack.decode(block, type=list[dict[str, object]])


def _letter(
    message: Message,
    item: OutboxItem,
    key: str,
    history: list[dict[str, object]],
    time_ms: int,
) -> bytes:
    """The slot of the dead letter: the message with one more entry of history, without TTL."""
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
    }
    block = msgspec.msgpack.encode([newest, *earlier][:HISTORY_MAX])
    return messages.encode(
        replace(
            message,
            flags=message.flags | Flag.DEAD_LETTER | Flag.INTERNAL,
            ttl_ms=0,
            delay_ms=0,
            ext={**message.ext, Ext.DEAD_LETTER: block},
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
