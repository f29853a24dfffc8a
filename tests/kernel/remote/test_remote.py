"""A gateway that leads nothing, and three stores, over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kernel.api.client import LeaseVerb, ReceiveSpec
from kernel.api.model import DEFAULT_GROUP, Reason
from kernel.common.errors import Code, KernelError
from kernel.common.ids import Offset, QueueId
from kernel.remote.leader_calls import call_numbers as calls
from kernel.remote.leader_calls import call_wire as wire
from kernel.requests.leader import Done, Leader, LeaseChanging
from kernel.requests.publish_part import Part
from kernel.rpc.link import _Wire
from tests.kernel.remote.gateway import GROUP, Gateway, started
from tests.kernel.three_stores import Node, leader_of, running, until


async def test_what_is_acked_is_stored_once_and_in_order_while_leaders_are_killed_and_moved(
    tmp_path: Path,
) -> None:
    messages = 5_000
    async with running(tmp_path) as nodes:
        gateway = Gateway(nodes[0].addresses, call_ms=2_000)
        async with started(gateway, nodes):
            queues = await gateway.topic("numbers", queues=2)
            sent: dict[QueueId, list[bytes]] = {queue: [] for queue in queues}
            answers: list[object] = []
            disturbing = asyncio.create_task(_disturb(nodes))
            number = batches = 0
            while number < messages:
                size = 1 + batches % 7
                queue = queues[batches % 2]
                bodies = [b"%d" % each for each in range(number, number + size)]
                sent[queue] += bodies
                gateway.publish(queue, bodies, answers.append)
                batches += 1
                number += size
                if not batches % 8:
                    await asyncio.sleep(0.01)
            await disturbing
            await until(lambda: len(answers) == batches)
            assert gateway.request_pipeline.failures >= 3
            assert not [each for each in answers if not _is_stored(each)]
            for queue in queues:
                assert await gateway.bodies(queue) == sent[queue]


def _is_stored(answer: object) -> bool:
    return isinstance(answer, tuple) and isinstance(answer[0], list) and answer[0][0] >= 0


async def _disturb(nodes: list[Node]) -> None:
    """Kill two leaders, and hand over twice."""
    for _ in range(2):
        await asyncio.sleep(0.1)
        leader = await _serving(nodes)
        await leader.kill()
        await _serving(nodes)
        await leader.start()
        await asyncio.sleep(0.1)
        leader = await _serving(nodes)
        to = next(node for node in nodes if node is not leader)
        leader.opened.store.consensus.transfer(GROUP, to.number)


async def _serving(nodes: list[Node]) -> Node:
    await until(lambda: leader_of(nodes, GROUP))
    leader = leader_of(nodes, GROUP)
    assert leader is not None
    return leader


async def test_definitions_leases_purges_figures_and_peeks(tmp_path: Path) -> None:
    async with running(tmp_path) as nodes:
        gateway = Gateway(nodes[0].addresses)
        async with started(gateway, nodes):
            (queue,) = await gateway.topic("work")
            with pytest.raises(KernelError) as caught:
                await gateway.topic("work", number=2)
            assert caught.value.code is Code.ALREADY_EXISTS
            await gateway.stored(queue, [b"one", b"two", b"three"])
            leader = gateway.remote.leader(GROUP)
            figures = await leader.figures(queue, DEFAULT_GROUP)
            assert (figures.ready, figures.leased) == (3, 0)

            token = await _lease(nodes, queue)
            assert (await leader.figures(queue, DEFAULT_GROUP)).leased == 1
            good = [_change(0, token, LeaseVerb.EXTEND), _change(0, token + 1, LeaseVerb.ACK)]
            assert await _changed(gateway, queue, good) == [1, 0]
            assert await _changed(gateway, queue, [_change(0, token, LeaseVerb.ACK)]) == [1]

            identity = gateway.identity()

            def purge(leader: Leader, heard: Done) -> None:
                leader.purge(queue, DEFAULT_GROUP, identity, heard, in_flight=True)

            assert await gateway.proposer.outcome(GROUP, purge) == 2
            assert (await leader.figures(queue, DEFAULT_GROUP)).ready == 0
            gone = QueueId(queue + 1)
            for question in (leader.figures(gone, DEFAULT_GROUP), leader.peek(gone, Offset(0), 1)):
                with pytest.raises(KernelError) as caught:
                    await question
                assert caught.value.code is Code.NOT_FOUND


async def _lease(nodes: list[Node], queue: QueueId) -> int:
    """Lease the first message; the token, which is the index of the entry."""
    serving = (await _serving(nodes)).opened
    topic = serving.store.replica(GROUP).state.queues[queue].topic.info()
    got = await serving.client.receive(ReceiveSpec(topic, DEFAULT_GROUP, lease_ms=1 << 40))
    assert got.deliveries is not None
    state = (await _serving(nodes)).opened.store.replica(GROUP).state
    holder = state.queues[queue].groups[DEFAULT_GROUP].holder(0)
    assert holder is not None
    return holder[0]


def _change(offset: int, lease: int, verb: LeaseVerb) -> LeaseChanging:
    return LeaseChanging(Offset(offset), lease, verb, Reason.REJECTED, 60_000)


async def _changed(gateway: Gateway, queue: QueueId, changes: list[LeaseChanging]) -> object:
    identity = gateway.identity()

    def attempt(leader: Leader, heard: Done) -> None:
        leader.change_leases(queue, DEFAULT_GROUP, changes, identity, heard, 1)

    return await gateway.proposer.outcome(GROUP, attempt)


async def test_a_batch_that_is_sent_again_to_the_next_leader_is_answered_from_what_is_remembered(
    tmp_path: Path,
) -> None:
    async with running(tmp_path) as nodes:
        gateway = Gateway(nodes[0].addresses)
        async with started(gateway, nodes):
            (queue,) = await gateway.topic("once")
            first = await gateway.stored(queue, [b"x"])
            await (await _serving(nodes)).kill()
            gateway._sequence = iter([2])  # type: ignore[assignment]
            assert await gateway.stored(queue, [b"y"]) == first == ([0],)
            assert await gateway.bodies(queue) == [b"x"]


async def test_a_gateway_with_another_secret_does_not_get_in(tmp_path: Path) -> None:
    async with running(tmp_path) as nodes:
        gateway = Gateway(nodes[0].addresses, secret=b"guessed", question_ms=300)
        gateway.remote.start()
        try:
            await _serving(nodes)
            with pytest.raises(KernelError) as caught:
                await gateway.remote.leader(GROUP).figures(QueueId(1), DEFAULT_GROUP)
            assert caught.value.code is Code.UNAVAILABLE
            assert gateway.remote.connected == []
        finally:
            await gateway.remote.stop()


async def test_an_unknown_method_is_refused_and_the_connection_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path) as nodes:
        gateway = Gateway(nodes[0].addresses)
        async with started(gateway, nodes):
            (queue,) = await gateway.topic("methods")
            channel = gateway.remote.channel_to(GROUP)
            assert channel is not None
            heard: list[object] = []
            channel.call(200, [b""], heard.append, 1_000)
            await until(lambda: heard)
            assert isinstance(heard[0], KernelError)
            assert heard[0].code is Code.INVALID_ARGUMENT
            assert await gateway.stored(queue, [b"x"]) == ([0],)


async def test_what_is_no_call_closes_the_connection_and_the_store_goes_on(tmp_path: Path) -> None:
    async with running(tmp_path) as nodes:
        gateway = Gateway(nodes[0].addresses)
        async with started(gateway, nodes):
            (queue,) = await gateway.topic("fuzzed")
            channel = gateway.remote.channel_to(GROUP)
            assert channel is not None
            heard: list[object] = []
            channel.call(calls.PUBLISH, [b"\xff" * 40], heard.append, 1_000)
            await until(lambda: heard)
            assert channel.is_closed
            assert await gateway.stored(queue, [b"x"]) == ([0],)


async def test_a_store_that_hangs_is_given_up_and_another_leads(tmp_path: Path) -> None:
    async with running(tmp_path) as nodes:
        gateway = Gateway(nodes[0].addresses, call_ms=300)
        async with started(gateway, nodes):
            (queue,) = await gateway.topic("hanging")
            leader = await _serving(nodes)
            channel = gateway.remote.channel_to(GROUP)
            outcomes: list[object] = []
            for wires in (leader.links.acceptor._wires, [_dialed(leader, to) for to in nodes]):
                for each in wires:
                    if each is not None and each._transport is not None:
                        each._transport.pause_reading()
            stuck = wire.encode_publish((GROUP, 1 << 30), (5, 1, 1), Part([], [], []), 1)
            assert channel is not None
            channel.call(calls.PUBLISH, stuck, outcomes.append, 300)
            assert await gateway.stored(queue, [b"x"]) == ([0],)
            assert [each.code for each in outcomes] == [Code.TIMEOUT]  # type: ignore[attr-defined]
            assert gateway.request_pipeline.failures >= 1
            assert await gateway.bodies(queue) == [b"x"]
            others = [node for node in nodes if node is not leader]
            await until(lambda: leader_of(others, GROUP) is not None)


def _dialed(node: Node, to: Node) -> _Wire | None:
    dialer = node.links._dialers.get(to.number)
    return dialer._wire if dialer is not None else None


@pytest.mark.parametrize(("calls_max", "bytes_max"), [(2, 1 << 30), (1_000, 3_000)])
async def test_above_its_share_a_gateway_waits_and_nothing_is_lost_or_reordered(
    tmp_path: Path, calls_max: int, bytes_max: int
) -> None:
    async with running(tmp_path) as nodes:
        for node in nodes:
            node.service._calls_max, node.service._bytes_max = calls_max, bytes_max
        gateway = Gateway(nodes[0].addresses)
        async with started(gateway, nodes):
            (queue,) = await gateway.topic("pressed")
            answers: list[object] = []
            bodies = [b"%d" % number + b"." * 500 for number in range(60)]
            for each in bodies:
                gateway.publish(queue, [each], answers.append)
            await until(lambda: len(answers) == len(bodies))
            assert await gateway.bodies(queue) == bodies
            figures = [node.service.figures for node in nodes]
            refused = sum(each.over_calls + each.over_bytes for each in figures)
            assert refused >= 1
