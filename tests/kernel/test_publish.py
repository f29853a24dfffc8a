"""A batch on its way: columns, runs, places, failures; no store behind it."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from kernel.api.client import PublishBatch
from kernel.api.message import UNIT_BYTES, key_hash
from kernel.api.model import GroupOptions, QueueRef, TopicInfo, TopicOptions
from kernel.api.tracing import ConnectedUser
from kernel.broker.index.features import LARGE, Feature, features_of
from kernel.common.errors import Code, KernelError
from kernel.common.ids import TRANSIENT_GROUP, RaftGroup, TopicId, queue_id
from kernel.requests.publish import ProducerBatch
from kernel.requests.publish_part import BatchPart
from kernel.routing.destinations import Found
from tests.simulator.peer import ORIGIN, Draft

numbers = itertools.count(1)


class Host:
    """`publish.BatchHost`."""

    def __init__(self) -> None:
        self.uid_high = 1
        self.next_uid = 1


class Heard:
    """`client.PublishSink`."""

    def __init__(self) -> None:
        self.batches: list[PublishBatch] = []

    def published(self, batch: PublishBatch) -> None:
        self.batches.append(batch)


def topic(*groups: int, name: str = "t", limit: int | None = None) -> TopicInfo:
    """A topic with a queue in each of these Raft groups."""
    ident = TopicId(next(numbers))
    refs = tuple(
        QueueRef(queue_id(ident, number), RaftGroup(group)) for number, group in enumerate(groups)
    )
    options = TopicOptions(queues=len(groups), messages_max=limit)
    return TopicInfo("default", name, ident, 1, options, refs, {"default": GroupOptions()})


def two_byte_topic() -> TopicInfo:
    """A topic that takes bodies of at most two bytes."""
    return TopicInfo(
        "default",
        "t",
        TopicId(next(numbers)),
        1,
        TopicOptions(message_bytes_max=2),
        (QueueRef(queue_id(TopicId(1), 0), RaftGroup(1)),),
        {},
    )


def add(batch: ProducerBatch, to: Found, *drafts: Draft, asks: object = None) -> None:
    for draft in drafts:
        parts = draft.parts(batch.uid(), 1)
        batch.add(to, parts, sum(map(len, parts)), asks)


def slots_of(part: BatchPart) -> list[bytes]:
    """The slots of a part, as the entry will hold them."""
    whole = b"".join(part.buffers)
    ends = list(itertools.accumulate(part.lengths))
    assert ends[-1] == len(whole)
    return [whole[start:end] for start, end in itertools.pairwise([0, *ends])]


def bodies(part: BatchPart, queue: int) -> list[bytes]:
    """Bodies (one octet each) of the messages of a queue, in order."""
    slots = slots_of(part)
    return [
        slots[slot + at][-1:]
        for each, slot, count, _ in part.runs
        for at in range(count)
        if each == queue
    ]


def queues(part: BatchPart) -> list[int]:
    """The queues that a part has messages for."""
    return list(dict.fromkeys(run[0] for run in part.runs))


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["one", "other", "spread", "both"]),
            st.sampled_from([Draft(b""), Draft(b"", priority=5), Draft(b"", key=b"k")]),
            st.lists(st.binary(max_size=3), min_size=1, max_size=5),
        ),
        min_size=1,
        max_size=6,
    )
)
def test_messages_alike_are_added_as_if_one_by_one(
    calls: list[tuple[str, Draft, list[bytes]]],
) -> None:
    one, other, spread = topic(1), topic(2), topic(1, 2)
    batches = []
    for how in ("columns", "one by one", "saying what they ask for"):
        ways = {
            "one": Found((one,)),
            "other": Found((other,)),
            "spread": Found((spread,)),
            "both": Found((one, other)),
        }
        batch = ProducerBatch(Host(), Heard(), ORIGIN)
        for way, like, texts in calls:
            drafts = [replace(like, body=text) for text in texts]
            if how == "columns":
                high, low = batch.uids(len(drafts))
                split = [each.parts((high, low + at), 1) for at, each in enumerate(drafts)]
                heads = [
                    b"".join(parts[: len(parts) - bool(d.body)])
                    for parts, d in zip(split, drafts, strict=True)
                ]
                sizes = [len(head) + len(text) for head, text in zip(heads, texts, strict=True)]
                batch.add_alike(ways[way], heads, texts, sizes)
            else:
                asks = like if how == "saying what they ask for" else None
                add(batch, ways[way], *drafts, asks=asks)
        batches.append(batch)
    *others, rows = batches
    for batch in others:
        assert (batch.count, batch.size_bytes) == (rows.count, rows.size_bytes)
        for ours, theirs in zip(batch.close(), rows.close(), strict=True):
            assert slots_of(ours) == slots_of(theirs)
            assert (ours.group, ours.runs, ours.lengths, ours.positions) == (
                theirs.group,
                theirs.runs,
                theirs.lengths,
                theirs.positions,
            )


def test_a_stretch_of_more_messages_than_a_run_counts_makes_two_runs() -> None:
    batch = ProducerBatch(Host(), Heard(), ORIGIN)
    to = Found((topic(1),))
    (header,) = Draft(b"").parts(batch.uid(), 1)
    for _ in range(60_002):
        batch.add(to, (header,), len(header), ORIGIN)
    assert batch.count == 60_002
    (part,) = batch.close()
    assert [run[1:3] for run in part.runs] == [[0, 60_000], [60_000, 2]]
    assert len(part.lengths) == len(part.buffers) == len(part.positions) == 60_002


def test_of_a_stretch_the_one_that_is_too_large_fails_alone() -> None:
    batch = ProducerBatch(Host(), Heard(), ORIGIN)
    add(batch, Found((two_byte_topic(),)), *map(Draft, (b"1", b"2", b"three", b"4")), asks=ORIGIN)
    (part,) = batch.close()
    assert part.positions == [0, 1, 3]
    assert list(batch.failures or ()) == [2]
    assert [run[1:3] for run in part.runs] == [[0, 3]]


def test_a_run_with_a_message_of_more_than_a_unit_says_so() -> None:
    batch = ProducerBatch(Host(), Heard(), ORIGIN)
    one, two = Found((topic(1),)), Found((topic(1), topic(1)))
    add(batch, one, *map(Draft, (b"1", b"2" * UNIT_BYTES)), asks=ORIGIN)
    add(batch, one, Draft(b"2" * (UNIT_BYTES + 1)), Draft(b"3"), asks=ORIGIN)
    add(batch, two, Draft(b"1"), Draft(b"2" * (UNIT_BYTES + 1)))
    (part,) = batch.close()
    assert [(run[2], bool(run[3] & LARGE)) for run in part.runs] == [
        (4, True),
        (2, True),
        (2, True),
    ]
    batch = ProducerBatch(Host(), Heard(), ORIGIN)
    add(batch, one, *map(Draft, (b"1", b"2" * UNIT_BYTES)), asks=ORIGIN)
    assert [bool(run[3] & LARGE) for run in batch.close()[0].runs] == [False]


def test_of_messages_alike_the_one_that_is_too_large_fails_alone() -> None:
    batch = ProducerBatch(Host(), Heard(), ORIGIN)
    bodies = [b"1", b"123", b"12"]
    heads = [b"".join(Draft(body).parts(batch.uid(), 1)[:1]) for body in bodies]
    batch.add_alike(
        Found((two_byte_topic(),)),
        heads,
        bodies,
        [len(head) + len(body) for head, body in zip(heads, bodies, strict=True)],
    )
    assert list(batch.failures or {}) == [1]
    assert batch.count == 3
    assert batch.close()[0].positions == [0, 2]


@settings(max_examples=80, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.sampled_from([b"", b"k", b"l"]),
            st.sampled_from([0, 5]),
            st.sampled_from([b"", b"id"]),
        ),
        min_size=1,
        max_size=30,
    )
)
def test_every_message_is_in_one_run_of_each_of_its_queues(
    wanted: list[tuple[int, bytes, int, bytes]],
) -> None:
    one, other, spread = topic(1), topic(2), topic(1, 2, 3)
    ways = [Found((one,)), Found((other,)), Found((spread,)), Found((one, other, spread))]
    batch = ProducerBatch(Host(), Heard(), ORIGIN)
    sent: dict[int, list[int]] = {}
    for number, (way, key, priority, ident) in enumerate(wanted):
        draft = Draft(bytes([number]), priority=priority, key=key, deduplication_id=ident)
        add(batch, ways[way], draft)
        for each in ways[way].topics:
            sent.setdefault(each.id, []).append(number)
    found: dict[int, list[int]] = {}
    for part in batch.close():
        slots = slots_of(part)
        assert part.positions == sorted(set(part.positions))
        for queue in queues(part):
            runs = [run for run in part.runs if run[0] == queue]
            numbers_here = [body[0] for body in bodies(part, queue)]
            assert numbers_here == sorted(numbers_here), "order within a queue"
            found.setdefault(queue >> 8, []).extend(numbers_here)
            for _, slot, count, features in runs:
                each = [features_of(one[:72]) for one in slots[slot : slot + count]]
                assert all(bits & features == bits for bits in each)
                # One message that asks for deduplication never makes others ask.
                assert len({bits & Feature.DEDUPLICATE for bits in each}) == 1
                assert features & Feature.DEDUPLICATE == each[0] & Feature.DEDUPLICATE
    assert {ident: sorted(each) for ident, each in found.items()} == sent
    assert batch.count == len(wanted)


def test_one_body_serves_all_queues_of_a_group() -> None:
    batch = ProducerBatch(Host(), Heard(), ORIGIN)
    add(batch, Found((topic(1), topic(1), topic(2))), Draft(b"x"), Draft(b"y"))
    assert {part.group: len(part.lengths) for part in batch.close()} == {1: 2, 2: 2}
    assert [len(part.runs) for part in batch.close()] == [2, 1]


def test_a_key_always_takes_the_same_queue_and_others_take_turns() -> None:
    spread = topic(1, 1, 1)
    to = Found((spread,))
    batch = ProducerBatch(Host(), Heard(), ORIGIN)
    add(batch, to, *[Draft(b"k", key=b"key")] * 4, *[Draft(b"-")] * 6)
    (part,) = batch.close()
    counts = {queue & 255: bodies(part, queue) for queue in queues(part)}
    own = key_hash(b"key") % 3
    assert counts[own].count(b"k") == 4
    assert [counts[number].count(b"-") for number in range(3)] == [2, 2, 2]


def test_a_run_never_holds_more_than_its_count_can_say() -> None:
    batch = ProducerBatch(Host(), Heard(), ORIGIN)
    to = Found((topic(1),))
    parts = Draft(b"").parts((1, 1), 1)
    for _ in range(70_000):
        batch.add(to, parts, 72)
    (part,) = batch.close()
    assert [run[1:3] for run in part.runs] == [[0, 60_000], [60_000, 10_000]]


def test_uids_are_never_given_twice() -> None:
    host = Host()
    one, two = ProducerBatch(host, Heard(), ORIGIN), ProducerBatch(host, Heard(), ORIGIN)
    given_ = [batch.uid() for batch in (one, two) * 50]
    assert len(set(given_)) == 100


# --- Answers --------------------------------------------------------------------------------


def answer(batch: ProducerBatch, results: Iterable[object]) -> list[PublishBatch]:
    """Have each part answered with a result; the batches that were complete by that."""
    complete: list[PublishBatch] = []
    batch.remaining = len(batch.close())
    for part, result in zip(batch.close(), results, strict=True):
        assert complete == []
        batch.part_done(part, complete.append, result)
    return complete


def test_places_are_where_the_groups_put_the_messages() -> None:
    one, other = topic(1), topic(2)
    batch = ProducerBatch(Host(), Heard(), ORIGIN)
    add(batch, Found((one,)), Draft(b"a"), Draft(b"b"))
    add(batch, Found((other,)), Draft(b"c"))
    twice = [Draft(body, deduplication_id=b"i") for body in (b"d", b"e")]
    add(batch, Found((one,)), *twice)
    uid = bytes(range(16))
    assert answer(batch, [([100, [(102, b""), (7, uid)]],), ([50],)]) == [batch]
    queue, elsewhere = one.queues[0].id, other.queues[0].id
    assert [batch.place(position) for position in range(6)] == [
        (queue, 100),
        (queue, 101),
        (elsewhere, 50),
        (queue, 102),
        (queue, 7),
        None,
    ]
    assert batch.duplicates == {4: uid}
    assert batch.failures is None


def test_a_queue_that_is_gone_counts_as_done_and_has_no_place() -> None:
    batch = ProducerBatch(Host(), Heard(), ORIGIN)
    add(batch, Found((topic(1),)), Draft(b"a"))
    assert answer(batch, [([-1],)]) == [batch]
    assert (batch.place(0), batch.failures, batch.duplicates) == (None, None, None)


def test_transient_messages_have_no_place() -> None:
    batch = ProducerBatch(Host(), Heard(), ORIGIN)
    add(batch, Found((topic(int(TRANSIENT_GROUP)),)), Draft(b"a"))
    answer(batch, [([5],)])
    assert batch.place(0) is None


def test_a_refused_part_fails_its_messages_only() -> None:
    batch = ProducerBatch(Host(), Heard(), ORIGIN)
    one, other = Found((topic(1),)), Found((topic(2),))
    add(batch, one, Draft(b"a"))
    add(batch, other, Draft(b"b"))
    add(batch, one, Draft(b"c"))
    refused = KernelError(Code.NO_SPACE, "full")
    assert answer(batch, [(refused,), ([0],)]) == [batch]
    assert batch.failures == {0: refused, 2: refused}
    assert batch.place(1) is not None


@pytest.mark.parametrize("result", [None, (), (None,)])
def test_a_part_without_results_is_done(result: object) -> None:
    batch = ProducerBatch(Host(), Heard(), ORIGIN)
    add(batch, Found((topic(1),)), Draft(b"a"))
    assert answer(batch, [result]) == [batch]
    assert batch.failures is None


def test_the_first_failure_of_a_message_stays() -> None:
    batch = ProducerBatch(Host(), Heard(), ORIGIN)
    first, second = (KernelError(Code.BUSY, text) for text in ("first", "second"))
    batch.fail(3, first)
    batch.fail(3, second)
    assert batch.failures == {3: first}


def test_what_a_full_topic_has_refused_fails_and_the_others_keep_their_copy() -> None:
    full, free = topic(1, name="full", limit=1), topic(2, name="free")
    batch = ProducerBatch(Host(), Heard(), ORIGIN)
    add(batch, Found((full, free)), Draft(b"a"), Draft(b"b"))
    one, two = batch.close()
    batch.part_told(one, ([[(7, b"")]],))
    batch.part_told(two, ([3],))
    assert batch.failures is not None
    assert {at: each.code for at, each in batch.failures.items()} == {1: Code.REJECTED}
    assert batch.place(0) == (full.queues[0].id, 7)
    assert batch.duplicates is None


def test_a_batch_that_is_stored_once_has_no_deduplication_ids() -> None:
    batch = ProducerBatch(Host(), Heard(), ORIGIN)
    batch.once(7, 1)
    spread = Found((topic(1, 2),))
    add(batch, spread, Draft(b"a", key=b"k"), Draft(b"b", key=b"k", deduplication_id=b"i"))
    assert [bodies(part, each) for part in batch.close() for each in queues(part)] == [[b"a"]]
    assert batch.failures is not None
    assert batch.failures.keys() == {1}
    assert batch.failures[1].code is Code.INVALID_ARGUMENT


def test_a_batch_that_several_share_remembers_who_has_added_what() -> None:
    batch = ProducerBatch(Host(), Heard(), ORIGIN)
    assert batch.speakers is None
    queue = topic(1)
    ann, bob = (ConnectedUser("t", name, "p", "", "") for name in ("ann", "bob"))
    for by, messages in ((ann, 2), (ann, 1), (bob, 1), (None, 1)):
        batch.comes_from(by)
        for _ in range(messages):
            add(batch, Found((queue,)), Draft(b"x"))
    assert batch.speakers == [(0, ann), (3, bob), (4, None)]
