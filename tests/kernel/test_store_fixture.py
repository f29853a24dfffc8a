"""Store directories written by earlier builds are kept as bytes: every later build must open them.

`store-1.json.gz` holds two, of the formats as they were when Weir was first released to anybody:
one closed in order and one cut off. Never write it anew: a new format gets a file beside it.
What a later build adds to definitions may be there besides what was kept.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kernel.api.model import DEFAULT_GROUP, DEFAULT_TENANT
from kernel.log.format.checkpoint import Checkpoint
from tests.kernel import store_fixture

FIXTURE = Path(__file__).parent.parent / "fixtures" / "store-1.json.gz"
BOTH = pytest.mark.parametrize("name", ["clean", "cut"])


def missing(kept: Any, found: Any, where: str = "") -> list[str]:
    """Places where what was kept is not what was found; new keys of a mapping are fine."""
    if isinstance(kept, dict) and isinstance(found, dict):
        return [
            each
            for key in kept
            for each in missing(kept[key], found.get(key, "nothing"), f"{where}/{key}")
        ]
    return [] if kept == found else [f"{where}: {kept!r:.100} is now {found!r:.100}"]


@BOTH
def test_a_kept_store_opens_with_all_that_was_in_it(name: str) -> None:
    disk, wall_ms, kept = store_fixture.read(FIXTURE, name)
    assert missing(kept, store_fixture.seen(disk, wall_ms)) == []


@BOTH
def test_a_kept_store_goes_on(name: str) -> None:
    """Used by this build, checkpointed and rewritten by it, and opened again after a crash."""
    disk, wall_ms, kept = store_fixture.read(FIXTURE, name)
    with store_fixture.opened(disk, wall_ms) as world:

        async def scenario() -> None:
            before = kept["content"]["topics"]["plain"]["groups"][DEFAULT_GROUP]["figures"][0]
            peer = world.peer()
            topic = await peer.topic("plain")
            await peer.publish(topic, *[b"new"] * 100)
            await asyncio.sleep(12)
            await world.crash(seed=5)
            topic_now = world.client.topic(DEFAULT_TENANT, "plain")
            assert topic_now is not None
            assert world.figures(topic_now, DEFAULT_GROUP).ready == before + 100
            recorder = world.peer().attach(topic_now, credit=1_000)
            await recorder.wait_for(before + 100)
            assert recorder.bodies[-100:] == [b"new"] * 100
            assert world.client.dead_letters.waiting == kept["content"]["waiting"]
            await world.peer().topic("missing")
            await asyncio.sleep(1)
            missing_now = world.client.topic(DEFAULT_TENANT, "missing")
            assert missing_now is not None
            found = world.figures(missing_now, DEFAULT_GROUP)
            assert found.ready == kept["content"]["waiting"]

        world.run(scenario())


@BOTH
def test_the_kept_stores_have_something_of_every_kind(name: str) -> None:
    disk, _wall_ms, kept = store_fixture.read(FIXTURE, name)
    checkpoint = Checkpoint.read(disk)
    assert checkpoint is not None
    assert all(group.snapshot for group in checkpoint.groups.values())
    assert any(each.endswith(".loc") for each in disk.names("journal"))
    content = kept["content"]
    figures = {
        f"{topic}/{group}": each["figures"]
        for topic, found in content["topics"].items()
        for group, each in found["groups"].items()
    }
    assert all(sum(column) for column in zip(*figures.values(), strict=True))
    assert content["waiting"] == 2
    assert {attempt for rows in kept["drained"].values() for *_, attempt in rows} >= {1, 2}


def test_a_store_that_this_build_writes_has_the_same_in_it() -> None:
    """What the fixture was made by still says the same: the kept bytes are no accident."""
    for name, clean in (("clean", True), ("cut", False)):
        disk, wall_ms = store_fixture.made(clean=clean)
        _, kept_wall_ms, kept = store_fixture.read(FIXTURE, name)
        assert wall_ms == kept_wall_ms
        assert missing(kept["drained"], store_fixture.seen(disk, wall_ms)["drained"]) == []
