"""Who may still hold what, when leaders, gateways and connections follow each other."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kernel.api.client import ConsumerSpec, Settlement
from kernel.api.model import DEFAULT_GROUP, TopicInfo
from kernel.common.errors import Code, KernelError
from kernel.remote.client import ClusterClient
from kernel.remote.streams import stream_wire
from kernel.remote.streams.parts import CreditPool, StreamPart
from kernel.remote.streams.stream_service import AWAY_MS, CLAIM_MS, SETTLE_IN_MS, StreamService
from kernel.rpc.handshake import VERSIONS, Hello
from kernel.rpc.roles import GATEWAY
from tests.kernel.remote.cluster import gateway_of, hand_over, running_stores, serving
from tests.kernel.remote.gateway import GROUP, Gateway, started
from tests.kernel.remote.test_pulls import leased, made, published
from tests.kernel.remote.test_streams import Recorder, cut, unacked
from tests.kernel.three_stores import Node, until


def service_of(node: Node) -> StreamService:
    return node.service.streams


class Claimant(Recorder):
    """A stream of a subscriber that has this epoch now."""

    def __init__(self, client: ClusterClient, topic: TopicInfo, epoch: int) -> None:
        super().__init__(client, topic, 0)
        self.consumer.cancel()
        pool = CreditPool()
        spec = ConsumerSpec(topic, DEFAULT_GROUP, self.session)
        self.part: StreamPart = client.streams.attach_part(
            topic.queues[0], spec, self, pool, (7, epoch)
        )
        self.part.grant(10)


async def test_a_later_connection_of_a_subscriber_ends_the_earlier_ones_stream(
    tmp_path: Path,
) -> None:
    async with (
        running_stores(tmp_path) as nodes,
        gateway_of(nodes) as one,
        gateway_of(nodes) as two,
    ):
        topic = await made(nodes)
        await published(one, topic, 0, b"1")
        early = Claimant(one, topic, 1)
        await early.wait_for(1)
        late = Claimant(two, topic, 2)
        await late.wait_for(1)
        assert [(body, attempt) for _, _, body, attempt in late.got] == [(b"1", 2)]
        await until(lambda: early.ended)
        assert early.ended[0].code is Code.SESSION_FENCED
        one.acknowledge({early.part: [0]})
        too_late = Claimant(one, topic, 1)
        await until(lambda: too_late.ended)
        assert too_late.ended[0].code is Code.SESSION_FENCED
        assert service_of(nodes[0]).figures.fenced == 2
        assert leased(nodes, topic) == 1
        again = Claimant(two, topic, 2)  # of the same connection there may be several
        await two.attached(again.part)
        assert not late.ended


async def test_a_claim_of_an_earlier_connection_is_refused_by_the_next_leader(
    tmp_path: Path,
) -> None:
    async with (
        running_stores(tmp_path, 3, data_groups=1) as nodes,
        gateway_of(nodes) as one,
        gateway_of(nodes) as two,
    ):
        gateway = Gateway(nodes[0].addresses)
        async with started(gateway, nodes):
            (queue,) = await gateway.topic("work")
            leader = await serving(nodes, GROUP)
            topic = leader.opened.store.replica(GROUP).state.queues[queue].topic.info()
            early = Claimant(one, topic, 1)
            await gateway.stored(queue, [b"1"])
            await early.wait_for(1)
            # The earlier one does not hear that it is over.
            early.part.sink = early
            one.streams._ended = lambda *_: None  # type: ignore[method-assign]
            late = Claimant(two, topic, 2)
            await late.wait_for(1)
            await leader.kill()
            await serving(nodes, GROUP)
            await gateway.stored(queue, [b"2"])
            await late.wait_for(2)
            assert [body for _, _, body, _ in late.got] == [b"1", b"2"]
            await asyncio.sleep(0.1)
            assert [body for _, _, body, _ in early.got] == [b"1"]


async def test_what_a_gateway_holds_returns_at_once_when_it_ends_in_order(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        await published(client, topic, 0, b"1", b"2")
        heir = Recorder(client, topic, 0)
        async with gateway_of(nodes) as other:
            recorder = Recorder(other, topic, 2)
            await recorder.wait_for(2)
            other.acknowledge({recorder.consumer: [0]})
        heir.consumer.grant(10)
        began = time.monotonic()
        await heir.wait_for(1)
        assert time.monotonic() - began < AWAY_MS / 1_000 / 2
        assert [(body, attempt) for _, _, body, attempt in heir.got] == [(b"2", 2)]
        assert len(service_of(nodes[0])._gateways) == 1


async def test_a_new_leader_does_not_wait_for_a_gateway_that_has_ended_in_order(
    tmp_path: Path,
) -> None:
    async with running_stores(tmp_path, 3, data_groups=1) as nodes, gateway_of(nodes) as client:
        gateway = Gateway(nodes[0].addresses)
        async with started(gateway, nodes):
            (queue,) = await gateway.topic("work")
            leader = await serving(nodes, GROUP)
            topic = leader.opened.store.replica(GROUP).state.queues[queue].topic.info()
            recorder = Recorder(client, topic, 10)
            await gateway.stored(queue, [b"1"])
            await recorder.wait_for(1)
            async with gateway_of(nodes) as other:
                await other.attached(Recorder(other, topic, 1).consumer)
            began = time.monotonic()
            await hand_over(nodes, GROUP)
            await gateway.stored(queue, [b"2"])
            await recorder.wait_for(2)
            assert time.monotonic() - began < CLAIM_MS / 1_000 / 2
            assert recorder.bodies == [b"1", b"2"]


async def test_what_gateways_hold_is_counted_when_a_single_store_ends_in_order(
    tmp_path: Path,
) -> None:
    async with running_stores(tmp_path) as nodes:
        async with gateway_of(nodes) as client:
            topic = await made(nodes)
            await published(client, topic, 0, b"1", b"2")
            recorder = Recorder(client, topic, 2)
            await recorder.wait_for(2)
            await nodes[0].stop()
            await nodes[0].start()
            client.acknowledge({recorder.consumer: [0]})
            await until(lambda: unacked(nodes, topic) == 1)
            assert len(recorder.got) == 2
            await nodes[0].kill()  # so that the gateway cannot say what it holds
        await nodes[0].start()
        async with gateway_of(nodes) as other:
            heir = Recorder(other, topic, 10)
            await heir.wait_for(1)
            assert [body for _, _, body, _ in heir.got] == [b"2"]
            assert heir.got[0][3] > 1


async def test_the_wait_for_claims_at_its_times(tmp_path: Path) -> None:
    """A gateway whose connection has broken is waited for as long as CLAIM_MS says, and none is
    before SETTLE_IN_MS of the process.
    """
    assert SETTLE_IN_MS < CLAIM_MS
    async with running_stores(tmp_path) as nodes:
        nodes[0].settle_in_ms = SETTLE_IN_MS
        async with gateway_of(nodes) as client:
            topic = await made(nodes)
            recorder = Recorder(client, topic, 1)
            await published(client, topic, 0, b"1", b"2")
            await recorder.wait_for(1)
            await nodes[0].kill()
            began = time.monotonic()
            await nodes[0].start()
            assert nodes[0].opened.store.replica(topic.queues[0].group).awaits_claims
            await until(partial(client.leaders.channel_to, topic.queues[0].group))
            other = Recorder(client, topic, 1)
            await other.wait_for(1)
            waited = time.monotonic() - began
            assert SETTLE_IN_MS / 1_000 - 0.2 < waited < CLAIM_MS / 1_000
            assert other.bodies == [b"2"]
            recorder.settle(0, Settlement.ACK)
            await until(lambda: recorder.settlements == [(0, None)])


async def test_the_wait_for_claims_ends_although_a_gateway_stays_away(tmp_path: Path) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        service = service_of(nodes[0])
        service._away_ms = 3 * CLAIM_MS
        async with gateway_of(nodes) as other:
            recorder = Recorder(other, topic, 1)
            await published(client, topic, 0, b"1")
            await recorder.wait_for(1)
            other.streams.stop = lambda: None  # type: ignore[method-assign]
        replica = nodes[0].opened.store.replica(topic.queues[0].group)
        service.follows(replica)
        replica.awaits_claims = True
        began = time.monotonic()
        service.leads(replica)
        await until(lambda: not replica.awaits_claims)
        assert time.monotonic() - began > CLAIM_MS / 1_000 - 0.5


@pytest.mark.parametrize("breaks", [1, 5])
async def test_settlements_reach_the_leader_over_connections_that_break(
    tmp_path: Path, breaks: int
) -> None:
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        recorder = Recorder(client, topic, 100)
        await published(client, topic, 0, *[b"%d" % each for each in range(60)])
        await recorder.wait_for(60)
        for turn in range(breaks):
            for at in range(turn * 10, turn * 10 + 10):
                recorder.settle(at, Settlement.ACK)
            cut(nodes[0])
            await asyncio.sleep(0.02)
        await until(lambda: len(recorder.settlements) == breaks * 10)
        assert all(failures is None for _, failures in recorder.settlements)
        await until(lambda: unacked(nodes, topic) == 60 - breaks * 10)


def test_errors_of_streams_are_told_by_their_code() -> None:
    ended = stream_wire.Ended(1, Code.SESSION_FENCED.wire, "why")
    assert isinstance(ended.error, KernelError)
    assert ended.error.code is Code.SESSION_FENCED
    took = stream_wire.Took(1, 1, 0, "a code of a later version", "why")
    assert took.error is not None
    assert took.error.code is Code.UNAVAILABLE


class _Said:
    """A connection of a gateway, as its store has it: what it is told, by method."""

    waiting_bytes = 0

    def __init__(self, process: str) -> None:
        self.peer = Hello(VERSIONS, "test", 0, process, GATEWAY, "", bytes(16))
        self.said: list[int] = []

    def tell(self, method: int, _parts: list[bytes]) -> None:
        self.said.append(method)

    def before_take(self, action: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(action)


async def test_a_connection_that_follows_one_whose_end_was_not_noticed_claims_anew(
    tmp_path: Path,
) -> None:
    """The gateway has forgotten a stream meanwhile, since nothing of it was left there."""
    async with running_stores(tmp_path) as nodes, gateway_of(nodes) as client:
        topic = await made(nodes)
        service = service_of(nodes[0])
        (ref,) = topic.queues
        head = stream_wire.Attach(
            stream=1,
            pool=1,
            group=ref.group,
            queue=ref.id,
            name=DEFAULT_GROUP,
            subscriber=0,
            epoch=0,
            origin=0,
            priority=0,
            exclusive=False,
            auto_ack=False,
            pull=False,
            is_over=False,
            filter=None,
            held=[],
        )
        early, late = _Said("p"), _Said("p")

        def tell(channel: _Said, method: int, head: object) -> None:
            payload = b"".join(stream_wire.encode(head))
            service.told(channel, method, payload)  # type: ignore[arg-type]

        tell(early, stream_wire.ATTACH, [head])
        tell(early, stream_wire.STREAM_BATCH, stream_wire.StreamBatch([(1, 5)], [], [], [], []))
        await published(client, topic, 0, b"1")
        await until(lambda: stream_wire.DELIVER in early.said)
        assert leased(nodes, topic) == 1
        tell(late, stream_wire.ATTACH, [])
        term = nodes[0].opened.store.standing(ref.group)[0]
        tell(late, stream_wire.CLAIMED, stream_wire.Claimed(ref.group, term))
        assert (service.count, leased(nodes, topic)) == (0, 0)
        assert stream_wire.DELIVER not in late.said
        service.closed(early)  # type: ignore[arg-type]
        heir = Recorder(client, topic, 1)
        await heir.wait_for(1)
        assert heir.got[0][3] == 2
