"""A real SQS adapter over a real store in a temporary directory, for real clients.

`running_service` serves on the test's own event loop; `service_in_thread` on another, for clients
that block.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import boto3
from botocore.config import Config

from adapters.base import ListenerAddress
from adapters.sqs.server import SqsAdapter
from adapters.sqs.settings import SqsSettings
from auth.development import Listener, development_principals
from auth.directory import Directory
from auth.policy import PolicyBook
from auth.records import AccessKey, Create, Policy, User
from auth.rules import parse_rule
from auth.sigv4 import SigV4Verifier
from auth.store import AuthStore
from kernel.client import Client
from kernel.local_client import LocalClient
from kernel.model import TopicInfo
from kernel.store.disk import DirectoryDisk
from kernel.store.opening import LocalStore, open_store
from kernel.store.system import SystemClock, SystemRandom
from kernel.store.worker import Worker
from tests.simulator.hostile import hostile_client

REGION = "eu-central-1"
KEY_ID, SECRET = "weir", "weir-secret"
READER_KEY_ID, READER_SECRET = "reader", "reader-secret"
"""Of a user who may receive and inspect, but neither send nor configure."""

HTTP = (ListenerAddress("http", "127.0.0.1", 0),)

ResultT = TypeVar("ResultT")


class LocalCatalogue:
    """`adapters.sqs.environment.Catalogue` over the client of this process."""

    def __init__(self, client: LocalClient) -> None:
        self._client = client

    def topics(self, tenant: str) -> Iterable[TopicInfo]:
        return [each for each in self._client.topology.topics.values() if each.tenant == tenant]


class Clock(SystemClock):
    """The system's clocks, which a test may put forward."""

    ahead_ms = 0
    """The wall clock alone."""
    skipped_ms = 0
    """Both clocks: so much time has passed, and nothing happened in it."""

    def wall_ms(self) -> int:
        return super().wall_ms() + self.ahead_ms + self.skipped_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.skipped_ms


def directory() -> Directory:
    """The development key, and a user `reader` with fewer rights."""
    store = AuthStore()
    rules = (parse_rule("allow consume,inspect topic:*"),)
    store.apply(Create(Policy(tenant="default", name="readers", rules=rules)))
    store.apply(Create(User(tenant="default", name="reader", policies=("readers",))))
    store.apply(
        Create(
            AccessKey(
                key_id=READER_KEY_ID,
                tenant="default",
                user="reader",
                sealed_secret=READER_SECRET.encode(),
            )
        )
    )
    development = development_principals([Listener("sqs", "127.0.0.1", 0)])
    return Directory(store, lambda envelope, context: envelope, development)


class Meter:
    """`adapters.base.TrafficMeter` that keeps the calls it is told of."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str, str, int, int]] = []
        """(tenant, action, name, outcome, octets in, octets out)"""

    def call_counter(self, tenant: str, action: str, name: str, outcome: str = "ok"):
        calls = self.calls

        class Counter:
            def call(self, bytes_in: int, bytes_out: int, /) -> None:
                calls.append((tenant, action, name, outcome, bytes_in, bytes_out))

        return Counter()


@dataclass
class Service:
    """A running service."""

    adapter: SqsAdapter
    store: LocalStore
    clock: Clock
    meter: Meter
    loop: asyncio.AbstractEventLoop
    port: int
    kernel: Client
    """What the adapter talks to: the store's own client, or a hostile one before it."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, key_id: str = KEY_ID, secret: str = SECRET, **options: Any):
        """boto3's client of this service; it does not retry."""
        return boto3.client(
            "sqs",
            endpoint_url=self.url,
            region_name=options.pop("region", REGION),
            aws_access_key_id=key_id,
            aws_secret_access_key=secret,
            config=Config(retries={"total_max_attempts": 1}, **options),
        )

    def run(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Await something in the loop of the service, from another thread."""

        async def call() -> ResultT:
            return await work()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(20)


def _fatal(sentence: str, error: BaseException) -> None:
    raise AssertionError(sentence) from error


@contextlib.asynccontextmanager
async def running_service(
    path: Path,
    settings: SqsSettings | None = None,
    listeners: Sequence[ListenerAddress] = HTTP,
    hostile: int | None = None,
) -> AsyncIterator[Service]:
    """A service on a free loopback port, over the data in `path`. `hostile`: seed of a network
    between it and its store (default: none, or WEIR_HOSTILE of the environment).
    """
    clock, random, meter = Clock(), SystemRandom(), Meter()
    settings = settings or SqsSettings()
    loop = asyncio.get_running_loop()
    store = open_store(
        DirectoryDisk(path), clock, random, partial(Worker, loop), _fatal, reserve_bytes=0
    )
    await store.start()
    known = directory()
    policies = PolicyBook(known)
    verifier = SigV4Verifier(known.access_key, known.secret_of, settings.sign_in)

    def rights_of(key: AccessKey):
        principal = known.principal_of(key)
        return None if principal is None else policies.access(principal)

    client = hostile_client(store.client, clock, hostile)
    adapter = SqsAdapter(
        client,
        LocalCatalogue(store.client),
        verifier,
        rights_of,
        listeners,
        settings,
        clock=clock,
        random=random,
        meter=meter,
    )
    try:
        await adapter.start()
        port = adapter.addresses()[listeners[0].name][1]
        yield Service(adapter, store, clock, meter, loop, port, client)
    finally:
        await adapter.stop()
        await store.stop()


@contextlib.contextmanager
def service_in_thread(
    path: Path,
    settings: SqsSettings | None = None,
    listeners: Sequence[ListenerAddress] = HTTP,
    hostile: int | None = None,
) -> Iterator[Service]:
    """The same on an event loop of its own, for clients that block."""
    started: list[Service] = []
    failed: list[BaseException] = []
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    stopping = asyncio.Event()

    async def main() -> None:
        async with running_service(path, settings, listeners, hostile) as service:
            started.append(service)
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

    thread = threading.Thread(target=run, name="sqs-service", daemon=True)
    thread.start()
    assert ready.wait(20)
    if failed:
        raise failed[0]
    try:
        yield started[0]
    finally:
        loop.call_soon_threadsafe(stopping.set)
        thread.join(30)
        assert not thread.is_alive(), "the service did not stop"
        if failed:
            raise failed[0]
