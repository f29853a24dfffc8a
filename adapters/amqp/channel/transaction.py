"""The transaction of a channel in tx mode: what it holds back until its commit, and which mode
allows what.

A channel is plain, confirms publishes, or is transactional (AMQP 0-9-1 section 1.9, and RabbitMQ's
confirm mode); the row says what a method leads to, and `406` that it closes the channel::

    method            PLAIN         CONFIRMING    TRANSACTIONAL
    confirm.select    CONFIRMING    CONFIRMING    406
    tx.select         TRANSACTIONAL 406           TRANSACTIONAL
    tx.commit         406           406           TRANSACTIONAL, empty
    tx.rollback       406           406           TRANSACTIONAL, empty
    channel.close     what a transaction holds is rolled back

Rules:

1. A publish is checked when it comes and routed when it is committed, by what is declared then.
2. An ack, nack or reject takes the delivery off the unacknowledged ones at once (a second ack of it
   is 406), and takes effect at the commit. Until then it counts towards the prefetch limits.
3. A rollback drops the publishes and puts the deliveries back among the unacknowledged ones.
4. A failed commit closes the channel, which gives the deliveries back.

Nothing here is durable: a transaction that was not committed leaves no trace.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from adapters.amqp.codec import spec
from adapters.amqp.errors import PRECONDITION_FAILED, AmqpError
from adapters.amqp.limits import (
    TRANSACTION_BYTES_MAX,
    TRANSACTION_DELIVERIES_MAX,
    TRANSACTION_MESSAGES_MAX,
)
from kernel.api.message import HEADER_BYTES

if TYPE_CHECKING:
    from adapters.amqp.channel.targets import Target
    from adapters.amqp.codec.method_base import Method
    from adapters.amqp.messages.stamps import Stamp
    from kernel.api.client import Consumer, Settlement

Delivered = dict[int, tuple["Consumer", int]]
"""Delivery tag to (kernel consumer, offset)."""


class Mode(Enum):
    """Modes of a channel."""

    PLAIN = auto()
    CONFIRMING = auto()
    TRANSACTIONAL = auto()


_TO_TX: Final = "cannot switch from confirm to tx mode"
_TO_CONFIRM: Final = "cannot switch from tx to confirm mode"
_NO_TX: Final = "channel is not transactional"

MODES: Final[dict[int, dict[Mode, Mode | str]]] = {
    spec.ConfirmSelect.key: {
        Mode.PLAIN: Mode.CONFIRMING,
        Mode.CONFIRMING: Mode.CONFIRMING,
        Mode.TRANSACTIONAL: _TO_CONFIRM,
    },
    spec.TxSelect.key: {
        Mode.PLAIN: Mode.TRANSACTIONAL,
        Mode.CONFIRMING: _TO_TX,
        Mode.TRANSACTIONAL: Mode.TRANSACTIONAL,
    },
    spec.TxCommit.key: {
        Mode.PLAIN: _NO_TX,
        Mode.CONFIRMING: _NO_TX,
        Mode.TRANSACTIONAL: Mode.TRANSACTIONAL,
    },
    spec.TxRollback.key: {
        Mode.PLAIN: _NO_TX,
        Mode.CONFIRMING: _NO_TX,
        Mode.TRANSACTIONAL: Mode.TRANSACTIONAL,
    },
}
"""Method and present mode to the next mode, or why there is none."""


def next_mode(mode: Mode, method: Method) -> Mode:
    """The mode that a method leads to. Raises AmqpError 406."""
    found = MODES[method.key][mode]
    if isinstance(found, str):
        raise AmqpError(PRECONDITION_FAILED, found)
    return found


class BufferedMessage(NamedTuple):
    """A whole message that waits for the commit."""

    target: Target
    arguments: bytes
    """Of its basic.publish: what `targets` finds it again by."""
    stamp: Stamp
    block: bytes
    body: bytes

    @property
    def size_bytes(self) -> int:
        """What it takes of the memory of the transaction."""
        return HEADER_BYTES + len(self.arguments) + len(self.block) + len(self.body)


class TransactionRoom:
    """Bytes that the transactions of one connection hold."""

    __slots__ = ("bytes",)

    def __init__(self) -> None:
        self.bytes = 0


class ChannelTransaction:
    """What one channel holds back."""

    __slots__ = ("_bytes", "_room", "deliveries", "messages", "settlements")

    def __init__(self, room: TransactionRoom) -> None:
        self._room = room
        self._bytes = 0
        self.messages: list[BufferedMessage] = []
        self.settlements: list[tuple[Settlement, Delivered]] = []
        """In the order in which the client said so."""
        self.deliveries = 0
        """How many deliveries those are."""

    def publish(self, message: BufferedMessage) -> None:
        """Hold a message back. Raises AmqpError 406 if there is no room for it."""
        size = message.size_bytes
        if len(self.messages) >= TRANSACTION_MESSAGES_MAX:
            raise _too_large(f"publishes {TRANSACTION_MESSAGES_MAX} messages")
        if self._room.bytes + size > TRANSACTION_BYTES_MAX:
            raise _too_large(
                f"holds {TRANSACTION_BYTES_MAX} bytes with the others of its connection"
            )
        self.messages.append(message)
        self._bytes += size
        self._room.bytes += size

    def settle(self, how: Settlement, deliveries: Delivered) -> None:
        """Hold a settlement back. Raises AmqpError 406 if that makes too many; it is held all the
        same, so that it is rolled back with the others.
        """
        self.settlements.append((how, deliveries))
        self.deliveries += len(deliveries)
        if self.deliveries > TRANSACTION_DELIVERIES_MAX:
            raise _too_large(f"settles {TRANSACTION_DELIVERIES_MAX} deliveries")

    def clear(self) -> Delivered:
        """Begin anew; returns the deliveries that were held back."""
        held: Delivered = {}
        for _, deliveries in self.settlements:
            held.update(deliveries)
        self.settlements.clear()
        self.deliveries = 0
        self.messages.clear()
        self._room.bytes -= self._bytes
        self._bytes = 0
        return held


def _too_large(what: str) -> AmqpError:
    return AmqpError(PRECONDITION_FAILED, f"a transaction {what} at most: commit more often")
