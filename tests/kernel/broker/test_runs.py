"""`RunIndex` against a plain list of messages."""

from __future__ import annotations

import tracemalloc
from array import array
from dataclasses import dataclass

import hypothesis.strategies as st
import msgspec
import pytest
from hypothesis import given, settings

from kernel.api.message import TTL_AT_ONCE
from kernel.broker.applying.sweep import punch
from kernel.broker.index.features import U32_MAX, Feature, columns_of, features_of
from kernel.broker.index.run_page import RUNS_PER_PAGE, RunPage, dumped_young, young_of
from kernel.broker.index.runs import DEAD_RUNS_KEPT, YOUNG_RUNS_MAX, RunIndex
from kernel.log.format import entry as entries
from tests.simulator.peer import Draft

KINDS = {Feature.PRIORITY: "B", Feature.TTL: "I", Feature.DELAY: "I", Feature.KEY: "Q"}


@dataclass(frozen=True)
class Place:
    """Where one message lies, and its values."""

    index: int
    slot: int
    time_ms: int
    values: tuple[tuple[int, int], ...] = ()


@st.composite
def batches(draw: st.DrawFn) -> list[list[Place]]:
    """Runs as batches bring them: entries and times rise, slots rise within an entry."""
    made: list[list[Place]] = []
    index, slot, time_ms = 1, 0, 1_000
    for _ in range(draw(st.integers(1, 30))):
        if draw(st.booleans()):
            index, slot = index + draw(st.integers(1, 3)), 0
            time_ms += draw(st.integers(0, 5))
        slot += draw(st.sampled_from((0, 0, 2)))
        count = draw(st.integers(1, 5))
        features = (
            draw(st.sets(st.sampled_from(sorted(KINDS)), max_size=2))
            if draw(st.booleans())
            else set()
        )
        run = []
        for at in range(count):
            values = tuple((int(each), draw(st.integers(0, 255))) for each in sorted(features))
            run.append(Place(index, slot + at, time_ms, values))
        slot += count
        made.append(run)
    return made


def size_of_run(run: list[Place]) -> int:
    """No multiple of its length, and sometimes nothing."""
    return run[0].index % 7 * (3 * len(run) + 1)


def build(runs: list[list[Place]]) -> tuple[RunIndex, list[Place]]:
    index = RunIndex()
    places: list[Place] = []
    for run in runs:
        columns = {
            feature: array(KINDS[feature], [dict(each.values)[feature] for each in run])
            for feature, _ in run[0].values
        }
        where = run[0].index, run[0].slot, len(run), run[0].time_ms
        size = size_of_run(run)
        first = index.append_with(*where, columns, size) if columns else index.append(*where, size)
        assert first == len(places)
        places += run
    return index, places


def check(index: RunIndex, places: list[Place], head: int = 0) -> None:
    assert index.tail == len(places)
    assert index.head <= head or index.head == index.tail
    for at in range(index.head, index.tail):
        run = index.find(at)
        assert index.time_at(at) == run.time_ms
        here = places[at]
        assert (run.first, run.index, run.slot, run.time_ms) == (
            at,
            here.index,
            here.slot,
            here.time_ms,
        )
        for behind in range(run.end - at):
            there = places[at + behind]
            assert (there.index, there.slot) == (run.index, run.slot + behind)
            for feature in KINDS:
                assert run.value(feature, at + behind) == dict(there.values).get(feature, 0)


@settings(max_examples=80, deadline=None)
@given(batches())
def test_every_message_is_found_where_it_was_put(runs: list[list[Place]]) -> None:
    index, places = build(runs)
    check(index, places)
    pages = [RunPage.load(page.dump()) for page in index.pages()]
    restored = RunIndex()
    restored.restore(pages, index.young(), index.tail)
    check(restored, places)
    assert (restored.delays, restored.ttls) == (index.delays, index.ttls)
    # A restored page goes on as the old one would have.
    for each in (index, restored):
        each.append_with(10_000, 0, 2, 10_000, {Feature.KEY: array("Q", [7, 8])})
    more = [Place(10_000, at, 10_000, ((8, 7 + at),)) for at in range(2)]
    check(index, places + more)
    check(restored, places + more)


