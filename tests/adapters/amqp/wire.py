"""A client's end of a connection, without sockets: methods in, methods and contents out."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from adapters.amqp.channel.revoking import recheck
from adapters.amqp.codec import properties, spec
from adapters.amqp.codec.fields import EMPTY_TABLE, Table
from adapters.amqp.codec.frames import PROTOCOL_HEADER, encode_content, scan
from adapters.amqp.codec.method_base import Method
from adapters.amqp.codec.methods import decode_method, encode_method
from adapters.amqp.connection.state_machine import Connection
from adapters.amqp.environment import Counters, Environment
from adapters.amqp.errors import REFUSALS
from adapters.amqp.handshake import AmqpSettings
from adapters.amqp.messages.stamps import Stamps
from adapters.amqp.topology.declaring import Declarations
from adapters.limiting import Limiter
from adapters.listener_figures import ListenerFigures
from kernel.api import message
from kernel.api.tracing import ConnectedUser
from kernel.quotas.accounts import Quotas
from kernel.store.drivers.system import SystemClock
from tests.adapters.amqp.broker import Logins
from tests.adapters.amqp.fake_kernel import FakeClient

FRAME_MAX = 131_072
CAPABILITIES = Table.of(
    {
        "capabilities": {
            "authentication_failure_close": True,
            "consumer_cancel_notify": True,
            "connection.blocked": True,
        },
        "connection_name": "test",
    }
)


def short_field(text: str | bytes) -> bytes:
    """A short-string property from text. Raises ValueError over 255 bytes."""
    raw = text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text
    return bytes((len(raw),)) + raw


class CountingRandom:
    """1, 2, 3: a different name each time, the same in each run."""

    def __init__(self) -> None:
        self._last = 0

    def bits(self, count: int) -> int:
        self._last += 1
        return self._last


class FakeHost:
    """`adapters.amqp.environment.Host`; operations run to their first real wait."""

    def __init__(self) -> None:
        self.out: list[bytes] = []
        self.bytes_in = 0
        self.bytes_out = 0
        self.now_ms = 1_000
        self.holds: set[str] = set()
        self.closed: str | None = None
        self.is_write_wanted = False
        self.peer = "192.0.2.1:5000"
        self.listener_name = "tcp"
        self.connected_user = lambda: ConnectedUser("default", "guest", "amqp", self.peer, "amqp-1")
        self.figures = ListenerFigures("amqp", "tcp", SystemClock(), REFUSALS)
        self.pauses: list[int] = []
        self.certified: str | None = None
        self.connection: Connection | None = None
        self.holds_operations = False
        self.operations: list[Callable[[], Coroutine[object, object, None]]] = []

    def write_soon(self) -> None:
        self.is_write_wanted = True

    def signed_in(self, tenant: str) -> None:
        self.tenant = tenant

    def take_turn(self) -> None:
        """There are no others."""

    def hold_reading(self, reason: str) -> None:
        self.holds.add(reason)

    def release_reading(self, reason: str) -> None:
        self.holds.discard(reason)

    @property
    def is_reading_held(self) -> bool:
        return bool(self.holds)

    def pause(self, delay_ms: int) -> None:
        self.pauses.append(delay_ms)

    async def rest(self, delay_ms: int) -> None:
        self.now_ms += delay_ms

    def deliver_later(self, delay_ms: int) -> None:
        self.pauses.append(delay_ms)

    def run(self, operation: Callable[[], Coroutine[object, object, None]]) -> None:
        self.operations.append(operation)

    def run_operations(self) -> None:
        while self.operations and not self.holds_operations:
            operation = self.operations.pop(0)()
            try:
                operation.send(None)
            except StopIteration:
                assert self.connection is not None
                self.connection.resume()
            else:
                raise AssertionError("an operation waits for what will never come")

    def close(self, reason: str) -> None:
        self.closed = reason

    def wall_ms(self) -> int:
        return 1_700_000_000_000 + self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


@dataclass(frozen=True)
class Content:
    """A message as it came, behind the method that brought it."""

    properties: bytes
    body: bytes

    @property
    def headers(self) -> dict[str, object]:
        table = properties.headers_of(properties.split(self.properties))
        return {name: field.value for name, field in table.entries}


def methods_of(data: bytes) -> list[tuple[int, Method | Content]]:
    """Whole frames as (channel, method); behind one that brings a message, (channel, content)."""
    found: list[tuple[int, Method | Content]] = []
    header: tuple[bytes, int] | None = None
    body = b""
    end = 0
    for frame in scan(data, FRAME_MAX):
        end = frame.end + 1
        payload = data[frame.start : frame.end]
        if frame.type == 1:
            assert header is None, "a method inside a content"
            found.append((frame.channel, decode_method(data, frame.start, frame.end)))
        elif frame.type == 2:
            header = (payload[12:], int.from_bytes(payload[4:12], "big"))
            body = b""
        elif frame.type == 3:
            body += payload
        if header is not None and len(body) == header[1]:
            found.append((frame.channel, Content(header[0], body)))
            header = None
    assert end == len(data), "an incomplete frame was sent"
    return found


class Wire:
    """One client connection to a `Connection` over a `FakeClient`."""

    def __init__(
        self,
        client: FakeClient | None = None,
        *,
        settings: AmqpSettings | None = None,
        logins: Logins | None = None,
    ) -> None:
        self.client = client or FakeClient()
        self.host = FakeHost()
        self.logins = logins or Logins()
        random = CountingRandom()
        self.environment = Environment(
            client=self.client,
            origins=self.client.origins,
            declarations=Declarations(self.client, random),
            sign_in=self.logins,
            random=random,
            settings=settings or AmqpSettings(),
            stamps=Stamps(),
            counters=Counters(),
            limiter=Limiter("amqp", Quotas(), self.client, SystemClock()),
        )
        self.connection = Connection(self.environment, self.host)
        self.host.connection = self.connection
        self.raw = b""
        self._pending_method: tuple[int, Method] | None = None

    # --- Sending ------------------------------------------------------------------------------

    def feed(self, data: bytes) -> None:
        """One socket read, and what follows from it."""
        self.host.bytes_in += len(data)
        self.connection.receive(data)
        self.turn()

    def turn(self) -> None:
        """Turns of the event loop until nothing is left to do."""
        for _ in range(20):
            self.host.run_operations()
            self.client.turn()
            self.host.run_operations()
            if not self.host.is_write_wanted:
                return
            self.host.is_write_wanted = False
            self.connection.finish_turn()
            data = b"".join(self.host.out)
            self.host.out.clear()
            self.host.bytes_out += len(data)
            self.raw += data
        raise AssertionError("the connection never comes to rest")

    def send(self, number: int, *methods: Method) -> None:
        self.feed(b"".join(encode_method(number, method) for method in methods))

    @staticmethod
    def publish_bytes(
        number: int,
        exchange: str,
        key: str,
        body: bytes,
        *,
        block: bytes = b"\x00\x00",
        mandatory: bool = False,
        immediate: bool = False,
        frame_max: int = FRAME_MAX,
    ) -> bytes:
        method = spec.BasicPublish(0, exchange, key, mandatory, immediate)
        return encode_method(number, method) + b"".join(
            encode_content(number, block, body, frame_max)
        )

    def publish(self, number: int, exchange: str, key: str, body: bytes, **how: object) -> None:
        self.feed(self.publish_bytes(number, exchange, key, body, **how))  # type: ignore[arg-type]

    # --- Receiving ----------------------------------------------------------------------------

    def take(self) -> list[tuple[int, Method | Content]]:
        """What the server has sent since the last call."""
        if not self.raw:
            # A close writes at once, without waiting for the end of the turn.
            self.raw = b"".join(self.host.out)
            self.host.out.clear()
        # To a header that is not AMQP's, ours is the answer.
        data, self.raw = self.raw.removeprefix(PROTOCOL_HEADER), b""
        return methods_of(data)

    def take_methods(self) -> list[Method | Content]:
        return [each for _, each in self.take()]

    def take_one(self) -> Method | Content:
        found = self.take_methods()
        assert len(found) == 1, found
        return found[0]

    def ask(self, number: int, method: Method) -> Method | Content:
        """Send a method and return the one answer."""
        self.send(number, method)
        return self.take_one()

    def recheck(self) -> int:
        """Rights have changed: everything held is looked at. In how many steps."""
        steps = len(list(recheck(self.connection, self.environment.counters)))
        self.turn()
        return steps

    # --- Habits -------------------------------------------------------------------------------

    def open(
        self,
        *,
        features: Table = CAPABILITIES,
        channels: int = 1,
        frame_max: int = FRAME_MAX,
        login: bytes = b"\0guest\0guest",
        virtual_host: str = "/",
    ) -> Wire:
        self.feed(PROTOCOL_HEADER)
        self.send(0, spec.ConnectionStartOk(features, "PLAIN", login, "en_US"))
        self.send(0, spec.ConnectionTuneOk(2047, frame_max, 60))
        self.send(0, spec.ConnectionOpen(virtual_host))
        for number in range(1, channels + 1):
            self.send(number, spec.ChannelOpen())
        self.take()
        return self

    def declare(self, name: str, **how: object) -> spec.QueueDeclareOk:
        arguments = how.pop("arguments", EMPTY_TABLE)
        method = spec.QueueDeclare(0, name, durable=True, arguments=arguments)  # type: ignore[arg-type]
        if how:
            method = spec.QueueDeclare(0, name, arguments=arguments, **how)  # type: ignore[arg-type]
        answer = self.ask(1, method)
        assert isinstance(answer, spec.QueueDeclareOk), answer
        return answer


def close_of(answer: Method | Content) -> tuple[int, str]:
    """(reply code, reply text) of a channel.close or connection.close."""
    assert isinstance(answer, spec.ChannelClose | spec.ConnectionClose), answer
    return answer.reply_code, answer.reply_text


def block_of(**values: bytes | Table) -> bytes:
    """A property block from raw property values by name."""
    fields: list[bytes | None] = [None] * properties.PROPERTY_COUNT
    for name, value in values.items():
        place = properties.NAMES.index(name)
        if isinstance(value, Table):
            fields[place] = properties.encode_headers(value)
        elif place in (properties.DELIVERY_MODE, properties.PRIORITY, properties.TIMESTAMP):
            fields[place] = value
        else:
            fields[place] = short_field(value)
    return properties.join(fields)


def stored_in(wire: Wire, name: str = "q", tenant: str = "default") -> list[message.Message]:
    """The messages of a queue, in order."""
    return [message.decode(slot) for slot in wire.client.queues[tenant, name].slots]
