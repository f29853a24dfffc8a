"""An adapter served over a real local kernel, for tests with real clients."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from adapters.amqp.handshake import AmqpSettings
from adapters.amqp.server import AmqpAdapter
from adapters.base import ListenerAddress, Rights
from auth.errors import AuthCode, AuthError
from auth.principal import Principal, split_login
from kernel.api.client import Client
from kernel.in_process.opening import LocalStore
from kernel.store.drivers.system import SystemClock, SystemRandom
from tests.adapters.in_process import EveryRight, in_thread, running_store
from tests.adapters.kernels import kernel_of


class Logins:
    """`adapters.base.SignIn` over a dict of logins."""

    def __init__(self) -> None:
        self.passwords = {"guest": b"guest", "acme:alice": b"secret"}
        self.denied: set[tuple[int, str]] = set()
        self.given: list[EveryRight] = []
        self.failure: AuthError | None = None

    async def sign_in(self, login: str, password: bytes, address: str) -> Rights:
        if self.failure is not None:
            raise self.failure
        if self.passwords.get(login) != password:
            raise AuthError(AuthCode.BAD_CREDENTIALS, "wrong login or password")
        rights = EveryRight(Principal(*split_login(login)), self.denied)
        self.given.append(rights)
        return rights

    def without_password(self, login: str, address: str) -> Rights:
        if login not in self.passwords:
            raise AuthError(AuthCode.BAD_CREDENTIALS, "no such login")
        rights = EveryRight(Principal(*split_login(login)), self.denied)
        self.given.append(rights)
        return rights


@dataclass(slots=True)
class Broker:
    """A running broker."""

    adapter: AmqpAdapter
    store: LocalStore
    logins: Logins
    port: int
    client: Client
    """What the adapter talks to: the store's own client, or a hostile one before it."""

    def url(self, login: str = "guest:guest", virtual_host: str = "%2F") -> str:
        return f"amqp://{login}@127.0.0.1:{self.port}/{virtual_host}"


@contextlib.asynccontextmanager
async def running_broker(
    directory: Path, settings: AmqpSettings | None = None, hostile: int | None = None
) -> AsyncIterator[Broker]:
    """A broker on a free loopback port, over the data in `directory`. `hostile`: seed of a network
    between it and its store (default: none, or WEIR_HOSTILE of the environment).
    """
    clock = SystemClock()
    logins = Logins()
    async with (
        running_store(directory, clock) as store,
        kernel_of(store, clock, hostile) as client,
        serving(client, logins, settings) as adapter,
    ):
        yield Broker(adapter, store, logins, adapter.addresses()["tcp"][1], client)


@contextlib.asynccontextmanager
async def serving(
    client: Client, logins: Logins, settings: AmqpSettings | None = None
) -> AsyncIterator[AmqpAdapter]:
    """An adapter over a kernel client, on a free loopback port."""
    adapter = AmqpAdapter(
        client,
        client.origins,
        logins,
        [ListenerAddress("tcp", "127.0.0.1", 0)],
        clock=SystemClock(),
        random=SystemRandom(),
        settings=settings,
    )
    await adapter.start()
    try:
        yield adapter
    finally:
        await adapter.stop()


def _new_loop() -> asyncio.AbstractEventLoop:
    """The loop that a node runs on: uvloop's, where it is installed."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()
    return loop


def broker_in_thread(
    directory: Path, settings: AmqpSettings | None = None, hostile: int | None = None
) -> AbstractContextManager[Broker]:
    """The same on an event loop of its own, for clients that block."""
    return in_thread(partial(running_broker, directory, settings, hostile), _new_loop)
