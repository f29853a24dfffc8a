"""A real SQS adapter over a real store in a temporary directory, for real clients.

`running_service` serves on the test's own event loop; `service_in_thread` on another, for clients
that block.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

from adapters.base import ListenerAddress
from adapters.sqs.server import SqsAdapter
from adapters.sqs.settings import SqsSettings
from auth.policies.policy_decisions import PolicyBook
from auth.sign_in.sigv4 import SigV4Verifier
from auth.users.records import AccessKey
from kernel.api.client import Client
from kernel.in_process.opening import LocalStore
from kernel.store.drivers.system import SystemRandom
from tests.adapters.in_process import (
    KEY_ID,
    SECRET,
    MovableClock,
    directory,
    in_thread,
    running_store,
)
from tests.adapters.kernels import kernel_of
from tests.sqs_client import sqs_client

REGION = "eu-central-1"
HTTP = (ListenerAddress("http", "127.0.0.1", 0),)

ResultT = TypeVar("ResultT")


class Meter:
    """`adapters.base.TrafficMeter` that keeps the calls it is told of."""

    def __init__(self) -> None:
        self.told: list[tuple[str, str, str, str, int, int]] = []
        """(tenant, action, name, outcome, octets in, octets out)"""

    def calls(self, actions: Mapping[str, str]):
        told = self.told

        class Calls:
            def counter(self, tenant: str, name: str, /):
                return SimpleNamespace(call=partial(self.ended, tenant, name, "ok"))

            def ended(self, tenant: str, name: str, outcome: str, *octets: int) -> None:
                told.append((tenant, actions.get(name, "admin"), name, outcome, *octets))

        return Calls()


@dataclass
class Service:
    """A running service."""

    adapter: SqsAdapter
    store: LocalStore
    clock: MovableClock
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
        return sqs_client(self.url, key_id, secret, **{"region": REGION, **options})

    def run(self, work: Callable[[], Awaitable[ResultT]]) -> ResultT:
        """Await something in the loop of the service, from another thread."""

        async def call() -> ResultT:
            return await work()

        return asyncio.run_coroutine_threadsafe(call(), self.loop).result(20)


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
    clock, meter = MovableClock(), Meter()
    settings = settings or SqsSettings()
    known = directory("allow consume,inspect topic:*")
    policies = PolicyBook(known)
    verifier = SigV4Verifier(known.access_key, known.secret_of, settings.sign_in)

    def rights_of(key: AccessKey):
        principal = known.principal_of(key)
        return None if principal is None else policies.access(principal)

    async with (
        running_store(path, clock) as store,
        kernel_of(store, clock, hostile) as client,
    ):
        adapter = SqsAdapter(
            client,
            client,
            verifier,
            rights_of,
            listeners,
            settings,
            clock=clock,
            random=SystemRandom(),
            meter=meter,
        )
        try:
            await adapter.start()
            port = adapter.addresses()[listeners[0].name][1]
            loop = asyncio.get_running_loop()
            yield Service(adapter, store, clock, meter, loop, port, client)
        finally:
            await adapter.stop()


def service_in_thread(
    path: Path,
    settings: SqsSettings | None = None,
    listeners: Sequence[ListenerAddress] = HTTP,
    hostile: int | None = None,
) -> AbstractContextManager[Service]:
    """The same on an event loop of its own, for clients that block."""
    return in_thread(partial(running_service, path, settings, listeners, hostile))
