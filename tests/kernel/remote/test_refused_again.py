"""A refusal that is lost with its connection: the message is refused once more, not stored behind
what followed it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from kernel.api.atomic import Transaction
from kernel.api.model import DeadLetter, GroupOptions, Overflow, TopicInfo, TopicOptions
from kernel.api.refusals import NO_SPACE
from kernel.common.errors import Code, KernelError
from kernel.common.ids import Offset, RaftGroup
from kernel.remote.client import ClusterClient
from kernel.requests.leader import Done, Identity, Leader
from kernel.requests.proposer import first_of
from kernel.requests.publish_part import Part
from tests.kernel.remote.cluster import gateway_of, hand_over, running_stores
from tests.kernel.remote.gateway import GROUP, body_of, slot
from tests.kernel.remote.test_streams import cut
from tests.kernel.remote.test_transact_far import batch_of
from tests.kernel.three_stores import CLOCK, Node, leader_of, until
from tests.simulator.peer import Peer, Sent


async def bodies(client: ClusterClient, topic: TopicInfo) -> list[bytes]:
    return [body_of(each) for _, each in await client.peek(topic, 0, Offset(0), 1_000)]


def codes(sent: Sent) -> list[Code]:
    return [error.code for error in sent.failures.values()]


async def published(
    client: ClusterClient, topic: TopicInfo, identity: Identity, body: bytes
) -> object:
    """What one try of a batch comes to."""
    message = slot(body)

    def attempt(leader: Leader, done: Done) -> None:
        part = Part([(topic.queues[0].id, 0, 1, 0)], [len(message)], [message])
        leader.publish(identity, part, done, 1)

    heard: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    client.request_pipeline.send(GROUP, attempt, heard.set_result)
    result = first_of(await asyncio.wait_for(heard, 20))
    return result.code if isinstance(result, KernelError) else result


async def full(client: ClusterClient) -> tuple[Peer, TopicInfo]:
    """A topic that takes one message, and has it."""
    peer = Peer(client, CLOCK, "peer")
    topic = await peer.topic("work", TopicOptions(messages_max=1, overflow=Overflow.REJECT))
    await peer.publish(topic, b"1")
    return peer, topic


async def succeed(nodes: list[Node], change: str) -> None:
    """Another store leads the group from now on, or the same one ("none")."""
    if change == "transfer":
        await hand_over(nodes, GROUP)
    elif change == "kill":
        leader = leader_of(nodes, GROUP)
        assert leader is not None
        await leader.kill()


async def empty(peer: Peer, topic: TopicInfo) -> None:
    recorder = peer.attach(topic, credit=1)
    await recorder.wait_for(1)
    assert not await recorder.ack()
    recorder.cancel()


def lose_the_next_refusal(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk of a store is full for the first of two batches; when the second one has come, its
    connections break before anything has been answered.
    """
    inner, calls = node.service._may_not_store, 0

    def refusal(group: RaftGroup, identity: Identity) -> KernelError | None:
        nonlocal calls
        calls += 1
        if calls == 1:
            return NO_SPACE
        if calls == 2:
            cut(node)
        return inner(group, identity)

    monkeypatch.setattr(node.service, "_may_not_store", refusal)


@pytest.mark.parametrize("stores", [1, 3])
async def test_what_was_refused_stays_so_if_what_followed_it_is_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stores: int
) -> None:
    async with running_stores(tmp_path, stores, data_groups=1) as nodes, gateway_of(nodes) as far:
        peer = Peer(far, CLOCK, "peer")
        topic = await peer.topic("work")
        leader = leader_of(nodes, GROUP)
        assert leader is not None
        lose_the_next_refusal(leader, monkeypatch)
        first = peer.submit(topic, b"first")
        second = peer.submit(topic, b"second")
        third = peer.submit(topic, b"third")
        await asyncio.gather(first.done, second.done, third.done)
        assert (codes(first), codes(second), codes(third)) == ([Code.BUSY], [], [])
        assert far.request_pipeline.failures
        assert await bodies(far, topic) == [b"second", b"third"]
        assert not (await peer.publish(topic, b"first")).failures


@pytest.mark.parametrize("change", ["none", "transfer", "kill"])
async def test_a_leader_refuses_what_one_before_has_refused(tmp_path: Path, change: str) -> None:
    async with running_stores(tmp_path, 3, data_groups=1) as nodes, gateway_of(nodes) as client:
        peer, topic = await full(client)
        early, late = client.next_identity(), client.next_identity()
        assert await published(client, topic, early, b"early") == [[]]
        await empty(peer, topic)
        assert await published(client, topic, late, b"late") == [1]
        await succeed(nodes, change)
        assert await published(client, topic, early, b"early") is Code.BUSY
        assert await published(client, topic, late, b"late") == [1]
        assert (await bodies(client, topic))[-1] == b"late"


