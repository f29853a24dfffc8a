"""The coordinator of `weir bench amqp`: set up, start the processes, wait, judge, clean up.

set up      declare PREFIX-0000 ... (fresh unless only consuming) and the fanout exchange
run         ready, go, window, drain, finish (measured_run)
judge       loss, duplicates and order over all that was ever sent (verify)
clean up    delete what was declared, unless the messages were to stay
"""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from benchmarks.load.amqp_plan import LoadOptions, Mode, consumer_specs, producer_specs
from benchmarks.load.amqp_queues import clean_up, queue_depths, set_up
from benchmarks.load.amqp_wire import AmqpUrl, parse_url
from benchmarks.load.errors import BenchError
from benchmarks.load.measured_run import Measured, MeasuredRun, generators
from benchmarks.load.process import GeneratorProcess
from benchmarks.load.talk import ProducerResult

if TYPE_CHECKING:
    from benchmarks.load.amqp_client import Identity

WORKER = "benchmarks.load.amqp_worker"


@dataclass(slots=True)
class LoadResult:
    """Everything that was measured; `report` makes figures of it."""

    options: LoadOptions
    identity: Identity
    backlog: int  # messages in the queues before the start
    measured: Measured
    depths: list[int] = field(default_factory=list)
    """Ready messages of each queue at the end, when nobody consumed."""


class _Run(MeasuredRun):
    """The phases, and how many messages are to come."""

    def __init__(
        self,
        options: LoadOptions,
        backlog: int,
        producers: list[GeneratorProcess],
        consumers: list[GeneratorProcess],
    ) -> None:
        super().__init__(options, producers, consumers)
        self._load = options
        self._backlog = backlog

    def expected(self, produced: list[ProducerResult]) -> int:
        """Every copy of what was confirmed, or what was in the queues."""
        if self._load.mode is Mode.CONSUME:
            return self._load.messages or self._backlog
        sent = sum(total.sent - len(total.nacked) for part in produced for total in part.producers)
        return sent * self._load.copies


async def _settled_depths(options: LoadOptions, url: AmqpUrl, published: int) -> list[int]:
    """The queues' depths, once they add up or have stopped changing."""
    depths = await asyncio.to_thread(queue_depths, options, url)
    for _ in range(int(options.drain_timeout_s / 0.5)):
        if sum(depths) >= published:
            break
        await asyncio.sleep(0.5)
        again = await asyncio.to_thread(queue_depths, options, url)
        if again == depths:
            break
        depths = again
    return depths


async def _measure(options: LoadOptions, identity: Identity, backlog: int) -> LoadResult:
    async with (
        generators(WORKER, consumer_specs(options)) as consumers,
        generators(WORKER, producer_specs(options)) as producers,
    ):
        measured = await _Run(options, backlog, producers, consumers).measure()
    return LoadResult(options, identity, backlog, measured)


async def run_load(options: LoadOptions) -> LoadResult:
    """Run one load. Raises BenchError when it cannot be carried through."""
    url = parse_url(options.url)
    identity, backlog = await asyncio.to_thread(set_up, options, url)
    try:
        result = await _measure(options, identity, backlog)
        measured = result.measured
        if not measured.consumers:
            sent = sum(total.sent for part in measured.producers for total in part.producers)
            result.depths = await _settled_depths(options, url, sent * options.copies)
        return result
    finally:
        if not options.keep:
            with contextlib.suppress(BenchError):
                await asyncio.to_thread(clean_up, options, url)