@settings(max_examples=60, deadline=None)
@given(batches(), st.integers(0, 160), st.integers(0, 160))
def test_stretches_cover_a_range(runs: list[list[Place]], start: int, end: int) -> None:
    index, places = build(runs)
    found = [
        (entry, slot + at)
        for entry, slot, count, _ in index.stretches(start, end)
        for at in range(count)
    ]
    assert found == [(each.index, each.slot) for each in places[start:end]]
    each_alone = [entry for entry, count in index.entries(start, end) for _ in range(count)]
    assert each_alone == [entry for entry, _ in found]


@settings(max_examples=60, deadline=None)
@given(batches(), st.lists(st.integers(1, 40), min_size=1, max_size=12))
def test_bytes_taken_in_any_pieces_come_to_the_whole(
    runs: list[list[Place]], pieces: list[int]
) -> None:
    index, _ = build(runs)
    whole = sum(map(size_of_run, runs))
    assert index.bytes_between(0, index.tail) == whole
    rows = dumped_young(index.young())
    again = RunIndex()
    pages = [RunPage.load(page.dump()) for page in index.pages()]
    again.restore(pages, young_of(rows), index.tail)
    taken = at = number = 0
    while at < index.tail:
        end = min(at + pieces[number % len(pieces)], index.tail)
        taken += again.bytes_between(at, end)
        at, number = end, number + 1
    assert taken == whole


def test_runs_without_sizes_are_dumped_as_before_there_were_any() -> None:
    """So does a build that knows none write them; what it has written reads as of size 0."""
    index = RunIndex()
    for number in range(3 * YOUNG_RUNS_MAX):
        index.append(number + 1, 0, 2, 5)
    (page,) = index.pages()
    plain, _ = msgspec.msgpack.decode(page.dump())
    assert len(plain) == 6
    assert all(len(each) == 4 for each in dumped_young(index.young()))
    again = RunIndex()
    again.restore([RunPage.load(page.dump())], young_of(dumped_young(index.young())), index.tail)
    assert again.bytes_between(0, index.tail) == 0
    assert again.young() == index.young()


@settings(max_examples=60, deadline=None)
@given(batches())
def test_look_ups_by_entry_and_by_time(runs: list[list[Place]]) -> None:
    index, places = build(runs)
    for wanted in range(max(each.index for each in places) + 2):
        found = {
            first + at: slot + at
            for slot, count, first in index.offsets_of(wanted)
            for at in range(count)
        }
        assert found == {at: each.slot for at, each in enumerate(places) if each.index == wanted}
    for time_ms in range(999, places[-1].time_ms + 2):
        first = index.first_since(time_ms)
        since = [at for at, each in enumerate(places) if each.time_ms >= time_ms]
        assert first == (since[0] if since else index.tail)


def many(count: int, features: bool) -> tuple[RunIndex, list[Place]]:
    """An index of many short runs, every third of them with features if asked."""
    runs = []
    at = 0
    for number in range(count):
        length = 1 + number % 3
        values = ((1, number % 10), (8, number)) if features and number % 3 == 0 else ()
        runs.append([Place(number + 1, slot, number, values) for slot in range(length)])
        at += length
    return build(runs)


def test_young_runs_are_no_pages_for_a_sweep() -> None:
    index = RunIndex()
    index.append(1, 0, 3, 0)
    index.append(2, 0, 3, 0)
    assert index.full_pages(4, 16) == ([], 4, 4)
    assert punch(index, 0, 3, [(0, 3)]) == 0
    assert list(index.stretches(0, 6)) == [(1, 0, 3, 0), (2, 0, 3, 0)]


