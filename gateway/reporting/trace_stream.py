"""The trace stream: what has become of messages of traced topics, as the leaders of their queues
have noted it, and who had a part in it, as the processes that clients are connected to have.

A stream of the system's own tenant, `__trace` (`system_stream`). Each message is of one topic:

    u64 topic id, little-endian | msgpack [version, process, [event, ...]]     (`broker.tracing`)

Kept for RETENTION_MS, and no more than RETENTION_BYTES of all topics together.

Nothing waits for it: what is noted is written once a second, by each process, and what cannot be is
dropped and counted. A process that is killed takes along what it has noted since.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, Final

import msgspec
import structlog

from gateway.reporting.system_stream import SystemStream
from kernel.broker.tracing import Event
from kernel.common.errors import UNDECODABLE, KernelError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernel.api.client import Client
    from kernel.broker.tracing import TraceBuffer
    from kernel.common.ports import Clock

TRACE_TOPIC: Final = "__trace"

RETENTION_MS: Final = 7 * 24 * 3_600_000

RETENTION_BYTES: Final = 256 * 1024 * 1024
"""Ten million events: whoever has a topic traced may not fill the disk by it."""

FLUSH_S: Final = 1.0

ONLY_PROCESS: Final = "the only one"
"""What a process is called that is no cluster's."""

WAIT_S: Final = 10.0
"""For a second's events to be on disk: longer than an election."""

MESSAGE_BYTES: Final = 128 * 1024
"""About so many of events in one message: whoever searches reads some at a time."""

_VERSION: Final = 1
_TOPIC: Final = struct.Struct("<Q")
_log = structlog.get_logger("weir.trace")


class _Written(msgspec.Struct, frozen=True, array_like=True):
    version: int
    process: str
    events: list[Event]


_decoder = msgspec.msgpack.Decoder(_Written)
_encode = msgspec.msgpack.Encoder().encode


def stream_of(client: Client, clock: Clock) -> SystemStream:
    """The stream, for a process that reads or writes it."""
    return SystemStream(client, clock, TRACE_TOPIC, RETENTION_MS, RETENTION_BYTES)


def bodies_of(topic: int, process: str, events: Sequence[bytes]) -> Iterator[tuple[bytes, int]]:
    """Messages of events, each as msgpack, and how many events each holds."""
    some: list[msgspec.Raw] = []
    size = 0
    for event in events:
        if some and size + len(event) > MESSAGE_BYTES:
            yield _TOPIC.pack(topic) + _encode((_VERSION, process, some)), len(some)
            some, size = [], 0
        some.append(msgspec.Raw(event))
        size += len(event)
    if some:
        yield _TOPIC.pack(topic) + _encode((_VERSION, process, some)), len(some)


def events_in(body: bytes, topic: int) -> tuple[str, list[Event]]:
    """Which process has noted what, by a message of the stream; nothing if it is of another topic,
    or does not read: of a later version, perhaps.
    """
    if len(body) < _TOPIC.size or _TOPIC.unpack_from(body)[0] != topic:
        return "", []
    try:
        written = _decoder.decode(memoryview(body)[_TOPIC.size :])
    except UNDECODABLE:
        return "", []
    return (written.process, written.events) if written.version == _VERSION else ("", [])


class TraceWriter:
    """Writes what one process notes. Belongs to the event loop."""

    def __init__(self, client: Client, clock: Clock, buffer: TraceBuffer, process: str) -> None:
        """`process`: what this one is called."""
        self._stream = stream_of(client, clock)
        self._buffer = buffer
        self._process = process
        self.written = 0
        """Events that are on disk."""

    async def run(self) -> None:
        """Write once a second, for ever. A defect ends the tracing, and nothing else."""
        try:
            while True:
                await asyncio.sleep(FLUSH_S)
                await self.flush()
        except Exception:  # noqa: BLE001 - a defect must not end the node
            _log.exception("the message trace has ended")

    async def flush(self) -> None:
        """Write what has been noted so far; bounded in time. No errors."""
        taken = self._buffer.take()
        bodies = [
            each
            for topic, events in taken.items()
            for each in bodies_of(topic, self._process, events)
        ]
        if bodies:
            await asyncio.gather(*(self._write(body, events) for body, events in bodies))

    async def _write(self, body: bytes, events: int) -> None:
        failure: object
        try:
            async with asyncio.timeout(WAIT_S):
                failure = await self._stream.store(body)
        except TimeoutError:
            failure = f"not on disk after {WAIT_S} s"
        except KernelError as error:
            failure = error
        if failure is None:
            self.written += events
            return
        self._buffer.dropped += events
        _log.warning("traces are dropped", events=events, why=str(failure))
