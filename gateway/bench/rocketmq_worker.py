"""The program of one generator process: `python -m gateway.bench.rocketmq_worker`.

The first line of stdin is its spec; everything after it is the talk of `worker`.
"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys

import msgspec

from gateway.bench.amqp_spec import Failed
from gateway.bench.amqp_wire import BenchError
from gateway.bench.rocketmq_consumer import ConsumerGroup
from gateway.bench.rocketmq_producer import ProducerGroup
from gateway.bench.rocketmq_spec import SendSpec, Spec
from gateway.bench.worker import new_loop


async def _run(spec: Spec) -> None:
    if isinstance(spec, SendSpec):
        await ProducerGroup(spec).run()
    else:
        await ConsumerGroup(spec).run()


def main() -> int:
    spec: Spec = msgspec.json.decode(sys.stdin.buffer.readline(), type=Spec)
    # Ctrl-C reaches the whole process group: the coordinator cleans up and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()  # a collection in the middle of a run is a false latency
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_run(spec))
    except BenchError as error:
        sys.stdout.buffer.write(msgspec.json.encode(Failed(str(error))) + b"\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
