"""The cycle collector keeps out of traffic, and cycles still go."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from gateway.process.garbage import BUSY_S, CALM_S, LOOK_S, YOUNG_OBJECTS, Garbage
from tests.simulator.loop import VirtualLoop


@pytest.fixture(autouse=True)
def own_collector() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


@pytest.fixture
def loop() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


class Node:
    def __init__(self) -> None:
        self.me = self


def old_cycle() -> weakref.ref[Node]:
    """A cycle that only a full collection finds: it has survived two young ones."""
    node = Node()
    found = weakref.ref(node)
    gc.collect(0)
    gc.collect(1)
    del node
    return found


def test_what_is_loaded_is_left_alone_and_full_collections_are_not_automatic(
    loop: VirtualLoop,
) -> None:
    garbage = Garbage(loop)
    before = gc.get_freeze_count()
    garbage.start()
    assert gc.get_freeze_count() > before
    assert gc.get_threshold()[0] == YOUNG_OBJECTS
    lost = old_cycle()
    collected = gc.get_stats()[2]["collections"]
    kept = [[number] for number in range(40 * YOUNG_OBJECTS)]
    assert len(kept) == 40 * YOUNG_OBJECTS
    assert gc.get_stats()[2]["collections"] == collected
    assert lost() is not None
    garbage.stop()


@pytest.mark.parametrize(("used_share", "after_s"), [(0.0, CALM_S), (0.9, BUSY_S)])
def test_cycles_go_when_it_is_calm_or_at_last(
    monkeypatch: pytest.MonkeyPatch, loop: VirtualLoop, used_share: float, after_s: float
) -> None:
    monkeypatch.setattr(
        "gateway.process.garbage.time.process_time", lambda: loop.time() * used_share
    )
    garbage = Garbage(loop)
    garbage.start()
    lost = old_cycle()

    async def serve() -> None:
        await asyncio.sleep(after_s - 2 * LOOK_S)
        assert lost() is not None
        assert garbage.collections == 0
        await asyncio.sleep(4 * LOOK_S)
        assert lost() is None
        assert garbage.collections == 1

    loop.run_until_complete(serve())
    garbage.stop()
