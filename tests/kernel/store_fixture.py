"""Makes and reads the kept store directories: what is in one, as plain values.

python -m tests.kernel.store_fixture PATH      write a new one (for a new format, never over one
                                               that a release has written)
"""

from __future__ import annotations

import asyncio
import gzip
import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from kernel.api.client import (
    LeaseChange,
    LeaseVerb,
    PurgeTopic,
    PutRecord,
    PutRoute,
    PutRouter,
    ReceiveSpec,
    Settlement,
)
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    AttributesMatch,
    DeadLetter,
    GroupOptions,
    Match,
    Overflow,
    Route,
    RouterOptions,
    TopicInfo,
    TopicKind,
    TopicOptions,
)
from kernel.common.ids import Offset
from tests.simulator.disk import SimulatedDisk
from tests.simulator.peer import Draft, Peer
from tests.simulator.world import World

Content = dict[str, Any]

FOREVER_MS = 3_600_000
TWO = {DEFAULT_GROUP: GroupOptions(), "reports": GroupOptions()}


async def fill(world: World) -> None:
    """Something of every kind: before a checkpoint, and again behind it."""
    peer = world.peer("fixture")
    await _define(peer)
    await _use(world, peer, b"a")
    await asyncio.sleep(11)  # a checkpoint, then rewrites of what is mostly dead
    await world.settle_down()
    await _use(world, peer, b"b")
    await asyncio.sleep(1)
    await world.settle_down()


async def _define(peer: Peer) -> None:
    client = peer.client
    await peer.topic("dead")
    await peer.topic("plain", TopicOptions(declarations={"test": b"kept"}), groups=TWO)
    await peer.topic("spread", TopicOptions(queues=4))
    await peer.topic(
        "stream", TopicOptions(kind=TopicKind.STREAM, retention_ms=FOREVER_MS), groups={}
    )
    await peer.topic(
        "ordered",
        TopicOptions(deduplication_ms=FOREVER_MS),
        GroupOptions(ordered=True, lease_ms=FOREVER_MS),
    )
    await peer.topic(
        "levels",
        TopicOptions(
            priority_max=4, messages_max=50, overflow=Overflow.REJECT, message_bytes_max=500
        ),
        GroupOptions(attempts_max=3, dead_letter=DeadLetter(None, "dead")),
    )
    await peer.topic("lost", TopicOptions(), GroupOptions(dead_letter=DeadLetter(None, "missing")))
    for name, match in (
        ("exact", Match.EXACT),
        ("all", Match.ALL),
        ("pattern", Match.PATTERN),
        ("attributes", Match.ATTRIBUTES),
    ):
        options = RouterOptions(match=match, alternate="all" if name != "all" else None)
        await client.administer(PutRouter(DEFAULT_TENANT, name, options))
    for router, route in (
        ("exact", Route(topic="plain", key="p")),
        ("exact", Route(router="pattern", key="q")),
        ("all", Route(topic="spread")),
        ("pattern", Route(topic="levels", key="a/+/#")),
        (
            "attributes",
            Route(
                topic="plain",
                attributes=(("x", msgspec.msgpack.encode(1)), ("y", b"\xc0")),
                combine=AttributesMatch.ANY_OF,
            ),
        ),
    ):
        await client.administer(PutRoute(DEFAULT_TENANT, router, route))
    await client.administer(PutRecord("user/kept", b"1"))
    await client.administer(PutRecord("user/kept", b"2"))


async def _use(world: World, peer: Peer, mark: bytes) -> None:
    client = peer.client
    topics = {each.name: each for each in client.topics(DEFAULT_TENANT)}
    filler = b"." * 700
    for number in range(40):
        await peer.publish(topics["plain"], b"%s%02d" % (mark, number) + filler)
    recorder = peer.attach(topics["plain"], credit=30, group=DEFAULT_GROUP)
    await recorder.wait_for(30)
    await recorder.ack(*[each for each in recorder.got if each.offset % 10 != 7])
    recorder.cancel()
    reports = peer.attach(topics["plain"], credit=38, group="reports")
    await reports.wait_for(38)
    await reports.ack(*[each for each in reports.got if each.offset % 10 != 7])
    await reports.settle(Settlement.RELEASE, *list(reports.held.values())[:1])
    reports.cancel()
    drafts = [Draft(mark + b"%d" % number, key=b"k%d" % (number % 3)) for number in range(12)]
    await peer.publish(topics["spread"], *drafts)
    await peer.publish(topics["stream"], *[mark + b"s%d" % number for number in range(5)])
    await peer.publish(
        topics["ordered"],
        *[
            Draft(
                mark + b"o%d" % number, key=b"k%d" % (number % 2), deduplication_id=b"%d" % number
            )
            for number in range(6)
        ],
    )
    got = await client.receive(ReceiveSpec(topics["ordered"], DEFAULT_GROUP, messages=2))
    if got.tokens:
        await client.settle_leases(
            topics["ordered"], DEFAULT_GROUP, [LeaseChange(got.tokens[0], LeaseVerb.ACK)]
        )
    await peer.publish(
        topics["levels"],
        *[Draft(mark + b"l%d" % level, priority=level) for level in range(6)],
        Draft(mark + b"late", delay_ms=FOREVER_MS),
        Draft(mark + b"ttl", ttl_ms=FOREVER_MS, tag=b"tag"),
    )
    recorder = peer.attach(topics["levels"], credit=3)
    await recorder.wait_for(3)
    first, second, third = recorder.got
    await recorder.settle(Settlement.DEAD_LETTER, first)
    await recorder.settle(Settlement.RELEASE, second)
    await recorder.ack(third)
    recorder.cancel()
    await peer.publish(topics["lost"], mark)
    recorder = peer.attach(topics["lost"], credit=1)
    await recorder.wait_for(1)
    await recorder.settle(Settlement.DEAD_LETTER, *recorder.got)
    recorder.cancel()
    for router, key in (("exact", "p"), ("exact", "q"), ("pattern", "a/b/c"), ("exact", "none")):
        await peer.publish(client.to_router(DEFAULT_TENANT, router, key), mark + key.encode())
    purged = PurgeTopic(DEFAULT_TENANT, "dead", DEFAULT_GROUP)
    if mark == b"a":
        await client.administer(purged)


