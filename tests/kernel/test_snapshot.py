"""Snapshots: the state at one applied index, written down while the state goes on changing."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from kernel.api.client import LeaseChange, LeaseVerb, ReceiveSpec
from kernel.api.model import DEFAULT_GROUP, GroupOptions, TopicOptions
from kernel.broker.group_state.deduplication import CHUNK, Recent
from kernel.broker.group_state.progress import GroupProgress
from kernel.broker.group_state.state import GroupState
from kernel.broker.snapshots.cut import GROUPS_PER_RECORD, SnapshotCut
from kernel.broker.snapshots.snapshot import dump, load, state_hash
from kernel.broker.snapshots.snapshot_records import pack_leases, unpack_leases
from kernel.log.errors import JournalError
from kernel.store.replicas.replica import Replica
from kernel.store.space.housekeeper import Housekeeper
from tests.kernel.ledger import Ledger
from tests.kernel.sweep_run import Run
from tests.simulator.peer import Draft
from tests.simulator.world import World, simulated


class Watched:
    """Takes cut after cut of one group, some records a time, beside the dump at its beginning."""

    def __init__(self, replica: Replica, chance: random.Random) -> None:
        self._state: GroupState = replica.state
        self._chance = chance
        self._expected: list[bytes] = []
        self._found: list[bytes] = []
        self._records: Iterator[bytes] | None = None
        self.compared = 0
        self.changed = 0
        """Cuts during which the state has changed."""
        self._applied = 0

    def step(self) -> None:
        if self._records is None:
            self._expected = list(dump(self._state))
            self._applied = self._state.applied
            self._found = []
            cut = SnapshotCut(self._state)
            self._state.cut = cut
            self._records = iter(cut)
        for _ in range(self._chance.choice((0, 1, 3, 10))):
            record = next(self._records, None)
            if record is None:
                self._records = None
                self._state.cut = None
                assert self._found == self._expected
                self.compared += 1
                self.changed += self._state.applied > self._applied
                return
            self._found.append(record)


@pytest.mark.parametrize("seed", range(4))
def test_a_cut_holds_the_state_at_its_beginning_whatever_clients_do_meanwhile(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Housekeeper, "_checkpoint", lambda self: None)
    monkeypatch.setattr("kernel.broker.snapshots.cut.PAGES_PER_RECORD", 1)
    monkeypatch.setattr("kernel.broker.snapshots.cut.GROUPS_PER_RECORD", 1)
    chance = random.Random(seed)
    with World(seed) as world:
        run = Run(world, Ledger(), seed)
        world.run(world.settle_down())
        watched = [Watched(each, chance) for each in world.opened.store.replicas()]
        world.run(run.prepare())
        for _ in range(250):
            world.run(run.step())
            for each in watched:
                each.step()
        assert sum(each.compared for each in watched) > 40
        assert sum(each.changed for each in watched) > 20


@simulated()
async def test_a_cut_keeps_what_leases_delays_attempts_and_deduplication_said(
    world: World,
) -> None:
    peer = world.peer()
    topic = await peer.topic(
        "work", TopicOptions(deduplication_ms=60_000), GroupOptions(attempts_max=9)
    )
    state = world.opened.store.replica(topic.queues[0].group).state
    drafts = [Draft(b"%d" % n, deduplication_id=b"%d" % n) for n in range(3 * CHUNK)]
    for at in range(0, len(drafts), 500):
        await peer.publish(topic, *drafts[at : at + 500])
    client = world.client
    got = await client.receive(ReceiveSpec(topic, DEFAULT_GROUP, messages=2_000, lease_ms=30_000))
    verbs = [LeaseVerb.ACK, LeaseVerb.RELEASE, LeaseVerb.EXTEND, LeaseVerb.RETURN]

    expected = list(dump(state))
    cut = SnapshotCut(state)
    state.cut = cut
    records = iter(cut)
    found = [next(records)]
    for at, verb in enumerate(verbs):
        changes = [LeaseChange(token, verb, 60_000) for token in got.tokens[at :: len(verbs)]]
        assert not any(await client.settle_leases(topic, DEFAULT_GROUP, changes))
        found.append(next(records))
    await asyncio.sleep(70)  # the window passes, the leases end
    await peer.publish(topic, *drafts[:700])
    found += records
    state.cut = None
    assert found == expected
    assert list(dump(load(found))) == expected
    assert state_hash(load(dump(state))) == state_hash(state)


@simulated(slice_records=1)
async def test_a_snapshot_in_slices_is_one_that_a_start_accepts(world: World) -> None:
    peer = world.peer()
    topics = [await peer.topic(f"t{number}") for number in range(20)]
    await asyncio.sleep(9.5)
    housekeeper = world.opened.housekeeper
    before = housekeeper.checkpoints
    for number in range(200):
        await peer.publish(topics[number % 20], b"x")
        await asyncio.sleep(0.01)
    assert housekeeper.checkpoints > before
    assert housekeeper.snapshots.slices > 40
    await world.crash()
    ready = [world.figures(each, DEFAULT_GROUP).ready for each in topics]
    assert ready == [10] * 20


@simulated()
async def test_a_queue_with_very_many_groups_is_spread_over_records(world: World) -> None:
    peer = world.peer()
    count = 3 * GROUPS_PER_RECORD + 5
    groups = {f"g{number}": GroupOptions() for number in range(count)}
    topic = await peer.topic("work", groups=groups)
    await peer.publish(topic, b"1", b"2")
    for number in range(0, count, 7):
        recorder = peer.attach(topic, credit=2, group=f"g{number}")
        await recorder.wait_for(2)
        await recorder.ack(number % 2)
    state = world.opened.store.replica(topic.queues[0].group).state
    records = list(dump(state))
    assert max(map(len, records[3:])) < 20_000
    assert list(dump(load(records))) == records
    await world.crash()
    found = [world.figures(topic, name).ready for name in groups]
    assert sum(found) == 2 * count - len(range(0, count, 7))


def test_a_page_is_copied_once_after_a_cut_and_not_before() -> None:
    progress = GroupProgress()
    progress.ack(5, 6)
    page = progress.pages[0]
    progress.failed(7)
    assert progress.pages[0] is page
    floor, marks, *_more, ((number, held),) = progress.cut()
    assert (number, held) == (0, page)
    progress.lease(9, 1, 100)
    copy = progress.pages[0]
    assert copy is not page
    progress.unlease(9)
    progress.ack(7, 8)
    assert progress.pages[0] is copy
    assert (page.acked, page.leased, page.leases, page.attempts) == (1 << 5, 0, None, {7: 1})
    assert progress.is_acked(7)
    progress.set_mark(2, 50)
    assert (floor, marks, progress.marks) == (0, [0], [0, 0, 50])


def test_recent_ids_are_found_until_their_time_has_passed() -> None:
    recent = Recent((b"%d" % n, n, b"u", n) for n in range(CHUNK + 5))
    held = recent.cut()
    recent.drop_until(CHUNK)
    assert recent.get(b"0") is recent.get(b"%d" % CHUNK) is None
    assert recent.get(b"%d" % (CHUNK + 1)) == (b"%d" % (CHUNK + 1), CHUNK + 1, b"u", CHUNK + 1)
    recent.add((b"0", 9_999, b"v", 9_999))
    assert [row[1] for chunk, first, end in recent.cut() for row in chunk[first:end]] == [
        *range(CHUNK + 1, CHUNK + 5),
        9_999,
    ]
    assert [row[1] for chunk, first, end in held for row in chunk[first:end]] == [*range(CHUNK + 5)]
    recent.drop_until(10**6)
    assert recent.cut() == []


def test_leases_as_the_first_snapshots_had_them_are_read() -> None:
    leases = {0x300 | low: (1_700_000_000_000 + low) << 64 | low % 3 for low in range(256)}
    assert unpack_leases(3, pack_leases(leases)) == leases
    rows = [(offset, packed & (1 << 64) - 1, packed >> 64) for offset, packed in leases.items()]
    assert unpack_leases(3, rows) == leases


@simulated()
async def test_a_large_state_is_dumped_less_often(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel.store.space.housekeeper.RECORD_SECONDS", 0.5)
    peer = world.peer()
    topics = [await peer.topic(f"t{number}") for number in range(40)]
    housekeeper = world.opened.housekeeper
    while not housekeeper.checkpoints:
        await asyncio.sleep(1)
    began = world.loop.time()
    rest = housekeeper.snapshots.records * 0.5
    assert rest > 30
    await peer.publish(topics[0], b"x")
    await asyncio.sleep(rest - 5)
    assert housekeeper.checkpoints == 1
    await asyncio.sleep(10)
    assert housekeeper.checkpoints == 2
    assert world.loop.time() - began < rest + 10


@simulated()
async def test_a_cut_of_ten_thousand_groups_takes_those_that_get_on_and_the_rest_in_their_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To take them all at once would hold up everybody for 7 ms."""
    peer = world.peer()
    groups = {f"g{number}": GroupOptions() for number in range(10_000)}
    topic = await peer.topic("work", groups=groups)
    await peer.publish(topic, b"1", b"2")
    recorders = [peer.attach(topic, credit=2, group=name) for name in ("g7", "g9999")]
    for recorder in recorders:
        await recorder.wait_for(2)
    state = world.opened.store.replica(topic.queues[0].group).state
    expected = list(dump(state))
    held: list[GroupProgress] = []
    cut_of = GroupProgress.cut

    def counted(progress: GroupProgress) -> object:
        held.append(progress)
        return cut_of(progress)

    monkeypatch.setattr(GroupProgress, "cut", counted)
    cut = SnapshotCut(state)
    state.cut = cut
    assert held == []
    await recorders[0].ack(1)
    progresses = state.queues[topic.queues[0].id].groups
    assert held == [progresses["g7"]]
    found = []
    for record in cut:
        found.append(record)
        if len(held) > 5_000 and recorders[1].held:
            await recorders[1].ack(0, 1)
    state.cut = None
    assert found == expected
    assert len(held) == len(groups)


@simulated()
async def test_a_journal_whose_books_do_not_agree_ends_the_process(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, Draft(b"a"))

    def checkpoint(*_what: object) -> None:
        raise JournalError("no entry 7")

    monkeypatch.setattr(world.opened.store.journal, "checkpoint", checkpoint)
    await asyncio.sleep(60)
    assert [(text, str(error)) for text, error in world.fatal][:1] == [
        ("the books of the journal do not agree", "no entry 7")
    ]
    monkeypatch.undo()
    world.fatal.clear()
