"""AMQP's words in the transcripts: a method by its name, with its arguments by theirs.

    AMQP                                        the protocol header
    queue.declare queue=work durable=1 x-message-ttl=60000
    basic.publish routing_key=work "text" priority=5 x-group=blue
    2:channel.open                              on channel 2; else on 1, or 0 for connections
    a open                                      a whole handshake, and channel 1

Other names than arguments are entries of the method's table; of a publish, properties and headers.
What a client reads of a message stands behind the method that brings it. Bits that are not set and
texts that are empty are left out; of a server's table its names alone are told.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from adapters.amqp.codec import properties, spec
from adapters.amqp.codec.fields import Field, Table
from adapters.amqp.codec.frames import PROTOCOL_HEADER, scan
from adapters.amqp.codec.method_base import METHODS, Method
from adapters.amqp.codec.methods import encode_method
from adapters.amqp.server import AmqpAdapter, AmqpProtocol
from tests.adapters.amqp.broker import Logins
from tests.adapters.amqp.wire import CAPABILITIES, FRAME_MAX, Content, Wire, block_of, methods_of
from tests.adapters.session_script import LISTENER, SessionScript, quoted, shown
from tests.transcripts import parsed

BY_NAME = {each.wire_name: each for each in METHODS.values()}
HANDSHAKE = (
    spec.ConnectionStartOk(CAPABILITIES, "PLAIN", b"\0guest\0guest", "en_US"),
    spec.ConnectionTuneOk(2047, FRAME_MAX, 0),
    spec.ConnectionOpen("/"),
)

_ON_CHANNEL = re.compile(r"(?:(\d+):)?([\w.-]+)")
UNTOLD = ("ticket", "reserved_1", "failing_class", "failing_method")
NUMBERS = ("Octet", "Short", "Long", "LongLong")


class Reader:
    """A client: what it has read of a frame."""

    def __init__(self) -> None:
        self.kept = b""


class Script(SessionScript[AmqpAdapter, Reader]):
    """The commands of one transcript."""

    def serving(self) -> AmqpAdapter:
        world = self.world
        client = world.client
        return AmqpAdapter(
            client, client.origins, Logins(), [LISTENER], clock=world.clock, random=world.random
        )

    def accepted(self, adapter: AmqpAdapter) -> AmqpProtocol:
        return AmqpProtocol(adapter, LISTENER)

    def client(self) -> Reader:
        return Reader()

    async def act(self, words: list[str]) -> None:
        if words[1:] != ["open"]:
            await super().act(words)
            return
        connected = await self.connect(words[0])
        connected.protocol.data_received(PROTOCOL_HEADER)
        for method in HANDSHAKE:
            connected.protocol.data_received(encode_method(0, method))
            await self.rest()
        connected.protocol.data_received(encode_method(1, spec.ChannelOpen()))
        await self.rest()
        connected.pipe.taken()

    def sent(self, client: Reader, text: str) -> bytes:
        if text == "AMQP":
            return PROTOCOL_HEADER
        (first, *words), named = parsed(text)
        match = _ON_CHANNEL.fullmatch(first)
        assert match is not None, first
        kind = BY_NAME[match[2]]
        number = int(match[1] or (kind.class_id != spec.ConnectionStart.class_id))
        if kind is spec.BasicPublish:
            return _publish(number, words, named)
        return encode_method(number, _method(kind, named))

    def read(self, client: Reader, data: bytes) -> Iterable[str]:
        data = client.kept + data
        if data == PROTOCOL_HEADER:
            return ["AMQP 0-9-1"]
        end = 0
        for frame in scan(data, FRAME_MAX):
            end = frame.end + 1
        client.kept = data[end:]
        lines: list[str] = []
        for number, found in methods_of(data[:end]):
            if isinstance(found, Content):
                lines[-1] += " " + _content(found)
            else:
                start = f"{number}:" if number > 1 else ""
                lines.append(start + _line(found))
        return lines


def _method(kind: type[Method], named: dict[str, str]) -> Method:
    left = dict(named)
    values = {
        name: _argument(domain, left.pop(name.rstrip("_"), ""))
        for name, domain in kind.layout
        if domain != "Table"
    }
    tables = {name: _table(left) for name, domain in kind.layout if domain == "Table"}
    assert tables or not left, f"{kind.wire_name} has no {', '.join(left)}"
    return kind(**values, **tables)


def _argument(domain: str, text: str) -> object:
    if domain == "Bit":
        return text == "1"
    if domain in NUMBERS:
        return int(text or "0")
    return text.replace("%00", "\0").encode() if domain == "LongStr" else text


def _table(named: dict[str, str]) -> Table:
    return Table.of({name: _value(text) for name, text in named.items()})


def _value(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if re.fullmatch(r"-?\d+", text):
        return int(text)
    if text.startswith("{"):
        _, inner = parsed(text[1:-1].replace(",", " "))
        return {name: _value(each) for name, each in inner.items()}
    return text


def _publish(number: int, words: list[str], named: dict[str, str]) -> bytes:
    arguments = {name: named.pop(name) for name, _ in spec.BasicPublish.layout if name in named}
    given: dict[str, Any] = {}
    for name in properties.NAMES:
        text = named.pop(name, None)
        if name in ("delivery_mode", "priority") and text is not None:
            given[name] = bytes((int(text),))
        elif text is not None:
            given[name] = text.encode()
    if named:
        given["headers"] = _table(named)
    return Wire.publish_bytes(
        number,
        arguments.get("exchange", ""),
        arguments.get("routing_key", ""),
        words[0].encode(),
        block=block_of(**given),
        mandatory=arguments.get("mandatory") == "1",
    )


def _line(method: Method) -> str:
    named: dict[str, object] = {}
    for name, domain in method.layout:
        value = getattr(method, name)
        if domain == "Table":
            named[name] = ",".join(entry for entry, _ in value.entries) or None
        elif domain == "LongStr" and name not in UNTOLD:
            named[name] = quoted(value)
        elif value not in (b"", "") and value is not False and name not in UNTOLD:
            named[name] = f'"{value}"' if name == "reply_text" else value
    return " ".join(part for part in (method.wire_name, shown(**named)) if part)


def _content(content: Content) -> str:
    named: dict[str, object] = {}
    fields = properties.split(content.properties)
    for name, raw in zip(properties.NAMES, fields, strict=True):
        if raw is None:
            continue
        if name == "headers":
            named |= {header: _plain(value) for header, value in content.headers.items()}
        elif name in ("delivery_mode", "priority"):
            named[name] = raw[0]
        elif name == "timestamp":
            named[name] = int.from_bytes(raw, "big")
        else:
            named[name] = raw[1:].decode()
    return " ".join(part for part in (quoted(content.body), shown(**named)) if part)


def _plain(value: object) -> object:
    if isinstance(value, Field):
        value = value.value
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, Table):
        return "{" + ", ".join(f"{name}={_plain(each)}" for name, each in value.entries) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(str(_plain(each)) for each in value) + "]"
    return value
