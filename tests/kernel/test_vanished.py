"""Definitions that a snapshot of another store does not have are known no more."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from kernel.api.changes import DeleteRoute, DeleteTopic, PutRecord, PutRoute, PutRouter
from kernel.api.model import DEFAULT_TENANT, Route, RouterOptions
from kernel.broker.log_commands import tree_commands as tree
from kernel.broker.snapshots.snapshot import dump, load
from kernel.requests.proposer import propose_to
from kernel.store.raft_groups.vanished import tell_vanished
from kernel.store.replicas.listener import Relay
from kernel.store.replicas.replica import Replica
from tests.simulator.world import World, simulated

T = DEFAULT_TENANT
KEPT, LOST = Route(key="kept", topic="a"), Route(key="lost", topic="a")


@simulated()
async def test_what_a_snapshot_does_not_have_is_forgotten(world: World) -> None:
    client, store = world.client, world.opened.store
    peer = world.peer()
    made = await peer.topic("a")
    gone = await peer.topic("gone")
    for router in ("r", "s"):
        await client.administer(PutRouter(T, router, RouterOptions()))
    await client.administer(PutRoute(T, "r", KEPT))
    await client.administer(PutRecord("k/old", b"1"))
    await client.administer(PutRecord("k/both", b"1"))
    snapshots = [load(dump(store.replica(each).state)) for each in store.groups]

    await client.administer(DeleteTopic(T, "gone"))
    await client.administer(PutRoute(T, "r", LOST))
    await client.administer(DeleteRoute(T, "r", KEPT))
    await peer.topic("b")
    await client.administer(PutRouter(T, "new", RouterOptions()))
    await client.administer(PutRoute(T, "new", Route(key="k", topic="b")))
    await client.administer(PutRecord("k/old", None))
    await client.administer(PutRecord("k/both", b"2"))
    await client.administer(PutRecord("k/new", b"1"))
    list_group = store.data_groups[0]
    join = tree.JoinIndex(T, "x/+", "g", 0)
    await propose_to(store.leader(list_group), join, client.next_identity())
    assert client.topology.tree.indexes_of(T, "x/+")

    heard: list[tuple[str, tuple[int, bytes] | None]] = []
    client.watch_records(lambda key, record: heard.append((key, record)))
    relay: Relay[Replica] = Relay()
    relay.add(client)
    for state in snapshots:
        old = store.replica(state.group).state
        replica = cast("Replica", SimpleNamespace(state=state, group=state.group))
        tell_vanished(relay, old, replica)
        relay.replaced(replica)
    assert {each.name for each in client.topics(T)} == {"a", "gone"}
    assert client.topic(T, "a") == made
    assert client.topic(T, "gone") == gone
    known = client.router(T, "r")
    assert known is not None
    assert known.routes == (KEPT,)
    assert client.router(T, "s") is not None
    assert client.router(T, "new") is None
    assert not client.topology.tree.indexes_of(T, "x/+")
    assert sorted(heard) == [("k/both", (1, b"1")), ("k/new", None), ("k/old", (1, b"1"))]
