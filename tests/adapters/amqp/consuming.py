"""A consumer on a queue with messages, for tests of what it gets and settles."""

from __future__ import annotations

from adapters.amqp.codec import spec
from tests.adapters.amqp.fake_kernel import FakeQueue
from tests.adapters.amqp.wire import Wire


def queue(wire: Wire, name: str = "q") -> FakeQueue:
    return wire.client.queues["default", name]


def fill(wire: Wire, count: int, name: str = "q", size: int = 1) -> None:
    for number in range(count):
        wire.publish(1, "", name, bytes((number % 256,)) * size, block=b"\x10\x00\x02")


def deliveries(wire: Wire) -> list[spec.BasicDeliver]:
    return [each for each in wire.take_methods() if isinstance(each, spec.BasicDeliver)]


def consuming(count: int = 0, *, qos: int = 0, channels: int = 1, **how: object) -> Wire:
    wire = Wire().open(channels=channels)
    wire.declare("q")
    fill(wire, count)
    if qos:
        wire.ask(1, spec.BasicQos(0, qos, global_=False))
    wire.send(1, spec.BasicConsume(0, "q", "t", **how))  # type: ignore[arg-type]
    return wire
