"""The program of one generator process: `python -m gateway.bench.rocketmq_worker`."""

from __future__ import annotations

import sys

import msgspec

from gateway.bench.rocketmq_consumer import ConsumerGroup
from gateway.bench.rocketmq_producer import ProducerGroup
from gateway.bench.rocketmq_spec import ReceiveSpec, SendSpec
from gateway.bench.worker import run_worker


async def _run(spec: SendSpec | ReceiveSpec) -> None:
    group = ProducerGroup(spec) if isinstance(spec, SendSpec) else ConsumerGroup(spec)
    await group.run()


if __name__ == "__main__":
    sys.exit(run_worker(msgspec.json.Decoder(SendSpec | ReceiveSpec).decode, _run))
