"""What a run was promised, and the check that a recovered store keeps it.

A *copy* is one message in one topic. Each goes through states, told by the calls and answers of
the run; between call and answer it is in doubt, and a power loss may leave either.

    SUBMITTED    may be there
    CONFIRMED    must be there
    LEAVING      may be gone (its ack, deletion, purge or dead-lettering was asked for)
    LEFT         must be gone

A dead letter is never in doubt altogether: until it has left it is in its topic or, once, in the
topic of dead letters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

Copy = tuple[str, bytes]
"""(topic, uid)"""


class Stage:
    """Bits of a copy's stage: plain integers, they are looked at a million times."""

    SUBMITTED = 1
    CONFIRMED = 2
    LEAVING = 4
    LEFT = 8


class Thing(Enum):
    """State of a name."""

    GONE = 0
    THERE = 1
    DOUBTFUL = 2


@dataclass(frozen=True, slots=True)
class Seen:
    """One message that a recovered store delivered."""

    queue: int
    offset: int
    uid: bytes
    body: bytes
    attempt: int
    priority: int


@dataclass(frozen=True, slots=True)
class Observation:
    """What a recovered store showed: its topics with what they deliver, in order; its names."""

    topics: Mapping[str, Sequence[Seen]]
    names: frozenset[str]
    halves: Mapping[bytes, bytes] = field(default_factory=dict)
    """Half messages: uid to body."""

    def messages(self) -> set[tuple[str, Seen]]:
        """Every message with its topic. (Between queues there is no order.)"""
        return {(topic, row) for topic, rows in self.topics.items() for row in rows}


