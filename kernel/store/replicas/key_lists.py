"""Which keys a sealed queue has unsettled, as its leader tells successors in other Raft groups
(ADR 31): sans-I/O. `gates` is the other end.

    a question             its answer
    no version known       all keys, or that they are too many
    an older version       those that are free since
    the version of now     waits until a key is free, or WAIT_MS are over

Nobody hears anything unless the queue is sealed here and ends where the question says: who has not
applied SEAL, or is so far behind that it has the queue that had the number before, does not know
all there is. Who has applied it and is behind knows of fewer settled messages, and tells of more
keys.

A list is one of a queue and group, whoever asks. It is forgotten LIST_MS after the last question,
and with the leader: whoever asks next hears of all keys again.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count

from ...broker.group_state.state import GroupState, QueueState
from ...common.errors import Code, KernelError
from ...common.ids import NUMBER_BITS, QueueId, topic_of
from ...requests.peer_stores import NO_VERSION, KeysAnswer, KeysQuestion
from .unsettled_keys import GATE_MESSAGES_MAX, UnsettledKeys, unsettled_keys

WAIT_MS = 1_000
"""A question waits so long, and up to a second more, as it is looked at each second: together less
than one try of a question takes (`remote.leader_calls.leaders.QUESTION_TRY_MS`)."""

LIST_MS = 10_000
"""Then nobody waits any more: who does asks again within a second or two."""

WAITING_MAX = 1_024
"""Questions of one Raft group that wait: a successor has one for each predecessor and group, and a
topic 64 queues. Who is one too many is answered at once, and asks again in a second."""

MESSAGES_MAX = 4 * GATE_MESSAGES_MAX
"""Unsettled messages in all lists of one Raft group: 32 MB. Of more the whole successor waits."""

Done = Callable[[KeysAnswer | KernelError], None]


@dataclass(slots=True)
class _Waiting:
    """A question that waits for the next key that is free."""

    done: Done
    known: int
    since_ms: int


class _List:
    """Of one queue and group."""

    __slots__ = ("asked_ms", "freed", "keys", "number", "term", "waiting")

    def __init__(self, keys: UnsettledKeys, term: int, number: int) -> None:
        self.keys = keys
        self.freed = array("Q")
        """Keys in the order in which they have become free, each once."""
        self.term = term
        self.number = number
        self.waiting: list[_Waiting] = []
        self.asked_ms = 0

    def answer(self, known: int) -> KeysAnswer:
        """What is free since then."""
        version = self.term, self.number, len(self.freed)
        return KeysAnswer(version, tuple(self.freed[known:]), is_all=False)

    def all(self) -> KeysAnswer:
        """Every key that is not free."""
        version = self.term, self.number, len(self.freed)
        return KeysAnswer(version, tuple(self.keys.messages), is_all=True)


class KeyLists:
    """Those of one Raft group, at its leader."""

    def __init__(
        self, state: GroupState, now_ms: Callable[[], int], monotonic_ms: Callable[[], int]
    ) -> None:
        """`now_ms`: the log's time."""
        self._state = state
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        self._lists: dict[tuple[QueueId, str], _List] = {}
        self._numbers = count(1)

    @property
    def is_busy(self) -> bool:
        """Whether anybody has asked lately (hot)."""
        return bool(self._lists)

    @property
    def waiting_count(self) -> int:
        """Questions that wait."""
        return sum(len(each.waiting) for each in self._lists.values())

    def ask(self, question: KeysQuestion, term: int, done: Done) -> None:
        """Answer a question of a successor, now or later; `term`: in which this node leads."""
        queue = self._sealed(question)
        if queue is None:
            message = "no sealed queue that ends there is known here"
            done(KernelError(Code.NOT_FOUND, message))
            return
        found = self._lists.get((queue.id, question.group)) or self._make(queue, question, term)
        if found is None:
            done(KeysAnswer(NO_VERSION, None, is_all=True))
            return
        found.asked_ms = self._monotonic_ms()
        *which, known = question.version
        if which != [found.term, found.number] or known > len(found.freed):
            done(found.all())
        elif known < len(found.freed):
            done(found.answer(known))
        elif self.waiting_count >= WAITING_MAX:
            done(KeysAnswer(NO_VERSION, None, is_all=True))
        else:
            found.waiting.append(_Waiting(done, known, found.asked_ms))

    def _sealed(self, question: KeysQuestion) -> QueueState | None:
        """The queue that is asked about, if it is the one that is meant."""
        resized = self._state.resized.get(topic_of(question.queue))
        queue = self._state.queues.get(question.queue)
        if resized is None or queue is None or question.group not in queue.groups:
            return None
        return queue if resized.sealed.get(queue.id & NUMBER_BITS) == question.end else None

    def _make(self, queue: QueueState, question: KeysQuestion, term: int) -> _List | None:
        keys = unsettled_keys(self._state, queue, question.group, self._now_ms())
        kept = sum(len(each.keys) + 1 for each in self._lists.values())
        if keys is None or kept + len(keys) > MESSAGES_MAX:
            return None
        found = self._lists[queue.id, question.group] = _List(keys, term, next(self._numbers))
        return found

    # --- What has happened ------------------------------------------------------------------

    def settled(self, queue: QueueId, group: str, offsets: Iterable[int]) -> None:
        """Messages are settled, in the log."""
        found = self._lists.get((queue, group))
        if found is not None:
            found.freed.extend(found.keys.settled(offsets))

    def purged(self, queue: QueueState, group: str) -> None:
        """Any of them may be settled."""
        found = self._lists.get((queue.id, group))
        if found is not None:
            found.freed.extend(found.keys.look(queue, group))

    def drop(self, queue: QueueId, group: str) -> None:
        """What was known of a queue and group does not count any more."""
        found = self._lists.pop((queue, group), None)
        if found is not None:
            self._refuse(found, KernelError(Code.NOT_FOUND, "the group of the queue has gone"))

    def look(self) -> None:
        """Entries were applied: tell who waits for it."""
        halves, now_ms = self._state.halves, self._now_ms()
        for (ident, group), found in self._lists.items():
            queue = self._state.queues.get(ident)
            if queue is not None and group in queue.groups:
                found.freed.extend(found.keys.look_at_halves(halves, queue, group, now_ms))
            if found.waiting and found.waiting[0].known < len(found.freed):
                self._answer(found, len(found.waiting))

    def look_at_all(self) -> None:
        """Asked each second: look at every message, for what is settled without a word; tell who
        has waited long enough; forget what nobody asks about.
        """
        now_ms = self._monotonic_ms()
        for (ident, group), found in list(self._lists.items()):
            queue = self._state.queues.get(ident)
            if queue is None or group not in queue.groups:
                self.drop(ident, group)
                continue
            self.purged(queue, group)
            late = sum(now_ms - each.since_ms >= WAIT_MS for each in found.waiting)
            self._answer(found, late)
            if not found.waiting and now_ms - found.asked_ms >= LIST_MS:
                del self._lists[ident, group]
        self.look()

    @staticmethod
    def _answer(found: _List, questions: int) -> None:
        """The oldest that wait."""
        some, found.waiting = found.waiting[:questions], found.waiting[questions:]
        for each in some:
            each.done(found.answer(each.known))

    def follow(self, error: KernelError) -> None:
        """It leads no more."""
        lists, self._lists = self._lists, {}
        for each in lists.values():
            self._refuse(each, error)

    @staticmethod
    def _refuse(found: _List, error: KernelError) -> None:
        for each in found.waiting:
            each.done(error)
