"""Files pinned for a backup while the store goes on: what they make is the store of that moment."""

from __future__ import annotations

import asyncio
import errno

import pytest

from kernel.common.errors import Code, KernelError
from kernel.log.journal import Journal, JournalPrefix
from kernel.store.recovery.examination import examine
from kernel.store.space.pinning import BEGIN_SECONDS, DIRECTORY, READY_SECONDS, Pin
from tests.kernel.ledger import Ledger
from tests.kernel.sweep_run import Run
from tests.kernel.test_crash_sweep import Cut, Sweep
from tests.simulator.disk import SimulatedDisk
from tests.simulator.world import HOUSEKEEPING, WRITER, World, simulated

SEED = 20
PINS = 30
"""As many steps as the crash sweep has: its ledger does not follow a message's last attempt."""

STEPS_BETWEEN = 2
"""Operations of clients from one pin to the next, and as many until its files are read."""


def restored(disk: SimulatedDisk, pin: Pin) -> SimulatedDisk:
    """A disk with nothing on it but what was pinned, as `weir backup restore` makes it."""
    made = SimulatedDisk()
    for each in pin.files:
        content = disk.content(each.pinned)
        if each.length >= 0:
            content = content[: each.length].ljust(each.size, b"\0")
        made.put(each.name, content)
    return made