@dataclass
class Ledger:
    """Facts of a run. Everything that changes is replaced or added to by whole values, so that a
    shallow copy is a snapshot."""

    copies: dict[Copy, int] = field(default_factory=dict)
    bodies: dict[bytes, bytes] = field(default_factory=dict)
    order: dict[Copy, int] = field(default_factory=dict)
    """When the copy was submitted: messages of one queue keep this order."""
    unordered: set[str] = field(default_factory=set)
    """Topics that several writers fill."""
    dead_letter_of: dict[Copy, Copy] = field(default_factory=dict)
    """The copy that takes its place when a message is dead-lettered or expires."""
    expires_ms: dict[Copy, int] = field(default_factory=dict)
    attempts: dict[Copy, int] = field(default_factory=dict)
    """Attempts that a message has behind it for certain."""
    names: dict[str, Thing] = field(default_factory=dict)
    halves: dict[bytes, Thing] = field(default_factory=dict)
    """Half messages by uid."""

    # --- Told by the run --------------------------------------------------------------------

    def submitted(self, topic: str, uid: bytes, body: bytes) -> None:
        self.bodies[uid] = body
        self.copies[topic, uid] = Stage.SUBMITTED
        self.order[topic, uid] = len(self.order)

    def confirmed(self, topic: str, uid: bytes) -> None:
        self.copies[topic, uid] |= Stage.CONFIRMED

    def leaving(self, topic: str, uid: bytes) -> None:
        self.copies[topic, uid] |= Stage.LEAVING

    def left(self, topic: str, uid: bytes) -> None:
        self.copies[topic, uid] |= Stage.LEFT

    def may_become_dead_letter(
        self, topic: str, uid: bytes, dead: str, expires_ms: int | None = None
    ) -> None:
        """From now on, or from a time on, the copy may be in `dead` instead."""
        dead_letter = (dead, uid)
        self.dead_letter_of[topic, uid] = dead_letter
        self.copies.setdefault(dead_letter, Stage.SUBMITTED)
        if expires_ms is None:
            self.leaving(topic, uid)
        else:
            self.expires_ms[topic, uid] = expires_ms

    def is_dead_letter(self, topic: str, uid: bytes) -> None:
        """The answer came, or the dead letter was seen: it is in `dead` and nowhere else."""
        self.left(topic, uid)
        self.confirmed(*self.dead_letter_of[topic, uid])

    def in_topic(self, topic: str) -> list[bytes]:
        """Uids of the copies that may still be in a topic, in order of submission."""
        return [
            uid
            for (name, uid), stage in self.copies.items()
            if name == topic and not stage & Stage.LEFT
        ]

    def snapshot(self) -> Ledger:
        """The facts as they are now."""
        return Ledger(
            dict(self.copies),
            self.bodies,
            self.order,
            self.unordered,
            dict(self.dead_letter_of),
            dict(self.expires_ms),
            dict(self.attempts),
            dict(self.names),
            dict(self.halves),
        )

    # --- Checked ----------------------------------------------------------------------------

    def check(self, seen: Observation, wall_ms: int) -> None:
        """A store recovered at `wall_ms` kept every promise."""
        self._check_names(seen)
        self._check_halves(seen)
        there: set[Copy] = set()
        for topic, rows in seen.topics.items():
            for row in rows:
                self._check_row(topic, row)
                assert (topic, row.uid) not in there, f"{topic}: {row.body!r} is there twice"
                there.add((topic, row.uid))
            self._check_order(topic, rows)
        for copy, stage in self.copies.items():
            self._check_copy(copy, stage, there, wall_ms)

    def _check_names(self, seen: Observation) -> None:
        for name, thing in self.names.items():
            if thing is Thing.THERE:
                assert name in seen.names, f"{name} is lost"
            elif thing is Thing.GONE:
                assert name not in seen.names, f"{name} has come back"
        unknown = seen.names - self.names.keys()
        assert not unknown, f"nobody has made {sorted(unknown)}"

    def _check_halves(self, seen: Observation) -> None:
        for uid, thing in self.halves.items():
            if thing is Thing.THERE:
                assert seen.halves.get(uid) == self.bodies[uid], "a half message is lost"
            elif thing is Thing.GONE:
                assert uid not in seen.halves, "a half message has come back"
        assert seen.halves.keys() <= self.halves.keys(), "nobody has prepared it"

    def _check_row(self, topic: str, row: Seen) -> None:
        stage = self.copies.get((topic, row.uid))
        assert stage is not None, f"{topic}: nobody has sent {row.body[:20]!r}"
        assert row.body == self.bodies[row.uid], f"{topic}: another body"
        assert not stage & Stage.LEFT, f"{topic}: {row.body[:20]!r} was acked and came back"
        least = self.attempts.get((topic, row.uid), 0) + 1
        assert row.attempt >= least, f"{topic}: attempt {row.attempt}, at least {least} expected"

    def _check_order(self, topic: str, rows: Sequence[Seen]) -> None:
        last: dict[tuple[int, int], tuple[int, int]] = {}
        for row in rows:
            lane = (row.queue, row.priority)
            place = (row.offset, self.order.get((topic, row.uid), -1))
            before = last.get(lane, (-1, -1))
            assert place[0] > before[0], f"{topic}: delivered out of order"
            if topic not in self.unordered:
                assert place[1] > before[1], f"{topic}: stored out of order"
            last[lane] = place

    def _check_copy(self, copy: Copy, stage: int, there: set[Copy], wall_ms: int) -> None:
        if not stage & Stage.CONFIRMED or stage & Stage.LEFT:
            return
        topic, uid = copy
        expired = copy in self.expires_ms and self.expires_ms[copy] <= wall_ms
        dead_letter = self.dead_letter_of.get(copy)
        if dead_letter is not None and (expired or stage & Stage.LEAVING):
            if not self.copies[dead_letter] & (Stage.LEFT | Stage.LEAVING):
                places = (copy in there) + (dead_letter in there)
                assert places == 1, f"{topic}: {self.bodies[uid][:20]!r} is in {places} places"
        elif not stage & Stage.LEAVING:
            assert copy in there, f"{topic}: {self.bodies[uid][:20]!r} is lost"
