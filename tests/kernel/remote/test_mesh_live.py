"""Live routes of the topic tree over gateways, and what stores publish to them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kernel.api import message as messages
from kernel.api.client import PutRouter
from kernel.api.message import HEADER, Ext, Flag
from kernel.api.model import DEFAULT_TENANT, RouterOptions
from kernel.api.tree import SubscriberSpec, Watch, Will
from kernel.common.errors import Code, KernelError
from kernel.remote.client import ClusterClient
from kernel.remote.mesh import link as mesh_link
from tests.kernel.remote.cluster import Pair, lose
from tests.kernel.remote.local import peer_of
from tests.kernel.remote.test_mesh import cut
from tests.kernel.remote.test_mesh_names import Connection
from tests.kernel.three_stores import until
from tests.simulator.peer import Draft, Sent


class Listener:
    """A live route, and what it has heard."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.names: list[str] = []

    def published_live(self, watch: Watch, slots: Sequence[bytes]) -> None:
        for slot in slots:
            found = messages.decode(slot)
            self.bodies.append(found.body)
            self.names.append(found.ext[Ext.TREE_NAME].decode())


async def listen(client: ClusterClient, pattern: str) -> tuple[Listener, Watch]:
    listener = Listener()
    watch = client.tree.watch(DEFAULT_TENANT, pattern, listener)
    await client.tree.watched()
    return listener, watch


async def publish(client: ClusterClient, name: str, *bodies: bytes) -> Sent:
    to = client.tree.to(DEFAULT_TENANT, name)
    return await peer_of(client).publish(to, *(Draft(each, name=name) for each in bodies))


async def test_what_is_published_at_one_gateway_is_heard_at_all(pair: Pair) -> None:
    _, one, other = pair
    near, _ = await listen(one, "a/+")
    far, watch = await listen(other, "a/#")
    exact, _ = await listen(other, "a/b")
    for number in range(5):
        sent = await publish(one, "a/b", b"%d" % number, b"x")
        assert not sent.failures
    await publish(other, "a/c", b"back")
    await until(
        lambda: len(near.bodies) == 11 and len(far.bodies) == 11 and len(exact.bodies) == 10
    )
    assert near.bodies[:4] == far.bodies[:4] == [b"0", b"x", b"1", b"x"]
    assert exact.bodies == [each for number in range(5) for each in (b"%d" % number, b"x")]
    assert far.names[-1] == "a/c"
    watch.cancel()
    await other.tree.watched()
    await publish(one, "a/b", b"last")
    await until(lambda: exact.bodies[-1] == b"last")
    assert len(far.bodies) == 11


async def test_a_live_route_hears_what_enters_the_tree_by_a_router_elsewhere(two: Pair) -> None:
    _, one, other = two
    await one.administer(PutRouter(DEFAULT_TENANT, "door", RouterOptions(tree=True)))
    listener, _ = await listen(other, "k/#")
    to = one.to_router(DEFAULT_TENANT, "door", "k/1")
    sent = await peer_of(one).publish(to, b"in")
    assert not sent.failures
    await until(lambda: listener.bodies)
    assert listener.names == ["k/1"]


async def test_live_routes_of_a_gateway_that_is_killed_are_gone(two: Pair) -> None:
    _, one, other = two
    await listen(other, "a")
    before = one.tree.to(DEFAULT_TENANT, "a").count
    await lose(other)
    await until(lambda: one.tree.to(DEFAULT_TENANT, "a").count == before - 1)
    assert not (await publish(one, "a", b"x")).failures


async def test_live_messages_survive_a_broken_connection_in_order(two: Pair) -> None:
    _, one, other = two
    listener, _ = await listen(other, "a")
    for number in range(60):
        await publish(one, "a", b"%d" % number)
        if number % 20 == 10:
            cut(other)
    await until(lambda: len(listener.bodies) >= 60)
    assert listener.bodies == [b"%d" % number for number in range(60)]


async def test_live_messages_that_find_no_room_are_dropped_and_counted(
    two: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, one, other = two
    listener, _ = await listen(other, "a")
    monkeypatch.setattr(mesh_link, "LINK_BYTES_MAX", 10)
    to = one.tree.to(DEFAULT_TENANT, "a")
    sents = [peer_of(one).submit(to, Draft(b"x", name="a")) for _ in range(9)]
    for sent in sents:
        await sent.done
        assert not sent.failures  # nobody waits for live routes
    figures = one.mesh.remote_memory.figures
    await until(lambda: len(listener.bodies) + figures.live_dropped == 9)
    assert figures.live_dropped


async def test_what_was_found_before_a_gateway_was_given_up_keeps_nothing_for_it(
    two: Pair,
) -> None:
    _, one, other = two
    await listen(other, "a")
    to = one.tree.to(DEFAULT_TENANT, "a")
    remote_memory = one.mesh.remote_memory
    (remote_process,) = (
        remote_memory._remote_processes[each]
        for each in remote_memory.processes
        if each[1] == other.mesh.process
    )
    remote_memory._gone_ms = 100
    await lose(other)
    await until(lambda: remote_memory.figures.gone == 1)
    sent = await peer_of(one).publish(to, Draft(b"x", name="a"))
    assert not sent.failures
    assert (
        remote_process.link.frames,
        remote_process.link.bytes,
        remote_memory.figures.live_dropped,
    ) == (0, 0, 0)


async def test_live_routes_are_bounded(two: Pair) -> None:
    _, one, other = two
    one.mesh.announcer._announced_max = 3
    for pattern in ("a", "b", "c", "a"):
        await listen(one, pattern)
    with pytest.raises(KernelError) as caught:
        one.tree.watch(DEFAULT_TENANT, "d", Listener())
    assert caught.value.code is Code.LIMIT_EXCEEDED
    assert one.mesh.announcer.figures.refused == 1
    assert other.mesh.remote_memory.announced((0, one.mesh.process)) == 3


async def test_a_will_of_a_gateway_that_is_killed_is_heard_at_another(pair: Pair) -> None:
    """The store publishes it: to retained messages, lists, and live routes of gateways."""
    nodes, one, other = pair
    listener, _ = await listen(other, "wills/#")
    slot = will_slot("wills/c", b"gone")
    will = Will("wills/c", slot, retain=False, delay_ms=0)
    spec = SubscriberSpec(DEFAULT_TENANT, "c", clean=True, expiry_ms=0, will=will)
    await one.tree.open(spec, Connection())
    for node in nodes:
        node.opened.client.tree.owners.gone_ms = 100
    await lose(one)
    await until(lambda: listener.bodies)
    assert (listener.bodies, listener.names) == ([b"gone"], ["wills/c"])


def will_slot(name: str, body: bytes) -> bytes:
    ext = messages.encode_ext({Ext.TREE_NAME: name.encode()})
    message = messages.Message(1, 0, Flag(0), bytes(16), 1, 0, 0, 0, 0, {}, b"", body)
    encoded = messages.encode(message)
    header = bytearray(encoded[: HEADER.size])
    messages.LENGTHS.pack_into(header, messages.LENGTHS_AT, len(body), 0, len(ext))
    return bytes(header) + ext + encoded[HEADER.size :]
