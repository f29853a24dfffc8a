"""The very first start, and the first orderly end, cut at every boundary: the store opens.

A boundary is every write, sync, allocation and change of a name (`tests.simulator.disk`). Each cut
is tried clean (nothing unsynced is left), torn by several seeds, and as a mere kill, after which
everything is there but not all of it durable. What opens must have all its groups and work; a start
that follows a cut one is cut in its turn.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT
from tests.simulator.disk import SimulatedDisk
from tests.simulator.loop import VirtualLoop
from tests.simulator.world import World

TORN_SEEDS = 2
GROUPS = 4


def cuts_of(disk: SimulatedDisk, copies: list[tuple[str, SimulatedDisk]], seeds: int) -> None:
    """From now on keep, at every boundary of the disk, what each kind of end leaves."""

    def cut(number: int, what: str) -> None:
        copies.append((f"{number} {what} clean", disk.crashed_copy()))
        copies.append((f"{number} {what} killed", disk.killed_copy()))
        for seed in range(seeds):
            copy = disk.crashed_copy(number * 100 + seed)
            copies.append((f"{number} {what} torn {seed}", copy))

    disk.on_boundary = cut


def world_on(disk: SimulatedDisk, loop: VirtualLoop) -> World:
    return World(disk=disk, loop=loop, data_groups=GROUPS, started=False)


async def check(world: World, promised: int) -> None:
    """The store is whole, holds what was promised, and takes messages."""
    assert len(world.opened.store.data_groups) == GROUPS
    topic = world.client.topic(DEFAULT_TENANT, "first")
    if promised:
        assert topic is not None
        assert world.figures(topic, DEFAULT_GROUP).ready >= promised
    peer = world.peer()
    topic = await peer.topic("first")
    before = world.figures(topic, DEFAULT_GROUP).ready
    assert not (await peer.publish(topic, b"x", b"y")).failures
    assert world.figures(topic, DEFAULT_GROUP).ready == before + 2
    assert world.fatal == []


def open_each(
    copies: Iterable[tuple[str, SimulatedDisk]],
    loop: VirtualLoop,
    known: set[bytes],
    promised: int = 0,
) -> int:
    """Start on each disk, check, crash, start and check again; their number. Starts are a matter of
    the disk alone: one that equals another to the byte is `known`, and not started on again.
    """
    count = 0
    for name, disk in copies:
        count += 1
        fingerprint = disk.fingerprint()
        if fingerprint in known:
            continue
        known.add(fingerprint)
        world = world_on(disk, loop)

        async def scenario(world: World = world) -> None:
            await world.start()
            await check(world, promised)
            await world.crash()
            await check(world, promised + 2)

        try:
            world.run(scenario())
        except BaseException as error:
            error.add_note(f"cut at {name}")
            raise
        world.workers.dead = True
    return count


def test_a_first_start_may_be_cut_anywhere() -> None:
    with world_on(SimulatedDisk(), VirtualLoop()) as world:
        copies: list[tuple[str, SimulatedDisk]] = []
        cuts_of(world.disk, copies, TORN_SEEDS)
        world.run(world.start())
        world.disk.on_boundary = None
        known: set[bytes] = set()
        assert open_each(copies, world.loop, known) > 80
        assert len(known) > 40


@pytest.mark.parametrize("kind", ["clean", "killed", "torn 0"])
def test_a_second_start_on_a_cut_one_may_be_cut_anywhere(kind: str) -> None:
    with world_on(SimulatedDisk(), VirtualLoop()) as world:
        first: list[tuple[str, SimulatedDisk]] = []
        cuts_of(world.disk, first, 1)
        world.run(world.start())
        world.disk.on_boundary = None
        some = [(name, disk) for name, disk in first if name.endswith(kind)]
        assert len(some) > 20
        known: set[bytes] = set()
        opened = 0
        for name, disk in some[::4]:
            copies: list[tuple[str, SimulatedDisk]] = []
            cuts_of(disk, copies, 1)
            second = world_on(disk, world.loop)
            world.run(second.start())  # type: ignore[arg-type]
            disk.on_boundary = None
            second.workers.dead = True
            opened += open_each(
                ((f"{name}, then {each}", copy) for each, copy in copies[::11]), world.loop, known
            )
        assert opened > 20


def test_the_first_orderly_end_may_be_cut_anywhere() -> None:
    """Its checkpoint is the first, and so are its snapshots."""
    with world_on(SimulatedDisk(), VirtualLoop()) as world:
        copies: list[tuple[str, SimulatedDisk]] = []

        async def scenario() -> None:
            await world.start()
            await check(world, 0)
            cuts_of(world.disk, copies, TORN_SEEDS)
            await world.stop()
            world.disk.on_boundary = None

        world.run(scenario())
        known: set[bytes] = set()
        assert open_each(copies, world.loop, known, promised=2) > 60
        assert len(known) > 30