async def content(world: World) -> Content:
    """Everything that a client could ask for, as plain values."""
    client = world.client
    topics: Content = {}
    for topic in client.topics(DEFAULT_TENANT):
        groups = {
            name: {"options": _plain(options), "figures": _figures(world, topic, name)}
            for name, options in topic.groups.items()
        }
        queues = []
        for number in range(len(topic.queues)):
            found = await client.peek(topic, number, Offset(0), 1_000)
            queues.append([[offset, slot.hex()] for offset, slot in found])
        topics[topic.name] = {
            "options": _plain(topic.options),
            "groups": groups,
            "queues": queues,
        }
    routers = {}
    for name in ("exact", "all", "pattern", "attributes"):
        info = client.router(DEFAULT_TENANT, name)
        assert info is not None
        routes = [_plain(route) for route in info.routes]
        routers[name] = {"options": _plain(info.options), "routes": routes}
    records = {
        key: [version, value.hex()] for key, (version, value) in client.records("user/").items()
    }
    return {
        "topics": topics,
        "routers": routers,
        "records": records,
        "waiting": client.dead_letters.waiting,
    }


def _plain(value: object) -> Any:
    return json.loads(msgspec.json.encode(value))


def _figures(world: World, topic: TopicInfo, group: str) -> list[int]:
    found = world.figures(topic, group)
    return [found.ready, found.leased, found.delayed]


async def drained(world: World) -> Content:
    """(queue, offset, attempt) of what each group hands out, in order."""
    peer = world.peer("drain")
    handed: Content = {}
    for topic in world.client.topics(DEFAULT_TENANT):
        numbers = {ref.id: number for number, ref in enumerate(topic.queues)}
        for group in topic.groups:
            recorder = peer.attach(topic, credit=1_000, group=group)
            await asyncio.sleep(0.5)
            rows = [[numbers[each.queue], each.offset, each.attempt] for each in recorder.got]
            # Between queues there is no order.
            rows.sort(key=lambda row: row[0])
            handed[f"{topic.name}/{group}"] = rows
    return handed


def made(*, clean: bool) -> tuple[SimulatedDisk, int]:
    """The disk after `fill`, closed in order or cut off; the wall time then."""
    with World(seed=11) as world:

        async def scenario() -> None:
            await fill(world)
            if clean:
                await world.stop()
            else:
                world.power_off()

        world.run(scenario())
        return world.disk.crashed_copy(), world.clock.wall_ms()


def opened(disk: SimulatedDisk, wall_ms: int) -> World:
    """A world on a copy of the disk, a second later."""
    return World(seed=12, disk=disk.crashed_copy(), wall_start_ms=wall_ms + 1_000)


def seen(disk: SimulatedDisk, wall_ms: int) -> Content:
    """What this build finds on the disk, and hands out of it."""
    with opened(disk, wall_ms) as world:

        async def scenario() -> Content:
            return {"content": await content(world), "drained": await drained(world)}

        return world.run(scenario())


def write(path: Path) -> None:
    """A new fixture."""
    kept: Content = {}
    for name, clean in (("clean", True), ("cut", False)):
        disk, wall_ms = made(clean=clean)
        files = {
            f"{directory}/{each}" if directory else each: None
            for directory in ("", "journal", "snap")
            for each in disk.names(directory)
        }
        contents = {each: disk.content(each) for each in files}
        kept[name] = {
            "wall_ms": wall_ms,
            "files": {each: found.rstrip(b"\0").hex() for each, found in contents.items()},
            "sizes": {each: len(found) for each, found in contents.items()},
            "seen": seen(disk, wall_ms),
        }
    path.write_bytes(gzip.compress(json.dumps(kept).encode(), mtime=0))


def read(path: Path, name: str) -> tuple[SimulatedDisk, int, Content]:
    """Disk, wall time, and what the build that wrote it saw there."""
    kept = json.loads(gzip.decompress(path.read_bytes()))[name]
    disk = SimulatedDisk()
    for each, found in kept["files"].items():
        disk.put(each, bytes.fromhex(found).ljust(kept["sizes"][each], b"\0"))
    return disk, kept["wall_ms"], kept["seen"]


if __name__ == "__main__":
    target = Path(sys.argv[1])
    assert not target.exists(), "a kept store is never written anew"
    write(target)
