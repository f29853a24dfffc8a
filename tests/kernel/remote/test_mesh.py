"""What lives in the memory of one gateway, used from another: transient topics and their routes."""

from __future__ import annotations

import asyncio

import pytest

from gateway.admin.metrics.gateway_metrics import GatewayFigures
from kernel.api.client import DeleteTopic, PurgeTopic, PutRoute, PutRouter, PutTopic, Settlement
from kernel.api.model import (
    DEFAULT_GROUP,
    DEFAULT_TENANT,
    DeadLetter,
    GroupOptions,
    Overflow,
    Route,
    RouterOptions,
    TopicInfo,
    TopicOptions,
)
from kernel.common.errors import Code, KernelError
from kernel.remote.client import ClusterClient
from kernel.remote.mesh import announcing, inbox
from kernel.remote.mesh import link as mesh_link
from kernel.remote.mesh.pseudo_groups import is_pseudo_group
from tests.kernel.remote.cluster import (
    Pair,
    lose,
    meeting_gateway_of,
)
from tests.kernel.remote.local import peer_of, recorder_at
from tests.kernel.three_stores import until

TRANSIENT = TopicOptions(durable=False)


def seen(client: ClusterClient, name: str) -> TopicInfo:
    found = client.topic(DEFAULT_TENANT, name)
    assert found is not None
    return found


async def test_a_transient_topic_is_published_to_from_another_gateway(pair: Pair) -> None:
    _, one, other = pair
    mine = await peer_of(one).topic("replies", TRANSIENT)
    recorder = recorder_at(one, mine)
    theirs = seen(other, "replies")  # at once: whoever was answered may tell everybody
    assert is_pseudo_group(theirs.queues[0].group)
    sent = await peer_of(other).publish(theirs, b"1", b"2", b"3")
    assert not sent.failures
    got = await recorder.wait_for(3)
    assert [each.body for each in got] == [b"1", b"2", b"3"]
    await one.administer(DeleteTopic(DEFAULT_TENANT, "replies"))
    assert other.topic(DEFAULT_TENANT, "replies") is None


async def test_a_request_over_two_gateways_is_answered(pair: Pair) -> None:
    """The requester is at one gateway, the server at the other; the queue of requests is durable,
    that of replies lives in the requester's gateway.
    """
    _, one, other = pair
    requester, server = peer_of(one, "requester"), peer_of(other, "server")
    requests = await server.topic("requests")
    replies = await requester.topic("replies", TRANSIENT)
    answers = recorder_at(one, replies)
    recorder = server.attach(seen(other, "requests"), credit=100)
    await requester.publish(seen(one, "requests"), *(b"%d" % each for each in range(20)))
    assert requests == seen(one, "requests")
    for request in await recorder.wait_for(20):
        sent = await server.publish(seen(other, "replies"), b"answer to " + request.body)
        assert not sent.failures
    await recorder.ack()
    got = await answers.wait_for(20)
    assert [each.body for each in got] == [b"answer to %d" % each for each in range(20)]


async def test_a_durable_router_leads_to_transient_topics_of_both_gateways(pair: Pair) -> None:
    nodes, one, other = pair
    await one.administer(PutRouter(DEFAULT_TENANT, "r", RouterOptions()))
    recorders = []
    for client, name in ((one, "v1"), (other, "v2")):
        topic = await peer_of(client).topic(name, TRANSIENT)
        await client.administer(PutRoute(DEFAULT_TENANT, "r", Route(topic=name, key="k")))
        recorders.append(recorder_at(client, topic))
    kept = await peer_of(one).topic("d")
    await until(lambda: all(each.opened.client.topic(DEFAULT_TENANT, "d") for each in nodes))
    await one.administer(PutRoute(DEFAULT_TENANT, "r", Route(topic="d", key="k")))
    for client in (one, other):
        to = client.to_router(DEFAULT_TENANT, "r", "k")
        assert to.count == 3
        sent = await peer_of(client).publish(to, b"from " + str(client is one).encode())
        assert not sent.failures
    for recorder in recorders:
        got = await recorder.wait_for(2)
        assert {each.body for each in got} == {b"from True", b"from False"}
    assert (await one.statistics(seen(one, "d"), DEFAULT_GROUP)).ready == 2
    assert kept.options.durable


