"""A tiny SQS service in memory: what the load tester is tested against.

It is written for its faults and checks nothing: no signature, no rules. It knows nothing of the
tester's code and reads its requests with the standard library alone.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Self


@dataclass(slots=True)
class Faults:
    """What to do wrong, by the number (from 0) of the message sent."""

    lose: set[int] = field(default_factory=set)
    repeat: set[int] = field(default_factory=set)
    refuse: int = -1  # 500 on that one
    hang_up: int = -1  # close instead of answering it
    one_answer_a_connection: bool = False  # HTTP/1.0, as moto's server does
    is_chunked: bool = False
    foreign: bool = False  # another program's message is in every new queue


class FakeService:
    def __init__(self, faults: Faults | None = None) -> None:
        self.faults = faults or Faults()
        self.queues: dict[str, deque[str]] = {}
        self.in_flight: dict[str, str] = {}
        self.sent = 0
        self.deleted = 0
        self.connections = 0
        self.most_at_once = 0
        self._polls: list[asyncio.Future[None]] = []
        self._writers: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in list(self._writers):
            writer.close()
        await self._server.wait_closed()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        self.most_at_once = max(self.most_at_once, len(self._writers))
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                headers = dict(
                    line.lower().split(": ", 1) for line in head.splitlines()[1:] if line
                )
                body = json.loads(await reader.readexactly(int(headers["content-length"])))
                action = headers["x-amz-target"].partition(".")[2]
                answer = await self._answer(action, body)
                if answer is None:
                    return
                writer.write(self._encode(*answer))
                if self.faults.one_answer_a_connection:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _encode(self, status: int, result: dict[str, Any]) -> bytes:
        body = json.dumps(result).encode()
        if self.faults.is_chunked:
            head = f"HTTP/1.1 {status} X\r\nTransfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n"
            return head.encode() + body + b"\r\n0\r\n\r\n"
        version = "1.0" if self.faults.one_answer_a_connection else "1.1"
        head = f"HTTP/{version} {status} X\r\nServer: fake\r\nContent-Length: {len(body)}\r\n\r\n"
        return head.encode() + body

    async def _answer(self, action: str, body: dict[str, Any]) -> tuple[int, dict[str, Any]] | None:
        url = body.get("QueueUrl", "")
        if action == "createqueue":
            url = f"{self.url}/0/{body['QueueName']}"
            self.queues[url] = deque(["somebody's"] if self.faults.foreign else [])
            return 200, {"QueueUrl": url}
        if action == "deletequeue":
            del self.queues[url]
        elif action == "sendmessage":
            number = self.sent
            if number == self.faults.refuse:
                return 500, {"message": "no room"}
            if number == self.faults.hang_up:
                return None
            self._put(url, body["MessageBody"])
        elif action == "sendmessagebatch":
            for entry in body["Entries"]:
                self._put(url, entry["MessageBody"])
        elif action == "receivemessage":
            return 200, await self._receive(url, body)
        else:
            entries = body.get("Entries", [body])
            for entry in entries:
                self.deleted += self.in_flight.pop(entry["ReceiptHandle"], None) is not None
        return 200, {}

    def _put(self, url: str, text: str) -> None:
        number, self.sent = self.sent, self.sent + 1
        if number not in self.faults.lose:
            self.queues[url].append(text)
        if number in self.faults.repeat:
            self.queues[url].append(text)
        for poll in self._polls:
            if not poll.done():
                poll.set_result(None)

    async def _receive(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
        queue = self.queues[url]
        if not queue:
            poll = asyncio.get_running_loop().create_future()
            self._polls.append(poll)
            # Time passes ten times as fast as for others: tests wait for empty polls.
            await asyncio.wait((poll,), timeout=body["WaitTimeSeconds"] / 10)
            self._polls.remove(poll)
        messages = []
        while queue and len(messages) < body["MaxNumberOfMessages"]:
            text = queue.popleft()
            handle = f"h{len(self.in_flight)}-{self.deleted}-{id(text)}"
            self.in_flight[handle] = text
            messages.append({"Body": text, "ReceiptHandle": handle, "MessageId": "x"})
        return {"Messages": messages} if messages else {}
