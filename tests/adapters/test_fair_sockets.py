"""What comes over real sockets, with and without TLS, arrives whole while tenants share."""

from __future__ import annotations

import asyncio
import hashlib
import ssl
from pathlib import Path

import pytest
import uvloop

from adapters.base import ListenerAddress
from adapters.fair_scheduler import FairScheduler
from adapters.memory import GatewayMemory
from adapters.transport import Listeners, StreamProtocol
from auth.private_files.tls import CertificateFiles, server_context
from kernel.common.fairness import WriteRounds
from kernel.store.drivers.system import SystemClock
from tests.certificates import Authority

SENT = 3_000_000
PEERS = 4
ROUNDS = 2
"""In between reading is that of a tenant alone again."""


class Hashing(StreamProtocol):
    """Its first byte says whose it is; answers with a hash of every `SENT` bytes that follow."""

    def __init__(self, loop: asyncio.AbstractEventLoop, server: Server) -> None:
        super().__init__(loop, server.memory, server.turns)
        self.server = server
        self.taken = 0
        self.hash = hashlib.sha256()
        self.is_known = False

    def received(self, data: bytes) -> None:
        if not self.is_known:
            self.is_known = True
            self.shares_as(data[:1].decode())
            data = data[1:]
        self.server.us += len(data) // 50
        self.taken += len(data)
        self.hash.update(data)
        if self.taken == SENT:
            self.out.append(self.hash.digest())
            self.taken, self.hash = 0, hashlib.sha256()
            self.write_soon()


class Server:
    """Its listener, and a scheduler whose time is made of what was read."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.us = 0
        self.memory = GatewayMemory(SystemClock()).listener("test", "tcp")
        self.turns = FairScheduler(WriteRounds(), loop.call_soon, loop.call_later, lambda: self.us)


async def serve(context: ssl.SSLContext | None) -> None:
    loop = asyncio.get_running_loop()
    server = Server(loop)
    wanted = ListenerAddress("tcp", "127.0.0.1", 0, context)
    listeners: Listeners[Hashing] = Listeners(
        loop, [wanted], lambda _: Hashing(loop, server), {"tcp": server.memory}, 100
    )
    await listeners.start()
    careless = ssl.create_default_context() if context is not None else None
    if careless is not None:
        careless.check_hostname, careless.verify_mode = False, ssl.CERT_NONE
    address = listeners.addresses()["tcp"]

    async def send(number: int) -> None:
        reader, writer = await asyncio.open_connection(*address, ssl=careless)
        writer.write(b"ab"[number % 2 : number % 2 + 1])
        for round_ in range(ROUNDS):
            data = bytes([number, round_]) * (SENT // 2)
            writer.write(data)
            assert await reader.readexactly(32) == hashlib.sha256(data).digest()
            server.us += 20_000_000
        writer.close()

    try:
        async with asyncio.timeout(60):
            await asyncio.gather(*map(send, range(PEERS)))
    finally:
        await listeners.stop_accepting()
    assert server.turns.counts.parts > PEERS * SENT // 50_000
    assert server.turns.waiting == 0
    await asyncio.sleep(0.05)


@pytest.mark.parametrize("with_tls", [False, True])
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_everything_arrives_whole(tmp_path: Path, with_tls: bool, run) -> None:
    context = None
    if with_tls:
        context = server_context(CertificateFiles(*Authority(tmp_path / "tls").issue()))
    run(serve(context))