async def test_a_transient_router_is_used_and_bound_from_another_gateway(two: Pair) -> None:
    _, one, other = two
    await one.administer(PutRouter(DEFAULT_TENANT, "r", RouterOptions(durable=False)))
    assert other.router(DEFAULT_TENANT, "r") is not None
    mine = await peer_of(one).topic("v1", TRANSIENT)
    theirs = await peer_of(other).topic("v2", TRANSIENT)
    for client, name in ((other, "v1"), (other, "v2")):
        await client.administer(PutRoute(DEFAULT_TENANT, "r", Route(topic=name, key="k")))
    recorders = [recorder_at(one, mine), recorder_at(other, theirs)]
    for client in (one, other):
        to = client.to_router(DEFAULT_TENANT, "r", "k")
        assert to.count == 2
        assert not (await peer_of(client).publish(to, b"x")).failures
    for recorder in recorders:
        await recorder.wait_for(2)
    await one.administer(DeleteTopic(DEFAULT_TENANT, "v1"))
    await until(lambda: other.to_router(DEFAULT_TENANT, "r", "k").count == 1)
    await lose(one)
    await until(lambda: other.router(DEFAULT_TENANT, "r") is None)
    await until(lambda: not other.local._replica.state.routers)


async def test_what_lived_in_a_gateway_that_is_killed_is_gone(pair: Pair) -> None:
    _, one, other = pair
    await one.administer(PutRouter(DEFAULT_TENANT, "r", RouterOptions()))
    await peer_of(one).topic("v", TRANSIENT)
    await one.administer(PutRoute(DEFAULT_TENANT, "r", Route(topic="v", key="k")))
    assert other.to_router(DEFAULT_TENANT, "r", "k").count == 1
    stale = seen(other, "v")
    await lose(one)
    await until(lambda: other.topic(DEFAULT_TENANT, "v") is None)
    assert other.to_router(DEFAULT_TENANT, "r", "k").count == 0
    assert other.mesh.remote_memory.figures.gone == 1
    sent = await peer_of(other).publish(stale, b"late")
    assert sent.failures[0].code is Code.UNAVAILABLE
    again = await peer_of(other).topic("v", TRANSIENT)  # the name is free
    assert again.id != stale.id


def silence(client: ClusterClient) -> None:
    """Break the connections that a gateway has opened to others, for good."""
    for dialer in client.mesh._dialers.values():
        assert dialer._task is not None
        dialer._task.cancel()
        assert dialer._wire is not None
        dialer._wire.abort()


async def test_messages_under_way_to_a_gateway_that_is_killed_are_refused(two: Pair) -> None:
    _, one, other = two
    await peer_of(one).topic("v", TRANSIENT)
    silence(one)
    sent = peer_of(other).submit(seen(other, "v"), b"x")
    await until(lambda: other.mesh.remote_memory.waiting_bytes)
    assert not sent.done.done()
    await lose(one)
    await sent.done
    assert sent.failures[0].code is Code.UNAVAILABLE
    assert other.mesh.remote_memory.waiting_bytes == 0


