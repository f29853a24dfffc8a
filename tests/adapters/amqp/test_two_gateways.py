"""AMQP clients at two gateways of one cluster see one broker: RPC, exclusive and transient queues,
exchanges that live in memory, and what becomes of them with their gateway.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import cast

import aio_pika
import pika
import pytest
from aio_pika.abc import AbstractIncomingMessage
from aio_pika.patterns import RPC
from aiormq.exceptions import (
    ChannelLockedResource,
    ChannelPreconditionFailed,
    DeliveryError,
    PublishError,
)

from adapters.amqp.server import AmqpAdapter
from kernel.api.client import Client
from kernel.remote.client import ClusterClient
from tests.adapters.amqp.broker import Logins, serving
from tests.kernel.remote import cluster
from tests.kernel.three_stores import until


class Cluster:
    """Two gateways, each with an AMQP listener, before stores."""

    def __init__(
        self, clients: tuple[ClusterClient, ClusterClient], adapters: list[AmqpAdapter]
    ) -> None:
        self.clients = clients
        self.adapters = adapters
        ports = [each.addresses()["tcp"][1] for each in adapters]
        self.urls = [f"amqp://guest:guest@127.0.0.1:{port}/" for port in ports]


@pytest.fixture(params=[1, 3])
async def running(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    async with AsyncExitStack() as stack:
        nodes = await stack.enter_async_context(cluster.running_stores(tmp_path, request.param))
        clients = await stack.enter_async_context(cluster.two_gateways_of(nodes))
        adapters = [
            await stack.enter_async_context(serving(cast("Client", client), Logins()))
            for client in clients
        ]
        yield Cluster(clients, adapters)


async def test_rpc_of_aio_pika_over_two_gateways(running: Cluster) -> None:
    """The server consumes at one gateway; the caller's reply queue lives in the other."""

    async def multiply(*, x: int, y: int) -> int:
        return x * y

    server = await aio_pika.connect(running.urls[0])
    caller = await aio_pika.connect(running.urls[1])
    async with server, caller:
        serving_rpc = await RPC.create(await server.channel())
        await serving_rpc.register("multiply", multiply, auto_delete=True)
        calling = await RPC.create(await caller.channel())
        async with asyncio.timeout(20):
            results = await asyncio.gather(
                *[calling.call("multiply", {"x": each, "y": 7}) for each in range(50)]
            )
        assert results == [each * 7 for each in range(50)]
        await calling.close()
        await serving_rpc.close()


async def test_a_reply_queue_named_by_the_server_is_reached_at_once(running: Cluster) -> None:
    asking = await aio_pika.connect(running.urls[0])
    answering = await aio_pika.connect(running.urls[1])
    async with asking, answering:
        there = await answering.channel()
        for number in range(10):
            here = await asking.channel()
            replies = await here.declare_queue(exclusive=True)
            assert replies.name.startswith("amq.gen-")
            body = b"%d" % number
            await there.default_exchange.publish(
                aio_pika.Message(body), replies.name, mandatory=True
            )
            async with asyncio.timeout(5):
                async for message in replies.iterator():
                    assert message.body == body
                    await message.ack()
                    break


async def test_what_nobody_gets_is_counted_and_comes_back_only_if_it_is_mandatory(
    running: Cluster,
) -> None:
    """Whether somebody gets what goes to the tree of topics is found by the store that leads."""
    connection = await aio_pika.connect(running.urls[0])
    async with connection:
        channel = await connection.channel(on_return_raises=True)
        tree = await channel.get_exchange("amq.topic")
        queue = await channel.declare_queue(exclusive=True)
        await queue.bind(tree, "some.*")
        for key in ("some.one", "no.one", "no.two", "some.two", "no.one"):
            await tree.publish(aio_pika.Message(b"x"), key, mandatory=False)
        with pytest.raises((PublishError, DeliveryError)):
            await tree.publish(aio_pika.Message(b"x"), "no.one", mandatory=True)
        counters = running.adapters[0].statistics().counters
        assert (counters["published"], counters["confirmed"]) == (6, 6)
        assert (counters["unroutable"], counters["returned"]) == (4, 1)


async def test_an_exclusive_queue_is_locked_at_the_other_gateway(running: Cluster) -> None:
    owner = await aio_pika.connect(running.urls[0])
    stranger = await aio_pika.connect(running.urls[1])
    async with owner, stranger:
        await (await owner.channel()).declare_queue("mine", exclusive=True)
        for declare in ({"exclusive": True}, {"durable": True}, {"passive": True}):
            channel = await stranger.channel()
            with pytest.raises(ChannelLockedResource):
                await channel.declare_queue("mine", **declare)
        channel = await stranger.channel()
        with pytest.raises(ChannelLockedResource):
            await channel.queue_delete("mine")
        await owner.close()
        await until(lambda: running.clients[1].topic("default", "mine") is None)
        await (await stranger.channel()).declare_queue("mine", exclusive=True)


