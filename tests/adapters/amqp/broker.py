"""An adapter served over a real local kernel, for tests with real clients."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.util
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from adapters.amqp.handshake import AmqpSettings
from adapters.amqp.server import AmqpAdapter
from adapters.base import ListenerAddress, Rights
from auth.errors import AuthCode, AuthError
from auth.principal import Principal, split_login
from auth.rules import Permission
from kernel.client import Client
from kernel.store.disk import DirectoryDisk
from kernel.store.opening import LocalStore, open_store
from kernel.store.system import SystemClock, SystemRandom
from kernel.store.worker import Worker
from tests.simulator.hostile import hostile_client


class EveryRight:
    """Rights of a principal who may do everything but what `denied` names."""

    def __init__(self, principal: Principal, denied: set[tuple[int, str]]) -> None:
        self.principal = principal
        self._denied = denied
        self.alive = True

    def allows(self, number: Permission, name: str) -> bool:
        return (number, name) not in self._denied

    def is_alive(self) -> bool:
        return self.alive


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


def _fatal(sentence: str, error: BaseException) -> None:
    raise AssertionError(sentence) from error


@contextlib.asynccontextmanager
async def running_broker(
    directory: Path, settings: AmqpSettings | None = None, hostile: int | None = None
) -> AsyncIterator[Broker]:
    """A broker on a free loopback port, over the data in `directory`. `hostile`: seed of a network
    between it and its store (default: none, or WEIR_HOSTILE of the environment).
    """
    clock, random = SystemClock(), SystemRandom()
    store = open_store(
        DirectoryDisk(directory),
        clock,
        random,
        partial(Worker, asyncio.get_running_loop()),
        _fatal,
        reserve_bytes=0,
    )
    await store.start()
    logins = Logins()
    client = hostile_client(store.client, clock, hostile)
    adapter = AmqpAdapter(
        client,
        store.client.origins,
        logins,
        [ListenerAddress("tcp", "127.0.0.1", 0)],
        clock=clock,
        random=random,
        settings=settings,
    )
    await adapter.start()
    try:
        yield Broker(adapter, store, logins, adapter.addresses()["tcp"][1], client)
    finally:
        await adapter.stop()
        await store.stop()


def _new_loop() -> asyncio.AbstractEventLoop:
    """The loop that a node runs on: uvloop's, where it is installed."""
    if importlib.util.find_spec("uvloop") is None:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = importlib.import_module("uvloop").new_event_loop()
    return loop


@contextlib.contextmanager
def broker_in_thread(
    directory: Path, settings: AmqpSettings | None = None, hostile: int | None = None
) -> Iterator[Broker]:
    """The same on an event loop of its own, for clients that block."""
    started: list[Broker] = []
    failed: list[BaseException] = []
    ready = threading.Event()
    ended = threading.Event()
    loop = _new_loop()
    stopping = asyncio.Event()

    async def main() -> None:
        async with running_broker(directory, settings, hostile) as broker:
            started.append(broker)
            ready.set()
            await stopping.wait()

    def run() -> None:
        try:
            loop.run_until_complete(main())
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failed.append(error)
        finally:
            ready.set()
            loop.close()
            ended.set()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(20)
    if failed:
        raise failed[0]
    try:
        yield started[0]
    finally:
        loop.call_soon_threadsafe(stopping.set)
        assert ended.wait(20)
        thread.join()
        if failed:
            raise failed[0]
