"""Half messages of a gateway that has the store in its own process (see `transactions`).

Tokens: `u64 queue | u64 number`, little-endian. Like lease tokens they prove nothing by secrecy; a
number is never used twice in a Raft group, nor is a queue's id.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .broker import commands
from .broker.commands import Command
from .broker.features import Feature, features_of
from .broker.half_messages import OTHERWISE, UNKNOWN
from .broker.halves import HalfMessage
from .errors import Code, KernelError
from .ids import VOLATILE_GROUP, Offset, QueueId, TopicId
from .leader import Done, Leader
from .limits import (
    GROUP_NAME_BYTES_MAX,
    HALF_BYTES_PER_STORE_MAX,
    HALF_CHECKS_PER_TURN,
    HALVES_PER_STORE_MAX,
)
from .log import entry as entries
from .message import HEADER
from .model import QueueRef, TopicInfo
from .proposer import Proposer
from .store.node import Store
from .store.replica import Replica
from .transactions import HalfCheck, HalfSink, HalfWatch

_TOKEN = struct.Struct("<QQ")
_KEY_FIELD = 12


@dataclass(slots=True)
class HalfFigures:
    """Counters since this process began."""

    prepared: int = 0
    committed: int = 0
    rolled_back: int = 0
    """By a producer."""
    discarded: int = 0
    """Because nobody has decided."""
    checks_sent: int = 0
    checks_unheard: int = 0
    """Questions that no producer was there for."""


class _Watch:
    """`transactions.HalfWatch`."""

    __slots__ = ("_desk", "key", "sink")

    def __init__(self, desk: HalfDesk, key: tuple[str, str], sink: HalfSink) -> None:
        self._desk = desk
        self.key = key
        self.sink = sink

    def close(self) -> None:
        """Hear no more."""
        self._desk.unwatch(self)


class HalfDesk:
    """`transactions.HalfMessages` over a `Store` in this process."""

    def __init__(
        self,
        store: Store,
        proposer: Proposer,
        refusal: Callable[[int], KernelError | None],
    ) -> None:
        """`refusal(bytes)` says why new messages cannot be taken now."""
        self._store = store
        self._proposer = proposer
        self._refusal = refusal
        self._watches: dict[tuple[str, str], list[_Watch]] = {}
        self._coming: dict[TopicId, tuple[int, int]] = {}
        """(messages, bytes) on their way into the log, by topic."""
        self._checking: set[int] = set()
        self._turn = 0
        self.figures = HalfFigures()

    # --- Producers --------------------------------------------------------------------------

    async def prepare(self, topic: TopicInfo, producers: str, parts: Sequence[bytes]) -> bytes:
        """Store a half message; its token."""
        size = sum(map(len, parts))
        self._check(topic, producers, parts[0], size)
        ref = self._pick(topic, parts[0])
        identity = self._proposer.next_identity()
        body = commands.encode_prepare(producers, [(ref.id, 0, 1, features_of(parts[0]))])
        own = [(int(Command.PREPARE), commands.VERSION, body)]

        def attempt(leader: Leader, heard: Done) -> None:
            def applied(result: object) -> None:
                self._count(topic.id, -1, -size)
                heard(result)

            self._count(topic.id, 1, size)
            leader.submit(identity, own, [size], parts, applied, parts[0][1])

        number = _number(await self._proposer.outcome_in_time(ref.group, attempt))
        if not number:
            raise KernelError(Code.NOT_FOUND, f"topic {topic.name} was deleted")
        self.figures.prepared += 1
        return _TOKEN.pack(ref.id, number)

    async def end(
        self, topic: TopicInfo, token: bytes, *, commit: bool
    ) -> tuple[QueueId, Offset] | None:
        """Commit or roll back."""
        refs = {ref.id: ref for ref in topic.queues}
        ident, number = _TOKEN.unpack(token) if len(token) == _TOKEN.size else (0, 0)
        ref = refs.get(ident)
        if ref is None:
            raise KernelError(Code.LEASE_LOST, "not a half message of this topic")
        replica = self._store.replica(ref.group)
        is_waiting = number in replica.state.halves.waiting
        command = commands.ResolveHalf(ref.id, number, commit)
        identity = self._proposer.next_identity()
        outcome = _number(
            await self._proposer.outcome_in_time(
                ref.group, lambda leader, heard: leader.propose(command, identity, heard)
            )
        )
        if outcome == UNKNOWN:
            raise KernelError(Code.LEASE_LOST, "the half message is not known any more")
        if outcome == OTHERWISE:
            done = "rolled back" if commit else "committed"
            raise KernelError(Code.LEASE_LOST, f"the half message has been {done}")
        if is_waiting:
            self.figures.committed += commit
            self.figures.rolled_back += not commit
        return (ref.id, Offset(outcome)) if commit else None

    def _check(self, topic: TopicInfo, producers: str, header: bytes, size: int) -> None:
        """Raise for what cannot be prepared."""
        if not producers or len(producers.encode()) > GROUP_NAME_BYTES_MAX:
            raise KernelError(
                Code.INVALID_ARGUMENT, f"producer group must have 1 to {GROUP_NAME_BYTES_MAX} bytes"
            )
        if any(ref.group == VOLATILE_GROUP for ref in topic.queues):
            raise KernelError(
                Code.INVALID_ARGUMENT, f"topic {topic.name} is volatile: it keeps no half messages"
            )
        if features_of(header) & Feature.DEDUPLICATE:
            raise KernelError(Code.INVALID_ARGUMENT, "a half message cannot be deduplicated")
        refusal = self._refusal(size)
        if refusal is not None:
            raise refusal
        limits = topic.options.half
        messages, held = self._coming.get(topic.id, (0, 0))
        store_messages = sum(each[0] for each in self._coming.values())
        store_bytes = sum(each[1] for each in self._coming.values())
        for replica in self._store.replicas():
            halves = replica.state.halves
            known = halves.figures(topic.id)
            messages, held = messages + known[0], held + known[1]
            store_messages += len(halves.waiting)
            store_bytes += halves.bytes
        for name, value, most in (
            (f"half.messages_max of topic {topic.name}", messages + 1, limits.messages_max),
            (f"half.bytes_max of topic {topic.name}", held + size, limits.bytes_max),
            ("halves_per_store_max", store_messages + 1, HALVES_PER_STORE_MAX),
            ("half_bytes_per_store_max", store_bytes + size, HALF_BYTES_PER_STORE_MAX),
        ):
            if value > most:
                raise KernelError(
                    Code.LIMIT_EXCEEDED,
                    f"too much waits for a commit or rollback: {name} is {most}",
                )

    def _pick(self, topic: TopicInfo, header: bytes) -> QueueRef:
        """Queue of a message: by ordering key, else in turn."""
        key: int = HEADER.unpack_from(header)[_KEY_FIELD]
        if not key:
            self._turn += 1
            key = self._turn
        return topic.queues[key % len(topic.queues)]

    def _count(self, topic: TopicId, messages: int, size: int) -> None:
        known = self._coming.get(topic, (0, 0))
        left = known[0] + messages, known[1] + size
        if left[0]:
            self._coming[topic] = left
        else:
            self._coming.pop(topic, None)

    # --- Questions --------------------------------------------------------------------------

    def watch(self, tenant: str, producers: str, sink: HalfSink) -> HalfWatch:
        """Have questions about a producer group's half messages put to `sink`."""
        watch = _Watch(self, (tenant, producers), sink)
        self._watches.setdefault(watch.key, []).append(watch)
        return watch

    def unwatch(self, watch: _Watch) -> None:
        """End a registration."""
        watches = self._watches.get(watch.key, [])
        if watch in watches:
            watches.remove(watch)
            if not watches:
                del self._watches[watch.key]

    def ask(self) -> None:
        """Count the questions that are due, then put them; called each second."""
        for replica in self._store.replicas():
            if not replica.state.halves.waiting or replica.group in self._checking:
                continue
            due = replica.state.halves.due(replica.log_time_ms(), HALF_CHECKS_PER_TURN)
            if due:
                self._checking.add(replica.group)
                self._count_questions(replica, due)

    def _count_questions(self, replica: Replica, due: Sequence[int]) -> None:
        def counted(result: object) -> None:
            self._checking.discard(replica.group)
            numbers = result[0] if isinstance(result, tuple) and result else []
            for number in numbers:
                if number < 0:
                    self.figures.discarded += 1
                    continue
                half = replica.state.halves.waiting.get(number)
                if half is not None:
                    self._put(replica, half)

        replica.propose(commands.CheckHalves(tuple(due)), (0, 0, 0), counted)

    def _put(self, replica: Replica, half: HalfMessage) -> None:
        """Put a question to a producer, if there is one."""
        queue = replica.state.queues[half.queue]
        watches = self._watches.get((queue.topic.tenant, half.producers))
        if not watches:
            self.figures.checks_unheard += 1
            return
        entry = self._store.entry(replica.group, half.index)
        if entry is None:
            self._store.fetch(replica.group, half.index, lambda: self._fetched(replica, half))
            return
        watches.append(watches.pop(0))
        self.figures.checks_sent += 1
        watches[-1].sink.check(
            HalfCheck(
                queue.topic.tenant,
                queue.topic.name,
                _TOKEN.pack(half.queue, half.number),
                entries.slot(entry, half.slot),
                half.prepared_ms,
                half.checks,
            )
        )

    def _fetched(self, replica: Replica, half: HalfMessage) -> None:
        if half.number in replica.state.halves.waiting:
            self._put(replica, half)


def _number(result: object) -> int:
    """The one number that a command answers; 0: it had nothing to act on."""
    number: object = result[0] if isinstance(result, list) and result else 0
    return number if isinstance(number, int) else 0
