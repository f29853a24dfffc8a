"""Power loss at every boundary of a fixed run: what was acknowledged is there, in order.

`make sweeps` cuts at every boundary, any other run at those between one sync in three and the next.
"""

from __future__ import annotations

import contextlib
import copy
import random
from collections.abc import Callable

import pytest

from tests.kernel.log.harness import (
    History,
    Store,
    body_of,
    close_cleanly,
    new_disk,
    reopened,
    run_workload,
)
from tests.kernel.sweep_share import one_in
from tests.simulator.disk import Crash, SimulatedDisk

COMMITS = 150
EVERY = one_in(3)
"""One sync in so many has the boundaries behind it cut."""

UNSYNCED = ("written", "fdatasync", "create", "allocate", "rename", "remove")
"""Boundaries at which something is on its way: only there can a torn cut differ."""


class Sweep:
    """Takes a copy of the disk at boundaries, and recovers each."""

    def __init__(self, disk: SimulatedDisk, history: History, *, torn: bool) -> None:
        self.disk = disk
        self.history = history
        self.torn = torn
        self.recoveries = 0
        self.kinds: dict[str, int] = {}

    def __call__(self, boundary: int, what: str) -> None:
        kind = what.split(maxsplit=1)[0]
        if self.torn != (kind in UNSYNCED):
            return
        if self.disk.syncs % EVERY:
            return
        self.kinds[kind] = self.kinds.get(kind, 0) + 1
        after = self.disk.crashed_copy(boundary if self.torn else None)
        self.verify(after, boundary)

    def verify(self, disk: SimulatedDisk, boundary: int) -> None:
        history = copy.copy(self.history)
        history.bodies = {group: list(bodies) for group, bodies in self.history.bodies.items()}
        history.acked = dict(self.history.acked)
        try:
            store = Store(disk, history)
            store.check()
            if self.recoveries % 4 == 0:
                # It can go on, and what it then acknowledges survives the next power loss.
                store.append(0, body_of([b"after the crash"]))
                store.commit()
                Store(disk.crashed_copy(), history).check(complete=False)
        except Exception as error:
            raise AssertionError(f"boundary {boundary}") from error
        self.recoveries += 1


@pytest.mark.parametrize("torn", [False, True], ids=["clean", "torn"])
def test_nothing_acknowledged_is_lost_at_any_boundary(torn: bool) -> None:
    disk = new_disk()
    history = History()
    store = Store(disk, history)
    sweep = Sweep(disk, history, torn=torn)
    disk.on_boundary = sweep
    before = disk.syncs

    run_workload(store, seed=7, commits=COMMITS)

    statistics = store.journal.statistics()
    assert disk.syncs - before >= 150
    assert sum(len(bodies) for bodies in history.bodies.values()) >= 200
    assert statistics.rewrites >= 3
    assert sweep.recoveries >= 300 // EVERY
    if not torn:
        assert sweep.kinds["sync_directory"] >= 10 // EVERY
        assert sweep.kinds["synced"] >= 150 // EVERY
    store.check()


def test_a_crash_inside_recovery_changes_nothing() -> None:
    """Recovery of a torn disk, cut at each of its own boundaries, twice over. It depends on the
    disk alone: one that equals another to the byte is not recovered again.
    """
    disk = new_disk()
    history = History()
    store = Store(disk, history)
    run_workload(store, seed=3, commits=12)
    store.append(1, body_of([b"x" * 3000]))
    batch = store.journal.begin()
    assert batch is not None
    batch.run()
    disk.stop()
    copies = 0
    known: set[tuple[int, bytes]] = set()
    """(cuts inside cuts that are still to come, what is on the disk)"""

    def recover_and_cut(source: SimulatedDisk, depth: int) -> None:
        nonlocal copies

        def cut(boundary: int, what: str) -> None:
            nonlocal copies
            copies += 1
            for seed in (None, boundary):
                after = source.crashed_copy(seed)
                place = depth, after.fingerprint()
                if place in known:
                    continue
                known.add(place)
                if depth:
                    recover_and_cut(after, depth - 1)
                else:
                    Store(after, copy.deepcopy(history)).check()

        source.on_boundary = cut
        recovered = Store(source, copy.deepcopy(history))
        source.on_boundary = None
        recovered.check()
        assert recovered.recovered.records_copied > 0 or not recovered.recovered.clean

    recover_and_cut(disk.killed_copy(), 1)
    assert copies > 100