async def test_what_waits_for_another_gateway_is_bounded(
    two: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, one, other = two
    topic = await peer_of(one).topic("v", TRANSIENT)
    monkeypatch.setattr(mesh_link, "LINK_BYTES_MAX", 1_000)
    peer = peer_of(other)
    sents = [peer.submit(seen(other, "v"), bytes(400)) for _ in range(4)]
    for sent in sents:
        await sent.done
    assert [bool(each.failures) for each in sents] == [False, False, True, True]
    assert sents[2].failures[0].code is Code.BUSY
    assert (await one.statistics(topic, DEFAULT_GROUP)).ready == 2
    assert other.mesh.remote_memory.figures.refused == 2


async def test_a_gateway_that_cannot_be_reached_for_long_is_given_up(two: Pair) -> None:
    _, one, other = two
    await peer_of(one).topic("v", TRANSIENT)
    other.mesh.remote_memory._gone_ms = 100
    silence(one)  # the stores still hear it
    await until(lambda: other.topic(DEFAULT_TENANT, "v") is None)


def cut(client: ClusterClient) -> None:
    """Break what others have dialled, and what this one has."""
    assert client.mesh.meeting is not None
    wires = [*client.mesh.meeting.acceptor._wires]
    wires += [each._wire for each in client.mesh._dialers.values() if each._wire is not None]
    for wire in wires:
        wire.abort()


async def test_a_connection_that_breaks_loses_and_repeats_nothing(two: Pair) -> None:
    _, one, other = two
    topic = await peer_of(one).topic("v", TRANSIENT)
    recorder = recorder_at(one, topic, credit=10_000)
    peer = peer_of(other)
    sents = []
    for number in range(300):
        sents.append(peer.submit(seen(other, "v"), b"%d" % number))
        if number % 60 == 30:
            cut(one)
        if number % 7 == 0:
            await asyncio.sleep(0.002)
    for sent in sents:
        await sent.done
        assert not sent.failures
    got = await recorder.wait_for(300)
    assert [each.body for each in got] == [b"%d" % each for each in range(300)]
    assert other.mesh.remote_memory.waiting_bytes == 0


async def test_everything_is_told_again_to_a_gateway_that_comes_later(two: Pair) -> None:
    nodes, one, other = two
    await one.administer(PutRouter(DEFAULT_TENANT, "r", RouterOptions()))
    for number in range(40):
        await peer_of(one).topic(f"v{number}", TRANSIENT)
        route = Route(topic=f"v{number}", key="k")
        await one.administer(PutRoute(DEFAULT_TENANT, "r", route))
    async with meeting_gateway_of(nodes) as third:
        await until(lambda: third.to_router(DEFAULT_TENANT, "r", "k").count == 40)
    cut(one)
    for number in range(20):
        await one.administer(DeleteTopic(DEFAULT_TENANT, f"v{number}"))
    await until(lambda: other.to_router(DEFAULT_TENANT, "r", "k").count == 20)


async def test_changes_of_a_transient_topic_are_made_where_it_lives(two: Pair) -> None:
    _, one, other = two
    await peer_of(one).topic("v", TRANSIENT)
    peer = peer_of(other)
    again = await peer.topic("v", TRANSIENT)
    assert again is seen(other, "v")
    await peer.publish(again, b"1", b"2")
    assert (await other.statistics(again, DEFAULT_GROUP)).ready == 2
    assert await other.administer(PurgeTopic(DEFAULT_TENANT, "v", DEFAULT_GROUP)) == 2
    for change, code in (
        (
            PutTopic(
                DEFAULT_TENANT, "v", TRANSIENT, {DEFAULT_GROUP: GroupOptions()}, must_be_new=True
            ),
            Code.ALREADY_EXISTS,
        ),
        (PutTopic(DEFAULT_TENANT, "v", TopicOptions(), {}), Code.ALREADY_EXISTS),
        (PutRoute(DEFAULT_TENANT, "none", Route(topic="v")), Code.NOT_FOUND),
    ):
        with pytest.raises(KernelError) as caught:
            await other.administer(change)
        assert caught.value.code is code
    await other.administer(DeleteTopic(DEFAULT_TENANT, "v"))
    assert one.topic(DEFAULT_TENANT, "v") is None
    await until(lambda: other.topic(DEFAULT_TENANT, "v") is None)


async def test_a_full_transient_topic_refuses_what_comes_from_another_gateway(two: Pair) -> None:
    _, one, other = two
    options = TopicOptions(durable=False, messages_max=3, overflow=Overflow.REJECT)
    topic = await peer_of(one).topic("v", options)
    peer = peer_of(other)
    sents = [await peer.publish(seen(other, "v"), b"%d" % each) for each in range(5)]
    assert [bool(each.failures) for each in sents] == [False, False, False, True, True]
    assert sents[3].failures[0].code is Code.REJECTED
    assert (await one.statistics(topic, DEFAULT_GROUP)).ready == 3


async def test_a_store_sends_dead_letters_to_a_transient_topic(two: Pair) -> None:
    nodes, one, _ = two
    dead_letters = await peer_of(one).topic("letters", TRANSIENT)
    recorder = recorder_at(one, dead_letters)
    group = GroupOptions(dead_letter=DeadLetter(router=None, key="letters"))
    store = peer_of(nodes[0].opened.client)  # type: ignore[arg-type]
    work = await store.topic("work", group=group)
    await until(lambda: one.topic(DEFAULT_TENANT, "work"))
    await peer_of(one).publish(work, b"bad")
    rejecting = store.attach(work, credit=1)
    (got,) = await rejecting.wait_for(1)
    await rejecting.settle(Settlement.DEAD_LETTER, got)
    assert (await recorder.wait_for(1))[0].body == b"bad"


async def test_gateways_need_no_store_to_reach_what_they_know(two: Pair) -> None:
    nodes, one, other = two
    topic = await peer_of(one).topic("v", TRANSIENT)
    recorder = recorder_at(one, topic)
    await nodes[0].stop()
    await until(lambda: not one.leaders.connected and not other.leaders.connected)
    assert not (await peer_of(other).publish(seen(other, "v"), b"1")).failures
    await nodes[0].start()
    await until(lambda: one.leaders.connected and other.leaders.connected)
    assert not (await peer_of(other).publish(seen(other, "v"), b"2")).failures
    assert [each.body for each in await recorder.wait_for(2)] == [b"1", b"2"]
    await until(lambda: nodes[0].opened.client.topic(DEFAULT_TENANT, "v"))
    assert (one.mesh.remote_memory.figures.gone, other.mesh.remote_memory.figures.gone) == (0, 0)
    await peer_of(other).topic("w", TRANSIENT)
    assert is_pseudo_group(seen(one, "w").queues[0].group)


async def test_a_process_that_does_not_take_what_it_is_told_is_not_waited_for_long(
    two: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, one, other = two
    monkeypatch.setattr(announcing, "TAKEN_SECONDS", 0.1)
    other.mesh.remote_memory.called = lambda *_: None  # type: ignore[method-assign]
    await peer_of(one).topic("v", TRANSIENT)
    assert one.mesh.announcer.figures.late >= 1
    assert other.topic(DEFAULT_TENANT, "v") is None
    del other.mesh.remote_memory.called  # it goes on, and is told everything by another connection
    silence_once(one)
    await until(lambda: other.topic(DEFAULT_TENANT, "v"))


def silence_once(client: ClusterClient) -> None:
    """Break the connections that a gateway has opened to others."""
    for dialer in client.mesh._dialers.values():
        assert dialer._wire is not None
        dialer._wire.abort()


async def test_more_changes_from_elsewhere_than_are_made_at_once_are_refused_and_counted(
    two: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, one, other = two
    await peer_of(one).topic("v", TRANSIENT)
    seen(other, "v")
    monkeypatch.setattr(inbox, "CHANGES_MAX", 0)
    purge = PurgeTopic(DEFAULT_TENANT, "v", DEFAULT_GROUP)
    waiting = asyncio.ensure_future(other.administer(purge))
    figures = GatewayFigures(one.leaders, one)

    def refused() -> float:
        samples = {each.name: each.value for row in figures.collect() for each in row.samples}
        return samples["weir_gateway_changes_refused_total"]

    await until(refused)
    monkeypatch.undo()
    assert await asyncio.gather(waiting, return_exceptions=True)
    assert await other.administer(purge) == 0
