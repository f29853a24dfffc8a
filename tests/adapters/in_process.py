"""What the adapters' tests share: a store in a directory, who may do what, a loop in a thread."""

from __future__ import annotations

import asyncio
import contextlib
import queue
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import TypeVar

from auth.policies.policy_rules import Permission, Policy, parse_rule
from auth.principal import Principal
from auth.users.development import ReachableListener, development_principals
from auth.users.directory import Directory
from auth.users.records import AccessKey, Create, User
from auth.users.store import AuthStore
from kernel.common.ports import Clock, Disk
from kernel.in_process.opening import LocalStore, open_store
from kernel.store.drivers.disk import DirectoryDisk
from kernel.store.drivers.system import SystemClock, SystemRandom
from kernel.store.drivers.worker import Worker

WAIT_S = 30
"""Longer than a start or a stop ever takes."""

KEY_ID, SECRET = "weir", "weir-secret"
READER_KEY_ID, READER_SECRET = "reader", "reader-secret"
"""Of the user `reader`, who has the one rule that `directory` is given."""

ServedT = TypeVar("ServedT")


class MovableClock(SystemClock):
    """The system's clocks, which a test may put forward."""

    wall_ahead_ms = 0
    monotonic_ahead_ms = 0

    def wall_ms(self) -> int:
        return super().wall_ms() + self.wall_ahead_ms

    def monotonic_ms(self) -> int:
        return super().monotonic_ms() + self.monotonic_ahead_ms

    def put_forward(self, by_ms: int) -> None:
        """Let time pass, on both clocks."""
        self.wall_ahead_ms += by_ms
        self.monotonic_ahead_ms += by_ms


def directory(rule: str) -> Directory:
    """The development key, and a user `reader` with this rule alone."""
    store = AuthStore()
    store.apply(Create(Policy(tenant="default", name="readers", rules=(parse_rule(rule),))))
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
    development = development_principals([ReachableListener("loopback", "127.0.0.1", 0)])
    return Directory(store, lambda envelope, context: envelope, development)


class EveryRight:
    """Rights of a principal who may do everything but what `denied` names."""

    def __init__(self, principal: Principal, denied: set[tuple[int, str]]) -> None:
        self.principal = principal
        self._denied = denied
        self._rules = frozenset(denied)
        self.alive = True

    def allows(self, number: Permission, name: str) -> bool:
        return (number, name) not in self._denied

    def is_alive(self) -> bool:
        return self.alive

    def rules(self) -> object:
        if self._rules != self._denied:
            self._rules = frozenset(self._denied)
        return self._rules


def _fatal(sentence: str, error: BaseException) -> None:
    raise AssertionError(sentence) from error


@contextlib.asynccontextmanager
async def running_store(
    disk: Disk | Path, clock: Clock | None = None, *, reserve_bytes: int = 0
) -> AsyncIterator[LocalStore]:
    """A store over a directory or a disk, on the running event loop."""
    store = open_store(
        DirectoryDisk(disk) if isinstance(disk, Path) else disk,
        clock or SystemClock(),
        SystemRandom(),
        partial(Worker, asyncio.get_running_loop()),
        _fatal,
        reserve_bytes=reserve_bytes,
    )
    await store.start()
    try:
        yield store
    finally:
        await store.stop()


@contextlib.contextmanager
def in_thread(
    serve: Callable[[], AbstractAsyncContextManager[ServedT]],
    new_loop: Callable[[], asyncio.AbstractEventLoop] = asyncio.new_event_loop,
) -> Iterator[ServedT]:
    """What `serve` serves, on an event loop of its own: for clients that block."""
    heard: queue.SimpleQueue[tuple[ServedT | None, BaseException | None]] = queue.SimpleQueue()
    loop = new_loop()
    stopping = asyncio.Event()

    async def main() -> None:
        async with serve() as served:
            heard.put((served, None))
            await stopping.wait()

    def run() -> None:
        error: BaseException | None = None
        try:
            loop.run_until_complete(main())
        except BaseException as failure:  # noqa: BLE001 - handed to the test
            error = failure
        loop.close()
        heard.put((None, error))

    thread = threading.Thread(target=run, name="served", daemon=True)
    thread.start()
    served, error = heard.get(timeout=WAIT_S)
    if served is None:
        raise error or AssertionError("it ended before it served")
    try:
        yield served
    finally:
        with contextlib.suppress(RuntimeError):  # its loop has ended already: it failed
            loop.call_soon_threadsafe(stopping.set)
        thread.join(WAIT_S)
        assert not thread.is_alive(), "it does not stop"
        _, error = heard.get_nowait()
        if error is not None:
            raise error
