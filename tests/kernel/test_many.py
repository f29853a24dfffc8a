"""Very many queues, sessions and messages: short forms of `benchmarks/many_rows.py` that count
bytes and calls of functions instead of time, so that they say the same on any machine.
"""

from __future__ import annotations

import asyncio
import gc
import shutil
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from types import FrameType

import pytest

from benchmarks.kernel_load import Drain, Publisher
from benchmarks.many_rows import STEP, connect_some, make, opened
from kernel.api.client import ConsumerSpec
from kernel.api.model import TopicInfo
from kernel.in_process.opening import LocalStore

QUEUE_BYTES_MAX = 1_000
"""A million of them, with a message each, fit into 1 GB."""

SESSION_BYTES_MAX = 4_096

REPLAY_CALLS_MAX = 6
"""Of a message at a restart: a microsecond, so that a million take seconds."""

REPLAYED_BYTES_MAX = 128
"""Of a message's place in the index and in the journal, after a restart."""


@pytest.fixture(autouse=True)
def _alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """No checkpoint comes in between; and many at once, so that few syncs are waited for."""
    monkeypatch.setattr("kernel.store.space.housekeeper.CHECKPOINT_SECONDS", 3_600)
    monkeypatch.setattr("benchmarks.many_rows.AT_ONCE", 100)


class Counted:
    """What the test's thread did in a `with` block."""

    calls = 0
    bytes = 0


@contextmanager
def calls() -> Iterator[Counted]:
    """Counts calls of Python functions."""
    counted = Counted()

    def noted(_frame: FrameType, event: str, _argument: object) -> None:
        counted.calls += event == "call"

    sys.setprofile(noted)
    try:
        yield counted
    finally:
        sys.setprofile(None)


@contextmanager
def memory() -> Iterator[Counted]:
    """Counts bytes that were taken and are still held."""
    counted = Counted()
    gc.collect()
    tracemalloc.start()
    try:
        yield counted
        gc.collect()
        counted.bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()


def named(local: LocalStore, first: int, last: int) -> list[TopicInfo]:
    found = (local.client.topic("default", f"queue-{number}") for number in range(first, last))
    return [each for each in found if each is not None]


async def publish(local: LocalStore, topics: list[TopicInfo], count: int) -> None:
    session = local.client.open_session("many")
    publisher = Publisher(local, session, topics)
    publisher.body = bytes(100)
    await publisher.publish(count)
    session.close()


async def make_and_fill(local: LocalStore, first: int, last: int) -> None:
    """Queues with a message each."""
    for at in range(first, last, STEP):
        await make(local, at, at + STEP)
        await publish(local, named(local, at, at + STEP), STEP)


async def burst_calls(local: LocalStore, topic: TopicInfo, count: int = 5_000) -> int:
    """What it takes to publish to one queue, and to consume it all."""
    session, sink = local.client.open_session("burst"), Drain(local)
    with calls() as counted:
        await publish(local, [topic], count)
        consumer = local.client.attach(ConsumerSpec(topic, "default", session), sink)
        consumer.grant(2_000)
        await sink.until(count)
    consumer.cancel()
    session.close()
    return counted.calls


async def test_a_queue_among_many_takes_little_memory_and_makes_no_other_slower(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "kernel.broker.group_state.queues.LIVE_MAX", 64
    )  # of 4,096: all but a few rest
    async with opened(tmp_path / "store") as local:
        await make_and_fill(local, 0, 2 * STEP)
        (further,) = named(local, 0, 1)
        await burst_calls(local, further)
        few = await burst_calls(local, further)
        with memory() as held:
            await make_and_fill(local, 2 * STEP, 12 * STEP)
        assert held.bytes / (10 * STEP) <= QUEUE_BYTES_MAX
        many = await burst_calls(local, further)
        assert many <= 1.2 * few


async def test_a_session_among_many_takes_little_memory_and_no_more_work_than_the_first(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path / "store") as local:
        await connect_some(local, 0, 500)
        with calls() as early:
            await connect_some(local, 500, 1_000)
        with memory() as held:
            await connect_some(local, 1_000, 4_000)
        assert held.bytes / 3_000 <= SESSION_BYTES_MAX
        with calls() as late:
            await connect_some(local, 4_000, 4_500)
        assert late.calls <= 1.2 * early.calls


async def test_a_restart_takes_a_few_calls_and_some_bytes_for_each_message(tmp_path: Path) -> None:
    queues, messages = 200, 20_000
    async with opened(tmp_path / "store") as local:
        await make(local, 0, queues)
        await publish(local, named(local, 0, queues), messages)
        # As it is on the disk at this moment, and would be after a kill.
        await asyncio.to_thread(shutil.copytree, tmp_path / "store", tmp_path / "killed")
    async with AsyncExitStack() as stack:
        with memory() as held, calls() as counted:
            local = await stack.enter_async_context(opened(tmp_path / "killed"))
        assert len(named(local, 0, queues)) == queues
        states = [replica.state for replica in local.store.replicas()]
        found = [queue for state in states for queue in state.queues.values()]
        kept = sum(each.index.tail - each.groups["default"].floor for each in found)
    assert kept == messages
    assert counted.calls / messages <= REPLAY_CALLS_MAX
    assert held.bytes / messages <= REPLAYED_BYTES_MAX
