"""What one broker does in one scenario, written down so that two brokers can be compared.

A `Trial` gives a scenario connections, channels and names of its own, and keeps what it notes:
plain JSON values. Names are noted without what makes them unique, generated ones as `generated`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pika
import pika.exceptions
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection

WAIT_S = 10
"""What a scenario waits for comes within so long, or is noted as absent."""

BRIEF_S = 0.3
"""So long nothing must happen before a scenario notes that nothing has."""

GENERATED = ("amq.gen-", "amq.ctag-")


class Trial:
    """One scenario at one broker."""

    def __init__(self, url: str, prefix: str) -> None:
        self._url = url
        self._prefix = prefix + "."
        self._opened: list[BlockingConnection] = []
        self.notes: list[Any] = []

    # --- What a scenario works with ---------------------------------------------------------

    def connect(self) -> BlockingConnection:
        """A connection that is closed after the scenario."""
        parameters = pika.URLParameters(self._url)
        parameters.socket_timeout = WAIT_S
        parameters.blocked_connection_timeout = WAIT_S
        connection = pika.BlockingConnection(parameters)
        self._opened.append(connection)
        return connection

    def channel(self) -> BlockingChannel:
        """A channel on a connection of its own."""
        return self.connect().channel()

    def name(self, short: str) -> str:
        """A name that no other scenario uses."""
        return self._prefix + short

    def queue(self, channel: BlockingChannel, short: str = "q", **how: Any) -> str:
        """Declare a queue; its whole name."""
        name: str = channel.queue_declare(self.name(short), **how).method.queue
        return name

    def exchange(self, channel: BlockingChannel, short: str, kind: str, **how: Any) -> str:
        """Declare an exchange; its whole name."""
        channel.exchange_declare(self.name(short), kind, **how)
        return self.name(short)

    # --- What it notes ----------------------------------------------------------------------

    def note(self, *values: Any) -> None:
        """Write values down."""
        self.notes.append([self._plain(each) for each in values])

    def attempt(self, what: str, act: Callable[[], Any]) -> None:
        """Note what an act answers, or with which reply code and text it is refused."""
        self.note(what, *self.outcome(act))

    def outcome(self, act: Callable[[], Any]) -> list[Any]:
        """The values that `attempt` would note."""
        try:
            result = act()
        except pika.exceptions.ChannelClosedByBroker as error:
            return ["channel", error.reply_code, self._plain(error.reply_text)]
        except pika.exceptions.ConnectionClosedByBroker as error:
            return ["connection", error.reply_code, self._plain(error.reply_text)]
        except pika.exceptions.NackError:
            return ["nack"]
        except pika.exceptions.UnroutableError as error:
            (returned,) = error.messages
            method = returned.method
            return [
                "returned",
                *(method.reply_code, method.reply_text),
                *(self._plain(method.exchange), self._plain(method.routing_key)),
                returned.body.decode(),
            ]
        return [self._method(result)]

    def _method(self, result: Any) -> Any:
        method = getattr(result, "method", None)
        if method is None:
            return self._plain(result)
        fields = {name: self._plain(value) for name, value in vars(method).items()}
        return {"answer": method.NAME, **fields}

    def got(self, found: tuple[Any, Any, bytes | None]) -> list[Any]:
        """A basic.get or a delivery: exchange, key, redelivered, body, properties."""
        method, properties, body = found
        if method is None:
            return ["empty"]
        shown = {
            name: self._plain(value)
            for name, value in vars(properties).items()
            if value is not None
        }
        place = [self._plain(method.exchange), self._plain(method.routing_key)]
        return [*place, method.redelivered, body.decode() if body is not None else None, shown]

    def take(self, channel: BlockingChannel, queue: str, *, wait: bool = True) -> list[Any]:
        """Get one message, acknowledged, waiting for it unless told not to."""
        ends = time.monotonic() + (WAIT_S if wait else 0)
        while True:
            found = channel.basic_get(queue)
            if found[0] is not None:
                channel.basic_ack(found[0].delivery_tag)
                return self.got(found)
            if time.monotonic() >= ends:
                return ["empty"]
            time.sleep(0.01)

    def take_all(self, channel: BlockingChannel, queue: str, count: int) -> list[Any]:
        """Bodies of `count` messages, and whether there are more."""
        bodies = [self.take(channel, queue)[3] for _ in range(count)]
        more = channel.basic_get(queue, auto_ack=True)[0] is not None
        return [bodies, "more" if more else "no more"]

    def until(self, holds: Callable[[], bool]) -> str:
        """Wait for something: `yes`, or `no` if it does not come about."""
        ends = time.monotonic() + WAIT_S
        while time.monotonic() < ends:
            if holds():
                return "yes"
            time.sleep(0.02)
        return "no"

    def deliveries(self, connection: BlockingConnection, seconds: float = BRIEF_S) -> None:
        """Let a connection hear what comes within so long."""
        connection.process_data_events(time_limit=seconds)

    # --- Plain values -----------------------------------------------------------------------

    def _plain(self, value: Any) -> Any:
        if isinstance(value, bytes):
            return value.decode()
        if isinstance(value, str):
            if value.startswith(GENERATED):
                return "generated"
            return value.replace(self._prefix, "")
        if isinstance(value, dict):
            return {self._plain(name): self._plain(each) for name, each in sorted(value.items())}
        if isinstance(value, list | tuple):
            return [self._plain(each) for each in value]
        if value is None or isinstance(value, bool | int | float):
            return value
        return type(value).__name__  # a time: that it is there, not which

    def close(self) -> None:
        """End what the scenario has left open."""
        for connection in self._opened:
            if connection.is_open:
                connection.close()
