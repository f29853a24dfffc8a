"""An empty gRPC server: answers every call at once with the same few bytes, and does nothing else.

    python -m benchmarks.empty_grpc PORT

What any RocketMQ server in Python pays before its own work begins; the peer of `rocketmq-send`.
"""

from __future__ import annotations

import asyncio
import sys

import grpc

from adapters.rocketmq.codec.answer_encoding import OK
from benchmarks.load.worker import new_loop


class Calls(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    """Every method is a call with one answer, in bytes."""

    def __init__(self) -> None:
        async def answer(_request: bytes, _context: object) -> bytes:
            return OK

        self._handler = grpc.unary_unary_rpc_method_handler(answer)

    def service(self, _details: object) -> grpc.RpcMethodHandler:
        return self._handler


async def main() -> None:
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((Calls(),))
    server.add_insecure_port(f"127.0.0.1:{sys.argv[1]}")
    await server.start()
    await server.wait_for_termination()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(main())
