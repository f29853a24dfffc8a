"""What the `x-` arguments of queues and exchanges mean, and whether a redeclaration is the same.

Rules:

1. An argument that we serve becomes an option of the kernel's topic or group. One that asks for
   behaviour we do not have is refused, 406 "invalid arg": never accepted silently.
2. Any other one is accepted and kept, as RabbitMQ does. Among them are those that tell RabbitMQ how
   to store and place a queue (x-queue-mode, x-queue-version, x-queue-leader-locator, initial
   cluster sizes): our queues are paged, replicated and placed in any case; x-dead-letter-strategy
   is another, for dead letters always go at least once.
3. A redeclaration is compared with the arguments of the last AMQP declaration of that name, numbers
   as numbers whatever their width (`check_equivalence`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec

from adapters.amqp.codec.fields import (
    EMPTY_TABLE,
    Field,
    Table,
    decode_table,
    encode_table,
    integer_of,
    text_of,
)
from adapters.amqp.errors import PRECONDITION_FAILED, AmqpError
from adapters.amqp.limits import DECLARATION_BYTES_MAX
from adapters.amqp.names import resource, router_key
from kernel.api.model import DeadLetter, GroupOptions, Overflow, TopicOptions

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernel.api.model import TopicInfo

ADAPTER_NAME: Final = "amqp"
"""Our key in `declarations` of topics and routers."""

DURATION_MS_MAX: Final = 315_360_000_000
"""Largest x-expires and x-message-ttl that RabbitMQ takes (ten years): Celery's native delays
declare 134,217,728,000."""
COUNT_MAX: Final = 2**63 - 1
PRIORITY_MAX: Final = 255
DELIVERY_LIMIT_DEFAULT: Final = 20
"""Redeliveries of a quorum queue with a dead-letter exchange (RabbitMQ 4's default). Without one
there is no limit: dropping what somebody still wants is worse than delivering it again."""

CONSUMER_TIMEOUT: Final = "x-consumer-timeout"
"""Of a queue, or of one consumer, in milliseconds: see `patience`. None is the default."""

OVERFLOWS: Final = {
    "drop-head": Overflow.DROP_OLDEST,
    "reject-publish": Overflow.REJECT,
    "reject-publish-dlx": Overflow.REJECT_DEAD_LETTER,
}
QUEUE_TYPES: Final = ("classic", "quorum")

_INTEGERS: Final[dict[str, tuple[int, int]]] = {
    "x-message-ttl": (0, DURATION_MS_MAX),
    "x-expires": (1, DURATION_MS_MAX),
    "x-max-length": (0, COUNT_MAX),
    "x-max-length-bytes": (0, COUNT_MAX),
    "x-max-priority": (0, PRIORITY_MAX),
    "x-delivery-limit": (-1, COUNT_MAX),
    CONSUMER_TIMEOUT: (1, DURATION_MS_MAX),
}
"""Integer arguments and their bounds."""

_TEXTS: Final[dict[str, tuple[str, ...] | None]] = {
    "x-dead-letter-exchange": None,
    "x-dead-letter-routing-key": None,
    "x-dead-letter-strategy": ("at-most-once", "at-least-once"),
    "x-overflow": tuple(OVERFLOWS),
    "x-queue-type": QUEUE_TYPES,
}
"""Text arguments and what they may say; None: anything."""

_REFUSED: Final = frozenset(
    {
        "x-consumer-disconnected-timeout",
        "x-delayed-retry-type",
        "x-delayed-retry-min",
        "x-delayed-retry-max",
        "x-max-age",
        "x-stream-max-segment-size-bytes",
        "x-stream-filter-size-bytes",
        "x-initial-group-size",
    }
)
"""Arguments that change what a consumer sees, and that this version does not do."""

_COMPARED: Final = (
    "x-queue-type",
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-max-length",
    "x-max-length-bytes",
    "x-overflow",
    "x-max-priority",
    "x-single-active-consumer",
    "x-delivery-limit",
)

_TYPE_NAMES: Final = {
    "t": "bool",
    "b": "byte",
    "B": "unsignedbyte",
    "s": "short",
    "u": "unsignedshort",
    "I": "signedint",
    "i": "unsignedint",
    "l": "long",
    "L": "unsignedlong",
    "f": "float",
    "d": "double",
    "D": "decimal",
    "S": "longstr",
    "x": "binary",
    "T": "timestamp",
    "F": "table",
    "A": "array",
    "V": "void",
}
"""RabbitMQ's names of field types, for its error texts."""


class _Record(NamedTuple):
    """The form of a declaration in `declarations`: msgpack of an array."""

    version: int
    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: bytes


@dataclass(frozen=True, slots=True)
class QueueDeclaration:
    """What a client asks of a queue. Made by `queue_declaration`, which checks the arguments."""

    durable: bool
    exclusive: bool
    auto_delete: bool
    arguments: Table = EMPTY_TABLE

    @property
    def is_transient(self) -> bool:
        """Whether its messages live in memory only (docs/design/model.md#durable-or-transient)."""
        return not self.durable or self.exclusive or self.auto_delete

    def encode(self) -> bytes:
        """The form kept in the topic."""
        record = _Record(
            1, self.durable, self.exclusive, self.auto_delete, encode_table(self.arguments)
        )
        return msgspec.msgpack.encode(record)

    @classmethod
    def decode(cls, data: bytes) -> QueueDeclaration:
        """The inverse of `encode`."""
        record = msgspec.msgpack.decode(data, type=_Record)
        arguments, _ = decode_table(record.arguments, 0, len(record.arguments))
        return cls(record.durable, record.exclusive, record.auto_delete, arguments)


def queue_declaration(
    name: str,
    virtual_host: str,
    *,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    arguments: Table,
) -> QueueDeclaration:
    """A checked declaration. Raises AmqpError 406 with RabbitMQ's text."""
    where = resource("queue", name, virtual_host)
    if len(encode_table(arguments)) > DECLARATION_BYTES_MAX:
        raise AmqpError(
            PRECONDITION_FAILED, f"arguments of {where} over {DECLARATION_BYTES_MAX} bytes"
        )
    for argument, field in arguments.entries:
        _check_argument(argument, field, where)
    if arguments.get("x-dead-letter-routing-key") and not arguments.get("x-dead-letter-exchange"):
        raise AmqpError(
            PRECONDITION_FAILED,
            f"routing key but no dead-letter exchange defined for {where}",
        )
    declaration = QueueDeclaration(durable, exclusive, auto_delete, arguments)
    if _queue_type(arguments) == "quorum":
        _check_quorum(declaration, where)
    return declaration


def _check_argument(argument: str, field: Field, where: str) -> None:
    if argument in _REFUSED:
        raise _invalid(argument, where, "not served by this broker")
    if argument in _INTEGERS:
        low, high = _INTEGERS[argument]
        value = integer_of(field)
        if value is None:
            raise _invalid(argument, where, f"unacceptable type {_TYPE_NAMES[field.tag]}")
        if not low <= value <= high:
            raise _invalid(argument, where, f"{value} is not in {low} to {high}")
    elif argument in _TEXTS:
        text = text_of(field)
        allowed = _TEXTS[argument]
        if text is None:
            raise _invalid(argument, where, f"{_TYPE_NAMES[field.tag]}, not text in UTF-8")
        if allowed is not None and text not in allowed:
            raise _invalid(argument, where, f"'{text}' is not one of {', '.join(allowed)}")
    elif argument == "x-single-active-consumer" and field.tag != "t":
        raise _invalid(argument, where, f"unacceptable type {_TYPE_NAMES[field.tag]}")


def _check_quorum(declaration: QueueDeclaration, where: str) -> None:
    for value, wrong in (
        (not declaration.durable, "non-durable"),
        (declaration.auto_delete, "auto-delete"),
        (declaration.exclusive, "exclusive-owner"),
    ):
        if value:
            raise AmqpError(PRECONDITION_FAILED, f"invalid property '{wrong}' for {where}")
    if declaration.arguments.get("x-max-priority") is not None:
        raise _invalid("x-max-priority", where, "not supported by queue type quorum")
    if text_of(declaration.arguments.get("x-overflow")) == "reject-publish-dlx":
        raise _invalid("x-overflow", where, "reject-publish-dlx is not for queue type quorum")


def _invalid(argument: str, where: str, why: str) -> AmqpError:
    return AmqpError(PRECONDITION_FAILED, f"invalid arg '{argument}' for {where}: {why}")


def is_quorum(topic: TopicInfo) -> bool:
    """Whether a queue was declared as a quorum queue, by AMQP."""
    known = topic.options.declarations.get(ADAPTER_NAME)
    return known is not None and _queue_type(QueueDeclaration.decode(known).arguments) == "quorum"


def consumer_timeout_ms(consumer: Table, topic: TopicInfo) -> int | None:
    """How long a consumer with these arguments may hold a delivery of a queue; None: for ever.
    Raises AmqpError 406.
    """
    asked = consumer.get(CONSUMER_TIMEOUT)
    if asked is not None:
        value = integer_of(asked)
        if value is None or not 1 <= value <= DURATION_MS_MAX:
            raise AmqpError(
                PRECONDITION_FAILED,
                f"{CONSUMER_TIMEOUT} is not a number of milliseconds from 1 to {DURATION_MS_MAX}",
            )
        return value
    known = topic.options.declarations.get(ADAPTER_NAME)
    if known is None:
        return None
    return integer_of(QueueDeclaration.decode(known).arguments.get(CONSUMER_TIMEOUT))


def _queue_type(arguments: Table) -> str:
    return text_of(arguments.get("x-queue-type")) or "classic"


def topic_options(declaration: QueueDeclaration, base: TopicOptions) -> TopicOptions:
    """`base` with what the declaration's arguments say; what they do not say stays."""
    arguments = declaration.arguments
    number = _numbers(arguments)
    ttl_ms = number("x-message-ttl")
    overflow = text_of(arguments.get("x-overflow"))
    priority = number("x-max-priority")
    values: dict[str, object] = {
        "message_ttl_ms": ttl_ms,
        "unused_expiry_ms": number("x-expires"),
        "messages_max": number("x-max-length"),
        "bytes_max": number("x-max-length-bytes"),
        "overflow": None if overflow is None else OVERFLOWS[overflow],
        "priority_max": priority,
    }
    given = {name: value for name, value in values.items() if value is not None}
    declarations = {**base.declarations, ADAPTER_NAME: declaration.encode()}
    return msgspec.structs.replace(base, **given, declarations=declarations)


def group_options(declaration: QueueDeclaration, base: GroupOptions) -> GroupOptions:
    """`base` with what the declaration's arguments say; what they do not say stays."""
    arguments = declaration.arguments
    given: dict[str, object] = {}
    router = text_of(arguments.get("x-dead-letter-exchange"))
    if router is not None:
        key = text_of(arguments.get("x-dead-letter-routing-key"))
        if key is not None and router:
            key = router_key(router, key)
        given["dead_letter"] = DeadLetter(router=router or None, key=key)
    limit = _numbers(arguments)("x-delivery-limit")
    if limit is None and router is not None and _queue_type(arguments) == "quorum":
        limit = DELIVERY_LIMIT_DEFAULT
    if limit is not None and limit >= 0:
        # The limit counts redeliveries, attempts count the first delivery too.
        given["attempts_max"] = limit + 1
    single = arguments.get("x-single-active-consumer")
    if single is not None:
        given["single_active_consumer"] = bool(single.value)
    return msgspec.structs.replace(base, **given)


def _numbers(arguments: Table) -> Callable[[str], int | None]:
    return lambda name: integer_of(arguments.get(name))


def check_equivalence(
    wanted: QueueDeclaration, known: QueueDeclaration, name: str, virtual_host: str
) -> None:
    """Refuse a redeclaration that differs from the last one. Raises AmqpError 406.

    Whether the queue is exclusive is not compared here: that is a matter of ownership (405).
    """
    where = resource("queue", name, virtual_host)
    for label, asked, current in (
        # As in RabbitMQ: what goes with its connection is durable in word only.
        (
            "durable",
            wanted.durable and not wanted.exclusive,
            known.durable and not known.exclusive,
        ),
        ("auto_delete", wanted.auto_delete, known.auto_delete),
    ):
        if asked != current:
            raise inequivalent(label, where, asked=asked, current=current)
    for argument in _COMPARED:
        compare_argument(argument, where, wanted.arguments, known.arguments)


def compare_argument(argument: str, where: str, wanted: Table, known: Table) -> None:
    """Refuse an argument that differs. Raises AmqpError 406."""
    asked = wanted.get(argument)
    current = known.get(argument)
    if argument == "x-queue-type":
        # No type means classic, and the other way round.
        asked = asked or Field("S", b"classic")
        current = current or Field("S", b"classic")
    if _comparable(asked) != _comparable(current):
        raise AmqpError(
            PRECONDITION_FAILED,
            f"inequivalent arg '{argument}' for {where}: "
            f"received {_shown(asked)} but current is {_shown(current)}",
        )


def inequivalent(label: str, where: str, *, asked: object, current: object) -> AmqpError:
    """RabbitMQ's text for a property that differs."""
    return AmqpError(
        PRECONDITION_FAILED,
        f"inequivalent arg '{label}' for {where}: "
        f"received '{_word(asked)}' but current is '{_word(current)}'",
    )


def _comparable(field: Field | None) -> object:
    if field is None:
        return None
    number = integer_of(field)
    if number is not None:
        return number
    text = text_of(field)
    return (field.tag, field.value) if text is None else text


def _shown(field: Field | None) -> str:
    if field is None:
        return "none"
    text = text_of(field)
    shown = _word(field.value) if text is None else text
    return f"the value '{shown}' of type '{_TYPE_NAMES[field.tag]}'"


def _word(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
