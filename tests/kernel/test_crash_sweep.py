"""Power loss at every boundary of a fixed run of clients: every promise holds on what is left.

The journal by itself is swept in tests/kernel/log. Here the whole store is: state machines,
checkpoints with their snapshots, rewrites, the outbox, and recovery itself. `make sweeps` cuts at
every boundary, any other run at those between one sync in three and the next: of all kinds, in
other places of the run.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from dataclasses import dataclass
from hashlib import blake2b

import pytest

from kernel.api import message as messages
from kernel.api.model import DEFAULT_TENANT
from kernel.broker.snapshots.snapshot import state_hash
from kernel.common.ids import RaftGroup
from kernel.log.format import entry as entries
from tests.kernel.counted import check_growth
from tests.kernel.ledger import Ledger, Observation, Seen
from tests.kernel.sweep_run import Run, priority_of
from tests.kernel.sweep_share import one_in
from tests.simulator.disk import SimulatedDisk
from tests.simulator.world import WRITER, World, figures_of

OPERATIONS = 200
STEPS = 175
"""Further operations make the names at the start."""
SEED = 20
EVERY = one_in(3)
"""One sync in so many has the boundaries behind it cut."""
TURNS_MAX = 20_000
"""Turns of the loop within which a recovered store delivers everything it has."""

Hashes = dict[tuple[int, int], str]
"""(group, applied index) to the state hash there."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A disk after a power loss, and what had been promised by then."""

    boundary: int
    what: str
    torn: bool
    disk: SimulatedDisk
    ledger: Ledger
    wall_ms: int


class Sweep:
    """Takes copies of the disk at boundaries; recovers and checks them between operations."""

    def __init__(self, world: World, ledger: Ledger) -> None:
        self.world = world
        self.ledger = ledger
        self.cuts: Counter[str] = Counter()
        """Cuts checked, by clean or torn and kind of boundary."""
        self.recoveries = 0
        self.inner = 0
        """Cuts inside a recovery."""
        self.hashes: Hashes = {}
        """As the run itself had them, after every commit."""
        self.compared = 0
        self.replayed_again = 0
        self._pending: list[Cut] = []
        self._known: OrderedDict[tuple[bytes, int], Observation] = OrderedDict()

    def __call__(self, boundary: int, what: str) -> None:
        self.note_hashes()
        if self.world.disk.syncs % EVERY:
            return
        facts = self.ledger.snapshot()
        # One way to tear what waits for a sync: the boundaries before the sync share it.
        seed = self.world.disk.syncs
        for torn in (False, True):
            disk = self.world.disk.crashed_copy(seed if torn else None)
            self._pending.append(Cut(boundary, what, torn, disk, facts, self.world.clock.wall_ms()))

    def note_hashes(self) -> None:
        """Remember the state hashes of the store that runs."""
        self.hashes.update(hashes_of(self.world, self.hashes))

    def check(self) -> None:
        """Recover what was cut since the last time."""
        pending, self._pending = self._pending, []
        for cut in pending:
            self.cuts[f"{'torn' if cut.torn else 'clean'} {cut.what.split()[0]}"] += 1
            try:
                # Time makes a difference to a recovered store by what expires.
                key = (digest_of(cut.disk), cut.wall_ms)
                seen = self._known.get(key)
                if seen is None:
                    seen = self._known[key] = self._recover(cut)
                    if len(self._known) > 16:
                        self._known.popitem(last=False)
                cut.ledger.check(seen, cut.wall_ms)
            except Exception as error:
                kind = "torn" if cut.torn else "clean"
                raise AssertionError(
                    f"{kind} cut at boundary {cut.boundary}: {cut.what}"
                ) from error

    def _recover(self, cut: Cut) -> Observation:
        """Recover, compare the state with the one the run had, see what the store delivers. Now
        and then also: recover what the recovery left, and recover after cuts inside it.
        """
        self.recoveries += 1
        again = self.recoveries % 8 == 0
        inside: list[SimulatedDisk] = []
        if self.recoveries % 300 == 0:
            cut.disk.on_boundary = lambda number, what: inside.extend(
                (cut.disk.crashed_copy(), cut.disk.crashed_copy(number))
            )
        with World(disk=cut.disk, wall_start_ms=cut.wall_ms, started=False) as world:
            found = opened(world)
            cut.disk.on_boundary = None
            self._compare(found)
            after = cut.disk.crashed_copy() if again else None
            seen = world.run(observation(world))
        for disk in inside:
            self.inner += 1
            cut.ledger.check(self._observe(disk, cut, found), cut.wall_ms)
        if after is not None:
            self.replayed_again += 1
            other = self._observe(after, cut, found)
            cut.ledger.check(other, cut.wall_ms)
            assert other.messages() == seen.messages()
        return seen

    def _compare(self, found: Hashes) -> None:
        for place, value in found.items():
            if place in self.hashes:
                self.compared += 1
                assert value == self.hashes[place], f"replay of {place} gives another state"

    def _observe(self, disk: SimulatedDisk, cut: Cut, expected: Hashes) -> Observation:
        with World(disk=disk, wall_start_ms=cut.wall_ms, started=False) as world:
            assert opened(world) == expected, "a second replay gives another state"
            return world.run(observation(world))


