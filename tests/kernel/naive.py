"""A topic as anyone would write it who has never heard of logs: a list of messages.

Follows the contract of `kernel.api.client`, one message at a time. It does not predict which
consumer gets a message, but says of every delivery whether it was allowed, and what must be left.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum

from kernel.api.model import GroupOptions, Overflow, TopicInfo, TopicOptions
from tests.simulator.peer import Delivery, Peer, Recorder
from tests.simulator.world import World

LOOK_MS = 1_000
"""How often retention is looked after."""

TRIM_LATE_MS = LOOK_MS + 100


class Where(Enum):
    READY = "ready"
    HELD = "held"
    GONE = "gone"
    LAPSED = "lapsed"
    """Too old for the topic: gone, but somebody holds it."""


@dataclass
class Note:
    """One message."""

    offset: int
    body: bytes
    level: int
    deadline_ms: int | None
    sent_ms: int
    where: Where = Where.READY
    failures: int = 0
    """Deliveries that came to nothing, as far as is certain."""
    doubtful: int = 0
    """So many more may count after crashes: it may have been handed out or not."""
    seen: bool = False
    """It has been delivered."""

    @property
    def key(self) -> tuple[int, int]:
        """Place in the order of delivery."""
        return -self.level, self.offset

    def has_expired(self, now_ms: int) -> bool:
        return self.deadline_ms is not None and self.deadline_ms <= now_ms


@dataclass
class Consumer:
    """A recorder, and what the model knows of it."""

    topic: str
    recorder: Recorder
    peer: Peer
    priority: int
    exclusive: bool
    auto_ack: bool
    credit: int = 0
    heard: int = 0
    """Rows of the recorder that the model has seen."""
    cancelled: bool = False
    rows: dict[int, Delivery] = field(default_factory=dict)
    """By offset: what it holds."""


def pick(number: int, among: list[Consumer]) -> Consumer:
    """One of the consumers that a rule is about."""
    return among[number % len(among)]


@dataclass
class NaiveTopic:
    """One topic with one group."""

    options: TopicOptions
    group: GroupOptions
    notes: list[Note] = field(default_factory=list)
    dead: Counter[bytes] = field(default_factory=Counter)
    """Bodies that must have gone to the topic of dead letters."""
    expired: int = 0
    """Messages that went unacked because they were too old."""

    def ready(self) -> list[Note]:
        """What is ready, in the order in which it is to be handed out."""
        found = [note for note in self.notes if note.where is Where.READY]
        return sorted(found, key=lambda note: note.key)

    def count(self, *where: Where) -> int:
        return sum(1 for note in self.notes if note.where in where)

    def room(self) -> int | None:
        """How many messages more are accepted; None if that is not limited."""
        options = self.options
        if options.messages_max is None or options.overflow is Overflow.DROP_OLDEST:
            return None
        return max(0, options.messages_max - self.count(Where.READY))

    def append(self, body: bytes, priority: int, ttl_ms: int, now_ms: int) -> None:
        ttls = [each for each in (ttl_ms, self.options.message_ttl_ms) if each]
        self.notes.append(
            Note(
                len(self.notes),
                body,
                min(priority, self.options.priority_max),
                now_ms + min(ttls) if ttls else None,
                now_ms,
            )
        )

    def deliver(self, offset: int, body: bytes, attempt: int, *, acked: bool) -> Note:
        """A consumer got this: it may have been given to nobody else."""
        note = self.notes[offset]
        assert note.body == body
        assert note.where is Where.READY, f"{body!r} was delivered while {note.where.value}"
        failures = attempt - 1
        assert note.failures <= failures <= note.failures + note.doubtful, (
            f"{body!r}: attempt {attempt} after {note.failures} failures"
        )
        note.failures, note.doubtful = failures, 0
        note.where = Where.GONE if acked else Where.HELD
        return note

    def ack(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            self._let_go(offset)

    def release(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            note = self._held(offset)
            attempts_max = self.group.attempts_max
            if note.where is Where.LAPSED:
                note.where = Where.GONE
            elif attempts_max is not None and note.failures + 1 >= attempts_max:
                self._die(note)
            else:
                note.failures += 1
                note.where = Where.READY

    def give_back(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            if self._let_go(offset):
                self.notes[offset].where = Where.READY

    def reject(self, offsets: Iterable[int]) -> None:
        for offset in offsets:
            if self._let_go(offset):
                self._die(self.notes[offset])

    def purge(self) -> int:
        dropped = self.ready()
        for note in dropped:
            note.where = Where.GONE
        return len(dropped)

    def drop_passed_over(
        self, delivered: Iterable[Note], now_ms: int, *, has_recorders: bool
    ) -> None:
        """Expired messages that dispatch has come upon: those before the last one that it handed
        out of their level, or all if somebody would still take more.
        """
        last: dict[int, int] = {}
        for note in delivered:
            last[note.level] = max(note.offset, last.get(note.level, -1))
        for note in self.ready():
            if note.has_expired(now_ms) and (
                has_recorders or note.offset < last.get(note.level, -1)
            ):
                self._expire(note)

    def drop_excess(self) -> None:
        """From the front of the highest level, down to the limit."""
        options = self.options
        if options.messages_max is None or options.overflow is not Overflow.DROP_OLDEST:
            return
        ready = sorted(self.ready(), key=lambda note: (-note.level, note.offset))
        for note in ready[: max(0, len(ready) - options.messages_max)]:
            self._die(note)

    def pause(self, now_ms: int, until_ms: int) -> int:
        """A time until which retention looks once at most, and no message expires before its end:
        of a longer one nobody could tell which of the two took a message first.
        """
        deadlines = [note.deadline_ms for note in self.notes if note.deadline_ms is not None]
        return min(
            [until_ms, now_ms + LOOK_MS // 2, *(each for each in deadlines if each > now_ms)]
        )

    def expire(self, now_ms: int) -> None:
        """Expired messages at the front of a level go at once, the others when they get there."""
        for level in range(self.options.priority_max + 1):
            for note in self.ready():
                if note.level == level:
                    if not note.has_expired(now_ms):
                        break
                    self._expire(note)

    def trim(self, trimmed: int, now_ms: int) -> None:
        """Retention has let go of everything below `trimmed`: no more than it may, and all that it
        must. Since it was asked last retention has looked once at most.
        """
        retention_ms = self.options.retention_ms
        if retention_ms is None:
            assert not trimmed
            return
        for note in self.notes[:trimmed]:
            assert note.sent_ms + retention_ms < now_ms, "it was dropped before its time"
            if note.where is Where.READY or note.where is Where.HELD:
                self.expired += 1
                note.where = Where.GONE if note.where is Where.READY else Where.LAPSED
        self.expire(now_ms)  # what is at the front now
        for note in self.notes[trimmed:]:
            in_time = note.sent_ms + retention_ms + TRIM_LATE_MS >= now_ms
            assert in_time or note.where is Where.GONE, "it was kept too long"

    def crash(self) -> None:
        """Nobody holds anything any more; what may have been seen comes back as redelivered."""
        for note in self.notes:
            if note.where is Where.LAPSED:
                note.where = Where.GONE
            elif note.where is Where.HELD:
                note.failures += 1
                note.where = Where.READY
            elif note.where is Where.READY:
                note.doubtful += 1

    def _held(self, offset: int) -> Note:
        note = self.notes[offset]
        assert note.where in {Where.HELD, Where.LAPSED}
        return note

    def _let_go(self, offset: int) -> bool:
        """Nobody holds a message any more; whether it was still there."""
        note = self._held(offset)
        was_there = note.where is Where.HELD
        note.where = Where.GONE
        return was_there

    def _die(self, note: Note) -> None:
        note.where = Where.GONE
        if self.group.dead_letter is not None:
            self.dead[note.body] += 1

    def _expire(self, note: Note) -> None:
        self.expired += self.group.dead_letter is None
        self._die(note)


def trimmed_to(world: World, topic: TopicInfo) -> int:
    """Below which offset retention has let go of a topic; the model judges whether rightly."""
    ref = topic.queues[0]
    return world.opened.store.replica(ref.group).state.queues[ref.id].trimmed
