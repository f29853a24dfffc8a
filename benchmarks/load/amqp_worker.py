"""The program of one generator process: `python -m benchmarks.load.amqp_worker`."""

from __future__ import annotations

import sys

import msgspec

from benchmarks.load.amqp_consumer import ConsumerGroup
from benchmarks.load.amqp_producer import ProducerGroup
from benchmarks.load.amqp_spec import ConsumerSpec, ProducerSpec
from benchmarks.load.worker import run_worker


async def _run(spec: ProducerSpec | ConsumerSpec) -> None:
    group = ProducerGroup(spec) if isinstance(spec, ProducerSpec) else ConsumerGroup(spec)
    await group.run()


if __name__ == "__main__":
    sys.exit(run_worker(msgspec.json.Decoder(ProducerSpec | ConsumerSpec).decode, _run))
