"""What the adapter costs per message, without kernel and sockets.

    python -m tests.adapters.amqp.microbenchmark

Budget, per 1 KB message: codec 5 us, route and rights 1 us, dispatch and settle about
2 us. The kernel here takes every call and does nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from adapters.amqp.channel.confirms import ACK_FRAME, ACK_KEY, ACK_SIZE
from adapters.amqp.codec import properties, spec
from adapters.amqp.codec.frames import PROTOCOL_HEADER
from adapters.amqp.codec.methods import encode_method
from kernel.api.client import ConsumerSpec, Settlement
from tests.adapters.amqp.fake_kernel import Columns, FakeBatch, FakeClient, FakeConsumer
from tests.adapters.amqp.wire import CAPABILITIES, Wire, short_field

ROUNDS = 30
CHUNK = 60
"""Messages of 1 KB in one read of 64 KB."""


class NullBatch(FakeBatch):
    """Counts what it is given."""

    def __init__(self, sink: object) -> None:
        super().__init__(sink)  # type: ignore[arg-type]
        self.number = 0

    @property
    def count(self) -> int:
        return self.number

    def add(self, to: object, parts: object, size: int, asks: object = None) -> None:
        self.number += 1
        self.size_bytes += size


class KeepingBatch(FakeBatch):
    """Keeps the slots."""


class NullClient(FakeClient):
    """Takes everything, does nothing."""

    batch_class: type[FakeBatch] = NullBatch
    settled = 0

    def batch(self, session: object, sink: object) -> FakeBatch:
        return self.batch_class(sink)  # type: ignore[arg-type]

    def complete(self, batch: FakeBatch) -> None:
        self.submitted.remove(batch)
        batch.sink.published(batch)

    def settle(self, consumer: object, how: Settlement, offsets: object, **_: object) -> None:
        self.settled += len(offsets)  # type: ignore[arg-type]

    def acknowledge(self, acks: object) -> None:
        self.settled += len(acks)  # type: ignore[arg-type]


def _best(work: Callable[[], None], messages: int) -> float:
    """Microseconds a message, the best of ROUNDS."""
    best = float("inf")
    for _ in range(ROUNDS):
        started = time.perf_counter()
        work()
        best = min(best, time.perf_counter() - started)
    return best / messages * 1e6


def _block(headers: dict[str, int] | None = None) -> bytes:
    fields: list[bytes | None] = [None] * properties.PROPERTY_COUNT
    fields[properties.CONTENT_TYPE] = short_field("application/octet-stream")
    fields[properties.DELIVERY_MODE] = b"\x02"
    if headers is not None:
        from adapters.amqp.codec.fields import Table

        fields[properties.HEADERS] = properties.encode_headers(Table.of(headers))
        fields[properties.MESSAGE_ID] = short_field("x" * 36)
    return properties.join(fields)


def _publish(keys: int, *, confirm: bool, distinct_blocks: bool = False) -> float:
    wire = Wire(NullClient()).open()
    wire.declare("queue")
    if confirm:
        wire.send(1, spec.ConfirmSelect())
    wire.send(1, spec.ExchangeDeclare(0, "exchange", "topic", durable=True))
    wire.send(1, spec.QueueBind(0, "queue", "exchange", "#"))
    body = bytes(1024)
    chunks = []
    for chunk in range(20):
        messages = []
        for place in range(CHUNK):
            number = chunk * CHUNK + place
            block = _block({"n": number}) if distinct_blocks else _block()
            key = f"orders.{number % keys}"
            messages.append(Wire.publish_bytes(1, "exchange", key, body, block=block))
        chunks.append(b"".join(messages))
    client = wire.client
    connection, host = wire.connection, wire.host

    def work(chunk: bytes) -> Callable[[], None]:
        def receive() -> None:
            if distinct_blocks:
                wire.environment.stamps.known.clear()
            connection.receive(chunk)
            for batch in list(client.submitted):
                client.complete(batch)
            connection.finish_turn()
            host.out.clear()

        return receive

    result = min(_best(work(chunk), CHUNK) for chunk in chunks)
    assert wire.environment.counters.published == ROUNDS * len(chunks) * CHUNK
    return result


def _slots(count: int) -> list[bytes]:
    client = NullClient()
    client.batch_class = KeepingBatch
    wire = Wire(client).open()
    wire.declare("queue")
    client.holds_publishes = True
    for _ in range(count):
        wire.publish(1, "", "queue", bytes(1024), block=_block())
    return [slot for batch in client.submitted for _, slot in batch.messages]


def _deliver(*, no_ack: bool) -> tuple[float, float]:
    """(deliver, ack) in us a message."""
    client = NullClient()
    wire = Wire(client).open()
    wire.declare("queue")
    consumers: list[FakeConsumer] = []

    def attach(wanted: ConsumerSpec, sink: object) -> FakeConsumer:
        queue = client.queues["default", "queue"]
        consumers.append(FakeConsumer(queue, wanted, sink))  # type: ignore[arg-type]
        return consumers[-1]

    client.attach = attach  # type: ignore[method-assign,assignment]
    wire.ask(1, spec.BasicConsume(0, "queue", "ctag1.0123456789abcdef", no_ack=no_ack))
    consumer = consumers[0]
    slots = _slots(CHUNK)
    columns = Columns(consumer.queue.info.queues[0].id, list(range(CHUNK)), slots, None)
    connection, host = wire.connection, wire.host
    sink = consumer.sink
    assert sink is not None
    channel = connection.channels[1]
    deliver = ack = float("inf")
    for _ in range(ROUNDS * 20):
        first = channel.next_tag
        started = time.perf_counter()
        sink.deliver(consumer, columns)
        connection.finish_turn()
        b"".join(host.out)
        deliver = min(deliver, time.perf_counter() - started)
        host.out.clear()
        if no_ack:
            continue
        acks = b"".join(
            ACK_FRAME.pack(1, 1, ACK_SIZE, ACK_KEY, first + place, 0, 0xCE)
            for place in range(CHUNK)
        )
        started = time.perf_counter()
        connection.receive(acks)
        connection.finish_turn()
        ack = min(ack, time.perf_counter() - started)
        host.out.clear()
        assert not channel.unacked
    return deliver / CHUNK * 1e6, ack / CHUNK * 1e6


def _handshake() -> float:
    def work() -> None:
        Wire(NullClient()).open()

    return _best(work, 1)


def main() -> None:
    rows = [
        (
            "publish, one key, confirms: all up to the kernel's batch",
            _publish(1, confirm=True),
        ),
        ("publish, one key, no confirms", _publish(1, confirm=False)),
        ("publish, 1,000 keys, confirms", _publish(1_000, confirm=True)),
        (
            "publish, every property block new (headers, message-id)",
            _publish(1, confirm=True, distinct_blocks=True),
        ),
    ]
    deliver, ack = _deliver(no_ack=False)
    rows.append(("deliver, join included", deliver))
    rows.append(("single acks: decode, settle, credit", ack))
    rows.append(("deliver without acks", _deliver(no_ack=True)[0]))
    rows.append(("sum: publish + deliver + ack", rows[0][1] + deliver + ack))
    rows.append(("a whole handshake and channel.open (both ends)", _handshake()))
    for name, microseconds in rows:
        print(f"{microseconds:8.2f} us  {name}")  # noqa: T201 - its output


if __name__ == "__main__":
    assert encode_method(0, spec.ConnectionCloseOk())
    assert CAPABILITIES.entries
    assert PROTOCOL_HEADER
    main()
