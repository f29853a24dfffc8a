"""A generator process, seen from the coordinator."""

from __future__ import annotations

import asyncio
import sys

import msgspec

from benchmarks.load.errors import BenchError
from benchmarks.load.talk import ConsumerResult, Failed, ProducerResult, Progress, Ready, Report

LINE_BYTES_MAX = 1 << 30  # a result line; interleaved consumers list every message in theirs
END_TIMEOUT_S = 5.0  # a process whose stdin has ended ends at once, or is stuck


class GeneratorProcess:
    """A child process with its pipe."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.ready = False
        self.messages = 0
        self.result: ProducerResult | ConsumerResult | None = None

    @classmethod
    async def start(cls, module: str, spec: msgspec.Struct) -> GeneratorProcess:
        """Start a worker module with its spec."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            limit=LINE_BYTES_MAX,
        )
        child = cls(process)
        child.send(spec)
        return child

    def send(self, message: msgspec.Struct) -> None:
        """Write one line; a process that has reported its result needs none."""
        assert self._process.stdin is not None
        if self.result is None and not self._process.stdin.is_closing():
            self._process.stdin.write(msgspec.json.encode(message) + b"\n")

    async def listen(self) -> None:
        """Take its reports until it ends. Raises BenchError when it gives up or dies."""
        assert self._process.stdout is not None
        decoder = msgspec.json.Decoder(Report)
        async for line in self._process.stdout:
            report: Report = decoder.decode(line)
            if isinstance(report, Failed):
                raise BenchError(report.reason)
            if isinstance(report, Ready):
                self.ready = True
            elif isinstance(report, Progress):
                self.messages = report.messages
            else:
                self.result = report
        await self._process.wait()
        if self.result is None:
            raise BenchError(f"a generator process ended with code {self._process.returncode}")

    async def end(self) -> None:
        """Close its stdin, which ends it; one that is stuck is killed."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), END_TIMEOUT_S)
        except TimeoutError:
            self._process.kill()
            await self._process.wait()
