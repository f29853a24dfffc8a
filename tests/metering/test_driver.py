from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Awaitable, Callable

import pytest

from metering.collector import Collector
from metering.counters import WINDOW_US, Meter
from metering.driver import FlushFenced, FlushUnavailable, MeteringDriver, Ports
from metering.schema import FlushId, decode
from metering.window import RowValues, Window
from tests.metering.samples import START_US, key, window


class World:
    """A log and a clock that goes to the next sleeper's time when nothing else can happen."""

    def __init__(self) -> None:
        self.now_us = START_US
        self.epoch = 0
        self.log: dict[FlushId, bytes] = {}
        self.answers: list[Exception | Callable[[], Awaitable[None]] | None] = []
        self.sent: list[FlushId] = []
        self.sleeps: list[float] = []
        self.sleepers: list[tuple[int, int, asyncio.Event]] = []
        self.meter = Meter(self.now_us)
        self.collector = Collector("n1")
        self.more: list[Window] = []
        self.spans: list[tuple[int, int]] = []
        self.driver = MeteringDriver(
            self.meter,
            self.collector,
            Ports(
                clock_us=lambda: self.now_us,
                sleep=self.sleep,
                register=self.register,
                flush=self.flush,
                more=self.take_more,
            ),
        )

    async def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        alarm = asyncio.Event()
        due_us = self.now_us + round(seconds * 1e6)
        heapq.heappush(self.sleepers, (due_us, len(self.sleeps), alarm))
        await alarm.wait()

    async def register(self) -> int:
        self.epoch += 1
        return self.epoch

    async def flush(self, body: bytes, flush_id: FlushId) -> None:
        """The next answer: an error in place of taking it, a wait after taking it, or None."""
        self.sent.append(flush_id)
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        assert self.log.setdefault(flush_id, body) == body
        if answer is not None:
            await answer()

    async def take_more(self, start_us: int, end_us: int) -> list[Window]:
        self.spans.append((start_us, end_us))
        taken, self.more = self.more, []
        return taken

    async def run_until(self, condition: Callable[[], bool]) -> None:
        run = asyncio.ensure_future(self.driver.run())
        try:
            for _ in range(100):
                for _ in range(20):
                    await asyncio.sleep(0)
                if condition():
                    return
                self.now_us, _, alarm = heapq.heappop(self.sleepers)
                alarm.set()
            pytest.fail("it does not come to pass")
        finally:
            run.cancel()
            with pytest.raises(asyncio.CancelledError):
                await run

    def counted(self) -> Counter[str]:
        total: Counter[str] = Counter()
        for body in self.log.values():
            batch = decode(body)
            for topic, count in zip(batch.text["topic"], batch.numbers["messages"], strict=True):
                total[topic] += count
        return total


async def test_windows_reach_the_log_as_they_close() -> None:
    world = World()
    world.meter.counter(key("a")).count_one(1)
    await world.run_until(lambda: len(world.log) == 1)
    world.meter.counter(key("a")).count_one(1)
    await world.run_until(lambda: len(world.log) == 2)
    assert world.counted() == {"a": 2}
    assert [flush_id.first_seq for flush_id in world.log] == [0, 1]


async def test_a_reply_that_is_lost_doubles_nothing() -> None:
    world = World()

    async def reply_is_lost() -> None:
        raise FlushUnavailable

    world.answers = [reply_is_lost, FlushUnavailable(), None]
    world.meter.counter(key("a")).count_one(1)
    await world.run_until(lambda: len(world.sent) == 3 and world.collector.drained())
    assert world.counted() == {"a": 1}
    assert len(set(world.sent)) == 1


async def test_the_wait_doubles_while_the_log_is_away_and_windows_still_close() -> None:
    world = World()
    world.answers = [FlushUnavailable()] * 8
    world.meter.counter(key("a")).count_one(1)
    await world.run_until(lambda: len(world.sent) == 9 and world.collector.drained())
    waits = [wait for wait in world.sleeps if wait < WINDOW_US / 1e6]
    assert waits[:6] == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2]
    assert world.meter.window_start_us() > START_US + WINDOW_US


async def test_a_fenced_node_goes_on_under_a_new_epoch() -> None:
    world = World()
    world.answers = [FlushFenced()]
    world.meter.counter(key("a")).count_one(1)
    await world.run_until(lambda: len(world.log) == 1)
    assert [flush_id.epoch for flush_id in world.sent] == [1, 2]
    assert world.counted() == {"a": 1}


async def test_drain_sends_the_open_window_and_what_was_cut_short() -> None:
    world = World()
    entered = asyncio.Event()

    async def never_answers() -> None:
        entered.set()
        await asyncio.Event().wait()

    world.answers = [never_answers]
    world.meter.counter(key("a")).count_one(1)
    await world.run_until(entered.is_set)
    world.meter.counter(key("b")).count_one(1)
    assert await world.driver.drain(timeout_s=1)
    assert world.counted() == {"a": 1, "b": 1}
    assert len(world.sent) == 3


async def test_drain_gives_up_in_time_and_says_so() -> None:
    world = World()

    async def never_answers() -> None:
        await asyncio.Event().wait()

    world.answers = [never_answers]
    world.meter.counter(key("a")).count_one(1)
    assert not await world.driver.drain(timeout_s=0.02)
    assert not world.collector.drained()


async def test_windows_of_another_meter_go_the_same_way() -> None:
    world = World()
    row = key("stored", kind="store", raft_group=0)
    values = {row: RowValues(log_index=4, cum_messages=9)}
    world.more = [Window(START_US, START_US + WINDOW_US, values)]
    await world.run_until(lambda: len(world.log) == 1)
    assert world.spans[0] == (START_US, START_US + WINDOW_US)
    assert list(world.counted()) == ["stored"]


async def test_a_defect_ends_the_driver_loudly() -> None:
    world = World()
    world.answers = [ZeroDivisionError()]
    world.collector.offer(window(0, a=1))
    with pytest.raises(ExceptionGroup) as caught:
        await asyncio.wait_for(world.driver.run(), 5)
    assert caught.group_contains(ZeroDivisionError)


async def test_a_flush_asked_for_waits_until_the_open_window_is_in_the_log() -> None:
    world = World()
    gathered: list[int] = []

    def gather() -> None:
        gathered.append(world.now_us)
        world.meter.counter(key("transient")).count_one(1)

    ports = Ports(world.driver._ports.clock_us, world.sleep, world.register, world.flush, gather)
    world.driver = MeteringDriver(world.meter, world.collector, ports)
    run = asyncio.ensure_future(world.driver.run())
    await asyncio.sleep(0)
    world.meter.counter(key("a")).count_one(1)
    assert await world.driver.flush_now(timeout_s=5)
    assert world.counted() == {"a": 1, "transient": 1}
    assert len(gathered) == 1
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run


async def test_a_flush_asked_for_gives_up_in_time_and_says_so() -> None:
    world = World()

    async def never_answers() -> None:
        await asyncio.Event().wait()

    world.answers = [never_answers]
    run = asyncio.ensure_future(world.driver.run())
    await asyncio.sleep(0)
    world.meter.counter(key("a")).count_one(1)
    assert not await world.driver.flush_now(timeout_s=0.02)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
