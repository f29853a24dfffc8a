"""A whole store in one thread: simulated disk, virtual time, seeded randomness.

    @simulated()
    async def test_a_message_survives(world: World) -> None:
        peer = world.peer()
        topic = await peer.topic("orders")
        await peer.publish(topic, b"first")
        await world.crash()                    # power loss; the peer is gone
        ...

Jobs that the store gives to its threads run at once in the loop's own thread and report in a later
turn, as a thread would; a test can hold them back, or make each take a time. Everything that
happens is a function of the test and the seed.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import random
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from types import TracebackType
from typing import Concatenate, ParamSpec, Self, TypeVar, cast

from kernel.api.model import DEFAULT_GROUP, TopicInfo, TopicStatistics
from kernel.common.feature_levels import LATEST
from kernel.in_process.local_client import LocalClient
from kernel.in_process.opening import LocalStore, open_store
from kernel.log.journal import JournalOptions
from kernel.store.drivers.worker import Done, Job
from tests.simulator.disk import SimulatedDisk
from tests.simulator.loop import WALL_START_MS, SimulatedClock, VirtualLoop
from tests.simulator.peer import Peer
from tests.simulator.stored import wrong_sums

SMALL = JournalOptions(
    segment_bytes=32 * 1024,
    reserve_bytes=16 * 1024,
    long_bytes=4 * 1024,
    cache_bytes=64 * 1024,
    cold_bytes=64 * 1024,
)
"""Small enough that a run of 200 operations fills many segments, reads cold ones and rewrites."""

WRITER = "weir-journal-writer"
READER = "weir-journal-reader"
HOUSEKEEPING = "weir-housekeeping"

RUN_SECONDS_MAX = 600
"""Virtual time that one scenario may take: one that waits for what never comes fails soon."""

P = ParamSpec("P")
T = TypeVar("T")


class SeededRandom:
    """`kernel.common.ports.Random` that repeats itself."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def bits(self, count: int) -> int:
        return self._random.getrandbits(count)


class SimulatedWorkers:
    """`kernel.store.drivers.worker.Workers`: makes runners, and rules them."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.held: set[str] = set()
        self.delay_s: dict[str, float] = {}
        """How long each job of a runner takes (default: no time at all)."""
        self.delay_of: Callable[[str], float] = lambda name: self.delay_s.get(name, 0)
        """How long the next job of a runner takes."""
        self.dead = False
        """The process is gone: nothing runs and nothing is reported any more."""
        self._runners: list[SimulatedRunner] = []

    def __call__(self, name: str) -> SimulatedRunner:
        runner = SimulatedRunner(self, name)
        self._runners.append(runner)
        return runner

    def hold(self, name: str) -> None:
        """Let no further job of that runner begin."""
        self.held.add(name)

    def release(self, name: str) -> None:
        """Go on with what was held back."""
        self.held.discard(name)
        for runner in self._runners:
            if runner.name == name:
                runner.work()

    def waiting(self, name: str) -> int:
        """Jobs of a runner that have not been run."""
        return sum(len(each.jobs) for each in self._runners if each.name == name)


class SimulatedRunner:
    """`worker.Runner`: one job at a time, in order, in the loop's own thread."""

    def __init__(self, workers: SimulatedWorkers, name: str) -> None:
        self._workers = workers
        self.name = name
        self.jobs: deque[tuple[Job, Done]] = deque()
        self._busy = False

    def submit(self, job: Job, done: Done) -> None:
        self.jobs.append((job, done))
        self.work()

    def stop(self) -> None:
        """A thread would finish what is queued; a runner that is held has been told not to."""
        while self.jobs and not self._workers.dead and self.name not in self._workers.held:
            self._run_next()

    def work(self) -> None:
        """Begin the next job, unless one takes its time or the runner is held."""
        workers = self._workers
        while self.jobs and not self._busy and not workers.dead and self.name not in workers.held:
            delay_s = workers.delay_of(self.name)
            if delay_s:
                self._busy = True
                workers.loop.call_later(delay_s, self._delayed)
                return
            self._run_next()

    def _delayed(self) -> None:
        self._busy = False
        if self.jobs and not self._workers.dead:
            self._run_next()
        self.work()

    def _run_next(self) -> None:
        job, done = self.jobs.popleft()
        error: BaseException | None = None
        try:
            job()
        except BaseException as failure:  # noqa: BLE001 -- handed on, as the real worker does
            error = failure
        self._workers.loop.call_soon(self._report, done, error)

    def _report(self, done: Done, error: BaseException | None) -> None:
        if not self._workers.dead:
            done(error)


