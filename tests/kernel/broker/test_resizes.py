"""Queues that are sealed and get successors (ADR 31), in the state machine of one Raft group."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from kernel.api.model import GroupOptions, QueueRef, TopicInfo, TopicOptions
from kernel.broker.group_state import queues as packing
from kernel.broker.group_state.state import GroupState
from kernel.broker.group_state.usage import Verb, counts
from kernel.broker.index.features import Feature
from kernel.broker.log_commands import commands
from kernel.broker.log_commands.resize_commands import (
    NEEDED,
    NOT_THERE,
    SEALED,
    Drained,
    NewQueue,
    Resize,
    Retire,
    Seal,
)
from kernel.broker.machine import Machine
from kernel.broker.snapshots.snapshot import dump, load, state_hash
from kernel.common import ring as rings
from kernel.common.errors import Code, KernelError
from kernel.common.feature_levels import LATEST, REPLICAS
from kernel.common.ids import LogIndex, Offset, QueueId, RaftGroup, TopicId, queue_id
from kernel.log.errors import FormatError, NotUnderstood
from kernel.log.format import entry as entries
from kernel.store.recovery.replaying import Silent
from tests.simulator.peer import Draft

HERE, ELSEWHERE = RaftGroup(1), RaftGroup(2)
TOPIC = TopicId(HERE << 32 | 1)
GROUPS = {"default": GroupOptions(ordered=True), "other": GroupOptions()}


class References(Counter[int]):
    """`observer.Retention`: messages that somebody needs, by log entry."""

    def retain(self, _group: int, index: int, references: int) -> None:
        self[index] += references

    def release(self, _group: int, index: int, references: int) -> None:
        self[index] -= references
        assert self[index] >= 0


class Topic:
    """A topic of queues in one Raft group, which it resizes as a leader would."""

    def __init__(self, queues: int = 1, options: TopicOptions | None = None) -> None:
        self.references = References()
        self.state = GroupState(HERE)
        self.state.feature_level = LATEST
        self.time_ms = 1
        self.use(self.state)
        self.options = options or TopicOptions(queues=queues)
        put = commands.PutTopic("t", "n", self.options, GROUPS, True, TOPIC, (int(HERE),) * queues)
        self.do(put)

    def use(self, state: GroupState) -> None:
        self.state = state
        self.machine = Machine(state, self.references, Silent(), LATEST)

    @property
    def info(self) -> TopicInfo:
        return self.state.topics[TOPIC].info()

    @property
    def ring(self) -> bytes:
        return self.info.ring or rings.first_ring(len(self.info.queues))

    def apply(self, packed: commands.Packed, slots: list[bytes] | None = None) -> object:
        batch = entries.encode_batch(entries.EntryBatch(0, 0, 0, (packed,), 7))
        lengths = [len(each) for each in slots or ()]
        body = entries.build(self.time_ms, [batch], lengths, slots or ())
        (results,) = self.machine.apply(LogIndex(self.state.applied + 1), 1, body)
        assert isinstance(results, tuple)
        return results[0]

    def do(self, change: commands.Control) -> object:
        return self.apply(commands.encode_control(change))

    def publish(self, number: int, count: int = 1, *, kind: int = 1, ident: bytes = b"") -> object:
        """Into the queue of a number: where the run went."""
        drafts = [Draft(b"x", deduplication_id=ident) for _ in range(count)]
        slots = [b"".join(each.parts((1, at), 1)) for at, each in enumerate(drafts)]
        features = int(Feature.DEDUPLICATE) if ident else 0
        run = (queue_id(TOPIC, number), 0, count, features)
        if kind == commands.Command.PREPARE:
            return self.apply((kind, 1, commands.encode_prepare("p", [run])), slots)
        (placed,) = self.apply((kind, 1, commands.encode_enqueue([run])), slots)  # type: ignore[misc]
        return placed

    def prepare(self, number: int) -> int:
        (half,) = self.publish(number, kind=int(commands.Command.PREPARE))  # type: ignore[misc]
        return half

    def ack(self, number: int, group: str, first: int, count: int) -> None:
        ranges = [commands.ACK_RANGE.pack(queue_id(TOPIC, number), first, count)]
        self.apply((int(commands.Command.ACK), 1, commands.encode_ack(group, ranges)))

    def ack_all(self, number: int) -> None:
        for group, progress in self.queue(number).groups.items():
            self.ack(number, group, progress.floor, self.tail(number) - progress.floor)

    def queue(self, number: int):
        return self.state.queues[queue_id(TOPIC, number)]

    def tail(self, number: int) -> int:
        return self.queue(number).index.tail

    def resize(self, queues: int, *, elsewhere: tuple[int, ...] = ()) -> dict[int, list[int]]:
        """Seal, make successors, publish the ring; of each new queue its predecessors."""
        before, resized = self.ring, self.state.resized.get(TOPIC)
        taken = {ref.id & 255 for ref in self.info.queues} | set(resized.sealed if resized else ())
        after = rings.resized(before, queues, rings.free_numbers(taken))
        return self.change_to(before, after, elsewhere)

    def change_to(
        self, before: bytes, after: bytes, elsewhere: tuple[int, ...] = ()
    ) -> dict[int, list[int]]:
        if before == after:
            return {}
        gone = sorted(rings.sealed(before, after))
        ends = self.do(Seal(TOPIC, tuple(gone)))
        assert isinstance(ends, list)
        assert self.do(Seal(TOPIC, tuple(gone))) == ends
        end_of = dict(zip(gone, ends, strict=True))
        new = {number: sorted(each) for number, each in rings.predecessors(before, after).items()}
        refs = [
            QueueRef(queue_id(TOPIC, number), ELSEWHERE if number in elsewhere else HERE)
            for number in new
        ]
        known = self.state.resized[TOPIC]
        change = self.change(
            tuple(sorted([*self.info.queues, *refs], key=lambda ref: ref.id)),
            after,
            tuple(
                NewQueue(
                    number,
                    Offset(max(end_of[each] for each in predecessors)),
                    tuple(predecessors),
                )
                for number, predecessors in new.items()
            ),
            known.offsets_from,
        )
        assert self.do(change) == self.info
        return new

    def change(
        self,
        queues: tuple[QueueRef, ...],
        ring: bytes,
        successors: tuple[NewQueue, ...] = (),
        offsets_from: int = 0,
    ) -> Resize:
        known = (TOPIC, self.info.version + 1, "t", "n", self.options, GROUPS)
        return Resize(*known, queues, ring, Offset(offsets_from), successors)

    def retire(self, number: int) -> object:
        """As a leader does: the definition loses the queue first."""
        left = tuple(ref for ref in self.info.queues if ref.id & 255 != number)
        self.do(self.change(left, self.info.ring))
        return self.do(Retire(queue_id(TOPIC, number)))

    def waits_for(self, number: int, group: str = "default") -> set[int]:
        return set(self.state.resized[TOPIC].successors[number].waits_for(group))

    def check(self) -> None:
        """What must hold at every moment, and behind a snapshot too."""
        rows = [each for each in counts(self.state) if each.verb is Verb.ROUTED]
        for each in rows[:1]:
            assert sum(row.messages for row in rows) == each.end_offset
        again = load(dump(self.state), LATEST)
        assert state_hash(again) == state_hash(self.state)
        assert again.sealed == self.state.sealed
        assert again.topics[TOPIC].info() == self.info
        self.use(again)


def test_a_sealed_queue_takes_nothing_new_and_the_rest_of_the_batch_is_stored() -> None:
    topic = Topic(2)
    assert topic.publish(0, 3) == 0
    assert topic.do(Seal(TOPIC, (0,))) == [3]
    assert topic.publish(0) == SEALED
    assert topic.prepare(0) == SEALED
    runs = [(queue_id(TOPIC, 0), 0, 1, 0), (queue_id(TOPIC, 1), 0, 1, 0)]
    slots = [b"".join(Draft(b"x").parts((1, 1), 1))]
    assert topic.apply((1, 1, commands.encode_enqueue(runs)), slots) == [SEALED, 0]
    assert topic.tail(0) == 3
    assert topic.do(Seal(TOPIC, (0, 1, 9))) == [3, 1, NOT_THERE]
    topic.check()


def test_half_messages_of_a_sealed_queue_are_committed_there_below_its_end() -> None:
    topic = Topic()
    topic.publish(0, 2)
    halves = [topic.prepare(0) for _ in range(3)]
    assert topic.do(Seal(TOPIC, (0,))) == [5]
    queue = queue_id(TOPIC, 0)
    offsets = [topic.do(commands.ResolveHalf(queue, each, True)) for each in halves[:2]]
    assert offsets == [[2], [3]]
    topic.do(commands.ResolveHalf(queue, halves[2], False))
    assert topic.do(Seal(TOPIC, (0,))) == [5]
    assert topic.tail(0) == 4
    topic.check()


def test_a_successor_begins_above_all_its_predecessors_and_waits_for_each() -> None:
    topic = Topic(2)
    topic.publish(0, 5)
    topic.publish(1, 9)
    assert topic.resize(1) == {2: [0, 1]}
    assert topic.publish(2, 4) == 9
    assert topic.waits_for(2) == topic.waits_for(2, "other") == {0, 1}
    queue = queue_id(TOPIC, 2)
    assert topic.do(Drained(queue, "default", 1)) is True
    topic.check()
    assert topic.waits_for(2) == {0}
    assert topic.waits_for(2, "other") == {0, 1}
    assert topic.do(Drained(queue, "nobody", 1)) is False
    assert topic.do(Drained(queue_id(TOPIC, 0), "default", 1)) is False
    # A group that was deleted and comes again has seen nothing.
    topic.do(commands.DeleteGroup(TOPIC, "default"))
    topic.do(
        commands.PutTopic("t", "n", topic.options, {"default": GroupOptions()}, False, TOPIC, ())
    )
    assert topic.waits_for(2) == {0, 1}
    topic.check()


def test_a_number_is_used_again_only_when_its_queue_is_gone_and_above_its_end() -> None:
    topic = Topic()
    topic.publish(0, 7)
    before = topic.ring
    assert topic.resize(2) == {1: [0], 2: [0]}
    assert topic.do(Retire(queue_id(TOPIC, 0))) == NEEDED
    topic.check()
    reused = NewQueue(0, Offset(0), (1,))
    change = topic.change(topic.info.queues, before, (reused,))
    error = topic.do(change)
    assert isinstance(error, KernelError)
    assert error.code is Code.IN_USE
    topic.ack(0, "default", 0, 7)
    assert topic.retire(0) == NEEDED  # the other group has not
    assert topic.do(change.__class__(**{**_fields(change), "version": topic.info.version + 1}))
    topic.ack(0, "other", 0, 7)
    assert topic.do(Retire(queue_id(TOPIC, 0))) == 7
    assert topic.do(Retire(queue_id(TOPIC, 0))) == NOT_THERE
    topic.check()
    assert topic.resize(1) == {0: [1, 2]}
    assert topic.publish(0) == 7
    topic.check()


def _fields(change: Resize) -> dict[str, object]:
    return {name: getattr(change, name) for name in change.__struct_fields__}


def test_a_window_of_deduplication_keeps_a_sealed_queue_until_it_is_past() -> None:
    topic = Topic(options=TopicOptions(deduplication_ms=1_000))
    topic.publish(0, ident=b"a")
    topic.resize(2)
    topic.ack_all(0)
    assert topic.retire(0) == NEEDED
    topic.time_ms += 1_000
    assert topic.do(Retire(queue_id(TOPIC, 0))) == 1
    topic.check()


def test_queues_elsewhere_are_made_by_their_own_group_alone() -> None:
    topic = Topic()
    topic.publish(0, 3)
    before, after = topic.ring, rings.moved(topic.ring, 0, range(1, 256))
    assert topic.change_to(before, after, elsewhere=(1,)) == {1: [0]}
    assert queue_id(TOPIC, 1) not in topic.state.queues
    assert topic.info.queue_of(5) == QueueRef(queue_id(TOPIC, 1), ELSEWHERE)
    topic.check()
    # Nor does a change of its settings make it.
    topic.do(commands.PutTopic("t", "n", topic.options, GROUPS, False, TOPIC, ()))
    assert queue_id(TOPIC, 1) not in topic.state.queues
    there = GroupState(ELSEWHERE)
    there.feature_level = LATEST
    machine = Machine(there, References(), Silent(), LATEST)
    new = (NewQueue(1, Offset(3), (0,)),)
    packed = commands.encode_control(topic.change(topic.info.queues, after, new, 0))
    for _ in range(2):
        batch = entries.encode_batch(entries.EntryBatch(0, 0, 0, (packed,)))
        machine.apply(LogIndex(there.applied + 1), 1, entries.build(1, [batch], (), ()))
    (number,) = there.queues
    assert there.queues[number].index.tail == 3
    assert there.resized[TOPIC].successors[1].waits_for("default") == {0}


def test_an_older_change_that_comes_late_changes_nothing() -> None:
    topic = Topic()
    late = topic.change(topic.info.queues, b"")
    topic.resize(2)
    topic.resize(4)
    info = topic.info
    assert topic.do(late) == info == topic.info


def test_a_topic_that_is_deleted_takes_all_its_queues_with_it() -> None:
    topic = Topic()
    topic.publish(0, 3)
    topic.resize(3)
    topic.publish(1, 2)
    assert topic.retire(0) == NEEDED  # the definition names it no more
    topic.do(commands.DeleteTopic(TOPIC))
    assert not topic.state.resized
    assert not topic.state.sealed
    assert not list(topic.state.queues)
    assert not +topic.references
    rows = [each for each in counts(topic.state) if each.verb is Verb.ROUTED]
    assert [(each.messages, each.end_offset) for each in rows] == [(5, 5)]


def test_no_build_applies_it_that_does_not_know_it_or_before_it_is_on() -> None:
    topic = Topic()
    topic.resize(2)
    with pytest.raises(FormatError, match="features up to level"):
        load(dump(topic.state), REPLICAS)
    for understands, level in ((REPLICAS, REPLICAS), (LATEST, REPLICAS)):
        state = GroupState(HERE)
        state.feature_level = level
        topic.machine = Machine(state, topic.references, Silent(), understands)
        topic.state = state
        with pytest.raises(NotUnderstood):
            topic.do(Seal(TOPIC, (0,)))


@pytest.mark.parametrize("seed", range(12))
def test_whatever_happens_nothing_is_counted_twice_and_offsets_rise(seed: int, monkeypatch) -> None:
    """Random publishes, acks, half messages, resizes, ends of queues, packing and snapshots."""
    monkeypatch.setattr(packing, "LIVE_MAX", 0)
    random = Random(seed)
    topic = Topic(random.choice((1, 2, 3)))
    highest: dict[int, int] = {}
    waiting: list[tuple[QueueId, int]] = []
    resizes = 0
    for _ in range(250):
        what = random.random()
        numbers = [ident & 255 for ident in topic.state.queues]
        number = random.choice(numbers)
        if what < 0.4:
            sealed = queue_id(TOPIC, number) in topic.state.sealed
            tail, count = topic.tail(number), random.choice((1, 2, 5))
            placed = topic.publish(number, count)
            assert placed == (SEALED if sealed else tail)
            assert topic.tail(number) == tail + (0 if sealed else count)
        elif what < 0.5:
            half = topic.prepare(number)
            assert (half == SEALED) == (queue_id(TOPIC, number) in topic.state.sealed)
            if half != SEALED:
                waiting.append((queue_id(TOPIC, number), half))
        elif what < 0.6 and waiting:
            queue, half = waiting.pop(random.randrange(len(waiting)))
            (offset,) = topic.do(commands.ResolveHalf(queue, half, random.random() < 0.5))  # type: ignore[misc]
            resized = topic.state.resized.get(TOPIC)
            if resized is not None and queue in topic.state.sealed:
                assert offset < resized.sealed[queue & 255]
        elif what < 0.75:
            topic.ack_all(number)
        elif what < 0.82:
            topic.state.queues.pack_idle(lambda _: False)
        elif what < 0.9:
            topic.check()
        elif what < 0.95:
            wanted = random.choice((1, 2, 3, 4, 8))
            before = set(topic.ring)
            ends = {each: topic.tail(each) for each in before}
            for new, predecessors in topic.resize(wanted).items():
                first = topic.queue(new).index.head
                assert first >= max(ends[each] for each in predecessors)
                assert first >= highest.get(new, 0)
            resizes += topic.state.resized.get(TOPIC) is not None
        else:
            for each in sorted(topic.state.resized[TOPIC].sealed if resizes else ()):
                end = topic.tail(each)
                if topic.retire(each) != NEEDED:
                    highest[each] = end
        assert set(topic.info.ring) <= {ref.id & 255 for ref in topic.info.queues}
    topic.check()
    assert resizes
    for queue, half in waiting:
        topic.do(commands.ResolveHalf(queue, half, False))
    for ident in list(topic.state.queues):
        topic.ack_all(ident & 255)
    assert not +topic.references
