"""Limited topics and full disks as gateways without a store meet them: the leader refuses."""

from __future__ import annotations

import asyncio
from pathlib import Path

from kernel.api.model import (
    DEFAULT_GROUP,
    DeadLetter,
    GroupOptions,
    Overflow,
    TopicInfo,
    TopicOptions,
)
from kernel.common.errors import Code
from kernel.common.ids import Offset
from kernel.remote.client import ClusterClient
from kernel.requests.leader import Done, Identity, Leader
from kernel.requests.publish_part import Part
from tests.kernel.remote.cluster import gateway_of, running_stores
from tests.kernel.remote.gateway import GROUP, body_of, slot
from tests.kernel.remote.test_streams import cut
from tests.kernel.three_stores import CLOCK, leader_of, until
from tests.simulator.peer import Peer, Sent

KB = b"." * 1_000


async def bodies(client: ClusterClient, topic: TopicInfo) -> list[bytes]:
    return [body_of(slot) for _, slot in await client.peek(topic, 0, Offset(0), 1_000)]


async def ready(client: ClusterClient, topic: TopicInfo) -> int:
    return (await client.statistics(topic, DEFAULT_GROUP)).ready


def refused(sent: Sent) -> dict[int, Code]:
    return {at: error.code for at, error in sent.failures.items()}


async def test_what_has_no_room_is_refused_whoever_publishes_it(tmp_path: Path) -> None:
    async with (
        running_stores(tmp_path, data_groups=1) as nodes,
        gateway_of(nodes) as client,
        gateway_of(nodes) as other,
    ):
        peer, second = Peer(client, CLOCK, "peer"), Peer(other, CLOCK, "second")
        options = TopicOptions(messages_max=5, overflow=Overflow.REJECT)
        topic = await peer.topic("work", options)
        await until(lambda: other.topic("default", "work"))
        local = Peer(nodes[0].opened.client, CLOCK, "local")
        sent = [each.submit(topic, b"1", b"2", b"3") for each in (peer, second, local)]
        await asyncio.gather(*[each.done for each in sent])
        failures = [at for each in sent for at in each.failures]
        assert len(failures) == 4
        assert await ready(client, topic) == 5
        assert len(await bodies(client, topic)) == 5
        recorder = peer.attach(topic, credit=2)
        await recorder.wait_for(2)
        await recorder.ack()
        assert not (await second.publish(topic, b"a", b"b")).failures
        assert refused(await local.publish(topic, b"c")) == {0: Code.REJECTED}


async def test_bytes_are_counted_and_what_is_refused_is_not_stored(tmp_path: Path) -> None:
    async with running_stores(tmp_path, data_groups=1) as nodes, gateway_of(nodes) as client:
        peer = Peer(client, CLOCK, "peer")
        options = TopicOptions(bytes_max=2_500, overflow=Overflow.REJECT)
        topic = await peer.topic("work", options)
        sent = await peer.publish(topic, KB, b"x" + KB, KB, b"y")
        # Behind the first one that has no room nothing is taken of what came at the same time.
        assert refused(sent) == {2: Code.REJECTED, 3: Code.REJECTED}
        assert sent.batch is not None
        assert [sent.batch.place(at) for at in range(4)] == [
            (topic.queues[0].id, 0),
            (topic.queues[0].id, 1),
            None,
            None,
        ]
        journal = nodes[0].opened.store.journal
        before = journal.statistics().bytes_written
        sent = await peer.publish(topic, *[KB * 100] * 10)
        assert len(sent.failures) == 10
        assert journal.statistics().bytes_written - before < 10_000
        assert await bodies(client, topic) == [KB, b"x" + KB]


async def test_what_is_refused_may_be_dead_lettered_by_the_leader(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        peer = Peer(client, CLOCK, "peer")
        dead = await peer.topic("dead")
        options = TopicOptions(messages_max=1, overflow=Overflow.REJECT_DEAD_LETTER)
        group = GroupOptions(dead_letter=DeadLetter(None, "dead"))
        topic = await peer.topic("work", options, group)
        sent = await peer.publish(topic, b"kept", b"refused")
        assert refused(sent) == {1: Code.REJECTED}
        (dead_letter,) = await peer.attach(dead, credit=5).wait_for(1)
        assert (dead_letter.body, dead_letter.uid) == (b"refused", sent.uids[1])
        assert await bodies(client, topic) == [b"kept"]


async def test_a_repeat_is_told_what_the_first_try_was_by_any_leader(tmp_path: Path) -> None:
    async with running_stores(tmp_path, 3, data_groups=1) as nodes, gateway_of(nodes) as client:
        peer = Peer(client, CLOCK, "peer")
        options = TopicOptions(messages_max=2, overflow=Overflow.REJECT)
        topic = await peer.topic("work", options)
        identity: Identity = client.next_identity()
        slots = [slot(each) for each in (b"1", b"2", b"3")]
        part = Part([(topic.queues[0].id, 0, 3, 0)], list(map(len, slots)), slots)

        def attempt(leader: Leader, done: Done) -> None:
            leader.publish(identity, part, done, 1)

        twice = [client.proposer.outcome(GROUP, attempt) for _ in range(2)]
        told = [(0, b""), (1, b"")]
        assert await asyncio.gather(*twice) == [[told], [told]]
        leader = leader_of(nodes, GROUP)
        assert leader is not None
        await leader.kill()
        assert await asyncio.wait_for(client.proposer.outcome(GROUP, attempt), 20) == [told]
        assert await bodies(client, topic) == [b"1", b"2"]
        assert refused(await peer.publish(topic, b"4")) == {0: Code.REJECTED}


async def test_a_cut_connection_takes_no_place_for_good(tmp_path: Path) -> None:
    async with running_stores(tmp_path, data_groups=1) as nodes, gateway_of(nodes) as client:
        peer = Peer(client, CLOCK, "peer")
        options = TopicOptions(messages_max=20, overflow=Overflow.REJECT)
        topic = await peer.topic("work", options)
        sent = [peer.submit(topic, b"%d" % number) for number in range(30)]
        await asyncio.sleep(0)
        cut(nodes[0])
        await asyncio.gather(*[each.done for each in sent])
        assert sum(bool(each.failures) for each in sent) == 10
        assert await ready(client, topic) == 20
        room = nodes[0].opened.store.topic_room
        assert not room._coming


async def test_a_store_without_space_refuses_messages_and_nothing_else(tmp_path: Path) -> None:
    async with running_stores(tmp_path, data_groups=1) as nodes, gateway_of(nodes) as client:
        peer = Peer(client, CLOCK, "peer")
        topic = await peer.topic("work")
        await peer.publish(topic, b"1")
        nodes[0].fill(full=True)
        assert refused(await peer.publish(topic, b"2")) == {0: Code.NO_SPACE}
        recorder = peer.attach(topic, credit=1)
        await recorder.wait_for(1)
        assert not await recorder.ack()
        nodes[0].fill(full=False)
        assert not (await peer.publish(topic, b"3")).failures