@settings(max_examples=15, deadline=None)
@given(st.data(), st.booleans())
def test_holes_leave_every_other_message_where_it_is(data: st.DataObject, features: bool) -> None:
    index, places = many(5 * RUNS_PER_PAGE, features)
    _, start, end = index.full_pages(data.draw(st.integers(0, 900)), 3)
    firsts = [each for page in index.pages() for each in page.first if start <= each < end]
    cuts = sorted(data.draw(st.sets(st.sampled_from([*firsts, end]), max_size=12)))
    ranges = list(zip(cuts[::2], cuts[1::2], strict=False))
    dead = {offset for first, stop in ranges for offset in range(first, stop)}
    runs = [len(page.first) for page in index.pages()]
    saved = punch(index, start, end, ranges)
    assert saved == sum(runs) - sum(len(page.first) for page in index.pages())
    assert saved == sum(sum(first <= each < stop for each in firsts) - 1 for first, stop in ranges)
    restored = RunIndex()
    restored.restore(
        [RunPage.load(page.dump()) for page in index.pages()], index.young(), index.tail
    )
    for each in (index, restored):
        assert all(len(page.first) <= RUNS_PER_PAGE for page in each.pages())
        for offset, place in enumerate(places):
            run = each.find(offset)
            assert each.time_at(offset) == run.time_ms
            assert bool(run.features & Feature.HOLE) == (offset in dead)
            if offset not in dead:
                assert (run.index, run.slot, run.time_ms) == (
                    place.index,
                    place.slot,
                    place.time_ms,
                )
                for feature in KINDS:
                    assert run.value(feature, offset) == dict(place.values).get(feature, 0)
        live = [offset for offset in range(len(places)) if offset not in dead]
        for time_ms in data.draw(st.lists(st.integers(-1, 5 * RUNS_PER_PAGE + 1), max_size=50)):
            since = each.first_since(time_ms)
            expected = [offset for offset in live if places[offset].time_ms >= time_ms]
            assert [offset for offset in live if offset >= since] == expected
        found = {
            first + at
            for number in range(5 * RUNS_PER_PAGE + 2)
            for _, count, first in each.offsets_of(number)
            for at in range(count)
        }
        assert found == set(range(len(places))) - dead