def opened(world: World) -> Hashes:
    """Recover without starting; the state hashes."""

    async def run() -> Hashes:
        world.open()
        check_growth(world)
        return hashes_of(world, {})

    return world.run(run())


def hashes_of(world: World, known: Hashes) -> Hashes:
    """Hash of each group's state, but for those that are known."""
    states = [world.opened.store.replica(RaftGroup(each)).state for each in range(5)]
    return {
        (state.group, state.applied): state_hash(state)
        for state in states
        if (state.group, state.applied) not in known
    }


def digest_of(disk: SimulatedDisk) -> bytes:
    """Hash of all that is on a disk."""
    digest = blake2b(digest_size=16)
    for directory in ("", "journal", "snap"):
        for name in disk.names(directory):
            path = f"{directory}/{name}" if directory else name
            digest.update(path.encode())
            digest.update(disk.content(path))
    return digest.digest()


async def observation(world: World) -> Observation:
    """Start the recovered store and take everything it delivers."""
    opened = world.opened
    await opened.start()
    topics = dict(opened.client.topology.topics)
    peer = world.peer()
    recorders = {info.name: peer.attach(info, credit=1_000_000) for info in topics.values()}

    def is_quiet() -> bool:
        return not any(each.state.outbox for each in opened.store.replicas()) and not any(
            figures_of(opened.client, info).ready for info in topics.values()
        )

    # Twice: what a consumer comes upon and finds expired becomes a dead letter, which is delivered.
    for _ in range(2):
        await world.settle_down()
        await _until(is_quiet)
    names = {f"topic {name}" for name in recorders}
    for router in ("news", "desk"):
        info = opened.client.router(DEFAULT_TENANT, router)
        if info is not None:
            names.add(f"router {router}")
            names.update(f"route {router} {route.topic}" for route in info.routes)
    return Observation(
        {
            name: [
                Seen(row.queue, row.offset, row.uid, row.body, row.attempt, priority_of(row.slot))
                for row in recorder.got
            ]
            for name, recorder in recorders.items()
        },
        frozenset(names),
        halves_of(world),
    )


def halves_of(world: World) -> dict[bytes, bytes]:
    """Uid to body of the half messages, as the journal has them."""
    store = world.opened.store
    found: dict[bytes, bytes] = {}
    for replica in store.replicas():
        for half in replica.state.halves.waiting.values():
            entry = store.journal.read(replica.group, half.index)
            message = messages.decode(entries.slot(entry, half.slot))
            found[message.uid] = message.body
    return found


async def _until(condition) -> None:
    for _ in range(TURNS_MAX):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("the recovered store does not deliver all it has")


@pytest.mark.timeout(240)
def test_every_promise_holds_after_power_loss_at_any_boundary() -> None:
    ledger = Ledger()
    with World(SEED, slice_records=1) as world:
        world.workers.delay_s[WRITER] = 0.0005
        run = Run(world, ledger, SEED)
        sweep = Sweep(world, ledger)
        world.run(world.settle_down())
        syncs = world.disk.syncs
        world.disk.on_boundary = sweep
        world.run(run.prepare())
        sweep.check()
        for _ in range(STEPS):
            world.run(run.step())
            sweep.check()
        world.run(run.end())
        sweep.check()

        syncs = world.disk.syncs - syncs
        journal = world.opened.store.journal.statistics()
        checkpoints = world.opened.housekeeper.checkpoints
        slices = world.opened.housekeeper.snapshots.slices
        world.disk.on_boundary = None
    assert sum(run.done.values()) >= OPERATIONS
    assert len(run.done) == 17, run.done
    assert syncs >= 150
    assert checkpoints >= 3
    assert slices >= 20 * checkpoints
    assert journal.rewrites >= 1
    assert sweep.cuts["clean fdatasync"] == sweep.cuts["torn fdatasync"] >= 150 // EVERY
    assert sweep.cuts["clean written"] == sweep.cuts["torn written"] >= 150 // EVERY
    assert sweep.cuts["torn synced_directory"] >= 10
    assert sweep.recoveries >= 300
    assert sweep.replayed_again >= 30
    assert sweep.inner >= 50
    assert sweep.compared >= 4 * sweep.recoveries