@pytest.mark.parametrize("seed", range(4))
def test_one_crash_after_another_loses_nothing_acknowledged(seed: int) -> None:
    """Power losses in the middle of writes, kills and full disks in turn: each recovery begins
    with what the one before it has cut, copied and named.
    """
    chance = random.Random(seed)
    disk, history = new_disk(), History()
    rolled = copied = 0
    for turn in range(40):
        store = reopened(disk, history)
        copied += store.recovered.records_copied
        run_workload(store, seed=seed * 100 + turn, commits=chance.randint(1, 9))
        for _ in range(chance.randint(1, 9)):
            store.append(chance.randrange(3), body_of([bytes(chance.choice((100, 9_000)))]))
        batch = store.journal.begin()
        assert batch is not None
        rolled += len(batch.parts) - 1
        fate = chance.random()
        if fate < 0.2:
            disk.capacity = disk.used
        disk.on_boundary = _off_after(chance.randint(1, 6))
        with contextlib.suppress(Crash, OSError):
            batch.run()
        disk.on_boundary = None
        if batch.done:
            for group, (index, _term) in batch.stable.items():
                history.acked[group] = index
        disk = disk.killed_copy() if fate < 0.4 else disk.crashed_copy(seed * 100 + turn)
        disk.capacity = 1 << 40
        # What was not acknowledged may be there or not: the history goes on from what is.
        after = Store(disk.killed_copy(), copy.deepcopy(history))
        for group, bodies in history.bodies.items():
            del bodies[after.journal.last_index(group) :]
    assert rolled > 15
    assert copied > 20


def _off_after(boundaries: int) -> Callable[[int, str], None]:
    left = [boundaries]

    def boundary(_count: int, _what: str) -> None:
        left[0] -= 1
        if not left[0]:
            raise Crash

    return boundary


def test_the_copy_of_the_tail_makes_the_page_cache_durable() -> None:
    """A sync fails, pages are marked clean, the process ends: the next one must not trust them."""
    disk = new_disk()
    history = History()
    store = Store(disk, history)
    run_workload(store, seed=5, commits=20)
    disk.fail("fdatasync", OSError(5, "Input/output error"))
    store.append(0, body_of([b"never synced"]))
    batch = store.journal.begin()
    assert batch is not None
    with pytest.raises(OSError, match="Input/output"):
        batch.run()

    killed = disk.killed_copy()
    second = Store(killed, history)
    second.check()
    assert second.recovered.records_copied == 1
    last = second.journal.last_index(0)
    history.acked[0] = last  # the second process may have shown it to anybody

    third = Store(killed.crashed_copy(), history)
    third.check()
    assert third.journal.last_index(0) == last


def test_a_clean_end_needs_no_copy() -> None:
    disk = new_disk()
    history = History()
    store = Store(disk, history)
    run_workload(store, seed=5, commits=20)
    close_cleanly(store)

    again = Store(disk.crashed_copy(), history)

    assert again.recovered.clean
    assert again.recovered.records_copied == 0
    assert again.replayed == []
    again.check()
    run_workload(again, seed=6, commits=5)
    again.check()
    assert not Store(disk.crashed_copy(), history).recovered.damaged


def test_a_second_run_after_an_unclean_one_is_not_taken_for_clean() -> None:
    disk = new_disk()
    history = History()
    store = Store(disk, history)
    store.append(0, body_of([b"one"]))
    store.commit()
    close_cleanly(store)
    store = Store(disk.crashed_copy(), history)
    assert store.recovered.clean
    assert not Store(store.disk.crashed_copy(), history).recovered.clean