async def test_queues_of_both_gateways_hang_on_one_exchange(running: Cluster) -> None:
    one, other = [await aio_pika.connect(each) for each in running.urls]
    async with one, other:
        here, there = await one.channel(), await other.channel(on_return_raises=True)
        for durable in (True, False):
            name = f"events-{durable}"
            kind = aio_pika.ExchangeType.TOPIC
            mine = await here.declare_exchange(name, kind, durable=durable)
            theirs = await there.declare_exchange(name, kind, durable=durable)
            queues = [await each.declare_queue(exclusive=True) for each in (here, there)]
            await queues[0].bind(mine, "a.#")
            await queues[1].bind(theirs, "#.z")
            for exchange in (mine, theirs):
                await exchange.publish(aio_pika.Message(b"x"), "a.b.z")
            for queue in queues:
                for _ in range(2):
                    message = await queue.get(timeout=5)
                    assert message is not None
                    await message.ack()
            with pytest.raises((PublishError, DeliveryError)):
                await theirs.publish(aio_pika.Message(b"x"), "none", mandatory=True)


async def test_a_transient_queue_is_declared_again_bound_and_deleted_elsewhere(
    running: Cluster,
) -> None:
    one, other = [await aio_pika.connect(each) for each in running.urls]
    async with one, other:
        here, there = await one.channel(), await other.channel()
        await here.declare_queue("shared", auto_delete=True)
        again = await there.declare_queue("shared", auto_delete=True)
        await there.default_exchange.publish(aio_pika.Message(b"1"), "shared")
        known = await there.declare_queue("shared", passive=True)
        assert known.declaration_result.message_count == 1
        await again.bind("amq.fanout")
        await here.default_exchange.publish(aio_pika.Message(b"2"), "shared")
        fanout = await here.get_exchange("amq.fanout")
        await fanout.publish(aio_pika.Message(b"3"), "")
        known = await there.declare_queue("shared", passive=True)
        assert known.declaration_result.message_count == 3
        with pytest.raises(ChannelPreconditionFailed):
            await there.declare_queue("shared", durable=True)
        there = await other.channel()
        await there.queue_delete("shared")
        await until(lambda: running.clients[0].topic("default", "shared") is None)


async def test_workers_at_both_gateways_share_a_transient_queue(running: Cluster) -> None:
    one, other = [await aio_pika.connect(each) for each in running.urls]
    got: dict[int, list[bytes]] = {0: [], 1: []}
    async with one, other:
        for place, connection in enumerate((one, other)):
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=5)
            queue = await channel.declare_queue("jobs", auto_delete=True)

            async def take(message: AbstractIncomingMessage, place: int = place) -> None:
                got[place].append(message.body)
                await message.ack()

            await queue.consume(take)
        publishing = await other.channel()
        for number in range(100):
            await publishing.default_exchange.publish(aio_pika.Message(b"%d" % number), "jobs")
        await until(lambda: len(got[0]) + len(got[1]) == 100)
        assert sorted(got[0] + got[1], key=int) == [b"%d" % each for each in range(100)]
        assert got[0]
        assert got[1]


async def test_a_message_is_fetched_rejected_and_fetched_again_elsewhere(running: Cluster) -> None:
    one, other = [await aio_pika.connect(each) for each in running.urls]
    async with one, other:
        here, there = await one.channel(), await other.channel()
        await here.declare_queue("shared", auto_delete=True)
        queue = await there.get_queue("shared")
        assert await queue.get(fail=False) is None
        await here.default_exchange.publish(aio_pika.Message(b"1"), "shared")
        message = await queue.get()
        assert (message.body, message.redelivered) == (b"1", False)
        await message.reject(requeue=True)
        again = await queue.get(timeout=5)
        assert (again.body, again.redelivered) == (b"1", True)
        await again.ack()
        left = await here.declare_queue("shared", passive=True)
        assert left.declaration_result.message_count == 0


async def test_queues_of_a_gateway_that_is_killed_are_gone_for_the_other(running: Cluster) -> None:
    one, other = [await aio_pika.connect(each) for each in running.urls]
    async with one, other:
        await (await one.channel()).declare_queue("mine", exclusive=True)
        there = await other.channel(on_return_raises=True)
        await there.default_exchange.publish(aio_pika.Message(b"x"), "mine", mandatory=True)
        await cluster.lose(running.clients[0])
        await until(lambda: running.clients[1].topic("default", "mine") is None)
        with pytest.raises((PublishError, DeliveryError)):
            await there.default_exchange.publish(aio_pika.Message(b"x"), "mine", mandatory=True)
        await (await other.channel()).declare_queue("mine", exclusive=True)