def test_a_hole_grows_with_what_dies_beside_it_and_pages_move_together() -> None:
    index, _ = many(10 * RUNS_PER_PAGE, False)
    _, start, end = index.full_pages(0, 20)
    firsts = [each for page in index.pages() for each in page.first if each < end]
    for step in (4, 16):
        live = set(firsts[::step])
        ranges = [
            (first + 1, stop)
            for first, stop in zip(firsts[::step], [*firsts[step::step], end], strict=True)
        ]
        assert live
        aligned = [(firsts[firsts.index(first - 1) + 1], stop) for first, stop in ranges]
        punch(index, start, end, aligned)
    kept = sum(len(page.first) for page in index.pages()[:-1])
    assert kept == 2 * len(firsts[::16])
    assert index.page_count == -(-kept // RUNS_PER_PAGE) + 1


@pytest.mark.parametrize(
    ("start", "end", "ranges"),
    [
        (1, 512, [(2, 8)]),  # not where a page begins
        (0, 500, [(2, 8)]),  # not where one ends
        (0, 1_536, [(2, 8)]),  # the last page is still filled
        (0, 512, [(3, 8)]),  # not where a run begins
        (0, 512, [(2, 7)]),
        (512, 0, []),
    ],
)
def test_a_hole_that_does_not_fit_the_runs_is_not_made(
    start: int, end: int, ranges: list[tuple[int, int]]
) -> None:
    index = RunIndex()
    for number in range(3 * RUNS_PER_PAGE):
        index.append(number + 1, 0, 2, number)
    assert punch(index, start, end, ranges) == 0
    last = RUNS_PER_PAGE - YOUNG_RUNS_MAX
    assert [len(page.first) for page in index.pages()] == [RUNS_PER_PAGE, RUNS_PER_PAGE, last]
    assert punch(index, 0, 512, [(2, 8)]) == 2


def test_a_batch_of_any_length_is_one_run() -> None:
    index = RunIndex()
    index.append(1, 0, 1_000_000, 5)
    index.append(1, 1_000_000, 5, 5)
    assert index.young() == [(0, 1, 0, 5, 0)]
    assert index.pages() == []
    assert index.find(999_999).end == 1_000_005


def test_full_pages_are_dropped_from_the_front_and_only_whole() -> None:
    index = RunIndex()
    for number in range(3 * RUNS_PER_PAGE):
        index.append(number + 1, 0, 2, number)
    assert [len(page.first) for page in index.pages()] == [256, 256, 256 - YOUNG_RUNS_MAX]
    assert len(index.young()) == YOUNG_RUNS_MAX
    index.drop_below(2 * RUNS_PER_PAGE - 1)
    assert index.head == 0
    index.drop_below(2 * RUNS_PER_PAGE)
    assert index.head == 2 * RUNS_PER_PAGE
    with pytest.raises(IndexError):
        index.find(index.head - 1)
    index.drop_below(index.tail)
    assert (index.head, index.tail, index.pages(), index.young()) == (1_536, 1_536, [], [])
    with pytest.raises(IndexError):
        index.find(1_536)
    with pytest.raises(IndexError):
        index.time_at(1_536)
    assert index.append(9_999, 0, 1, 9) == 1_536
    assert index.first_since(0) == 1_536


@pytest.mark.parametrize(
    ("draft", "features"),
    [
        (Draft(b""), 0),
        (Draft(b"", priority=1), Feature.PRIORITY),
        (Draft(b"", ttl_ms=1), Feature.TTL),
        (Draft(b"", delay_ms=1), Feature.DELAY),
        (Draft(b"", key=b"k"), Feature.KEY),
        (Draft(b"", tag=b"t"), Feature.TAG),
        (Draft(b"", deduplication_id=b"d"), Feature.DEDUPLICATE),
        (
            Draft(b"", priority=9, ttl_ms=1, delay_ms=2, key=b"k", tag=b"t", deduplication_id=b"d"),
            63,
        ),
    ],
)
def test_features_are_read_from_the_header(draft: Draft, features: int) -> None:
    assert features_of(draft.parts((1, 2), 3)[0]) == features


def test_columns_hold_each_messages_values_clipped() -> None:
    drafts = [Draft(b"a", priority=3, ttl_ms=U32_MAX + 7), Draft(b"b", delay_ms=40)]
    slots = [b"".join(each.parts((1, 2), 3)) for each in drafts]
    entry = entries.build(1, [], [len(each) for each in slots], slots)
    bounds = entries.directory(entry)[:2]
    columns = columns_of(Feature.PRIORITY | Feature.TTL | Feature.DELAY, entry, bounds)
    assert {key: list(column) for key, column in columns.items()} == {
        Feature.PRIORITY: [3, 0],
        Feature.TTL: [U32_MAX, 0],
        Feature.DELAY: [0, 40],
        Feature.LONG_TTL: [U32_MAX + 7, 0],
    }


def test_long_ttls_survive_a_page_and_cost_short_ones_nothing() -> None:
    index = RunIndex()
    for at, ttl_ms in enumerate((5, U32_MAX, 10 * U32_MAX, TTL_AT_ONCE)):
        slot = b"".join(Draft(b"a", ttl_ms=ttl_ms).parts((1, 2), 3))
        entry = entries.build(1, [], [len(slot)], [slot])
        columns = columns_of(features_of(slot), entry, entries.directory(entry)[:1])
        assert (Feature.LONG_TTL in columns) == (ttl_ms > U32_MAX)
        index.append_with(at + 1, 0, 1, 3, columns)
    again = RunIndex()
    again.restore([RunPage.load(page.dump()) for page in index.pages()], index.young(), index.tail)
    for each in (index, again):
        found = [each.find(at).value(Feature.LONG_TTL, at) for at in range(4)]
        assert found == [0, 0, 10 * U32_MAX, TTL_AT_ONCE]
        assert [each.find(at).value(Feature.TTL, at) for at in range(2)] == [5, U32_MAX]


@settings(max_examples=60, deadline=None)
@given(batches())
def test_plain_runs_are_found_without_an_object(runs: list[list[Place]]) -> None:
    index, _ = build(runs)
    for offset in range(index.head, index.tail):
        run = index.find(offset)
        expected = None if run.features else (run.index, run.slot, run.end)
        assert index.plain_from(offset) == expected


@settings(max_examples=60, deadline=None)
@given(batches(), st.data())
def test_parts_are_the_stretches_of_plain_runs(
    runs: list[list[Place]], data: st.DataObject
) -> None:
    index, _ = build(runs)
    if index.head == index.tail:
        return
    start = data.draw(st.integers(index.head, index.tail - 1))
    end = data.draw(st.integers(start + 1, index.tail))
    parts = index.plain_parts(start, end)
    if index.find(start).features:
        assert parts is None
        return
    assert parts is not None
    covered = start + sum(count for _, _, count in parts)
    assert start < covered <= end
    assert parts == [each[:3] for each in index.stretches(start, covered)]
    young = index.young()
    if young and start >= young[0][0]:
        assert covered == end


def test_a_queue_that_is_drained_as_it_is_filled_has_no_page() -> None:
    index = RunIndex()
    for number in range(10 * YOUNG_RUNS_MAX):
        taken: dict[int, int] = {}
        index.append(number + 1, 3, 2, 0)
        assert index.take_front(2 * number, 2 * number + 1, taken) >= 0
        assert index.find(2 * number + 1).slot == 4
        assert index.take_front(2 * number + 1, 2 * number + 2, taken) >= 0
        assert taken == {number + 1: 2}
        assert (index.head, index.young(), index.pages()) == (index.tail, [], [])


def test_a_drained_queue_of_messages_with_features_keeps_one_short_page_at_most() -> None:
    index = RunIndex()
    for number in range(10 * DEAD_RUNS_KEPT):
        if number % 3:
            index.append_with(number + 1, 0, 1, 0, {Feature.TAG: array("I", [7])})
        else:
            index.append(number + 1, 0, 1, 0)
        index.drop_below(index.tail)
        assert sum(len(page.first) for page in index.pages()) < DEAD_RUNS_KEPT
    assert index.tail == 10 * DEAD_RUNS_KEPT


def test_the_front_is_taken_only_from_young_runs() -> None:
    index = RunIndex()
    for number in range(YOUNG_RUNS_MAX):
        index.append(number + 1, 0, 2, 0, 7)
    taken: dict[int, int] = {}
    assert index.take_front(2, 4, taken) == -1, "the first run is still there"
    assert index.take_front(0, index.tail + 1, taken) == -1, "not all of it is there"
    assert index.head == 0
    assert taken == {}
    assert index.take_front(0, 7, taken) == 3 * 7 + 3
    assert taken == {1: 2, 2: 2, 3: 2, 4: 1}
    assert index.take_front(0, 7, taken) == -1, "it is gone"
    assert index.take_front(7, 8, taken) == 4
    assert taken[4] == 2
    assert index.head == 8
    for number in range(5):
        index.append(90 + number, 0, 1, 0)
    assert index.take_front(8, 9, taken) == -1, "the front is in a page now"
    index.drop_below(index.tail - 1)
    assert index.young() == [(index.tail - 1, 94, 0, 0, 0)]


@settings(max_examples=60, deadline=None)
@given(batches(), st.lists(st.integers(0, 40), max_size=12))
def test_dropping_the_front_forgets_nothing_else(runs: list[list[Place]], steps: list[int]) -> None:
    index, places = build(runs)
    floor = 0
    for step in steps:
        floor = min(floor + step, index.tail)
        index.drop_below(floor)
        check(index, places, floor)


@pytest.mark.parametrize("later", [0, 1 << 33])
def test_full_pages_are_packed_and_say_the_same(later: int) -> None:
    """One message an entry: the worst case; then some that do not fit a range or 32 bits."""
    runs = [[Place(7 * number + 1, 0, 5 * number)] for number in range(4 * RUNS_PER_PAGE)]
    at = 7 * len(runs)
    for number in range(RUNS_PER_PAGE + 40):
        place = Place(later + at + number, number % 3, 10_000 + number)
        runs.append([place, Place(place.index, place.slot + 1, place.time_ms)])
    index, places = build(runs)
    check(index, places)
    plain = RunPage()
    for number in range(RUNS_PER_PAGE):
        plain.add_run(number, 7 * number + 1, 5 * number, 0, 0, 4)
    assert index.pages()[0].dump() == plain.dump(), "the bytes of a snapshot are what they were"


@pytest.mark.parametrize(("size", "most"), [(0, 16), (100, 20)])
def test_a_message_of_its_own_entry_takes_under_20_bytes(size: int, most: int) -> None:
    messages = 100_000
    index = RunIndex()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for number in range(messages):
            index.append(2 * number + 1, 0, 1, number, size and size + number % 9)
        used = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert used / messages < most
