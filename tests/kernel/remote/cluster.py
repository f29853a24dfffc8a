"""Stores and gateways of one cluster in one process, over real sockets: what tests of the remote
client run on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from kernel.common.ids import RaftGroup
from kernel.remote.client import ClusterClient
from kernel.remote.connecting import connect
from kernel.remote.leader_calls.leaders import RemoteLeaders
from kernel.remote.mesh.meeting import MeetingPoint
from kernel.rpc.handshake import VERSIONS, Hello
from kernel.rpc.roles import GATEWAY
from kernel.store.raft_groups.peer_links import new_nonce
from tests.free_ports import free_ports
from tests.kernel.three_stores import (
    CLOCK,
    RANDOM,
    SECRET,
    Node,
    leader_of,
    until,
)

Pair = tuple[list[Node], ClusterClient, ClusterClient]
"""Stores, and two gateways that know each other."""


def hello_of_gateway() -> Callable[[], Hello]:
    """Who a new gateway process is."""
    process = str(RANDOM.bits(64))
    return lambda: Hello(VERSIONS, "test", 0, process, GATEWAY, "", new_nonce(RANDOM.bits))


@asynccontextmanager
async def running_stores(
    path: Path, count: int = 1, data_groups: int = 2
) -> AsyncIterator[list[Node]]:
    """Stores that have begun together, with data below `path`."""
    ports = free_ports(count)
    addresses = {number: ("127.0.0.1", port) for number, port in enumerate(ports, 1)}
    nodes = [Node(number, path / str(number), addresses, data_groups) for number in addresses]
    for node in nodes:
        await node.start()
    try:
        yield nodes
    finally:
        for node in nodes:
            if node.runs:
                await node.stop()


@asynccontextmanager
async def meeting_gateway_of(
    nodes: list[Node], versions: tuple[int, int] = VERSIONS
) -> AsyncIterator[ClusterClient]:
    """A gateway's client that other gateways can reach. `versions`: what it says that it speaks."""
    address = ""
    process = str(RANDOM.bits(64))

    def hello() -> Hello:
        return Hello(versions, "test", 0, process, GATEWAY, address, new_nonce(RANDOM.bits))

    meeting = MeetingPoint(hello, SECRET, CLOCK)
    host, port = await meeting.listen("127.0.0.1", 0)
    address = f"{host}:{port}"
    leaders = RemoteLeaders(hello, SECRET, nodes[0].addresses, CLOCK)
    client = await connect(leaders, CLOCK, RANDOM, meeting)
    try:
        yield client
    finally:
        await client.stop()


@asynccontextmanager
async def two_gateways_of(
    nodes: list[Node],
) -> AsyncIterator[tuple[ClusterClient, ClusterClient]]:
    """Two of them, each of which knows what the other has."""
    async with meeting_gateway_of(nodes) as one, meeting_gateway_of(nodes) as other:
        await until(lambda: knows_all(one, other) and knows_all(other, one))
        yield one, other


def knows_all(one: ClusterClient, other: ClusterClient) -> bool:
    """Whether one gateway hears another."""
    process = other.mesh.process
    return (0, process) in one.mesh.remote_memory.processes and bool(other.mesh.peers)


async def lose(client: ClusterClient) -> None:
    """The process of a gateway ends without a word."""
    mesh, leaders = client.mesh, client.leaders
    assert mesh.meeting is not None
    wires = [
        *mesh.meeting.acceptor._wires,
        *(each._wire for each in (*mesh._dialers.values(), *leaders._dialers.values())),
    ]
    for dialer in (*mesh._dialers.values(), *leaders._dialers.values()):
        if dialer._task is not None:
            dialer._task.cancel()
    for wire in wires:
        if wire is not None:
            wire.abort()
    await mesh.meeting.stop()


@asynccontextmanager
async def gateway_of(nodes: list[Node]) -> AsyncIterator[ClusterClient]:
    """A gateway's client, connected to all of the stores that run."""
    leaders = RemoteLeaders(hello_of_gateway(), SECRET, nodes[0].addresses, CLOCK)
    client = await connect(leaders, CLOCK, RANDOM)
    try:
        yield client
    finally:
        await client.stop()


async def serving(nodes: list[Node], group: RaftGroup) -> Node:
    """The store that serves a group, once there is one."""
    await until(lambda: leader_of(nodes, group))
    leader = leader_of(nodes, group)
    assert leader is not None
    return leader


async def hand_over(nodes: list[Node], group: RaftGroup) -> None:
    """Have another store lead a group, in order."""
    leader = await serving(nodes, group)
    to = next(node for node in nodes if node is not leader and node.runs)
    leader.opened.store.consensus.transfer(group, to.number)
    await until(lambda: to.serves(group))