async def test_what_nothing_has_followed_may_be_stored_after_all(tmp_path: Path) -> None:
    async with running_stores(tmp_path, data_groups=1) as nodes, gateway_of(nodes) as client:
        peer, topic = await full(client)
        identity = client.next_identity()
        assert await published(client, topic, identity, b"2") == [[]]
        await empty(peer, topic)
        assert await published(client, topic, identity, b"2") == [1]
        assert await published(client, topic, identity, b"2") == [1]


async def test_another_clients_messages_do_not_count(tmp_path: Path) -> None:
    async with (
        running_stores(tmp_path, data_groups=1) as nodes,
        gateway_of(nodes) as client,
        gateway_of(nodes) as other,
    ):
        peer, topic = await full(client)
        identity = client.next_identity()
        assert await published(client, topic, identity, b"2") == [[]]
        await empty(peer, topic)
        await until(lambda: other.topic("default", "work"))
        second = Peer(other, CLOCK, "second")
        assert not (await second.publish(topic, b"other")).failures
        await empty(second, topic)
        assert await published(client, topic, identity, b"2") == [2]


async def test_a_transaction_that_was_refused_is_refused_again(tmp_path: Path) -> None:
    async with running_stores(tmp_path, data_groups=1) as nodes, gateway_of(nodes) as client:
        peer, topic = await full(client)
        batch = batch_of(peer, topic, b"2")
        tries: list[Callable[[Leader, Done], None]] = []
        inner = client.request_pipeline.send

        def send(group: RaftGroup, attempt: Callable[[Leader, Done], None], done: Done) -> None:
            tries.append(attempt)
            inner(group, attempt, done)

        client._transactor._proposer.send = send
        with pytest.raises(KernelError) as caught:
            await client.transact(Transaction(batch))
        assert caught.value.code is Code.REJECTED
        await empty(peer, topic)
        assert not (await peer.publish(topic, b"3")).failures
        heard: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        client.request_pipeline.send(GROUP, tries[0], heard.set_result)
        result = first_of(await asyncio.wait_for(heard, 20))
        assert isinstance(result, KernelError)
        assert result.code is Code.BUSY
        assert (await bodies(client, topic))[-1] == b"3"


async def dead_letters_in(client: ClusterClient, dead: TopicInfo, at_least: int) -> list[bytes]:
    """Dead letters, once there are so many."""
    async with asyncio.timeout(20):
        while len(found := await bodies(client, dead)) < at_least:
            await asyncio.sleep(0.01)
    return found


@pytest.mark.parametrize("change", ["none", "transfer", "kill"])
async def test_what_was_refused_and_dead_lettered_is_neither_stored_nor_dead_lettered_again(
    tmp_path: Path, change: str
) -> None:
    """Its refusal is in the log: a repeat hears it whoever leads, also when there is room by now,
    or nothing has followed it.
    """
    async with running_stores(tmp_path, 3, data_groups=1) as nodes, gateway_of(nodes) as client:
        peer = Peer(client, CLOCK, "peer")
        dead = await peer.topic("dead")
        options = TopicOptions(messages_max=1, overflow=Overflow.REJECT_DEAD_LETTER)
        group = GroupOptions(dead_letter=DeadLetter(None, "dead"))
        topic = await peer.topic("work", options, group)
        await peer.publish(topic, b"1")
        identity = client.next_identity()
        both = [published(client, topic, identity, b"2") for _ in range(2)]
        assert await asyncio.gather(*both) == [[[]], [[]]]
        await dead_letters_in(client, dead, 1)
        await succeed(nodes, change)
        assert await published(client, topic, identity, b"2") == [[]]
        await empty(peer, topic)
        assert await published(client, topic, identity, b"2") == [[]]
        assert not (await peer.publish(topic, b"3")).failures
        assert (await bodies(client, topic))[-1:] == [b"3"]
        assert not (await peer.publish(dead, b"last")).failures
        assert await dead_letters_in(client, dead, 2) == [b"2", b"last"]


async def test_a_refused_transaction_leaves_no_dead_letter(tmp_path: Path) -> None:
    """Nothing of it is done."""
    async with running_stores(tmp_path, data_groups=1) as nodes, gateway_of(nodes) as client:
        peer = Peer(client, CLOCK, "peer")
        dead = await peer.topic("dead")
        options = TopicOptions(messages_max=1, overflow=Overflow.REJECT_DEAD_LETTER)
        group = GroupOptions(dead_letter=DeadLetter(None, "dead"))
        topic = await peer.topic("work", options, group)
        with pytest.raises(KernelError) as caught:
            await client.transact(Transaction(batch_of(peer, topic, b"1", b"2")))
        assert caught.value.code is Code.REJECTED
        assert not (await peer.publish(topic, b"3", b"4")).accepted[1:]
        assert await dead_letters_in(client, dead, 1) == [b"4"]
