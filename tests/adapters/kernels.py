"""The kernel client that an adapter under test talks to: of a store in its process, of one far
away, or of one behind a bad network.

WEIR_REMOTE=1 in the environment runs a whole suite as a gateway without a store: every call goes
over a loopback connection to a store that has the same data. WEIR_HOSTILE=<seed>: see
`tests.simulator.hostile`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kernel.api.client import Client
from kernel.common.ports import Clock
from kernel.in_process.opening import LocalStore
from kernel.remote.client import ClusterClient
from kernel.remote.connecting import connect
from kernel.remote.leader_calls.leaders import RemoteLeaders
from kernel.remote.serving import serve_gateways
from kernel.rpc.channel import Channel
from kernel.rpc.handshake import VERSIONS, Hello
from kernel.rpc.link import Acceptor
from kernel.rpc.roles import GATEWAY, STORE
from kernel.store.drivers.system import SystemRandom
from kernel.store.raft_groups.peer_links import new_nonce
from tests.simulator.hostile import hostile_client

SECRET = b"of these tests"
CONNECTIONS_MAX = 4


@asynccontextmanager
async def kernel_of(
    store: LocalStore, clock: Clock, hostile: int | None = None
) -> AsyncIterator[Client]:
    """The client. `hostile`: seed of a network between it and the store."""
    if hostile is None and os.environ.get("WEIR_REMOTE"):
        async with far_client(store, clock) as client:
            yield client
    else:
        yield hostile_client(store.client, clock, hostile)


@asynccontextmanager
async def far_client(store: LocalStore, clock: Clock) -> AsyncIterator[ClusterClient]:
    """A gateway's client over a loopback connection to a store on the same event loop."""
    random = SystemRandom()
    node = store.store.node

    def hello(number: int, role: str, process: str) -> Hello:
        return Hello(VERSIONS, "test", number, process, role, "", new_nonce(random.bits))

    service = serve_gateways(store, asyncio.get_running_loop().call_soon)

    def accepted(wake: Callable[[], None]) -> Channel:
        own = hello(node, STORE, "store")
        now_ms = clock.monotonic_ms()
        return Channel(own, SECRET, _anybody, service, wake, now_ms, is_dialer=False)

    acceptor = Acceptor(accepted, clock, None, CONNECTIONS_MAX)
    address = await acceptor.start("127.0.0.1", 0)
    process = str(random.bits(64))
    leaders = RemoteLeaders(lambda: hello(0, GATEWAY, process), SECRET, {node: address}, clock)
    client = await connect(leaders, clock, random)
    client.origins = store.client.origins
    try:
        yield client
    finally:
        await client.stop()
        await acceptor.stop()


def _anybody(_peer: Hello) -> None:
    return None
