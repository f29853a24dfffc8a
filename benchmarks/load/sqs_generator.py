"""The loads: what each connection sends next, and what is measured.

    SEND    send -> send -> ...
    CYCLE   send -> receive -> delete -> send -> ...
    POLL    receive (waits 20 s) -> receive -> ...

Closed loop: a connection takes the next message as soon as its last one is done. Open loop:
message i is due at start + i / rate whatever the service does; a connection that is free takes it
then, and its latency counts from then. A message that no connection was free for is late, never
left out. Deletions name a receipt handle and are signed when it is known, some 10 us each; all else
is bytes before the start.
"""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections import deque
from typing import TYPE_CHECKING

import msgspec

from benchmarks.load import procfs
from benchmarks.load.errors import BenchError
from benchmarks.load.precise_timer import PreciseTimer
from benchmarks.load.sqs_client import SqsConnection
from benchmarks.load.sqs_wire import messages_of
from benchmarks.load.stats import Histogram
from benchmarks.load.verify import (
    MAGIC,
    PRODUCER_MASK,
    PRODUCER_SHIFT,
    SEQUENCE_MASK,
    Arrivals,
    Coverage,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.load.sqs_wire import Answer, Endpoint, Message

SEND, RECEIVE, DELETE = range(3)
STEPS = ("send", "receive", "delete")


class Seen:
    """Which messages have come, and how often."""

    def __init__(self) -> None:
        self._coverage: dict[int, Coverage] = {}
        self._duplicated: dict[int, int] = {}
        self.foreign = 0

    def take(self, message: Message) -> None:
        """A message was received."""
        key = message.key
        if key < 0 or key >> 56 != MAGIC:
            self.foreign += 1
            return
        producer = key >> PRODUCER_SHIFT & PRODUCER_MASK
        coverage = self._coverage.setdefault(producer, Coverage())
        again = coverage.add(key & SEQUENCE_MASK, (key & SEQUENCE_MASK) + 1)
        self._duplicated[producer] = self._duplicated.get(producer, 0) + again

    def arrivals(self, producer: int) -> list[Arrivals]:
        """What came of one producer."""
        coverage = self._coverage.get(producer)
        if coverage is None:
            return []
        return [Arrivals(coverage.intervals(), self._duplicated[producer], 0, 0)]


class Usage(msgspec.Struct, frozen=True):
    """What was used up to one moment."""

    at_ns: int
    own_cpu_ns: int
    server_cpu_s: float
    busy_s: float  # of the whole machine


def usage(pids: list[int]) -> Usage:
    """What this process, the server's processes and the machine have used. Raises BenchError."""
    try:
        server_cpu_s = procfs.cpu_s(pids)
        busy_s = procfs.busy_s() if pids else 0.0
    except procfs.ProcessGone as error:
        raise BenchError(str(error)) from None
    return Usage(time.monotonic_ns(), time.process_time_ns(), server_cpu_s, busy_s)


class Load(ABC):
    """Shared by the loads: connections, the measured window, the end."""

    def __init__(self, endpoint: Endpoint, connections: int, pids: list[int]) -> None:
        self.connections = [SqsConnection(endpoint, self) for _ in range(connections)]
        self.latency = [Histogram() for _ in STEPS]
        self.opened: Usage | None = None
        self.closed: Usage | None = None
        self.resident_bytes = 0
        self.server = ""
        self.answers = 0
        self._pids = pids
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def open_window(self) -> None:
        """The measured part begins."""
        self.latency = [Histogram() for _ in STEPS]
        self.opened = usage(self._pids)

    def close_window(self) -> None:
        """The measured part is over."""
        self.closed = usage(self._pids)
        self.resident_bytes = procfs.resident_bytes(self._pids) if self._pids else 0

    def fail(self, reason: str) -> None:
        """End the run with an error."""
        if not self._ended.done():
            self._ended.set_exception(BenchError(reason))

    def end(self) -> None:
        """End the run."""
        if not self._ended.done():
            self._ended.set_result(None)

    async def wait(self) -> None:
        """Return when the run has ended. Raises BenchError if it failed."""
        await self._ended

    def answered(self, connection: SqsConnection, answer: Answer, now_ns: int) -> None:
        """See `sqs_client.Load`."""
        if self._ended.done():
            return
        try:
            answer.check(STEPS[connection.step])
            self.server = self.server or answer.server
            self.answers += 1
            self.latency[connection.step].record(now_ns - connection.sent_ns)
            self.step_done(connection, answer, now_ns)
        except BenchError as error:
            self.fail(str(error))

    @abstractmethod
    def step_done(self, connection: SqsConnection, answer: Answer, now_ns: int) -> None:
        """A request succeeded: go on."""

    async def connect(self) -> None:
        """Open every connection. Raises BenchError."""
        for connection in self.connections:
            await connection.open()

    def close(self) -> None:
        """Close every connection."""
        for connection in self.connections:
            connection.close()


class SendLoad(Load):
    """SEND and CYCLE: the requests in order, over whatever connection is free."""

    def __init__(
        self,
        endpoint: Endpoint,
        connections: int,
        pids: list[int],
        requests: list[bytes],
        warmup: int,
        rate: float,
        *,
        receive: bytes = b"",
        delete: Callable[[str], bytes] | None = None,
    ) -> None:
        """`delete`: makes the deletion of a receipt handle; given in CYCLE, with `receive`."""
        super().__init__(endpoint, connections, pids)
        self.seen = Seen()
        self.sent = 0
        self._requests = requests
        self._warmup = warmup
        self._interval_ns = 1e9 / rate if rate else 0.0
        self._receive = receive
        self._delete = delete
        self._done = 0
        self._start_ns = 0
        self._free: deque[SqsConnection] = deque()
        self._timer = PreciseTimer(self._due) if rate else None

    def start(self) -> None:
        """Begin to send, by every connection."""
        self._start_ns = time.monotonic_ns()
        if not self._warmup:
            self.open_window()
        for connection in self.connections:
            self._take(connection, self._start_ns)

    def close(self) -> None:
        """Close every connection and the timer."""
        if self._timer is not None:
            self._timer.close()
        super().close()

    def step_done(self, connection: SqsConnection, answer: Answer, now_ns: int) -> None:
        """Go on with the round, or with the next message."""
        if connection.step == SEND:
            if self._delete is not None:
                self._ask(connection, RECEIVE, self._receive, now_ns)
                return
        elif connection.step == RECEIVE:
            messages = messages_of(answer)
            if not messages:  # another connection was quicker: ask again
                self._ask(connection, RECEIVE, self._receive, now_ns)
                return
            self.seen.take(messages[0])
            assert self._delete is not None
            request = self._delete(messages[0].handle)
            self._ask(connection, DELETE, request, time.monotonic_ns())
            return
        self._done += 1
        if self._done == self._warmup:
            self.open_window()
        if self._done == len(self._requests):
            self.close_window()
            self.end()
        self._take(connection, now_ns)

    def _ask(self, connection: SqsConnection, step: int, request: bytes, now_ns: int) -> None:
        connection.step = step
        connection.sent_ns = now_ns
        connection.send(request)

    def _take(self, connection: SqsConnection, now_ns: int) -> None:
        """Send the next message if it is due; else wait for it."""
        number = self.sent
        if number == len(self._requests):
            return
        due_ns = now_ns
        if self._timer is not None:
            due_ns = self._start_ns + int(number * self._interval_ns)
            if due_ns > now_ns:
                if not self._free:
                    self._timer.set(due_ns)
                self._free.append(connection)
                return
        self.sent = number + 1
        self._ask(connection, SEND, self._requests[number], due_ns)

    def _due(self) -> None:
        """The time of the next message has come."""
        now_ns = time.monotonic_ns()
        waiting, self._free = self._free, deque()
        for connection in waiting:
            self._take(connection, now_ns)


class PollLoad(Load):
    """POLL: every connection waits; at the end one message is sent, which one of them gets."""

    def __init__(
        self, endpoint: Endpoint, connections: int, pids: list[int], receive: bytes
    ) -> None:
        super().__init__(endpoint, connections, pids)
        self.seen = Seen()
        self.handles: list[str] = []
        self.empty = 0
        self.message_sent_ns = 0
        self._receive = receive

    def start(self) -> None:
        """Begin to poll, by every connection."""
        now_ns = time.monotonic_ns()
        for connection in self.connections:
            self._poll(connection, now_ns)

    def _poll(self, connection: SqsConnection, now_ns: int) -> None:
        connection.step = RECEIVE
        connection.sent_ns = now_ns
        connection.send(self._receive)

    def step_done(self, connection: SqsConnection, answer: Answer, now_ns: int) -> None:
        """Poll again; end with the message."""
        messages = messages_of(answer)
        for message in messages:
            self.seen.take(message)
            self.handles.append(message.handle)
        if messages:
            # Of the polls themselves only the one that was woken says something.
            self.latency[RECEIVE] = Histogram()
            self.latency[RECEIVE].record(now_ns - self.message_sent_ns)
            self.end()
        else:
            self.empty += 1
            self._poll(connection, now_ns)
