"""A transaction over several Raft groups whose process ends between its steps: messages come first,
so that what it was to settle comes again, marked; nothing is lost.
"""

from __future__ import annotations

import asyncio

import pytest

from kernel.api.atomic import Settle, Transaction
from kernel.api.client import Settlement
from kernel.api.model import TopicInfo
from tests.kernel.test_transact import apart, batch_of, holding
from tests.simulator.peer import Peer
from tests.simulator.world import WRITER, World, simulated


async def begun(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> tuple[TopicInfo, TopicInfo, asyncio.Task[None]]:
    """A transaction whose messages are on disk, while the disk holds back what it settles."""
    peer = world.peer()
    source, target = await apart(peer)
    recorder = await holding(peer, source, b"1")
    assert recorder.consumer is not None
    settle = Settle(recorder.consumer, Settlement.ACK, [0])
    steps = world.client._transactor._cross_group
    settle_all = steps._settle_all
    reached = asyncio.Event()

    async def settling(settlements: list[Settle]) -> None:
        world.workers.hold(WRITER)
        reached.set()
        await settle_all(settlements)

    monkeypatch.setattr(steps, "_settle_all", settling)
    wanted = Transaction(batch_of(peer, [target], b"a"), [settle], whole=False)
    task = asyncio.get_running_loop().create_task(world.client.transact(wanted))
    await reached.wait()
    await asyncio.sleep(0.1)
    assert not task.done()
    return source, target, task


async def got(peer: Peer, topic: TopicInfo) -> list[tuple[bytes, int]]:
    """What a topic delivers at once: (body, attempt) of each."""
    recorder = peer.attach(topic, credit=10)
    await recorder.wait_for(1)
    await asyncio.sleep(0.1)
    return list(zip(recorder.bodies, recorder.attempts, strict=True))


@pytest.mark.parametrize("end", ["power", "kill"])
@simulated()
async def test_what_was_to_be_settled_comes_again_marked(
    world: World, monkeypatch: pytest.MonkeyPatch, end: str
) -> None:
    source, target, task = await begun(world, monkeypatch)
    if end == "power":
        await world.crash()
    else:
        world.kill()
        await world.start()
    task.cancel()
    peer = world.peer()
    assert await got(peer, target) == [(b"a", 1)]
    assert await got(peer, source) == [(b"1", 2)]


@simulated()
async def test_nobody_is_told_that_it_is_done_before_the_second_step_is_on_disk(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target, task = await begun(world, monkeypatch)
    world.workers.release(WRITER)
    await task
    await world.crash()
    peer = world.peer()
    assert await got(peer, target) == [(b"a", 1)]
    assert world.figures(source).ready == 0
