"""Stores and gateways of one cluster in one process, over real sockets: what tests of the remote
client run on.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from kernel.remote.client import ClusterClient
from kernel.remote.connecting import connect
from kernel.remote.leaders import RemoteLeaders
from kernel.rpc.handshake import Hello
from kernel.rpc.roles import GATEWAY
from kernel.store.peer_links import new_nonce
from tests.kernel.three_stores import CLOCK, RANDOM, SECRET, Node, free_ports


def hello_of_gateway() -> Callable[[], Hello]:
    """Who a new gateway process is."""
    process = str(RANDOM.bits(64))
    return lambda: Hello((1, 1), "test", 0, process, GATEWAY, "", new_nonce(RANDOM.bits))


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
async def gateway_of(nodes: list[Node]) -> AsyncIterator[ClusterClient]:
    """A gateway's client, connected to all of the stores that run."""
    leaders = RemoteLeaders(hello_of_gateway(), SECRET, nodes[0].addresses, CLOCK)
    client = await connect(leaders, CLOCK, RANDOM)
    try:
        yield client
    finally:
        await client.stop()