async def test_mandatory_messages_to_the_topic_tree_come_back_if_nobody_is_there(
    running: Cluster,
) -> None:
    """Whether anybody is, only the leader of the name knows; in a transaction too."""
    publisher = await aio_pika.connect(running.urls[0])
    other = await aio_pika.connect(running.urls[1])
    async with publisher, other:
        channel = await publisher.channel(on_return_raises=True)
        tree = await channel.get_exchange("amq.topic")
        for body in (b"x", b"x" * 300_000):
            with pytest.raises(PublishError):
                await tree.publish(aio_pika.Message(body), "a.b", mandatory=True)
        await tree.publish(aio_pika.Message(b"dropped"), "a.b", mandatory=False)
        assert await asyncio.to_thread(_returned_at_commit, running.urls[0]) == [b"1"]
        queue = await (await other.channel()).declare_queue("q", durable=True)
        await queue.bind("amq.topic", "a.#")

        async def arrives() -> bool:
            try:
                await tree.publish(aio_pika.Message(b"kept"), "a.b", mandatory=True)
            except PublishError:
                return False
            return True

        async with asyncio.timeout(10):  # the binding was made at the other gateway
            while not await arrives():
                pass
        message = await queue.get(timeout=10)
        assert (message.body, message.routing_key) == (b"kept", "a.b")


async def test_direct_replies_over_two_gateways(running: Cluster) -> None:
    """The requester listens at one gateway, the responder answers at the other."""
    responder = await aio_pika.connect(running.urls[0])
    requester = await aio_pika.connect(running.urls[1])
    async with responder, requester:
        answering, asking = await responder.channel(), await requester.channel()
        requests = await answering.declare_queue("requests", durable=True)

        async def answer(request: AbstractIncomingMessage) -> None:
            assert request.reply_to is not None
            reply = aio_pika.Message(request.body * 2, correlation_id=request.correlation_id)
            await answering.default_exchange.publish(reply, request.reply_to)
            await request.ack()

        await requests.consume(answer)
        replies: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        pseudo = await asking.get_queue("amq.rabbitmq.reply-to")
        await pseudo.consume(replies.put, no_ack=True)
        for number in range(20):
            request = aio_pika.Message(
                b"%d" % number, correlation_id=str(number), reply_to="amq.rabbitmq.reply-to"
            )
            await asking.default_exchange.publish(request, "requests")
        for number in range(20):
            reply = await asyncio.wait_for(replies.get(), 10)
            assert (reply.correlation_id, reply.body) == (str(number), b"%d" % number * 2)
        await requester.close()
        for client in running.clients:
            await until(lambda client=client: not _addresses(client))  # type: ignore[misc]


def _returned_at_commit(url: str) -> list[bytes]:
    returned: list[bytes] = []
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.add_on_return_callback(lambda *args: returned.append(args[3]))
        channel.tx_select()
        channel.basic_publish("amq.topic", "a.b", b"1", mandatory=True)
        channel.basic_publish("amq.topic", "a.b", b"2")
        channel.tx_commit()
        connection.process_data_events()
    return returned


def _addresses(client: ClusterClient) -> list[str]:
    return [each.name for each in client.topics("default") if "reply-to" in each.name]


async def test_with_a_ttl_of_zero_who_waits_at_another_gateway_gets_it(running: Cluster) -> None:
    giver = await aio_pika.connect(running.urls[0])
    recorder = await aio_pika.connect(running.urls[1])
    async with giver, recorder:
        sending, taking = await giver.channel(), await recorder.channel()
        await sending.declare_queue("now", durable=True)
        now = aio_pika.Message(b"x", expiration=0)
        await sending.default_exchange.publish(now, "now")
        queue = await taking.get_queue("now")
        async with asyncio.timeout(20):
            while (
                await taking.declare_queue("now", passive=True)
            ).declaration_result.message_count:
                await asyncio.sleep(0.01)
        got: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        await queue.consume(got.put, no_ack=True)
        async with asyncio.timeout(20):
            for _ in range(50):
                await sending.default_exchange.publish(now, "now")
            for _ in range(50):
                await got.get()


async def test_copies_reach_queues_of_several_groups_and_gateways(running: Cluster) -> None:
    giver = await aio_pika.connect(running.urls[0])
    recorder = await aio_pika.connect(running.urls[1])
    async with giver, recorder:
        sending, taking = await giver.channel(), await recorder.channel()
        queues = [await taking.declare_queue(f"c{number}", durable=True) for number in range(4)]
        own = await taking.declare_queue("own", exclusive=True)
        async with asyncio.timeout(20):
            headers = {"CC": ["c1", "c2"], "BCC": ["c3", "own"]}
            await sending.default_exchange.publish(aio_pika.Message(b"x", headers=headers), "c0")
            for queue in (*queues, own):
                while (message := await queue.get(fail=False, no_ack=True)) is None:
                    await asyncio.sleep(0.01)
                assert (message.routing_key, message.headers) == ("c0", {"CC": ["c1", "c2"]})
                assert await queue.get(fail=False) is None
