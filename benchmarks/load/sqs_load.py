"""The coordinator of `weir bench sqs`: set up, run, judge, clean up. One process does it all.

    set up      a queue of a name of its own; the backlog; every request made and signed
    run         the warm-up, then the measured window (`sqs_generator`)
    drain       receive and delete, in tens, until the queue has nothing more
    judge       loss and duplicates over all that was ever sent (verify)
    clean up    delete the queue, unless it was to stay

A standard queue promises no order, so none is judged. Every wait ends: by an answer, a lost
connection, or ANSWER_TIMEOUT_S without any answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from benchmarks.load.errors import BenchError
from benchmarks.load.open_files import allow_connections
from benchmarks.load.sqs_client import Caller
from benchmarks.load.sqs_generator import PollLoad, SendLoad
from benchmarks.load.sqs_plan import WAIT_S, Mode
from benchmarks.load.sqs_wire import Signer, body_of, messages_of, parse_endpoint
from benchmarks.load.verify import Verdict, first_key, judge

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from benchmarks.load.sqs_generator import Seen
    from benchmarks.load.sqs_plan import SqsOptions
    from benchmarks.load.sqs_wire import Endpoint

ANSWER_TIMEOUT_S: Final = 60.0  # three of the longest polls
POLL_LEAD_S: Final = 1.0  # after the last poll was sent, before the window of POLL
RUN, BACKLOG = 0, 1  # producers, as `verify` numbers them
BATCH: Final = 10  # SQS's limit
BATCH_BYTES: Final = 900_000  # of bodies in a batch: below SQS's limit of 1 MiB
DRAIN_CONNECTIONS: Final = 8
VISIBILITY_S: Final = 600  # nothing that was received comes back during a run


@dataclass(slots=True)
class SqsResult:
    """Everything that was measured; `sqs_report` makes figures of it."""

    options: SqsOptions
    load: SendLoad | PollLoad
    sent: int
    verdict: Verdict
    foreign: int
    is_verified: bool


async def run_load(options: SqsOptions) -> SqsResult:
    """One run. Raises BenchError."""
    allow_connections(options.connections)
    endpoint = parse_endpoint(options.url)
    now = datetime.now(UTC)
    signer = Signer(endpoint, options.key_id, options.secret, options.region, now)
    caller = Caller(endpoint, signer)
    name = f"{options.queue_name}-{now.strftime('%H%M%S%f')}"
    queue_url = ""
    try:
        attributes = {"VisibilityTimeout": str(VISIBILITY_S)}
        created = await caller.call("CreateQueue", {"QueueName": name, "Attributes": attributes})
        queue_url = str(created["QueueUrl"])
        run = _Run(options, endpoint, signer, caller, queue_url)
        return await run.run()
    finally:
        if queue_url and not options.keep:
            with contextlib.suppress(BenchError):
                await caller.ask("DeleteQueue", {"QueueUrl": queue_url})
        caller.close()


class _Run:
    def __init__(
        self,
        options: SqsOptions,
        endpoint: Endpoint,
        signer: Signer,
        caller: Caller,
        queue_url: str,
    ) -> None:
        self._options = options
        self._endpoint = endpoint
        self._signer = signer
        self._caller = caller
        self._url = queue_url

    async def run(self) -> SqsResult:
        options = self._options
        load = self._poll_load() if options.mode is Mode.POLL else self._send_load()
        await self._send_backlog()
        try:
            await load.connect()
            if isinstance(load, PollLoad):
                await self._wait_idle(load)
            else:
                load.start()
                await _until_ended(load)
        finally:
            load.close()
        if isinstance(load, PollLoad):
            sent = 1
            for handle in load.handles:
                await self._caller.call(
                    "DeleteMessage", {"QueueUrl": self._url, "ReceiptHandle": handle}
                )
        else:
            sent = load.sent
        seen = load.seen
        if not options.keep:
            await self._drain(seen)
        verdict = judge(seen.arrivals(RUN), sent) + judge(seen.arrivals(BACKLOG), options.backlog)
        return SqsResult(options, load, sent, verdict, seen.foreign, not options.keep)

    # --- loads ------------------------------------------------------------------------------

    def _receive(self, wait_s: int, messages: int = 1) -> dict[str, object]:
        return {
            "QueueUrl": self._url,
            "WaitTimeSeconds": wait_s,
            "MaxNumberOfMessages": messages,
        }

    def _send_load(self) -> SendLoad:
        options, signer = self._options, self._signer
        first = first_key(RUN)
        requests = [
            signer.request(
                "SendMessage",
                {"QueueUrl": self._url, "MessageBody": body_of(first + n, options.size_bytes)},
            )
            for n in range(options.total)
        ]
        shape = (self._endpoint, options.connections, options.pids)
        if options.mode is Mode.SEND:
            return SendLoad(*shape, requests, options.warmup, options.rate)

        def delete(handle: str) -> bytes:
            params: dict[str, object] = {"QueueUrl": self._url, "ReceiptHandle": handle}
            return signer.request("DeleteMessage", params)

        receive = signer.request("ReceiveMessage", self._receive(1))
        return SendLoad(
            *shape, requests, options.warmup, options.rate, receive=receive, delete=delete
        )

    def _poll_load(self) -> PollLoad:
        options = self._options
        receive = self._signer.request("ReceiveMessage", self._receive(WAIT_S))
        return PollLoad(self._endpoint, options.connections, options.pids, receive)

    async def _wait_idle(self, load: PollLoad) -> None:
        """Measure while every connection waits, then send the message that ends it."""
        load.start()
        ended = asyncio.ensure_future(load.wait())
        try:
            for pause_s, then in (
                (POLL_LEAD_S, load.open_window),
                (self._options.duration_s, load.close_window),
            ):
                done, _ = await asyncio.wait((ended,), timeout=pause_s)
                if done:
                    break
                then()
            else:
                body = body_of(first_key(RUN), self._options.size_bytes)
                load.message_sent_ns = time.monotonic_ns()
                await self._caller.call("SendMessage", {"QueueUrl": self._url, "MessageBody": body})
            async with asyncio.timeout(ANSWER_TIMEOUT_S):
                await ended
        except TimeoutError:
            raise BenchError("no poll has brought the message that was sent") from None
        finally:
            ended.cancel()

    # --- before and after -------------------------------------------------------------------

    async def _send_backlog(self) -> None:
        size = self._options.size_bytes
        a_batch = max(1, min(BATCH, BATCH_BYTES // size))
        first = first_key(BACKLOG)
        batches = iter(
            [
                {"Id": str(n), "MessageBody": body_of(first + n, size)}
                for n in range(start, min(start + a_batch, self._options.backlog))
            ]
            for start in range(0, self._options.backlog, a_batch)
        )

        async def send() -> None:
            with contextlib.closing(Caller(self._endpoint, self._signer)) as caller:
                for entries in batches:
                    params = {"QueueUrl": self._url, "Entries": entries}
                    result = await caller.call("SendMessageBatch", params)
                    if result.get("Failed"):
                        raise BenchError(f"SendMessageBatch failed in part: {result['Failed']}")

        if self._options.backlog:
            await _all(send() for _ in range(DRAIN_CONNECTIONS))

    async def _drain(self, seen: Seen) -> None:
        """Take everything that is left."""

        async def drain() -> None:
            with contextlib.closing(Caller(self._endpoint, self._signer)) as caller:
                while True:
                    answer = await caller.ask("ReceiveMessage", self._receive(1, BATCH))
                    messages = messages_of(answer)
                    if not messages:
                        return
                    for message in messages:
                        seen.take(message)
                    entries = [
                        {"Id": str(n), "ReceiptHandle": message.handle}
                        for n, message in enumerate(messages)
                    ]
                    params = {"QueueUrl": self._url, "Entries": entries}
                    await caller.call("DeleteMessageBatch", params)

        await _all(drain() for _ in range(DRAIN_CONNECTIONS))


async def _all(parts: Iterable[Coroutine[object, object, None]]) -> None:
    """Run them side by side. Raises the first's BenchError."""
    try:
        async with asyncio.TaskGroup() as tasks:
            for part in parts:
                tasks.create_task(part)
    except* BenchError as group:
        raise group.exceptions[0] from None


async def _until_ended(load: SendLoad) -> None:
    """Wait for the end, as long as answers come. Raises BenchError."""
    ended = asyncio.ensure_future(load.wait())
    answers = -1
    while True:
        done, _ = await asyncio.wait((ended,), timeout=ANSWER_TIMEOUT_S)
        if done:
            await ended
            return
        if load.answers == answers:
            ended.cancel()
            raise BenchError(f"no request was answered for {ANSWER_TIMEOUT_S:.0f} s")
        answers = load.answers
