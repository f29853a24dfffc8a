"""The program of one generator process: `python -m benchmarks.load.rocketmq_worker`."""

from __future__ import annotations

import sys

import msgspec

from benchmarks.load.rocketmq_consumer import ConsumerGroup
from benchmarks.load.rocketmq_producer import ProducerGroup
from benchmarks.load.rocketmq_spec import ReceiveSpec, SendSpec
from benchmarks.load.worker import run_worker


async def _run(spec: SendSpec | ReceiveSpec) -> None:
    group = ProducerGroup(spec) if isinstance(spec, SendSpec) else ConsumerGroup(spec)
    await group.run()


if __name__ == "__main__":
    sys.exit(run_worker(msgspec.json.Decoder(SendSpec | ReceiveSpec).decode, _run))
