"""The coordinator of `weir bench rocketmq`: who does what, and a `measured_run` of it.

Its consumers are ready once the consumer group exists. The topic is there before: clients of
RocketMQ make none. Loss and duplicates are judged over all that was ever sent (verify).
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.load.measured_run import Measured, MeasuredRun, generators, shares
from benchmarks.load.rocketmq_spec import ReceiveSpec, SendSpec
from benchmarks.load.rocketmq_wire import parse_url

if TYPE_CHECKING:
    from benchmarks.load.talk import ProducerResult

WORKER = "benchmarks.load.rocketmq_worker"


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """One run. Times in seconds; see `weir bench rocketmq --help` for each."""

    url: str
    topic: str = "weir-bench"
    group: str = "weir-bench"
    size_bytes: int = 1024
    batch: int = 1
    producers: int = 1
    consumers: int = 1
    producer_processes: int = 1
    consumer_processes: int = 1
    window: int = 32
    receive_batch: int = 32
    ack_batch: int = 32
    duration_s: float = 10.0
    messages: int = 0  # 0 = by time
    warmup_s: float = 2.0
    pids: list[int] = field(default_factory=list)
    metrics_url: str = ""
    drain_timeout_s: float = 30.0

    @property
    def by_messages(self) -> bool:
        """The run ends with its last message; else at its time."""
        return bool(self.messages)

    @property
    def lead_s(self) -> float:
        """Seconds from the start to the measured window; a counted run is measured whole."""
        return 0.0 if self.messages else self.warmup_s


@dataclass(frozen=True, slots=True)
class LoadResult:
    """Everything that was measured; `rocketmq_report` makes figures of it."""

    options: LoadOptions
    measured: Measured


def specs(options: LoadOptions, run: int) -> tuple[list[ReceiveSpec], list[SendSpec]]:
    """What each process does; messages are divided among the producers, in whole requests."""
    requests = -(-options.messages // options.batch)
    share, rest = divmod(requests, options.producers)
    quotas = [(share + (number < rest)) * options.batch for number in range(options.producers)]
    receiving = [
        ReceiveSpec(
            url=options.url,
            run=run,
            consumers=len(numbers),
            topic=options.topic,
            group=options.group,
            batch=options.receive_batch,
            ack_batch=options.ack_batch,
        )
        for numbers in shares(options.consumers, options.consumer_processes)
    ]
    sending = [
        SendSpec(
            url=options.url,
            run=run,
            numbers=numbers,
            quotas=[quotas[number] for number in numbers],
            topic=options.topic,
            size_bytes=options.size_bytes,
            batch=options.batch,
            window=options.window,
        )
        for numbers in shares(options.producers, options.producer_processes)
        if not options.messages or any(quotas[number] for number in numbers)
    ]
    return receiving, sending


class _Run(MeasuredRun):
    """The phases, and how many messages are to come."""

    def expected(self, produced: list[ProducerResult]) -> int:
        """Every message that was answered."""
        return sum(total.answered for part in produced for total in part.producers)


async def run_load(options: LoadOptions) -> LoadResult:
    """Run one load. Raises BenchError when it cannot be carried through."""
    parse_url(options.url)
    receiving, sending = specs(options, time.monotonic_ns())
    async with (
        generators(WORKER, receiving) as consumers,
        generators(WORKER, sending) as producers,
    ):
        return LoadResult(options, await _Run(options, producers, consumers).measure())