class World:
    """A machine with one disk, and the process of a store that runs on it."""

    def __init__(
        self,
        seed: int = 1,
        *,
        disk: SimulatedDisk | None = None,
        loop: VirtualLoop | None = None,
        options: JournalOptions = SMALL,
        data_groups: int = 4,
        reserve_bytes: int = 0,
        slice_records: int = 4_096,
        wall_start_ms: int = WALL_START_MS,
        started: bool = True,
        understands: int = LATEST,
    ) -> None:
        self.understands = understands
        self.loop = loop or VirtualLoop()
        self.clock = SimulatedClock(self.loop, wall_start_ms)
        self.random = SeededRandom(seed)
        self.disk = disk or SimulatedDisk()
        self.options = options
        self.data_groups = data_groups
        self.reserve_bytes = reserve_bytes
        self.slice_records = slice_records
        self.workers = SimulatedWorkers(self.loop)
        self.fatal: list[tuple[str, BaseException]] = []
        """What the store has called `fatal` with: the process would have ended."""
        self._started = started
        self._opened: LocalStore | None = None

    # --- The process ------------------------------------------------------------------------

    @property
    def opened(self) -> LocalStore:
        """The store that runs."""
        assert self._opened is not None, "no store runs: await world.start()"
        return self._opened

    @property
    def client(self) -> LocalClient:
        """Its client."""
        return self.opened.client

    def open(self) -> LocalStore:
        """Recover the disk and build a store over it, without starting it."""
        self.disk.beside = self.workers(WRITER)
        self._opened = open_store(
            self.disk,
            self.clock,
            self.random,
            self.workers,
            lambda sentence, error: self.fatal.append((sentence, error)),
            options=self.options,
            data_groups=self.data_groups,
            reserve_bytes=self.reserve_bytes,
            sparse_bytes_min=0,
            slice_records=self.slice_records,
            understands=self.understands,
        )
        return self._opened

    async def start(self) -> LocalStore:
        """Open and start."""
        opened = self.open()
        await opened.start()
        return opened

    async def stop(self) -> None:
        """End in order."""
        opened = self.opened
        await opened.stop()
        self._end_process()

    async def restart(self) -> LocalStore:
        """End in order, start again on the same disk."""
        await self.stop()
        return await self.start()

    async def crash(self, seed: int | None = None) -> LocalStore:
        """Power loss now (with a seed: torn), then start on what the disk has left."""
        self.power_off(seed)
        return await self.start()

    def power_off(self, seed: int | None = None) -> None:
        """Power loss now; the next process finds what the disk has left."""
        after = self.disk.crashed_copy(seed)
        self.disk.stop()
        self.disk = after
        self._end_process()

    def kill(self) -> None:
        """The process is gone; the next one finds the page cache as it was."""
        after = self.disk.killed_copy()
        self.disk.stop()
        self.disk = after
        self._end_process()

    def _end_process(self) -> None:
        self.workers.dead = True
        self.workers = SimulatedWorkers(self.loop)
        opened, self._opened = self._opened, None
        if opened is not None:
            # What it notes is written from the loop, by no runner that is dead.
            opened.housekeeper._stopping = True

    def peer(self, name: str = "peer") -> Peer:
        """A new connection to the store."""
        return Peer(self.client, self.clock, name)

    def figures(self, topic: TopicInfo, group: str = DEFAULT_GROUP) -> TopicStatistics:
        """Figures of a topic and group."""
        return figures_of(self.client, topic, group)

    async def settle_down(self) -> None:
        """Return once nothing is pending, no write or read is in flight, and nothing has come of
        them.
        """
        store, is_idle = self.opened.store, False
        while not is_idle:
            await store.wait_idle()
            await self.loop.rested()
            is_idle = store.is_idle

    # --- The run ----------------------------------------------------------------------------

    def run(self, scenario: Coroutine[object, object, T]) -> T:
        """Run a scenario to its end; fails on whatever a callback has raised meanwhile."""

        async def bounded() -> T:
            async with asyncio.timeout(RUN_SECONDS_MAX):
                if self._started and self._opened is None:
                    await self.start()
                return await scenario

        try:
            return self.loop.run_until_complete(bounded())
        finally:
            self.check()

    def check(self) -> None:
        """Fail on whatever a callback has raised, and on wrong sums of what is stored."""
        errors, self.loop.errors = self.loop.errors, []
        if errors:
            raise AssertionError("a callback has raised") from errors[0]
        if self._opened is not None:
            for replica in self._opened.store.replicas():
                wrong = wrong_sums(replica.state)
                assert not wrong, wrong

    def close(self) -> None:
        """Cancel what is left and close the loop."""
        self.workers.dead = True
        self.loop.go_on()
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        try:
            if tasks:
                self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        finally:
            self.loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def figures_of(
    client: LocalClient, topic: TopicInfo, group: str = DEFAULT_GROUP
) -> TopicStatistics:
    """Figures that need no waiting, since the store is in this process."""
    asked = client.statistics(topic, group)
    try:
        asked.send(None)
    except StopIteration as answered:
        return cast("TopicStatistics", answered.value)
    raise AssertionError("figures of a store in this process were waited for")


def simulated(
    **settings: object,
) -> Callable[[Callable[Concatenate[World, P], Awaitable[None]]], Callable[P, None]]:
    """Run an async test in a world of its own (its first argument), made with `settings`."""

    def decorate(
        test: Callable[Concatenate[World, P], Awaitable[None]],
    ) -> Callable[P, None]:
        @functools.wraps(test)
        def run(*args: P.args, **kwargs: P.kwargs) -> None:
            async def scenario() -> None:
                await test(world, *args, **kwargs)

            with World(**settings) as world:  # type: ignore[arg-type]  # checked by World itself
                world.run(scenario())

        # pytest takes fixtures from the signature: without the world, which is no fixture.
        parameters = list(inspect.signature(test).parameters.values())[1:]
        del run.__dict__["__wrapped__"]
        run.__dict__["__signature__"] = inspect.Signature(parameters)
        return run

    return decorate