def test_what_was_promised_at_the_moment_is_in_the_backup_and_nothing_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Dead letters on their way between groups, half messages, deletions, snapshots and rewrites:
    at moments of the run of the crash sweep, some of them while a write is in flight.
    """
    ledger = Ledger()
    moments: list[tuple[Ledger, int]] = []
    taken = Journal.prefix

    def prefix(journal: Journal) -> JournalPrefix:
        moments.append((ledger.snapshot(), world.clock.wall_ms()))
        return taken(journal)

    monkeypatch.setattr(Journal, "prefix", prefix)
    gone = 0
    with World(SEED, slice_records=1) as world:
        world.workers.delay_s[WRITER] = 0.0005
        run = Run(world, ledger, SEED)
        sweep = Sweep(world, ledger)
        world.run(world.settle_down())
        world.disk.on_boundary = lambda _number, _what: sweep.note_hashes()
        world.run(run.prepare())
        pins = world.opened.housekeeper.pins

        async def steps_and_a_pin() -> Pin:
            for _ in range(STEPS_BETWEEN):
                await run.step()
            step = asyncio.ensure_future(run.step())
            pin = await pins.pin()
            await step
            return pin

        for number in range(PINS):
            pin = world.run(steps_and_a_pin())
            for _ in range(STEPS_BETWEEN):
                world.run(run.step())
            there = set(world.disk.names("journal"))
            segments = [each.name for each in pin.files if each.name.startswith("journal/")]
            gone += sum(name.removeprefix("journal/") not in there for name in segments)
            facts, wall_ms = moments[-1]
            disk = restored(world.disk, pin)
            found = examine(disk).findings
            assert not found, (number, found)
            sweep._pending.append(Cut(number, "pin", False, disk, facts, wall_ms))
            sweep.check()
            pins.drop(pin.number)
        world.disk.on_boundary = None
        statistics = world.opened.store.journal.statistics()
    assert len(moments) == PINS
    assert gone, "nothing was removed while it was pinned: this says little"
    assert statistics.rewrites
    assert sweep.recoveries == PINS


@simulated()
async def test_a_pin_is_dropped_by_its_maker_by_time_and_by_the_next_start(
    world: World,
) -> None:
    pins = world.opened.housekeeper.pins
    first = await pins.pin()
    assert world.disk.names(DIRECTORY)
    with pytest.raises(KernelError) as refused:
        await pins.pin()
    assert refused.value.code is Code.IN_USE
    pins.drop(first.number)
    await asyncio.sleep(1)
    assert not world.disk.names(DIRECTORY)
    second = await pins.pin()
    pins.drop(first.number)
    await asyncio.sleep(50)
    assert pins.touch(second.number) is second
    await asyncio.sleep(50)
    assert world.disk.names(DIRECTORY)
    await asyncio.sleep(20)
    assert not world.disk.names(DIRECTORY)
    with pytest.raises(KernelError) as gone:
        pins.touch(second.number)
    assert gone.value.code is Code.NOT_FOUND
    killed = await pins.pin("one")
    for other in ("", "two"):
        with pytest.raises(KernelError):
            await pins.pin(other)
    taken_over = await pins.pin("one")
    with pytest.raises(KernelError):
        pins.touch(killed.number)
    pins.drop(killed.number)
    pins.drop(pins.touch(taken_over.number).number)
    await pins.pin()
    await world.crash()
    await asyncio.sleep(1)
    assert not world.disk.names(DIRECTORY)


@simulated(reserve_bytes=1_000_000)
async def test_a_full_disk_takes_back_what_a_pin_keeps(world: World) -> None:
    pins = world.opened.housekeeper.pins
    pin = await pins.pin()
    world.disk.capacity = world.disk.used + 1_000
    await asyncio.sleep(3)
    assert pins.held is None
    with pytest.raises(KernelError):
        pins.touch(pin.number)


@simulated()
async def test_a_pin_is_given_up_if_housekeeping_is_busy_or_there_are_no_links(
    world: World,
) -> None:
    pins = world.opened.housekeeper.pins
    world.workers.delay_s[HOUSEKEEPING] = BEGIN_SECONDS + 1
    world.opened.housekeeper._checkpoint_wanted()
    peer = world.peer()
    topic = await peer.topic("work")
    await peer.publish(topic, b"something to check in")
    world.opened.housekeeper._checkpoint_wanted()
    with pytest.raises(KernelError) as late:
        await pins.pin()
    assert late.value.code is Code.BUSY
    world.workers.delay_s.clear()
    await asyncio.sleep(10)
    world.disk.fail("link", OSError(errno.EPERM, "Operation not permitted"))
    with pytest.raises(KernelError) as unable:
        await pins.pin()
    assert unable.value.code is Code.UNAVAILABLE
    assert not world.fatal
    await asyncio.sleep(3)
    assert (await pins.pin()).files


@simulated()
async def test_housekeeping_rests_for_the_moment_of_a_cut_and_goes_on_without_it(
    world: World,
) -> None:
    pins = world.opened.housekeeper.pins
    with pytest.raises(KernelError):
        pins.take(7)
    await pins.prepare(7)
    for other in (pins.prepare(8), pins.pin("one")):
        with pytest.raises(KernelError) as refused:
            await other
        assert refused.value.code is Code.IN_USE
    with pytest.raises(KernelError) as unknown:
        pins.take(8)
    assert unknown.value.code is Code.NOT_FOUND
    before = world.opened.housekeeper.checkpoints
    topic = await world.peer().topic("work")
    await world.peer().publish(topic, b"something to check in")
    world.opened.housekeeper.hasten()
    await asyncio.sleep(READY_SECONDS / 2)
    assert world.opened.housekeeper.checkpoints == before
    await asyncio.sleep(READY_SECONDS)
    assert world.opened.housekeeper.checkpoints > before
    with pytest.raises(KernelError):
        pins.take(7)
    assert not world.disk.names(DIRECTORY)

    await pins.prepare(9)
    pins.take(9)
    with pytest.raises(KernelError):
        pins.take(9)
    pin = await pins.keep(9)
    assert (pin.cut, (await pins.keep(9)).number) == (9, pin.number)
    with pytest.raises(KernelError):
        await pins.keep(7)
    pins.drop_cut(7)
    assert pins.held is pin
    pins.drop_cut(9)
    await asyncio.sleep(1)
    assert not world.disk.names(DIRECTORY)

    await pins.prepare(10)
    pins.drop_cut(10)
    assert (await pins.pin("one")).cut == 0


@simulated()
async def test_a_cut_is_given_up_if_housekeeping_is_busy_or_there_are_no_links(
    world: World,
) -> None:
    pins = world.opened.housekeeper.pins
    topic = await world.peer().topic("work")
    world.workers.delay_s[HOUSEKEEPING] = BEGIN_SECONDS + 1
    await world.peer().publish(topic, b"something to check in")
    world.opened.housekeeper.hasten()
    with pytest.raises(KernelError) as late:
        await pins.prepare(7)
    assert late.value.code is Code.BUSY
    world.workers.delay_s.clear()
    await asyncio.sleep(10)
    world.disk.fail("link", OSError(errno.EPERM, "Operation not permitted"))
    await pins.prepare(8)
    pins.take(8)
    with pytest.raises(KernelError) as unable:
        await pins.keep(8)
    assert unable.value.code is Code.UNAVAILABLE
    assert not world.fatal
    await asyncio.sleep(3)
    assert (await pins.pin()).files
