"""SQS's words in the transcripts: an action with its parameters, over AWS JSON 1.0.

    a -> SendMessage QueueUrl=work MessageBody=one DelaySeconds=5
    a <- 200 MessageId=M1 MD5OfMessageBody=...
    a <- 400 AWS.SimpleQueueService.NonExistentQueue "The specified queue does not exist."

A queue stands for its URL. `{name=value,...}` is a map, `[one,two]` a list, `Map.name=text` one
entry. Of a message and of a batch's entries each has a line. Ids and handles are named M1, R1 and
T1, in the order of their coming, and may be used by these names. Nothing is signed: the adapter
asks for no signatures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from adapters.sqs.connection import HttpConnection
from adapters.sqs.server import SqsAdapter
from adapters.sqs.settings import SqsSettings
from auth.principal import SignInMode
from auth.sign_in.sigv4 import SigV4Verifier
from tests.adapters.in_process import directory
from tests.adapters.session_script import LISTENER, SessionScript, shown
from tests.simulator.world import World
from tests.transcripts import parsed

URL = "http://weir.example/000000000000/"
NAMED = {"MessageId": "M", "ReceiptHandle": "R", "TaskHandle": "T"}
SETTINGS = SqsSettings(sign_in=SignInMode.OFF)
NUMBERS = (
    "DelaySeconds",
    "MaxNumberOfMessages",
    "MaxResults",
    "VisibilityTimeout",
    "WaitTimeSeconds",
)


class Reader:
    """A client: what it has read of an answer."""

    def __init__(self) -> None:
        self.kept = b""


class Script(SessionScript[SqsAdapter, Reader]):
    """The commands of one transcript."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.names: dict[str, str] = {}
        """What ids and receipt handles are called."""

    def serving(self) -> SqsAdapter:
        world = self.world
        client = world.client
        known = directory("allow consume topic:*")
        verifier = SigV4Verifier(known.access_key, known.secret_of, SETTINGS.sign_in)
        return SqsAdapter(
            client,
            client,
            verifier,
            lambda key: None,
            [LISTENER],
            SETTINGS,
            clock=world.clock,
            random=world.random,
        )

    def accepted(self, adapter: SqsAdapter) -> HttpConnection:
        return HttpConnection(adapter, LISTENER, self.world.loop)

    def client(self) -> Reader:
        return Reader()

    def sent(self, client: Reader, text: str) -> bytes:
        (action, *_), named = parsed(text)
        values: dict[str, Any] = {}
        for name, each in named.items():
            outer, _, inner = name.partition(".")
            if inner:
                values.setdefault(outer, {})[inner] = each
            else:
                values[name] = self._value(name, each)
        body = json.dumps(values).encode()
        head = (
            "POST / HTTP/1.1\r\nHost: weir.example\r\n"
            f"X-Amz-Target: AmazonSQS.{action}\r\n"
            "Content-Type: application/x-amz-json-1.0\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body

    def _value(self, name: str, text: str) -> Any:
        if name == "QueueUrl":
            return URL + text
        if text[:1] == "{":
            pairs = (each.partition("=") for each in _parts(text))
            return {key: self._value(key, value) for key, _, value in pairs}
        if text[:1] == "[":
            return [self._value("", each) for each in _parts(text)]
        handles = {called: handle for handle, called in self.names.items()}
        return int(text) if name in NUMBERS else handles.get(text, text)

    def read(self, client: Reader, data: bytes) -> Iterable[str]:
        client.kept += data
        while b"\r\n\r\n" in client.kept:
            head, _, rest = client.kept.partition(b"\r\n\r\n")
            first, *lines = head.decode().split("\r\n")
            headers = {name.lower(): value for name, _, value in (x.partition(": ") for x in lines)}
            size = int(headers.get("content-length", "0"))
            client.kept = rest[size:]
            yield from self._answer(first.split()[1], headers, rest[:size])

    def _answer(self, status: str, headers: dict[str, str], body: bytes) -> Iterable[str]:
        found = json.loads(body) if body else {}
        if status != "200":
            code = headers.get("x-amzn-query-error", found.get("__type", "")).partition(";")[0]
            message = found.get("message", "")
            for text, name in self.names.items():
                message = message.replace(text, name)
            yield f'{status} {code} "{message}"'
            return
        rows = {name: each for name, each in found.items() if _is_rows(each)}
        plain = {name: each for name, each in found.items() if name not in rows}
        yield " ".join(part for part in (status, self._shown(plain)) if part)
        for name, each in rows.items():
            for row in each:
                yield f"  {name}: {self._shown(row)}"

    def _shown(self, values: dict[str, Any]) -> str:
        return shown(**{name: self._text(name, each) for name, each in sorted(values.items())})

    def _text(self, name: str, value: Any) -> str:
        if isinstance(value, dict):
            return "{" + self._shown(value).replace(" ", ",") + "}"
        if isinstance(value, list):
            return "[" + ",".join(self._text("", each) for each in value) + "]"
        text = str(value).removeprefix(URL)
        if name in NAMED:
            count = sum(called[0] == NAMED[name] for called in self.names.values())
            return self.names.setdefault(text, f"{NAMED[name]}{count + 1}")
        return f'"{text}"' if " " in text else text


def _is_rows(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict)


def _parts(text: str) -> list[str]:
    """The parts of a list or map, at its commas but not at those of what stands in it."""
    return re.findall(r"(?:[^,{}\[\]]|\{[^{}]*\}|\[[^\[\]]*\])+", text[1:-1])
