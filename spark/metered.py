"""What Weir meters: which values stand together in its records.

A price book is held to it, so that no rule waits for usage that cannot come (`pricebook`). It is
docs/billing.md "What is counted" as a table; a test holds real traffic of every protocol to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from metering.schema import Action, Kind, Network, Outcome, QueueClass

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

KERNEL = "kernel"
"""What is asked for without a protocol: `weir message send`."""

# How a message is published: in its protocol's words.
_SENT = frozenset({QueueClass.STANDARD, QueueClass.FIFO, QueueClass.DELAY})
_QOS = frozenset({QueueClass.QOS0, QueueClass.QOS1, QueueClass.QOS2})
_PUBLISHED: Mapping[str, frozenset[str]] = {
    "amqp": _SENT,
    "sqs": _SENT,
    "rocketmq": _SENT | {QueueClass.TRANSACTION},
    "mqtt": _QOS | {QueueClass.FIFO, QueueClass.DELAY},
    KERNEL: _SENT,
}
# How a group takes it, where the store counts.
_TAKEN = frozenset({QueueClass.STANDARD, QueueClass.FIFO})
_PLAIN = frozenset({QueueClass.STANDARD})

_SIZES_IN = frozenset({"messages", "units_4k", "bytes_in"})
_SIZES_OUT = frozenset({"messages", "units_4k", "bytes_out"})
_CALLS = frozenset({"requests", "units_64k", "bytes_in", "bytes_out"})
_STORED = (Kind.STORE, Kind.API)
"""By the state machine of a durable group, or of the transient one."""


@dataclass(frozen=True, slots=True)
class RecordShape:
    """Records that Weir writes: the values that each dimension may have, and what is not 0."""

    kinds: frozenset[str]
    protocols: frozenset[str]
    actions: frozenset[str]
    classes: frozenset[str]
    outcomes: frozenset[str]
    measures: frozenset[str]
    is_call: bool = False
    """Whether `api_action` is the name of a call, and not empty."""

    def allows(self, name: str, value: str) -> bool:
        """Whether a record of this shape may have a value in a dimension."""
        if name == "api_action":
            return self.is_call
        if name in ("network", "region"):
            # The meter has both columns, and nothing in Weir tells them apart yet.
            return name == "network" and value == Network.INTERNAL
        values = {
            "kind": self.kinds,
            "protocol": self.protocols,
            "action": self.actions,
            "queue_class": self.classes,
            "outcome": self.outcomes,
        }[name]
        return value in values


def _shapes() -> Iterator[RecordShape]:
    ok = frozenset({Outcome.OK})
    for protocol, classes in _PUBLISHED.items():
        one = frozenset({protocol})
        both = frozenset(_STORED)
        yield RecordShape(both, one, frozenset({Action.PUBLISH}), classes, ok, _SIZES_IN)
        stored = frozenset({Kind.STORE})
        yield RecordShape(stored, one, frozenset({Action.ROUTE}), classes, ok, _SIZES_IN)
        yield RecordShape(stored, one, frozenset({Action.ACK}), _TAKEN, ok, frozenset({"messages"}))
        api = frozenset({Kind.API})
        deliver = frozenset({Action.DELIVER})
        if protocol in ("amqp", "mqtt"):
            pushed = _QOS if protocol == "mqtt" else _PLAIN
            nobody = frozenset({Outcome.EMPTY})
            yield RecordShape(api, one, deliver, pushed, ok, _SIZES_OUT)
            yield RecordShape(api, one, frozenset({Action.PUBLISH}), _PLAIN, nobody, _SIZES_IN)
        else:
            yield RecordShape(both, one, deliver, _TAKEN, ok, _SIZES_OUT)
        if protocol in ("sqs", "rocketmq"):
            calls = {Action.PUBLISH, Action.RECEIVE, Action.EXTEND, Action.ACK, Action.ADMIN}
            if protocol == "rocketmq":
                calls.add(Action.PING)
            ended = frozenset(Outcome) - {Outcome.SERVER_ERROR}
            yield RecordShape(api, one, frozenset(calls), _PLAIN, ended, _CALLS, is_call=True)
        if protocol != KERNEL:
            yield RecordShape(api, one, frozenset({Action.CONNECT}), _PLAIN, ok, _CALLS)


SHAPES = tuple(_shapes())


def shapes_of_others(protocols: Iterable[str]) -> Iterator[RecordShape]:
    """What adapters that do not come with Weir may have counted: all that an adapter can. Which of
    it they do count, they know.
    """
    stored, api = frozenset(_STORED), frozenset({Kind.API})
    sent, ok = frozenset({Action.PUBLISH, Action.ROUTE}), frozenset({Outcome.OK})
    classes, ended = frozenset(QueueClass), frozenset(Outcome) - {Outcome.SERVER_ERROR}
    called = {Action.PUBLISH, Action.RECEIVE, Action.EXTEND, Action.ACK, Action.ADMIN, Action.PING}
    for protocol in protocols:
        one = frozenset({protocol})
        yield RecordShape(stored, one, sent, classes, ended, _SIZES_IN)
        yield RecordShape(stored, one, frozenset({Action.DELIVER}), classes, ok, _SIZES_OUT)
        yield RecordShape(
            stored, one, frozenset({Action.ACK}), classes, ok, frozenset({"messages"})
        )
        yield RecordShape(api, one, frozenset(called), _PLAIN, ended, _CALLS, is_call=True)
        yield RecordShape(api, one, frozenset({Action.CONNECT}), _PLAIN, ok, _CALLS)


def shapes_of(
    measure: str, filters: Mapping[str, tuple[str, ...]], shapes: Iterable[RecordShape] = SHAPES
) -> list[RecordShape]:
    """Those that a price rule matches: some of the values of each of its filters, and something to
    measure.
    """
    return [
        shape
        for shape in shapes
        if measure in shape.measures
        and all(
            any(shape.allows(name, value) for value in values) for name, values in filters.items()
        )
    ]
